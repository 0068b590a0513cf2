// SPDX-License-Identifier: Apache-2.0
/* Memory that ranks can map, memory of devices, and registered ranges. */
#include "core/comm.h"
#include "core/path.h"
#include "memory/lasting.h"
#include "memory/segment.h"

#include <stdlib.h>
#include <string.h>

static _Atomic unsigned allocs, frees;

unsigned kolo_mem_allocs(void)
{
    return atomic_load_explicit(&allocs, memory_order_relaxed);
}

unsigned kolo_mem_frees(void)
{
    return atomic_load_explicit(&frees, memory_order_relaxed);
}

kolo_status kolo_mem_alloc(size_t bytes, void **out)
{
    KOLO_UNCANCELLED;
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    KOLO_TRY(kolo_segment_alloc(bytes, out));
    kolo_lasting_add(*out, bytes);
    atomic_fetch_add_explicit(&allocs, 1, memory_order_relaxed);
    return KOLO_OK;
}

kolo_status kolo_mem_alloc_on(int device, size_t bytes, void **out)
{
    KOLO_UNCANCELLED;
    const struct kolo_path_ops *ops = NULL;
    if (device == KOLO_HOST || out == NULL) {
        return kolo_mem_alloc(bytes, out);
    }
    if (device < 0 || bytes == 0) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "device is %d and bytes is %zu; they must be a CUDA ordinal and 1 at least", device,
            bytes);
    }
    KOLO_TRY(kolo_path_find(device, &ops));
    return ops->alloc(device, bytes, out);
}

static bool free_on_device(void *ptr)
{
    bool freed = false;
    for (int i = 0; kolo_paths[i] != NULL && !freed; i++) {
        freed = kolo_paths[i]->free(ptr);
    }
    return freed;
}

void kolo_mem_free(void *ptr)
{
    KOLO_UNCANCELLED;
    if (ptr != NULL && !free_on_device(ptr)) {
        atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
        kolo_lasting_remove(ptr);
        kolo_segment_free(ptr);
    }
}

/* Whoever maps it, and may be in the middle of writing to it. */
static bool has_writers(const struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        if (m->maps && m->peer.process != c->member[c->ranks.rank].peer.process && !m->lost) {
            return true;
        }
    }
    return false;
}

void kolo_mem_take_back(struct kolo_comm *c, void *out, size_t bytes)
{
    uint32_t id = 0;
    uint64_t offset = 0;
    if (out == NULL || bytes == 0 || !has_writers(c) ||
        !kolo_segment_find(out, bytes, &id, &offset)) {
        return;
    }
    atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed); /* what is cached of it is void */
    kolo_lasting_forget(out, bytes);
    if (kolo_segment_part(out, bytes) != KOLO_OK) {
        KOLO_LOG(WARN, COLL,
                 "comm %p rank %d: ranks that come late may still write to %zu bytes at %p",
                 (void *)c, c->ranks.rank, bytes, out);
    }
}

/* ---- registration ---- */

struct range {
    struct range *next;
    char *ptr;
    size_t bytes;
    bool lasts; /* it is private, and devices that read and write it keep its registration */
};
static struct range *ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

/* Ranks that are threads read each other's memory as it is, and memory of kolo_mem_alloc() can be
 * mapped already: there is nothing to do for either. Other private memory cannot be shared, but
 * network devices may read and write it. */
kolo_status kolo_mem_register(void *ptr, size_t bytes)
{
    KOLO_UNCANCELLED;
    uint32_t id = 0;
    uint64_t offset = 0;
    if (ptr == NULL || bytes == 0) {
        return kolo_fail(KOLO_ERR_INVALID, ptr == NULL ? "ptr is NULL" : "bytes is 0");
    }
    const bool shared = kolo_segment_find(ptr, bytes, &id, &offset);
    if (!shared && kolo_lasting_keepers(0) == 0) {
        return kolo_fail(
            KOLO_ERR_UNSUPPORTED,
            "%zu bytes at %p are private to this process: ranks that are its threads use them "
            "as they are, other processes cannot map them; kolo_mem_alloc() gives memory that "
            "they can",
            bytes, ptr);
    }
    struct range *r = malloc(sizeof *r);
    if (r == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a registration");
    }
    pthread_mutex_lock(&ranges_lock);
    *r = (struct range){ranges, ptr, bytes, !shared};
    ranges = r;
    pthread_mutex_unlock(&ranges_lock);
    if (!shared) {
        kolo_lasting_add(ptr, bytes);
    }
    return KOLO_OK;
}

kolo_status kolo_mem_unregister(void *ptr)
{
    KOLO_UNCANCELLED;
    struct range *found = NULL;
    pthread_mutex_lock(&ranges_lock);
    for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
        if ((*at)->ptr == ptr) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&ranges_lock);
    if (found == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "ptr is %p, which is not registered", ptr);
    }
    if (found->lasts) {
        kolo_lasting_remove(ptr);
    }
    free(found);
    return KOLO_OK;
}
