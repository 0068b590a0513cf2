// SPDX-License-Identifier: Apache-2.0
/* The store of shareable memory: an array of segments sorted by address, under one mutex.
 *
 * A slab is cut into pages of 4096 bytes. runs[p] is the length of the run that begins at page p.
 * It is 0 if page p is free or inside a run. Only pages in runs are reserved. Freeing a run punches
 * its pages out, so that a slab costs only the memory in use.
 *
 * Long parts are populated through the mapping first, because only page faults give a memfd huge
 * pages; see madvise(2), MADV_POPULATE_WRITE. */
#include "memory/segment.h"

#include "memory/memfd.h"
#include "util/descriptor.h"
#include "util/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE_BYTES = 4096, SLAB_PAGES = KOLO_SEGMENT_SLAB / PAGE_BYTES };

struct parted { /* pages that are private now */
    struct parted *next;
    size_t at, len;
};

struct kolo_segment {
    uint32_t id;
    struct kolo_own_fd file;
    bool whole; /* all pages are reserved */
    int holds;  /* by its creator or its live runs, and by links that attached it */
    char *base;
    size_t len;
    uint16_t *runs; /* [SLAB_PAGES] of a slab, else NULL */
    struct parted *parted;
};

static struct {
    pthread_mutex_t lock;
    struct kolo_segment **at; /* sorted by base */
    int count, cap;
    uint32_t last_id;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- fork: the child must neither find a locked mutex nor keep the parent's memory alive ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&store.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&store.lock);
}

static void after_fork_child(void)
{
    for (int i = 0; i < store.count; i++) {
        kolo_own_fd_close(&store.at[i]->file);
    }
    store.count = 0; /* the structures stay: a handle of the parent may point at them */
    pthread_mutex_unlock(&store.lock); /* the only thread of the child locked it */
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- one segment ---- */

/* Under the lock. The place of the last segment whose base is at or below `ptr`, or -1. */
static int place_of(const char *ptr)
{
    int lo = 0;
    int hi = store.count;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (store.at[mid]->base <= ptr) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo - 1;
}

/* Under the lock. That segment, and how far behind its base `ptr` is; NULL: there is none. */
static struct kolo_segment *segment_at(const void *ptr, size_t *at)
{
    const int place = place_of(ptr);
    *at = place >= 0 ? (size_t)((const char *)ptr - store.at[place]->base) : 0;
    return place >= 0 ? store.at[place] : NULL;
}

/* Under the lock. */
static bool insert_segment(struct kolo_segment *segment)
{
    struct kolo_segment **at = kolo_grow(store.at, store.count, &store.cap, sizeof *at);
    if (at == NULL) {
        return false;
    }
    store.at = at;
    const int place = place_of(segment->base) + 1;
    memmove(store.at + place + 1, store.at + place,
            (size_t)(store.count - place) * sizeof *store.at);
    store.at[place] = segment;
    store.count++;
    segment->id = ++store.last_id;
    return true;
}

static void destroy_segment(struct kolo_segment *segment)
{
    munmap(segment->base, segment->len);
    kolo_own_fd_close(&segment->file);
    for (struct parted *p = segment->parted, *next; p != NULL; p = next) {
        next = p->next;
        free(p);
    }
    free(segment->runs);
    free(segment);
}

static kolo_status create_segment(size_t len, struct kolo_segment **out)
{
    pthread_once(&fork_once, watch_forks);
    struct kolo_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a segment");
    }
    int fd = -1;
    const kolo_status status = kolo_memfd_open(len, &fd);
    if (status < 0) {
        free(segment);
        return status;
    }
    void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        const kolo_status failed = kolo_fail(
            KOLO_ERR_SYSTEM, "shared memory: mapping %zu bytes: %s", len, strerror(errno));
        close(fd);
        free(segment);
        return failed;
    }
    segment->file = kolo_own_fd(fd);
    segment->base = base;
    segment->len = len;
    segment->holds = 1;
    *out = segment;
    return KOLO_OK;
}

/* Under the lock. Add `segment` to the store, or destroy it. */
static kolo_status publish_segment(struct kolo_segment *segment)
{
    if (!insert_segment(segment)) {
        destroy_segment(segment);
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a segment");
    }
    return KOLO_OK;
}

static kolo_status hand_out(struct kolo_segment *segment, struct kolo_segment **out)
{
    pthread_mutex_lock(&store.lock);
    const kolo_status status = publish_segment(segment);
    pthread_mutex_unlock(&store.lock);
    *out = status == KOLO_OK ? segment : *out;
    return status;
}

kolo_status kolo_segment_create(size_t len, struct kolo_segment **out)
{
    struct kolo_segment *segment = NULL;
    KOLO_TRY(create_segment(kolo_round_up(len, PAGE_BYTES), &segment));
    return hand_out(segment, out);
}

kolo_status kolo_segment_reserve(struct kolo_segment *segment, size_t at, size_t len)
{
    if (len >= KOLO_SEGMENT_BIG) {
        (void)madvise(segment->base + at, len, MADV_HUGEPAGE);
        /* Failure is no error: the reservation below decides whether there is memory. */
        (void)madvise(segment->base + at, len, MADV_POPULATE_WRITE);
    }
    return kolo_own_fd_is(&segment->file)
               ? kolo_memfd_reserve(segment->file.fd, at, len)
               : kolo_fail(KOLO_ERR_SYSTEM,
                           "shared memory: reserving %zu bytes: the program has closed the "
                           "descriptor of this memory",
                           len);
}

uint32_t kolo_segment_id(const struct kolo_segment *segment)
{
    return segment->id;
}

void *kolo_segment_base(const struct kolo_segment *segment)
{
    return segment->base;
}

const struct kolo_own_fd *kolo_segment_file(const struct kolo_segment *segment)
{
    return &segment->file;
}

/* Under the lock. */
static struct kolo_segment *by_id(uint32_t id)
{
    for (int i = 0; i < store.count; i++) {
        if (store.at[i]->id == id) {
            return store.at[i];
        }
    }
    return NULL;
}

struct kolo_segment *kolo_segment_hold(uint32_t id, size_t *len)
{
    pthread_mutex_lock(&store.lock);
    struct kolo_segment *segment = by_id(id);
    if (segment != NULL) {
        segment->holds++;
        *len = segment->len;
    }
    pthread_mutex_unlock(&store.lock);
    return segment;
}

/* Under the lock. */
static void drop_hold(struct kolo_segment *segment)
{
    if (--segment->holds > 0) {
        return;
    }
    const int place = place_of(segment->base);
    /* In a forked child the store does not know the parent's segments. */
    if (place >= 0 && store.at[place] == segment) {
        store.count--;
        memmove(store.at + place, store.at + place + 1,
                (size_t)(store.count - place) * sizeof *store.at);
        destroy_segment(segment);
    }
}

void kolo_segment_drop(struct kolo_segment *segment)
{
    pthread_mutex_lock(&store.lock);
    drop_hold(segment);
    pthread_mutex_unlock(&store.lock);
}

int kolo_segment_descriptor(uint32_t id, uint64_t *len)
{
    pthread_mutex_lock(&store.lock);
    const struct kolo_segment *segment = by_id(id);
    const bool there = segment != NULL && kolo_own_fd_is(&segment->file);
    errno = ENOENT;
    const int fd = there ? fcntl(segment->file.fd, F_DUPFD_CLOEXEC, 3) : -1;
    *len = fd >= 0 ? segment->len : *len;
    pthread_mutex_unlock(&store.lock);
    return fd;
}

int kolo_segment_count(void)
{
    pthread_mutex_lock(&store.lock);
    const int count = store.count;
    pthread_mutex_unlock(&store.lock);
    return count;
}

static bool is_parted(const struct kolo_segment *segment, size_t at, size_t len)
{
    const struct parted *p = segment->parted;
    while (p != NULL && (at >= p->at + p->len || at + len <= p->at)) {
        p = p->next;
    }
    return p != NULL;
}

/* Under the lock. Private pages replace the shared ones in one step. */
static kolo_status part_pages(struct kolo_segment *segment, size_t at, size_t len)
{
    struct parted *p = malloc(sizeof *p);
    void *own = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == NULL || own == MAP_FAILED) {
        free(p);
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a copy of %zu bytes",
                         len);
    }
    memcpy(own, segment->base + at, len);
    if (mremap(own, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, segment->base + at) == MAP_FAILED) {
        const int error = errno;
        munmap(own, len);
        free(p);
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: moving %zu bytes: %s", len,
                         strerror(error));
    }
    *p = (struct parted){segment->parted, at, len};
    segment->parted = p;
    return KOLO_OK;
}

kolo_status kolo_segment_part(void *ptr, size_t len)
{
    kolo_status status = KOLO_OK;
    size_t from = 0;
    pthread_mutex_lock(&store.lock);
    struct kolo_segment *segment = segment_at(ptr, &from);
    if (segment != NULL && len > 0 && from < segment->len) {
        const size_t end = kolo_min(kolo_round_up(from + len, PAGE_BYTES), segment->len);
        const size_t at = from / PAGE_BYTES * PAGE_BYTES;
        status = part_pages(segment, at, end - at); /* a repetition on private pages does no harm */
    }
    pthread_mutex_unlock(&store.lock);
    return status;
}

bool kolo_segment_find(const void *ptr, size_t len, uint32_t *id, uint64_t *offset)
{
    size_t at = 0;
    pthread_mutex_lock(&store.lock);
    const struct kolo_segment *segment = segment_at(ptr, &at);
    const bool found = segment != NULL && at < segment->len && len <= segment->len - at &&
                       !is_parted(segment, at, len);
    if (found) {
        *id = segment->id;
        *offset = at;
    }
    pthread_mutex_unlock(&store.lock);
    return found;
}

kolo_status kolo_segment_reserve_at(const void *ptr, size_t len)
{
    kolo_status status = KOLO_OK;
    size_t at = 0;
    pthread_mutex_lock(&store.lock);
    struct kolo_segment *segment = segment_at(ptr, &at);
    const bool parts = segment != NULL && segment->runs == NULL && !segment->whole;
    if (parts && at < segment->len && len <= segment->len - at) {
        status = kolo_segment_reserve(segment, at, len);
    }
    pthread_mutex_unlock(&store.lock);
    return status;
}

/* ---- allocation ---- */

kolo_status kolo_segment_create_whole(size_t len, struct kolo_segment **out)
{
    struct kolo_segment *segment = NULL;
    KOLO_TRY(kolo_memfd_check(len));
    KOLO_TRY(create_segment(kolo_round_up(len, PAGE_BYTES), &segment));
    const kolo_status status = kolo_segment_reserve(segment, 0, segment->len);
    if (status < 0) {
        destroy_segment(segment);
        return status;
    }
    segment->whole = true;
    return hand_out(segment, out);
}

/* The first page of a run of `pages` free pages, or -1. */
static int free_run(const struct kolo_segment *slab, int pages)
{
    int run = 0;
    for (int page = 0; page < SLAB_PAGES;) {
        if (slab->runs[page] != 0) {
            page += slab->runs[page];
            run = 0;
        } else {
            page++;
            run++;
            if (run == pages) {
                return page - pages;
            }
        }
    }
    return -1;
}

/* Under the lock. A new slab without runs, which has no hold yet. */
static kolo_status create_slab(struct kolo_segment **out)
{
    struct kolo_segment *slab = NULL;
    KOLO_TRY(create_segment(KOLO_SEGMENT_SLAB, &slab));
    slab->holds = 0;
    slab->runs = calloc(SLAB_PAGES, sizeof *slab->runs);
    if (slab->runs == NULL) {
        destroy_segment(slab);
        return kolo_fail(KOLO_ERR_SYSTEM, "shared memory: out of memory for a segment");
    }
    KOLO_TRY(publish_segment(slab));
    *out = slab;
    return KOLO_OK;
}

/* Under the lock. */
static kolo_status alloc_small(size_t bytes, void **out)
{
    const int pages = (int)(kolo_round_up(bytes, PAGE_BYTES) / PAGE_BYTES);
    struct kolo_segment *slab = NULL;
    int page = -1;
    for (int i = 0; i < store.count && page < 0; i++) {
        slab = store.at[i];
        const bool grows = slab->runs != NULL && kolo_own_fd_is(&slab->file);
        page = grows ? free_run(slab, pages) : -1;
    }
    if (page < 0) {
        KOLO_TRY(create_slab(&slab));
        page = 0;
    }
    const size_t at = (size_t)page * PAGE_BYTES;
    slab->holds++;
    const kolo_status status = kolo_segment_reserve(slab, at, (size_t)pages * PAGE_BYTES);
    if (status < 0) {
        drop_hold(slab);
        return status;
    }
    slab->runs[page] = (uint16_t)pages;
    *out = slab->base + at;
    return KOLO_OK;
}

kolo_status kolo_segment_alloc(size_t bytes, void **out)
{
    if (bytes == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "shared memory: 0 bytes were asked for");
    }
    if (bytes >= KOLO_SEGMENT_BIG) {
        struct kolo_segment *segment = NULL;
        KOLO_TRY(kolo_segment_create_whole(bytes, &segment));
        *out = segment->base;
        return KOLO_OK;
    }
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&store.lock);
    const kolo_status status = alloc_small(bytes, out);
    pthread_mutex_unlock(&store.lock);
    return status;
}

/* Under the lock. End the run, or find the big segment, that begins at `ptr`.
 *
 * *bytes gets its length (0: there is none), *out its segment. Returns its offset there. */
static size_t whole_run(const void *ptr, struct kolo_segment **out, size_t *bytes)
{
    size_t at = 0;
    struct kolo_segment *segment = segment_at(ptr, &at);
    if (segment == NULL) {
        return 0;
    }
    *out = segment;
    if (segment->runs == NULL) {
        *bytes = at == 0 ? segment->len : 0;
    } else if (at < segment->len && at % PAGE_BYTES == 0) {
        *bytes = (size_t)segment->runs[at / PAGE_BYTES] * PAGE_BYTES;
        if (!is_parted(segment, at, *bytes)) { /* else a peer may still write to the old pages */
            segment->runs[at / PAGE_BYTES] = 0;
        }
    }
    return at;
}

void kolo_segment_free(void *ptr)
{
    if (ptr == NULL) {
        return;
    }
    pthread_mutex_lock(&store.lock);
    size_t bytes = 0;
    struct kolo_segment *segment = NULL;
    const size_t at = whole_run(ptr, &segment, &bytes);
    if (bytes > 0) {
        if (kolo_own_fd_is(&segment->file)) {
            kolo_memfd_release(segment->file.fd, at, bytes);
        }
        drop_hold(segment);
    }
    pthread_mutex_unlock(&store.lock);
    if (bytes == 0) {
        KOLO_LOG(WARN, SHM, "kolo_mem_free(%p): not memory of kolo_mem_alloc(), ignored", ptr);
    }
}
