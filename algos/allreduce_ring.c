// SPDX-License-Identifier: Apache-2.0
/* Ring all-reduce: the vector is cut into n chunks. Partial sums travel once round the ring, and
 * each place adds its own part to them. After n-1 steps place i holds the finished chunk i+1. Then
 * the finished chunks travel round once more. 2(n-1) steps. Each rank sends 2(n-1)/n of the vector,
 * which is the least possible.
 *
 *   step   0        1        2            3        4        5
 *   0 -> 1 chunk 0, then 3, then 2  (sum) | 1, then 0, then 3  (copy)       n = 4
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_chunks(b, n);
    if (n == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int t = 0; t < n - 1; t++) { /* chunk i - t moves right and is summed on arrival */
        const unsigned how = t == n - 2 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
        for (int i = 0; i < n; i++) {
            const int next = kolo_rank_at(shape, (i + 1) % n);
            const int c = kolo_mod(i - t, n);
            kolo_local(b, next, kolo_in(c), kolo_out(c), KOLO_MOVE);
            kolo_transfer(b, kolo_rank_at(shape, i), t == 0 ? kolo_in(c) : kolo_out(c), next,
                          kolo_out(c), how);
        }
        kolo_round(b);
    }
    for (int t = 0; t < n - 1; t++) { /* the finished chunk i + 1 - t moves right */
        for (int i = 0; i < n; i++) {
            const struct kolo_slice done = kolo_out(kolo_mod(i + 1 - t, n));
            kolo_transfer(b, kolo_rank_at(shape, i), done, kolo_rank_at(shape, (i + 1) % n), done,
                          KOLO_MOVE);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_allreduce_ring = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_ring"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of "
              "workstations, 2009, doi:10.1016/j.jpdc.2008.09.002",
    .build = build,
};
