// SPDX-License-Identifier: Apache-2.0
/* The check of the claims about messages. It keeps the SENDs of each location, and checks every
 * write against them. */
#include "plan/verify/claim.h"

#include "util/grow.h"

#include <stdlib.h>
#include <string.h>

struct claim_send {
    int step, older;
};

bool kolo_claims_init(struct kolo_plan_claims *c, const struct kolo_order *order, int locations)
{
    const struct kolo_plan *plan = order->plan;
    const size_t n = (size_t)plan->shape.nranks;
    *c = (struct kolo_plan_claims){.order = order};
    c->newest = malloc(((size_t)locations + 1) * sizeof *c->newest);
    c->touched = calloc((size_t)locations + 1, sizeof *c->touched);
    c->box_first = malloc(n * sizeof *c->box_first);
    if (c->newest == NULL || c->touched == NULL || c->box_first == NULL) {
        return false;
    }
    memset(c->newest, 0xff, (size_t)locations * sizeof *c->newest);
    int places = 0;
    for (size_t r = 0; r < n; r++) {
        c->box_first[r] = places;
        places += plan->rank[r].places;
    }
    c->box = calloc((size_t)places + 1, sizeof *c->box);
    return c->box != NULL;
}

void kolo_claims_free(struct kolo_plan_claims *c)
{
    free(c->sends);
    free(c->newest);
    free(c->touched);
    free(c->box);
    free(c->box_first);
}

static kolo_status check_place(struct kolo_plan_claims *c, const struct kolo_event *e, int i,
                               kolo_symbol symbol)
{
    const struct kolo_rank_plan *mine = &c->order->plan->rank[e->rank];
    const int place = e->step->place + i;
    if (place >= mine->places || e->step->phase >= mine->phases) {
        return kolo_step_refuse(c->order->plan, e->rank, e->index,
                                "place %d or phase %d is beyond what rank %d has (%d, %d)", place,
                                e->step->phase, e->rank, mine->places, mine->phases);
    }
    kolo_symbol *at = &c->box[c->box_first[e->rank] + place];
    if (*at != KOLO_UNWRITTEN && *at != symbol) {
        return kolo_step_refuse(c->order->plan, e->rank, e->index,
                                "place %d of the outbox was announced with something else", place);
    }
    *at = symbol;
    return KOLO_OK;
}

kolo_status kolo_claims_send(struct kolo_plan_claims *c, const struct kolo_event *e, int location,
                             int i, kolo_symbol symbol)
{
    const struct kolo_plan *plan = c->order->plan;
    const int facts = e->step->flags & (KOLO_STEP_STABLE | KOLO_STEP_FRESH);
    if (facts != 0 && plan->lanes > 1) {
        return kolo_step_refuse(plan, e->rank, e->index,
                                "claims STABLE or FRESH in a plan of %d lanes", plan->lanes);
    }
    if ((facts & KOLO_STEP_STABLE && e->step->src.buf == KOLO_SCRATCH) ||
        (facts & KOLO_STEP_FRESH && e->step->dst.buf != KOLO_OUT)) {
        return kolo_step_refuse(plan, e->rank, e->index,
                                "claims STABLE of scratch, or FRESH of what is not out");
    }
    struct claim_send *grown = kolo_grow(c->sends, c->count, &c->cap, sizeof *grown);
    if (grown == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    }
    c->sends = grown;
    c->sends[c->count] = (struct claim_send){e->index, c->newest[location]};
    c->newest[location] = c->count++;
    return check_place(c, e, i, symbol);
}

void kolo_claims_read(struct kolo_plan_claims *c, int location)
{
    c->touched[location] = true;
}

/* Whether the peer received SEND `send` of this rank before it sent the message that `e`
 * receives. */
static bool is_answered(const struct kolo_plan_claims *c, const struct kolo_event *e, int send)
{
    const struct kolo_order *o = c->order;
    return e->step->op == KOLO_RECV && o->plan->rank[e->rank].step[send].peer == e->step->peer &&
           o->recv[o->message[o->base[e->rank] + send]] < e->other;
}

kolo_status kolo_claims_write(struct kolo_plan_claims *c, const struct kolo_event *e, int location)
{
    const struct kolo_plan *plan = c->order->plan;
    const bool fresh = e->message >= 0 && (e->step->flags & KOLO_STEP_FRESH) != 0;
    if (fresh && c->touched[location]) {
        return kolo_step_refuse(plan, e->rank, e->index, "FRESH, but was touched before");
    }
    for (int at = c->newest[location]; at >= 0; at = c->sends[at].older) {
        const int send = c->sends[at].step;
        const bool stable = (plan->rank[e->rank].step[send].flags & KOLO_STEP_STABLE) != 0;
        if ((stable || fresh) && !is_answered(c, e, send)) {
            return kolo_step_refuse(plan, e->rank, e->index,
                                    "writes what step %d sent; that one is %s", send,
                                    stable ? "STABLE" : "not over when FRESH data comes");
        }
    }
    c->touched[location] = true;
    return KOLO_OK;
}
