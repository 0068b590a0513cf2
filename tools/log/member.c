// SPDX-License-Identifier: Apache-2.0
/* Finds the member that says a line.
 *
 * A line with a communicator's pointer names it. The other lines of a start come from the thread
 * that starts the communicator, so they belong to the last member that this thread spoke for,
 * unless they contradict it: they name another rank or a rank beyond its size, or say a thing
 * again. NCCL connects at the first call since 2.22, by a thread of its own. Those edges belong to
 * the member of the process that has the rank and is the likeliest, see is_likelier(). */
#include "tools/log/member.h"

#include "util/grow.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK = 4096 }; /* members of a process that are looked at */

/* ---- a hash table from three numbers to a number ---- */

struct entry {
    int key[3], value;
    bool used;
};

struct kolo_log_map {
    struct entry *entry;
    size_t cap, count;
};

static struct entry *slot_of(const struct kolo_log_map *map, const int key[3])
{
    size_t at = (size_t)kolo_hash(0, key, sizeof map->entry->key) & (map->cap - 1);
    while (map->entry[at].used && memcmp(map->entry[at].key, key, sizeof map->entry[at].key) != 0) {
        at = (at + 1) & (map->cap - 1);
    }
    return &map->entry[at];
}

static bool grow_map(struct kolo_log_map *map)
{
    struct kolo_log_map larger = {.cap = map->cap == 0 ? 64 : 2 * map->cap, .count = map->count};
    larger.entry = calloc(larger.cap, sizeof *larger.entry);
    for (size_t i = 0; i < map->cap && larger.entry != NULL; i++) {
        if (map->entry[i].used) {
            *slot_of(&larger, map->entry[i].key) = map->entry[i];
        }
    }
    if (larger.entry == NULL) {
        return false;
    }
    free(map->entry);
    *map = larger;
    return true;
}

/* The value of a key, -1 for a new one. NULL: no memory. It is valid until the next call. */
static int *value_of(struct kolo_log_map **map, int a, int b, int c)
{
    const int key[3] = {a, b, c};
    if (*map == NULL) {
        *map = calloc(1, sizeof **map);
    }
    if (*map == NULL || (2 * (*map)->count >= (*map)->cap && !grow_map(*map))) {
        return NULL;
    }
    struct entry *slot = slot_of(*map, key);
    if (!slot->used) {
        *slot = (struct entry){{a, b, c}, -1, true};
        (*map)->count++;
    }
    return &slot->value;
}

static void free_map(struct kolo_log_map *map)
{
    if (map != NULL) {
        free(map->entry);
        free(map);
    }
}

void kolo_log_members_free(struct kolo_log *log)
{
    free_map(log->threads);
    free_map(log->processes);
    free_map(log->names);
    free(log->member);
}

/* The index of a host's name; a new name is added. -1: no memory. */
static int find_host(struct kolo_log *log, const char *name)
{
    const uint64_t hash = kolo_hash(0, name, strlen(name));
    int *host = value_of(&log->names, (int)(uint32_t)hash, (int)(uint32_t)(hash >> 32), 0);
    if (host != NULL && *host >= 0 && strcmp(log->all.host[*host], name) == 0) {
        return *host;
    }
    const int added = kolo_job_host(&log->all, name);
    if (host != NULL && *host < 0) {
        *host = added;
    }
    return added;
}

/* ---- members ---- */

/* A ring's length is no more than a guess at the size: its line may be cut. */
static bool fits(const struct kolo_log_member *m, const struct kolo_log_hint *h)
{
    const int nranks = m->whole_ring ? 0 : m->nranks;
    return (h->rank < 0 || m->rank < 0 || h->rank == m->rank || h->other == m->rank) &&
           (h->nranks == 0 || nranks == 0 || h->nranks == nranks) &&
           (h->comm == 0 || m->comm == 0 || h->comm == m->comm) &&
           (h->id == 0 || m->id == 0 || h->id == m->id) && (nranks == 0 || h->most < nranks) &&
           (h->nranks == 0 || m->most < h->nranks);
}

/* Whether the member has said this before, so that the line is of another communicator. The same
 * line twice in a row is a copy. */
static bool has_said(const struct kolo_log_member *m, const struct kolo_log_hint *h)
{
    switch (h->about) {
    case KOLO_LOG_TREES:
        return m->trees != 0 && !(m->last == KOLO_LOG_TREES && m->trees == h->hash);
    case KOLO_LOG_RING:
        return h->channel < m->last_channel[KOLO_LOG_RING] ||
               (h->channel == m->last_channel[KOLO_LOG_RING] && m->last != KOLO_LOG_RING);
    case KOLO_LOG_PLACE:
    case KOLO_LOG_TREE:
        return h->channel < m->last_channel[h->about] ||
               (h->channel == m->last_channel[h->about] && m->complete);
    case KOLO_LOG_BEGIN:
        return m->began;
    case KOLO_LOG_END:
        return m->complete && m->last != KOLO_LOG_END;
    default:
        return false;
    }
}

static int add_member(struct kolo_log *log, const struct kolo_log_line *l, int host,
                      int *last_of_process)
{
    struct kolo_log_member *grown =
        kolo_grow(log->member, log->nmembers, &log->member_room, sizeof *log->member);
    if (grown == NULL) {
        return -1;
    }
    log->member = grown;
    log->member[log->nmembers] = (struct kolo_log_member){.host = host,
                                                          .pid = l->pid,
                                                          .tid = l->tid,
                                                          .rank = -1,
                                                          .most = -1,
                                                          .colour = -1,
                                                          .last = -1,
                                                          .last_channel = {-1, -1, -1},
                                                          .earlier = *last_of_process,
                                                          .line = log->lines,
                                                          .end = log->lines,
                                                          .stamp = log->lines,
                                                          .set = -1};
    *last_of_process = log->nmembers;
    return log->nmembers++;
}

static bool is_start(enum kolo_log_about about)
{
    return about != KOLO_LOG_EDGE && about != KOLO_LOG_GONE && about != KOLO_LOG_NAMED;
}

/* The member of the process, which begins at `last`, with the pointer of the hint. -1: none. */
static int find_named(const struct kolo_log *log, int last, const struct kolo_log_hint *h)
{
    int steps = 0;
    for (int i = last; i >= 0 && steps < LOOK_BACK; i = log->member[i].earlier, steps++) {
        const struct kolo_log_member *m = &log->member[i];
        if (m->comm == h->comm && fits(m, h)) {
            return (m->ended && is_start(h->about)) || has_said(m, h) ? -1 : i;
        }
    }
    return -1;
}

/* Whether `a` is likelier than `b` to connect now. The likeliest is the one that was called last;
 * then the first one that has not connected yet; then the one named last. */
static bool is_likelier(const struct kolo_log_member *a, const struct kolo_log_member *b)
{
    if ((a->rank >= 0) != (b->rank >= 0)) {
        return a->rank >= 0;
    }
    if (a->called != b->called) {
        return a->called > b->called;
    }
    if ((a->edges == 0) != (b->edges == 0)) {
        return a->edges == 0;
    }
    return a->edges == 0 ? a->line < b->line : a->stamp > b->stamp;
}

/* The member that says an edge, or a part of a start that another thread's line interrupted. */
static int find_unnamed(const struct kolo_log *log, int last, const struct kolo_log_line *l,
                        const struct kolo_log_hint *h)
{
    int best = -1, steps = 0;
    for (int i = last; i >= 0 && steps < LOOK_BACK; i = log->member[i].earlier, steps++) {
        const struct kolo_log_member *m = &log->member[i];
        if (m->ended || !fits(m, h) || has_said(m, h) ||
            (h->about != KOLO_LOG_EDGE && (m->tid != l->tid || m->complete || m->rank < 0))) {
            continue;
        }
        if (best < 0 || is_likelier(m, &log->member[best])) {
            best = i;
        }
    }
    return best;
}

static void note_hint(struct kolo_log_member *m, const struct kolo_log_hint *h, long line)
{
    if (h->comm != 0) {
        m->comm = h->comm;
        m->stamp = line;
    }
    m->called = h->about == KOLO_LOG_NAMED && m->complete ? line : m->called;
    m->edges += h->about == KOLO_LOG_EDGE;
    m->id = h->id != 0 ? h->id : m->id;
    m->rank = m->rank < 0 ? h->rank : m->rank;
    m->most = h->most > m->most ? h->most : m->most;
    m->most = m->rank > m->most ? m->rank : m->most;
    if (h->nranks > 0) {
        m->nranks = h->nranks;
        m->whole_ring = false;
    }
    if (h->about <= KOLO_LOG_TREE) {
        m->last_channel[h->about] = h->channel;
    }
    m->trees = h->about == KOLO_LOG_TREES ? h->hash : m->trees;
    m->began |= h->about == KOLO_LOG_BEGIN;
    m->complete |= h->about == KOLO_LOG_END;
    m->ended |= h->about == KOLO_LOG_GONE;
    m->last = (int)h->about;
    m->end = line;
}

kolo_status kolo_log_member_of(struct kolo_log *log, const struct kolo_log_line *l,
                               const struct kolo_log_hint *h, int *out)
{
    const int host = find_host(log, l->host);
    int *of_process = host >= 0 ? value_of(&log->processes, host, l->pid, 0) : NULL;
    int *of_thread = of_process != NULL ? value_of(&log->threads, host, l->pid, l->tid) : NULL;
    if (of_thread == NULL) {
        return kolo_log_fail_memory(log);
    }
    const int current = *of_thread;
    const struct kolo_log_member *m = current >= 0 ? &log->member[current] : NULL;
    int found = h->comm != 0 ? find_named(log, *of_process, h) : -1;
    const bool may_be_current = m != NULL && !m->ended && fits(m, h) && !has_said(m, h) &&
                                (h->comm == 0 || (m->comm == 0 && !m->complete));
    if (found < 0 && may_be_current) {
        found = current;
    }
    if (found < 0 && h->comm == 0) {
        found = find_unnamed(log, *of_process, l, h);
    }
    if (found < 0) {
        found = add_member(log, l, host, of_process);
    }
    if (found < 0) {
        return kolo_log_fail_memory(log);
    }
    *of_thread = found;
    note_hint(&log->member[found], h, log->lines);
    *out = found;
    return KOLO_OK;
}
