// SPDX-License-Identifier: Apache-2.0
/* Makes the list of communicators from the sets of members: sizes, hosts, channels, and a job for
 * each. A number that the log does not give exactly is the least that there must be. */
#include "tools/log/log.h"
#include "util/grow.h"

#include <stdlib.h>
#include <string.h>

const char *const kolo_log_uses[KOLO_LOG_USES] = {"NVLS", "MNNVL", "CollNet", "PXN"};

static void add_value(struct kolo_log_values *values, int a, int b)
{
    for (int i = 0; i < values->count; i++) {
        if (values->value[i][0] == a && values->value[i][1] == b) {
            return;
        }
    }
    if (values->count < KOLO_LOG_VALUES) {
        values->value[values->count][0] = a;
        values->value[values->count++][1] = b;
    }
}

/* ---- who is in which ---- */

static void add_member(struct kolo_log *log, const struct kolo_log_member *m)
{
    struct kolo_log_comm *c = &log->comm[m->set];
    c->nmembers++;
    c->began += m->began;
    c->complete += m->complete;
    c->uses |= m->uses;
    c->id = c->id != 0 ? c->id : m->id;
    if (!m->whole_ring && m->nranks > 0) {
        c->job.nranks = m->nranks;
        c->nranks_exact = true;
    }
    if (m->nodes > 0) {
        add_value(&c->nodes, m->nodes, m->local);
    }
    if (m->ring_channels > 0) {
        add_value(&c->channels, m->ring_channels, 0);
    }
    if (m->coll_channels > 0) {
        add_value(&c->coll_channels, m->coll_channels, 0);
    }
}

/* Number the sets that are not empty, in the order of the log. */
static kolo_status number_sets(struct kolo_log *log)
{
    int *number = malloc((size_t)log->nmembers * sizeof *number);
    if (number == NULL) {
        return kolo_log_fail_memory(log);
    }
    for (int i = 0; i < log->nmembers; i++) {
        number[i] = -1;
    }
    for (int i = 0; i < log->nmembers; i++) {
        struct kolo_log_member *m = &log->member[i];
        if (number[m->set] < 0) {
            number[m->set] = log->ncomms++;
        }
        m->set = number[m->set];
    }
    free(number);
    log->comm = calloc((size_t)log->ncomms, sizeof *log->comm);
    if (log->comm == NULL) {
        log->ncomms = 0;
        return kolo_log_fail_memory(log);
    }
    for (int i = 0; i < log->ncomms; i++) {
        log->comm[i].job.limit = log->all.limit;
        log->comm[i].line = -1;
        log->comm[i].number = i;
    }
    for (int i = 0; i < log->nmembers; i++) {
        struct kolo_log_comm *c = &log->comm[log->member[i].set];
        c->line = c->line < 0 ? log->member[i].line : c->line;
        add_member(log, &log->member[i]);
    }
    return KOLO_OK;
}

/* ---- facts ---- */

static bool place_rank(struct kolo_log *log, struct kolo_log_comm *c, int rank, int host)
{
    const char *name = log->all.host[host];
    if (name[0] == '\0') {
        return true;
    }
    const int index = kolo_job_host(&c->job, name);
    return index >= 0 && (rank < 0 || kolo_job_add_member(&c->job, rank, index));
}

bool kolo_log_stays_on_host(const char *via)
{
    const enum kolo_job_carrier carrier = kolo_carrier_of(via);
    return carrier == KOLO_CARRIER_SHM ||
           (carrier == KOLO_CARRIER_P2P && strstr(via, "MNNVL") == NULL);
}

/* An edge, and the host of its far end if it is the speaker's. */
static bool place_edge(struct kolo_log *log, int i)
{
    const struct kolo_log_member *m = &log->member[log->edge_of[i]];
    struct kolo_log_comm *c = &log->comm[m->set];
    struct kolo_job_edge edge = log->all.edge[i];
    const char *via = log->all.via[edge.via];
    edge.via = kolo_job_via(&c->job, via);
    const bool within = kolo_log_stays_on_host(via);
    return edge.via >= 0 && kolo_job_add_edge(&c->job, &edge) &&
           (!within ||
            (place_rank(log, c, edge.from, m->host) && place_rank(log, c, edge.to, m->host)));
}

static bool place_next(struct kolo_log *log, const struct kolo_log_next *next)
{
    struct kolo_log_comm *c = &log->comm[log->member[next->member].set];
    struct kolo_job_edge *grown = kolo_grow(c->next, c->nnext, &c->next_room, sizeof *c->next);
    if (grown == NULL) {
        return false;
    }
    c->next = grown;
    grown[c->nnext++] = next->edge;
    return true;
}

static kolo_status place_facts(struct kolo_log *log)
{
    bool done = true;
    for (int i = 0; i < log->nmembers && done; i++) {
        const struct kolo_log_member *m = &log->member[i];
        done = place_rank(log, &log->comm[m->set], m->rank, m->host);
    }
    for (int i = 0; i < log->all.nrings && done; i++) {
        const struct kolo_job_ring *r = &log->all.ring[i];
        struct kolo_log_comm *c = &log->comm[log->member[log->ring_of[i]].set];
        done = kolo_job_add_ring(&c->job, r->channel, r->rank, r->count);
    }
    for (int i = 0; i < log->all.nbranches && done; i++) {
        struct kolo_log_comm *c = &log->comm[log->member[log->branch_of[i]].set];
        done = kolo_job_add_branch(&c->job, &log->all.branch[i]);
    }
    for (int i = 0; i < log->all.nedges && done; i++) {
        done = place_edge(log, i);
    }
    for (int i = 0; i < log->nnext && done; i++) {
        done = place_next(log, &log->next[i]);
    }
    for (int i = 0; i < log->nheads && done; i++) {
        const struct kolo_log_next *h = &log->head[i];
        add_value(&log->comm[log->member[h->member].set].heads, h->edge.channel, h->edge.from);
    }
    return done ? KOLO_OK : kolo_log_fail_memory(log);
}

/* ---- sizes ---- */

static int compare_next(const void *left, const void *right)
{
    const struct kolo_job_edge *a = left, *b = right;
    return a->channel != b->channel ? (a->channel < b->channel ? -1 : 1)
                                    : (a->from > b->from) - (a->from < b->from);
}

/* The length of the ring that "Ring 00 : 1 -> 2 -> 3" lines close through ranks 0 .. n - 1; 0: the
 * ring is not closed. */
static int closed_ring(struct kolo_log_comm *c)
{
    if (c->nnext == 0) {
        return 0;
    }
    qsort(c->next, (size_t)c->nnext, sizeof *c->next, compare_next);
    const int channel = c->next[0].channel;
    int at = c->next[0].from, steps = 0, most = 0;
    for (; steps <= c->nnext; steps++) {
        const struct kolo_job_edge key = {.channel = channel, .from = at};
        const struct kolo_job_edge *next =
            bsearch(&key, c->next, (size_t)c->nnext, sizeof key, compare_next);
        if (next == NULL || (steps > 0 && at == c->next[0].from)) {
            break;
        }
        most = kolo_log_larger(most, at);
        at = next->to;
    }
    return at == c->next[0].from && steps == most + 1 ? steps : 0;
}

static void find_size(struct kolo_log *log)
{
    for (int i = 0; i < log->nmembers; i++) {
        struct kolo_log_comm *c = &log->comm[log->member[i].set];
        const struct kolo_log_member *m = &log->member[i];
        if (!c->nranks_exact) {
            c->job.nranks = kolo_log_larger(c->job.nranks, kolo_log_larger(m->most, m->rank) + 1);
        }
    }
    for (int i = 0; i < log->nmembers; i++) {
        struct kolo_log_comm *c = &log->comm[log->member[i].set];
        c->nranks_exact |= log->member[i].whole_ring && log->member[i].nranks == c->job.nranks;
    }
    for (int i = 0; i < log->ncomms; i++) {
        struct kolo_log_comm *c = &log->comm[i];
        c->nranks_exact |= c->job.nranks > 0 && closed_ring(c) == c->job.nranks;
    }
}

static void find_channels(struct kolo_log_comm *c)
{
    struct kolo_job *job = &c->job;
    int exact = 0, least = 0;
    for (int i = 0; i < c->channels.count; i++) {
        exact = kolo_log_larger(exact, c->channels.value[i][0]);
    }
    for (int i = 0; i < c->coll_channels.count && c->channels.count == 0; i++) {
        exact = kolo_log_larger(exact, c->coll_channels.value[i][0]);
    }
    for (int i = 0; i < job->nrings; i++) {
        least = kolo_log_larger(least, job->ring[i].channel + 1);
    }
    for (int i = 0; i < job->nedges; i++) {
        least = kolo_log_larger(least, job->edge[i].collective ? job->edge[i].channel + 1 : 0);
    }
    for (int i = 0; i < c->nnext; i++) {
        least = kolo_log_larger(least, c->next[i].channel + 1);
    }
    job->nchannels = exact > 0 ? exact : kolo_log_larger(least, kolo_job_trees(job));
    c->channels_exact = exact > 0;
}

static void find_hosts(struct kolo_log_comm *c)
{
    const struct kolo_job *job = &c->job;
    int nodes = 0, placed = 0;
    for (int i = 0; i < c->nodes.count; i++) {
        nodes = kolo_log_larger(nodes, c->nodes.value[i][0]);
    }
    for (int i = 0; i < job->nmembers; i++) {
        placed += job->member[i].rank < job->nranks;
    }
    const bool all = c->nranks_exact && placed == job->nranks;
    c->nhosts = all && nodes <= job->nhosts ? job->nhosts : kolo_log_larger(nodes, job->nhosts);
    c->hosts_exact = all || nodes > 0;
}

static int compare_comms(const void *left, const void *right)
{
    const struct kolo_log_comm *a = left, *b = right;
    return a->job.nranks != b->job.nranks ? (a->job.nranks > b->job.nranks ? -1 : 1)
           : a->nmembers != b->nmembers   ? (a->nmembers > b->nmembers ? -1 : 1)
                                          : (a->line > b->line) - (a->line < b->line);
}

kolo_status kolo_log_build(struct kolo_log *log)
{
    KOLO_TRY(number_sets(log));
    KOLO_TRY(place_facts(log));
    find_size(log);
    for (int i = 0; i < log->ncomms; i++) {
        struct kolo_log_comm *c = &log->comm[i];
        kolo_job_sort(&c->job);
        find_channels(c);
        find_hosts(c);
    }
    int *now = malloc((size_t)log->ncomms * sizeof *now);
    if (now == NULL) {
        return kolo_log_fail_memory(log);
    }
    qsort(log->comm, (size_t)log->ncomms, sizeof *log->comm, compare_comms);
    for (int i = 0; i < log->ncomms; i++) {
        now[log->comm[i].number] = i;
    }
    for (int i = 0; i < log->nmembers; i++) {
        log->member[i].set = now[log->member[i].set];
    }
    free(now);
    return KOLO_OK;
}
