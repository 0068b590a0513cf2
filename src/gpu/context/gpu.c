// SPDX-License-Identifier: Apache-2.0
/* Opening a GPU, and launching its kernels. A call takes a GPU's primary context, the one of the
 * CUDA runtime, so that buffers and streams of the application are valid in it. */
#include "gpu/context/gpu.h"

#include "exec/reduce/reduce.h"
#include "plan/plan.h"

/* ---- opening and closing ---- */

static kolo_status find_device(struct kolo_gpu *gpu)
{
    int count = 0, able = 0, sms = 0;
    KOLO_TRY(kolo_cuda_open(&gpu->cuda));
    KOLO_TRY(KOLO_CUDA(gpu, "cuDeviceGetCount", device_get_count(&count)));
    if (gpu->ordinal >= count) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "config.device is %d; CUDA has %d devices here, numbered from 0",
                         gpu->ordinal, count);
    }
    KOLO_TRY(KOLO_CUDA(gpu, "cuDeviceGet", device_get(&gpu->device, gpu->ordinal)));
    KOLO_TRY(KOLO_CUDA(gpu, "cuDeviceGetUuid", device_get_uuid(gpu->uuid, gpu->device)));
    KOLO_TRY(KOLO_CUDA(gpu, "cuDeviceGetAttribute",
                       device_get_attribute(&sms, KOLO_CUDA_MULTIPROCESSORS, gpu->device)));
    KOLO_TRY(KOLO_CUDA(gpu, "cuDeviceGetAttribute",
                       device_get_attribute(&able, KOLO_CUDA_64_BIT_STREAM_OPS, gpu->device)));
    if (able == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "GPU %d has no 64-bit memory operations in streams",
                         gpu->ordinal);
    }
    gpu->sms = (unsigned)sms;
    return KOLO_OK;
}

kolo_status kolo_gpu_open(int ordinal, struct kolo_gpu *gpu)
{
    gpu->ordinal = ordinal;
    KOLO_TRY(find_device(gpu));
    KOLO_TRY(kolo_gpu_pool_join(gpu->cuda, gpu->device, &gpu->pool));
    gpu->context = gpu->pool->context;
    return KOLO_OK;
}

void kolo_gpu_close(struct kolo_gpu *gpu)
{
    if (gpu->pool == NULL) {
        return;
    }
    kolo_gpu_pool_leave(gpu->pool);
    gpu->pool = NULL;
    gpu->context = NULL;
    gpu->kernels = NULL;
    gpu->copies = NULL;
}

kolo_status kolo_gpu_enter(const struct kolo_gpu *gpu)
{
    return KOLO_CUDA(gpu, "cuCtxPushCurrent", ctx_push_current(gpu->context));
}

void kolo_gpu_leave(const struct kolo_gpu *gpu)
{
    kolo_cuda_context context = NULL;
    (void)gpu->cuda->ctx_pop_current(&context);
}

/* ---- launching ---- */

kolo_status kolo_gpu_launch(const struct kolo_gpu *gpu, int nranks,
                            const struct kolo_gpu_call *call, struct kolo_fused_launch *argument)
{
    void *arguments[] = {argument};
    if (call->args.coll == KOLO_COLL_BARRIER) {
        return KOLO_OK;
    }
    kolo_fused_lower(&call->args, nranks, gpu->sms, &argument->call);
    if (argument->call.npieces == 0) {
        return KOLO_OK;
    }
    return kolo_cuda_check(gpu->cuda,
                           gpu->cuda->launch_kernel(kolo_gpu_kernel(gpu, call),
                                                    kolo_fused_blocks(&argument->call, gpu->sms), 1,
                                                    1, KOLO_FUSED_THREADS, 1, 1, 0, call->stream,
                                                    arguments, NULL),
                           "cuLaunchKernel");
}

/* ---- graphs ---- */

kolo_status kolo_gpu_at_graph_end(const struct kolo_gpu *gpu, kolo_stream stream,
                                  void (*end)(void *arg), void *arg)
{
    enum { NO_DESTRUCTOR_SYNC = 1, MOVE = 1 };
    kolo_cuda_graph graph = NULL;
    kolo_cuda_user_object object = NULL;
    int status = 0;
    kolo_status st = KOLO_CUDA(
        gpu, "cuStreamGetCaptureInfo",
        stream_get_capture_info((kolo_cuda_stream)stream, &status, NULL, &graph, NULL, NULL));
    st = st == KOLO_OK ? KOLO_CUDA(gpu, "cuUserObjectCreate",
                                   user_object_create(&object, arg, end, 1, NO_DESTRUCTOR_SYNC))
                       : st;
    if (st != KOLO_OK) {
        end(arg);
        return st;
    }
    st =
        KOLO_CUDA(gpu, "cuGraphRetainUserObject", graph_retain_user_object(graph, object, 1, MOVE));
    if (st != KOLO_OK) {
        (void)gpu->cuda->user_object_release(object, 1); /* it calls end(arg) */
    }
    return st;
}

/* ---- whether ranks make the same call ---- */

uint64_t kolo_gpu_call_key(const struct kolo_gpu_call *call, int nranks)
{
    const bool reduces = kolo_coll_reduces(call->args.coll);
    const size_t elem = kolo_type_bytes(call->args.type);
    const uint64_t words[] = {(uint64_t)call->args.coll, (uint64_t)call->args.root,
                              call->args.count * elem, reduces ? (uint64_t)call->args.type : 0,
                              reduces ? call->args.op : 0};
    uint64_t key = kolo_hash(0, words, sizeof words);
    if (kolo_coll_by_messages(&call->args)) {
        key = kolo_hash(key, &elem, sizeof elem);
    } else if (call->args.v.all != NULL) {
        key = kolo_hash(key, call->args.v.all, 2 * (size_t)nranks * sizeof *call->args.v.all);
    }
    return key;
}
