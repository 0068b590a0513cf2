// SPDX-License-Identifier: Apache-2.0
/* Lowering of receives and local steps. A run of steps into one slice becomes one wait and one
 * move. The move has all sources in order, so that it forms sums in registers. A copy of the result
 * adds a destination to the move. */
#include "exec/lower/lowering.h"
#include "plan/facts.h"

#include <assert.h>
#include <string.h>

/* The simulator numbers a lone rank's steps anew: the rank is 0 then, but its chunks keep their
 * numbers. */
static void mark_slice(struct kolo_lowering *l, struct kolo_slice s)
{
    const int me = l->plan->only >= 0 ? l->plan->only : l->prog->me;
    for (uint32_t c = s.first; c < s.first + s.count; c++) {
        const int alias = s.buf == KOLO_IN ? kolo_alias_out_chunk(l->plan, me, (int)c) : (int)c;
        const enum kolo_buf buf = s.buf == KOLO_IN ? KOLO_OUT : (enum kolo_buf)s.buf;
        if (alias >= 0 && alias < l->chunks[buf]) {
            l->used[buf][alias] = true;
        }
    }
}

/* Whether no earlier step of this tile uses the destination of receive `i`. If so, a transport may
 * store there before the message comes. The answers for all receives of a lane take one pass over
 * its steps: rings of n ranks have n of them. */
static bool is_first_use(struct kolo_lowering *l, int i)
{
    const struct kolo_slice out = l->mine->step[i].dst;
    bool first = l->plan->lanes == 1; /* with more, steps of other lanes may run earlier, too */
    for (; l->marked < i && first; l->marked++) {
        const struct kolo_step *s = &l->mine->step[l->marked];
        if (s->op != KOLO_RECV && s->op != KOLO_RECV_REDUCE) {
            mark_slice(l, s->src);
        }
        if (s->op != KOLO_SEND) {
            mark_slice(l, s->dst);
        }
    }
    for (uint32_t c = out.first; c < out.first + out.count && first; c++) {
        first = !l->used[out.buf][c];
    }
    return first;
}

static struct kolo_at receive_message(struct kolo_lowering *l, int i, bool direct)
{
    const struct kolo_step *s = &l->mine->step[i];
    struct kolo_at into = kolo_at_slice(s->dst);
    if (!direct) {
        into = (struct kolo_at){.space = KOLO_AT_STAGE,
                                .count = s->dst.count,
                                .rank = -1,
                                .index = l->prog->stage_chunks};
        l->prog->stage_chunks += s->dst.count;
    }
    struct kolo_uop *recv = kolo_lowering_emit(l, KOLO_DO_RECV, i);
    recv->peer = s->peer;
    recv->ndst = 1;
    recv->count = s->dst.count;
    recv->index = l->prog->nreqs++;
    recv->channel = s->lane;
    recv->lent = !direct || is_first_use(l, i);
    kolo_lowering_operand(l, into);
    return into;
}

/* Find the location of a source of the run, and note the waits that it needs. False: the data comes
 * straight to its destination, so there is nothing to move. */
static bool run_source(struct kolo_lowering *l, struct kolo_run *run, int i, bool alone,
                       struct kolo_at *out)
{
    const struct kolo_step *s = &l->mine->step[i];
    if (s->op == KOLO_COPY || s->op == KOLO_REDUCE) {
        *out = kolo_at_slice(s->src);
        return true;
    }
    const enum kolo_travel how = kolo_lowering_how(l, s, false, s->op == KOLO_RECV_REDUCE);
    if (how == KOLO_BY_MESSAGE) {
        const bool direct = alone && s->op == KOLO_RECV && s->dst.count == 1;
        run->taken[run->ntaken++] = l->prog->nreqs;
        *out = receive_message(l, i, direct);
        return !direct;
    }
    if (how == KOLO_BY_PULL) {
        l->entry[s->peer] = true;
        *out = kolo_at_peer(s->peer, s->src);
    }
    if (how != KOLO_BY_PULL || s->src.buf != KOLO_IN) {
        run->line[run->nlines++] = kolo_at_line(s->peer, s->phase);
        l->source[s->peer] = true;
    }
    if (how == KOLO_BY_OUTBOX) {
        l->prog->uses_outbox = l->prog->uses_outbox || s->src.count > 0;
        *out = kolo_at_outbox(s->peer, s);
    }
    return how != KOLO_BY_PUSH && s->src.count > 0;
}

/* Whether step `i` may join a run into `dst` that has `have` sources so far. */
static bool joins_run(const struct kolo_lowering *l, int i, struct kolo_slice dst, int have)
{
    const struct kolo_step *s = &l->mine->step[i];
    if ((s->op != KOLO_RECV_REDUCE && s->op != KOLO_REDUCE) || !kolo_slice_same(s->dst, dst) ||
        s->dep >= 0) {
        return false;
    }
    if (s->op == KOLO_REDUCE && kolo_slice_overlap(s->src, dst)) {
        return false;
    }
    return (s->flags & KOLO_STEP_LEFT) == 0 || have == 1;
}

static bool is_full(const struct kolo_run *run)
{
    return run->nsrc >= KOLO_RUN_MOST || run->nlines >= KOLO_RUN_MOST ||
           run->ntaken >= KOLO_RUN_MOST;
}

static void add_source(struct kolo_run *run, struct kolo_at at, bool left)
{
    assert(run->nsrc < KOLO_RUN_ROOM);
    if (left) {
        memmove(&run->src[1], &run->src[0], (size_t)run->nsrc * sizeof run->src[0]);
        run->src[0] = at;
    } else {
        run->src[run->nsrc] = at;
    }
    run->nsrc++;
}

static void gather_run(struct kolo_lowering *l, struct kolo_run *run, int begin, int lane)
{
    const struct kolo_step *first = &l->mine->step[begin];
    const int second = kolo_lowering_next_step(l, begin + 1, lane);
    const bool alone = second >= l->mine->count || !joins_run(l, second, first->dst, 1);
    struct kolo_at at = {0};
    run->begin = begin;
    run->end = begin + 1;
    run->nsrc = run->nlines = run->ntaken = 0;
    run->last = false;
    if (first->op == KOLO_RECV_REDUCE || first->op == KOLO_REDUCE) {
        add_source(run, kolo_at_slice(first->dst), false);
    }
    for (int i = begin; i < l->mine->count; i = kolo_lowering_next_step(l, i + 1, lane)) {
        const struct kolo_step *s = &l->mine->step[i];
        const bool more = run->nsrc > 0 && !is_full(run);
        if (i > begin && (!more || !joins_run(l, i, first->dst, run->nsrc))) {
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

static void wait_for_run(struct kolo_lowering *l, const struct kolo_run *run)
{
    if (run->nlines > 0) {
        struct kolo_uop *wait = kolo_lowering_emit(l, KOLO_DO_WAIT, run->end - 1);
        wait->nsrc = (uint16_t)run->nlines;
        for (int i = 0; i < run->nlines; i++) {
            kolo_lowering_operand(l, run->line[i]);
        }
    }
    if (run->ntaken > 0) {
        struct kolo_uop *taken = kolo_lowering_emit(l, KOLO_DO_TAKEN, run->end - 1);
        taken->nsrc = (uint16_t)run->ntaken;
        for (int i = 0; i < run->ntaken; i++) {
            kolo_lowering_operand(l, (struct kolo_at){.rank = -1, .index = run->taken[i]});
        }
    }
}

int kolo_lower_run(struct kolo_lowering *l, struct kolo_run *run, int i, int lane)
{
    struct kolo_slice dst = l->mine->step[i].dst;
    gather_run(l, run, i, lane);
    wait_for_run(l, run);
    int end = run->end;
    if (!run->moves) {
        return end;
    }
    const int next = kolo_lowering_next_step(l, end, lane);
    const struct kolo_step *copy = next < l->mine->count ? &l->mine->step[next] : NULL;
    const bool copied = copy != NULL && copy->op == KOLO_COPY && copy->dep < 0 &&
                        kolo_slice_same(copy->src, dst) && !kolo_slice_overlap(copy->dst, dst) &&
                        dst.count > 0;
    struct kolo_uop *move = kolo_lowering_emit(l, KOLO_DO_MOVE, i);
    move->nsrc = (uint16_t)run->nsrc;
    move->count = dst.count;
    move->last = run->last;
    for (int k = 0; k < run->nsrc; k++) {
        kolo_lowering_operand(l, run->src[k]);
    }
    move->ndst++;
    kolo_lowering_operand(l, kolo_at_slice(dst));
    if (copied) {
        move->ndst++;
        kolo_lowering_operand(l, kolo_at_slice(copy->dst));
        end = next + 1;
    }
    return end;
}
