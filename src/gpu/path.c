// SPDX-License-Identifier: Apache-2.0
/* The slots of the path: which memory a buffer is in, and which calls are enqueued on a CUDA stream
 * instead of being run on the host. */
#include "gpu/path.h"

#include "core/call/fast_path.h"
#include "core/call/parts.h"
#include "gpu/inner.h"
#include "gpu/memory.h"
#include "gpu/options.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- where buffers are ---- */

static const struct kolo_gpu *gpu_of(const struct kolo_gpu_path *p)
{
    return p->fused != NULL ? kolo_fused_path_gpu(p->fused) : kolo_proxy_gpu(p->proxy);
}

/* Find the places of n pointers, of which some may be NULL. */
static kolo_status ask_places(const struct kolo_gpu_path *p, const void *const *ptr, int n,
                              struct kolo_cuda_place *out)
{
    const struct kolo_gpu *gpu = gpu_of(p);
    kolo_status st = kolo_gpu_enter(gpu);
    if (st != KOLO_OK) {
        return st;
    }
    for (int i = 0; i < n && st == KOLO_OK; i++) {
        st = ptr[i] != NULL ? kolo_cuda_find(gpu->cuda, ptr[i], &out[i]) : KOLO_OK;
    }
    kolo_gpu_leave(gpu);
    return st;
}

static kolo_status check_place(const struct kolo_comm *c, const struct kolo_cuda_place *place,
                               const char *name, const void *ptr)
{
    char text[32];
    if (place->kind == KOLO_CUDA_KIND_MANAGED ||
        (place->kind == KOLO_CUDA_KIND_DEVICE && place->ordinal == c->options.cuda_ordinal)) {
        return KOLO_OK;
    }
    kolo_cuda_say_place(place, text, sizeof text);
    return kolo_fail(KOLO_ERR_INVALID, "%s (%p) is %s; the communicator's device is GPU %d", name,
                     ptr, text, c->options.cuda_ordinal);
}

/* Whether the host can read what lies there. The driver does not know the memory: it is the host's,
 * or it was memory of a GPU that has been freed, at which the host must not look. */
static bool is_readable(const void *ptr)
{
    char byte;
    const struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)ptr, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

static kolo_status check_readable(const char *name, const void *ptr, size_t count)
{
    return ptr == NULL || count == 0 || is_readable(ptr)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID,
                           "%s (%p) is no memory: nothing lies there that the driver knows or the "
                           "host can read. Memory of a GPU that was freed is like that",
                           name, ptr);
}

/* Find the places of the buffers that this rank uses. *host_out: all of them are host memory. */
static kolo_status find_places(const struct kolo_gpu_path *p, const struct kolo_call *call,
                               bool *host_out)
{
    const void *const ptr[2] = {call->extent.has_in ? call->args.in : NULL,
                                call->extent.has_out ? call->args.out : NULL};
    static const char *const name[2] = {"send", "recv"};
    struct kolo_cuda_place place[2];
    char text[2][32];
    int host = 0, there = 0;
    KOLO_TRY(ask_places(p, ptr, 2, place));
    for (int i = 0; i < 2; i++) {
        if (ptr[i] != NULL) {
            kolo_cuda_say_place(&place[i], text[i], sizeof text[i]);
            host += place[i].kind == KOLO_CUDA_KIND_HOST;
            there++;
        }
    }
    if (host == 1 && there == 2) {
        return kolo_fail(KOLO_ERR_INVALID, "send (%p) is %s, recv (%p) is %s; both must be one",
                         ptr[0], text[0], ptr[1], text[1]);
    }
    for (int i = 0; i < 2 && host == 0; i++) {
        if (ptr[i] != NULL) {
            KOLO_TRY(check_place(p->comm, &place[i], name[i], ptr[i]));
        }
    }
    if (host > 0) {
        KOLO_TRY(check_readable(name[0], ptr[0], call->extent.in_elems));
        KOLO_TRY(check_readable(name[1], ptr[1], call->extent.out_elems));
    }
    *host_out = host > 0;
    return KOLO_OK;
}

/* ---- calls ---- */

static struct kolo_gpu_call describe_call(const struct kolo_call *call, kolo_stream stream)
{
    struct kolo_gpu_call gpu_call = {.args = call->args, .stream = stream};
    if (call->extent.reduces && call->args.op >= KOLO_OPS) {
        gpu_call.args.op = KOLO_OPS;
    }
    return gpu_call;
}

static kolo_status take_call(struct kolo_gpu_path *p, struct kolo_call *call, kolo_stream stream)
{
    const struct kolo_gpu_call gpu_call = describe_call(call, stream);
    if (kolo_group_depth > 0) {
        return kolo_gpu_group_add(p, call, &gpu_call);
    }
    return kolo_gpu_path_enqueue(p, &gpu_call, &call->args.v);
}

static bool gpu_path_take(struct kolo_comm_path *path, struct kolo_call *call, kolo_stream stream,
                          kolo_status *out)
{
    struct kolo_gpu_path *p = (struct kolo_gpu_path *)(void *)path;
    bool host = stream == NULL;
    kolo_status st = KOLO_OK;
    if (call->args.coll != KOLO_COLL_BARRIER) {
        st = find_places(p, call, &host);
    }
    if (st == KOLO_OK && host && stream != NULL) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "stream is %p and the buffers are host memory; on a communicator of a GPU "
                       "such calls take no stream",
                       stream);
    }
    if (st == KOLO_OK && host) {
        return false;
    }
    *out = kolo_gpu_path_ended(call->base.comm, st == KOLO_OK ? take_call(p, call, stream) : st);
    kolo_call_close(call);
    return true;
}

/* ---- messages ---- */

static kolo_status enqueue_message(struct kolo_gpu_path *p, const struct kolo_message *m,
                                   kolo_stream stream)
{
    struct kolo_gpu_message message = {.rank = p->comm->ranks.rank, .m = *m, .stream = stream};
    return p->fused != NULL ? kolo_fused_path_enqueue_messages(p->fused, &message, 1,
                                                               p->comm->options.timeout_ms)
                            : kolo_gpu_path_enqueue_messages(p, m, 1, stream);
}

static bool gpu_path_take_message(struct kolo_comm_path *path, const struct kolo_message *m,
                                  kolo_stream stream, kolo_status *out)
{
    struct kolo_gpu_path *p = (struct kolo_gpu_path *)(void *)path;
    struct kolo_cuda_place place = {stream != NULL ? KOLO_CUDA_KIND_MANAGED : KOLO_CUDA_KIND_HOST,
                                    -1}; /* without a buffer, the stream decides */
    const void *const ptr = m->buf;
    kolo_status st = ptr != NULL ? ask_places(p, &ptr, 1, &place) : KOLO_OK;
    const bool host = place.kind == KOLO_CUDA_KIND_HOST;
    st = st == KOLO_OK && host ? check_readable("buf", ptr, m->count) : st;
    if (st == KOLO_OK && host && stream == NULL) {
        return false;
    }
    if (st == KOLO_OK && host) {
        st = kolo_fail(KOLO_ERR_INVALID,
                       "stream is %p and buf is host memory; on a communicator of a GPU such calls "
                       "take no stream",
                       stream);
    }
    st = st == KOLO_OK ? check_place(p->comm, &place, "buf", m->buf) : st;
    if (st == KOLO_OK) {
        st = kolo_group_depth > 0 ? kolo_gpu_group_add_message(p, m, stream)
                                  : enqueue_message(p, m, stream);
    }
    *out = kolo_gpu_path_ended(p->comm, st);
    return true;
}

/* ---- the table ---- */

static kolo_status gpu_path_check(void)
{
    const struct kolo_cuda *cuda = NULL;
    struct kolo_gpu_options options;
    KOLO_TRY(kolo_cuda_open(&cuda));
    return kolo_gpu_options_read(&options);
}

static kolo_status gpu_path_bus(int device, char *out, size_t room)
{
    const struct kolo_cuda *cuda = NULL;
    KOLO_TRY(kolo_cuda_open(&cuda));
    return kolo_cuda_bus(cuda, device, out, (int)room);
}

static const char *gpu_path_via(const struct kolo_comm_path *path, int peer)
{
    const struct kolo_gpu_path *p = (const struct kolo_gpu_path *)(const void *)path;
    return p->proxy != NULL && kolo_proxy_uses_gdr(p->proxy, peer) ? "/GDRDMA" : "";
}

const struct kolo_path_ops kolo_gpu_path_ops = {
    .name = "cuda",
    .check = gpu_path_check,
    .bus = gpu_path_bus,
    .join = kolo_gpu_path_join,
    .leave = kolo_gpu_path_leave,
    .abort = kolo_gpu_path_abort,
    .poll = kolo_gpu_path_poll,
    .take = gpu_path_take,
    .take_message = gpu_path_take_message,
    .group_end = kolo_gpu_group_end,
    .via = gpu_path_via,
    .alloc = kolo_gpu_memory_alloc,
    .free = kolo_gpu_memory_free,
};
