// SPDX-License-Identifier: Apache-2.0
/* Lowering: from what (steps) to how (waits, moves, signals) for the links a rank has.
 *
 * One pass over each lane. A run of sends becomes copies into the outbox and one signal. A run of
 * steps into one slice becomes one wait and one move with all sources in order, so that sums are
 * formed in registers. A copy of what a move just wrote, and a send of it, add a destination to
 * that move. A scratch destination that nobody reads is dropped. The first wait after a signal
 * opens a pipeline stage, so that the next tile's first sends go out before this tile's waits.
 */
#include "exec/lower/program.h"
#include "plan/facts.h"

#include <stdlib.h>
#include <string.h>

enum how { BY_OUTBOX, BY_PULL, BY_PUSH, BY_MESSAGE };

struct lowering {
    struct kolo_prog *prog;
    const struct kolo_plan *plan;
    const struct kolo_rank_plan *mine;
    const uint8_t *link;
    struct kolo_match *match; /* NULL when the plan has one rank only */
    uint32_t op_cap, at_cap;
    uint32_t *step_op; /* first op after each step, for dep */
    bool *reader, *source, *entry, *pulled_by;
    int top_level;
    int *count; /* [nranks], for counting */
    bool failed;
};

/* ---- small pieces ---- */

static void *grow(struct lowering *l, void *array, uint32_t *cap, uint32_t need, size_t each)
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

static struct kolo_uop *emit(struct lowering *l, enum kolo_code code, int step)
{
    static struct kolo_uop trash; /* after a failure: keeps callers free of checks */
    struct kolo_prog *p = l->prog;
    p->op = grow(l, p->op, &l->op_cap, p->nops + 1, sizeof *p->op);
    if (l->failed) {
        return &trash;
    }
    p->op[p->nops] = (struct kolo_uop){
        .code = (uint8_t)code, .count = 1, .peer = -1, .first = p->nats, .step = step};
    return &p->op[p->nops++];
}

/* Operands of the newest op are the newest operands, so appending is enough. */
static void operand(struct lowering *l, struct kolo_at at)
{
    struct kolo_prog *p = l->prog;
    p->at = grow(l, p->at, &l->at_cap, p->nats + 1, sizeof *p->at);
    if (!l->failed) {
        p->at[p->nats++] = at;
    }
}

static struct kolo_at at_slice(struct kolo_slice s)
{
    return (struct kolo_at){.space = s.buf == KOLO_IN    ? KOLO_AT_IN
                                     : s.buf == KOLO_OUT ? KOLO_AT_OUT
                                                         : KOLO_AT_SCRATCH,
                            .count = s.count,
                            .rank = -1,
                            .index = s.first};
}

static struct kolo_at at_peer(int rank, struct kolo_slice s)
{
    return (struct kolo_at){.space = s.buf == KOLO_IN ? KOLO_AT_PEER_IN : KOLO_AT_PEER_OUT,
                            .count = s.count,
                            .rank = rank,
                            .index = s.first};
}

static struct kolo_at at_outbox(int rank, const struct kolo_step *s)
{
    return (struct kolo_at){.space = KOLO_AT_OUTBOX,
                            .count = s->src.count,
                            .rank = rank,
                            .index = s->place,
                            .phase = s->phase};
}

static struct kolo_at at_line(int rank, uint32_t phase)
{
    return (struct kolo_at){.space = KOLO_AT_OUTBOX, .rank = rank, .phase = phase};
}

static bool same_slice(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.first == b.first && a.count == b.count;
}

static bool overlap(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.first < b.first + b.count && b.first < a.first + a.count;
}

/* How a message travels: one rule, seen alike from both ends. `sends`: I am its sender. */
static enum how how_of(const struct lowering *l, const struct kolo_step *s, bool sends, bool reduce)
{
    const uint8_t bits = l->link[s->peer];
    const uint8_t in = sends ? KOLO_LINK_MY_IN : KOLO_LINK_PEER_IN;
    const uint8_t out = sends ? KOLO_LINK_MY_OUT : KOLO_LINK_PEER_OUT;
    const uint8_t to = sends ? KOLO_LINK_PEER_OUT : KOLO_LINK_MY_OUT;
    const int from_rank = sends ? l->prog->me : s->peer, to_rank = sends ? s->peer : l->prog->me;
    if ((bits & KOLO_LINK_MAP) == 0) {
        return BY_MESSAGE;
    }
    if (s->src.buf == KOLO_IN && (bits & in) != 0 && (s->flags & KOLO_STEP_STABLE) != 0 &&
        kolo_plan_fans_out(l->plan, from_rank, to_rank)) {
        return BY_PULL;
    }
    if (!reduce && s->dst.buf == KOLO_OUT && (bits & to) != 0 &&
        (s->flags & KOLO_STEP_FRESH) != 0) {
        return BY_PUSH;
    }
    const bool loads = (s->src.buf == KOLO_IN && (bits & in) != 0) ||
                       (s->src.buf == KOLO_OUT && (bits & out) != 0);
    return loads && (s->flags & KOLO_STEP_STABLE) != 0 ? BY_PULL : BY_OUTBOX;
}

/* The receiving step of my SEND `i` reduces. Without the whole plan nothing is pushed anyway. */
static bool send_reduces(const struct lowering *l, int i)
{
    const struct kolo_step *s = &l->mine->step[i];
    return l->match != NULL && l->match[l->prog->me].other[i] >= 0 &&
           l->plan->rank[s->peer].step[l->match[l->prog->me].other[i]].op == KOLO_RECV_REDUCE;
}

/* ---- sends ---- */

/* The newest op is a move whose destinations include exactly this slice of mine. */
static struct kolo_uop *move_that_wrote(struct lowering *l, uint32_t lane_begin,
                                        struct kolo_slice s)
{
    struct kolo_prog *p = l->prog;
    if (l->failed || p->nops == lane_begin || p->op[p->nops - 1].code != KOLO_DO_MOVE) {
        return NULL;
    }
    struct kolo_uop *move = &p->op[p->nops - 1];
    const struct kolo_at want = at_slice(s);
    for (uint32_t i = 0; i < move->ndst; i++) {
        const struct kolo_at *d = &p->at[move->first + move->nsrc + i];
        if (d->space == want.space && d->index == want.index && d->count == want.count) {
            return move;
        }
    }
    return NULL;
}

static void move_to(struct lowering *l, uint32_t lane_begin, int step, struct kolo_slice src,
                    struct kolo_at dst)
{
    struct kolo_uop *move = move_that_wrote(l, lane_begin, src);
    if (move == NULL) {
        move = emit(l, KOLO_DO_MOVE, step);
        move->nsrc = 1;
        move->count = src.count;
        operand(l, at_slice(src));
    }
    move->ndst++;
    operand(l, dst);
}

static void post_send(struct lowering *l, int i)
{
    const struct kolo_step *s = &l->mine->step[i];
    struct kolo_at from = at_slice(s->src);
    if ((s->flags & KOLO_STEP_STABLE) == 0 || s->src.count != 1) {
        from = (struct kolo_at){.space = KOLO_AT_STAGE,
                                .count = s->src.count,
                                .rank = -1,
                                .index = l->prog->stage_chunks};
        l->prog->stage_chunks += s->src.count;
        struct kolo_uop *move = emit(l, KOLO_DO_MOVE, i);
        move->nsrc = move->ndst = 1;
        move->count = s->src.count;
        operand(l, at_slice(s->src));
        operand(l, from);
    }
    struct kolo_uop *send = emit(l, KOLO_DO_SEND, i);
    send->peer = s->peer;
    send->nsrc = 1;
    send->count = s->src.count;
    send->index = l->prog->nreqs++;
    send->channel = s->lane;
    operand(l, from);
}

/* All sends of one signal, from step i on; returns the first step behind them. */
static int lower_sends(struct lowering *l, uint32_t lane_begin, int i, int lane)
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
        switch (how_of(l, s, true, send_reduces(l, i))) {
        case BY_MESSAGE:
            post_send(l, i);
            continue;
        case BY_PULL:
            l->pulled_by[s->peer] = true;
            if (s->src.buf == KOLO_IN) {
                continue; /* is there from the start: my entry line said so */
            }
            break;
        case BY_PUSH:
            l->entry[s->peer] = true;
            move_to(l, lane_begin, i, s->src, at_peer(s->peer, s->dst));
            break;
        case BY_OUTBOX:
            if (s->place != last_place && s->src.count > 0) {
                move_to(l, lane_begin, i, s->src, at_outbox(l->prog->me, s));
                last_place = s->place;
                l->prog->uses_outbox = l->prog->fills_outbox = true;
            }
            break;
        }
        l->reader[s->peer] = true;
        signals = true;
    }
    if (signals) {
        struct kolo_uop *signal = emit(l, KOLO_DO_SIGNAL, first);
        signal->nsrc = 1;
        operand(l, at_line(l->prog->me, phase));
    }
    return end;
}

/* ---- receives and local steps ---- */

struct run {        /* consecutive steps into one slice */
    int begin, end; /* steps; those of other lanes in between do not count */
    struct kolo_at src[512];
    struct kolo_at line[512]; /* lines to wait for */
    uint32_t taken[512];      /* receive requests to wait for */
    int nsrc, nlines, ntaken;
    bool last, moves;
};

/* Whether slice `s` is memory of OUT's `out`, in place or not. */
static bool may_be_in(const struct lowering *l, struct kolo_slice s, struct kolo_slice out)
{
    for (unsigned c = 0; s.buf == KOLO_IN && c < s.count; c++) {
        const int alias = kolo_alias_out_chunk(l->plan, l->prog->me, (int)(s.first + c));
        if (alias >= 0 && (uint32_t)alias - out.first < out.count) {
            return true;
        }
    }
    return overlap(s, out);
}

/* No step before `i` of this tile uses what it receives into. A transport may then store there
 * before the message comes. */
static bool is_first_use(const struct lowering *l, int i)
{
    const struct kolo_slice out = l->mine->step[i].dst;
    bool first = l->plan->lanes == 1; /* else the steps before are not all of them */
    for (int k = 0; k < i && first; k++) {
        const struct kolo_step *s = &l->mine->step[k];
        const bool receives = s->op == KOLO_RECV || s->op == KOLO_RECV_REDUCE;
        first = (receives || !may_be_in(l, s->src, out)) &&
                (s->op == KOLO_SEND || !overlap(s->dst, out));
    }
    return first;
}

static struct kolo_at receive_message(struct lowering *l, int i, bool direct)
{
    const struct kolo_step *s = &l->mine->step[i];
    struct kolo_at into = at_slice(s->dst);
    if (!direct) {
        into = (struct kolo_at){.space = KOLO_AT_STAGE,
                                .count = s->dst.count,
                                .rank = -1,
                                .index = l->prog->stage_chunks};
        l->prog->stage_chunks += s->dst.count;
    }
    struct kolo_uop *recv = emit(l, KOLO_DO_RECV, i);
    recv->peer = s->peer;
    recv->ndst = 1;
    recv->count = s->dst.count;
    recv->index = l->prog->nreqs++;
    recv->channel = s->lane;
    recv->lent = !direct || is_first_use(l, i);
    operand(l, into);
    return into;
}

/* Where a source of the run lies; waits are noted. False: the peer pushes it, nothing to move. */
static bool run_source(struct lowering *l, struct run *run, int i, bool alone, struct kolo_at *out)
{
    const struct kolo_step *s = &l->mine->step[i];
    if (s->op == KOLO_COPY || s->op == KOLO_REDUCE) {
        *out = at_slice(s->src);
        return true;
    }
    const enum how how = how_of(l, s, false, s->op == KOLO_RECV_REDUCE);
    if (how == BY_MESSAGE) {
        const bool direct = alone && s->op == KOLO_RECV && s->dst.count == 1;
        run->taken[run->ntaken++] = l->prog->nreqs;
        *out = receive_message(l, i, direct);
        return !direct;
    }
    if (how == BY_PULL) {
        l->entry[s->peer] = true;
        *out = at_peer(s->peer, s->src);
    }
    if (how != BY_PULL || s->src.buf != KOLO_IN) {
        run->line[run->nlines++] = at_line(s->peer, s->phase);
        l->source[s->peer] = true;
    }
    if (how == BY_OUTBOX) {
        l->prog->uses_outbox = l->prog->uses_outbox || s->src.count > 0;
        *out = at_outbox(s->peer, s);
    }
    return how != BY_PUSH && s->src.count > 0;
}

static int next_in_lane(const struct lowering *l, int i, int lane)
{
    while (i < l->mine->count && l->mine->step[i].lane != lane) {
        i++;
    }
    return i;
}

/* Step `i` may join a run into `dst` that has `have` sources so far. */
static bool joins(const struct lowering *l, int i, struct kolo_slice dst, int have)
{
    const struct kolo_step *s = &l->mine->step[i];
    if ((s->op != KOLO_RECV_REDUCE && s->op != KOLO_REDUCE) || !same_slice(s->dst, dst) ||
        s->dep >= 0 || have >= 500) {
        return false;
    }
    if (s->op == KOLO_REDUCE && overlap(s->src, dst)) {
        return false;
    }
    return (s->flags & KOLO_STEP_LEFT) == 0 || have == 1;
}

static void add_source(struct run *run, struct kolo_at at, bool left)
{
    if (left) {
        memmove(&run->src[1], &run->src[0], (size_t)run->nsrc * sizeof run->src[0]);
        run->src[0] = at;
    } else {
        run->src[run->nsrc] = at;
    }
    run->nsrc++;
}

static void gather_run(struct lowering *l, struct run *run, int begin, int lane)
{
    const struct kolo_step *first = &l->mine->step[begin];
    const int second = next_in_lane(l, begin + 1, lane);
    const bool alone = second >= l->mine->count || !joins(l, second, first->dst, 1);
    struct kolo_at at = {0};
    run->begin = begin;
    run->end = begin + 1;
    run->nsrc = run->nlines = run->ntaken = 0;
    run->last = false;
    if (first->op == KOLO_RECV_REDUCE || first->op == KOLO_REDUCE) {
        add_source(run, at_slice(first->dst), false);
    }
    for (int i = begin; i < l->mine->count; i = next_in_lane(l, i + 1, lane)) {
        const struct kolo_step *s = &l->mine->step[i];
        if (i > begin && (run->nsrc == 0 || !joins(l, i, first->dst, run->nsrc))) {
            break;
        }
        if (run_source(l, run, i, alone, &at)) {
            add_source(run, at, (s->flags & KOLO_STEP_LEFT) != 0);
        }
        run->last = run->last || (s->flags & KOLO_STEP_LAST) != 0;
        run->end = i + 1;
    }
    run->moves = run->nsrc > 0 && first->dst.count > 0 &&
                 !(run->nsrc == 1 && (first->op == KOLO_RECV_REDUCE || first->op == KOLO_REDUCE));
}

/* Scratch that a copy moved on and nobody reads again need not be written. */
static bool scratch_dead(const struct lowering *l, struct kolo_slice s, int from)
{
    if (s.buf != KOLO_SCRATCH || l->plan->lanes > 1) {
        return false;
    }
    for (int i = from; i < l->mine->count; i++) {
        const struct kolo_step *t = &l->mine->step[i];
        const bool reads_src = t->op == KOLO_SEND || t->op == KOLO_COPY || t->op == KOLO_REDUCE;
        const bool reads_dst = t->op == KOLO_REDUCE || t->op == KOLO_RECV_REDUCE;
        if ((reads_src && overlap(t->src, s)) || (reads_dst && overlap(t->dst, s))) {
            return false;
        }
        if (t->op != KOLO_SEND && t->dst.buf == s.buf && t->dst.first <= s.first &&
            t->dst.first + t->dst.count >= s.first + s.count) {
            return true;
        }
    }
    return true;
}

static void wait_for_run(struct lowering *l, const struct run *run)
{
    if (run->nlines > 0) {
        struct kolo_uop *wait = emit(l, KOLO_DO_WAIT, run->end - 1);
        wait->nsrc = (uint16_t)run->nlines;
        for (int i = 0; i < run->nlines; i++) {
            operand(l, run->line[i]);
        }
    }
    if (run->ntaken > 0) {
        struct kolo_uop *taken = emit(l, KOLO_DO_TAKEN, run->end - 1);
        taken->nsrc = (uint16_t)run->ntaken;
        for (int i = 0; i < run->ntaken; i++) {
            operand(l, (struct kolo_at){.rank = -1, .index = run->taken[i]});
        }
    }
}

/* From step i on: one run, and the copies of its result that follow. */
static int lower_run(struct lowering *l, struct run *run, int i, int lane)
{
    struct kolo_slice dst = l->mine->step[i].dst;
    gather_run(l, run, i, lane);
    wait_for_run(l, run);
    int end = run->end;
    if (!run->moves) {
        return end;
    }
    const int next = next_in_lane(l, end, lane);
    const struct kolo_step *copy = next < l->mine->count ? &l->mine->step[next] : NULL;
    const bool copied = copy != NULL && copy->op == KOLO_COPY && copy->dep < 0 &&
                        same_slice(copy->src, dst) && !overlap(copy->dst, dst) && dst.count > 0;
    struct kolo_uop *move = emit(l, KOLO_DO_MOVE, i);
    move->nsrc = (uint16_t)run->nsrc;
    move->count = dst.count;
    move->last = run->last;
    for (int k = 0; k < run->nsrc; k++) {
        operand(l, run->src[k]);
    }
    if (!copied || !scratch_dead(l, dst, next + 1)) {
        move->ndst++;
        operand(l, at_slice(dst));
    }
    if (copied) {
        move->ndst++;
        operand(l, at_slice(copy->dst));
        end = next + 1;
    }
    return end;
}

/* ---- lanes ---- */

static bool is_nothing(const struct kolo_step *s)
{
    return s->op == KOLO_COPY && (s->src.count == 0 || same_slice(s->src, s->dst));
}

static void lower_lane(struct lowering *l, struct run *run, int lane)
{
    struct kolo_prog *p = l->prog;
    const uint32_t begin = p->nops;
    for (int i = next_in_lane(l, 0, lane); i < l->mine->count; i = next_in_lane(l, i, lane)) {
        const struct kolo_step *s = &l->mine->step[i];
        if (s->dep >= 0) {
            struct kolo_uop *after = emit(l, KOLO_DO_AFTER, i);
            after->peer = l->mine->step[s->dep].lane;
            after->index = (uint32_t)s->dep; /* a step until resolve_deps() */
        }
        const int from = i;
        i = s->op == KOLO_SEND ? lower_sends(l, begin, i, lane)
            : is_nothing(s)    ? i + 1
                               : lower_run(l, run, i, lane);
        for (int k = from; k < i; k++) {
            l->step_op[k] = l->mine->step[k].lane == lane ? p->nops : l->step_op[k];
        }
    }
    emit(l, KOLO_DO_DONE, -1);
    p->lane[lane] = (struct kolo_lane_ops){.begin = begin, .end = p->nops};
}

static void resolve_deps(struct lowering *l)
{
    for (uint32_t i = 0; i < l->prog->nops; i++) {
        struct kolo_uop *op = &l->prog->op[i];
        if (op->code == KOLO_DO_AFTER) {
            op->index = l->step_op[op->index];
        }
    }
}

/* A puller need not be asked whether it is done when it sent me something after it pulled. */
static bool proved_done(const struct lowering *l, int peer)
{
    const int *other = l->match != NULL ? l->match[l->prog->me].other : NULL;
    int pull = -1, answer = -1;
    for (int i = 0; other != NULL && i < l->mine->count; i++) {
        const struct kolo_step *s = &l->mine->step[i];
        if (s->peer != peer || other[i] < 0) {
            continue;
        }
        if (s->op == KOLO_SEND) {
            const bool pulled = how_of(l, s, true, send_reduces(l, i)) == BY_PULL;
            pull = pulled && other[i] > pull ? other[i] : pull;
        } else if (s->src.buf != KOLO_IN ||
                   how_of(l, s, false, s->op == KOLO_RECV_REDUCE) != BY_PULL) {
            answer = other[i] > answer ? other[i] : answer;
        }
    }
    return answer > pull;
}

static void wait_for_pullers(struct lowering *l)
{
    struct kolo_uop *left = NULL;
    for (int q = 0; q < l->plan->shape.nranks; q++) {
        if (!l->pulled_by[q] || proved_done(l, q)) {
            continue;
        }
        if (left == NULL) {
            left = emit(l, KOLO_DO_LEFT, -1);
        }
        left->nsrc++;
        operand(l, at_line(q, 0));
    }
    l->prog->lane[l->prog->nlanes - 1].end = l->prog->nops;
}

/* ---- stages ---- */

struct levels {
    const struct kolo_plan *plan;
    const struct kolo_match *match;
    uint8_t **of; /* [rank][step] */
    int top;
};

/* One pass over a rank; true if a level rose. */
static bool raise_levels(struct levels *v, int rank)
{
    const struct kolo_rank_plan *mine = &v->plan->rank[rank];
    int level = 0;
    bool sent = false, rose = false;
    for (int i = 0; i < mine->count; i++) {
        const struct kolo_step *s = &mine->step[i];
        if (s->op == KOLO_RECV || s->op == KOLO_RECV_REDUCE) {
            const int other = v->match[rank].other[i];
            const int sender = other >= 0 ? v->of[s->peer][other] : 0;
            const int at_least = level + (sent ? 1 : 0);
            const int now = sender > at_least ? sender : at_least;
            sent = sent && now == level;
            level = now;
        }
        sent = sent || s->op == KOLO_SEND;
        if (level > v->of[rank][i]) {
            v->of[rank][i] = (uint8_t)level;
            rose = true;
        }
        v->top = level > v->top ? level : v->top;
    }
    return rose;
}

/* Stages post a link's messages out of program order, so that each message of an edge needs a
 * channel of its own. False where an edge has more messages than are worth one. */
static bool channels_suffice(const struct kolo_plan *plan, int *count)
{
    enum { MOST = 8 };
    const int n = plan->shape.nranks;
    for (int r = 0; r < n; r++) {
        memset(count, 0, (size_t)n * sizeof *count);
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            if (s->op == KOLO_SEND && ++count[s->peer] > MOST) {
                return false;
            }
        }
    }
    return true;
}

static void number_channels(struct kolo_prog *p, int *count)
{
    for (int code = KOLO_DO_SEND; code <= KOLO_DO_RECV; code++) {
        memset(count, 0, (size_t)p->plan->shape.nranks * sizeof *count);
        for (uint32_t i = 0; i < p->nops; i++) {
            if (p->op[i].code == code) {
                p->op[i].channel = (uint32_t)count[p->op[i].peer]++;
            }
        }
    }
}

/* Levels of all steps, or NULL where the plan needs more stages than there are, or has lanes. */
static uint8_t **level_steps(struct lowering *l)
{
    const int n = l->plan->shape.nranks;
    struct levels v = {.plan = l->plan, .match = l->match};
    size_t steps = 0;
    for (int r = 0; r < n; r++) {
        steps += (size_t)l->plan->rank[r].count;
    }
    v.of = malloc((size_t)n * sizeof *v.of + steps + 1);
    if (v.of == NULL) {
        l->failed = true;
        return NULL;
    }
    uint8_t *at = (uint8_t *)(v.of + n);
    memset(at, 0, steps);
    for (int r = 0; r < n; r++) {
        v.of[r] = at;
        at += l->plan->rank[r].count;
    }
    for (bool rose = true; rose && v.top < KOLO_STAGES;) {
        rose = false;
        for (int r = 0; r < n; r++) {
            rose = raise_levels(&v, r) || rose;
        }
    }
    if (v.top >= KOLO_STAGES || !channels_suffice(l->plan, l->count)) {
        free(v.of);
        return NULL;
    }
    l->top_level = v.top;
    return v.of;
}

/* Every rank has the same number of stages, some perhaps empty. */
static void cut_stages(struct lowering *l)
{
    struct kolo_prog *p = l->prog;
    uint8_t **levels = l->match != NULL ? level_steps(l) : NULL;
    for (int lane = 0; lane < p->nlanes; lane++) {
        struct kolo_lane_ops *ops = &p->lane[lane];
        int stage = 0;
        ops->nstages = levels != NULL ? l->top_level + 1 : 1;
        for (uint32_t i = ops->begin; i < ops->end; i++) {
            const int step = p->op[i].step;
            const int level = step < 0         ? ops->nstages - 1
                              : levels != NULL ? levels[p->me][step]
                                               : 0;
            while (stage < level) {
                ops->stage[++stage] = i;
            }
        }
        ops->stage[0] = ops->begin;
        ops->stage[ops->nstages] = ops->end;
    }
    if (levels != NULL) {
        number_channels(p, l->count);
    }
    free(levels);
}

static int *list_of(struct lowering *l, const bool *set, int *count)
{
    const int n = l->plan->shape.nranks;
    int *list = malloc(((size_t)n + 1) * sizeof *list);
    if (list == NULL) {
        l->failed = true;
        return NULL;
    }
    for (int q = 0; q < n; q++) {
        if (set[q]) {
            list[(*count)++] = q;
        }
    }
    return list;
}

static void lower_all(struct lowering *l, struct run *run)
{
    struct kolo_prog *p = l->prog;
    for (int lane = 0; lane < p->nlanes; lane++) {
        lower_lane(l, run, lane);
    }
    resolve_deps(l);
    wait_for_pullers(l);
    cut_stages(l);
    for (int q = 0; q < l->plan->shape.nranks; q++) {
        l->source[q] = l->source[q] || l->entry[q]; /* I read its entry line */
    }
    p->readers = list_of(l, l->reader, &p->nreaders);
    p->sources = list_of(l, l->source, &p->nsources);
    p->entries = list_of(l, l->entry, &p->nentries);
}

kolo_status kolo_lower(const struct kolo_plan *plan, int me, const uint8_t *link,
                       struct kolo_prog **out)
{
    const size_t n = (size_t)plan->shape.nranks;
    struct lowering l = {.plan = plan, .mine = &plan->rank[me], .link = link};
    struct run *run = malloc(sizeof *run);
    bool *sets = calloc(4 * n, sizeof *sets);
    l.prog = calloc(1, sizeof *l.prog);
    l.count = calloc(n, sizeof *l.count);
    l.step_op = calloc((size_t)l.mine->count + 1, sizeof *l.step_op);
    l.match = plan->only < 0 && plan->lanes == 1 ? kolo_match_make(plan) : NULL;
    l.failed = run == NULL || sets == NULL || l.count == NULL || l.prog == NULL ||
               l.step_op == NULL || (l.match == NULL && plan->only < 0 && plan->lanes == 1);
    if (!l.failed) {
        l.reader = sets;
        l.source = sets + n;
        l.entry = sets + 2 * n;
        l.pulled_by = sets + 3 * n;
        *l.prog = (struct kolo_prog){.plan = plan,
                                     .me = me,
                                     .nlanes = plan->lanes,
                                     .depth = KOLO_DEPTH,
                                     .long_depth = KOLO_LONG_DEPTH};
        lower_all(&l, run);
    }
    kolo_match_free(l.match, plan->shape.nranks);
    free(run);
    free(sets);
    free(l.step_op);
    free(l.count);
    if (l.failed) {
        kolo_prog_destroy(l.prog);
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory while lowering",
                         plan->algo->base.name);
    }
    *out = l.prog;
    return KOLO_OK;
}

void kolo_prog_destroy(struct kolo_prog *prog)
{
    if (prog == NULL) {
        return;
    }
    free(prog->op);
    free(prog->at);
    free(prog->readers);
    free(prog->sources);
    free(prog->entries);
    free(prog);
}
