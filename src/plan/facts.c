// SPDX-License-Identifier: Apache-2.0
/* Facts about messages that only the whole plan shows, and that save a copy:
 *   STABLE  the sender never writes the source again, so the receiver may load from it any time;
 *   FRESH   the receiver has not touched the destination yet, so the sender may store into it.
 * Both must hold whether or not a rank's IN and OUT are the same memory.
 *
 * One exception keeps the two-phase exchange copy-free in place: rank p loads my chunk, and later
 * sends me the chunk that belongs there. p receives before it sends, so its own message cannot
 * overtake its own load.
 *
 * Only plans of one lane carry facts. With one lane a peer's step order is its program order.
 */
#include "facts.h"

#include "util/grow.h"

#include <stdlib.h>

struct use { /* of one location, in program order */
    int step;
    bool write;
    bool onto_itself; /* COPY of IN to the OUT it may be the same memory as: never changes IN */
    int next;
};

struct view { /* one rank: a list of uses for each location */
    const struct kolo_plan *plan;
    int rank, nout, nuses, cap;
    int *head, *tail; /* [locations] */
    struct use *use;
    bool failed;
};

/* The location of a chunk. OUT chunks come first. An IN chunk has the location of the OUT chunk
 * with which it may share memory, else its own. */
static int location_of(const struct view *v, enum kolo_buf buf, int chunk)
{
    if (buf == KOLO_OUT) {
        return chunk;
    }
    const int alias = kolo_alias_out_chunk(v->plan, v->rank, chunk);
    return alias >= 0 ? alias : v->nout + chunk;
}

static void add_use(struct view *v, struct kolo_slice s, int step, bool write, bool onto_itself)
{
    for (int c = 0; s.buf != KOLO_SCRATCH && c < s.count; c++) {
        const int at = location_of(v, (enum kolo_buf)s.buf, (int)s.first + c);
        struct use *grown = kolo_grow(v->use, v->nuses, &v->cap, sizeof *grown);
        if (grown == NULL) {
            v->failed = true;
            return;
        }
        v->use = grown;
        v->use[v->nuses] = (struct use){step, write, onto_itself, -1};
        if (v->tail[at] >= 0) {
            v->use[v->tail[at]].next = v->nuses;
        } else {
            v->head[at] = v->nuses;
        }
        v->tail[at] = v->nuses++;
    }
}

/* Whether this COPY does nothing in place. Out of place it writes OUT and leaves IN alone. */
static bool copies_onto_itself(const struct view *v, const struct kolo_step *s)
{
    return s->op == KOLO_COPY && s->src.buf == KOLO_IN && s->dst.buf == KOLO_OUT &&
           s->src.count > 0 &&
           kolo_alias_out_chunk(v->plan, v->rank, (int)s->src.first) == (int)s->dst.first;
}

static void view_close(struct view *v)
{
    free(v->head);
    free(v->tail);
    free(v->use);
}

static bool view_open(struct view *v, const struct kolo_plan *plan, int rank)
{
    *v = (struct view){.plan = plan, .rank = rank};
    v->nout = kolo_plan_buf_chunks(plan, rank, KOLO_OUT);
    const int n = v->nout + kolo_plan_buf_chunks(plan, rank, KOLO_IN) + 1;
    v->head = malloc((size_t)n * sizeof *v->head);
    v->tail = malloc((size_t)n * sizeof *v->tail);
    if (v->head == NULL || v->tail == NULL) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        v->head[i] = v->tail[i] = -1;
    }
    const struct kolo_rank_plan *mine = &plan->rank[rank];
    for (int i = 0; i < mine->count; i++) {
        const struct kolo_step *s = &mine->step[i];
        if (s->op == KOLO_SEND || s->op == KOLO_COPY || s->op == KOLO_REDUCE) {
            add_use(v, s->src, i, false, false);
        }
        if (s->op != KOLO_SEND) {
            add_use(v, s->dst, i, true, copies_onto_itself(v, s));
        }
    }
    return !v->failed;
}

/* Whether the peer received SEND `send` of v's rank before it sent the message of RECV `recv`. */
static bool is_answered(const struct view *v, const struct kolo_match *match, int send, int recv)
{
    const struct kolo_step *s = &v->plan->rank[v->rank].step[send];
    const struct kolo_step *r = &v->plan->rank[v->rank].step[recv];
    return s->op == KOLO_SEND && (r->op == KOLO_RECV) && s->peer == r->peer &&
           match[v->rank].other[send] < match[v->rank].other[recv];
}

static bool is_stable(const struct view *v, const struct kolo_match *match, int send)
{
    const struct kolo_slice s = v->plan->rank[v->rank].step[send].src;
    if (s.buf == KOLO_SCRATCH) {
        return false;
    }
    for (int c = 0; c < s.count; c++) {
        int u = v->head[location_of(v, (enum kolo_buf)s.buf, (int)s.first + c)];
        for (; u >= 0; u = v->use[u].next) {
            if (v->use[u].onto_itself && s.buf == KOLO_IN) {
                continue;
            }
            if (v->use[u].write && v->use[u].step > send &&
                !is_answered(v, match, send, v->use[u].step)) {
                return false;
            }
        }
    }
    return true;
}

static bool is_fresh(const struct view *v, const struct kolo_match *match, int recv)
{
    const struct kolo_slice d = v->plan->rank[v->rank].step[recv].dst;
    if (d.buf != KOLO_OUT) {
        return false;
    }
    for (int c = 0; c < d.count; c++) {
        int u = v->head[(int)d.first + c];
        for (; u >= 0 && v->use[u].step < recv; u = v->use[u].next) {
            if (v->use[u].write || !is_answered(v, match, v->use[u].step, recv)) {
                return false;
            }
        }
    }
    return true;
}

void kolo_match_free(struct kolo_match *match, int nranks)
{
    for (int r = 0; match != NULL && r < nranks; r++) {
        free(match[r].other);
    }
    free(match);
}

/* Match the receives of rank `to`. Messages match in order per (from, to), so the walk over the
 * receiver's list needs one cursor per sender. */
static void match_receives(const struct kolo_plan *plan, struct kolo_match *match, int to,
                           int *cursor)
{
    for (int i = 0; i < plan->rank[to].count; i++) {
        const struct kolo_step *s = &plan->rank[to].step[i];
        if (s->op != KOLO_RECV && s->op != KOLO_RECV_REDUCE) {
            continue;
        }
        const struct kolo_rank_plan *peer = &plan->rank[s->peer];
        int *at = &cursor[s->peer];
        while (*at < peer->count &&
               !(peer->step[*at].op == KOLO_SEND && peer->step[*at].peer == to &&
                 peer->step[*at].lane == s->lane)) {
            ++*at;
        }
        if (*at < peer->count) {
            match[to].other[i] = *at;
            match[s->peer].other[*at] = i;
            ++*at;
        }
    }
}

struct kolo_match *kolo_match_make(const struct kolo_plan *plan)
{
    const int n = plan->shape.nranks;
    struct kolo_match *match = calloc((size_t)n, sizeof *match);
    int *cursor = malloc((size_t)n * sizeof *cursor);
    bool ok = match != NULL && cursor != NULL;
    for (int r = 0; ok && r < n; r++) {
        match[r].other = malloc(((size_t)plan->rank[r].count + 1) * sizeof(int));
        ok = match[r].other != NULL;
        for (int i = 0; ok && i < plan->rank[r].count; i++) {
            match[r].other[i] = -1;
        }
    }
    for (int to = 0; ok && to < n; to++) {
        for (int q = 0; q < n; q++) {
            cursor[q] = 0;
        }
        match_receives(plan, match, to, cursor);
    }
    free(cursor);
    if (!ok) {
        kolo_match_free(match, n);
        return NULL;
    }
    return match;
}

static bool mark_rank(struct kolo_plan *plan, const struct kolo_match *match, int rank)
{
    struct view v;
    if (!view_open(&v, plan, rank)) {
        view_close(&v);
        return false;
    }
    for (int i = 0; i < plan->rank[rank].count; i++) {
        struct kolo_step *s = &plan->rank[rank].step[i];
        uint8_t fact = 0;
        if (match[rank].other[i] < 0) {
            continue;
        }
        if (s->op == KOLO_SEND) {
            fact = is_stable(&v, match, i) ? KOLO_STEP_STABLE : 0;
        } else {
            fact = is_fresh(&v, match, i) ? KOLO_STEP_FRESH : 0;
        }
        s->flags |= fact;
        plan->rank[s->peer].step[match[rank].other[i]].flags |= fact;
    }
    view_close(&v);
    return true;
}

kolo_status kolo_plan_mark_facts(struct kolo_plan *plan)
{
    if (plan->lanes != 1) {
        return KOLO_OK;
    }
    struct kolo_match *match = kolo_match_make(plan);
    bool ok = match != NULL;
    for (int r = 0; ok && r < plan->shape.nranks; r++) {
        ok = mark_rank(plan, match, r);
    }
    kolo_match_free(match, plan->shape.nranks);
    return ok ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
}
