// SPDX-License-Identifier: Apache-2.0
/* The calls of ranks that share a GPU. Each call is compared with the calls of the other ranks, and
 * then enqueued. */
#include "gpu/context/pending.h"
#include "gpu/fused/inner.h"
#include "plan/plan.h"

#include <stdlib.h>

/* ---- operations of streams ---- */

static void add_addresses(const struct kolo_fused_path *path, int rank,
                          const struct kolo_gpu_call *call, struct kolo_stream_ops *ops)
{
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(path, rank, in),
                        (uintptr_t)call->args.in);
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(path, rank, out),
                        (uintptr_t)call->args.out);
    kolo_stream_ops_add(ops, call->stream, KOLO_CUDA_WRITE_64, FIELD(path, rank, factor),
                        call->args.factor);
}

/* ---- order of a rank's calls on different streams ---- */

static kolo_status follow_calls(const struct kolo_fused_path *path, int rank, kolo_stream stream)
{
    bool captured = false;
    KOLO_TRY(kolo_gpu_is_capturing(&path->gpu, stream, &captured));
    return kolo_gpu_order_follow(&path->gpu, &path->part[rank].order, stream, captured);
}

static kolo_status note_call(struct kolo_fused_path *path, int rank, kolo_stream stream)
{
    bool captured = false;
    KOLO_TRY(kolo_gpu_is_capturing(&path->gpu, stream, &captured));
    return kolo_gpu_order_note(&path->gpu, &path->part[rank].order, stream, captured);
}

/* ---- whether all ranks make the same call ---- */

static kolo_status check_same(const struct kolo_fused_recent *r, const struct kolo_gpu_call *call,
                              int rank, uint64_t key)
{
    if (r->key == key) {
        return KOLO_OK;
    }
    return kolo_fail(KOLO_ERR_MISMATCH,
                     "ranks %d and %d are in different calls: call %llu of GPU memory is %s of %zu "
                     "%s on rank %d, %s of %zu %s on rank %d",
                     r->rank, rank, (unsigned long long)r->number + 1, kolo_coll_name(r->coll),
                     r->count, kolo_type_name(r->type), r->rank, kolo_coll_name(call->args.coll),
                     call->args.count, kolo_type_name(call->args.type), rank);
}

/* In a graph the GPU waits, and a stream must not wait for itself. */
static kolo_status check_stream(const struct kolo_fused_path *path,
                                const struct kolo_fused_recent *r, const struct kolo_gpu_call *call,
                                int rank)
{
    for (int q = 0; q < path->nranks; q++) {
        if (q != rank && (r->shared_by >> q & 1) != 0 && r->stream[q] == call->stream) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "stream %p is rank %d's in this call, too; in a graph ranks need "
                             "streams of their own, or a group with the calls of all of them",
                             call->stream, q);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_fused_compare(struct kolo_fused_path *path, int rank,
                               const struct kolo_gpu_call *call, bool apart)
{
    const uint64_t number = path->part[rank].calls, key = kolo_gpu_call_key(call, path->nranks);
    struct kolo_fused_recent *r = &path->recent[number % KOLO_FUSED_RECENT];
    if (r->shared_by == 0 || r->number < number) {
        *r = (struct kolo_fused_recent){.number = number,
                                        .key = key,
                                        .rank = rank,
                                        .coll = call->args.coll,
                                        .type = call->args.type,
                                        .count = call->args.count,
                                        .apart = apart};
    }
    if (r->number != number) { /* the other ranks are far ahead; their calls are no longer kept */
        return KOLO_OK;
    }
    if (r->apart != apart) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "rank %d's call is in a graph, and rank %d's is not; all ranks capture a "
                         "call, or none does",
                         apart ? rank : r->rank, apart ? r->rank : rank);
    }
    KOLO_TRY(apart ? check_stream(path, r, call, rank) : KOLO_OK);
    KOLO_TRY(check_same(r, call, rank, key));
    r->shared_by |= UINT64_C(1) << rank;
    r->stream[rank] = call->stream;
    return KOLO_OK;
}

/* ---- enqueueing ---- */

/* Rank 0's stream waits for all ranks, runs the kernel, and tells all ranks. */
static kolo_status lead_call(struct kolo_fused_path *path, const struct kolo_gpu_call *call)
{
    struct kolo_stream_ops ops = {.cuda = path->gpu.cuda};
    struct kolo_fused_launch argument = {.table = path->table};
    add_addresses(path, 0, call, &ops);
    for (int q = 1; q < path->nranks; q++) {
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WAIT_32, FIELD(path, q, arrived), 1);
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(path, q, arrived), 0);
    }
    KOLO_TRY(kolo_stream_ops_flush(&ops));
    KOLO_TRY(kolo_gpu_launch(&path->gpu, path->nranks, call, &argument));
    for (int q = 1; q < path->nranks; q++) {
        kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(path, q, done), 1);
    }
    return kolo_stream_ops_flush(&ops);
}

static kolo_status attend_call(struct kolo_fused_path *path, int rank,
                               const struct kolo_gpu_call *call)
{
    struct kolo_stream_ops ops = {.cuda = path->gpu.cuda};
    add_addresses(path, rank, call, &ops);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(path, rank, arrived), 1);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WAIT_32, FIELD(path, rank, done), 1);
    kolo_stream_ops_add(&ops, call->stream, KOLO_CUDA_WRITE_32, FIELD(path, rank, done), 0);
    return kolo_stream_ops_flush(&ops);
}

/* Whether some messages are in a graph. */
static kolo_status ask_captured(const struct kolo_fused_path *path,
                                struct kolo_gpu_message *message, size_t n, bool *any_out)
{
    for (size_t i = 0; i < n; i++) {
        KOLO_TRY(kolo_gpu_is_capturing(&path->gpu, message[i].stream, &message[i].captured));
        *any_out = *any_out || message[i].captured;
    }
    return KOLO_OK;
}

/* Enqueue the parts of n ranks from `first` on; call[i] is the call of rank first + i. */
static kolo_status send_blocks(struct kolo_fused_path *path,
                               const struct kolo_gpu_call *const *call, int first, int n)
{
    struct kolo_gpu_message *message = calloc((size_t)(2 * path->nranks * n), sizeof *message);
    size_t messages = 0;
    if (message == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for blocks of %d ranks", path->nranks);
    }
    for (int i = 0; i < n; i++) {
        messages += kolo_gpu_p2p_blocks(call[i], first + i, path->nranks, message + messages);
    }
    bool captured = false;
    kolo_status st = ask_captured(path, message, messages, &captured);
    /* No thread waits: the other ends are here, or the call is in a graph. */
    st = st == KOLO_OK ? kolo_gpu_p2p_enqueue(path->p2p, message, messages, 0) : st;
    free(message);
    return st;
}

/* From now on streams may wait for calls of other threads. */
static void count_waits(struct kolo_fused_path *path)
{
    pthread_mutex_lock(&path->lock);
    const bool first = !path->waits;
    path->waits = true;
    pthread_mutex_unlock(&path->lock);
    if (first) {
        kolo_pending_enqueue_begin();
        kolo_pending_enqueue_end();
    }
}

static bool is_aborted(struct kolo_fused_path *path)
{
    pthread_mutex_lock(&path->lock);
    const bool aborted = path->aborted;
    pthread_mutex_unlock(&path->lock);
    return aborted;
}

static kolo_status enqueue_locked(struct kolo_fused_path *path, int rank,
                                  const struct kolo_gpu_call *call)
{
    const uintptr_t stream = (uintptr_t)call->stream;
    if (is_aborted(path)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    if (stream <= 1) { /* the default stream, NULL or cudaStreamLegacy */
        return kolo_fail(KOLO_ERR_INVALID,
                         "stream is the default stream, which waits for all others; give each rank "
                         "one of its own (cudaStreamNonBlocking), or the calls of all ranks in one "
                         "group");
    }
    pthread_mutex_lock(&path->lock);
    const kolo_status same = kolo_fused_compare(path, rank, call, true);
    pthread_mutex_unlock(&path->lock);
    KOLO_TRY(same);
    count_waits(path);
    KOLO_TRY(follow_calls(path, rank, call->stream));
    KOLO_TRY(kolo_coll_by_messages(&call->args) ? send_blocks(path, &call, rank, 1)
             : rank == 0                        ? lead_call(path, call)
                                                : attend_call(path, rank, call));
    KOLO_TRY(note_call(path, rank, call->stream));
    path->part[rank].calls++;
    return KOLO_OK;
}

kolo_status kolo_fused_path_enqueue(struct kolo_fused_path *path, int rank,
                                    const struct kolo_gpu_call *call)
{
    KOLO_TRY(kolo_gpu_enter(&path->gpu));
    pthread_mutex_lock(&path->part[rank].lock);
    const kolo_status st = enqueue_locked(path, rank, call);
    pthread_mutex_unlock(&path->part[rank].lock);
    kolo_gpu_leave(&path->gpu);
    return st;
}

/* The first rank whose stream is that of `rank`. */
static int first_on(const struct kolo_gpu_call *const *call, int rank)
{
    int q = 0;
    while (call[q]->stream != call[rank]->stream) {
        q++;
    }
    return q;
}

/* Whether each rank's stream captures. Each stream is asked once. */
static kolo_status find_captured(const struct kolo_fused_path *path,
                                 const struct kolo_gpu_call *const *call,
                                 bool captured[KOLO_FUSED_RANKS])
{
    for (int r = 0; r < path->nranks; r++) {
        const int first = first_on(call, r);
        captured[r] = captured[first];
        KOLO_TRY(first == r ? kolo_gpu_is_capturing(&path->gpu, call[r]->stream, &captured[r])
                            : KOLO_OK);
    }
    return KOLO_OK;
}

static kolo_status follow_all(const struct kolo_fused_path *path,
                              const struct kolo_gpu_call *const *call,
                              bool captured[KOLO_FUSED_RANKS])
{
    KOLO_TRY(find_captured(path, call, captured));
    for (int r = 0; r < path->nranks; r++) {
        const struct kolo_gpu_order *order = &path->part[r].order;
        const int first = first_on(call, r);
        const bool done = first < r && path->part[first].order.last == order->last;
        KOLO_TRY(done ? KOLO_OK
                      : kolo_gpu_order_follow(&path->gpu, order, call[r]->stream, captured[r]));
    }
    return KOLO_OK;
}

/* The streams of the other ranks join rank 0's stream before the kernel. fork_streams() lets them
 * go on after it. */
static kolo_status join_streams(struct kolo_fused_path *path,
                                const struct kolo_gpu_call *const *call)
{
    for (int r = 1; r < path->nranks; r++) {
        if (first_on(call, r) == r) {
            KOLO_TRY(
                CHECK(path, "cuEventRecord", event_record(path->part[r].joint, call[r]->stream)));
            KOLO_TRY(CHECK(path, "cuStreamWaitEvent",
                           stream_wait_event(call[0]->stream, path->part[r].joint, 0)));
        }
    }
    return KOLO_OK;
}

static kolo_status fork_streams(struct kolo_fused_path *path,
                                const struct kolo_gpu_call *const *call)
{
    bool several = false;
    for (int r = 1; r < path->nranks; r++) {
        several = several || first_on(call, r) == r;
    }
    if (several) {
        KOLO_TRY(CHECK(path, "cuEventRecord", event_record(path->part[0].joint, call[0]->stream)));
    }
    for (int r = 1; r < path->nranks; r++) {
        if (first_on(call, r) == r) {
            KOLO_TRY(CHECK(path, "cuStreamWaitEvent",
                           stream_wait_event(call[r]->stream, path->part[0].joint, 0)));
        }
    }
    return KOLO_OK;
}

/* Behind a kernel of all ranks one event is enough: it is in rank 0's stream, for which the other
 * streams wait. */
static kolo_status note_kernel(struct kolo_fused_path *path,
                               const struct kolo_gpu_call *const *call, bool captured)
{
    if (captured) {
        return KOLO_OK;
    }
    KOLO_TRY(CHECK(path, "cuEventRecord", event_record(path->whole, call[0]->stream)));
    for (int r = 0; r < path->nranks; r++) {
        kolo_gpu_order_share(&path->gpu, &path->part[r].order, call[r]->stream, path->whole);
    }
    return KOLO_OK;
}

static kolo_status note_all(struct kolo_fused_path *path, const struct kolo_gpu_call *const *call,
                            const bool captured[KOLO_FUSED_RANKS])
{
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(
            kolo_gpu_order_note(&path->gpu, &path->part[r].order, call[r]->stream, captured[r]));
    }
    return KOLO_OK;
}

kolo_status kolo_fused_enqueue_all(struct kolo_fused_path *path,
                                   const struct kolo_gpu_call *const *call)
{
    struct kolo_fused_launch argument = {.table = 0};
    bool captured[KOLO_FUSED_RANKS] = {false};
    const uint64_t key = kolo_gpu_call_key(call[0], path->nranks);
    const struct kolo_fused_recent first = {.number = path->part[0].calls,
                                            .key = key,
                                            .coll = call[0]->args.coll,
                                            .type = call[0]->args.type,
                                            .count = call[0]->args.count};
    if (is_aborted(path)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(check_same(&first, call[r], r, kolo_gpu_call_key(call[r], path->nranks)));
        argument.rank[r] = (struct kolo_fused_rank){.in = (uintptr_t)call[r]->args.in,
                                                    .out = (uintptr_t)call[r]->args.out,
                                                    .factor = call[r]->args.factor};
    }
    KOLO_TRY(follow_all(path, call, captured));
    if (kolo_coll_by_messages(&call[0]->args)) {
        KOLO_TRY(send_blocks(path, call, 0, path->nranks));
        KOLO_TRY(note_all(path, call, captured));
    } else {
        KOLO_TRY(join_streams(path, call));
        KOLO_TRY(kolo_gpu_launch(&path->gpu, path->nranks, call[0], &argument));
        KOLO_TRY(fork_streams(path, call));
        KOLO_TRY(note_kernel(path, call, captured[0]));
    }
    for (int r = 0; r < path->nranks; r++) {
        path->part[r].calls++;
    }
    return KOLO_OK;
}

/* ---- messages ---- */

struct on { /* whether a rank has messages in a group, and on which stream */
    bool is_there;
    kolo_stream stream;
};

static kolo_status enqueue_messages_locked(struct kolo_fused_path *path, const struct on *on,
                                           struct kolo_gpu_message *message, size_t n,
                                           int timeout_ms)
{
    bool captured = false;
    if (is_aborted(path)) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    KOLO_TRY(ask_captured(path, message, n, &captured));
    if (captured) {
        count_waits(path);
    }
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(on[r].is_there ? follow_calls(path, r, on[r].stream) : KOLO_OK);
    }
    KOLO_TRY(kolo_gpu_p2p_enqueue(path->p2p, message, n, timeout_ms));
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(on[r].is_there ? note_call(path, r, on[r].stream) : KOLO_OK);
    }
    return KOLO_OK;
}

kolo_status kolo_fused_path_enqueue_messages(struct kolo_fused_path *path,
                                             struct kolo_gpu_message *message, size_t n,
                                             int timeout_ms)
{
    struct on on[KOLO_FUSED_RANKS] = {{false, NULL}};
    for (size_t i = 0; i < n; i++) {
        on[message[i].rank] = (struct on){true, message[i].stream};
    }
    KOLO_TRY(kolo_gpu_enter(&path->gpu));
    for (int r = 0; r < path->nranks; r++) { /* in one order */
        if (on[r].is_there) {
            pthread_mutex_lock(&path->part[r].lock);
        }
    }
    const kolo_status st = enqueue_messages_locked(path, on, message, n, timeout_ms);
    for (int r = 0; r < path->nranks; r++) {
        if (on[r].is_there) {
            pthread_mutex_unlock(&path->part[r].lock);
        }
    }
    kolo_gpu_leave(&path->gpu);
    return st;
}

const struct kolo_gpu *kolo_fused_path_gpu(const struct kolo_fused_path *path)
{
    return &path->gpu;
}
