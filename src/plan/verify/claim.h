// SPDX-License-Identifier: Apache-2.0
/* Check the claims of a plan about its messages: STABLE, FRESH (plan.h), and that one place of an
 * outbox never holds two different values. facts.c derives the first two from the whole plan. This
 * check is independent: during the walk it looks at the steps that have touched a location so far.
 */
#ifndef KOLO_PLAN_VERIFY_CLAIM_H
#define KOLO_PLAN_VERIFY_CLAIM_H

#include "plan/verify/symbol.h"
#include "plan/walk.h"

struct kolo_plan_claims {
    const struct kolo_order *order;
    struct claim_send *sends; /* of all locations; each leads to the next older one */
    int count, cap;
    int *newest;      /* [locations]: the location's newest SEND, or -1 */
    bool *touched;    /* [locations]: a step other than a SEND touched it */
    kolo_symbol *box; /* [places of all ranks] */
    int *box_first;   /* [nranks] */
};

bool kolo_claims_init(struct kolo_plan_claims *c, const struct kolo_order *order, int locations);
void kolo_claims_free(struct kolo_plan_claims *c);
/* A SEND reads `location`, the i-th chunk of its source, which holds `symbol`. */
kolo_status kolo_claims_send(struct kolo_plan_claims *c, const struct kolo_event *e, int location,
                             int i, kolo_symbol symbol);
/* A step other than a SEND reads `location`. */
void kolo_claims_read(struct kolo_plan_claims *c, int location);
/* Any step writes `location`. */
kolo_status kolo_claims_write(struct kolo_plan_claims *c, const struct kolo_event *e, int location);

#endif
