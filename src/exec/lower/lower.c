// SPDX-License-Identifier: Apache-2.0
/* Lowering turns a rank's steps into waits, moves and signals for the links that it has.
 *
 * It passes once over each lane:
 * - A run of sends becomes copies into the outbox and one signal.
 * - A run of steps into one slice becomes one wait and one move. The move has all sources in order,
 *   so that it forms sums in registers.
 * - A copy or a send of a slice that a move just wrote adds a destination to that move.
 * - A scratch destination that nobody loads is dropped.
 * - The first wait after a signal opens a pipeline stage, so that the next tile's first sends go
 *   out before this tile's waits.
 *
 * Files: emit.c appends ops. sends.c and runs.c lower the two kinds of steps. dead.c drops stores
 * that nobody loads. stages.c cuts the ops into stages. posts.c posts receives early. This file goes
 * through the lanes and makes the program.
 */
#include "exec/lower/lowering.h"
#include "plan/facts.h"

#include <stdlib.h>

/* ---- lanes ---- */

static bool is_nothing(const struct kolo_step *s)
{
    return s->op == KOLO_COPY && (s->src.count == 0 || kolo_slice_same(s->src, s->dst));
}

static void lower_lane(struct kolo_lowering *l, struct kolo_run *run, int lane)
{
    struct kolo_prog *p = l->prog;
    const uint32_t begin = p->nops;
    for (int i = kolo_lowering_next_step(l, 0, lane); i < l->mine->count;
         i = kolo_lowering_next_step(l, i, lane)) {
        const struct kolo_step *s = &l->mine->step[i];
        if (s->dep >= 0) {
            struct kolo_uop *after = kolo_lowering_emit(l, KOLO_DO_AFTER, i);
            after->peer = l->mine->step[s->dep].lane;
            after->index = (uint32_t)s->dep; /* a step number until resolve_deps() */
        }
        const int from = i;
        i = s->op == KOLO_SEND ? kolo_lower_sends(l, begin, i, lane)
            : is_nothing(s)    ? i + 1
                               : kolo_lower_run(l, run, i, lane);
        for (int k = from; k < i; k++) {
            l->step_op[k] = l->mine->step[k].lane == lane ? p->nops : l->step_op[k];
        }
    }
    kolo_lowering_emit(l, KOLO_DO_DONE, -1);
    p->lane[lane] = (struct kolo_lane_ops){.begin = begin, .end = p->nops};
}

static void resolve_deps(struct kolo_lowering *l)
{
    for (uint32_t i = 0; i < l->prog->nops; i++) {
        struct kolo_uop *op = &l->prog->op[i];
        if (op->code == KOLO_DO_AFTER) {
            op->index = l->step_op[op->index];
        }
    }
}

/* Whether rank `peer` sends me a message after its last pull from me. The message proves that the
 * pull is done, so this rank need not wait for it. */
static bool proved_done(const struct kolo_lowering *l, int peer)
{
    const int *other = l->match != NULL ? l->match[l->prog->me].other : NULL;
    int pull = -1, answer = -1;
    for (int i = 0; other != NULL && i < l->mine->count; i++) {
        const struct kolo_step *s = &l->mine->step[i];
        if (s->peer != peer || other[i] < 0) {
            continue;
        }
        if (s->op == KOLO_SEND) {
            const bool pulled =
                kolo_lowering_how(l, s, true, kolo_lowering_send_reduces(l, i)) == KOLO_BY_PULL;
            pull = pulled && other[i] > pull ? other[i] : pull;
        } else if (s->src.buf != KOLO_IN ||
                   kolo_lowering_how(l, s, false, s->op == KOLO_RECV_REDUCE) != KOLO_BY_PULL) {
            answer = other[i] > answer ? other[i] : answer;
        }
    }
    return answer > pull;
}

static void wait_for_pullers(struct kolo_lowering *l)
{
    struct kolo_uop *left = NULL;
    for (int q = 0; q < l->plan->shape.nranks; q++) {
        if (!l->pulled_by[q] || proved_done(l, q)) {
            continue;
        }
        if (left == NULL) {
            left = kolo_lowering_emit(l, KOLO_DO_LEFT, -1);
        }
        left->nsrc++;
        kolo_lowering_operand(l, kolo_at_line(q, 0));
    }
    l->prog->lane[l->prog->nlanes - 1].end = l->prog->nops;
}

/* ---- the program ---- */

static int *list_of(struct kolo_lowering *l, const bool *set, int *count)
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

static void lower_all(struct kolo_lowering *l, struct kolo_run *run)
{
    struct kolo_prog *p = l->prog;
    for (int lane = 0; lane < p->nlanes; lane++) {
        lower_lane(l, run, lane);
    }
    resolve_deps(l);
    wait_for_pullers(l);
    kolo_lower_dead(l);
    kolo_lower_stages(l);
    kolo_lower_posts(l);
    for (int q = 0; q < l->plan->shape.nranks; q++) {
        l->source[q] = l->source[q] || l->entry[q]; /* I read q's entry line */
    }
    p->readers = list_of(l, l->reader, &p->nreaders);
    p->sources = list_of(l, l->source, &p->nsources);
    p->entries = list_of(l, l->entry, &p->nentries);
}

/* Chunks of each buffer, as far as the steps name them: a plan of some ranks may have more. */
static void count_chunks(struct kolo_lowering *l)
{
    for (int i = 0; i < l->mine->count; i++) {
        const struct kolo_step *s = &l->mine->step[i];
        const struct kolo_slice both[] = {s->src, s->dst};
        for (size_t k = 0; k < KOLO_LENGTH(both); k++) {
            const int end = (int)(both[k].first + both[k].count);
            int *chunks = &l->chunks[both[k].buf];
            *chunks = end > *chunks ? end : *chunks;
        }
    }
}

kolo_status kolo_lower(const struct kolo_plan *plan, int me, const uint8_t *link,
                       struct kolo_prog **out)
{
    const size_t n = (size_t)plan->shape.nranks;
    struct kolo_lowering l = {.plan = plan, .mine = &plan->rank[me], .link = link};
    struct kolo_run *run = malloc(sizeof *run);
    bool *sets = calloc(4 * n, sizeof *sets);
    l.prog = calloc(1, sizeof *l.prog);
    l.count = calloc(n, sizeof *l.count);
    l.step_op = calloc((size_t)l.mine->count + 1, sizeof *l.step_op);
    count_chunks(&l);
    bool *used = calloc((size_t)l.chunks[KOLO_OUT] + (size_t)l.chunks[KOLO_SCRATCH] + 1, 1);
    l.match = plan->only < 0 && plan->lanes == 1 ? kolo_match_make(plan) : NULL;
    l.failed = run == NULL || sets == NULL || used == NULL || l.count == NULL || l.prog == NULL ||
               l.step_op == NULL || (l.match == NULL && plan->only < 0 && plan->lanes == 1);
    if (!l.failed) {
        l.reader = sets;
        l.source = sets + n;
        l.entry = sets + 2 * n;
        l.pulled_by = sets + 3 * n;
        l.used[KOLO_OUT] = used;
        l.used[KOLO_SCRATCH] = used + l.chunks[KOLO_OUT];
        *l.prog = (struct kolo_prog){.plan = plan,
                                     .me = me,
                                     .nlanes = plan->lanes,
                                     .depth = KOLO_DEPTH,
                                     .long_depth = KOLO_LONG_DEPTH};
        for (size_t q = 0; q < n; q++) {
            l.prog->apart =
                l.prog->apart || (q != (size_t)me && (link[q] & KOLO_LINK_MY_APART) != 0);
        }
        lower_all(&l, run);
    }
    kolo_match_free(l.match, plan->shape.nranks);
    free(run);
    free(sets);
    free(used);
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
