// SPDX-License-Identifier: Apache-2.0
/* A GPU as a rank uses it: its context, and the kernels that are loaded there. */
#ifndef KOLO_GPU_GPU_H
#define KOLO_GPU_GPU_H

#include "cuda/driver.h"
#include "exec/gpu/fused/fused.h"
#include "exec/gpu/ll/ll.h"
#include "gpu/context/pool.h"
#include "plan/coll.h"

struct kolo_gpu_kernels;

struct kolo_gpu {
    const struct kolo_cuda *cuda;
    int ordinal, device; /* CUDA's number of the GPU; the driver's handle */
    unsigned char uuid[16];
    struct kolo_gpu_pool *pool; /* NULL: closed */
    kolo_cuda_context context;  /* the primary context */
    unsigned sms;
    bool stores; /* it has the kernels of exec/gpu/program/program_kernel.h and exec/gpu/ll/ll.h;
                    otherwise those of exec/gpu/fused/fused.h */
    struct kolo_gpu_kernels *kernels; /* the pool's; NULL: none */
    kolo_cuda_function copies;        /* the kernel of exec/gpu/copies; NULL: the driver copies */
};

struct kolo_gpu_call { /* one rank's call */
    /* A barrier has count 0 and no buffers. op KOLO_OPS is a PREMULSUM by args.factor. The counts
     * of a v-form are borrowed. */
    struct kolo_coll_args args;
    kolo_stream stream;
};

#define KOLO_CUDA(gpu, name, call) kolo_cuda_check((gpu)->cuda, (gpu)->cuda->call, name)

/* Open a GPU; *gpu is all zeros. Errors: INVALID (no such GPU), UNSUPPORTED (no driver, an old
 * GPU), SYSTEM. */
kolo_status kolo_gpu_open(int ordinal, struct kolo_gpu *gpu);
/* Load all kernels now, unless a communicator of the process has loaded them: loading a kernel
 * later would wait for the kernels that run, perhaps for ever. The caller has entered the context.
 * Errors: UNSUPPORTED (kolo has no kernels, or none for this GPU), SYSTEM. */
kolo_status kolo_gpu_load(struct kolo_gpu *gpu);
/* Load the kernels of `stores` for later communicators. The caller has entered the context. */
void kolo_gpu_load_early(const struct kolo_gpu *gpu, bool stores);
/* Set gpu->copies, by any kernels that the process has loaded. The caller has entered the context.
 * Without kernels it stays NULL. */
void kolo_gpu_load_copies(struct kolo_gpu *gpu);
/* Unload the kernels of a pool that nobody uses any more. */
void kolo_gpu_kernels_free(struct kolo_gpu_pool *pool);
/* The loaded kernel that serves the call. */
kolo_cuda_function kolo_gpu_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call);
/* The LL kernel that serves the call. */
kolo_cuda_function kolo_gpu_ll_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call);
/* Whether kolo has kernels that kolo_gpu_load() could load. */
bool kolo_gpu_has_kernels(void);
/* Leave the pool. A second call does nothing. */
void kolo_gpu_close(struct kolo_gpu *gpu);

/* Make the GPU's context this thread's current one; then make the caller's current again. */
kolo_status kolo_gpu_enter(const struct kolo_gpu *gpu);
void kolo_gpu_leave(const struct kolo_gpu *gpu);

/* Launch the fused kernel of a call of `nranks` ranks in call->stream. Their addresses are in
 * *argument or in its table. A call that moves nothing launches nothing. Errors: SYSTEM. */
kolo_status kolo_gpu_launch(const struct kolo_gpu *gpu, int nranks,
                            const struct kolo_gpu_call *call, struct kolo_fused_launch *argument);

/* Call end(arg) once when the graph that `stream` captures, its executables and all their launches
 * are over. It must not call the driver. Errors: SYSTEM; end(arg) was called. */
kolo_status kolo_gpu_at_graph_end(const struct kolo_gpu *gpu, kolo_stream stream,
                                  void (*end)(void *arg), void *arg);

/* A hash of everything on which the ranks must agree in a call. A v-form has `nranks` counts. */
uint64_t kolo_gpu_call_key(const struct kolo_gpu_call *call, int nranks);

#endif
