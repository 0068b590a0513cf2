// SPDX-License-Identifier: Apache-2.0
/* Direct barrier: every rank signals all others. One round, so a rank whose peers are all there
 * waits for nobody. The messages are empty. In shared memory one line is the signal to all.
 * Between hosts each signal is a message, so few ranks gain.
 *
 *   r -> all, for each r
 *
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988 (there: two ranks at a
 * time).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const struct kolo_slice nothing = kolo_slice_make(KOLO_SCRATCH, 0, 0);
    for (int i = 1; i < n; i++) {
        for (int r = 0; r < n; r++) {
            kolo_transfer(b, r, nothing, (r + i) % n, nothing, KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_barrier_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "barrier_direct"},
    .coll = KOLO_COLL_BARRIER,
    .source = "Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988, "
              "doi:10.1007/BF01379320",
    .build = build,
};
