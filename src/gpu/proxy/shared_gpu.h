// SPDX-License-Identifier: Apache-2.0
/* Ranks of several processes on one GPU: rank 0 works on the others' memory.
 *
 * Every rank offers the handles of its buffers' allocations; rank 0 opens those that it has not
 * open, runs one fused kernel over all buffers, waits for it and tells the outcome. A mapping is
 * known by rank, allocation and the driver's number of it, so that memory which was freed and
 * allocated anew at the same address is not taken for the old one.
 *
 * What legacy handles do not reach but virtual memory management made exportable comes as a
 * descriptor (see gpu/ipc/unix_socket.h), which rank 0 asks for when it has no mapping of it.
 * Exports are refused for default pools of cudaMallocAsync, and for buffers of several allocations
 * (expandable segments); pools that are exportable are not tried. */
#ifndef KOLO_GPU_PROXY_SHARED_GPU_H
#define KOLO_GPU_PROXY_SHARED_GPU_H

#include "core/comm.h"
#include "gpu/gpu.h"
#include "gpu/ipc/unix_socket.h"

enum { KOLO_LEND_MAPPINGS = 64 };

struct kolo_lend_mapping {
    int rank;
    uint64_t base, bytes, id; /* there */
    bool by_fd;
    kolo_cuda_address at; /* here; 0: none */
    uint64_t used;
};

struct kolo_lend {
    struct kolo_comm *host; /* borrowed */
    struct kolo_gpu *gpu;   /* with kernels on rank 0 */
    struct kolo_fds fds;
    uint64_t uses;
    struct kolo_lend_mapping mapping[KOLO_LEND_MAPPINGS];
};

/* Collective; *l has host and gpu, the rest is zero. Errors: those of collectives. */
kolo_status kolo_lend_open(struct kolo_lend *lend);
/* One rank's part of a call; call->stream is one of its own, the GPU's context is entered. Not for
 * barriers and v-forms that not all ranks know. *done_out, alike on all ranks: false if some memory
 * cannot be opened, and nothing was done. Errors: MISMATCH, and those of collectives. */
kolo_status kolo_lend_run(struct kolo_lend *lend, const struct kolo_gpu_call *call, bool *done_out);
/* Close what is open. */
void kolo_lend_close(struct kolo_lend *lend);

#endif
