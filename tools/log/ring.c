// SPDX-License-Identifier: Apache-2.0
/* Rebuilds rings whose line was cut or is missing. NCCL prints 20 ranks, or 127 characters, and
 * only rank 0 prints the ring.
 *
 * If the GRAPH subsystem was on, "Ring c : prev -> me -> next" lines give the rest. Else the rest
 * comes from the connections of the channel, which are the edges of its ring and its trees. A ring
 * is a cycle through all ranks, so it is searched depth first:
 * - Edges that are no tree edges are tried first.
 * - The first search leaves a host only after it has visited all ranks of the host. */
#include "tools/log/log.h"

#include <stdlib.h>
#include <string.h>

struct search {
    int n;
    const int *first; /* [n + 1]: candidates of a rank are to[first[r]] .. to[first[r + 1] - 1] */
    const int *to;
    int *path, *tried; /* [n] */
    unsigned char *used;
    const int *host; /* [n], -1 unknown; NULL: hosts may be left at any time */
    int *left;       /* [hosts]: ranks not yet on the path */
};

static bool may_go(const struct search *s, int from, int to)
{
    const int host = s->host != NULL ? s->host[from] : -1;
    return s->used[to] == 0 && (host < 0 || host == s->host[to] || s->left[host] == 0);
}

static void mark_rank(struct search *s, int rank, bool used)
{
    s->used[rank] = used;
    if (s->host != NULL && s->host[rank] >= 0) {
        s->left[s->host[rank]] += used ? -1 : 1;
    }
}

/* Find a cycle through all ranks that begins with path[0..fixed-1]. False: there is none, or the
 * search takes too long. */
static bool find_cycle(struct search *s, int fixed)
{
    long steps = 100000 + 64L * s->n;
    int depth = fixed - 1;
    memset(s->used, 0, (size_t)s->n);
    for (int i = 0; i < fixed; i++) {
        if (s->path[i] >= s->n || s->used[s->path[i]] != 0) {
            return false;
        }
        mark_rank(s, s->path[i], true);
    }
    s->tried[depth] = 0;
    while (depth >= fixed - 1 && steps-- > 0) {
        const int at = s->path[depth];
        const int begin = s->first[at], count = s->first[at + 1] - begin;
        if (s->tried[depth] == count) {
            mark_rank(s, at, false);
            depth--;
            continue;
        }
        const int next = s->to[begin + s->tried[depth]++];
        if (depth == s->n - 1) {
            if (next == s->path[0]) {
                return true;
            }
        } else if (may_go(s, at, next)) {
            mark_rank(s, next, true);
            s->path[++depth] = next;
            s->tried[depth] = 0;
        }
    }
    return false;
}

static bool is_tree_edge(const struct kolo_job *job, const struct kolo_job_edge *e)
{
    const struct kolo_job_branch *from = kolo_job_find_branch(job, e->channel, e->from);
    const struct kolo_job_branch *to = kolo_job_find_branch(job, e->channel, e->to);
    return (from != NULL && from->up == e->to) || (to != NULL && to->up == e->from);
}

/* Collect candidates in two passes: edges that are no tree edges, then the others. Edges are
 * sorted, so an edge that both ends logged is taken once. */
static void collect_candidates(const struct kolo_log_comm *comm, int channel, bool lines,
                               int *first, int *to)
{
    const struct kolo_job_edge *edge = lines ? comm->next : comm->job.edge;
    const int count = lines ? comm->nnext : comm->job.nedges;
    const int n = comm->job.nranks;
    memset(first, 0, ((size_t)n + 2) * sizeof *first);
    for (int pass = 0; pass < 3; pass++) { /* 0 counts */
        for (int i = 0; i < count; i++) {
            const struct kolo_job_edge *e = &edge[i];
            const bool again = i > 0 && !lines && e->from == edge[i - 1].from &&
                               e->to == edge[i - 1].to && e->channel == edge[i - 1].channel;
            if (e->channel != channel || e->from >= n || e->to >= n || again) {
                continue;
            }
            if (pass == 0) {
                first[e->from + 2]++;
            } else if ((lines || !is_tree_edge(&comm->job, e)) == (pass == 1)) {
                to[first[e->from + 1]++] = e->to;
            }
        }
        for (int r = 0; r <= n && pass == 0; r++) {
            first[r + 1] += first[r];
        }
    }
}

static void count_hosts(const struct kolo_log_comm *comm, const int *host, int *left)
{
    memset(left, 0, (size_t)comm->job.nhosts * sizeof *left);
    for (int r = 0; r < comm->job.nranks; r++) {
        if (host[r] >= 0) {
            left[host[r]]++;
        }
    }
}

static bool try_from(struct kolo_log_comm *comm, struct search *s, const int *host,
                     const struct kolo_job_ring *ring)
{
    const int zero = 0;
    const int fixed = ring != NULL ? ring->count : 1;
    s->host = host;
    if (host != NULL) {
        count_hosts(comm, host, s->left);
    }
    memcpy(s->path, ring != NULL ? ring->rank : &zero, (size_t)fixed * sizeof zero);
    return find_cycle(s, fixed);
}

static kolo_status keep_ring(struct kolo_log_comm *comm, int channel, const int *path)
{
    struct kolo_job *job = &comm->job;
    const int n = job->nranks;
    for (int i = 0; i < job->nrings; i++) {
        if (job->ring[i].channel == channel) {
            int *grown = realloc(job->ring[i].rank, (size_t)n * sizeof *grown);
            if (grown == NULL) {
                return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a ring");
            }
            memcpy(grown, path, (size_t)n * sizeof *grown);
            job->ring[i] = (struct kolo_job_ring){channel, KOLO_RING_REBUILT, n, grown};
            return KOLO_OK;
        }
    }
    if (!kolo_job_add_ring(job, channel, path, n)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a ring");
    }
    job->ring[job->nrings - 1].from = KOLO_RING_REBUILT;
    return KOLO_OK;
}

/* Search by the ring's own lines, then by connections host by host, then by connections alone. */
static bool search_ring(struct kolo_log_comm *comm, struct search *s, int channel, int *first,
                        int *to, const int *host)
{
    const struct kolo_job_ring *ring = kolo_job_find_ring(&comm->job, channel);
    collect_candidates(comm, channel, true, first, to);
    if (try_from(comm, s, NULL, ring)) {
        return true;
    }
    collect_candidates(comm, channel, false, first, to);
    return try_from(comm, s, host, ring) || try_from(comm, s, NULL, ring);
}

static kolo_status rebuild_ring(struct kolo_log_comm *comm, int channel)
{
    const struct kolo_job *job = &comm->job;
    const size_t n = (size_t)job->nranks;
    const size_t most = (size_t)(job->nedges > comm->nnext ? job->nedges : comm->nnext);
    int *ints = malloc((4 * n + 2 + most + (size_t)job->nhosts) * sizeof *ints);
    unsigned char *used = malloc(n);
    kolo_status st = KOLO_OK;
    if (ints == NULL || used == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a ring");
    } else {
        int *host = ints + 2 * n, *first = host + n, *to = first + n + 2;
        struct search s = {.n = (int)n,
                           .first = first,
                           .to = to,
                           .path = ints,
                           .tried = ints + n,
                           .used = used,
                           .left = to + most};
        for (int r = 0; r < job->nranks; r++) {
            host[r] = kolo_job_host_of(job, r);
        }
        if (search_ring(comm, &s, channel, first, to, host)) {
            st = keep_ring(comm, channel, s.path);
        }
    }
    free(ints);
    free(used);
    return st;
}

/* A ring has at least as many edges as ranks. With fewer edges there is no search, and no memory is
 * taken for ranks that a log only claims. */
kolo_status kolo_log_rebuild(struct kolo_log_comm *comm)
{
    struct kolo_job *job = &comm->job;
    const bool enough =
        job->nranks > 1 && (job->nedges >= job->nranks || comm->nnext >= job->nranks);
    const int channels = job->nchannels;
    for (int i = 0; i < job->nrings; i++) {
        if (job->ring[i].count < job->nranks) {
            job->ring[i].from = KOLO_RING_CUT;
        }
    }
    for (int c = 0; c < channels && enough; c++) {
        const struct kolo_job_ring *ring = kolo_job_find_ring(job, c);
        if (ring == NULL || ring->count < job->nranks) {
            KOLO_TRY(rebuild_ring(comm, c));
        }
    }
    kolo_job_sort(job);
    return KOLO_OK;
}
