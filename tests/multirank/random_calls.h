// SPDX-License-Identifier: Apache-2.0
/* Calls in an order that follows from a seed, which all ranks draw alike, with results that are
 * checked. */
#ifndef KOLO_TESTS_RANDOM_CALLS_H
#define KOLO_TESTS_RANDOM_CALLS_H

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>

struct random_calls {
    uint64_t random; /* the same on all ranks */
    uint64_t calls;  /* so far */
    int32_t *in, *out;
    bool wrong; /* some result was */
};

/* Of ranks that share this seed. False: no memory. */
bool random_calls_begin(struct random_calls *r, uint64_t seed);
void random_calls_end(struct random_calls *r);

/* A number from 0 to below - 1. */
uint32_t random_calls_draw(struct random_calls *r, uint32_t below);

/* Make the next call on `comm`, of up to 16 ranks. The first wrong result is printed. Returns the
 * call's status. */
kolo_status random_calls_make(struct random_calls *r, struct kolo_comm *comm);

#endif
