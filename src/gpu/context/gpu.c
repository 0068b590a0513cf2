// SPDX-License-Identifier: Apache-2.0
/* Opening a GPU, loading its kernels, and launching them. A call takes a GPU's primary context, the
 * one of the CUDA runtime, so that buffers and streams of the application are valid in it. */
#include "gpu/context/gpu.h"

#include "exec/reduce/reduce.h"
#include "plan/plan.h"
#include "util/library.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return KOLO_CUDA(gpu, "cuDevicePrimaryCtxRetain",
                     device_primary_ctx_retain(&gpu->context, gpu->device));
}

void kolo_gpu_close(struct kolo_gpu *gpu)
{
    if (gpu->context == NULL) {
        return;
    }
    if (gpu->module != NULL && kolo_gpu_enter(gpu) == KOLO_OK) {
        (void)gpu->cuda->module_unload(gpu->module);
        kolo_gpu_leave(gpu);
    }
    (void)gpu->cuda->device_primary_ctx_release(gpu->device);
    gpu->context = NULL;
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

/* ---- kernels ---- */

/* Read the cubin, PTX or fatbin that KOLO_CUDA_KERNELS names. A zero follows it, because PTX is a
 * string. */
static kolo_status read_image(const char *path, char **out)
{
    char why[KOLO_WHY_BYTES];
    char *real = NULL;
    const kolo_status allowed = kolo_code_path(path, true, &real, why);
    if (allowed != KOLO_OK) {
        return kolo_fail(allowed, "KOLO_CUDA_KERNELS refused: %s", why);
    }
    FILE *file = fopen(real, "rbe");
    free(real);
    long bytes = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        bytes = ftell(file);
    }
    char *image = bytes >= 0 ? calloc((size_t)bytes + 1, 1) : NULL;
    const bool whole = image != NULL && fseek(file, 0, SEEK_SET) == 0 &&
                       fread(image, 1, (size_t)bytes, file) == (size_t)bytes;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!whole) {
        free(image);
        return kolo_fail(KOLO_ERR_SYSTEM, "KOLO_CUDA_KERNELS: %s cannot be read", path);
    }
    *out = image;
    return KOLO_OK;
}

static kolo_status load_module(struct kolo_gpu *gpu)
{
    const char *path = kolo_code_variable("KOLO_CUDA_KERNELS");
    const void *image = gpu->stores ? kolo_program_image() : kolo_fused_image();
    char *read = NULL;
    if (path != NULL) {
        KOLO_TRY(read_image(path, &read));
    } else if (image == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "this kolo was built without nvcc, so without kernels for GPUs");
    }
    const kolo_status st = kolo_cuda_load(gpu->cuda, read != NULL ? read : image, &gpu->module);
    free(read);
    return st;
}

static kolo_cuda_function find_kernel(const struct kolo_gpu *gpu, const char *name)
{
    for (int i = 0; i < gpu->nkernels; i++) {
        if (strcmp(gpu->kernel[i].name, name) == 0) {
            return gpu->kernel[i].function;
        }
    }
    return NULL;
}

static void name_kernel(const struct kolo_gpu *gpu, enum kolo_coll coll, enum kolo_type type,
                        kolo_op op, char out[KOLO_FUSED_NAME])
{
    if (gpu->stores) {
        kolo_program_name(coll, type, op, out);
    } else {
        kolo_fused_name(coll, type, op, out);
    }
}

static kolo_status load_once(struct kolo_gpu *gpu, const char *name)
{
    struct kolo_gpu_kernel *k = &gpu->kernel[gpu->nkernels];
    if (find_kernel(gpu, name) != NULL) {
        return KOLO_OK;
    }
    assert(gpu->nkernels < KOLO_GPU_KERNELS);
    memcpy(k->name, name, sizeof k->name);
    KOLO_TRY(kolo_cuda_function_find(gpu->cuda, gpu->module, k->name, &k->function));
    gpu->nkernels++;
    return KOLO_OK;
}

/* Load the kernels of a type. Several types share some of them. */
static kolo_status load_of_type(struct kolo_gpu *gpu, enum kolo_coll coll, enum kolo_type type)
{
    char name[KOLO_FUSED_NAME];
    for (kolo_op op = 0; op <= KOLO_OPS; op++) {
        if (kolo_coll_reduces(coll) && !kolo_op_valid(type, op == KOLO_OPS ? KOLO_AVG : op)) {
            continue;
        }
        name_kernel(gpu, coll, type, op, name);
        KOLO_TRY(load_once(gpu, name));
        if (gpu->stores) {
            kolo_ll_name(coll, type, op, name);
            KOLO_TRY(load_once(gpu, name));
        }
    }
    return KOLO_OK;
}

kolo_status kolo_gpu_load(struct kolo_gpu *gpu)
{
    static const enum kolo_coll colls[] = {KOLO_COLL_ALL_REDUCE, KOLO_COLL_BROADCAST,
                                           KOLO_COLL_ALL_TO_ALL};
    KOLO_TRY(load_module(gpu));
    for (size_t i = 0; i < KOLO_LENGTH(colls); i++) {
        for (int type = 0; type < KOLO_TYPES; type++) {
            KOLO_TRY(load_of_type(gpu, colls[i], (enum kolo_type)type));
        }
    }
    return KOLO_OK;
}

kolo_cuda_function kolo_gpu_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call)
{
    char name[KOLO_FUSED_NAME];
    name_kernel(gpu, call->args.coll, call->args.type, call->args.op, name);
    return find_kernel(gpu, name);
}

kolo_cuda_function kolo_gpu_ll_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call)
{
    char name[KOLO_PROGRAM_NAME];
    kolo_ll_name(call->args.coll, call->args.type, call->args.op, name);
    return find_kernel(gpu, name);
}

bool kolo_gpu_has_kernels(void)
{
    return kolo_code_variable("KOLO_CUDA_KERNELS") != NULL || kolo_fused_image() != NULL;
}

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
