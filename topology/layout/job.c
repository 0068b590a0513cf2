// SPDX-License-Identifier: Apache-2.0
/* The lists of a job, their order, and the questions that readers ask of them. */
#include "topology/layout/job.h"

#include <stdlib.h>
#include <string.h>

void kolo_job_free(struct kolo_job *job)
{
    for (int i = 0; i < job->nrings; i++) {
        free(job->ring[i].rank);
    }
    for (int i = 0; i < job->nhosts; i++) {
        free(job->host[i]);
    }
    for (int i = 0; i < job->nvias; i++) {
        free(job->via[i]);
    }
    free(job->ring);
    free(job->branch);
    free(job->member);
    free(job->edge);
    free(job->host);
    free(job->via);
    *job = (struct kolo_job){0};
}

static bool take_memory(struct kolo_job *job, size_t bytes)
{
    if (job->limit != 0 && (bytes > job->limit || job->bytes > job->limit - bytes)) {
        return false;
    }
    job->bytes += bytes;
    return true;
}

/* Make room for one more element. realloc() may hold both arrays at once, so both are counted. */
static bool grow_list(struct kolo_job *job, void *array_of, int count, int *room, size_t each)
{
    void **array = array_of;
    if (count < *room) {
        return true;
    }
    const int more = *room < 16 ? 16 : *room + *room / 2;
    if (!take_memory(job, (size_t)more * each)) {
        return false;
    }
    void *new = realloc(*array, (size_t)more * each);
    if (new == NULL) {
        return false;
    }
    job->bytes -= (size_t)*room * each;
    *array = new;
    *room = more;
    return true;
}

bool kolo_job_add_ring(struct kolo_job *job, int channel, const int *rank, int count)
{
    const size_t bytes = (size_t)count * sizeof *rank;
    if (!grow_list(job, &job->ring, job->nrings, &job->ring_room, sizeof *job->ring) ||
        !take_memory(job, bytes)) {
        return false;
    }
    int *copy = malloc(bytes + sizeof *copy);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, rank, bytes);
    job->ring[job->nrings++] = (struct kolo_job_ring){channel, KOLO_RING_WHOLE, count, copy};
    return true;
}

bool kolo_job_add_branch(struct kolo_job *job, const struct kolo_job_branch *branch)
{
    if (!grow_list(job, &job->branch, job->nbranches, &job->branch_room, sizeof *job->branch)) {
        return false;
    }
    struct kolo_job_branch *b = &job->branch[job->nbranches++];
    *b = (struct kolo_job_branch){branch->channel, branch->rank, branch->up, {-1, -1, -1}};
    for (int i = 0, kept = 0; i < 3; i++) {
        if (branch->down[i] >= 0) {
            b->down[kept++] = branch->down[i];
        }
    }
    return true;
}

bool kolo_job_add_member(struct kolo_job *job, int rank, int host)
{
    if (!grow_list(job, &job->member, job->nmembers, &job->member_room, sizeof *job->member)) {
        return false;
    }
    job->member[job->nmembers++] = (struct kolo_job_member){rank, host};
    return true;
}

bool kolo_job_add_edge(struct kolo_job *job, const struct kolo_job_edge *edge)
{
    if (!grow_list(job, &job->edge, job->nedges, &job->edge_room, sizeof *job->edge)) {
        return false;
    }
    job->edge[job->nedges++] = *edge;
    return true;
}

static int name_in(struct kolo_job *job, char ***names, int *count, int *room, const char *name)
{
    for (int i = *count - 1; i >= 0; i--) { /* the last name is the likeliest */
        if (strcmp((*names)[i], name) == 0) {
            return i;
        }
    }
    if (!grow_list(job, names, *count, room, sizeof **names) ||
        !take_memory(job, strlen(name) + 1)) {
        return -1;
    }
    (*names)[*count] = strdup(name);
    return (*names)[*count] != NULL ? (*count)++ : -1;
}

int kolo_job_host(struct kolo_job *job, const char *name)
{
    return name_in(job, &job->host, &job->nhosts, &job->host_room, name);
}

int kolo_job_via(struct kolo_job *job, const char *name)
{
    return name_in(job, &job->via, &job->nvias, &job->via_room, name);
}

/* ---- order ---- */

static int compare_ints(const int (*keys)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_branches(const void *left, const void *right)
{
    const struct kolo_job_branch *a = left, *b = right;
    const int keys[][2] = {{a->channel, b->channel}, {a->rank, b->rank}};
    return compare_ints(keys, KOLO_LENGTH(keys));
}

/* A communicator of one rank logs trees too. Such a branch has no neighbours. */
static bool is_alone(const struct kolo_job_branch *b)
{
    return b->up < 0 && b->down[0] < 0;
}

static int order_branches(const void *left, const void *right)
{
    const int order = compare_branches(left, right);
    return order != 0 ? order : (int)is_alone(left) - (int)is_alone(right);
}

static int compare_members(const void *left, const void *right)
{
    const struct kolo_job_member *a = left, *b = right;
    const int keys[][2] = {{a->rank, b->rank}, {-a->host, -b->host}}; /* a known host first */
    return compare_ints(keys, KOLO_LENGTH(keys));
}

static int compare_edges(const void *left, const void *right)
{
    const struct kolo_job_edge *a = left, *b = right;
    const int keys[][2] = {
        {a->from, b->from}, {a->to, b->to}, {a->channel, b->channel}, {a->way, b->way}};
    return compare_ints(keys, KOLO_LENGTH(keys));
}

static int compare_rings(const void *left, const void *right)
{
    const struct kolo_job_ring *a = left, *b = right;
    const int keys[][2] = {{a->channel, b->channel}, {-a->count, -b->count}};
    return compare_ints(keys, KOLO_LENGTH(keys));
}

/* Sort rings, and keep the longest ring of each channel. */
static void sort_rings(struct kolo_job *job)
{
    int kept = 0;
    if (job->nrings > 0) {
        qsort(job->ring, (size_t)job->nrings, sizeof *job->ring, compare_rings);
    }
    for (int i = 0; i < job->nrings; i++) {
        if (kept > 0 && job->ring[kept - 1].channel == job->ring[i].channel) {
            free(job->ring[i].rank);
        } else {
            job->ring[kept++] = job->ring[i];
        }
    }
    job->nrings = kept;
}

/* Put the hosts in the order of their lowest ranks; members are sorted by rank. */
static void sort_hosts(struct kolo_job *job)
{
    char **name = malloc(((size_t)job->nhosts + 1) * sizeof *name);
    int *now = malloc(((size_t)job->nhosts + 1) * sizeof *now);
    int placed = 0;
    for (int i = 0; i < job->nhosts && now != NULL; i++) {
        now[i] = -1;
    }
    for (int i = 0; i < job->nmembers && now != NULL && name != NULL; i++) {
        int *host = &job->member[i].host;
        if (*host >= 0 && now[*host] < 0) {
            name[placed] = job->host[*host];
            now[*host] = placed++;
        }
        *host = *host >= 0 ? now[*host] : -1;
    }
    for (int i = 0; i < job->nhosts && now != NULL && name != NULL; i++) {
        if (now[i] < 0) {
            name[placed++] = job->host[i];
        }
    }
    if (now != NULL && name != NULL && job->nhosts > 0) {
        memcpy(job->host, name, (size_t)job->nhosts * sizeof *name);
    }
    free(name);
    free(now);
}

void kolo_job_sort(struct kolo_job *job)
{
    int kept = 0;
    if (job->nbranches > 0) {
        qsort(job->branch, (size_t)job->nbranches, sizeof *job->branch, order_branches);
    }
    for (int i = 0; i < job->nbranches; i++) {
        if (kept == 0 || compare_branches(&job->branch[kept - 1], &job->branch[i]) != 0) {
            job->branch[kept++] = job->branch[i];
        }
    }
    job->nbranches = kept;
    if (job->nmembers > 0) {
        qsort(job->member, (size_t)job->nmembers, sizeof *job->member, compare_members);
    }
    kept = 0;
    for (int i = 0; i < job->nmembers; i++) {
        if (kept == 0 || job->member[kept - 1].rank != job->member[i].rank) {
            job->member[kept++] = job->member[i];
        }
    }
    job->nmembers = kept;
    sort_hosts(job);
    if (job->nedges > 0) {
        qsort(job->edge, (size_t)job->nedges, sizeof *job->edge, compare_edges);
    }
    sort_rings(job);
}

/* ---- questions ---- */

const struct kolo_job_branch *kolo_job_find_branch(const struct kolo_job *job, int channel,
                                                   int rank)
{
    const struct kolo_job_branch key = {.channel = channel, .rank = rank};
    return job->nbranches == 0 ? NULL
                               : bsearch(&key, job->branch, (size_t)job->nbranches,
                                         sizeof *job->branch, compare_branches);
}

const struct kolo_job_ring *kolo_job_find_ring(const struct kolo_job *job, int channel)
{
    for (int i = 0; i < job->nrings; i++) {
        if (job->ring[i].channel == channel) {
            return &job->ring[i];
        }
    }
    return NULL;
}

bool kolo_ring_same(const struct kolo_job_ring *a, const struct kolo_job_ring *b)
{
    int shift = 0;
    if (a->count != b->count) {
        return false;
    }
    while (shift < b->count && b->rank[shift] != a->rank[0]) {
        shift++;
    }
    if (shift > 0 && (a->from == KOLO_RING_CUT || b->from == KOLO_RING_CUT)) {
        return false; /* a cut ring does not come round */
    }
    for (int i = 0; i < a->count; i++) {
        if (a->rank[i] != b->rank[(i + shift) % b->count]) {
            return false;
        }
    }
    return true;
}

int kolo_job_host_of(const struct kolo_job *job, int rank)
{
    int low = 0, high = job->nmembers;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (job->member[middle].rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < job->nmembers && job->member[low].rank == rank ? job->member[low].host : -1;
}

enum kolo_job_carrier kolo_carrier_of(const char *via)
{
    if (strstr(via, "NVLink") != NULL || strstr(via, "xgmi") != NULL) {
        return KOLO_CARRIER_NVLINK;
    }
    if (strncmp(via, "P2P", 3) == 0) {
        return KOLO_CARRIER_P2P;
    }
    if (strncmp(via, "SHM", 3) == 0 || strstr(via, "shared memory") != NULL) {
        return KOLO_CARRIER_SHM;
    }
    if (strncmp(via, "NET/Socket", 10) == 0 || strncmp(via, "NET/TCP", 7) == 0) {
        return KOLO_CARRIER_TCP;
    }
    if (strncmp(via, "NET", 3) == 0 || strncmp(via, "COLLNET", 7) == 0) {
        return strstr(via, "GDRDMA") != NULL ? KOLO_CARRIER_NET_DIRECT : KOLO_CARRIER_NET;
    }
    return KOLO_CARRIER_OTHER;
}

/* The first edge from -> to in the sorted list; nedges: none. */
static int first_edge(const struct kolo_job *job, int from, int to)
{
    int low = 0, high = job->nedges;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const struct kolo_job_edge *e = &job->edge[middle];
        if (e->from < from || (e->from == from && e->to < to)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int kolo_job_via_of(const struct kolo_job *job, int channel, int from, int to)
{
    for (int i = first_edge(job, from, to); i < job->nedges; i++) {
        const struct kolo_job_edge *e = &job->edge[i];
        if (e->from != from || e->to != to) {
            break;
        }
        if (channel < 0 || e->channel == channel) {
            return e->via;
        }
    }
    return -1;
}

int kolo_job_trees(const struct kolo_job *job)
{
    return job->nbranches > 0 ? job->branch[job->nbranches - 1].channel + 1 : 0;
}

int kolo_job_depth(const struct kolo_job *job, int channel)
{
    int deepest = -1, of_channel = 0;
    for (int i = 0; i < job->nbranches; i++) {
        of_channel += job->branch[i].channel == channel;
    }
    for (int i = 0; i < job->nbranches; i++) {
        int depth = 0;
        const struct kolo_job_branch *b = &job->branch[i];
        if (b->channel != channel) {
            continue;
        }
        while (b != NULL && b->up >= 0 && depth <= of_channel) {
            b = kolo_job_find_branch(job, channel, b->up);
            depth++;
        }
        if (b != NULL && depth <= of_channel) {
            deepest = depth > deepest ? depth : deepest;
        }
    }
    return deepest;
}
