// SPDX-License-Identifier: Apache-2.0
/* Lowering turns a plan into the words that a kernel interprets: each lane's ops, with chunks
 * instead of addresses. */
#include "exec/gpu/program/program_kernel.h"

#include "exec/cpu/bound.h"
#include "exec/gpu/fused/fused.h"
#include "exec/gpu/ll/ll_layout.h"
#include "util/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)KOLO_PROGRAM_LANES == KOLO_LANES && (int)KOLO_PROGRAM_STAGES == KOLO_STAGES,
              "a launch holds what plans have");

size_t kolo_program_ll_at(const struct kolo_program_room *room)
{
    const size_t inboxes = (size_t)KOLO_PROGRAM_DEPTH * room->inbox_bytes;
    const size_t scratch = (size_t)KOLO_PROGRAM_COPIES * room->scratch_bytes;
    return room->slices * (sizeof(struct kolo_program_slice) + inboxes + scratch);
}

size_t kolo_program_slab_bytes(const struct kolo_program_room *room)
{
    const size_t slots = (size_t)room->slices * KOLO_LL_TURNS * room->nranks;
    return kolo_program_ll_at(room) + slots * KOLO_LL_SLOT;
}

struct making {
    const struct kolo_plan *plan;
    const struct kolo_prog *prog;
    struct kolo_program *out;
    bool *sent;      /* [max_places], of one pair */
    uint32_t *first; /* [reader * nranks + writer], of `lane` */
    size_t *number;  /* []: each its index */
    int lane, cap;
    const char *lacks; /* the name of the resource of which there is too little */
};

/* ---- inboxes: the places of a rank's chunks at its readers ---- */

/* The number of places below `end` that rank `from` sends to rank `to` in the lane. */
static uint32_t places_sent(const struct making *m, int from, int to, uint32_t end)
{
    const struct kolo_rank_plan *rank = &m->plan->rank[from];
    uint32_t count = 0;
    memset(m->sent, 0, (size_t)m->plan->max_places + 1);
    for (int i = 0; i < rank->count; i++) {
        const struct kolo_step *s = &rank->step[i];
        const bool sends = s->op == KOLO_SEND && s->peer == to && s->lane == m->lane;
        for (uint32_t j = 0; sends && j < s->src.count; j++) {
            m->sent[s->place + j] = true;
        }
    }
    for (uint32_t p = 0; p < end; p++) {
        count += m->sent[p];
    }
    return count;
}

static bool is_read_by(const struct making *m, int to, uint32_t place)
{
    return places_sent(m, m->prog->me, to, place + 1) > places_sent(m, m->prog->me, to, place);
}

/* In a reader's inbox the chunks of a writer follow the chunks of the writers before it. */
static uint32_t place_in_inbox(const struct making *m, int reader, int writer, uint32_t place)
{
    return m->first[reader * m->plan->shape.nranks + writer] +
           places_sent(m, writer, reader, place);
}

/* Lay out the inboxes of the lane. */
static void lay_inboxes(struct making *m)
{
    const int n = m->plan->shape.nranks;
    for (int reader = 0; reader < n; reader++) {
        uint32_t at = 0;
        for (int writer = 0; writer < n; writer++) {
            m->first[reader * n + writer] = at;
            at += places_sent(m, writer, reader, (uint32_t)m->plan->max_places);
        }
        m->out->inbox_chunks = at > m->out->inbox_chunks ? at : m->out->inbox_chunks;
    }
}

/* Signals of a rank are numbered over all its lanes; words of a lane are its own. 0: too many. */
static uint32_t word_of(const struct making *m, int rank, uint32_t phase)
{
    const struct kolo_rank_plan *r = &m->plan->rank[rank];
    uint32_t word = 1;
    int last = -1;
    for (int i = 0; i < r->count; i++) {
        const struct kolo_step *s = &r->step[i];
        const bool sends = s->op == KOLO_SEND && s->lane == m->lane;
        if (sends && s->phase < phase && s->phase != last) {
            last = s->phase;
            word++;
        }
    }
    return word < KOLO_PROGRAM_SIGNALS ? word : 0;
}

/* ---- words ---- */

static void add_word(struct making *m, uint64_t word)
{
    struct kolo_program *p = m->out;
    uint64_t *grown = kolo_grow(p->word, (int)p->nwords, &m->cap, sizeof *grown);
    if (grown == NULL) {
        m->lacks = "memory of the host";
        return;
    }
    p->word = grown;
    p->word[p->nwords++] = word;
}

static void add_operand(struct making *m, unsigned kind, int rank, uint32_t index)
{
    add_word(m, KOLO_PROGRAM_OPERAND(kind, rank >= 0 ? rank : 0, index));
}

/* The j-th chunk of an operand; it may be in the inboxes of several ranks. */
static void add_chunk(struct making *m, const struct kolo_at *at, uint32_t j, bool stored)
{
    const int me = m->prog->me;
    const uint32_t index = at->index + j;
    switch (at->space) {
    case KOLO_AT_IN:
        add_operand(m, KOLO_PROGRAM_IN, me, index);
        break;
    case KOLO_AT_OUT:
        add_operand(m, KOLO_PROGRAM_OUT, me, index);
        break;
    case KOLO_AT_SCRATCH:
        add_operand(m, KOLO_PROGRAM_SCRATCH, me, index);
        break;
    default: /* an outbox */
        if (!stored) {
            add_operand(m, KOLO_PROGRAM_INBOX, me, place_in_inbox(m, me, at->rank, index));
        }
        for (int q = 0; stored && q < m->plan->shape.nranks; q++) {
            if (is_read_by(m, q, index)) {
                add_operand(m, KOLO_PROGRAM_INBOX, q, place_in_inbox(m, q, me, index));
            }
        }
        break;
    }
}

/* The number of the chunk whose length a move has. */
static uint32_t length_of(const struct making *m, const struct kolo_uop *op, uint32_t j)
{
    const struct kolo_extents extents = {.coll = m->plan->shape.coll,
                                         .me = m->prog->me,
                                         .nranks = m->plan->shape.nranks,
                                         .chunks = m->plan->chunks,
                                         .full = KOLO_PROGRAM_FULL,
                                         .block = m->number,
                                         .block_out = m->number};
    return (uint32_t)kolo_uop_bytes(m->prog, &extents, op, j);
}

static void add_move(struct making *m, const struct kolo_uop *op, uint32_t j)
{
    const struct kolo_at *at = &m->prog->at[op->first];
    const uint32_t head = m->out->nwords;
    add_word(m, 0);
    for (unsigned i = 0; i < op->nsrc; i++) {
        add_chunk(m, &at[i], j, false);
    }
    for (unsigned i = 0; i < op->ndst; i++) {
        add_chunk(m, &at[op->nsrc + i], j, true);
    }
    const uint32_t sides = m->out->nwords - head - 1;
    if (m->lacks == NULL && (sides > KOLO_PROGRAM_SIDES || sides < op->nsrc)) {
        m->lacks = "sides of a move";
    }
    if (m->lacks == NULL) {
        m->out->word[head] = KOLO_PROGRAM_OP(KOLO_PROGRAM_MOVE, op->last, op->nsrc,
                                             sides - op->nsrc, length_of(m, op, j));
    }
}

/* Operands that do not fit into one op go into several ops. */
static void add_waits(struct making *m, const struct kolo_uop *op)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const struct kolo_at *line = &m->prog->at[op->first + i];
        const uint32_t word = word_of(m, line->rank, line->phase);
        const unsigned left = op->nsrc - i;
        if (i % KOLO_PROGRAM_SIDES == 0) {
            add_word(m, KOLO_PROGRAM_OP(KOLO_PROGRAM_WAIT, 0,
                                        left < KOLO_PROGRAM_SIDES ? left : KOLO_PROGRAM_SIDES, 0,
                                        op->step));
        }
        m->lacks = word == 0 ? "signals" : m->lacks;
        add_word(m, KOLO_PROGRAM_OPERAND(0, line->rank, word));
    }
}

static void add_signal(struct making *m, const struct kolo_uop *op)
{
    const uint32_t word = word_of(m, m->prog->me, m->prog->at[op->first].phase);
    m->lacks = word == 0 ? "signals" : m->lacks;
    add_word(m, KOLO_PROGRAM_OP(KOLO_PROGRAM_SIGNAL, 0, 0, 0, word));
}

/* ---- lanes that wait for lanes ---- */

static int lane_of(const struct kolo_prog *p, uint32_t op)
{
    int lane = 0;
    while (op >= p->lane[lane].end) {
        lane++;
    }
    return lane;
}

/* The word for an AFTER. */
static uint32_t mark_of(struct making *m, uint32_t after)
{
    const struct kolo_prog *p = m->prog;
    uint32_t word = KOLO_PROGRAM_MARKS;
    for (uint32_t i = p->lane[lane_of(p, after)].begin; i < after; i++) {
        word += p->op[i].code == KOLO_DO_AFTER;
    }
    if (word >= KOLO_PROGRAM_SIGNALS) {
        m->lacks = "signals between lanes";
    }
    return word;
}

/* Add the marks of the ops that are over when op `at` begins, if other lanes wait for them. */
static void add_marks(struct making *m, uint32_t at)
{
    const struct kolo_prog *p = m->prog;
    for (uint32_t i = 0; i < p->nops; i++) {
        const struct kolo_uop *after = &p->op[i];
        if (after->code == KOLO_DO_AFTER && after->peer == m->lane && after->index == at) {
            add_word(m, KOLO_PROGRAM_OP(KOLO_PROGRAM_MARK, 0, 1, 0, 0));
            add_word(m, KOLO_PROGRAM_OPERAND(0, lane_of(p, i), mark_of(m, i)));
        }
    }
}

static void add_after(struct making *m, uint32_t at)
{
    m->out->joined = true;
    add_word(m, KOLO_PROGRAM_OP(KOLO_PROGRAM_WAIT, 0, 1, 0, m->prog->op[at].step));
    add_word(m, KOLO_PROGRAM_OPERAND(0, m->prog->me, mark_of(m, at)));
}

/* ---- lanes ---- */

static void add_op(struct making *m, uint32_t at)
{
    const struct kolo_uop *op = &m->prog->op[at];
    add_marks(m, at);
    switch (op->code) {
    case KOLO_DO_WAIT:
        add_waits(m, op);
        break;
    case KOLO_DO_MOVE:
        for (uint32_t j = 0; j < op->count; j++) {
            add_move(m, op, j);
        }
        break;
    case KOLO_DO_SIGNAL:
        add_signal(m, op);
        break;
    case KOLO_DO_AFTER:
        add_after(m, at);
        break;
    case KOLO_DO_DONE:
        add_word(m, KOLO_PROGRAM_OP(KOLO_PROGRAM_DONE, 0, 0, 0, 0));
        break;
    default:
        m->lacks = "means: messages, or other ranks' buffers";
        break;
    }
}

static void add_lane(struct making *m)
{
    const struct kolo_rank_plan *mine = &m->plan->rank[m->prog->me];
    const struct kolo_lane_ops *ops = &m->prog->lane[m->lane];
    struct kolo_program_lane *lane = &m->out->lane[m->lane];
    for (int i = 0; i < mine->count; i++) {
        const struct kolo_step *s = &mine->step[i];
        const uint32_t peer = s->peer >= 0 && s->lane == m->lane ? UINT32_C(1) << s->peer : 0;
        lane->readers |= s->op == KOLO_SEND ? peer : 0;
        lane->sources |= s->op == KOLO_SEND ? 0 : peer;
    }
    for (int stage = 0; stage < ops->nstages; stage++) {
        lane->stage[stage] = m->out->nwords;
        for (uint32_t i = ops->stage[stage]; i < ops->stage[stage + 1]; i++) {
            add_op(m, i);
        }
    }
    lane->stage[ops->nstages] = m->out->nwords;
}

/* Count the scratch to which some rank stores. Most of a plan's scratch stays in registers. */
static void count_scratch(struct making *m, const struct kolo_prog *prog)
{
    for (uint32_t i = 0; i < prog->nats; i++) {
        const struct kolo_at *at = &prog->at[i];
        const uint32_t end = at->space == KOLO_AT_SCRATCH ? at->index + at->count : 0;
        m->out->scratch_chunks = end > m->out->scratch_chunks ? end : m->out->scratch_chunks;
    }
}

static kolo_status lower_rank(const struct kolo_plan *plan, int rank, struct kolo_prog **out)
{
    uint8_t links[KOLO_PROGRAM_RANKS];
    memset(links, KOLO_LINK_MAP, sizeof links);
    return kolo_lower(plan, rank, links, out);
}

static kolo_status make_words(struct making *m, int me)
{
    struct kolo_prog *mine = NULL;
    for (int rank = 0; rank < m->plan->shape.nranks; rank++) {
        struct kolo_prog *prog = NULL;
        const kolo_status st = lower_rank(m->plan, rank, &prog);
        if (st != KOLO_OK) {
            kolo_prog_destroy(mine);
            return st;
        }
        count_scratch(m, prog);
        mine = rank == me ? prog : mine;
        if (rank != me) {
            kolo_prog_destroy(prog);
        }
    }
    m->prog = mine;
    m->out->nlanes = (uint32_t)mine->nlanes;
    m->out->nstages = (uint32_t)mine->lane[0].nstages;
    for (m->lane = 0; m->lane < mine->nlanes; m->lane++) {
        lay_inboxes(m);
        add_lane(m);
    }
    kolo_prog_destroy(mine);
    return m->lacks == NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED, "%s of %d ranks: a kernel of GPUs has too few %s",
                           m->plan->algo->base.name, m->plan->shape.nranks, m->lacks);
}

kolo_status kolo_program_make(const struct kolo_plan *plan, int me, struct kolo_program **out)
{
    const size_t n = (size_t)plan->shape.nranks;
    const size_t chunks = kolo_max((size_t)plan->chunks, n);
    struct making m = {.plan = plan};
    if (plan->only >= 0 || n > KOLO_PROGRAM_RANKS || chunks >= KOLO_PROGRAM_FULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s of %zu ranks and %zu chunks is not for GPUs",
                         plan->algo->base.name, n, chunks);
    }
    m.out = calloc(1, sizeof *m.out);
    m.sent = malloc((size_t)plan->max_places + 1);
    m.first = malloc(n * n * sizeof *m.first);
    m.number = malloc((chunks + 1) * sizeof *m.number);
    kolo_status st = KOLO_ERR_SYSTEM;
    if (m.out != NULL && m.sent != NULL && m.first != NULL && m.number != NULL) {
        for (size_t i = 0; i <= chunks; i++) {
            m.number[i] = i;
        }
        m.out->plan = plan;
        m.out->me = me;
        st = make_words(&m, me);
    } else {
        st = kolo_fail(st, "out of memory for a program of %zu ranks", n);
    }
    free(m.sent);
    free(m.first);
    free(m.number);
    if (st != KOLO_OK) {
        kolo_program_destroy(m.out);
        return st;
    }
    *out = m.out;
    return KOLO_OK;
}

void kolo_program_destroy(struct kolo_program *program)
{
    if (program != NULL) {
        free(program->word);
        free(program);
    }
}

void kolo_program_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                       char out[KOLO_PROGRAM_NAME])
{
    char fused[KOLO_FUSED_NAME];
    kolo_fused_name(kolo_coll_reduces(coll) ? coll : KOLO_COLL_BROADCAST, type, op, fused);
    const char *pair = fused + strlen("kolo_fused_");
    (void)snprintf(out, KOLO_PROGRAM_NAME, "kolo_program_%.34s", pair); /* all that fits */
}
