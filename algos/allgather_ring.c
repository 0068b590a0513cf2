// SPDX-License-Identifier: Apache-2.0
/* Ring all-gather: every block travels once round the ring. n-1 steps between neighbours. Each rank
 * sends n-1 blocks, which is the least possible.
 *
 *   step t: place i --block of place i-t--> place i+1
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
    }
    for (int t = 0; t < n - 1; t++) {
        for (int i = 0; i < n; i++) {
            const int block = kolo_rank_at(shape, kolo_mod(i - t, n));
            kolo_transfer(b, kolo_rank_at(shape, i), t == 0 ? kolo_in(0) : kolo_out(block),
                          kolo_rank_at(shape, (i + 1) % n), kolo_out(block), KOLO_MOVE);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_allgather_ring = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allgather_ring"},
    .coll = KOLO_COLL_ALL_GATHER,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
