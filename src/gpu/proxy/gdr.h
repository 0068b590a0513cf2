// SPDX-License-Identifier: Apache-2.0
/* GPUDirect RDMA (GDR): a NIC reads and writes long messages directly in GPU memory.
 *
 * A transport with KOLO_CAP_CUDA registers the memory by a dma-buf, which the driver exports. Each
 * end decides for itself whether its message uses GDR or pinned memory. The other end does not
 * notice.
 *
 * Order, sending: a message is posted when its stream has come to it. So everything that was
 * written before is in the GPU's memory, where the NIC reads it. Order, receiving: the NIC's writes
 * are visible to kernels of this GPU at the completion, if the GPU orders such writes (Hopper and
 * later do), or after cuFlushGPUDirectRDMAWrites(). Both are attributes of the GPU (CUDA Driver
 * API, CUGPUDirectRDMAWritesOrdering). NCCL does not read these attributes; on older GPUs it reads
 * a byte by RDMA. */
#ifndef KOLO_GPU_PROXY_GDR_H
#define KOLO_GPU_PROXY_GDR_H

#include "core/link/links.h"
#include "gpu/context/gpu.h"

enum { KOLO_GDR_LEAST = 64 << 10 }; /* bytes; registering fewer takes longer than copying them */

struct kolo_gdr {
    struct kolo_device_memory memory; /* for the links of `host` */
    struct kolo_comm *host;
    const struct kolo_gpu *gpu;
    kolo_cuda_stream stream;                /* for bytes that must be copied in spite of GDR */
    const struct kolo_transport *transport; /* it takes GPU memory, as its endpoint does; */
    struct kolo_endpoint *endpoint;         /* NULL: no transport does */
    bool flushes, complained;
};

/* Find out whether a transport of `host` takes memory of the GPU, and log the reason if not. The
 * GPU's context is current; *d is all zeros. */
void kolo_gdr_open(struct kolo_gdr *d, struct kolo_comm *host, const struct kolo_gpu *gpu,
                   kolo_cuda_stream stream);
void kolo_gdr_close(struct kolo_gdr *d);

/* Register memory for messages. False: they go through pinned memory; the log says why, once. */
bool kolo_gdr_map(struct kolo_gdr *d, void *at, size_t len, struct kolo_mem *out);
void kolo_gdr_unmap(struct kolo_gdr *d, struct kolo_mem *mem);
/* Make the NIC's writes visible to the GPU. Errors: SYSTEM. */
kolo_status kolo_gdr_flush(const struct kolo_gdr *d);

#endif
