// SPDX-License-Identifier: Apache-2.0
/* What a call's arguments mean in bytes, and whether they make sense. */
#include "core/call/parts.h"

#include <string.h>

/* ---- bytes of IN and OUT ---- */

bool kolo_call_has_in(const struct kolo_call *call)
{
    const bool root = call->comm->rank == call->root;
    return call->coll == KOLO_COLL_BROADCAST || call->coll == KOLO_COLL_SCATTER
               ? root
               : call->coll != KOLO_COLL_BARRIER;
}

bool kolo_call_has_out(const struct kolo_call *call)
{
    const bool root = call->comm->rank == call->root;
    return call->coll == KOLO_COLL_REDUCE || call->coll == KOLO_COLL_GATHER
               ? root
               : call->coll != KOLO_COLL_BARRIER;
}

static size_t blocks_end(const size_t *counts, const size_t *displs, int n)
{
    size_t end = 0;
    for (int r = 0; r < n; r++) {
        end = counts[r] > 0 ? kolo_max(end, displs[r] + counts[r]) : end;
    }
    return end;
}

/* Elements that a buffer spans, from its start. */
size_t kolo_call_span(const struct kolo_call *call, bool in)
{
    const int n = call->comm->nranks;
    const size_t *all = call->v.all;
    const bool one = in ? call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_ALL_GATHER
                        : call->coll == KOLO_COLL_SCATTER || call->coll == KOLO_COLL_REDUCE_SCATTER;
    if (kolo_coll_flat(call->coll)) {
        return call->count;
    }
    if (all == NULL) {
        return one ? call->count : call->count * (size_t)n;
    }
    if (one) {
        return all[call->comm->rank];
    }
    const bool second = call->coll == KOLO_COLL_ALL_TO_ALL && !in;
    return blocks_end(all + (second ? 2 * n : 0), all + (second ? 3 * n : n), n);
}

/* v-forms that not all ranks know run as messages, so that each edge has its own length. */
bool kolo_call_by_messages(const struct kolo_call *call)
{
    return call->v.all != NULL &&
           (call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_SCATTER ||
            call->coll == KOLO_COLL_ALL_TO_ALL);
}

size_t kolo_call_bytes(const struct kolo_call *call)
{
    return (call->v.all != NULL ? call->v.full : call->count) * kolo_type_bytes(call->type);
}

bool kolo_call_reduces(const struct kolo_call *call)
{
    return kolo_coll_reduces(call->coll);
}

/* ---- checks ---- */

static bool overlap(const void *a, size_t na, const void *b, size_t nb)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return na > 0 && nb > 0 && x < y + nb && y < x + na;
}

/* The place where one buffer may lie in the other, in elements; see kolo.h. */
static bool in_place(const struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->type), r = (size_t)call->comm->rank;
    const size_t off =
        (call->v.all != NULL ? call->v.all[(size_t)call->comm->nranks + r] : r * call->count) *
        elem;
    const char *in = call->in, *out = call->out;
    switch (call->coll) {
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return in == out + off;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return out == in + off;
    case KOLO_COLL_ALL_TO_ALL:
        return in == out && call->v.all == NULL;
    default:
        return in == out;
    }
}

static kolo_status check_buffers(const struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->type);
    const size_t nin = kolo_call_span(call, true) * elem, nout = kolo_call_span(call, false) * elem;
    if (kolo_call_has_in(call) && call->in == NULL && nin > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "send is NULL; %zu bytes are to be read from it", nin);
    }
    if (kolo_call_has_out(call) && call->out == NULL && nout > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "recv is NULL; %zu bytes are to be written to it", nout);
    }
    if (kolo_call_has_in(call) && kolo_call_has_out(call) &&
        overlap(call->in, nin, call->out, nout) && !in_place(call)) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "send (%p, %zu bytes) and recv (%p, %zu bytes) overlap partly; they must be apart "
            "or in place as kolo.h says",
            call->in, nin, call->out, nout);
    }
    return KOLO_OK;
}

static const struct kolo_premulsum *find_premulsum(struct kolo_comm *comm, kolo_op op)
{
    const struct kolo_premulsum *p = comm->premulsums;
    while (p != NULL && p->op != op) {
        p = p->next;
    }
    return p;
}

static kolo_status check_op(struct kolo_call *call)
{
    if (call->op >= KOLO_OPS) {
        const struct kolo_premulsum *p = find_premulsum(call->comm, call->op);
        if (p == NULL) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "op is %u, which is no operation of this communicator", call->op);
        }
        if (p->type != call->type) {
            return kolo_fail(KOLO_ERR_INVALID, "op is a premulsum of %s, type is %s",
                             kolo_type_name(p->type), kolo_type_name(call->type));
        }
        memcpy(&call->factor, p->factor, sizeof call->factor);
        return KOLO_OK;
    }
    if (!kolo_op_valid(call->type, call->op)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "op %s makes no sense on type %s; kolo.h lists the pairs at kolo_op",
                         kolo_op_name(call->op), kolo_type_name(call->type));
    }
    return KOLO_OK;
}

kolo_status kolo_call_check(struct kolo_call *call)
{
    KOLO_TRY(kolo_comm_usable(call->comm));
    if (call->coll == KOLO_COLL_BARRIER) {
        return KOLO_OK;
    }
    const size_t elem = kolo_type_bytes(call->type);
    if (elem == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %d; it must be 0 to %d", (int)call->type,
                         KOLO_TYPES - 1);
    }
    const size_t most = (size_t)PTRDIFF_MAX / elem / (size_t)call->comm->nranks;
    if (call->count > most) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "count is %zu; %d blocks of so many %s overflow (at most %zu)",
                         call->count, call->comm->nranks, kolo_type_name(call->type), most);
    }
    if (call->root < 0 || call->root >= call->comm->nranks) {
        return kolo_fail(KOLO_ERR_INVALID, "root is %d; it must be 0 to %d", call->root,
                         call->comm->nranks - 1);
    }
    if (kolo_call_reduces(call)) {
        KOLO_TRY(check_op(call));
    }
    return check_buffers(call);
}
