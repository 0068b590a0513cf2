// SPDX-License-Identifier: Apache-2.0
/* Joining and leaving a fused path, and releasing the streams that wait. */
#include "gpu/fused/inner.h"
#include "plan/plan.h"

#include <stdlib.h>
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
 * kernel runs on the addresses of an earlier call. */
static void release_once(struct kolo_fused_path *path, kolo_cuda_stream stream)
{
    struct kolo_stream_ops ops = {.cuda = path->gpu.cuda};
    kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32,
                        path->table + offsetof(struct kolo_fused_table, aborted), 1);
    for (int q = 0; q < path->nranks; q++) {
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32, FIELD(path, q, arrived), 1);
        kolo_stream_ops_add(&ops, stream, KOLO_CUDA_WRITE_32, FIELD(path, q, done), 1);
    }
    if (kolo_stream_ops_flush(&ops) == KOLO_OK &&
        kolo_gpu_p2p_release(path->p2p, stream) == KOLO_OK) {
        (void)path->gpu.cuda->stream_synchronize(stream);
    }
}

static void *run_releaser(void *arg)
{
    struct kolo_fused_path *path = arg;
    kolo_cuda_stream stream = NULL;
    bool stop = false;
    if (kolo_gpu_enter(&path->gpu) != KOLO_OK) {
        return NULL;
    }
    if (CHECK(path, "cuStreamCreate", stream_create(&stream, KOLO_CUDA_NON_BLOCKING)) == KOLO_OK) {
        while (!stop) {
            release_once(path, stream);
            nap();
            pthread_mutex_lock(&path->lock);
            stop = path->stop;
            pthread_mutex_unlock(&path->lock);
        }
        (void)path->gpu.cuda->stream_destroy(stream);
    }
    kolo_gpu_leave(&path->gpu);
    return NULL;
}

void kolo_fused_path_abort(struct kolo_fused_path *path)
{
    pthread_mutex_lock(&path->lock);
    if (!path->aborted) {
        path->aborted = true;
        path->releasing = pthread_create(&path->releaser, NULL, run_releaser, path) == 0;
    }
    pthread_mutex_unlock(&path->lock);
}

/* ---- joining and leaving ---- */

static kolo_status make_parts(struct kolo_fused_path *path)
{
    const size_t bytes = sizeof(struct kolo_fused_table);
    KOLO_TRY(kolo_gpu_load(&path->gpu));
    KOLO_TRY(CHECK(path, "cuMemAlloc", mem_alloc(&path->table, bytes)));
    KOLO_TRY(CHECK(path, "cuMemsetD8", memset_d8(path->table, 0, bytes)));
    KOLO_TRY(kolo_gpu_p2p_open(&path->gpu, path->nranks, &path->p2p));
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(kolo_gpu_order_open(&path->gpu, &path->part[r].order));
        KOLO_TRY(CHECK(path, "cuEventCreate",
                       event_create(&path->part[r].joint, KOLO_CUDA_DISABLE_TIMING)));
    }
    return KOLO_OK;
}

static void path_free(struct kolo_fused_path *path)
{
    const struct kolo_cuda *cuda = path->gpu.cuda;
    if (path->gpu.context != NULL && kolo_gpu_enter(&path->gpu) == KOLO_OK) {
        for (int r = 0; r < path->nranks; r++) {
            kolo_gpu_order_close(&path->gpu, &path->part[r].order);
            if (path->part[r].joint != NULL) {
                (void)cuda->event_destroy(path->part[r].joint);
            }
        }
        if (path->table != 0) {
            (void)cuda->mem_free(path->table);
        }
        kolo_gpu_p2p_close(path->p2p);
        kolo_gpu_leave(&path->gpu);
    }
    kolo_gpu_close(&path->gpu);
    for (int r = 0; r < path->nranks; r++) {
        pthread_mutex_destroy(&path->part[r].lock);
    }
    pthread_mutex_destroy(&path->lock);
    free(path);
}

static kolo_status path_new(uint64_t comm, int nranks, int ordinal, struct kolo_fused_path **out)
{
    struct kolo_fused_path *path = calloc(1, sizeof *path);
    if (path == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the ranks of GPU %d", ordinal);
    }
    path->comm = comm;
    path->nranks = nranks;
    pthread_mutex_init(&path->lock, NULL);
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

/* A call that waits for a rank that never comes is released by an abort, which takes a moment. */
static void drain_calls(struct kolo_fused_path *path, int rank, int timeout_ms)
{
    const double end = kolo_now_us() + timeout_ms * 1e3;
    if (kolo_gpu_enter(&path->gpu) != KOLO_OK) {
        return;
    }
    while (!is_over(path, rank) && kolo_now_us() < end) {
        nap();
    }
    if (!is_over(path, rank)) {
        kolo_fused_path_abort(path);
        while (!is_over(path, rank) && kolo_now_us() < end + 10e6) {
            nap();
        }
    }
    kolo_gpu_leave(&path->gpu);
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
    path_free(path);
}
