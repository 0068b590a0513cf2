// SPDX-License-Identifier: Apache-2.0
/* Direct all-gather: every rank sends its block to all. One round, and no block moves twice.
 *
 *   r --block r--> all, for each r
 *
 * Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI applications,
 * 2025 (there: all-pairs).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
    }
    for (int i = 1; i < n; i++) {
        for (int r = 0; r < n; r++) {
            kolo_transfer(b, r, kolo_in(0), (r + i) % n, kolo_out(r), KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_allgather_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allgather_direct"},
    .coll = KOLO_COLL_ALL_GATHER,
    .source = "Shah et al.: MSCCL++: Rethinking GPU communication abstractions for cutting-edge AI "
              "applications, 2025, arXiv:2504.09014",
    .build = build,
};
