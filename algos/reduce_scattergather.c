// SPDX-License-Identifier: Apache-2.0
/* Reduce by reduce-scatter and gather: each rank gets its chunk from all ranks, sums it in rank
 * order and sends the sum to the root. Two rounds. All ranks share the additions, and the root
 * receives 2(n-1)/n of the vector instead of n-1 vectors.
 *
 *   all --chunk r--> r      r: sum in rank order      r --chunk r--> root
 *
 * Rabenseifner: Optimization of collective reduction operations, 2004 (there with recursive
 * halving).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_chunks(b, n);
    kolo_scratch_chunks(b, 1);
    for (int q = 0; q < n; q++) {
        for (int i = 0; i < n; i++) { /* each sender starts with another receiver */
            const int r = (q + i) % n;
            kolo_term(b, n, q, kolo_in(r), r, kolo_scratch(0));
        }
    }
    kolo_local(b, shape->root, kolo_scratch(0), kolo_out(shape->root), KOLO_MOVE);
    kolo_round(b);
    for (int r = 0; r < n; r++) {
        if (r != shape->root) {
            kolo_transfer(b, r, kolo_scratch(0), shape->root, kolo_out(r), KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_reduce_scattergather = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_scattergather"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Rabenseifner: Optimization of collective reduction operations, 2004, "
              "doi:10.1007/978-3-540-24685-5_1",
    .build = build,
};
