// SPDX-License-Identifier: Apache-2.0
/* The proxy: its queue, its thread, and the calls that enqueue. The thread allocates nothing from
 * the driver: that may wait for streams, and these wait for the thread. */
#include "gpu/context/pending.h"
#include "gpu/proxy/inner.h"

#include <stdlib.h>
#include <string.h>

bool kolo_proxy_uses_gdr(const struct kolo_proxy *proxy, int q)
{
    return kolo_links_take_memory(proxy->host, q, KOLO_GDR_LEAST);
}

const struct kolo_gpu *kolo_proxy_gpu(const struct kolo_proxy *proxy)
{
    return &proxy->gpu;
}

/* ---- the thread ---- */

static bool can_fuse(const struct kolo_proxy *r, const struct kolo_proxy_job *job)
{
    return r->fuses && !kolo_coll_by_messages(&job->call.args);
}

static bool may_fuse(const struct kolo_proxy *r, const struct kolo_proxy_job *job)
{
    return job->message == NULL && job->call.args.coll != KOLO_COLL_BARRIER && can_fuse(r, job);
}

/* *released_out: the stream goes on already. */
static kolo_status serve_job(struct kolo_proxy_job *job, bool *released_out)
{
    struct kolo_proxy *r = job->proxy;
    bool fused = false;
    if (job->message != NULL) {
        return kolo_staging_exchange(&r->staging, job->message, job->nmessages, &job->plan);
    }
    if (job->call.args.coll == KOLO_COLL_BARRIER) {
        return kolo_barrier(r->host, NULL);
    }
    if (can_fuse(r, job)) {
        KOLO_TRY(kolo_shared_gpu_run(&r->shared, &job->met, r->gpu.pool->stream[KOLO_GPU_FROM],
                                     &fused, released_out));
    }
    return fused ? KOLO_OK : kolo_staging_run(&r->staging, &job->call, &job->v, &job->plan);
}

static struct kolo_proxy_job *next_job(struct kolo_proxy *r, bool *aborted_out)
{
    pthread_mutex_lock(&r->lock);
    r->served += r->serving;
    r->serving = false;
    while (r->first == NULL && !r->stop) {
        pthread_cond_wait(&r->came, &r->lock);
    }
    struct kolo_proxy_job *job = r->first;
    if (job != NULL) {
        r->first = job->next;
        r->last = r->first == NULL ? &r->first : r->last;
        r->serving = true;
    }
    *aborted_out = r->aborted;
    pthread_mutex_unlock(&r->lock);
    return job;
}

static void job_free(struct kolo_proxy_job *job)
{
    free(job->met.ranks);
    free(job->v.all);
    free(job->message);
    free(job);
}

void kolo_proxy_job_leave(struct kolo_proxy_job *job)
{
    if (atomic_fetch_sub(&job->users, 1) == 1) {
        job_free(job);
    }
}

void kolo_proxy_job_end(struct kolo_proxy_job *job)
{
    if (!atomic_exchange(&job->ended, true)) {
        kolo_pending_end();
    }
}

/* The graph of a job and all its launches are over, or the graph did not take the job. It must not
 * call the driver. */
static void on_graph_end(void *arg)
{
    kolo_proxy_job_end(arg);
    kolo_proxy_job_leave(arg);
}

/* End the user's communicator after a call on `inner`, which is `host` or `desk`. Its ranks have
 * the same numbers, so the failure names the same rank. */
static void end_comm(struct kolo_proxy *r, struct kolo_comm *inner, kolo_status st)
{
    struct kolo_failure found = {.size = sizeof found};
    const bool known = kolo_comm_failure(inner, &found) == KOLO_OK && found.status != KOLO_OK;
    if (known) {
        kolo_error_set(found.text);
    }
    (void)kolo_failure_end(r->comm, st, known ? found.rank : -1);
}

/* Entries of streams that a call takes, at most. */
static int entries_of(const struct kolo_proxy_job *job)
{
    return KOLO_PROXY_CALL_ENTRIES + kolo_rounds_entries(&job->plan);
}

/* A call outside of graphs is served: the rank may make others. */
static void note_served(struct kolo_proxy *r, int entries)
{
    pthread_mutex_lock(&r->lock);
    r->ahead -= entries;
    pthread_cond_broadcast(&r->room);
    pthread_mutex_unlock(&r->lock);
}

void *kolo_proxy_run(void *arg)
{
    struct kolo_proxy *r = arg;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
    bool aborted = false;
    kolo_status st = KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                               thread_exchange_stream_capture_mode(&mode));
    st = st == KOLO_OK ? kolo_gpu_enter(&r->gpu) : st;
    const bool entered = st == KOLO_OK;
    for (struct kolo_proxy_job *job; (job = next_job(r, &aborted)) != NULL;) {
        bool released = false;
        const bool captured = job->captured; /* a job of a graph may end when its stream goes on */
        const int entries = entries_of(job);
        st = st == KOLO_OK && !aborted ? serve_job(job, &released) : st;
        if (st != KOLO_OK && !aborted) {
            end_comm(r, r->host, st);
        }
        if (st != KOLO_OK || aborted) {
            kolo_rounds_abort(&r->staging.rounds);
        } else if (!released) {
            kolo_rounds_end(&r->staging.rounds, &job->plan);
        }
        if (!captured) {
            kolo_proxy_job_leave(job);
            kolo_pending_end();
            note_served(r, entries);
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
    struct kolo_proxy_job *job = arg;
    struct kolo_proxy *r = job->proxy;
    pthread_mutex_lock(&r->lock);
    job->next = NULL;
    *r->last = job;
    r->last = &job->next;
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->lock);
}

/* ---- enqueueing ---- */

/* Wait until a call's entries have room beside those of this rank that are pending; a call with
 * more than there can be goes alone. In the driver, the call that finds a stream full waits and
 * lets no other pass. Errors: ABORTED. */
static kolo_status take_room(struct kolo_proxy *r, const struct kolo_proxy_job *job)
{
    const int entries = job->captured ? 0 : entries_of(job);
    pthread_mutex_lock(&r->lock);
    while (entries > 0 && !r->aborted && r->ahead > 0 && r->ahead + entries > KOLO_PROXY_ENTRIES) {
        pthread_cond_wait(&r->room, &r->lock);
    }
    const bool aborted = r->aborted;
    r->ahead += aborted ? 0 : entries;
    pthread_mutex_unlock(&r->lock);
    return aborted ? kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended") : KOLO_OK;
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
static kolo_status meet(struct kolo_proxy *r, struct kolo_proxy_job *job)
{
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED; then the mode before */
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                       thread_exchange_stream_capture_mode(&mode)));
    if (r->shared.full && !job->captured && kolo_pending_alone_begin()) {
        kolo_shared_gpu_tidy(&r->shared);
        kolo_pending_alone_end();
    }
    const kolo_status st = kolo_shared_gpu_meet(&r->shared, &job->call, job->captured, &job->met);
    if (st != KOLO_OK) {
        end_comm(r, r->desk, st);
    }
    KOLO_TRY(st);
    return KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                     thread_exchange_stream_capture_mode(&mode));
}

/* Leave the jobs whose graphs are gone. */
static void sweep_kept(struct kolo_proxy *r)
{
    for (struct kolo_proxy_job **at = &r->kept; *at != NULL;) {
        struct kolo_proxy_job *job = *at;
        if (atomic_load(&job->ended)) {
            *at = job->kept;
            kolo_proxy_job_leave(job);
        } else {
            at = &job->kept;
        }
    }
}

/* A captured job ends with its graph, or with the communicator if that comes first. */
static kolo_status give_to_graph(struct kolo_proxy *r, struct kolo_proxy_job *job)
{
    sweep_kept(r);
    job->kept = r->kept;
    r->kept = job;
    return kolo_gpu_at_graph_end(&r->gpu, job->call.stream, on_graph_end, job);
}

static kolo_status enqueue_locked(struct kolo_proxy *r, struct kolo_proxy_job *job, bool *taken_out)
{
    const kolo_stream stream = job->call.stream;
    const bool captured = job->captured;
    KOLO_TRY(may_fuse(r, job) ? meet(r, job) : KOLO_OK);
    KOLO_TRY(kolo_gpu_order_follow(&r->gpu, &r->calls, stream, captured));
    kolo_pending_enqueue_begin();
    *taken_out = captured; /* the graph leaves it in any case */
    kolo_status st = captured ? give_to_graph(r, job) : KOLO_OK;
    st = st == KOLO_OK
             ? KOLO_CUDA(&r->gpu, "cuLaunchHostFunc", launch_host_func(stream, on_reached, job))
             : st;
    if (st == KOLO_OK) {
        *taken_out = true; /* the thread leaves it when it has served it */
        st = kolo_rounds_enqueue(&r->staging.rounds, stream, &job->plan);
        if (st == KOLO_OK && job->met.ranks != NULL) {
            st = kolo_shared_gpu_enqueue(&r->shared, &job->call);
        }
    } else if (!captured) {
        kolo_pending_end();
    }
    kolo_pending_enqueue_end();
    KOLO_TRY(st);
    return kolo_gpu_order_note(&r->gpu, &r->calls, stream, captured);
}

static kolo_status plan_job(struct kolo_proxy *r, struct kolo_proxy_job *job)
{
    if (job->message != NULL) {
        return kolo_staging_plan_exchange(&r->staging, job->message, job->nmessages, &job->plan);
    }
    return job->call.args.coll == KOLO_COLL_BARRIER
               ? KOLO_OK
               : kolo_staging_plan(&r->staging, &job->call, &job->v, may_fuse(r, job), &job->plan);
}

static kolo_status enqueue_in_turn(struct kolo_proxy *r, struct kolo_proxy_job *job,
                                   bool *taken_out)
{
    KOLO_TRY(kolo_gpu_is_capturing(&r->gpu, job->call.stream, &job->captured));
    KOLO_TRY(plan_job(r, job));
    KOLO_TRY(take_room(r, job));
    const kolo_status st = enqueue_locked(r, job, taken_out);
    if (!*taken_out && !job->captured) {
        note_served(r, entries_of(job));
    }
    return st;
}

/* Enqueue a job, which it takes in any case. */
static kolo_status enqueue_job(struct kolo_proxy *r, struct kolo_proxy_job *job)
{
    bool taken = false;
    kolo_status st = kolo_gpu_enter(&r->gpu);
    if (st == KOLO_OK) {
        pthread_mutex_lock(&r->order);
        st = enqueue_in_turn(r, job, &taken);
        pthread_mutex_unlock(&r->order);
        kolo_gpu_leave(&r->gpu);
    }
    if (!taken) {
        job_free(job);
    } else if (!job->captured) {
        kolo_proxy_job_leave(job);
    }
    return st;
}

kolo_status kolo_proxy_enqueue(struct kolo_proxy *r, const struct kolo_gpu_call *call,
                               struct kolo_counts *v)
{
    struct kolo_proxy_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        free(v->all);
        v->all = NULL;
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    *job = (struct kolo_proxy_job){.proxy = r, .call = *call, .v = *v, .users = 2};
    v->all = NULL;
    return enqueue_job(r, job);
}

kolo_status kolo_proxy_enqueue_messages(struct kolo_proxy *r, const struct kolo_message *m, int n,
                                        kolo_stream stream)
{
    struct kolo_proxy_job *job = calloc(1, sizeof *job);
    struct kolo_message *all = malloc((size_t)n * sizeof *all);
    if (job == NULL || all == NULL) {
        free(job);
        free(all);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    }
    memcpy(all, m, (size_t)n * sizeof *all);
    *job = (struct kolo_proxy_job){
        .proxy = r, .call = {.stream = stream}, .message = all, .nmessages = n, .users = 2};
    return enqueue_job(r, job);
}
