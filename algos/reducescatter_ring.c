// SPDX-License-Identifier: Apache-2.0
/* Ring reduce-scatter: the sum of each block starts at the place after its owner and travels round
 * the ring to the owner. Every rank adds its part. n-1 steps between neighbours. Each rank sends
 * n-1 blocks, which is the least possible.
 *
 *   step t: place i --sum of the block of place i-1-t--> place i+1
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009 (its
 * first phase).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 2); /* a sum is received beside the one being sent */
    if (n == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int t = 0; t < n - 1; t++) {
        const bool last = t == n - 2;
        const struct kolo_slice sum = last ? kolo_out(0) : kolo_scratch(t % 2);
        for (int i = 0; i < n; i++) {
            const int next = kolo_rank_at(shape, (i + 1) % n);
            const struct kolo_slice block = kolo_in(kolo_rank_at(shape, kolo_mod(i - 1 - t, n)));
            kolo_local(b, next, block, sum, KOLO_MOVE);
            kolo_transfer(b, kolo_rank_at(shape, i), t == 0 ? block : kolo_scratch((t + 1) % 2),
                          next, sum, last ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_reducescatter_ring = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reducescatter_ring"},
    .coll = KOLO_COLL_REDUCE_SCATTER,
    .source = "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of "
              "workstations, 2009, doi:10.1016/j.jpdc.2008.09.002",
    .build = build,
};
