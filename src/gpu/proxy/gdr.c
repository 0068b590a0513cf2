// SPDX-License-Identifier: Apache-2.0
/* See gdr.h. */
#include "gpu/proxy/gdr.h"

#include <string.h>
#include <unistd.h>

/* ---- what can be used ---- */

static void find_device(struct kolo_direct *d)
{
    const struct kolo_comm *host = d->host;
    for (int q = 0; q < host->nranks && d->device == NULL; q++) {
        const struct kolo_member *m = &host->member[q];
        if (q != host->rank && (m->transport->caps & KOLO_CAP_CUDA) != 0) {
            d->transport = m->transport;
            d->device = m->device;
        }
    }
}

static kolo_status check_gpu(struct kolo_direct *d)
{
    const char *enabled = kolo_env("KOLO_DMABUF_ENABLE");
    int gives = 0, ordering = 0, flushes = 0;
    if (enabled != NULL && strcmp(enabled, "0") == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "KOLO_DMABUF_ENABLE is 0");
    }
    KOLO_TRY(KOLO_CUDA(d->gpu, "cuDeviceGetAttribute",
                       device_get_attribute(&gives, KOLO_CUDA_DMA_BUFS, d->gpu->device)));
    KOLO_TRY(KOLO_CUDA(d->gpu, "cuDeviceGetAttribute",
                       device_get_attribute(&ordering, KOLO_CUDA_RDMA_ORDERING, d->gpu->device)));
    KOLO_TRY(KOLO_CUDA(d->gpu, "cuDeviceGetAttribute",
                       device_get_attribute(&flushes, KOLO_CUDA_RDMA_FLUSHES, d->gpu->device)));
    if (gives == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "its driver gives no dma-bufs (NVIDIA's open kernel modules do)");
    }
    d->flushes = ordering < KOLO_CUDA_RDMA_OWNER;
    if (d->flushes && (flushes & KOLO_CUDA_RDMA_FLUSHED_BY_HOST) == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "what a NIC writes to it is not ordered, and cannot be flushed");
    }
    return KOLO_OK;
}

static kolo_status map(struct kolo_direct *d, void *at, size_t len, struct kolo_mem *out)
{
    pthread_mutex_lock(&d->host->device_lock);
    const kolo_status st = d->transport->map(d->device, at, len, out);
    pthread_mutex_unlock(&d->host->device_lock);
    return st;
}

static kolo_status try_out(struct kolo_direct *d)
{
    struct kolo_mem mem;
    kolo_cuda_address at = 0;
    KOLO_TRY(KOLO_CUDA(d->gpu, "cuMemAlloc", mem_alloc(&at, KOLO_DIRECT_LEAST)));
    const kolo_status st = map(d, (void *)(uintptr_t)at, KOLO_DIRECT_LEAST, &mem);
    if (st == KOLO_OK) {
        kolo_direct_unmap(d, &mem);
    }
    (void)d->gpu->cuda->mem_free(at);
    return st;
}

void kolo_direct_open(struct kolo_direct *d, struct kolo_comm *host, const struct kolo_gpu *gpu,
                      kolo_cuda_stream stream)
{
    *d = (struct kolo_direct){.host = host, .gpu = gpu, .stream = stream};
    find_device(d);
    if (d->device == NULL) {
        return;
    }
    host->direct = d;
    if (check_gpu(d) == KOLO_OK && try_out(d) == KOLO_OK) {
        KOLO_LOG(
            INFO, NET,
            "NET/IB : GPU Direct RDMA (DMABUF) enabled for GPU %d: messages from %d bytes on%s",
            gpu->ordinal, (int)KOLO_DIRECT_LEAST, d->flushes ? ", flushed when received" : "");
        return;
    }
    d->device = NULL;
    KOLO_LOG(INFO, NET, "NET/IB : GPU Direct RDMA disabled for GPU %d: %s", gpu->ordinal,
             kolo_error_text());
}

void kolo_direct_close(struct kolo_direct *d)
{
    if (d->host != NULL) {
        d->host->direct = NULL;
    }
}

/* ---- messages ---- */

bool kolo_direct_map(struct kolo_direct *d, void *at, size_t len, struct kolo_mem *out)
{
    if (map(d, at, len, out) == KOLO_OK) {
        return true;
    }
    if (!d->complained) {
        d->complained = true;
        KOLO_LOG(INFO, NET, "NET/IB : %zu bytes of GPU %d go through host memory: %s", len,
                 d->gpu->ordinal, kolo_error_text());
    }
    return false;
}

void kolo_direct_unmap(struct kolo_direct *d, struct kolo_mem *mem)
{
    pthread_mutex_lock(&d->host->device_lock);
    d->transport->unmap(d->device, mem);
    pthread_mutex_unlock(&d->host->device_lock);
}

kolo_status kolo_direct_flush(const struct kolo_direct *d)
{
    enum { CURRENT_CONTEXT = 0 };
    return d->flushes
               ? KOLO_CUDA(d->gpu, "cuFlushGPUDirectRDMAWrites",
                           flush_gpu_direct_rdma_writes(CURRENT_CONTEXT, KOLO_CUDA_RDMA_OWNER))
               : KOLO_OK;
}

/* ---- for transports ---- */

/* The driver gives whole pages. */
kolo_status kolo_direct_export(void *comm, const void *at, size_t len, int *fd, uint64_t *offset)
{
    const struct kolo_direct *d = ((const struct kolo_comm *)comm)->direct;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at;
    const uint64_t first = from & ~(page - 1), end = (from + len + page - 1) & ~(page - 1);
    if (d == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "this communicator has no GPU");
    }
    KOLO_TRY(kolo_gpu_enter(d->gpu));
    const kolo_status st = KOLO_CUDA(
        d->gpu, "cuMemGetHandleForAddressRange",
        mem_get_handle_for_address_range(fd, first, end - first, KOLO_CUDA_RANGE_DMA_BUF, 0));
    kolo_gpu_leave(d->gpu);
    *offset = from - first;
    return st;
}

kolo_status kolo_direct_copy(void *comm, void *to, const void *from, size_t len, bool to_gpu)
{
    const struct kolo_direct *d = ((const struct kolo_comm *)comm)->direct;
    if (d == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "this communicator has no GPU");
    }
    KOLO_TRY(kolo_gpu_enter(d->gpu));
    kolo_status st = to_gpu ? KOLO_CUDA(d->gpu, "cuMemcpyHtoDAsync",
                                        memcpy_htod_async((uintptr_t)to, from, len, d->stream))
                            : KOLO_CUDA(d->gpu, "cuMemcpyDtoHAsync",
                                        memcpy_dtoh_async(to, (uintptr_t)from, len, d->stream));
    st = st == KOLO_OK ? KOLO_CUDA(d->gpu, "cuStreamSynchronize", stream_synchronize(d->stream))
                       : st;
    kolo_gpu_leave(d->gpu);
    return st;
}
