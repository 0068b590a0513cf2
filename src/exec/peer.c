// SPDX-License-Identifier: Apache-2.0
/* From a lowered program to a launch: see peer.h. */
#include "exec/peer.h"

#include "exec/cpu.h"
#include "exec/fused.h"
#include "exec/low_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t kolo_peer_low_at(const struct kolo_peer_room *room)
{
    const size_t slots = (size_t)room->nranks * KOLO_PEER_DEPTH * room->slot_bytes;
    const size_t scratch = (size_t)KOLO_PEER_COPIES * room->scratch_bytes;
    return room->slices * (sizeof(struct kolo_peer_slice) + slots + scratch);
}

size_t kolo_peer_slab_bytes(const struct kolo_peer_room *room)
{
    const size_t slots = (size_t)room->slices * KOLO_LOW_TURNS * room->nranks;
    return kolo_peer_low_at(room) + slots * KOLO_LOW_SLOT;
}

/* ---- places: which chunks of an outbox a reader reads ---- */

struct binding {
    const struct kolo_prog *prog;
    const struct kolo_plan *plan;
    const struct kolo_extents *extents;
    struct kolo_peer_launch *launch;
    bool *sent; /* [max_places], of one pair */
    uint32_t nats;
    const char *lacks; /* what it has too little room for */
};

/* How many places below `end` rank `from` sends to rank `to`: so many chunks of a slot there. */
static uint32_t places(const struct binding *b, int from, int to, uint32_t end)
{
    const struct kolo_rank_plan *rank = &b->plan->rank[from];
    uint32_t count = 0;
    memset(b->sent, 0, (size_t)b->plan->max_places + 1);
    for (int i = 0; i < rank->count; i++) {
        const struct kolo_step *s = &rank->step[i];
        for (uint32_t j = 0; s->op == KOLO_SEND && s->peer == to && j < s->src.count; j++) {
            b->sent[s->place + j] = true;
        }
    }
    for (uint32_t p = 0; p < end; p++) {
        count += b->sent[p];
    }
    return count;
}

static bool reads(const struct binding *b, int to, uint32_t place)
{
    return places(b, b->prog->me, to, place + 1) > places(b, b->prog->me, to, place);
}

/* ---- tiles ---- */

enum { ALIGN = 128 }; /* of pieces: of every type, and lines of its cache */

static kolo_status cut(struct binding *b, unsigned slices)
{
    struct kolo_peer_launch *l = b->launch;
    const uint32_t end = (uint32_t)b->plan->max_places;
    uint32_t most = 1;
    for (int from = 0; from < b->plan->shape.nranks; from++) {
        for (int to = 0; to < b->plan->shape.nranks; to++) {
            const uint32_t count = places(b, from, to, end);
            most = count > most ? count : most;
        }
    }
    size_t limit = l->room.slot_bytes / most;
    if (b->plan->scratch_chunks > 0) {
        limit = kolo_min(limit, l->room.scratch_bytes / (size_t)b->plan->scratch_chunks);
    }
    limit = limit / ALIGN * ALIGN;
    if (limit == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s has %u chunks for one slot of %u bytes",
                         b->plan->algo->base.name, most, l->room.slot_bytes);
    }
    const size_t part = kolo_round_up((b->extents->full + slices - 1) / slices, ALIGN);
    l->tiles = (uint32_t)kolo_max((part + limit - 1) / limit, 1);
    l->part = part;
    l->piece = kolo_round_up((part + l->tiles - 1) / l->tiles, ALIGN);
    return KOLO_OK;
}

/* ---- operands and ops ---- */

static void add(struct binding *b, unsigned kind, int rank, uint64_t where)
{
    if (b->nats == KOLO_PEER_OPERANDS) {
        b->lacks = "operands";
        return;
    }
    b->launch->at[b->nats++] =
        (uint64_t)kind << 56 | (uint64_t)(rank >= 0 ? rank : 0) << 48 | where;
}

/* The j-th chunk of an operand; returns how many operands of the launch it became. */
static unsigned add_chunk(struct binding *b, const struct kolo_at *at, uint32_t j, bool stored)
{
    const int me = b->prog->me;
    const uint32_t index = at->index + j, before = b->nats;
    switch (at->space) {
    case KOLO_AT_IN:
        add(b, KOLO_PEER_IN, me, b->extents->in_off[index]);
        break;
    case KOLO_AT_OUT:
        add(b, KOLO_PEER_OUT, me, b->extents->out_off[index]);
        break;
    case KOLO_AT_SCRATCH:
        add(b, KOLO_PEER_SCRATCH, me, index * b->launch->piece);
        break;
    default: /* an outbox */
        if (!stored) {
            add(b, KOLO_PEER_FROM, at->rank, places(b, at->rank, me, index) * b->launch->piece);
        }
        for (int q = 0; stored && q < b->plan->shape.nranks; q++) {
            if (reads(b, q, index)) {
                add(b, KOLO_PEER_TO, q, places(b, me, q, index) * b->launch->piece);
            }
        }
        break;
    }
    return b->nats - before;
}

static struct kolo_peer_op *add_op(struct binding *b, unsigned code)
{
    static _Thread_local struct kolo_peer_op none;
    struct kolo_peer_launch *l = b->launch;
    if (l->nops == KOLO_PEER_OPS) {
        b->lacks = "ops";
        return &none;
    }
    l->op[l->nops] = (struct kolo_peer_op){.code = (uint8_t)code, .first = (uint16_t)b->nats};
    return &l->op[l->nops++];
}

static void add_move(struct binding *b, const struct kolo_uop *op, uint32_t j)
{
    const struct kolo_at *at = &b->prog->at[op->first];
    struct kolo_peer_op *move = add_op(b, KOLO_PEER_MOVE);
    unsigned nsrc = 0, ndst = 0;
    move->last = op->last;
    move->bytes = kolo_uop_bytes(b->prog, b->extents, op, j);
    for (unsigned i = 0; i < op->nsrc; i++) {
        nsrc += add_chunk(b, &at[i], j, false);
    }
    for (unsigned i = 0; i < op->ndst; i++) {
        ndst += add_chunk(b, &at[op->nsrc + i], j, true);
    }
    if (nsrc + ndst > KOLO_PEER_SIDES) {
        b->lacks = "sides of a move";
        return;
    }
    move->nsrc = (uint8_t)nsrc;
    move->ndst = (uint8_t)ndst;
}

static void add_wait(struct binding *b, const struct kolo_uop *op)
{
    struct kolo_peer_op *wait = add_op(b, KOLO_PEER_WAIT);
    for (unsigned i = 0; i < op->nsrc; i++) {
        const struct kolo_at *line = &b->prog->at[op->first + i];
        add(b, 0, line->rank, 1 + line->phase);
    }
    wait->nsrc = (uint8_t)op->nsrc;
    wait->word = (uint16_t)op->step;
}

static void add_ops_of(struct binding *b, const struct kolo_uop *op)
{
    switch (op->code) {
    case KOLO_DO_WAIT:
        add_wait(b, op);
        break;
    case KOLO_DO_MOVE:
        for (uint32_t j = 0; j < op->count; j++) {
            add_move(b, op, j);
        }
        break;
    case KOLO_DO_SIGNAL:
        add_op(b, KOLO_PEER_SIGNAL)->word = (uint16_t)(1 + b->prog->at[op->first].phase);
        break;
    case KOLO_DO_DONE:
        add_op(b, KOLO_PEER_DONE);
        break;
    default:
        b->lacks = "means: messages, or other ranks' buffers";
        break;
    }
}

static void add_ops(struct binding *b)
{
    const struct kolo_prog *p = b->prog;
    const struct kolo_lane_ops *lane = &p->lane[0];
    struct kolo_peer_launch *l = b->launch;
    l->nstages = (uint8_t)lane->nstages;
    for (int s = 0; s < lane->nstages; s++) {
        l->stage[s] = l->nops;
        for (uint32_t i = lane->stage[s]; i < lane->stage[s + 1]; i++) {
            add_ops_of(b, &p->op[i]);
        }
    }
    l->stage[lane->nstages] = l->nops;
}

static uint32_t set_of(const int *list, int count)
{
    uint32_t set = 0;
    for (int i = 0; i < count; i++) {
        set |= UINT32_C(1) << list[i];
    }
    return set;
}

static kolo_status check(const struct kolo_plan *plan)
{
    int phases = 0;
    for (int r = 0; r < plan->shape.nranks; r++) {
        phases = plan->rank[r].phases > phases ? plan->rank[r].phases : phases;
    }
    if (plan->only >= 0 || plan->lanes > 1 || plan->shape.nranks > KOLO_PEER_RANKS ||
        phases >= KOLO_PEER_SIGNALS) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "%s of %d ranks, %d lanes and %d signals is not for GPUs",
                         plan->algo->base.name, plan->shape.nranks, plan->lanes, phases);
    }
    return KOLO_OK;
}

kolo_status kolo_peer_bind(const struct kolo_prog *prog, const struct kolo_extents *extents,
                           const struct kolo_peer_room *room, unsigned slices,
                           struct kolo_peer_launch *out)
{
    struct binding b = {
        .prog = prog, .plan = prog->plan, .extents = extents, .launch = out, .lacks = NULL};
    KOLO_TRY(check(prog->plan));
    *out = (struct kolo_peer_launch){.room = *room, .me = (uint32_t)prog->me};
    b.sent = malloc((size_t)prog->plan->max_places + 1);
    if (b.sent == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while binding a program");
    }
    kolo_status st = cut(&b, slices);
    if (st == KOLO_OK) {
        out->readers = set_of(prog->readers, prog->nreaders);
        out->sources = set_of(prog->sources, prog->nsources);
        add_ops(&b);
    }
    free(b.sent);
    if (st == KOLO_OK && b.lacks != NULL) {
        st = kolo_fail(KOLO_ERR_UNSUPPORTED, "%s of %d ranks: a launch has too few %s",
                       prog->plan->algo->base.name, prog->plan->shape.nranks, b.lacks);
    }
    return st;
}

/* ---- straight from buffer to buffer ---- */

void kolo_peer_bind_direct(enum kolo_coll coll, size_t bytes, unsigned slices,
                           struct kolo_peer_launch *l)
{
    const uint32_t n = l->room.nranks;
    const size_t share =
        coll == KOLO_COLL_ALL_REDUCE ? kolo_round_up((bytes + n - 1) / n, ALIGN) : bytes;
    const size_t at = l->me * share;
    const size_t left = coll != KOLO_COLL_ALL_REDUCE ? bytes : at < bytes ? bytes - at : 0;
    if (l->nops == KOLO_PEER_OPS) {
        return;
    }
    l->op[l->nops] = (struct kolo_peer_op){
        .code = KOLO_PEER_DIRECT,
        .last = 1,
        .nsrc = coll == KOLO_COLL_ALL_GATHER ? 1 : (uint8_t)n,
        .ndst = coll == KOLO_COLL_REDUCE_SCATTER ? 1 : (uint8_t)n,
        .bytes = kolo_min(share, left),
    };
    l->in_at = coll == KOLO_COLL_ALL_GATHER ? 0 : at;
    l->out_at = coll == KOLO_COLL_REDUCE_SCATTER ? 0 : at;
    l->direct_part = kolo_round_up((share + slices - 1) / slices, ALIGN);
    l->meets = 1;
}

void kolo_peer_name(enum kolo_coll coll, enum kolo_type type, kolo_op op, char out[KOLO_PEER_NAME])
{
    char fused[KOLO_FUSED_NAME];
    kolo_fused_name(kolo_coll_reduces(coll) ? coll : KOLO_COLL_BROADCAST, type, op, fused);
    (void)snprintf(out, KOLO_PEER_NAME, "kolo_peer_%s", fused + strlen("kolo_fused_"));
}
