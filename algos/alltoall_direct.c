// SPDX-License-Identifier: Apache-2.0
/* Direct all-to-all: everyone sends each rank its block at once, beginning with the next rank. One
 * round, and no block moves twice.
 *
 *   q --block r--> r, where it becomes block q
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(r), kolo_out(r), KOLO_MOVE);
    }
    for (int i = 1; i < n; i++) {
        for (int q = 0; q < n; q++) {
            const int r = (q + i) % n;
            kolo_transfer(b, q, kolo_in(r), r, kolo_out(q), KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_alltoall_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "alltoall_direct"},
    .coll = KOLO_COLL_ALL_TO_ALL,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
