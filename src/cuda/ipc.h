// SPDX-License-Identifier: Apache-2.0
/* GPU memory that one process exports and other processes of the host map.
 *
 * - Memory of cudaMalloc() is exported by a legacy IPC handle.
 * - Memory of virtual memory management that was made exportable, such as PyTorch's expandable
 *   segments, is exported by a descriptor (gpu/ipc/unix_socket.h sends it).
 * - Memory of pools (cudaMallocAsync) and managed memory are refused, even from exportable pools.
 *
 * The driver's number of an allocation tells it from a later allocation at the same address. */
#ifndef KOLO_CUDA_IPC_H
#define KOLO_CUDA_IPC_H

#include "cuda/driver.h"

enum kolo_cuda_ipc_way { KOLO_CUDA_IPC_NONE, KOLO_CUDA_IPC_BY_HANDLE, KOLO_CUDA_IPC_BY_FD };

struct kolo_cuda_ipc_memory { /* a buffer, as its owner describes it */
    uint64_t at;              /* the buffer; 0: none */
    uint64_t base, bytes, id; /* the allocation in which it begins */
    uint64_t by_fd;           /* 1: by a descriptor; 0: by the handle */
    struct kolo_cuda_ipc_handle handle;
};

/* How memory can be exported. The GPU's context is current, here and below. */
enum kolo_cuda_ipc_way kolo_cuda_ipc_way(const struct kolo_cuda *cuda, kolo_cuda_address at);
/* Fill *out except the handle. False: the driver does not know the memory. */
bool kolo_cuda_ipc_find(const struct kolo_cuda *cuda, kolo_cuda_address at,
                        enum kolo_cuda_ipc_way way, struct kolo_cuda_ipc_memory *out);
/* A descriptor that the caller closes, or -1: the memory cannot be exported. */
int kolo_cuda_ipc_export(const struct kolo_cuda *cuda, const struct kolo_cuda_ipc_memory *memory);

/* Map memory of another process by its handle. 0: failed. */
kolo_cuda_address kolo_cuda_ipc_open(const struct kolo_cuda *cuda,
                                     const struct kolo_cuda_ipc_handle *handle);
/* Map memory of another process by its descriptor, at reserved addresses. */
bool kolo_cuda_ipc_map(const struct kolo_cuda *cuda, int device, int fd, kolo_cuda_address at,
                       size_t bytes);

#endif
