// SPDX-License-Identifier: Apache-2.0
/* Enqueueing the copies of messages, once both ends have come. */
#include "gpu/fused/p2p.h"

#include "gpu/context/deadline.h"
#include "gpu/context/stream_ops.h"
#include "gpu/fused/p2p_match.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct use { /* of flags, by a graph */
    struct kolo_gpu_p2p *p2p;
    size_t flags;
};

/* ---- opening and closing ---- */

size_t kolo_gpu_p2p_bytes(void)
{
    return KOLO_GPU_P2P_GRAPHS * sizeof(struct kolo_gpu_p2p_flags);
}

static kolo_status make_events(struct kolo_gpu_p2p *p2p)
{
    for (int r = 0; r < p2p->nranks; r++) {
        struct kolo_gpu_p2p_events *e = &p2p->events[r];
        KOLO_TRY(
            KOLO_CUDA(p2p->gpu, "cuEventCreate", event_create(&e->came, KOLO_CUDA_DISABLE_TIMING)));
        KOLO_TRY(KOLO_CUDA(p2p->gpu, "cuEventCreate",
                           event_create(&e->taken, KOLO_CUDA_DISABLE_TIMING)));
    }
    return KOLO_OK;
}

kolo_status kolo_gpu_p2p_open(const struct kolo_gpu *gpu, int nranks, void *host,
                              kolo_cuda_address at, struct kolo_gpu_p2p **out)
{
    struct kolo_gpu_p2p *p2p = calloc(1, sizeof *p2p);
    pthread_condattr_t monotonic;
    if (p2p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for messages");
    }
    p2p->gpu = gpu;
    p2p->nranks = nranks;
    p2p->host = host;
    p2p->flags = at;
    p2p->users = 1;
    pthread_mutex_init(&p2p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p2p->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = p2p; /* the caller closes it also after an error */
    return make_events(p2p);
}

/* The last user frees it. A graph may end after the path. */
static void leave(struct kolo_gpu_p2p *p2p)
{
    pthread_mutex_lock(&p2p->lock);
    const bool last = --p2p->users == 0;
    pthread_mutex_unlock(&p2p->lock);
    if (last) {
        pthread_cond_destroy(&p2p->ended);
        pthread_mutex_destroy(&p2p->lock);
        free(p2p);
    }
}

void kolo_gpu_p2p_close(struct kolo_gpu_p2p *p2p)
{
    if (p2p == NULL) {
        return;
    }
    for (int r = 0; r < p2p->nranks; r++) {
        const kolo_cuda_event made[] = {p2p->events[r].came, p2p->events[r].taken};
        for (int i = 0; i < 2; i++) {
            if (made[i] != NULL) {
                (void)p2p->gpu->cuda->event_destroy(made[i]);
            }
        }
    }
    pthread_mutex_lock(&p2p->lock);
    while (p2p->first != NULL) {
        struct kolo_gpu_p2p_post *post = p2p->first;
        p2p->first = post->next;
        free(post);
    }
    pthread_mutex_unlock(&p2p->lock);
    leave(p2p);
}

/* ---- flags of messages in graphs ---- */

static kolo_cuda_address flags_at(const struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *l)
{
    return p2p->flags + l->flags * sizeof(struct kolo_gpu_p2p_flags);
}

/* A graph is gone. A post that nobody has taken goes with it. It must not call the driver. */
static void on_graph_end(void *arg)
{
    struct use *use = arg;
    struct kolo_gpu_p2p *p2p = use->p2p;
    pthread_mutex_lock(&p2p->lock);
    p2p->uses[use->flags]--;
    for (struct kolo_gpu_p2p_post **at = &p2p->first; *at != NULL; at = &(*at)->next) {
        struct kolo_gpu_p2p_post *post = *at;
        if (post->end.captured && post->end.flags == use->flags) {
            *at = post->next;
            free(post);
            break;
        }
    }
    pthread_mutex_unlock(&p2p->lock);
    leave(p2p);
    free(use);
}

static kolo_status tie_to_graph(struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *l)
{
    struct use *use = malloc(sizeof *use);
    if (use == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    *use = (struct use){p2p, l->flags};
    pthread_mutex_lock(&p2p->lock);
    p2p->users++;
    pthread_mutex_unlock(&p2p->lock);
    return kolo_gpu_at_graph_end(p2p->gpu, l->stream, on_graph_end, use);
}

/* ---- collectives as messages ---- */

struct side { /* what a rank does with its buffer in a collective */
    const struct kolo_gpu_call *call;
    int rank;
    bool is_send;
    const size_t *counts, *displs; /* displs NULL: one block, at the start */
};

static struct kolo_gpu_message block_of(const struct side *side, int peer)
{
    const struct kolo_gpu_call *call = side->call;
    const int q = side->displs != NULL ? peer : side->rank;
    const size_t at = side->displs != NULL ? side->displs[q] * kolo_type_bytes(call->args.type) : 0;
    char *buf = side->is_send ? (char *)(uintptr_t)call->args.in : call->args.out;
    return (struct kolo_gpu_message){.rank = side->rank,
                                     .m = {.buf = buf + at,
                                           .count = side->counts[q],
                                           .type = call->args.type,
                                           .peer = peer,
                                           .tag = KOLO_GPU_P2P_BLOCK,
                                           .is_send = side->is_send},
                                     .stream = call->stream};
}

size_t kolo_gpu_p2p_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                           struct kolo_gpu_message *out)
{
    const size_t *all = call->args.v.all, *displs = all + nranks;
    const bool root = rank == call->args.root, to_all = call->args.coll == KOLO_COLL_ALL_TO_ALL;
    const bool gathers = call->args.coll == KOLO_COLL_GATHER;
    struct side one = {call, rank, gathers, all, NULL};
    struct side sends = {call, rank, true, all, displs}, recvs = {call, rank, false, all, displs};
    size_t n = 0;
    if (to_all) {
        recvs.counts = all + 2 * nranks;
        recvs.displs = all + 3 * nranks;
    } else {
        out[n++] = block_of(&one, call->args.root);
    }
    for (int q = 0; q < nranks; q++) {
        if (to_all || (root && !gathers)) {
            out[n++] = block_of(&sends, q);
        }
        if (to_all || (root && gathers)) {
            out[n++] = block_of(&recvs, q);
        }
    }
    return n;
}

/* ---- enqueueing ---- */

/* In a graph: set a flag, or wait for one and set it back. */
static void add_write(const struct kolo_gpu_p2p *p2p, struct kolo_stream_ops *ops,
                      const struct kolo_gpu_message *l, size_t member)
{
    kolo_stream_ops_add(ops, l->stream, KOLO_CUDA_WRITE_32, flags_at(p2p, l) + member, 1);
}

static void add_wait(const struct kolo_gpu_p2p *p2p, struct kolo_stream_ops *ops,
                     const struct kolo_gpu_message *l, size_t member)
{
    kolo_stream_ops_add(ops, l->stream, KOLO_CUDA_WAIT_32, flags_at(p2p, l) + member, 1);
    kolo_stream_ops_add(ops, l->stream, KOLO_CUDA_WRITE_32, flags_at(p2p, l) + member, 0);
}
#define CAME offsetof(struct kolo_gpu_p2p_flags, came)
#define GONE offsetof(struct kolo_gpu_p2p_flags, taken)

static kolo_status wait_event(const struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *l,
                              kolo_cuda_event event)
{
    return KOLO_CUDA(p2p->gpu, "cuStreamWaitEvent", stream_wait_event(l->stream, event, 0));
}

/* Outside graphs: record the event of each rank that has messages. */
static kolo_status record(const struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *message,
                          size_t n, bool taken)
{
    uint64_t done = 0;
    for (size_t i = 0; i < n; i++) {
        const struct kolo_gpu_message *l = &message[i];
        const struct kolo_gpu_p2p_events *e = &p2p->events[l->rank];
        const bool needed = taken ? l->part == KOLO_GPU_MESSAGE_COPIES && l->apart : true;
        if (needed && !l->captured && (done >> l->rank & 1) == 0) {
            done |= UINT64_C(1) << l->rank;
            KOLO_TRY(KOLO_CUDA(p2p->gpu, "cuEventRecord",
                               event_record(taken ? e->taken : e->came, l->stream)));
        }
    }
    return KOLO_OK;
}

static kolo_status add_copy(const struct kolo_gpu_p2p *p2p, struct kolo_stream_ops *ops,
                            const struct kolo_gpu_message *l)
{
    const struct kolo_gpu_message *other = &l->other->end;
    const struct kolo_gpu_message *from = l->m.is_send ? l : other, *to = l->m.is_send ? other : l;
    if (l->apart && l->captured) {
        add_wait(p2p, ops, l, CAME);
    } else if (l->apart) {
        KOLO_TRY(wait_event(p2p, l, p2p->events[other->rank].came));
    }
    KOLO_TRY(kolo_stream_ops_flush(ops));
    if (kolo_gpu_message_bytes(from) > 0 && from->m.buf != to->m.buf) {
        KOLO_TRY(KOLO_CUDA(p2p->gpu, "cuMemcpyDtoDAsync",
                           memcpy_dtod_async((uintptr_t)to->m.buf, (uintptr_t)from->m.buf,
                                             kolo_gpu_message_bytes(from), l->stream)));
    }
    if (l->apart && l->captured) {
        add_write(p2p, ops, l, GONE);
    }
    return KOLO_OK;
}

static kolo_status enqueue_all(struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *message,
                               size_t n)
{
    struct kolo_stream_ops ops = {.cuda = p2p->gpu->cuda};
    for (size_t i = 0; i < n; i++) {
        KOLO_TRY(message[i].captured ? tie_to_graph(p2p, &message[i]) : KOLO_OK);
        if (message[i].captured && message[i].part == KOLO_GPU_MESSAGE_WAITS) {
            add_write(p2p, &ops, &message[i], CAME);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (message[i].part == KOLO_GPU_MESSAGE_COPIES) {
            KOLO_TRY(add_copy(p2p, &ops, &message[i]));
        }
    }
    KOLO_TRY(record(p2p, message, n, true));
    for (size_t i = 0; i < n; i++) {
        if (message[i].captured && message[i].part == KOLO_GPU_MESSAGE_WAITS) {
            add_wait(p2p, &ops, &message[i], GONE);
        }
    }
    return kolo_stream_ops_flush(&ops);
}

/* Tell the threads whose posts this group has taken. The caller has p2p->lock. */
static void tell_posts(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message, size_t n,
                       kolo_status st)
{
    if (st != KOLO_OK) {
        (void)snprintf(p2p->text, sizeof p2p->text, "%s", kolo_error_text());
    }
    for (size_t i = 0; i < n; i++) {
        struct kolo_gpu_p2p_post *other = message[i].other;
        if (other == NULL) {
            continue;
        }
        if (!message[i].captured) {
            other->taker = message[i].rank;
            other->state = st == KOLO_OK ? KOLO_GPU_POST_DONE : KOLO_GPU_POST_FAILED;
        } else if (st == KOLO_OK) {
            free(other);
        } else { /* only kolo_gpu_p2p_release() may release its stream */
            kolo_gpu_post_insert(p2p, other);
        }
    }
    pthread_cond_broadcast(&p2p->ended);
}

/* ---- waiting for the other ends ---- */

static kolo_status say_late(const struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *l,
                            int timeout_ms)
{
    return p2p->aborted
               ? kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended")
               : kolo_fail(KOLO_ERR_TIMEOUT,
                           "rank %d waited %d ms for the other end of a message %s rank %d; one "
                           "thread has both ends in a group",
                           l->rank, timeout_ms, l->m.is_send ? "to" : "from", l->m.peer);
}

/* Wait until the other ends of all posts have come, and their threads have enqueued the copies.
 * After an error, `st` or a new one, no post is left in the list. The caller has p2p->lock. */
static kolo_status await_ends(struct kolo_gpu_p2p *p2p, const struct kolo_gpu_message *message,
                              size_t n, int timeout_ms, kolo_status st)
{
    const struct timespec end = kolo_gpu_time_in(timeout_ms);
    bool late = false;
    for (size_t i = 0; i < n; i++) {
        struct kolo_gpu_p2p_post *post = message[i].post;
        while (post != NULL &&
               (post->state == KOLO_GPU_POST_LISTED || post->state == KOLO_GPU_POST_TAKEN)) {
            if (post->state == KOLO_GPU_POST_LISTED && (st != KOLO_OK || p2p->aborted || late)) {
                st = st == KOLO_OK ? say_late(p2p, &message[i], timeout_ms) : st;
                kolo_gpu_post_drop(p2p, post);
                break;
            }
            if (post->state == KOLO_GPU_POST_LISTED) {
                late = pthread_cond_timedwait(&p2p->ended, &p2p->lock, &end) == ETIMEDOUT;
            } else { /* that thread does not wait for this one */
                pthread_cond_wait(&p2p->ended, &p2p->lock);
            }
        }
        if (post != NULL && post->state == KOLO_GPU_POST_FAILED && st == KOLO_OK) {
            kolo_error_set(p2p->text);
            st = KOLO_ERR_SYSTEM;
        }
    }
    return st;
}

/* The streams of this group go on behind the copies. */
static kolo_status follow_copies(const struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                                 size_t n, kolo_status st)
{
    for (size_t i = 0; i < n; i++) {
        struct kolo_gpu_p2p_post *post = message[i].post;
        if (post != NULL && st == KOLO_OK && message[i].part == KOLO_GPU_MESSAGE_WAITS) {
            st = wait_event(p2p, &message[i], p2p->events[post->taker].taken);
        }
        free(post);
        message[i].post = NULL;
    }
    return st;
}

kolo_status kolo_gpu_p2p_enqueue(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                                 size_t n, int timeout_ms)
{
    KOLO_TRY(record(p2p, message, n, false)); /* before another thread sees the posts */
    pthread_mutex_lock(&p2p->lock);
    kolo_status st = kolo_gpu_p2p_match(p2p, message, n);
    pthread_mutex_unlock(&p2p->lock);
    KOLO_TRY(st);
    st = enqueue_all(p2p, message, n);
    pthread_mutex_lock(&p2p->lock);
    tell_posts(p2p, message, n, st);
    st = await_ends(p2p, message, n, timeout_ms, st);
    pthread_mutex_unlock(&p2p->lock);
    return follow_copies(p2p, message, n, st);
}

/* ---- abort ---- */

void kolo_gpu_p2p_release(struct kolo_gpu_p2p *p2p)
{
    pthread_mutex_lock(&p2p->lock);
    p2p->aborted = true;
    pthread_cond_broadcast(&p2p->ended);
    for (size_t i = 0; i < p2p->top; i++) {
        __atomic_store_n(&p2p->host[i].came, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&p2p->host[i].taken, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&p2p->lock);
}
