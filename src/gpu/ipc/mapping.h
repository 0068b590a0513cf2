// SPDX-License-Identifier: Apache-2.0
/* Mappings of other processes' GPU memory by legacy handles, once for the process and GPU.
 *
 * The driver has one mapping of an allocation, however many communicators use it, and maps no new
 * memory of a process where it still has a mapping of old memory of that process. So all
 * communicators share the mappings. The key is the process, the allocation and that process's
 * number of it.
 *
 * Closing a mapping may wait for all work of the GPU, and lets no other call of this process to the
 * driver pass meanwhile. So a mapping that nobody holds, or whose memory is gone, is closed when no
 * call of the process is pending (gpu/context/pending.h), or with the pool. */
#ifndef KOLO_GPU_IPC_MAPPING_H
#define KOLO_GPU_IPC_MAPPING_H

#include "cuda/ipc.h"
#include "gpu/context/pool.h"

struct kolo_ipc_mapped {
    struct kolo_ipc_mapped *next;
    uint64_t process, base, bytes, id; /* the allocation in its process */
    kolo_cuda_address at;              /* in this process; 0: it is gone, and closed */
    int holders, opens;
    bool gone; /* the owner has other memory at these addresses */
};

/* Map an allocation of a process, which has a handle, and hold the mapping. NULL: the driver cannot
 * map it, perhaps only until kolo_ipc_mappings_close(). The GPU's context is current. */
struct kolo_ipc_mapped *kolo_ipc_map(struct kolo_gpu_pool *pool, uint64_t process,
                                     const struct kolo_cuda_ipc_memory *memory);
/* Hold it no more. NULL is allowed. Calls no driver. */
void kolo_ipc_unmap(struct kolo_ipc_mapped *mapped);

/* Close what nobody holds, and what is gone. No call of the process is pending, and none begins.
 * The GPU's context is current. */
void kolo_ipc_mappings_close(struct kolo_gpu_pool *pool);
/* The same if no call is pending; otherwise nothing. */
void kolo_ipc_mappings_try_close(struct kolo_gpu_pool *pool);

#endif
