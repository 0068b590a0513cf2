// SPDX-License-Identifier: Apache-2.0
/* GPUDirect RDMA: a NIC reads and writes long messages in the memory of a GPU itself.
 *
 * A transport that can (KOLO_CAP_CUDA) registers that memory by a dma-buf, which the driver gives
 * of its pages. Each end decides for itself whether its message goes so or through pinned memory;
 * the other one does not see it.
 *
 * Order: a message is posted once its stream has come to it, so what was written there before is in
 * the GPU's memory, from which the NIC reads. What the NIC wrote is there for kernels of this GPU
 * when the completion is seen, if the GPU orders such writes (Hopper and later do), or after
 * cuFlushGPUDirectRDMAWrites(); both are attributes of the GPU (CUDA Driver API,
 * CUGPUDirectRDMAWritesOrdering). NCCL, which does not ask, reads a byte by RDMA on older GPUs. */
#ifndef KOLO_GPU_PROXY_GDR_H
#define KOLO_GPU_PROXY_GDR_H

#include "core/link/links.h"
#include "gpu/context/gpu.h"

enum { KOLO_GDR_LEAST = 64 << 10 }; /* bytes: to register fewer takes longer than to copy them */

struct kolo_gdr {
    struct kolo_device_memory memory; /* lent to the links of `host` */
    struct kolo_comm *host;
    const struct kolo_gpu *gpu;
    kolo_cuda_stream stream;                /* of what has to be copied all the same */
    const struct kolo_transport *transport; /* with its endpoint, which takes memory of the GPU; */
    struct kolo_endpoint *endpoint;         /* NULL: there is none */
    bool flushes, complained;
};

/* Find out whether a transport of `host` takes memory of the GPU, whose context is entered, and say
 * why not. `d` is zero. */
void kolo_gdr_open(struct kolo_gdr *d, struct kolo_comm *host, const struct kolo_gpu *gpu,
                   kolo_cuda_stream stream);
void kolo_gdr_close(struct kolo_gdr *d);

/* Register memory for messages. False: they go another way, and the log has said why once. */
bool kolo_gdr_map(struct kolo_gdr *d, void *at, size_t len, struct kolo_mem *out);
void kolo_gdr_unmap(struct kolo_gdr *d, struct kolo_mem *mem);
/* What NICs have written is there for the GPU. Errors: SYSTEM. */
kolo_status kolo_gdr_flush(const struct kolo_gdr *d);

#endif
