// SPDX-License-Identifier: Apache-2.0
/* The one ordering semantics of plans.
 *
 * A plan runs by these rules:
 * - Each lane of a rank does its steps in order, for tile 0, 1, 2, ...
 * - Each link (from, to, lane) is a FIFO with a number of slots. A SEND waits while all slots hold
 *   messages that were not received.
 * - `dep` waits for that step of the same tile.
 * - A lane begins tile t when all lanes of its rank are done with tile t-2.
 * The visitor defines the *meaning* of a step: symbols, seconds, a place in a drawing.
 *
 * A step that can run stays able to run until it does. So the order in which ranks advance does not
 * decide whether a plan ends, and a walk in one order, round-robin, shows it.
 */
#ifndef KOLO_WALK_H
#define KOLO_WALK_H

#include "plan.h"

/* The matching of a whole plan's messages, made before the walk. Immutable. */
struct kolo_order {
    const struct kolo_plan *plan;
    int steps, links, messages; /* of one tile, of all ranks */
    int *base;                  /* [nranks + 1]: number of a rank's step 0 among all steps */
    int *message;               /* [steps]: the message of a SEND or receive, else -1 */
    int *turn;                  /* [steps]: the step's index in its lane */
    int *lane_first;            /* [nranks * lanes + 1]: into lane_step */
    int *lane_step;             /* [steps]: step indices, lane by lane */
    int *link;                  /* [messages]; messages of a link are numbered consecutively */
    int *send, *recv;           /* [messages]: the two steps' indices in their ranks */
    int *link_first;            /* [links + 1]: its first message */
    void *block;                /* holds all of the above */
};

/* Match the messages of a whole plan (only == -1). INVALID, with a text: an invalid step, a message
 * that only one end has, or ends that disagree. */
kolo_status kolo_order_create(const struct kolo_plan *plan, struct kolo_order *out);
void kolo_order_destroy(struct kolo_order *order);

struct kolo_event { /* one finished step */
    const struct kolo_step *step;
    int rank, index, tile;
    int number;  /* of the step among all steps: order->base[rank] + index */
    int message; /* or -1 */
    /* At step->peer: for a receive the SEND; for a SEND the receive that freed its slot, -1 if the
     * slot was never used. */
    int other, other_tile;
};

struct kolo_visitor {
    /* Called once a step, in an order that the plan allows; an error ends the walk. */
    kolo_status (*step)(void *ctx, const struct kolo_event *event);
};

/* Run `tiles` repetitions with `slots` slots a link. INVALID: a deadlock; the text names the ranks
 * and their waits. Otherwise the function returns the visitor's status. */
kolo_status kolo_order_walk(const struct kolo_order *order, int tiles, int slots,
                            const struct kolo_visitor *visitor, void *ctx);

/* Create the order of `plan`, walk it, and destroy it. */
kolo_status kolo_walk(const struct kolo_plan *plan, int tiles, int slots,
                      const struct kolo_visitor *visitor, void *ctx);

/* Fail with INVALID: "allreduce_ring, 4 ranks: rank 2 lane 0 step 3 (send to 3 ...): " and the
 * formatted sentence. */
kolo_status kolo_step_refuse(const struct kolo_plan *plan, int rank, int index, const char *format,
                             ...) KOLO_PRINTF(4, 5);

#endif
