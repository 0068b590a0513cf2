// SPDX-License-Identifier: Apache-2.0
/* The pools of the process, one for each GPU that has communicators. */
#include "gpu/context/pool.h"

#include "gpu/context/gpu.h"
#include "gpu/ipc/mapping.h"

#include <pthread.h>
#include <stdlib.h>

static struct kolo_gpu_pool *pools;
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of members */

#define CHECK(pool, name, call) kolo_cuda_check((pool)->cuda, (pool)->cuda->call, name)

/* ---- joining and leaving ---- */

static kolo_status make_streams(struct kolo_gpu_pool *p)
{
    enum { HIGHEST = -100 }; /* the driver takes the highest that there is */
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        KOLO_TRY(
            CHECK(p, "cuStreamCreateWithPriority",
                  stream_create_with_priority(&p->stream[way], KOLO_CUDA_NON_BLOCKING, HIGHEST)));
    }
    return KOLO_OK;
}

static void give_back(struct kolo_gpu_pool *p)
{
    kolo_ipc_mappings_close(p);
    kolo_gpu_kernels_free(p);
    while (p->spare != NULL) {
        struct kolo_gpu_block *m = p->spare;
        p->spare = m->next;
        (void)(m->kind == KOLO_GPU_PINNED ? p->cuda->mem_free_host(m->host)
                                          : p->cuda->mem_free(m->at));
        free(m);
    }
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        if (p->stream[way] != NULL) {
            (void)p->cuda->stream_destroy(p->stream[way]);
        }
    }
}

static void pool_free(struct kolo_gpu_pool *p)
{
    kolo_cuda_context popped = NULL;
    if (p->context != NULL) {
        if (p->cuda->ctx_push_current(p->context) == KOLO_CUDA_OK) {
            give_back(p);
            (void)p->cuda->ctx_pop_current(&popped);
        }
        (void)p->cuda->device_primary_ctx_release(p->device);
    }
    free(p);
}

static kolo_status pool_new(const struct kolo_cuda *cuda, int device, struct kolo_gpu_pool **out)
{
    kolo_cuda_context popped = NULL;
    struct kolo_gpu_pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a GPU");
    }
    p->cuda = cuda;
    p->device = device;
    kolo_status st =
        CHECK(p, "cuDevicePrimaryCtxRetain", device_primary_ctx_retain(&p->context, device));
    st = st == KOLO_OK ? CHECK(p, "cuCtxPushCurrent", ctx_push_current(p->context)) : st;
    if (st == KOLO_OK) {
        st = make_streams(p);
        (void)cuda->ctx_pop_current(&popped);
    }
    if (st != KOLO_OK) {
        pool_free(p);
        return st;
    }
    *out = p;
    return KOLO_OK;
}

static kolo_status join_locked(const struct kolo_cuda *cuda, int device, struct kolo_gpu_pool **out)
{
    struct kolo_gpu_pool *p = pools;
    while (p != NULL && p->device != device) {
        p = p->next;
    }
    if (p == NULL) {
        KOLO_TRY(pool_new(cuda, device, &p));
        p->next = pools;
        pools = p;
    }
    p->users++;
    *out = p;
    return KOLO_OK;
}

kolo_status kolo_gpu_pool_join(const struct kolo_cuda *cuda, int device, struct kolo_gpu_pool **out)
{
    pthread_mutex_lock(&pools_lock);
    const kolo_status st = join_locked(cuda, device, out);
    pthread_mutex_unlock(&pools_lock);
    return st;
}

void kolo_gpu_pool_leave(struct kolo_gpu_pool *p)
{
    pthread_mutex_lock(&pools_lock);
    const bool last = --p->users == 0;
    for (struct kolo_gpu_pool **at = &pools; last && *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    pthread_mutex_unlock(&pools_lock);
    if (last) {
        pool_free(p);
    }
}

/* ---- memory ---- */

static struct kolo_gpu_block *take_spare(struct kolo_gpu_pool *p, enum kolo_gpu_kind kind,
                                         size_t bytes)
{
    struct kolo_gpu_block *found = NULL;
    pthread_mutex_lock(&pools_lock);
    for (struct kolo_gpu_block **at = &p->spare; *at != NULL; at = &(*at)->next) {
        if ((*at)->kind == kind && (*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&pools_lock);
    return found;
}

static kolo_status make_memory(const struct kolo_gpu_pool *p, struct kolo_gpu_block *m)
{
    enum { PORTABLE = 1, DEVICEMAP = 2 };
    if (m->kind == KOLO_GPU_MEMORY) {
        return CHECK(p, "cuMemAlloc", mem_alloc(&m->at, m->bytes));
    }
    KOLO_TRY(CHECK(p, "cuMemHostAlloc", mem_host_alloc(&m->host, m->bytes, PORTABLE | DEVICEMAP)));
    const kolo_status st =
        CHECK(p, "cuMemHostGetDevicePointer", mem_host_get_device_pointer(&m->at, m->host, 0));
    if (st != KOLO_OK) {
        (void)p->cuda->mem_free_host(m->host);
    }
    return st;
}

kolo_status kolo_gpu_pool_take(struct kolo_gpu_pool *p, enum kolo_gpu_kind kind, size_t bytes,
                               struct kolo_gpu_block **out)
{
    struct kolo_gpu_block *m = take_spare(p, kind, bytes);
    if (m == NULL) {
        m = calloc(1, sizeof *m);
        if (m == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for memory of a GPU");
        }
        m->kind = kind;
        m->bytes = bytes;
        const kolo_status st = make_memory(p, m);
        if (st != KOLO_OK) {
            free(m);
            return st;
        }
    }
    *out = m;
    return KOLO_OK;
}

void kolo_gpu_pool_give(struct kolo_gpu_pool *p, struct kolo_gpu_block *memory)
{
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&pools_lock);
    memory->next = p->spare;
    p->spare = memory;
    pthread_mutex_unlock(&pools_lock);
}
