// SPDX-License-Identifier: Apache-2.0
#include "prices_ask.h"

#include "tune/chooser.h"
#include "util/util.h"

int kolo_test_claim(struct kolo_prices *prices, uint64_t key, struct kolo_test_price *out)
{
    struct kolo_priced priced = {.status = KOLO_INPROGRESS};
    const enum kolo_offer offer = kolo_price_claim(prices, key, &priced);
    *out = (struct kolo_test_price){priced.status, priced.forecast.us, priced.forecast.phases};
    return offer == KOLO_OFFER_TAKEN     ? KOLO_TEST_TAKEN
           : offer == KOLO_OFFER_PENDING ? KOLO_TEST_PENDING
                                         : KOLO_TEST_MINE;
}

void kolo_test_tell(struct kolo_prices *prices, uint64_t key, const struct kolo_test_price *price)
{
    const struct kolo_priced priced = {price->status, {.us = price->us, .phases = price->phases}};
    kolo_price_tell(prices, key, &priced);
}

bool kolo_test_await(struct kolo_prices *prices, uint64_t key, double us)
{
    struct kolo_priced priced;
    return kolo_price_await(prices, key, kolo_now_us() + us, &priced);
}
