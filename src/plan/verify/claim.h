// SPDX-License-Identifier: Apache-2.0
/* Whether what a plan claims of its messages is true: STABLE, FRESH (plan.h), and that one place of
 * an outbox never holds two different things. facts.c makes the first two; this is another way to
 * them: during the walk, from what has touched a location so far. */
#ifndef KOLO_PLAN_VERIFY_CLAIM_H
#define KOLO_PLAN_VERIFY_CLAIM_H

#include "plan/verify/symbol.h"
#include "plan/walk.h"

struct kolo_plan_claims {
    const struct kolo_order *order;
    struct claim_send *sends; /* of all locations, each a list to older ones */
    int count, cap;
    int *newest;      /* [locations]: its newest SEND, or -1 */
    bool *touched;    /* [locations]: by anything but SENDs */
    kolo_symbol *box; /* [places of all ranks] */
    int *box_first;   /* [nranks] */
};

bool kolo_claims_init(struct kolo_plan_claims *c, const struct kolo_order *order, int locations);
void kolo_claims_free(struct kolo_plan_claims *c);
/* A SEND reads `location`, the i-th chunk of its source, which holds `symbol`. */
kolo_status kolo_claims_send(struct kolo_plan_claims *c, const struct kolo_event *e, int location,
                             int i, kolo_symbol symbol);
/* Another step reads. */
void kolo_claims_read(struct kolo_plan_claims *c, int location);
/* Any step writes. */
kolo_status kolo_claims_write(struct kolo_plan_claims *c, const struct kolo_event *e, int location);

#endif
