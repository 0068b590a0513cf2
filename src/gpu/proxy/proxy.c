// SPDX-License-Identifier: Apache-2.0
/* The proxy: its queue, its thread, and the calls that enqueue. The thread allocates nothing from
 * the driver: that may wait for streams, and these wait for the thread. */
#include "gpu/proxy/proxy.h"

#include "gpu/context/deadline.h"
#include "gpu/context/stream_order.h"
#include "gpu/proxy/pending.h"
#include "gpu/proxy/shared_gpu.h"
#include "gpu/proxy/staging.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct job { /* a call of this rank, for the thread */
    struct job *next;
    struct kolo_proxy *proxy;
    struct kolo_gpu_call call;
    struct kolo_counts v;
    struct kolo_shared_gpu_offer offer; /* if ranks that share the GPU can run it */
    _Atomic int users;                  /* who enqueues it, and the thread; not if it is captured */
    /* [nmessages], instead of a collective; then only call.stream is set. */
    struct kolo_message *message;
    int nmessages;
    struct job *kept; /* the next job of a graph; a graph may bring its jobs again */
    bool captured;
};

struct kolo_proxy {
    struct kolo_comm *comm, *host;
    void (*destroy)(struct kolo_comm *); /* of `host` */
    struct kolo_gpu gpu;
    bool fuses;
    _Atomic uint32_t *done; /* pinned */
    kolo_cuda_address done_at;
    struct kolo_staging staging;   /* only the thread uses it */
    struct kolo_shared_gpu shared; /* the thread uses it, and who finds that no call is pending */

    /* Of the members up to `lock`. It is held while a call is enqueued, which may wait until a
     * stream has room; so the thread never takes it. */
    pthread_mutex_t order;
    struct kolo_gpu_order calls;
    struct job *kept;

    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t came;
    struct job *first, **last;
    uint64_t served;    /* jobs */
    bool serving;       /* a job */
    bool aborted, stop; /* the thread ends when no jobs are left */
    pthread_t thread;
    bool releasing, released; /* the releaser runs; it shall end */
    pthread_t releaser;
};

bool kolo_proxy_uses_gdr(const struct kolo_proxy *proxy, int q)
{
    return kolo_links_take_memory(proxy->host, q, KOLO_GDR_LEAST);
}

const struct kolo_gpu *kolo_proxy_gpu(const struct kolo_proxy *proxy)
{
    return &proxy->gpu;
}

/* ---- the thread ---- */

static bool can_fuse(const struct kolo_proxy *r, const struct job *job)
{
    return r->fuses && !kolo_coll_by_messages(&job->call.args);
}

/* *released_out: the stream goes on already. */
static kolo_status serve_job(struct job *job, bool *released_out)
{
    struct kolo_proxy *r = job->proxy;
    bool fused = false;
    if (job->message != NULL) {
        return kolo_staging_exchange(&r->staging, job->message, job->nmessages);
    }
    if (job->call.args.coll == KOLO_COLL_BARRIER) {
        return kolo_barrier(r->host, NULL);
    }
    if (can_fuse(r, job)) {
        KOLO_TRY(kolo_shared_gpu_run(&r->shared, &job->offer, r->staging.in.stream, &fused,
                                     released_out));
    }
    return fused ? KOLO_OK : kolo_staging_run(&r->staging, &job->call, &job->v);
}

static struct job *next_job(struct kolo_proxy *r, bool *aborted_out)
{
    pthread_mutex_lock(&r->lock);
    r->served += r->serving;
    r->serving = false;
    while (r->first == NULL && !r->stop) {
        pthread_cond_wait(&r->came, &r->lock);
    }
    struct job *job = r->first;
    if (job != NULL) {
        r->first = job->next;
        r->last = r->first == NULL ? &r->first : r->last;
        r->serving = true;
    }
    *aborted_out = r->aborted;
    pthread_mutex_unlock(&r->lock);
    return job;
}

static void job_free(struct job *job)
{
    free(job->v.all);
    free(job->message);
    free(job);
}

static void job_leave(struct job *job)
{
    if (atomic_fetch_sub(&job->users, 1) == 1) {
        job_free(job);
    }
}

/* End the user's communicator. The ranks of `host` have the same numbers, so the failure names the
 * same rank. */
static void end_comm(struct kolo_proxy *r, kolo_status st)
{
    struct kolo_failure found = {.size = sizeof found};
    const bool known = kolo_comm_failure(r->host, &found) == KOLO_OK && found.status != KOLO_OK;
    if (known) {
        kolo_error_set(found.text);
    }
    (void)kolo_failure_end(r->comm, st, known ? found.rank : -1);
}

static void *run_jobs(void *arg)
{
    struct kolo_proxy *r = arg;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
    bool aborted = false;
    kolo_status st = KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                               thread_exchange_stream_capture_mode(&mode));
    st = st == KOLO_OK ? kolo_gpu_enter(&r->gpu) : st;
    const bool entered = st == KOLO_OK;
    for (struct job *job; (job = next_job(r, &aborted)) != NULL;) {
        bool released = false;
        st = st == KOLO_OK && !aborted ? serve_job(job, &released) : st;
        if (st != KOLO_OK && !aborted) {
            end_comm(r, st);
        }
        if (!released) {
            atomic_store_explicit(r->done, 1, memory_order_release);
        }
        if (!job->captured) {
            job_leave(job);
            kolo_pending_end();
        }
    }
    kolo_shared_gpu_close(&r->shared);
    if (entered) {
        kolo_gpu_leave(&r->gpu);
    }
    return NULL;
}

/* The driver calls this function when the stream has come to a call. It must not call the
 * driver. */
static void on_reached(void *arg)
{
    struct job *job = arg;
    struct kolo_proxy *r = job->proxy;
    pthread_mutex_lock(&r->lock);
    job->next = NULL;
    *r->last = job;
    r->last = &job->next;
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->lock);
}

/* ---- enqueueing ---- */

static bool is_aborted(struct kolo_proxy *r)
{
    pthread_mutex_lock(&r->lock);
    const bool aborted = r->aborted;
    pthread_mutex_unlock(&r->lock);
    return aborted;
}

kolo_status kolo_proxy_follow(struct kolo_proxy *r, kolo_stream stream)
{
    return kolo_gpu_order_apart(&r->gpu, &r->order, &r->calls, stream, false);
}

kolo_status kolo_proxy_note(struct kolo_proxy *r, kolo_stream stream)
{
    return kolo_gpu_order_apart(&r->gpu, &r->order, &r->calls, stream, true);
}

/* Before a call is enqueued that ranks of one GPU may run: what needs the driver. All that is safe
 * in a capture. */
static kolo_status prepare_offer(struct kolo_proxy *r, struct job *job)
{
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED; then the mode before */
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                       thread_exchange_stream_capture_mode(&mode)));
    if (atomic_load(&r->shared.full) && !job->captured && kolo_pending_alone_begin()) {
        kolo_shared_gpu_tidy(&r->shared);
        kolo_pending_alone_end();
    }
    job->offer = kolo_shared_gpu_offer(&r->shared, &job->call);
    return KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                     thread_exchange_stream_capture_mode(&mode));
}

static kolo_status enqueue_locked(struct kolo_proxy *r, struct job *job, bool *taken_out)
{
    const kolo_stream stream = job->call.stream;
    struct kolo_cuda_stream_op ops[] = {
        {.kind = KOLO_CUDA_WAIT_32, .at = r->done_at, .value = 1, .flags = KOLO_CUDA_WAIT_EQUAL},
        {.kind = KOLO_CUDA_WRITE_32, .at = r->done_at, .value = 0}};
    if (is_aborted(r)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    KOLO_TRY(kolo_gpu_is_capturing(&r->gpu, stream, &job->captured));
    const bool captured = job->captured;
    const bool fuses =
        job->message == NULL && job->call.args.coll != KOLO_COLL_BARRIER && can_fuse(r, job);
    KOLO_TRY(fuses ? prepare_offer(r, job) : KOLO_OK);
    KOLO_TRY(kolo_gpu_order_follow(&r->gpu, &r->calls, stream, captured));
    kolo_pending_enqueue_begin();
    kolo_status st =
        KOLO_CUDA(&r->gpu, "cuLaunchHostFunc", launch_host_func(stream, on_reached, job));
    if (st == KOLO_OK) {
        *taken_out = true; /* the thread leaves it when it has served it */
        if (captured) {
            job->kept = r->kept;
            r->kept = job;
        }
        st = KOLO_CUDA(&r->gpu, "cuStreamBatchMemOp", stream_batch_mem_op(stream, 2, ops, 0));
        if (st == KOLO_OK && fuses && r->host->ranks.rank == 0) {
            st = kolo_shared_gpu_enqueue(&r->shared, &job->call);
        }
    } else {
        kolo_pending_end();
    }
    kolo_pending_enqueue_end();
    KOLO_TRY(st);
    return kolo_gpu_order_note(&r->gpu, &r->calls, stream, captured);
}

/* Enqueue a job, which it takes in any case. */
static kolo_status enqueue_job(struct kolo_proxy *r, struct job *job)
{
    bool taken = false;
    kolo_status st = kolo_gpu_enter(&r->gpu);
    if (st == KOLO_OK) {
        pthread_mutex_lock(&r->order);
        st = enqueue_locked(r, job, &taken);
        pthread_mutex_unlock(&r->order);
        kolo_gpu_leave(&r->gpu);
    }
    if (!taken) {
        job_free(job);
    } else if (!job->captured) {
        job_leave(job);
    }
    return st;
}

kolo_status kolo_proxy_enqueue(struct kolo_proxy *r, const struct kolo_gpu_call *call,
                               struct kolo_counts *v)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        free(v->all);
        v->all = NULL;
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    *job = (struct job){.proxy = r, .call = *call, .v = *v, .users = 2};
    v->all = NULL;
    return enqueue_job(r, job);
}

kolo_status kolo_proxy_enqueue_messages(struct kolo_proxy *r, const struct kolo_message *m, int n,
                                        kolo_stream stream)
{
    struct job *job = calloc(1, sizeof *job);
    struct kolo_message *all = malloc((size_t)n * sizeof *all);
    if (job == NULL || all == NULL) {
        free(job);
        free(all);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    }
    memcpy(all, m, (size_t)n * sizeof *all);
    *job = (struct job){
        .proxy = r, .call = {.stream = stream}, .message = all, .nmessages = n, .users = 2};
    return enqueue_job(r, job);
}

/* ---- abort ---- */

/* Whether the thread has been in one job for `STUCK_MS`, although the job was aborted: it is in the
 * driver, and comes out when another thread of the process leaves the context's lock. That thread
 * waits for the streams which wait for `done`. */
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
            atomic_store_explicit(r->done, 1, memory_order_release);
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
    if (!r->releasing) {
        r->releasing = pthread_create(&r->releaser, NULL, run_releaser, r) == 0;
    }
    pthread_mutex_unlock(&r->lock);
    if (atomic_load(&r->comm->failure.error) == KOLO_OK) {
        kolo_comm_abort(r->host);
        return;
    }
    kolo_error_set(r->comm->failure.text); /* the text that the other ranks get */
    (void)kolo_failure_end(r->host, (kolo_status)r->comm->failure.verdict.status,
                           r->comm->failure.verdict.rank);
}

void kolo_proxy_widen(struct kolo_proxy *r, int ranks)
{
    atomic_store(&r->host->failure.ranks_above, ranks);
}

/* ---- opening and closing ---- */

static kolo_status start_thread(struct kolo_proxy *r)
{
    enum { PORTABLE = 1, DEVICEMAP = 2, LINE = 128 }; /* done, ended and the table, each apart */
    const size_t bytes = 2 * LINE + sizeof(struct kolo_fused_table);
    void *pinned = NULL;
    KOLO_TRY(
        KOLO_CUDA(&r->gpu, "cuMemHostAlloc", mem_host_alloc(&pinned, bytes, PORTABLE | DEVICEMAP)));
    memset(pinned, 0, bytes);
    r->done = pinned;
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuMemHostGetDevicePointer",
                       mem_host_get_device_pointer(&r->done_at, (void *)(uintptr_t)r->done, 0)));
    struct kolo_fused_table *table = (void *)((char *)pinned + 2 * LINE);
    table->aborted = 1; /* until a call has its addresses there */
    r->shared.words = (struct kolo_shared_gpu_words){.done = r->done,
                                                     .ended = (void *)((char *)pinned + LINE),
                                                     .table = table,
                                                     .ended_at = r->done_at + LINE,
                                                     .table_at = r->done_at + 2 * LINE};
    KOLO_TRY(kolo_staging_open(&r->staging));
    KOLO_TRY(kolo_gpu_order_open(&r->gpu, &r->calls));
    if (pthread_create(&r->thread, NULL, run_jobs, r) != 0) {
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
        if (r->done != NULL) {
            (void)r->gpu.cuda->mem_free_host((void *)(uintptr_t)r->done);
        }
        kolo_gpu_leave(&r->gpu);
    }
    while (r->kept != NULL) {
        struct job *job = r->kept;
        r->kept = job->kept;
        job_free(job);
        kolo_pending_end();
    }
    pthread_cond_destroy(&r->came);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->order);
    r->destroy(r->host);
    free(r);
}

kolo_status kolo_proxy_open(const struct kolo_path_env *env, struct kolo_comm *host,
                            const struct kolo_gpu *gpu, bool fuses, struct kolo_proxy **out)
{
    struct kolo_proxy *r = calloc(1, sizeof *r);
    if (r == NULL) {
        env->destroy(host);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator of a GPU");
    }
    r->comm = env->comm;
    r->destroy = env->destroy;
    r->host = host;
    r->gpu = *gpu;
    r->fuses = fuses;
    r->last = &r->first;
    r->shared =
        (struct kolo_shared_gpu){.host = host, .gpu = &r->gpu, .sockets = {.socket = KOLO_NO_FD}};
    r->staging = (struct kolo_staging){.host = host, .gpu = &r->gpu};
    pthread_mutex_init(&r->order, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->came, NULL);
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
    (void)kolo_proxy_drain(r, timeout_ms, GRACE_MS, expire, r);
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
