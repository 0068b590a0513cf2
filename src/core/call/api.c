// SPDX-License-Identifier: Apache-2.0
/* The public calls: each says what it means as a struct kolo_call, has it checked, and submits it.
 */
#include "core/call/call.h"
#include "core/call/fast_path.h"
#include "core/health/watchdog.h"
#include "gpu/path.h"

#include <stdlib.h>

int kolo_version(void)
{
    return KOLO_VERSION;
}

static void record_begin(struct kolo_call *call)
{
    static _Thread_local bool calls;
    const struct kolo_args args = {.coll = call->coll,
                                   .type = call->type,
                                   .op = call->op < KOLO_OPS ? call->op : KOLO_OPS,
                                   .root = call->root};
    (void)kolo_record_begin(call->comm->post,
                            kolo_memo_what(&args) | (call->v.all != NULL ? KOLO_WHAT_V : 0),
                            call->count);
    call->number = kolo_comm_calls(call->comm);
    if (!calls) {
        calls = true;
        kolo_watch_caller();
    }
}

kolo_status kolo_call_run(struct kolo_call *call, kolo_stream stream)
{
    const kolo_status st = kolo_call_check(call);
    if (KOLO_UNLIKELY(st != KOLO_OK)) {
        kolo_call_close(call);
        return st;
    }
    KOLO_LOG(INFO, COLL,
             "%s: opCount %llx sendbuff %p recvbuff %p count %zu datatype %d op %u root %d comm %p "
             "[nranks=%d] stream %p",
             kolo_coll_title(call->coll), (unsigned long long)kolo_comm_calls(call->comm), call->in,
             call->out, call->count, (int)call->type, call->op, call->root, (void *)call->comm,
             call->comm->nranks, stream);
    record_begin(call);
    if (call->coll != KOLO_COLL_BARRIER && call->count == 0 && call->v.all == NULL) {
        kolo_call_record_end(call);
        return KOLO_OK; /* nothing to move, on every rank alike */
    }
    kolo_status taken = KOLO_OK;
    if (call->comm->device != KOLO_HOST && kolo_device_takes(call, stream, &taken)) {
        return taken;
    }
    return kolo_call_submit(call, stream);
}

static __attribute__((noinline)) kolo_status run_args(struct kolo_args args, struct kolo_comm *comm,
                                                      kolo_stream stream)
{
    struct kolo_call call = {.comm = comm,
                             .coll = args.coll,
                             .in = args.in,
                             .out = args.out,
                             .count = args.count,
                             .type = args.type,
                             .op = args.op,
                             .root = args.root};
    return kolo_call_run(&call, stream);
}

/* Inlined, so that the arguments of a call that is known stay in registers. */
static inline __attribute__((always_inline)) kolo_status
submit(const struct kolo_args *args, struct kolo_comm *comm, kolo_stream stream)
{
    kolo_status st;
    if (KOLO_LIKELY(stream == NULL) && KOLO_LIKELY(kolo_quick(args, comm, &st))) {
        return st;
    }
    return run_args(*args, comm, stream);
}

kolo_status kolo_all_reduce(const void *send, void *recv, size_t count, enum kolo_type type,
                            kolo_op op, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {.coll = KOLO_COLL_ALL_REDUCE,
                                   .in = send,
                                   .out = recv,
                                   .count = count,
                                   .type = type,
                                   .op = op};
    return submit(&args, comm, stream);
}

kolo_status kolo_reduce(const void *send, void *recv, size_t count, enum kolo_type type, kolo_op op,
                        int root, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {.coll = KOLO_COLL_REDUCE,
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
    const struct kolo_args args = {.coll = KOLO_COLL_BROADCAST,
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
    const struct kolo_args args = {.coll = KOLO_COLL_GATHER,
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
    const struct kolo_args args = {.coll = KOLO_COLL_SCATTER,
                                   .in = send,
                                   .out = recv,
                                   .count = count,
                                   .type = type,
                                   .root = root};
    return submit(&args, comm, stream);
}

kolo_status kolo_all_gather(const void *send, void *recv, size_t count, enum kolo_type type,
                            struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {
        .coll = KOLO_COLL_ALL_GATHER, .in = send, .out = recv, .count = count, .type = type};
    return submit(&args, comm, stream);
}

kolo_status kolo_reduce_scatter(const void *send, void *recv, size_t count, enum kolo_type type,
                                kolo_op op, struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {.coll = KOLO_COLL_REDUCE_SCATTER,
                                   .in = send,
                                   .out = recv,
                                   .count = count,
                                   .type = type,
                                   .op = op};
    return submit(&args, comm, stream);
}

kolo_status kolo_all_to_all(const void *send, void *recv, size_t count, enum kolo_type type,
                            struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {
        .coll = KOLO_COLL_ALL_TO_ALL, .in = send, .out = recv, .count = count, .type = type};
    return submit(&args, comm, stream);
}

kolo_status kolo_barrier(struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_args args = {.coll = KOLO_COLL_BARRIER, .type = KOLO_INT8};
    return submit(&args, comm, stream);
}

/* ---- v-forms ---- */

/* Copy a table of n counts, or one rank's own; the sum of displacement and count must not overflow.
 */
static kolo_status add_counts(struct kolo_call *call, size_t at, const char *names,
                              const size_t *counts, const size_t *displs)
{
    const size_t n = (size_t)call->comm->nranks, elem = kolo_type_bytes(call->type);
    size_t packed = 0;
    for (size_t r = 0; r < n; r++) {
        const size_t off = displs != NULL ? displs[r] : packed;
        if (elem == 0 || counts[r] > (size_t)PTRDIFF_MAX / elem ||
            off > (size_t)PTRDIFF_MAX / elem - counts[r]) {
            return kolo_fail(KOLO_ERR_INVALID, "%s of rank %zu: %zu elements at %zu overflow",
                             names, r, counts[r], off);
        }
        call->v.all[at * n + r] = counts[r];
        call->v.all[(at + 1) * n + r] = off;
        call->v.full = kolo_max(call->v.full, counts[r]);
        packed = off + counts[r];
    }
    return KOLO_OK;
}

static kolo_status open_counts(struct kolo_call *call, const char *names, const size_t *counts,
                               const size_t *displs, bool needs_displs)
{
    KOLO_TRY(kolo_comm_usable(call->comm));
    if (counts == NULL || (needs_displs && displs == NULL)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: %s is NULL", names,
                         counts == NULL ? "counts" : "displs");
    }
    call->v.all = calloc(4 * (size_t)call->comm->nranks, sizeof *call->v.all);
    if (call->v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    const kolo_status st = add_counts(call, 0, names, counts, displs);
    if (st != KOLO_OK) {
        kolo_call_close(call);
    }
    return st;
}

/* Only the root knows all blocks. The others know their own. */
static kolo_status open_rooted_counts(struct kolo_call *call, const size_t *counts,
                                      const size_t *displs, size_t count)
{
    KOLO_TRY(kolo_comm_usable(call->comm));
    const int rank = call->comm->rank, n = call->comm->nranks;
    if (call->root < 0 || call->root >= n) {
        return kolo_fail(KOLO_ERR_INVALID, "root is %d; it must be 0 to %d", call->root, n - 1);
    }
    if (rank == call->root) {
        KOLO_TRY(open_counts(call, "counts and displs", counts, displs, true));
        if (counts[rank] != count) {
            kolo_call_close(call);
            return kolo_fail(KOLO_ERR_INVALID,
                             "count is %zu, counts[%d] is %zu; they must be equal", count, rank,
                             counts[rank]);
        }
        return KOLO_OK;
    }
    size_t *own = calloc(2 * (size_t)n, sizeof *own);
    if (own == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    own[rank] = count;
    const kolo_status st = open_counts(call, "count", own, own + n, true);
    free(own);
    return st;
}

kolo_status kolo_gatherv(const void *send, size_t count, void *recv, const size_t *counts,
                         const size_t *displs, enum kolo_type type, int root,
                         struct kolo_comm *comm, kolo_stream stream)
{
    struct kolo_call call = {.comm = comm,
                             .coll = KOLO_COLL_GATHER,
                             .in = send,
                             .out = recv,
                             .type = type,
                             .root = root};
    KOLO_TRY(open_rooted_counts(&call, counts, displs, count));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                          size_t count, enum kolo_type type, int root, struct kolo_comm *comm,
                          kolo_stream stream)
{
    struct kolo_call call = {.comm = comm,
                             .coll = KOLO_COLL_SCATTER,
                             .in = send,
                             .out = recv,
                             .type = type,
                             .root = root};
    KOLO_TRY(open_rooted_counts(&call, counts, displs, count));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_all_gatherv(const void *send, void *recv, const size_t *counts,
                             const size_t *displs, enum kolo_type type, struct kolo_comm *comm,
                             kolo_stream stream)
{
    struct kolo_call call = {
        .comm = comm, .coll = KOLO_COLL_ALL_GATHER, .in = send, .out = recv, .type = type};
    KOLO_TRY(open_counts(&call, "counts and displs", counts, displs, true));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                 enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                 kolo_stream stream)
{
    struct kolo_call call = {.comm = comm,
                             .coll = KOLO_COLL_REDUCE_SCATTER,
                             .in = send,
                             .out = recv,
                             .type = type,
                             .op = op};
    KOLO_TRY(open_counts(&call, "counts", counts, NULL, false));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                             void *recv, const size_t *recv_counts, const size_t *recv_displs,
                             enum kolo_type type, struct kolo_comm *comm, kolo_stream stream)
{
    struct kolo_call call = {
        .comm = comm, .coll = KOLO_COLL_ALL_TO_ALL, .in = send, .out = recv, .type = type};
    KOLO_TRY(open_counts(&call, "send_counts and send_displs", send_counts, send_displs, true));
    if (recv_counts == NULL || recv_displs == NULL) {
        kolo_call_close(&call);
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL",
                         recv_counts == NULL ? "recv_counts" : "recv_displs");
    }
    const kolo_status st =
        add_counts(&call, 2, "recv_counts and recv_displs", recv_counts, recv_displs);
    if (st != KOLO_OK) {
        kolo_call_close(&call);
        return st;
    }
    const int r = comm->rank;
    if (send_counts[r] != recv_counts[r]) {
        kolo_call_close(&call);
        return kolo_fail(KOLO_ERR_INVALID,
                         "send_counts[%d] is %zu, recv_counts[%d] is %zu; to oneself they "
                         "must be equal",
                         r, send_counts[r], r, recv_counts[r]);
    }
    return kolo_call_run(&call, stream);
}

/* ---- point to point ---- */

static kolo_status check_message(const struct kolo_message *m, const struct kolo_comm *comm)
{
    const size_t elem = kolo_type_bytes(m->type);
    KOLO_TRY(kolo_comm_usable(comm));
    if (elem == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %d; it must be 0 to %d", (int)m->type,
                         KOLO_TYPES - 1);
    }
    if (m->count > (size_t)PTRDIFF_MAX / elem) {
        return kolo_fail(KOLO_ERR_INVALID, "count is %zu; so many %s overflow (at most %zu)",
                         m->count, kolo_type_name(m->type), (size_t)PTRDIFF_MAX / elem);
    }
    if (m->buf == NULL && m->count > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "buf is NULL; count is %zu", m->count);
    }
    const bool any_peer = !m->is_send && m->tag != KOLO_UNTAGGED && m->peer == KOLO_ANY_SOURCE;
    const bool any_tag = !m->is_send && m->tag == KOLO_ANY_TAG;
    if (!any_peer && (m->peer < 0 || m->peer >= comm->nranks)) {
        return kolo_fail(KOLO_ERR_INVALID, "peer is %d; it must be 0 to %d", m->peer,
                         comm->nranks - 1);
    }
    if (!any_tag && m->tag < 0 && m->tag != KOLO_UNTAGGED) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more", m->tag);
    }
    if (m->info != NULL && m->info->size < sizeof(struct kolo_recv_info)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "out->size is %u; set it to sizeof(struct kolo_recv_info)", m->info->size);
    }
    return KOLO_OK;
}

kolo_status kolo_message_run(const struct kolo_message *m, struct kolo_comm *comm,
                             kolo_stream stream)
{
    KOLO_TRY(check_message(m, comm));
    kolo_status taken = KOLO_OK;
    if (comm->device != KOLO_HOST && kolo_device_takes_message(comm, m, stream, &taken)) {
        return taken;
    }
    struct kolo_call call = {.comm = comm, .p2p = true, .info = m->info};
    call.message = calloc(1, sizeof *call.message);
    if (call.message == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    call.message->comm = comm;
    call.message->is_send = m->is_send;
    call.message->buf = m->buf;
    call.message->bytes = m->count * kolo_type_bytes(m->type);
    call.message->peer = m->peer;
    call.message->tag = m->tag;
    call.message->direct = m->direct;
    return kolo_call_submit(&call, stream);
}

kolo_status kolo_send(const void *buf, size_t count, enum kolo_type type, int peer,
                      struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_message m = {(void *)(uintptr_t)buf, count, type, peer,
                                   KOLO_UNTAGGED,          true,  NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_recv(void *buf, size_t count, enum kolo_type type, int peer,
                      struct kolo_comm *comm, kolo_stream stream)
{
    const struct kolo_message m = {buf, count, type, peer, KOLO_UNTAGGED, false, NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_send_tag(const void *buf, size_t count, enum kolo_type type, int peer, int tag,
                          struct kolo_comm *comm, kolo_stream stream)
{
    if (tag < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more", tag);
    }
    const struct kolo_message m = {
        (void *)(uintptr_t)buf, count, type, peer, tag, true, NULL, NULL};
    return kolo_message_run(&m, comm, stream);
}

kolo_status kolo_recv_tag(void *buf, size_t count, enum kolo_type type, int peer, int tag,
                          struct kolo_recv_info *out, struct kolo_comm *comm, kolo_stream stream)
{
    if (tag < 0 && tag != KOLO_ANY_TAG) {
        return kolo_fail(KOLO_ERR_INVALID, "tag is %d; it must be 0 or more, or KOLO_ANY_TAG", tag);
    }
    const struct kolo_message m = {buf, count, type, peer, tag, false, out, NULL};
    return kolo_message_run(&m, comm, stream);
}
