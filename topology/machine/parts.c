// SPDX-License-Identifier: Apache-2.0
/* The parts of a machine. A host counts the memory of its parts, so a hostile file cannot make them
 * larger than a limit, which grows with the size of the file. */
#include "topology/machine/parts.h"

#include "topology/machine/graph.h"

#include <stdlib.h>
#include <string.h>

struct kolo_host *kolo_parts_begin(const char *file, size_t limit)
{
    struct kolo_host *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return NULL;
    }
    host->limit = limit;
    host->file = file != NULL ? strdup(file) : NULL;
    host->cpus = hwloc_bitmap_alloc();
    if (host->cpus == NULL || (file != NULL && host->file == NULL)) {
        kolo_host_destroy(host);
        return NULL;
    }
    return host;
}

kolo_status kolo_parts_full(const struct kolo_host *host)
{
    return host->limit != 0 ? kolo_fail(KOLO_ERR_INVALID,
                                        "%s: describes more than a file of its size can: over %zu "
                                        "bytes, or %d objects",
                                        host->file, host->limit, KOLO_HOST_PARTS_MAX)
                            : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the topology");
}

bool kolo_parts_take(struct kolo_host *host, size_t bytes)
{
    if (host->limit != 0 && (bytes > host->limit || host->bytes > host->limit - bytes)) {
        return false;
    }
    host->bytes += bytes;
    return true;
}

/* realloc() may hold the old and the new list at once, so both count against the limit. */
static void *grow_list(struct kolo_host *host, void *array, int count, int *room, size_t each)
{
    if (count < *room) {
        return array;
    }
    const int more = *room < 16 ? 16 : *room + *room / 2;
    void *new =
        kolo_parts_take(host, (size_t)more * each) ? realloc(array, (size_t)more * each) : NULL;
    if (new != NULL) {
        host->bytes -= (size_t)*room * each;
        *room = more;
    }
    return new;
}

int kolo_parts_open(struct kolo_host *host, enum kolo_part_kind kind, int parent)
{
    void *grown =
        host->nparts < KOLO_HOST_PARTS_MAX
            ? grow_list(host, host->part, host->nparts, &host->part_room, sizeof *host->part)
            : NULL;
    if (grown == NULL) {
        return -1;
    }
    host->part = grown;
    host->part[host->nparts] = (struct kolo_part){
        .kind = kind, .parent = parent, .index = -1, .number = -1, .bus = KOLO_BUS_NONE};
    return host->nparts++;
}

void kolo_parts_close(struct kolo_host *host, int part)
{
    struct kolo_part *p = &host->part[part];
    p->end = host->nparts;
    p->pus += p->kind == KOLO_PART_PU;
    if (p->parent >= 0) {
        host->part[p->parent].pus += p->pus;
    }
}

bool kolo_parts_text(struct kolo_host *host, char **where, const char *text)
{
    if (text == NULL || *where != NULL) {
        return true;
    }
    *where = kolo_parts_take(host, strlen(text) + 1) ? strdup(text) : NULL;
    return *where != NULL;
}

bool kolo_parts_rate(struct kolo_host *host, int from, int to, uint64_t mbs)
{
    void *grown = grow_list(host, host->rate, host->nrates, &host->rate_room, sizeof *host->rate);
    if (grown == NULL) {
        return false;
    }
    host->rate = grown;
    host->rate[host->nrates++] = (struct kolo_part_rate){from, to, mbs};
    return true;
}

static int by_os(const void *a, const void *b)
{
    const struct kolo_pu *x = a, *y = b;
    return x->os - y->os;
}

static const char *name_of(const struct kolo_host *host)
{
    return host->file != NULL ? host->file : "this machine";
}

static kolo_status sort_pus(struct kolo_host *host)
{
    const int count = host->count[KOLO_PART_PU];
    if (count == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "%s tells of no PU", name_of(host));
    }
    host->pu = kolo_parts_take(host, (size_t)count * sizeof *host->pu)
                   ? malloc((size_t)count * sizeof *host->pu)
                   : NULL;
    if (host->pu == NULL) {
        return kolo_parts_full(host);
    }
    for (int i = -1, k = 0; (i = kolo_parts_next(host, KOLO_PART_PU, i)) >= 0; k++) {
        host->pu[k] = (struct kolo_pu){host->part[i].number, i};
    }
    qsort(host->pu, (size_t)count, sizeof *host->pu, by_os);
    for (int i = 0; i < count; i++) {
        if (i > 0 && host->pu[i].os == host->pu[i - 1].os) {
            return kolo_fail(KOLO_ERR_INVALID, "%s tells of two PUs of OS index %d", name_of(host),
                             host->pu[i].os);
        }
        if (hwloc_bitmap_set(host->cpus, (unsigned)host->pu[i].os) != 0) {
            return kolo_parts_full(host);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_parts_end(struct kolo_host *host)
{
    for (int i = 0; i < host->nparts; i++) {
        struct kolo_part *p = &host->part[i];
        const bool holds = p->kind == KOLO_PART_NUMA || p->kind >= KOLO_PART_OTHER || p->pus > 0;
        p->index = holds ? host->count[p->kind]++ : -1;
    }
    KOLO_TRY(sort_pus(host));
    for (int i = -1; (i = kolo_parts_next(host, KOLO_PART_NUMA, i)) >= 0;) {
        hwloc_bitmap_t cpus = host->part[i].cpus;
        if (hwloc_bitmap_and(cpus, cpus, host->cpus) != 0) {
            return kolo_parts_full(host);
        }
    }
    return KOLO_OK;
}

int kolo_parts_next(const struct kolo_host *host, enum kolo_part_kind kind, int after)
{
    for (int i = after + 1; i < host->nparts; i++) {
        if (host->part[i].kind == kind && host->part[i].index >= 0) {
            return i;
        }
    }
    return -1;
}

int kolo_parts_above(const struct kolo_host *host, int part, enum kolo_part_kind kind)
{
    int up = host->part[part].parent;
    while (up >= 0 && host->part[up].kind != kind) {
        up = host->part[up].parent;
    }
    return up;
}

int kolo_parts_inside(const struct kolo_host *host, int part, enum kolo_part_kind kind)
{
    int count = 0;
    for (int i = part + 1; i < host->part[part].end; i++) {
        count += host->part[i].kind == kind && host->part[i].index >= 0;
    }
    return count;
}

hwloc_bitmap_t kolo_parts_cpus(const struct kolo_host *host, int part)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    for (int i = part; cpus != NULL && i < host->part[part].end; i++) {
        if (host->part[i].kind == KOLO_PART_PU &&
            hwloc_bitmap_set(cpus, (unsigned)host->part[i].number) != 0) {
            hwloc_bitmap_free(cpus);
            return NULL;
        }
    }
    return cpus;
}

int kolo_parts_pu(const struct kolo_host *host, int os)
{
    const struct kolo_pu key = {os, -1};
    const struct kolo_pu *found =
        bsearch(&key, host->pu, (size_t)host->count[KOLO_PART_PU], sizeof key, by_os);
    return found != NULL ? found->part : -1;
}
