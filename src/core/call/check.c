// SPDX-License-Identifier: Apache-2.0
/* Whether a call's arguments make sense. */
#include "core/call/parts.h"

static bool overlap(const void *a, size_t na, const void *b, size_t nb)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return na > 0 && nb > 0 && x < y + nb && y < x + na;
}

static bool is_in_place(const struct kolo_call *call)
{
    const struct kolo_coll_args *a = &call->args;
    const struct kolo_comm *c = call->base.comm;
    const bool may = a->coll != KOLO_COLL_ALL_TO_ALL || a->v.all == NULL;
    return may && (const char *)a->out - (const char *)a->in ==
                      kolo_coll_in_place(a, c->ranks.rank, c->ranks.nranks);
}

static kolo_status check_buffers(const struct kolo_call *call)
{
    const struct kolo_coll_args *a = &call->args;
    const size_t nin = kolo_coll_in_bytes(a, &call->extent);
    const size_t nout = kolo_coll_out_bytes(a, &call->extent);
    if (a->in == NULL && nin > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "send is NULL; %zu bytes are to be read from it", nin);
    }
    if (a->out == NULL && nout > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "recv is NULL; %zu bytes are to be written to it", nout);
    }
    if (overlap(a->in, nin, a->out, nout) && !is_in_place(call)) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "send (%p, %zu bytes) and recv (%p, %zu bytes) overlap partly; they must be apart "
            "or in place as kolo.h says",
            a->in, nin, a->out, nout);
    }
    return KOLO_OK;
}

static kolo_status check_op(struct kolo_call *call)
{
    if (call->args.op >= KOLO_OPS) {
        return kolo_op_find(call->base.comm, call->args.op, call->args.type, &call->args.factor);
    }
    if (!kolo_op_valid(call->args.type, call->args.op)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "op %s makes no sense on type %s; kolo.h lists the pairs at kolo_op",
                         kolo_op_name(call->args.op), kolo_type_name(call->args.type));
    }
    return KOLO_OK;
}

kolo_status kolo_call_check(struct kolo_call *call)
{
    KOLO_TRY(kolo_comm_usable(call->base.comm));
    if (call->args.coll == KOLO_COLL_BARRIER) {
        call->extent = (struct kolo_coll_extent){0};
        return KOLO_OK;
    }
    const size_t elem = kolo_type_bytes(call->args.type);
    if (elem == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %d; it must be 0 to %d", (int)call->args.type,
                         KOLO_TYPES - 1);
    }
    const size_t most = (size_t)PTRDIFF_MAX / elem / (size_t)call->base.comm->ranks.nranks;
    if (call->args.count > most) {
        return kolo_fail(
            KOLO_ERR_INVALID, "count is %zu; %d blocks of so many %s overflow (at most %zu)",
            call->args.count, call->base.comm->ranks.nranks, kolo_type_name(call->args.type), most);
    }
    if (call->args.root < 0 || call->args.root >= call->base.comm->ranks.nranks) {
        return kolo_fail(KOLO_ERR_INVALID, "root is %d; it must be 0 to %d", call->args.root,
                         call->base.comm->ranks.nranks - 1);
    }
    call->extent = kolo_coll_extent_of(&call->args, call->base.comm->ranks.rank,
                                       call->base.comm->ranks.nranks);
    if (call->extent.reduces) {
        KOLO_TRY(check_op(call));
    }
    if (call->args.codec != KOLO_CODEC_NONE) {
        KOLO_TRY(kolo_call_check_codec(call));
    }
    return check_buffers(call);
}
