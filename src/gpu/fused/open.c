// SPDX-License-Identifier: Apache-2.0
/* Joining and leaving a fused path, and releasing the streams that wait. */
#include "gpu/context/deadline.h"
#include "gpu/context/pending.h"
#include "gpu/fused/inner.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct kolo_fused_path *paths;
static pthread_mutex_t paths_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of members */

static void nap(void)
{
    const struct timespec time = {0, 100 * 1000};
    nanosleep(&time, NULL);
}

/* ---- abort ---- */

/* Set all flags once. A stream that waited writes 0 to its flag when it goes on, and may wait again
 * for its next call. So this is repeated until no rank is left. `aborted` is set first, so that no
 * kernel runs on the addresses of an earlier call. The CPU sets them: the driver may let nobody
 * pass until these very streams have gone on. */
static void release_once(struct kolo_fused_path *path)
{
    struct kolo_fused_table *table = path->memory->host;
    __atomic_store_n(&table->aborted, 1, __ATOMIC_RELEASE);
    for (int q = 0; q < path->nranks; q++) {
        __atomic_store_n(&table->rank[q].arrived, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&table->rank[q].done, 1, __ATOMIC_RELEASE);
    }
    kolo_gpu_p2p_release(path->p2p);
}

static void *run_releaser(void *arg)
{
    struct kolo_fused_path *path = arg;
    for (bool stop = false; !stop;) {
        release_once(path);
        nap();
        pthread_mutex_lock(&path->lock);
        stop = path->stop;
        pthread_mutex_unlock(&path->lock);
    }
    return NULL;
}

void kolo_fused_path_abort(struct kolo_fused_path *path)
{
    pthread_mutex_lock(&path->lock);
    if (!path->aborted) {
        path->aborted = true;
        path->releasing = pthread_create(&path->releaser, NULL, run_releaser, path) == 0;
        if (!path->releasing) {
            release_once(path);
        }
        pthread_cond_broadcast(&path->meeting.ended);
    }
    pthread_mutex_unlock(&path->lock);
}

/* ---- joining and leaving ---- */

static kolo_status make_parts(struct kolo_fused_path *path)
{
    const size_t table = sizeof(struct kolo_fused_table), bytes = table + kolo_gpu_p2p_bytes();
    KOLO_TRY(kolo_gpu_load(&path->gpu));
    KOLO_TRY(kolo_gpu_pool_take(path->gpu.pool, KOLO_GPU_PINNED, bytes, &path->memory));
    memset(path->memory->host, 0, bytes);
    path->table = path->memory->at;
    KOLO_TRY(kolo_gpu_p2p_open(&path->gpu, path->nranks, (char *)path->memory->host + table,
                               path->table + table, &path->p2p));
    KOLO_TRY(CHECK(path, "cuEventCreate", event_create(&path->whole, KOLO_CUDA_DISABLE_TIMING)));
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(kolo_gpu_order_open(&path->gpu, &path->part[r].order));
        KOLO_TRY(CHECK(path, "cuEventCreate",
                       event_create(&path->part[r].joint, KOLO_CUDA_DISABLE_TIMING)));
    }
    return KOLO_OK;
}

/* The caller has paths_lock, and the path is not in the list. */
static void path_free(struct kolo_fused_path *path)
{
    const struct kolo_cuda *cuda = path->gpu.cuda;
    if (path->gpu.pool != NULL && kolo_gpu_enter(&path->gpu) == KOLO_OK) {
        for (int r = 0; r < path->nranks; r++) {
            kolo_gpu_order_close(&path->gpu, &path->part[r].order);
            if (path->part[r].joint != NULL) {
                (void)cuda->event_destroy(path->part[r].joint);
            }
        }
        if (path->whole != NULL) {
            (void)cuda->event_destroy(path->whole);
        }
        kolo_gpu_p2p_close(path->p2p);
        kolo_gpu_leave(&path->gpu);
        if (!path->lost) { /* otherwise the GPU still writes to it */
            kolo_gpu_pool_give(path->gpu.pool, path->memory);
        }
    }
    kolo_gpu_close(&path->gpu);
    if (path->waits) {
        kolo_pending_end();
    }
    for (int r = 0; r < path->nranks; r++) {
        pthread_mutex_destroy(&path->part[r].lock);
    }
    pthread_cond_destroy(&path->meeting.ended);
    pthread_mutex_destroy(&path->lock);
    free(path);
}

static kolo_status path_new(uint64_t comm, int nranks, int ordinal, struct kolo_fused_path **out)
{
    struct kolo_fused_path *path = calloc(1, sizeof *path);
    pthread_condattr_t monotonic;
    if (path == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the ranks of GPU %d", ordinal);
    }
    path->comm = comm;
    path->nranks = nranks;
    pthread_mutex_init(&path->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&path->meeting.ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int r = 0; r < nranks; r++) {
        pthread_mutex_init(&path->part[r].lock, NULL);
    }
    kolo_status st = kolo_gpu_open(ordinal, &path->gpu);
    st = st == KOLO_OK ? kolo_gpu_enter(&path->gpu) : st;
    if (st == KOLO_OK) {
        st = make_parts(path);
        kolo_gpu_leave(&path->gpu);
    }
    if (st != KOLO_OK) {
        path_free(path);
        return st;
    }
    *out = path;
    return KOLO_OK;
}

static kolo_status join_locked(uint64_t comm, int nranks, int rank, int ordinal,
                               struct kolo_fused_path **out)
{
    struct kolo_fused_path *path = paths;
    while (path != NULL && path->comm != comm) {
        path = path->next;
    }
    if (path == NULL) {
        KOLO_TRY(path_new(comm, nranks, ordinal, &path));
        path->next = paths;
        paths = path;
    }
    if (path->gpu.ordinal != ordinal) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "rank %d is on GPU %d and other ranks are on GPU %d; the ranks of a "
                         "fused path share one GPU",
                         rank, ordinal, path->gpu.ordinal);
    }
    path->part[rank].here = true;
    path->members++;
    *out = path;
    return KOLO_OK;
}

kolo_status kolo_fused_path_join(uint64_t comm, int nranks, int rank, int ordinal,
                                 struct kolo_fused_path **out)
{
    if (nranks > KOLO_FUSED_RANKS) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%d ranks share one GPU; at most %d can", nranks,
                         KOLO_FUSED_RANKS);
    }
    pthread_mutex_lock(&paths_lock);
    const kolo_status st = join_locked(comm, nranks, rank, ordinal, out);
    pthread_mutex_unlock(&paths_lock);
    return st;
}

static bool is_over(struct kolo_fused_path *path, int rank)
{
    struct kolo_fused_part *part = &path->part[rank];
    pthread_mutex_lock(&part->lock);
    const bool over = kolo_gpu_order_is_over(&path->gpu, &part->order);
    pthread_mutex_unlock(&part->lock);
    return over;
}

static void expire(void *arg)
{
    kolo_fused_path_abort(arg);
}

/* A call that waits for a rank that never comes is released by an abort, which takes a moment. */
static void drain_calls(struct kolo_fused_path *path, int rank, int timeout_ms)
{
    enum { GRACE_MS = 10000 };
    const double end = kolo_now_us() + ((double)timeout_ms + GRACE_MS) * 1e3;
    struct kolo_gpu_deadline deadline;
    kolo_gpu_deadline_start(&deadline, timeout_ms, expire, path);
    bool over = false;
    if (kolo_gpu_enter(&path->gpu) == KOLO_OK) {
        while (!(over = is_over(path, rank)) && kolo_now_us() < end) {
            nap();
        }
        kolo_gpu_leave(&path->gpu);
    }
    kolo_gpu_deadline_stop(&deadline);
    pthread_mutex_lock(&path->lock);
    path->lost = path->lost || !over;
    pthread_mutex_unlock(&path->lock);
}

void kolo_fused_path_leave(struct kolo_fused_path *path, int rank, int timeout_ms)
{
    drain_calls(path, rank, timeout_ms);
    pthread_mutex_lock(&paths_lock);
    const bool last = --path->members == 0;
    for (struct kolo_fused_path **at = &paths; last && *at != NULL; at = &(*at)->next) {
        if (*at == path) {
            *at = path->next;
            break;
        }
    }
    pthread_mutex_unlock(&paths_lock);
    if (!last) {
        return;
    }
    pthread_mutex_lock(&path->lock);
    path->stop = true;
    const bool releasing = path->releasing;
    pthread_mutex_unlock(&path->lock);
    if (releasing) {
        pthread_join(path->releaser, NULL);
    }
    pthread_mutex_lock(&paths_lock);
    path_free(path);
    pthread_mutex_unlock(&paths_lock);
}
