// SPDX-License-Identifier: Apache-2.0
/* Recursive-doubling all-gather: in step k, partners whose ranks differ in bit k swap all their
 * blocks, 2^k that lie together. log2 n steps and n-1 blocks, for powers of two.
 *
 *   0 <[0][1]> 1   2 <[2][3]> 3   |   0 <[0 1][2 3]> 2   1 <[0 1][2 3]> 3        n = 4
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static bool supports(const struct kolo_shape *shape)
{
    return kolo_is_pow2(shape->nranks);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
    }
    for (int bit = 1; bit < n; bit *= 2) {
        for (int r = 0; r < n; r++) {
            const struct kolo_slice have = kolo_slice_make(KOLO_OUT, r & ~(bit - 1), bit);
            kolo_transfer(b, r, bit == 1 ? kolo_in(0) : have, r ^ bit, have, KOLO_MOVE);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_allgather_doubling = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allgather_doubling"},
    .coll = KOLO_COLL_ALL_GATHER,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .supports = supports,
    .build = build,
};
