// SPDX-License-Identifier: Apache-2.0
/* An allocation on a GPU, as its process lends it to others of the host and as they map it.
 *
 * What cudaMalloc() gives goes by a legacy IPC handle; what virtual memory management made
 * exportable, as expandable segments of PyTorch, by a descriptor (see gpu/ipc/unix_socket.h).
 * Memory of pools (cudaMallocAsync) is refused, also of those that could be exported, and managed
 * memory. The driver's number of an allocation tells it from a later one at the same address. */
#ifndef KOLO_CUDA_IPC_H
#define KOLO_CUDA_IPC_H

#include "cuda/driver.h"

enum kolo_cuda_ipc_way { KOLO_CUDA_IPC_NONE, KOLO_CUDA_IPC_BY_HANDLE, KOLO_CUDA_IPC_BY_FD };

struct kolo_cuda_ipc_memory { /* a buffer's */
    uint64_t at;              /* of the buffer; 0: none */
    uint64_t base, bytes, id; /* of the allocation that it begins in */
    uint64_t by_fd;           /* 1; else by the handle */
    struct kolo_cuda_ipc_handle handle;
};

/* All of these in the GPU's context. */
enum kolo_cuda_ipc_way kolo_cuda_ipc_way(const struct kolo_cuda *cuda, kolo_cuda_address at);
/* All but the handle. False: the driver does not say. */
bool kolo_cuda_ipc_find(const struct kolo_cuda *cuda, kolo_cuda_address at,
                        enum kolo_cuda_ipc_way way, struct kolo_cuda_ipc_memory *out);
/* The caller's, or -1: it cannot be exported. */
int kolo_cuda_ipc_export(const struct kolo_cuda *cuda, const struct kolo_cuda_ipc_memory *memory);

/* Another process's, by its handle; 0: it cannot be. */
kolo_cuda_address kolo_cuda_ipc_open(const struct kolo_cuda *cuda,
                                     const struct kolo_cuda_ipc_handle *handle);
/* By its descriptor, at reserved addresses. */
bool kolo_cuda_ipc_map(const struct kolo_cuda *cuda, int device, int fd, kolo_cuda_address at,
                       size_t bytes);

#endif
