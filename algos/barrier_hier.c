// SPDX-License-Identifier: Apache-2.0
/* Barrier tier by tier: in a group every rank signals all others. Then each rank signals its
 * matches in the neighbouring groups, and so on. One message a tier on the longest path. The
 * messages are empty.
 *
 *   {0 1 2} {3 4 5}   0 <-> 1 <-> 2 <-> 0   3 <-> 4 <-> 5 <-> 3   |   0 <-> 3   1 <-> 4   2 <-> 5
 *
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988 (there: two ranks at a
 * time).
 */
#include "hier.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const struct kolo_slice nothing = kolo_slice_make(KOLO_SCRATCH, 0, 0);
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    for (int t = 1; t <= h.top; t++) {
        for (int r = 0; r < h.n; r++) {
            const int group = kolo_hier_group(&h, t, r);
            for (int child = group; child >= 0; child = kolo_hier_next(&h, t, child)) {
                const int from = kolo_hier_match(&h, t, r, child);
                if (from != r) {
                    kolo_transfer(b, from, nothing, r, nothing, KOLO_MOVE);
                }
            }
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_barrier_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "barrier_hier"},
    .coll = KOLO_COLL_BARRIER,
    .source = "Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988, "
              "doi:10.1007/BF01379320",
    .supports = kolo_hier_supports,
    .build = build,
};
