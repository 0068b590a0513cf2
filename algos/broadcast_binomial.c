// SPDX-License-Identifier: Apache-2.0
/* Binomial-tree broadcast: in each round every node that has the vector sends it half as far as in
 * the round before. ceil(log2 n) rounds. Node 0 is the root.
 *
 *   0 -> 4   |   0 -> 2   4 -> 6   |   0 -> 1   2 -> 3   4 -> 5   6 -> 7        n = 8
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int start = kolo_root_place(shape);
    for (int bit = kolo_pow2_floor(n); bit >= 1; bit /= 2) {
        for (int v = 0; v + bit < n; v += 2 * bit) {
            kolo_transfer(b, kolo_rank_after(shape, start, v), v == 0 ? kolo_in(0) : kolo_out(0),
                          kolo_rank_after(shape, start, v + bit), kolo_out(0), KOLO_MOVE);
        }
        kolo_round(b);
    }
    kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_broadcast_binomial = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_binomial"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
