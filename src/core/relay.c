// SPDX-License-Identifier: Apache-2.0
/* Relays: see relay.h. The thread allocates nothing of the driver's: that may wait for streams,
 * which wait for the thread. */
#include "core/relay.h"

#include "core/call_parts.h"
#include "core/lend.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROOM = 8 << 20, /* pinned bytes for what goes out, and for what comes in */
    DONE_BYTES = 4096
};

struct job { /* one rank's call */
    struct job *next;
    struct kolo_relay *relay;
    struct kolo_gpu_call call;
    struct kolo_counts v;
    struct kolo_message *message; /* [nmessages], in place of a collective; call.stream counts */
    int nmessages;
    struct job *kept; /* of a graph, which may bring it again: the next of those */
    bool captured;
};

struct kolo_relay {
    struct kolo_comm *comm, *host;
    struct kolo_gpu gpu;
    bool fuses;
    char *pinned[2]; /* ROOM bytes each; IN, OUT */
    _Atomic uint32_t *done;
    kolo_cuda_address done_at;
    kolo_cuda_stream stream; /* the thread's */
    struct kolo_lend lend;   /* the thread's */

    /* Of what follows, held in calls that enqueue: those may wait until a stream has room, which
     * may wait for the thread. */
    pthread_mutex_t order;
    kolo_cuda_stream user; /* of the last call outside graphs, */
    kolo_cuda_event event; /* which is recorded after it */
    bool recorded;
    struct job *kept;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t came;
    struct job *first, **last;
    bool aborted, stop;
    pthread_t thread;
};

const struct kolo_gpu *kolo_relay_gpu(const struct kolo_relay *relay)
{
    return &relay->gpu;
}

/* ---- through the host: blocks of a call, tile after tile ---- */

struct block {
    size_t at, len; /* elements */
};

struct side { /* IN or OUT of a call */
    bool in;
    char *user, *host;
};

/* The call as the host's communicator would see it. */
static struct kolo_call host_call(const struct job *job)
{
    const struct kolo_gpu_call *c = &job->call;
    return (struct kolo_call){.comm = job->relay->host,
                              .coll = c->coll,
                              .in = c->in,
                              .out = c->out,
                              .count = c->count,
                              .type = c->type,
                              .op = c->op,
                              .root = c->root,
                              .v = job->v};
}

static bool one_block(const struct kolo_call *call, bool in)
{
    return kolo_coll_flat(call->coll) ||
           (in ? call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_ALL_GATHER
               : call->coll == KOLO_COLL_SCATTER || call->coll == KOLO_COLL_REDUCE_SCATTER);
}

static int blocks_of(const struct kolo_call *call, bool in)
{
    const bool has = in ? kolo_call_has_in(call) : kolo_call_has_out(call);
    return !has ? 0 : one_block(call, in) ? 1 : call->comm->nranks;
}

static struct block block_of(const struct kolo_call *call, bool in, int q)
{
    const size_t n = (size_t)call->comm->nranks, *all = call->v.all;
    if (all == NULL) {
        return (struct block){(size_t)q * call->count, call->count};
    }
    if (one_block(call, in)) {
        return (struct block){0, all[call->comm->rank]};
    }
    const size_t *own = call->coll == KOLO_COLL_ALL_TO_ALL && !in ? all + 2 * n : all;
    return (struct block){own[n + (size_t)q], own[q]};
}

static kolo_status copy(struct kolo_relay *r, const struct side *side, size_t user_at,
                        size_t host_at, size_t bytes)
{
    const kolo_cuda_address at = (uintptr_t)side->user + user_at;
    if (bytes == 0) {
        return KOLO_OK;
    }
    return side->in ? KOLO_CUDA(&r->gpu, "cuMemcpyDtoHAsync",
                                memcpy_dtoh_async(side->host + host_at, at, bytes, r->stream))
                    : KOLO_CUDA(&r->gpu, "cuMemcpyHtoDAsync",
                                memcpy_htod_async(at, side->host + host_at, bytes, r->stream));
}

static kolo_status finish(struct kolo_relay *r)
{
    return KOLO_CUDA(&r->gpu, "cuStreamSynchronize", stream_synchronize(r->stream));
}

/* Elements [first, first + count) of all blocks of a side, which are one after the other there. */
static kolo_status copy_tile(struct kolo_relay *r, const struct kolo_call *call,
                             const struct side *side, size_t first, size_t count)
{
    const size_t elem = kolo_type_bytes(call->type);
    for (int q = 0; q < blocks_of(call, side->in); q++) {
        const struct block b = block_of(call, side->in, q);
        KOLO_TRY(copy(r, side, (b.at + first) * elem, (size_t)q * count * elem, count * elem));
    }
    return finish(r);
}

/* Blocks of a v-form, which lie there as they do in the user's buffer. */
static kolo_status copy_blocks(struct kolo_relay *r, const struct kolo_call *call,
                               const struct side *side)
{
    const size_t elem = kolo_type_bytes(call->type);
    for (int q = 0; q < blocks_of(call, side->in); q++) {
        const struct block b = block_of(call, side->in, q);
        KOLO_TRY(copy(r, side, b.at * elem, b.at * elem, b.len * elem));
    }
    return finish(r);
}

static kolo_status stage_tiles(struct kolo_relay *r, const struct kolo_call *call,
                               const struct side side[2])
{
    const size_t elem = kolo_type_bytes(call->type);
    const size_t blocks = kolo_coll_flat(call->coll) ? 1 : (size_t)call->comm->nranks;
    const size_t most = kolo_max(1, ROOM / (elem * blocks)); /* alike on all ranks */
    for (size_t first = 0; first < call->count; first += most) {
        struct kolo_call tile = *call;
        tile.count = kolo_min(most, call->count - first);
        tile.in = side[0].host;
        tile.out = side[1].host;
        KOLO_TRY(copy_tile(r, call, &side[0], first, tile.count));
        KOLO_TRY(kolo_call_run(&tile, NULL));
        KOLO_TRY(copy_tile(r, call, &side[1], first, tile.count));
    }
    return KOLO_OK;
}

/* Memory for what a side spans, which is pinned unless it is long. */
static kolo_status span_side(const struct kolo_call *call, struct side *side, void **own_out)
{
    const bool has = blocks_of(call, side->in) > 0;
    const size_t bytes = has ? kolo_call_span(call, side->in) * kolo_type_bytes(call->type) : 0;
    if (bytes <= ROOM) {
        return KOLO_OK;
    }
    *own_out = malloc(bytes);
    side->host = *own_out;
    return side->host != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu bytes of a GPU", bytes);
}

static kolo_status stage_v(struct kolo_relay *r, const struct kolo_call *call, struct side side[2])
{
    const size_t words = 4 * (size_t)call->comm->nranks;
    struct kolo_call whole = *call;
    void *own[2] = {NULL, NULL};
    kolo_status st = span_side(call, &side[0], &own[0]);
    st = st == KOLO_OK ? span_side(call, &side[1], &own[1]) : st;
    st = st == KOLO_OK ? copy_blocks(r, call, &side[0]) : st;
    if (st == KOLO_OK) {
        whole.in = side[0].host;
        whole.out = side[1].host;
        whole.v.all = malloc(words * sizeof *whole.v.all); /* the run's */
        if (whole.v.all != NULL) {
            memcpy(whole.v.all, call->v.all, words * sizeof *whole.v.all);
        }
        st = whole.v.all != NULL ? kolo_call_run(&whole, NULL)
                                 : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    st = st == KOLO_OK ? copy_blocks(r, call, &side[1]) : st;
    free(own[0]);
    free(own[1]);
    return st;
}

static kolo_status stage(struct job *job)
{
    struct kolo_relay *r = job->relay;
    struct kolo_call call = host_call(job);
    struct side side[2] = {{true, (char *)(uintptr_t)call.in, r->pinned[0]},
                           {false, call.out, r->pinned[1]}};
    const bool scales = kolo_call_reduces(&call) && call.op >= KOLO_OPS;
    if (scales) {
        KOLO_TRY(kolo_op_create_premulsum(&job->call.factor, call.type, r->host, &call.op));
    }
    const kolo_status st =
        call.v.all != NULL ? stage_v(r, &call, side) : stage_tiles(r, &call, side);
    if (scales) {
        kolo_op_destroy(call.op, r->host);
    }
    return st;
}

/* ---- messages ---- */

struct carried { /* a message, on the host */
    void *buf;
    struct kolo_recv_info info;
};

static size_t bytes_of(const struct kolo_message *m)
{
    return m->count * kolo_type_bytes(m->type);
}

static kolo_status load_messages(const struct job *job, struct carried *on_host)
{
    for (int i = 0; i < job->nmessages; i++) {
        const struct kolo_message *m = &job->message[i];
        on_host[i].info.size = sizeof on_host[i].info;
        on_host[i].buf = malloc(kolo_max(1, bytes_of(m)));
        if (on_host[i].buf == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu bytes of a GPU", bytes_of(m));
        }
        if (m->is_send) {
            const struct side side = {true, m->buf, on_host[i].buf};
            KOLO_TRY(copy(job->relay, &side, 0, 0, bytes_of(m)));
        }
    }
    return finish(job->relay);
}

static kolo_status exchange_messages(const struct job *job, struct carried *on_host)
{
    KOLO_TRY(kolo_group_begin());
    kolo_status st = KOLO_OK;
    for (int i = 0; i < job->nmessages && st == KOLO_OK; i++) {
        struct kolo_message m = job->message[i];
        m.buf = on_host[i].buf;
        m.count = bytes_of(&job->message[i]);
        m.type = KOLO_UINT8;
        m.info = m.is_send ? NULL : &on_host[i].info;
        st = kolo_message_run(&m, job->relay->host, NULL);
    }
    const kolo_status ended = kolo_group_end();
    return st == KOLO_OK ? ended : st;
}

static kolo_status store_messages(const struct job *job, const struct carried *on_host)
{
    for (int i = 0; i < job->nmessages; i++) {
        const struct kolo_message *m = &job->message[i];
        const struct side side = {false, m->buf, on_host[i].buf};
        if (m->is_send) {
            continue;
        }
        KOLO_TRY(copy(job->relay, &side, 0, 0, on_host[i].info.bytes));
        if (m->info != NULL) {
            m->info->source = on_host[i].info.source;
            m->info->tag = on_host[i].info.tag;
            m->info->bytes = on_host[i].info.bytes;
        }
    }
    return finish(job->relay);
}

static kolo_status carry(const struct job *job)
{
    struct carried *on_host = calloc((size_t)job->nmessages, sizeof *on_host);
    if (on_host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", job->nmessages);
    }
    kolo_status st = load_messages(job, on_host);
    st = st == KOLO_OK ? exchange_messages(job, on_host) : st;
    st = st == KOLO_OK ? store_messages(job, on_host) : st;
    for (int i = 0; i < job->nmessages; i++) {
        free(on_host[i].buf);
    }
    free(on_host);
    return st;
}

/* ---- the thread ---- */

static kolo_status serve(struct job *job)
{
    struct kolo_relay *r = job->relay;
    const struct kolo_call call = host_call(job);
    bool fused = false;
    if (job->message != NULL) {
        return carry(job);
    }
    if (call.coll == KOLO_COLL_BARRIER) {
        return kolo_barrier(r->host, NULL);
    }
    if (r->fuses && !kolo_call_by_messages(&call)) {
        struct kolo_gpu_call own = job->call;
        own.stream = r->stream;
        KOLO_TRY(kolo_lend_run(&r->lend, &own, &fused));
        r->fuses = fused; /* alike on all ranks; what failed once fails again */
    }
    return fused ? KOLO_OK : stage(job);
}

static struct job *next_job(struct kolo_relay *r, bool *aborted_out)
{
    pthread_mutex_lock(&r->lock);
    while (r->first == NULL && !r->stop) {
        pthread_cond_wait(&r->came, &r->lock);
    }
    struct job *job = r->first;
    if (job != NULL) {
        r->first = job->next;
        r->last = r->first == NULL ? &r->first : r->last;
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

/* End the user's communicator, for the rank that is at fault as the host's members know it: they
 * have the same numbers. */
static void fail(struct kolo_relay *r, kolo_status st)
{
    struct kolo_failure found = {.size = sizeof found};
    const bool known = kolo_comm_failure(r->host, &found) == KOLO_OK && found.status != KOLO_OK;
    if (known) {
        kolo_error_set(found.text);
    }
    (void)kolo_comm_fail_of(r->comm, st, known ? found.rank : -1);
}

static void *run(void *arg)
{
    struct kolo_relay *r = arg;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED: another thread's capture is not this one's */
    bool aborted = false;
    kolo_status st = KOLO_CUDA(&r->gpu, "cuThreadExchangeStreamCaptureMode",
                               thread_exchange_stream_capture_mode(&mode));
    st = st == KOLO_OK ? kolo_gpu_enter(&r->gpu) : st;
    const bool entered = st == KOLO_OK;
    for (struct job *job; (job = next_job(r, &aborted)) != NULL;) {
        st = st == KOLO_OK && !aborted ? serve(job) : st;
        if (st != KOLO_OK && !aborted) {
            fail(r, st);
        }
        atomic_store_explicit(r->done, 1, memory_order_release);
        if (!job->captured) {
            job_free(job);
        }
    }
    kolo_lend_close(&r->lend);
    if (entered) {
        kolo_gpu_leave(&r->gpu);
    }
    return NULL;
}

/* The driver calls this when the stream has come to a call; it may not call the driver. */
static void come(void *arg)
{
    struct job *job = arg;
    struct kolo_relay *r = job->relay;
    pthread_mutex_lock(&r->lock);
    job->next = NULL;
    *r->last = job;
    r->last = &job->next;
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->lock);
}

/* ---- enqueueing ---- */

static bool is_aborted(struct kolo_relay *r)
{
    pthread_mutex_lock(&r->lock);
    const bool aborted = r->aborted;
    pthread_mutex_unlock(&r->lock);
    return aborted;
}

static kolo_status enqueue_locked(struct kolo_relay *r, struct job *job, bool *taken_out)
{
    const kolo_stream stream = job->call.stream;
    struct kolo_cuda_stream_op ops[] = {
        {.kind = KOLO_CUDA_WAIT_32, .at = r->done_at, .value = 1, .flags = KOLO_CUDA_WAIT_EQUAL},
        {.kind = KOLO_CUDA_WRITE_32, .at = r->done_at, .value = 0}};
    int capturing = 0;
    if (is_aborted(r)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuStreamIsCapturing", stream_is_capturing(stream, &capturing)));
    job->captured = capturing != 0;
    if (r->recorded && r->user != stream && !job->captured) {
        KOLO_TRY(KOLO_CUDA(&r->gpu, "cuStreamWaitEvent", stream_wait_event(stream, r->event, 0)));
    }
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuLaunchHostFunc", launch_host_func(stream, come, job)));
    *taken_out = true; /* and gone, if the stream has come to it; what is captured stays */
    if (capturing != 0) {
        job->kept = r->kept;
        r->kept = job;
    }
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuStreamBatchMemOp", stream_batch_mem_op(stream, 2, ops, 0)));
    if (capturing == 0) {
        r->user = stream;
        r->recorded = true;
        return KOLO_CUDA(&r->gpu, "cuEventRecord", event_record(r->event, stream));
    }
    return KOLO_OK;
}

/* Takes the job. */
static kolo_status enqueue(struct kolo_relay *r, struct job *job)
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
    }
    return st;
}

kolo_status kolo_relay_enqueue(struct kolo_relay *r, const struct kolo_gpu_call *call,
                               struct kolo_counts *v)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        free(v->all);
        v->all = NULL;
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    *job = (struct job){.relay = r, .call = *call, .v = *v};
    v->all = NULL;
    return enqueue(r, job);
}

kolo_status kolo_relay_enqueue_messages(struct kolo_relay *r, const struct kolo_message *m, int n,
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
    *job = (struct job){.relay = r, .call = {.stream = stream}, .message = all, .nmessages = n};
    return enqueue(r, job);
}

void kolo_relay_abort(struct kolo_relay *r)
{
    pthread_mutex_lock(&r->lock);
    r->aborted = true;
    pthread_mutex_unlock(&r->lock);
    kolo_comm_abort(r->host);
}

/* ---- coming up, and going down ---- */

static kolo_status make(struct kolo_relay *r)
{
    enum { PORTABLE = 1, DEVICEMAP = 2, HIGHEST = -100 /* becomes what there is */ };
    void *pinned = NULL;
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuMemHostAlloc",
                       mem_host_alloc(&pinned, 2 * ROOM + DONE_BYTES, PORTABLE | DEVICEMAP)));
    r->pinned[0] = pinned;
    r->pinned[1] = r->pinned[0] + ROOM;
    r->done = (_Atomic uint32_t *)(void *)(r->pinned[1] + ROOM);
    atomic_store(r->done, 0);
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuMemHostGetDevicePointer",
                       mem_host_get_device_pointer(&r->done_at, (void *)(uintptr_t)r->done, 0)));
    /* Streams of one priority share hardware queues, where one that waits may be ahead of ours. */
    KOLO_TRY(KOLO_CUDA(&r->gpu, "cuStreamCreateWithPriority",
                       stream_create_with_priority(&r->stream, KOLO_CUDA_NON_BLOCKING, HIGHEST)));
    KOLO_TRY(
        KOLO_CUDA(&r->gpu, "cuEventCreate", event_create(&r->event, KOLO_CUDA_DISABLE_TIMING)));
    if (pthread_create(&r->thread, NULL, run, r) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "no thread for calls on GPU memory");
    }
    return KOLO_OK;
}

static void relay_free(struct kolo_relay *r)
{
    if (kolo_gpu_enter(&r->gpu) == KOLO_OK) {
        if (r->event != NULL) {
            (void)r->gpu.cuda->event_destroy(r->event);
        }
        if (r->stream != NULL) {
            (void)r->gpu.cuda->stream_destroy(r->stream);
        }
        if (r->pinned[0] != NULL) {
            (void)r->gpu.cuda->mem_free_host(r->pinned[0]);
        }
        kolo_gpu_leave(&r->gpu);
    }
    while (r->kept != NULL) {
        struct job *job = r->kept;
        r->kept = job->kept;
        job_free(job);
    }
    pthread_cond_destroy(&r->came);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->order);
    kolo_comm_destroy(r->host);
    free(r);
}

kolo_status kolo_relay_open(struct kolo_comm *comm, struct kolo_comm *host,
                            const struct kolo_gpu *gpu, bool fuses, struct kolo_relay **out)
{
    struct kolo_relay *r = calloc(1, sizeof *r);
    if (r == NULL) {
        kolo_comm_destroy(host);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator of a GPU");
    }
    r->comm = comm;
    r->host = host;
    r->gpu = *gpu;
    r->fuses = fuses;
    r->last = &r->first;
    r->lend = (struct kolo_lend){.host = host, .gpu = &r->gpu};
    pthread_mutex_init(&r->order, NULL);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->came, NULL);
    kolo_status st = kolo_gpu_enter(&r->gpu);
    if (st == KOLO_OK) {
        st = make(r);
        kolo_gpu_leave(&r->gpu);
    }
    if (st != KOLO_OK) {
        relay_free(r);
        return st;
    }
    *out = r;
    return KOLO_OK;
}

static bool is_over(struct kolo_relay *r)
{
    pthread_mutex_lock(&r->order);
    const bool over = !r->recorded || r->gpu.cuda->event_query(r->event) != KOLO_CUDA_NOT_READY;
    pthread_mutex_unlock(&r->order);
    return over;
}

static void drain(struct kolo_relay *r, int timeout_ms)
{
    const struct timespec nap = {0, 100 * 1000};
    double end = kolo_now_us() + timeout_ms * 1e3;
    bool aborted = false;
    if (kolo_gpu_enter(&r->gpu) != KOLO_OK) {
        return;
    }
    while (!is_over(r)) {
        if (kolo_now_us() > end) {
            if (aborted) {
                break;
            }
            kolo_relay_abort(r);
            aborted = true;
            end += 10e6;
        }
        nanosleep(&nap, NULL);
    }
    kolo_gpu_leave(&r->gpu);
}

void kolo_relay_close(struct kolo_relay *r, int timeout_ms)
{
    drain(r, timeout_ms);
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->came);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    struct kolo_gpu gpu = r->gpu;
    relay_free(r);
    kolo_gpu_close(&gpu);
}
