// SPDX-License-Identifier: Apache-2.0
/* One-shot all-reduce: every rank sends its whole vector to all, and each rank sums all vectors in
 * rank order. One round. Each rank sends n-1 vectors: for the shortest vectors.
 *
 *   all --vector--> all      each: sum in rank order
 *
 * Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI applications,
 * 2025 (there: one-phase all-pairs).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 1); /* OUT may be IN, which is still to be read */
    for (int q = 0; q < n; q++) {
        for (int i = 0; i < n; i++) { /* each sender starts with another receiver */
            kolo_term(b, n, q, kolo_in(0), (q + i) % n, kolo_scratch(0));
        }
    }
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_allreduce_oneshot = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_oneshot"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI "
              "applications, 2025, arXiv:2504.09014",
    .build = build,
};
