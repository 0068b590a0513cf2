// SPDX-License-Identifier: Apache-2.0
/* Lowering of sends. A run of sends becomes copies into the outbox or into the receivers' memory,
 * then one signal. A send of a slice that a move just wrote adds a destination to that move. */
#include "exec/lower/lowering.h"

/* The newest op, if it is a move with exactly this slice of mine among its destinations. Else
 * NULL. */
static struct kolo_uop *move_that_wrote(struct kolo_lowering *l, uint32_t lane_begin,
                                        struct kolo_slice s)
{
    struct kolo_prog *p = l->prog;
    if (l->failed || p->nops == lane_begin || p->op[p->nops - 1].code != KOLO_DO_MOVE) {
        return NULL;
    }
    struct kolo_uop *move = &p->op[p->nops - 1];
    const struct kolo_at want = kolo_at_slice(s);
    for (uint32_t i = 0; i < move->ndst; i++) {
        const struct kolo_at *d = &p->at[move->first + move->nsrc + i];
        if (d->space == want.space && d->index == want.index && d->count == want.count) {
            return move;
        }
    }
    return NULL;
}

static void move_to(struct kolo_lowering *l, uint32_t lane_begin, int step, struct kolo_slice src,
                    struct kolo_at dst)
{
    struct kolo_uop *move = move_that_wrote(l, lane_begin, src);
    if (move == NULL) {
        move = kolo_lowering_emit(l, KOLO_DO_MOVE, step);
        move->nsrc = 1;
        move->count = src.count;
        kolo_lowering_operand(l, kolo_at_slice(src));
    }
    move->ndst++;
    kolo_lowering_operand(l, dst);
}

static void post_send(struct kolo_lowering *l, int i)
{
    const struct kolo_step *s = &l->mine->step[i];
    struct kolo_at from = kolo_at_slice(s->src);
    if ((s->flags & KOLO_STEP_STABLE) == 0 || s->src.count != 1) {
        from = (struct kolo_at){.space = KOLO_AT_STAGE,
                                .count = s->src.count,
                                .rank = -1,
                                .index = l->prog->stage_chunks};
        l->prog->stage_chunks += s->src.count;
        struct kolo_uop *move = kolo_lowering_emit(l, KOLO_DO_MOVE, i);
        move->nsrc = move->ndst = 1;
        move->count = s->src.count;
        kolo_lowering_operand(l, kolo_at_slice(s->src));
        kolo_lowering_operand(l, from);
    }
    struct kolo_uop *send = kolo_lowering_emit(l, KOLO_DO_SEND, i);
    send->peer = s->peer;
    send->nsrc = 1;
    send->count = s->src.count;
    send->index = l->prog->nreqs++;
    send->channel = s->lane;
    kolo_lowering_operand(l, from);
}

int kolo_lower_sends(struct kolo_lowering *l, uint32_t lane_begin, int i, int lane)
{
    const uint16_t phase = l->mine->step[i].phase;
    int last_place = -1, end = i;
    bool signals = false;
    const int first = i;
    for (; i < l->mine->count; i++) {
        const struct kolo_step *s = &l->mine->step[i];
        if (s->lane != lane) {
            continue;
        }
        if (s->op != KOLO_SEND || s->phase != phase) {
            break;
        }
        end = i + 1;
        switch (kolo_lowering_how(l, s, true, kolo_lowering_send_reduces(l, i))) {
        case KOLO_BY_MESSAGE:
            post_send(l, i);
            continue;
        case KOLO_BY_PULL:
            l->pulled_by[s->peer] = true;
            if (s->src.buf == KOLO_IN) {
                continue; /* no signal: my entry line says that the data is there */
            }
            break;
        case KOLO_BY_PUSH:
            l->entry[s->peer] = true;
            move_to(l, lane_begin, i, s->src, kolo_at_peer(s->peer, s->dst));
            break;
        case KOLO_BY_OUTBOX:
            if (s->place != last_place && s->src.count > 0) {
                move_to(l, lane_begin, i, s->src, kolo_at_outbox(l->prog->me, s));
                last_place = s->place;
                l->prog->uses_outbox = l->prog->fills_outbox = true;
            }
            break;
        }
        l->reader[s->peer] = true;
        signals = true;
    }
    if (signals) {
        struct kolo_uop *signal = kolo_lowering_emit(l, KOLO_DO_SIGNAL, first);
        signal->nsrc = 1;
        kolo_lowering_operand(l, kolo_at_line(l->prog->me, phase));
    }
    return end;
}
