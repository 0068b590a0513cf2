// SPDX-License-Identifier: Apache-2.0
/* Direct reduce-scatter: every rank sends each rank its block, and each rank sums in rank order.
 * One round. Each rank sends n-1 blocks. The expression is ((x0 + x1) + x2) + ..., which
 * deterministic mode needs.
 *
 *   all --block r--> r      r: sum in rank order
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005
 * (there: pairwise exchange, in n-1 steps).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 1); /* OUT may be a block of IN, which is still to be read */
    for (int q = 0; q < n; q++) {
        for (int i = 0; i < n; i++) { /* each sender starts with another receiver */
            const int r = (q + i) % n;
            kolo_term(b, n, q, kolo_in(r), r, kolo_scratch(0));
        }
    }
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_reducescatter_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reducescatter_direct"},
    .coll = KOLO_COLL_REDUCE_SCATTER,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
