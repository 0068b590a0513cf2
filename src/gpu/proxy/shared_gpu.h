// SPDX-License-Identifier: Apache-2.0
/* Ranks of several processes that share one GPU: rank 0 works on the memory of all ranks.
 *
 * Every rank offers the handles of its buffers' allocations, when it enqueues a call. Rank 0 also
 * enqueues the kernel then, behind the wait for `done`. When all offers are there, rank 0 opens the
 * allocations that are not yet open, stores the addresses into pinned memory, lets the kernel go,
 * waits for its end and tells the outcome. So only memory that is new needs the driver while a
 * stream waits: another thread may have the driver's lock until that stream goes on. The key of a
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
#include "cuda/ipc.h"
#include "gpu/context/gpu.h"
#include "gpu/ipc/mapping.h"
#include "gpu/ipc/unix_socket.h"

#include <stdatomic.h>

enum { KOLO_SHARED_GPU_MAPPINGS = 256 };

struct kolo_shared_gpu_mapping {
    int rank;
    uint64_t base, bytes, id; /* in its process */
    bool by_fd;
    kolo_cuda_address at;           /* in this process; 0: not mapped */
    struct kolo_ipc_mapped *mapped; /* if not by_fd: the process's mapping, which this holds */
    bool stale;                     /* its memory is gone; to be closed outside of calls */
    uint64_t used;
};

struct kolo_shared_gpu_offer { /* what a rank tells all ranks */
    uint64_t key, factor;
    uint64_t usable;
    struct kolo_cuda_ipc_memory in, out;
};

struct kolo_shared_gpu_words { /* pinned, for the kernels of rank 0 */
    _Atomic uint32_t *done;    /* lets the stream go on, as for all calls of the proxy */
    _Atomic uint32_t *ended;   /* the stream stores 1 behind the kernel */
    struct kolo_fused_table *table;
    kolo_cuda_address ended_at, table_at; /* as the GPU addresses them */
};

struct kolo_shared_gpu {
    struct kolo_comm *host; /* borrowed */
    struct kolo_gpu *gpu;   /* on rank 0 it has kernels */
    struct kolo_shared_gpu_words words;
    struct kolo_unix_socket sockets;
    uint64_t uses;
    _Atomic bool full; /* there are mappings to close */
    bool said;         /* that some memory cannot be opened */
    struct kolo_shared_gpu_mapping mapping[KOLO_SHARED_GPU_MAPPINGS];
};

/* Open it. Collective; *shared has host and gpu, the rest is zero. Errors: those of collectives. */
kolo_status kolo_shared_gpu_open(struct kolo_shared_gpu *shared);
/* What this rank tells of a call when it is enqueued. The GPU's context is current. Not for
 * barriers, and not for v-forms whose counts not all ranks know. */
struct kolo_shared_gpu_offer kolo_shared_gpu_offer(const struct kolo_shared_gpu *shared,
                                                   const struct kolo_gpu_call *call);
/* On rank 0: enqueue the kernel of a call, behind the wait for `done`. It does nothing if
 * kolo_shared_gpu_run() has not let it go. Errors: SYSTEM. */
kolo_status kolo_shared_gpu_enqueue(struct kolo_shared_gpu *shared,
                                    const struct kolo_gpu_call *call);
/* Run this rank's part of a call that the stream has come to. The GPU's context is current.
 * *done_out is the same on all ranks; false: some memory cannot be opened, and nothing was done.
 * `own`: a stream that waits for nothing. *released_out: `done` was set. Errors: MISMATCH, SYSTEM,
 * and those of collectives. */
kolo_status kolo_shared_gpu_run(struct kolo_shared_gpu *shared,
                                const struct kolo_shared_gpu_offer *mine, kolo_cuda_stream own,
                                bool *done_out, bool *released_out);
/* Close what no call will use. It waits for all work of the GPU and lets no other call of the
 * driver pass, so no stream of the process may wait for a proxy meanwhile. The GPU's context is
 * current. */
void kolo_shared_gpu_tidy(struct kolo_shared_gpu *shared);
/* Close the sockets, and the mappings that no other communicator holds. */
void kolo_shared_gpu_close(struct kolo_shared_gpu *shared);

#endif
