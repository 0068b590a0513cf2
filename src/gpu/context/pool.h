// SPDX-License-Identifier: Apache-2.0
/* What the communicators of a process share on a GPU: the primary context, two streams for copies,
 * the kernels, and memory.
 *
 * Giving memory or kernels back to the driver, and making a stream or loading kernels, waits for
 * all work of the GPU, and lets no other call of the process to the driver pass meanwhile. A call
 * of another communicator may be pending, which needs such a call to go on. So the first
 * communicator on a GPU makes the streams, and loads all kernels that later ones may need. Memory
 * that a communicator gives back is kept for the next one. When no communicator is left on the GPU,
 * the driver gets everything back. */
#ifndef KOLO_GPU_POOL_H
#define KOLO_GPU_POOL_H

#include "cuda/driver.h"

enum kolo_gpu_way { KOLO_GPU_FROM, KOLO_GPU_TO, KOLO_GPU_WAYS }; /* copies to the host; back */
enum kolo_gpu_kind { KOLO_GPU_PINNED, KOLO_GPU_MEMORY };

struct kolo_gpu_block {
    struct kolo_gpu_block *next;
    enum kolo_gpu_kind kind;
    size_t bytes;
    void *host;           /* NULL for KOLO_GPU_MEMORY */
    kolo_cuda_address at; /* as the GPU addresses it */
};

struct kolo_gpu_pool {
    struct kolo_gpu_pool *next;
    const struct kolo_cuda *cuda;
    int device, users;
    kolo_cuda_context context;
    /* Of the highest priority: streams of one priority share hardware queues, in which a stream
     * that waits may be ahead. Nothing in them waits. */
    kolo_cuda_stream stream[KOLO_GPU_WAYS];
    struct kolo_gpu_kernels *kernels[2]; /* kernels.c; [1]: those that store to other GPUs */
    struct kolo_gpu_block *spare;
    struct kolo_ipc_mapped *mapped; /* ipc/mapping.c: memory of other processes */
};

/* Join the pool of a GPU (the driver's number), and make it if this is the first user. Errors:
 * SYSTEM. */
kolo_status kolo_gpu_pool_join(const struct kolo_cuda *cuda, int device,
                               struct kolo_gpu_pool **out);
/* The last user gives everything back to the driver. */
void kolo_gpu_pool_leave(struct kolo_gpu_pool *pool);

/* Take memory of at least `bytes`, with any contents. The context is current. Errors: SYSTEM. */
kolo_status kolo_gpu_pool_take(struct kolo_gpu_pool *pool, enum kolo_gpu_kind kind, size_t bytes,
                               struct kolo_gpu_block **out);
/* Give memory back, which may be NULL. Nothing uses it any more. Calls no driver. */
void kolo_gpu_pool_give(struct kolo_gpu_pool *pool, struct kolo_gpu_block *memory);

#endif
