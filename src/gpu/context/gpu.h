// SPDX-License-Identifier: Apache-2.0
/* One GPU as the ranks on it use it: its context, and the fused kernels loaded there. */
#ifndef KOLO_GPU_GPU_H
#define KOLO_GPU_GPU_H

#include "cuda/driver.h"
#include "exec/gpu/fused/fused.h"
#include "exec/gpu/ll/ll.h"
#include "plan/coll.h"

enum { KOLO_GPU_KERNELS = 128 };

struct kolo_gpu_kernel {
    char name[KOLO_FUSED_NAME];
    kolo_cuda_function function;
};

struct kolo_gpu {
    const struct kolo_cuda *cuda;
    int ordinal, device; /* the application's number, the driver's */
    unsigned char uuid[16];
    kolo_cuda_context context; /* the primary one; NULL: closed */
    unsigned sms;
    bool stores; /* the kernels are those of exec/gpu/program/program_kernel.h and exec/gpu/ll/ll.h,
                    not of exec/gpu/fused/fused.h */
    kolo_cuda_module module; /* NULL: no kernels */
    struct kolo_gpu_kernel kernel[KOLO_GPU_KERNELS];
    int nkernels;
};

struct kolo_gpu_call { /* one rank's call */
    /* Barriers have count 0 and no buffers. op KOLO_OPS: a PREMULSUM by args.factor. The counts of
     * a v-form are not owned here. */
    struct kolo_coll_args args;
    kolo_stream stream;
};

#define KOLO_CUDA(gpu, name, call) kolo_cuda_check((gpu)->cuda, (gpu)->cuda->call, name)

/* `gpu` is zero. Errors: INVALID (no such GPU), UNSUPPORTED (no driver, an old GPU), SYSTEM. */
kolo_status kolo_gpu_open(int ordinal, struct kolo_gpu *gpu);
/* Load all kernels: loading one later would wait for what runs, perhaps for ever. The context is
 * entered. Errors: UNSUPPORTED (kolo has none, or none for this GPU), SYSTEM. */
kolo_status kolo_gpu_load(struct kolo_gpu *gpu);
/* The one that serves the call; it is loaded. */
kolo_cuda_function kolo_gpu_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call);
/* The one of exec/gpu/ll/ll.h. */
kolo_cuda_function kolo_gpu_ll_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call);
/* Whether there are any that kolo_gpu_load() could try. */
bool kolo_gpu_has_kernels(void);
/* Frees what both made; not a second time. */
void kolo_gpu_close(struct kolo_gpu *gpu);

/* Make its context this thread's, whatever the caller's is, and that one again. */
kolo_status kolo_gpu_enter(const struct kolo_gpu *gpu);
void kolo_gpu_leave(const struct kolo_gpu *gpu);

/* Run the kernel of a call of `nranks` ranks, whose addresses are in *argument or in its table,
 * in call->stream. What moves nothing runs nothing. */
kolo_status kolo_gpu_launch(const struct kolo_gpu *gpu, int nranks,
                            const struct kolo_gpu_call *call, struct kolo_fused_launch *argument);

/* What ranks must agree on in a call, hashed; `nranks` counts. */
uint64_t kolo_gpu_call_key(const struct kolo_gpu_call *call, int nranks);

#endif
