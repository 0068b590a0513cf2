// SPDX-License-Identifier: Apache-2.0
/* How a message travels: as exec/lower/lower.c says. */
#include "plan/facts.h"
#include "plan/price_inner.h"

enum kolo_price_way kolo_price_way(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *s = e->step;
    const int to = s->op == KOLO_SEND ? s->peer : e->rank;
    const int from = s->op == KOLO_SEND ? e->rank : s->peer;
    const bool stable = s->src.buf != KOLO_SCRATCH && (s->flags & KOLO_STEP_STABLE) != 0;
    const struct kolo_step *receive = &p->plan->rank[to].step[p->order->recv[e->message]];
    if (!p->machine->mapped) {
        return KOLO_BY_OUTBOX;
    }
    const bool pushes =
        receive->op == KOLO_RECV && s->dst.buf == KOLO_OUT && (s->flags & KOLO_STEP_FRESH) != 0;
    const bool from_in = stable && s->src.buf == KOLO_IN;
    if (from_in && pushes && kolo_plan_halves(p->plan)) {
        return s->src.first % 2 != 0 ? KOLO_FROM_IN : KOLO_BY_PUSH;
    }
    if (from_in && kolo_plan_fans_out(p->plan, from, to)) {
        return KOLO_FROM_IN;
    }
    if (pushes) {
        return KOLO_BY_PUSH;
    }
    if (!stable) {
        return KOLO_BY_OUTBOX;
    }
    return s->src.buf == KOLO_IN ? KOLO_FROM_IN : KOLO_BY_PULL;
}
