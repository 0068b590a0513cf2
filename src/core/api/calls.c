// SPDX-License-Identifier: Apache-2.0
/* The public collectives, of which each one fills a struct kolo_call, checks it and submits it; and
 * the calls of streams that need no server. */
#include "core/call/call.h"
#include "core/call/fast_path.h"
#include "core/call/queue.h"
#include "core/path.h"

#include <stdlib.h>

int kolo_version(void)
{
    return KOLO_VERSION;
}

static void record_begin(struct kolo_call *call)
{
    (void)kolo_record_begin(call->base.comm->health.slot, kolo_call_key(call),
                            kolo_call_count(call));
    call->number = kolo_comm_calls(call->base.comm);
}

kolo_status kolo_call_run(struct kolo_call *call, kolo_stream stream)
{
    KOLO_UNCANCELLED;
    const kolo_status st = kolo_call_check(call);
    if (KOLO_UNLIKELY(st != KOLO_OK)) {
        kolo_call_close(call);
        return st;
    }
    KOLO_LOG(INFO, COLL,
             "%s: opCount %llx sendbuff %p recvbuff %p count %zu datatype %d op %u root %d comm %p "
             "[nranks=%d] stream %p",
             kolo_coll_title(call->args.coll), (unsigned long long)kolo_comm_calls(call->base.comm),
             call->args.in, call->args.out, call->args.count, (int)call->args.type, call->args.op,
             call->args.root, (void *)call->base.comm, call->base.comm->ranks.nranks, stream);
    record_begin(call);
    if (call->args.coll != KOLO_COLL_BARRIER && call->args.count == 0 && call->args.v.all == NULL) {
        kolo_call_record_end(call);
        return KOLO_OK; /* no bytes to move, on every rank */
    }
    kolo_status taken = KOLO_OK;
    if (kolo_path_take(call, call->base.comm, stream, &taken)) {
        return taken;
    }
    return kolo_call_submit(call, stream);
}

static __attribute__((noinline)) kolo_status run_args(const struct kolo_coll_args *args,
                                                      struct kolo_comm *comm, kolo_stream stream)
{
    struct kolo_call call = {.base.comm = comm, .args = *args};
    return kolo_call_run(&call, stream);
}

/* Inlined, so that the arguments of a cached call stay in registers. */
static inline __attribute__((always_inline)) kolo_status
submit(const struct kolo_coll_args *args, struct kolo_comm *comm, kolo_stream stream)
{
    kolo_status st;
    if (KOLO_LIKELY(stream == NULL) && KOLO_LIKELY(kolo_fast_path(args, comm, &st))) {
        return st;
    }
    const struct kolo_coll_args again = kolo_coll_args_again(args);
    return run_args(&again, comm, stream);
}

static inline __attribute__((always_inline)) kolo_status
all_reduce(const void *send, void *recv, size_t count, enum kolo_type type, kolo_op op,
           enum kolo_codec codec, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_ALL_REDUCE,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .codec = codec};
    return submit(&args, comm, stream);
}

kolo_status kolo_all_reduce(const void *send, void *recv, size_t count, enum kolo_type type,
                            kolo_op op, struct kolo_comm *comm, kolo_stream stream)
{
    return all_reduce(send, recv, count, type, op, KOLO_CODEC_NONE, comm, stream);
}

kolo_status kolo_all_reduce_codec(const void *send, void *recv, size_t count, enum kolo_type type,
                                  kolo_op op, enum kolo_codec codec, struct kolo_comm *comm,
                                  kolo_stream stream)
{
    return all_reduce(send, recv, count, type, op, codec, comm, stream);
}

kolo_status kolo_reduce(const void *send, void *recv, size_t count, enum kolo_type type, kolo_op op,
                        int root, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_REDUCE,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .root = root};
    return submit(&args, comm, stream);
}

kolo_status kolo_broadcast(const void *send, void *recv, size_t count, enum kolo_type type,
                           int root, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_BROADCAST,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .root = root};
    return submit(&args, comm, stream);
}

kolo_status kolo_gather(const void *send, void *recv, size_t count, enum kolo_type type, int root,
                        struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_GATHER,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .root = root};
    return submit(&args, comm, stream);
}

kolo_status kolo_scatter(const void *send, void *recv, size_t count, enum kolo_type type, int root,
                         struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_SCATTER,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .root = root};
    return submit(&args, comm, stream);
}

static inline __attribute__((always_inline)) kolo_status
all_gather(const void *send, void *recv, size_t count, enum kolo_type type, enum kolo_codec codec,
           struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_ALL_GATHER,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .codec = codec};
    return submit(&args, comm, stream);
}

kolo_status kolo_all_gather(const void *send, void *recv, size_t count, enum kolo_type type,
                            struct kolo_comm *comm, kolo_stream stream)
{
    return all_gather(send, recv, count, type, KOLO_CODEC_NONE, comm, stream);
}

kolo_status kolo_all_gather_codec(const void *send, void *recv, size_t count, enum kolo_type type,
                                  enum kolo_codec codec, struct kolo_comm *comm, kolo_stream stream)
{
    return all_gather(send, recv, count, type, codec, comm, stream);
}

static inline __attribute__((always_inline)) kolo_status
reduce_scatter(const void *send, void *recv, size_t count, enum kolo_type type, kolo_op op,
               enum kolo_codec codec, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_REDUCE_SCATTER,
                                        .in = send,
                                        .out = recv,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .codec = codec};
    return submit(&args, comm, stream);
}

kolo_status kolo_reduce_scatter(const void *send, void *recv, size_t count, enum kolo_type type,
                                kolo_op op, struct kolo_comm *comm, kolo_stream stream)
{
    return reduce_scatter(send, recv, count, type, op, KOLO_CODEC_NONE, comm, stream);
}

kolo_status kolo_reduce_scatter_codec(const void *send, void *recv, size_t count,
                                      enum kolo_type type, kolo_op op, enum kolo_codec codec,
                                      struct kolo_comm *comm, kolo_stream stream)
{
    return reduce_scatter(send, recv, count, type, op, codec, comm, stream);
}

kolo_status kolo_all_to_all(const void *send, void *recv, size_t count, enum kolo_type type,
                            struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {
        .coll = KOLO_COLL_ALL_TO_ALL, .in = send, .out = recv, .count = count, .type = type};
    return submit(&args, comm, stream);
}

kolo_status kolo_barrier(struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_coll_args args = {.coll = KOLO_COLL_BARRIER, .type = KOLO_INT8};
    return submit(&args, comm, stream);
}

/* ---- streams ---- */

kolo_status kolo_stream_create(kolo_stream *out)
{
    KOLO_UNCANCELLED;
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    struct kolo_stream_queue *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a stream");
    }
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return KOLO_OK;
}

kolo_status kolo_stream_set_timeout(kolo_stream stream, int timeout_ms)
{
    KOLO_UNCANCELLED;
    struct kolo_stream_queue *s = stream;
    if (s == NULL || timeout_ms < 0) {
        return s == NULL ? kolo_fail(KOLO_ERR_INVALID, "stream is NULL")
                         : kolo_fail(KOLO_ERR_INVALID,
                                     "timeout_ms is %d; it must be positive, or 0 for that of the "
                                     "communicator",
                                     timeout_ms);
    }
    atomic_store(&s->timeout_ms, timeout_ms);
    return KOLO_OK;
}

kolo_status kolo_stream_host_func(kolo_stream stream, void (*fn)(void *arg), void *arg)
{
    KOLO_UNCANCELLED;
    if (stream == NULL || fn == NULL || kolo_group_depth > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "%s",
                         stream == NULL ? "stream is NULL"
                         : fn == NULL   ? "fn is NULL"
                                        : "kolo_stream_host_func() inside a group");
    }
    struct kolo_host_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    call->base.kind = KOLO_QUEUED_HOST_FUNC;
    call->fn = fn;
    call->arg = arg;
    const kolo_status st = kolo_stream_submit(&call->base, stream);
    if (st != KOLO_OK) {
        free(call);
    }
    return st;
}
