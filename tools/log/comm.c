// SPDX-License-Identifier: Apache-2.0
/* Sorts the members of a log into communicators.
 *
 * Since 2.16 lines have a commId, and members with one commId are together. Without commIds,
 * members are joined in two passes, and never two members with the same rank:
 * 1. Along edges: "11[88000] -> 12[88000]" joins rank 11 to the member with rank 12 on that GPU. An
 *    edge through P2P or shared memory stays on its host. If several members fit, the best one has
 *    the same place in its process's order of members; the next best one spoke at the same time.
 * 2. Sets of ranks that nothing joins are put together in the order of the log, if they may be of
 *    one communicator. */
#include "tools/log/log.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK = 4096 };

struct set { /* of members, as a list */
    int first, last, size;
    int nranks, most, colour, nodes, channels;
    uint64_t id;
};

struct ranked {
    int rank, member;
};

struct grouping {
    struct kolo_log *log;
    struct ranked *by_rank; /* members in the order of their ranks */
    int *place; /* of a member: the index of its rank among the ranks of the log; -1 unknown */
    int *next;  /* in the list of its set; -1 the last */
    int *order; /* which of its process's members with this rank and size it is */
    long *mark; /* of a place: the last question for which it was set */
    long question, work;
    struct set *set;
};

/* ---- sets ---- */

static struct set *set_of(const struct grouping *g, int member)
{
    return &g->set[g->log->member[member].set];
}

static bool agree(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 || a == b;
}

static bool may_join(const struct set *a, const struct set *b)
{
    const int nranks = a->nranks > 0 ? a->nranks : b->nranks;
    return agree(a->id, b->id) && agree((uint64_t)a->nranks, (uint64_t)b->nranks) &&
           (a->colour == b->colour || a->colour < 0 || b->colour < 0) &&
           agree((uint64_t)a->channels, (uint64_t)b->channels) &&
           (nranks == 0 || (a->most < nranks && b->most < nranks && a->size + b->size <= nranks));
}

/* Whether both sets have a member of the same rank. In a log too large to ask, they have. */
static bool share_rank(struct grouping *g, const struct set *a, const struct set *b)
{
    static const long work_most = 300000000;
    g->question++;
    g->work += a->size + b->size;
    for (int i = a->first; i >= 0; i = g->next[i]) {
        if (g->place[i] >= 0) {
            g->mark[g->place[i]] = g->question;
        }
    }
    for (int i = b->first; i >= 0; i = g->next[i]) {
        if (g->place[i] >= 0 && g->mark[g->place[i]] == g->question) {
            return true;
        }
    }
    return g->work > work_most;
}

/* Join the set of member b to that of member a. */
static void join(struct grouping *g, int a, int b)
{
    struct set *to = set_of(g, a), *from = set_of(g, b);
    const int index = g->log->member[a].set;
    for (int i = from->first; i >= 0; i = g->next[i]) {
        g->log->member[i].set = index;
    }
    g->work += from->size;
    g->next[to->last] = from->first;
    to->last = from->last;
    to->size += from->size;
    to->nranks = kolo_log_larger(to->nranks, from->nranks);
    to->most = kolo_log_larger(to->most, from->most);
    to->colour = kolo_log_larger(to->colour, from->colour);
    to->nodes = kolo_log_larger(to->nodes, from->nodes);
    to->channels = kolo_log_larger(to->channels, from->channels);
    to->id = to->id != 0 ? to->id : from->id;
    from->first = -1;
    from->size = 0;
}

static bool try_join(struct grouping *g, int a, int b)
{
    const struct set *first = set_of(g, a), *second = set_of(g, b);
    if (first == second || !may_join(first, second) || share_rank(g, first, second)) {
        return first == second;
    }
    if (first->size < second->size) {
        join(g, b, a);
    } else {
        join(g, a, b);
    }
    return true;
}

/* ---- by commId ---- */

struct id_of {
    uint64_t id;
    int nranks, member;
};

static int compare_ids(const void *left, const void *right)
{
    const struct id_of *a = left, *b = right;
    return a->id != b->id           ? (a->id < b->id ? -1 : 1)
           : a->nranks != b->nranks ? (a->nranks < b->nranks ? -1 : 1)
                                    : (a->member > b->member) - (a->member < b->member);
}

static bool join_ids(struct grouping *g)
{
    const int n = g->log->nmembers;
    struct id_of *ids = malloc(((size_t)n + 1) * sizeof *ids);
    int count = 0;
    for (int i = 0; i < n && ids != NULL; i++) {
        if (g->log->member[i].id != 0) {
            ids[count++] = (struct id_of){g->log->member[i].id, g->log->member[i].nranks, i};
        }
    }
    if (count > 1) {
        qsort(ids, (size_t)count, sizeof *ids, compare_ids);
    }
    for (int i = 1; i < count; i++) {
        const struct id_of *a = &ids[i - 1], *b = &ids[i];
        if (a->id == b->id && a->nranks == b->nranks &&
            set_of(g, a->member) != set_of(g, b->member)) {
            join(g, a->member, b->member);
        }
    }
    free(ids);
    return ids != NULL;
}

/* ---- by edges ---- */

/* The first member in by_rank whose rank is `rank` or more. */
static int first_of_rank(const struct grouping *g, int rank)
{
    int low = 0, high = g->log->nmembers;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (g->by_rank[middle].rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* How well a member fits the far end of an edge; 0: not at all. */
static int rate_end(const struct grouping *g, int from, int to, bool within,
                    const struct kolo_log_bracket *gpu)
{
    const struct kolo_log_member *a = &g->log->member[from], *b = &g->log->member[to];
    if (!may_join(set_of(g, from), set_of(g, to)) || (within && a->host != b->host) ||
        (gpu->known && b->gpu.known && gpu->value != b->gpu.value)) {
        return 0;
    }
    return 1 + 2 * (g->order[from] == g->order[to]) + (a->line <= b->end && b->line <= a->end);
}

static void join_edge(struct grouping *g, int from, int rank, bool within,
                      const struct kolo_log_bracket *gpu)
{
    int best = -1, best_rate = 0, alike = 0;
    for (int i = first_of_rank(g, rank), seen = 0; i < g->log->nmembers && seen < LOOK_BACK;
         i++, seen++) {
        const int to = g->by_rank[i].member;
        if (g->by_rank[i].rank != rank) {
            break;
        }
        if (set_of(g, from) == set_of(g, to)) {
            return;
        }
        g->work++;
        const int rate = rate_end(g, from, to, within, gpu);
        alike = rate > best_rate ? 1 : alike + (rate == best_rate);
        best = rate > best_rate ? to : best;
        best_rate = rate > best_rate ? rate : best_rate;
    }
    if (best >= 0 && alike == 1) {
        (void)try_join(g, from, best);
    }
}

/* Edges within hosts first: they are the surer ones. */
static void join_edges(struct grouping *g)
{
    const struct kolo_log *log = g->log;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < log->all.nedges; i++) {
            const struct kolo_job_edge *e = &log->all.edge[i];
            const int from = log->edge_of[i];
            const int rank = log->member[from].rank == e->to ? e->from : e->to;
            const bool within = kolo_log_stays_on_host(log->all.via[e->via]);
            if (within == (pass == 0) && log->member[from].id == 0) {
                join_edge(g, from, rank, within, &log->bracket[i]);
            }
        }
    }
}

/* ---- the rest ---- */

static bool one_host(const struct grouping *g, const struct set *a, const struct set *b)
{
    return (a->nodes != 1 && b->nodes != 1) ||
           g->log->member[a->first].host == g->log->member[b->first].host;
}

static void join_rest(struct grouping *g)
{
    const int n = g->log->nmembers;
    int *open = malloc(((size_t)n + 1) * sizeof *open); /* sets that have room, by a member */
    int count = 0;
    for (int i = 0; i < n && open != NULL; i++) {
        if (set_of(g, i)->first != i) {
            continue;
        }
        bool joined = false;
        for (int k = 0; k < count && !joined; k++) {
            const struct set *a = set_of(g, open[k]), *b = set_of(g, i);
            g->work++;
            joined = a == b ||
                     ((a->id == 0 || b->id == 0) && one_host(g, a, b) && try_join(g, open[k], i));
        }
        if (!joined) {
            open[count++] = i;
        }
    }
    free(open);
}

/* ---- all ---- */

static int compare_ranks(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1)
                              : (a->member > b->member) - (a->member < b->member);
}

static void prepare(struct grouping *g)
{
    struct kolo_log *log = g->log;
    int place = -1;
    for (int i = 0; i < log->nmembers; i++) {
        struct kolo_log_member *m = &log->member[i];
        int steps = 0;
        for (int k = m->earlier; k >= 0 && steps < LOOK_BACK; k = log->member[k].earlier, steps++) {
            g->order[i] += log->member[k].rank == m->rank && log->member[k].nranks == m->nranks;
        }
        m->set = i;
        g->by_rank[i] = (struct ranked){m->rank, i};
        g->next[i] = -1;
        g->set[i] =
            (struct set){i,        i,
                         1,        m->nranks,
                         m->most,  m->colour,
                         m->nodes, m->ring_channels > 0 ? m->ring_channels : m->coll_channels,
                         m->id};
    }
    qsort(g->by_rank, (size_t)log->nmembers, sizeof *g->by_rank, compare_ranks);
    for (int i = 0; i < log->nmembers; i++) {
        const struct ranked *r = &g->by_rank[i];
        place += i == 0 || r[-1].rank != r->rank;
        g->place[r->member] = r->rank < 0 ? -1 : place;
    }
}

kolo_status kolo_log_group(struct kolo_log *log)
{
    const size_t n = (size_t)log->nmembers;
    if (n == 0) {
        return KOLO_OK;
    }
    struct grouping g = {.log = log};
    int *ints = calloc(n, 3 * sizeof *ints);
    g.by_rank = malloc(n * sizeof *g.by_rank);
    g.mark = calloc(n, sizeof *g.mark);
    g.set = malloc(n * sizeof *g.set);
    bool done = ints != NULL && g.by_rank != NULL && g.mark != NULL && g.set != NULL;
    if (done) {
        g.place = ints;
        g.next = ints + n;
        g.order = ints + 2 * n;
        prepare(&g);
        done = join_ids(&g);
        join_edges(&g);
        join_rest(&g);
    }
    free(ints);
    free(g.by_rank);
    free(g.mark);
    free(g.set);
    return done ? kolo_log_build(log) : kolo_log_fail_memory(log);
}
