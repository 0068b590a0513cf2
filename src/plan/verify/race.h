// SPDX-License-Identifier: Apache-2.0
/* Who knows of whom: vector clocks over (rank, lane), for the orders that a plan promises.
 *
 * A step happens before the next one of its lane, a SEND before its receive, a step before those
 * that depend on it; slots that become free order nothing, as an executor may have more of them.
 * Lanes of a rank that touch one chunk, one of them writing, must be ordered so (Lamport 1978,
 * doi:10.1145/359545.359563; per location only the newest accesses are kept, as in FastTrack,
 * doi:10.1145/1542476.1542490).
 */
#ifndef KOLO_PLAN_VERIFY_RACE_H
#define KOLO_PLAN_VERIFY_RACE_H

#include "plan/walk.h"

struct kolo_clocks {
    const struct kolo_order *order;
    int lanes;
    size_t width;    /* entries of a clock: lanes of all ranks */
    uint32_t *now;   /* [width * width]: the clock of each lane */
    uint32_t *sent;  /* [links * width]: of the message under way; one slot a link */
    uint32_t *noted; /* [notes * width]: of the steps that others depend on */
    int *note;       /* [steps]: its number among them, or -1 */
    /* [locations * (2 + lanes)]: the newest write, its lane, the newest read of each lane; a turn
     * is 1 + that in its lane, 0: never. NULL for plans of one lane. */
    uint32_t *access;
};

bool kolo_clocks_init(struct kolo_clocks *c, const struct kolo_order *order, int locations);
void kolo_clocks_free(struct kolo_clocks *c);
/* To be called once a step, before its accesses. */
void kolo_clocks_step(struct kolo_clocks *c, const struct kolo_event *e);
/* The step of this rank that touches `location` too and is not ordered before this one, or -1. */
int kolo_clocks_access(struct kolo_clocks *c, const struct kolo_event *e, int location, bool write);
/* At the end: a rank whose begin need not have happened before the end of `rank`, or -1. */
int kolo_clocks_unknown(const struct kolo_clocks *c, int rank);

#endif
