// SPDX-License-Identifier: Apache-2.0
/* Ranks of several processes that share one GPU: rank 0 works on the memory of all ranks.
 *
 * Every rank offers the handles of its buffers' allocations. Rank 0 opens the ones that are not yet
 * open, runs one fused kernel over all buffers, waits for it and tells the outcome. The key of a
 * mapping is the rank, the allocation and the driver's number of it. So memory that was freed and
 * allocated again at the same address is not mistaken for the old memory. A call closes no mapping:
 * that waits for the GPU, which waits for the call.
 *
 * Exportable memory of virtual memory management has no legacy handle and comes as a descriptor
 * (gpu/ipc/unix_socket.h), for which rank 0 asks if it has no mapping. Memory of cudaMallocAsync,
 * even from exportable pools, and buffers of several allocations (expandable segments) are not
 * offered. */
#ifndef KOLO_GPU_PROXY_SHARED_GPU_H
#define KOLO_GPU_PROXY_SHARED_GPU_H

#include "core/comm.h"
#include "gpu/context/gpu.h"
#include "gpu/ipc/unix_socket.h"

#include <stdatomic.h>

enum { KOLO_SHARED_GPU_MAPPINGS = 256 };

struct kolo_shared_gpu_mapping {
    int rank;
    uint64_t base, bytes, id; /* in its process */
    bool by_fd;
    kolo_cuda_address at; /* in this process; 0: not mapped */
    bool stale;           /* its memory is gone; to be closed outside of calls */
    uint64_t used;
};

struct kolo_shared_gpu {
    struct kolo_comm *host; /* borrowed */
    struct kolo_gpu *gpu;   /* on rank 0 it has kernels */
    struct kolo_unix_socket sockets;
    uint64_t uses;
    _Atomic bool full; /* there are mappings to close */
    bool said;         /* that some memory cannot be opened */
    struct kolo_shared_gpu_mapping mapping[KOLO_SHARED_GPU_MAPPINGS];
};

/* Open it. Collective; *shared has host and gpu, the rest is zero. Errors: those of collectives. */
kolo_status kolo_shared_gpu_open(struct kolo_shared_gpu *shared);
/* Run this rank's part of a call. call->stream is a stream of the proxy, and the GPU's context is
 * current. Not for barriers, and not for v-forms whose counts not all ranks know. *done_out is the
 * same on all ranks; false: some memory cannot be opened, and nothing was done. Errors: MISMATCH,
 * and those of collectives. */
kolo_status kolo_shared_gpu_run(struct kolo_shared_gpu *shared, const struct kolo_gpu_call *call,
                                bool *done_out);
/* Close what no call will use. It waits for all work of the GPU and lets no other call of the
 * driver pass, so no stream of the process may wait for a proxy meanwhile. The GPU's context is
 * current. */
void kolo_shared_gpu_tidy(struct kolo_shared_gpu *shared);
/* Close all mappings and sockets. */
void kolo_shared_gpu_close(struct kolo_shared_gpu *shared);

#endif
