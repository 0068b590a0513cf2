// SPDX-License-Identifier: Apache-2.0
/* Vector clocks over (rank, lane), for the orders that a plan promises (Lamport 1978,
 * doi:10.1145/359545.359563).
 *
 * A step happens before the next step of its lane, a SEND before its receive, and a step before the
 * steps that depend on it. A slot that becomes free orders nothing, because an executor may have
 * more slots. If two lanes of a rank touch one chunk and one of them writes, the clocks must order
 * them. Each location keeps only its newest accesses, as in FastTrack
 * (doi:10.1145/1542476.1542490).
 */
#ifndef KOLO_PLAN_VERIFY_RACE_H
#define KOLO_PLAN_VERIFY_RACE_H

#include "plan/walk.h"

struct kolo_clocks {
    const struct kolo_order *order;
    int lanes;
    size_t width;    /* entries of a clock: lanes of all ranks */
    uint32_t *now;   /* [width * width]: the clock of each lane */
    uint32_t *sent;  /* [links * width]: clock of the message under way; one slot a link */
    uint32_t *noted; /* [notes * width]: clocks of the steps that others depend on */
    int *note;       /* [steps]: the step's number in `noted`, or -1 */
    /* [locations * (2 + lanes)]: the newest write, its lane, the newest read of each lane. An
     * access is 1 + its step's turn in the lane; 0: never. NULL for plans of one lane. */
    uint32_t *access;
};

bool kolo_clocks_init(struct kolo_clocks *c, const struct kolo_order *order, int locations);
void kolo_clocks_free(struct kolo_clocks *c);
/* Call this once a step, before the step's accesses. */
void kolo_clocks_step(struct kolo_clocks *c, const struct kolo_event *e);
/* Note an access. Returns a step of this rank that also touches `location` and is not ordered
 * before this step, or -1. */
int kolo_clocks_access(struct kolo_clocks *c, const struct kolo_event *e, int location, bool write);
/* At the end of the walk: a rank whose begin need not come before the end of `rank`, or -1. */
int kolo_clocks_unknown(const struct kolo_clocks *c, int rank);

#endif
