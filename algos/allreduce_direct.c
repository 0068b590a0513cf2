// SPDX-License-Identifier: Apache-2.0
/* Direct (two-shot) all-reduce: each rank gets its chunk from all ranks, sums it in rank order and
 * sends the sum to all. Two rounds for every n. Each rank sends 2(n-1)/n of the vector. The
 * expression is ((x0 + x1) + x2) + ..., which deterministic mode needs.
 *
 *   all --chunk r--> r      r: sum in rank order      r --chunk r--> all
 *
 * Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI applications,
 * 2025 (there: two-phase all-pairs).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_chunks(b, n);
    kolo_scratch_chunks(b, 1); /* OUT may be IN, which is still to be read */
    for (int q = 0; q < n; q++) {
        for (int i = 0; i < n; i++) { /* each sender starts with another receiver */
            const int r = (q + i) % n;
            kolo_term(b, n, q, kolo_in(r), r, kolo_scratch(0));
        }
    }
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_scratch(0), kolo_out(r), KOLO_MOVE);
    }
    kolo_round(b);
    for (int i = 1; i < n; i++) {
        for (int r = 0; r < n; r++) {
            kolo_transfer(b, r, kolo_out(r), (r + i) % n, kolo_out(r), KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_allreduce_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_direct"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI "
              "applications, 2025, arXiv:2504.09014",
    .build = build,
};
