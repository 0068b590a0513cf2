// SPDX-License-Identifier: Apache-2.0
/* Binomial-tree reduce: in round k the nodes whose lowest set bit is k send their sum to the node
 * without that bit. ceil(log2 n) rounds. Node 0 is the root.
 *
 *   1 -> 0   3 -> 2   5 -> 4   7 -> 6   |   2 -> 0   6 -> 4   |   4 -> 0        n = 8
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int start = kolo_root_place(shape);
    kolo_scratch_chunks(b, 1); /* OUT is the root's alone */
    if (n == 1) {
        kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int bit = 1; bit < n; bit *= 2) {
        for (int v = bit; v < n; v += 2 * bit) {
            const bool leaf = bit == 1 || v == n - 1;
            const int to = kolo_rank_after(shape, start, v - bit);
            const struct kolo_slice sum = v == bit ? kolo_out(0) : kolo_scratch(0);
            const unsigned how = v == bit && 2 * bit >= n ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
            if (bit == 1) {
                kolo_local(b, to, kolo_in(0), sum, KOLO_MOVE);
            }
            kolo_transfer(b, kolo_rank_after(shape, start, v), leaf ? kolo_in(0) : kolo_scratch(0),
                          to, sum, how);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_reduce_binomial = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_binomial"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
