// SPDX-License-Identifier: Apache-2.0
/* Asks for shared prices from C++, which cannot read chooser.h. */
#ifndef KOLO_TESTS_PRICES_ASK_H
#define KOLO_TESTS_PRICES_ASK_H

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>

struct kolo_prices;

enum { KOLO_TEST_MINE, KOLO_TEST_PENDING, KOLO_TEST_TAKEN };

struct kolo_test_price {
    kolo_status status;
    double us;
    int phases;
};

int kolo_test_claim(struct kolo_prices *prices, uint64_t key, struct kolo_test_price *out);
void kolo_test_tell(struct kolo_prices *prices, uint64_t key, const struct kolo_test_price *price);
/* Whether another process told it within so many microseconds. */
bool kolo_test_await(struct kolo_prices *prices, uint64_t key, double us);

#endif
