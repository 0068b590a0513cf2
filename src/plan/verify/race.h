// SPDX-License-Identifier: Apache-2.0
/* Vector clocks over (rank, lane), for the orders that a plan promises (Lamport 1978,
 * doi:10.1145/359545.359563).
 *
 * A step happens before the next step of its lane, a SEND before its receive, and a step before the
 * steps that depend on it. A slot that becomes free orders nothing, because an executor may have
 * more slots. If two lanes of a rank touch one chunk and one of them writes, the clocks must order
 * them. Each location keeps only its newest accesses, as in FastTrack
 * (doi:10.1145/1542476.1542490).
 *
 * Whole clocks know all of these orders. Local clocks know the lanes of their own rank alone, and
 * messages do not carry them. A local clock never knows more than the whole one, so an order that
 * it finds is an order. An order that it misses may lead through other ranks.
 */
#ifndef KOLO_PLAN_VERIFY_RACE_H
#define KOLO_PLAN_VERIFY_RACE_H

#include "plan/walk.h"

struct kolo_clocks {
    const struct kolo_order *order;
    bool whole; /* else local */
    int lanes;
    size_t width;    /* entries of a clock: lanes of all ranks, or of one rank if local */
    uint32_t *now;   /* [lanes of all ranks * width]: the clock of each lane */
    uint32_t *sent;  /* [links * width]: clock of the message under way; one slot a link. NULL if
                      * local */
    uint32_t *noted; /* [notes * width]: clocks of the steps that others depend on */
    int *note;       /* [steps]: the step's number in `noted`, or -1 */
    /* [locations * (2 + lanes)]: the newest write, its lane, the newest read of each lane. An
     * access is 1 + its step's turn in the lane; 0: never. NULL for plans of one lane. */
    uint32_t *access;
};

bool kolo_clocks_init(struct kolo_clocks *c, const struct kolo_order *order, int locations,
                      bool whole);
void kolo_clocks_free(struct kolo_clocks *c);
/* Call this once a step, before the step's accesses. */
void kolo_clocks_step(struct kolo_clocks *c, const struct kolo_event *e);
/* Note an access. Returns a step of this rank that also touches `location` and that these clocks do
 * not order before this step, or -1. */
int kolo_clocks_access(struct kolo_clocks *c, const struct kolo_event *e, int location, bool write);
/* At the end of the walk, of whole clocks: a rank whose begin need not come before the end of
 * `rank`, or -1. */
int kolo_clocks_unknown(const struct kolo_clocks *c, int rank);

#endif
