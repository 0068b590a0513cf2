// SPDX-License-Identifier: Apache-2.0
/* The public v-forms: collectives whose blocks differ in length. They copy the counts, and check
 * them without asking other ranks. */
#include "core/call/call.h"

#include <stdlib.h>

/* Copy a table of n counts, or one rank's own count. The sum of displacement and count must not
 * overflow. */
static kolo_status add_counts(struct kolo_call *call, size_t at, const char *names,
                              const size_t *counts, const size_t *displs)
{
    const size_t n = (size_t)call->base.comm->ranks.nranks, elem = kolo_type_bytes(call->args.type);
    size_t packed = 0;
    for (size_t r = 0; r < n; r++) {
        const size_t off = displs != NULL ? displs[r] : packed;
        if (elem == 0 || counts[r] > (size_t)PTRDIFF_MAX / elem ||
            off > (size_t)PTRDIFF_MAX / elem - counts[r]) {
            return kolo_fail(KOLO_ERR_INVALID, "%s of rank %zu: %zu elements at %zu overflow",
                             names, r, counts[r], off);
        }
        call->args.v.all[at * n + r] = counts[r];
        call->args.v.all[(at + 1) * n + r] = off;
        call->args.v.full = kolo_max(call->args.v.full, counts[r]);
        packed = off + counts[r];
    }
    return KOLO_OK;
}

static kolo_status open_counts(struct kolo_call *call, const char *names, const size_t *counts,
                               const size_t *displs, bool needs_displs)
{
    KOLO_TRY(kolo_comm_usable(call->base.comm));
    if (counts == NULL || (needs_displs && displs == NULL)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: %s is NULL", names,
                         counts == NULL ? "counts" : "displs");
    }
    call->args.v.all = calloc(4 * (size_t)call->base.comm->ranks.nranks, sizeof *call->args.v.all);
    if (call->args.v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    const kolo_status st = add_counts(call, 0, names, counts, displs);
    if (st != KOLO_OK) {
        kolo_call_close(call);
    }
    return st;
}

/* Only the root knows all blocks. The other ranks know their own block. */
static kolo_status open_rooted_counts(struct kolo_call *call, const size_t *counts,
                                      const size_t *displs, size_t count)
{
    KOLO_TRY(kolo_comm_usable(call->base.comm));
    const int rank = call->base.comm->ranks.rank, n = call->base.comm->ranks.nranks;
    if (call->args.root < 0 || call->args.root >= n) {
        return kolo_fail(KOLO_ERR_INVALID, "root is %d; it must be 0 to %d", call->args.root,
                         n - 1);
    }
    if (rank == call->args.root) {
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
    struct kolo_call call = {.base.comm = comm,
                             .args.coll = KOLO_COLL_GATHER,
                             .args.in = send,
                             .args.out = recv,
                             .args.type = type,
                             .args.root = root};
    KOLO_TRY(open_rooted_counts(&call, counts, displs, count));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                          size_t count, enum kolo_type type, int root, struct kolo_comm *comm,
                          kolo_stream stream)
{
    struct kolo_call call = {.base.comm = comm,
                             .args.coll = KOLO_COLL_SCATTER,
                             .args.in = send,
                             .args.out = recv,
                             .args.type = type,
                             .args.root = root};
    KOLO_TRY(open_rooted_counts(&call, counts, displs, count));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_all_gatherv(const void *send, void *recv, const size_t *counts,
                             const size_t *displs, enum kolo_type type, struct kolo_comm *comm,
                             kolo_stream stream)
{
    struct kolo_call call = {.base.comm = comm,
                             .args.coll = KOLO_COLL_ALL_GATHER,
                             .args.in = send,
                             .args.out = recv,
                             .args.type = type};
    KOLO_TRY(open_counts(&call, "counts and displs", counts, displs, true));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                 enum kolo_type type, kolo_op op, struct kolo_comm *comm,
                                 kolo_stream stream)
{
    struct kolo_call call = {.base.comm = comm,
                             .args.coll = KOLO_COLL_REDUCE_SCATTER,
                             .args.in = send,
                             .args.out = recv,
                             .args.type = type,
                             .args.op = op};
    KOLO_TRY(open_counts(&call, "counts", counts, NULL, false));
    return kolo_call_run(&call, stream);
}

kolo_status kolo_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                             void *recv, const size_t *recv_counts, const size_t *recv_displs,
                             enum kolo_type type, struct kolo_comm *comm, kolo_stream stream)
{
    struct kolo_call call = {.base.comm = comm,
                             .args.coll = KOLO_COLL_ALL_TO_ALL,
                             .args.in = send,
                             .args.out = recv,
                             .args.type = type};
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
    const int r = comm->ranks.rank;
    if (send_counts[r] != recv_counts[r]) {
        kolo_call_close(&call);
        return kolo_fail(KOLO_ERR_INVALID,
                         "send_counts[%d] is %zu, recv_counts[%d] is %zu; to oneself they "
                         "must be equal",
                         r, send_counts[r], r, recv_counts[r]);
    }
    return kolo_call_run(&call, stream);
}
