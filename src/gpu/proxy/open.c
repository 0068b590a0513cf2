// SPDX-License-Identifier: Apache-2.0
/* The proxy: opening, aborting and closing. */
#include "gpu/context/deadline.h"
#include "gpu/context/pending.h"
#include "gpu/proxy/inner.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- abort ---- */

/* Whether the thread has been in one job for `STUCK_MS`, although the job was aborted. It is in the
 * driver, which copies for some calls (staging.h), and comes out when another thread of the process
 * leaves the context's lock. That thread waits for the streams which wait for `done`. */
static bool is_stuck(struct kolo_proxy *r, uint64_t *job, double *since_us)
{
    enum { STUCK_MS = 1000 };
    const double now = kolo_now_us();
    pthread_mutex_lock(&r->lock);
    if (!r->serving || r->served != *job) {
        *job = r->served;
        *since_us = now;
    }
    pthread_mutex_unlock(&r->lock);
    return now - *since_us > STUCK_MS * 1e3;
}

/* Let the streams go on instead of a thread that is stuck. Each of them may wait again for its next
 * call, so this is repeated. */
static void *run_releaser(void *arg)
{
    const struct timespec nap = {0, 1000 * 1000};
    struct kolo_proxy *r = arg;
    uint64_t job = 0;
    double since_us = kolo_now_us();
    for (bool stop = false; !stop;) {
        if (is_stuck(r, &job, &since_us)) {
            kolo_rounds_abort(&r->staging.rounds);
        }
        (void)nanosleep(&nap, NULL);
        pthread_mutex_lock(&r->lock);
        stop = r->released;
        pthread_mutex_unlock(&r->lock);
    }
    return NULL;
}

void kolo_proxy_abort(struct kolo_proxy *r)
{
    pthread_mutex_lock(&r->lock);
    r->aborted = true;
    pthread_cond_broadcast(&r->room);
    if (!r->releasing) {
        r->releasing = pthread_create(&r->releaser, NULL, run_releaser, r) == 0;
    }
    pthread_mutex_unlock(&r->lock);
    struct kolo_comm *const inner[] = {r->host, r->desk};
    for (int i = 0; i < 2 && inner[i] != NULL; i++) {
        if (atomic_load(&r->comm->failure.error) == KOLO_OK) {
            kolo_comm_abort(inner[i]);
            continue;
        }
        kolo_error_set(r->comm->failure.text); /* the text that the other ranks get */
        (void)kolo_failure_end(inner[i], (kolo_status)r->comm->failure.verdict.status,
                               r->comm->failure.verdict.rank);
    }
}

void kolo_proxy_widen(struct kolo_proxy *r, int ranks)
{
    atomic_store(&r->host->failure.ranks_above, ranks);
    if (r->desk != NULL) {
        atomic_store(&r->desk->failure.ranks_above, ranks);
    }
}

/* ---- opening and closing ---- */

static kolo_status start_thread(struct kolo_proxy *r)
{
    enum { LINE = 128 }; /* the words of rounds, `ended` and the table, each apart */
    struct kolo_rounds *rounds = &r->staging.rounds;
    const size_t first = kolo_rounds_bytes(rounds->most);
    const size_t bytes = first + LINE + sizeof(struct kolo_fused_table);
    KOLO_TRY(kolo_gpu_pool_take(r->gpu.pool, KOLO_GPU_PINNED, bytes, &r->words));
    char *pinned = r->words->host;
    memset(pinned, 0, bytes);
    KOLO_TRY(kolo_rounds_open(rounds, pinned, r->words->at));
    struct kolo_fused_table *table = (void *)(pinned + first + LINE);
    table->aborted = 1; /* until a call has its addresses there */
    r->shared.words = (struct kolo_shared_gpu_words){.done = rounds->words.done,
                                                     .ended = (void *)(pinned + first),
                                                     .table = table,
                                                     .ended_at = r->words->at + first,
                                                     .table_at = r->words->at + first + LINE};
    KOLO_TRY(kolo_staging_open(&r->staging));
    KOLO_TRY(kolo_gpu_order_open(&r->gpu, &r->calls));
    if (pthread_create(&r->thread, NULL, kolo_proxy_run, r) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "cannot create a thread for calls on GPU memory");
    }
    return KOLO_OK;
}

static void proxy_free(struct kolo_proxy *r)
{
    kolo_unix_socket_close(&r->shared.sockets);
    if (kolo_gpu_enter(&r->gpu) == KOLO_OK) {
        kolo_gpu_order_close(&r->gpu, &r->calls);
        kolo_staging_close(&r->staging);
        kolo_rounds_close(&r->staging.rounds, r->lost);
        kolo_gpu_leave(&r->gpu);
    }
    if (!r->lost) { /* otherwise the GPU still writes to it */
        kolo_gpu_pool_give(r->gpu.pool, r->words);
    }
    while (r->kept != NULL) {
        struct kolo_proxy_job *job = r->kept;
        r->kept = job->kept;
        kolo_proxy_job_end(job);
        kolo_proxy_job_leave(job);
    }
    pthread_cond_destroy(&r->came);
    pthread_cond_destroy(&r->room);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->order);
    if (r->desk != NULL) {
        r->destroy(r->desk);
    }
    r->destroy(r->host);
    free(r);
}

kolo_status kolo_proxy_open(const struct kolo_path_env *env, struct kolo_comm *host,
                            struct kolo_comm *desk, const struct kolo_gpu *gpu,
                            struct kolo_proxy **out)
{
    struct kolo_proxy *r = calloc(1, sizeof *r);
    const bool fuses = desk != NULL;
    if (r == NULL) {
        env->destroy(host);
        if (fuses) {
            env->destroy(desk);
        }
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator of a GPU");
    }
    r->comm = env->comm;
    r->destroy = env->destroy;
    r->host = host;
    r->desk = desk;
    r->gpu = *gpu;
    r->fuses = fuses;
    r->last = &r->first;
    r->shared = (struct kolo_shared_gpu){
        .host = host, .desk = desk, .gpu = &r->gpu, .sockets = {.socket = KOLO_NO_FD}};
    r->staging = (struct kolo_staging){
        .host = host,
        .gpu = &r->gpu,
        .rounds = {.host = host, .gpu = &r->gpu, .most = kolo_staging_copies(host->ranks.nranks)}};
    pthread_mutex_init(&r->order, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->came, NULL);
    pthread_cond_init(&r->room, NULL);
    kolo_status st = fuses ? kolo_shared_gpu_open(&r->shared) : KOLO_OK;
    st = st == KOLO_OK ? kolo_gpu_enter(&r->gpu) : st;
    if (st == KOLO_OK) {
        st = start_thread(r);
        kolo_gpu_leave(&r->gpu);
    }
    if (st != KOLO_OK) {
        proxy_free(r);
        return st;
    }
    *out = r;
    return KOLO_OK;
}

static bool is_over(struct kolo_proxy *r)
{
    pthread_mutex_lock(&r->order);
    const bool over = kolo_gpu_order_is_over(&r->gpu, &r->calls);
    pthread_mutex_unlock(&r->order);
    return over;
}

bool kolo_proxy_drain(struct kolo_proxy *r, int timeout_ms, int grace_ms, void (*expire)(void *arg),
                      void *arg)
{
    const struct timespec nap = {0, 100 * 1000};
    const double end = kolo_now_us() + ((double)timeout_ms + grace_ms) * 1e3;
    struct kolo_gpu_deadline deadline;
    bool over = true;
    kolo_gpu_deadline_start(&deadline, timeout_ms, expire, arg);
    if (kolo_gpu_enter(&r->gpu) == KOLO_OK) {
        while (!(over = is_over(r)) && kolo_now_us() <= end) {
            (void)nanosleep(&nap, NULL);
        }
        kolo_gpu_leave(&r->gpu);
    }
    kolo_gpu_deadline_stop(&deadline);
    return over;
}

static void expire(void *arg)
{
    kolo_proxy_abort(arg);
}

void kolo_proxy_close(struct kolo_proxy *r, int timeout_ms)
{
    enum { GRACE_MS = 10000 };
    r->lost = !kolo_proxy_drain(r, timeout_ms, GRACE_MS, expire, r);
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    pthread_mutex_lock(&r->lock);
    r->released = true;
    pthread_mutex_unlock(&r->lock);
    if (r->releasing) {
        pthread_join(r->releaser, NULL);
    }
    struct kolo_gpu gpu = r->gpu;
    proxy_free(r);
    kolo_gpu_close(&gpu);
}
