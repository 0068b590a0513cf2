// SPDX-License-Identifier: Apache-2.0
/* Ranks of several processes that share one GPU: rank 0 works on the memory of all ranks.
 *
 * The ranks meet before a call is enqueued. Every rank sends the handles of its buffers'
 * allocations to rank 0. Rank 0 waits for all of them, opens the allocations that are not yet open,
 * and then enqueues the kernel behind the wait for `done`. The other ranks do not wait. When the
 * streams of all ranks have come to the call, rank 0 stores the addresses into pinned memory, lets
 * the kernel go, waits for its end and tells the outcome. So nothing needs the driver while a
 * stream waits: another thread may have the driver's lock until that stream goes on. The key of a
 * mapping is the rank, the allocation and the driver's number of it. So memory that was freed and
 * allocated again at the same address is not mistaken for the old memory. A call closes no mapping:
 * that waits for the GPU, which waits for the call.
 *
 * Exportable memory of virtual memory management has no legacy handle. It goes as a descriptor
 * (gpu/ipc/unix_socket.h) with the first call on it. If rank 0 has no mapping in a later call, for
 * which it says so, the descriptor goes again with the next one. Memory of cudaMallocAsync, even
 * from exportable pools, and buffers of several allocations (expandable segments) are not
 * offered. */
#ifndef KOLO_GPU_PROXY_SHARED_GPU_H
#define KOLO_GPU_PROXY_SHARED_GPU_H

#include "core/comm.h"
#include "cuda/ipc.h"
#include "gpu/context/gpu.h"
#include "gpu/ipc/mapping.h"
#include "gpu/ipc/unix_socket.h"

#include <stdatomic.h>

enum {
    KOLO_SHARED_GPU_MAPPINGS = 256,
    KOLO_SHARED_GPU_KNOWN = 64 /* allocations of which a rank keeps what it has told */
};

struct kolo_shared_gpu_mapping {
    int rank;
    uint64_t base, bytes, id; /* in its process */
    bool by_fd;
    kolo_cuda_address at;           /* in this process; 0: not mapped */
    struct kolo_ipc_mapped *mapped; /* if not by_fd: the process's mapping, which this holds */
    bool stale;                     /* its memory is gone; to be closed outside of calls */
    uint64_t used;
};

struct kolo_shared_gpu_offer { /* what a rank tells rank 0 */
    uint64_t key, factor;
    uint64_t usable, captured;
    struct kolo_cuda_ipc_memory in, out;
};

struct kolo_shared_gpu_met { /* a call for which the ranks have met */
    uint64_t key, number;
    struct kolo_fused_rank *ranks; /* on rank 0, owned; NULL: some memory cannot be opened */
};

struct kolo_shared_gpu_words { /* pinned, for the kernels of rank 0 */
    _Atomic uint64_t *done;    /* lets the stream go on, as for all calls of the proxy */
    _Atomic uint32_t *ended;   /* the stream stores 1 behind the kernel */
    struct kolo_fused_table *table;
    kolo_cuda_address ended_at, table_at; /* as the GPU addresses them */
};

struct kolo_shared_gpu {
    struct kolo_comm *host; /* borrowed; only the thread uses it */
    struct kolo_gpu *gpu;   /* on rank 0 it has kernels */
    struct kolo_shared_gpu_words words;
    _Atomic bool forget; /* rank 0 may lack a mapping: `known` is not true any more */

    /* Of who enqueues, under the lock of the proxy's order. */
    struct kolo_comm *desk; /* borrowed; of the same ranks, for meetings */
    struct kolo_unix_socket sockets;
    uint64_t meetings, uses;
    bool full; /* there are mappings to close */
    bool said; /* that some memory cannot be opened */
    struct kolo_cuda_ipc_memory known[KOLO_SHARED_GPU_KNOWN]; /* by id % KNOWN */
    struct kolo_shared_gpu_mapping mapping[KOLO_SHARED_GPU_MAPPINGS];
};

/* Open it. Collective; *shared has host, desk and gpu, the rest is zero. Errors: those of
 * collectives. */
kolo_status kolo_shared_gpu_open(struct kolo_shared_gpu *shared);
/* Meet for a call that is enqueued next. Not for barriers, and not for v-forms whose counts not all
 * ranks know. The GPU's context is current, and the mode of captures is relaxed. The caller frees
 * out->ranks. Errors: MISMATCH, SYSTEM, and those of messages. */
kolo_status kolo_shared_gpu_meet(struct kolo_shared_gpu *shared, const struct kolo_gpu_call *call,
                                 bool captured, struct kolo_shared_gpu_met *out);
/* On rank 0: enqueue the kernel of a call, behind the wait for `done`. It does nothing if
 * kolo_shared_gpu_run() has not let it go. Errors: SYSTEM. */
kolo_status kolo_shared_gpu_enqueue(struct kolo_shared_gpu *shared,
                                    const struct kolo_gpu_call *call);
/* Run this rank's part of a call that the stream has come to. The GPU's context is current.
 * *done_out is the same on all ranks; false: some memory cannot be opened, and nothing was done.
 * `own`: a stream that waits for nothing. *released_out: `done` was set. Errors: MISMATCH, SYSTEM,
 * and those of collectives. */
kolo_status kolo_shared_gpu_run(struct kolo_shared_gpu *shared,
                                const struct kolo_shared_gpu_met *met, kolo_cuda_stream own,
                                bool *done_out, bool *released_out);
/* Close what no call will use. It waits for all work of the GPU and lets no other call of the
 * driver pass, so no stream of the process may wait for a proxy meanwhile. The GPU's context is
 * current. */
void kolo_shared_gpu_tidy(struct kolo_shared_gpu *shared);
/* Close the sockets, and the mappings that no other communicator holds. */
void kolo_shared_gpu_close(struct kolo_shared_gpu *shared);

/* shared_memory.c: what this rank tells of a call. It sends the descriptors that rank 0 needs. */
struct kolo_shared_gpu_offer kolo_shared_gpu_offer(struct kolo_shared_gpu *shared,
                                                   const struct kolo_gpu_call *call, bool captured);
/* On rank 0: map the descriptors that have come. One that fails is noticed when the memory is
 * opened. */
void kolo_shared_gpu_take_descriptors(struct kolo_shared_gpu *shared);
/* On rank 0: the address of a buffer of rank q here. False: it cannot be opened. */
bool kolo_shared_gpu_open_memory(struct kolo_shared_gpu *shared, int q,
                                 const struct kolo_cuda_ipc_memory *memory, uint64_t *out);

#endif
