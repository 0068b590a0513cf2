// SPDX-License-Identifier: Apache-2.0
/* Emission appends ops and operands to the program. One rule says how a message travels.
 *
 * A failed allocation sets `failed`. Every later emission is ignored, so callers need no check. */
#include "exec/lower/lowering.h"
#include "plan/facts.h"

#include <stdlib.h>

static void *grow_array(struct kolo_lowering *l, void *array, uint32_t *cap, uint32_t need,
                        size_t each)
{
    if (need <= *cap) {
        return array;
    }
    const uint32_t larger = *cap > 0 ? 2 * *cap : 32;
    void *grown = realloc(array, larger * each);
    if (grown == NULL) {
        l->failed = true;
        return array;
    }
    *cap = larger;
    return grown;
}

struct kolo_uop *kolo_lowering_emit(struct kolo_lowering *l, enum kolo_code code, int step)
{
    static struct kolo_uop trash; /* after a failure callers write here and need no check */
    struct kolo_prog *p = l->prog;
    p->op = grow_array(l, p->op, &l->op_cap, p->nops + 1, sizeof *p->op);
    if (l->failed) {
        return &trash;
    }
    p->op[p->nops] = (struct kolo_uop){
        .code = (uint8_t)code, .count = 1, .peer = -1, .first = p->nats, .step = step};
    return &p->op[p->nops++];
}

/* The newest operands belong to the newest op, so appending is enough. */
void kolo_lowering_operand(struct kolo_lowering *l, struct kolo_at at)
{
    struct kolo_prog *p = l->prog;
    p->at = grow_array(l, p->at, &l->at_cap, p->nats + 1, sizeof *p->at);
    if (!l->failed) {
        p->at[p->nats++] = at;
    }
}

enum kolo_travel kolo_lowering_how(const struct kolo_lowering *l, const struct kolo_step *s,
                                   bool sends, bool reduce)
{
    const uint8_t bits = l->link[s->peer];
    const uint8_t in = sends ? KOLO_LINK_MY_IN : KOLO_LINK_PEER_IN;
    const uint8_t out = sends ? KOLO_LINK_MY_OUT : KOLO_LINK_PEER_OUT;
    const uint8_t to = sends ? KOLO_LINK_PEER_OUT : KOLO_LINK_MY_OUT;
    const uint8_t apart = sends ? KOLO_LINK_MY_APART : KOLO_LINK_PEER_APART;
    const int from_rank = sends ? l->prog->me : s->peer, to_rank = sends ? s->peer : l->prog->me;
    if ((bits & KOLO_LINK_MAP) == 0) {
        return KOLO_BY_MESSAGE;
    }
    const bool stable = (s->flags & KOLO_STEP_STABLE) != 0 ||
                        (s->src.buf == KOLO_IN && (bits & apart) != 0 && l->plan->lanes == 1);
    const bool from_in = s->src.buf == KOLO_IN && (bits & in) != 0 && stable;
    const bool pushes =
        !reduce && s->dst.buf == KOLO_OUT && (bits & to) != 0 && (s->flags & KOLO_STEP_FRESH) != 0;
    if (from_in && pushes && (bits & apart) == 0 && kolo_plan_halves(l->plan)) {
        return s->src.first % 2 != 0 ? KOLO_BY_PULL : KOLO_BY_PUSH;
    }
    if (from_in && kolo_plan_fans_out(l->plan, from_rank, to_rank)) {
        return KOLO_BY_PULL;
    }
    if (pushes) {
        return KOLO_BY_PUSH;
    }
    const bool loads = (s->src.buf == KOLO_IN && (bits & in) != 0) ||
                       (s->src.buf == KOLO_OUT && (bits & out) != 0);
    return loads && stable ? KOLO_BY_PULL : KOLO_BY_OUTBOX;
}

bool kolo_lowering_send_reduces(const struct kolo_lowering *l, int i)
{
    const struct kolo_step *s = &l->mine->step[i];
    return l->match != NULL && l->match[l->prog->me].other[i] >= 0 &&
           l->plan->rank[s->peer].step[l->match[l->prog->me].other[i]].op == KOLO_RECV_REDUCE;
}
