// SPDX-License-Identifier: Apache-2.0
/* The prices that the processes of a host share, in memory of zeros that all of them map. */
#ifndef KOLO_TUNE_PRICES_H
#define KOLO_TUNE_PRICES_H

#include <stdatomic.h>
#include <stdint.h>

enum { KOLO_PRICES = 512 };
struct kolo_shared_price {
    _Atomic uint64_t key;   /* of the facts, the call and the algorithm; 0: free */
    _Atomic uint32_t state; /* written after the others, by the process that wrote the key */
    int32_t phases;
    double us;
};
struct kolo_prices {
    struct kolo_shared_price price[KOLO_PRICES];
};

#endif
