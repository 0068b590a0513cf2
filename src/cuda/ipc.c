// SPDX-License-Identifier: Apache-2.0
/* GPU memory between processes: the driver's legacy handles, and descriptors for virtual memory
 * management. */
#include "cuda/ipc.h"

static bool has_attribute(const struct kolo_cuda *cuda, int attribute, unsigned mask,
                          kolo_cuda_address at)
{
    uint64_t value = 0; /* the driver stores a bool or a mask, which is shorter */
    return cuda->pointer_get_attribute(&value, attribute, at) == KOLO_CUDA_OK &&
           (value & mask) != 0;
}

enum kolo_cuda_ipc_way kolo_cuda_ipc_way(const struct kolo_cuda *cuda, kolo_cuda_address at)
{
    void *pool = NULL;
    if (has_attribute(cuda, KOLO_CUDA_POINTER_IPC, 0xff, at)) {
        return KOLO_CUDA_IPC_BY_HANDLE;
    }
    const bool exports =
        has_attribute(cuda, KOLO_CUDA_POINTER_HANDLES, KOLO_CUDA_HANDLE_FD, at) &&
        cuda->pointer_get_attribute(&pool, KOLO_CUDA_POINTER_POOL, at) == KOLO_CUDA_OK;
    return exports && pool == NULL ? KOLO_CUDA_IPC_BY_FD : KOLO_CUDA_IPC_NONE;
}

bool kolo_cuda_ipc_find(const struct kolo_cuda *cuda, kolo_cuda_address at,
                        enum kolo_cuda_ipc_way way, struct kolo_cuda_ipc_memory *out)
{
    kolo_cuda_address base = 0;
    unsigned long long id = 0;
    size_t bytes = 0;
    const bool known = cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at) == KOLO_CUDA_OK &&
                       cuda->mem_get_address_range(&base, &bytes, at) == KOLO_CUDA_OK;
    out->at = at;
    out->base = base;
    out->bytes = bytes;
    out->id = id;
    out->by_fd = way == KOLO_CUDA_IPC_BY_FD;
    return known;
}

int kolo_cuda_ipc_export(const struct kolo_cuda *cuda, const struct kolo_cuda_ipc_memory *memory)
{
    kolo_cuda_allocation allocation = 0;
    int fd = -1;
    if (cuda->mem_retain_allocation_handle(&allocation, (void *)(uintptr_t)memory->at) ==
        KOLO_CUDA_OK) {
        if (cuda->mem_export_to_shareable_handle(&fd, allocation, KOLO_CUDA_HANDLE_FD, 0) !=
            KOLO_CUDA_OK) {
            fd = -1;
        }
        (void)cuda->mem_release(allocation);
    }
    return fd;
}

kolo_cuda_address kolo_cuda_ipc_open(const struct kolo_cuda *cuda,
                                     const struct kolo_cuda_ipc_handle *handle)
{
    enum { LAZY_PEER_ACCESS = 1 };
    kolo_cuda_address at = 0;
    return cuda->ipc_open_mem_handle(&at, *handle, LAZY_PEER_ACCESS) == KOLO_CUDA_OK ? at : 0;
}

bool kolo_cuda_ipc_map(const struct kolo_cuda *cuda, int device, int fd, kolo_cuda_address at,
                       size_t bytes)
{
    const struct kolo_cuda_access access = {
        .kind = KOLO_CUDA_LOCATION_DEVICE, .device = device, .flags = KOLO_CUDA_READ_WRITE};
    kolo_cuda_allocation allocation = 0;
    if (cuda->mem_import_from_shareable_handle(&allocation, (void *)(uintptr_t)fd,
                                               KOLO_CUDA_HANDLE_FD) != KOLO_CUDA_OK) {
        return false;
    }
    const bool mapped = cuda->mem_map(at, bytes, 0, allocation, 0) == KOLO_CUDA_OK;
    const bool reached = mapped && cuda->mem_set_access(at, bytes, &access, 1) == KOLO_CUDA_OK;
    if (mapped && !reached) {
        (void)cuda->mem_unmap(at, bytes);
    }
    (void)cuda->mem_release(allocation); /* the mapping keeps the allocation */
    return reached;
}
