// SPDX-License-Identifier: Apache-2.0
/* GPUDirect RDMA for the proxy's messages: whether the GPU and a transport can do it, and the
 * registration of a message's memory. */
#include "gpu/proxy/gdr.h"

#include "gpu/options.h"

#include <string.h>
#include <unistd.h>

/* ---- what can be used ---- */

static void find_endpoint(struct kolo_gdr *d)
{
    const struct kolo_comm *host = d->host;
    for (int q = 0; q < host->ranks.nranks && d->endpoint == NULL; q++) {
        const struct kolo_member *m = &host->member[q];
        if (q != host->ranks.rank && (m->transport->caps & KOLO_CAP_CUDA) != 0) {
            d->transport = m->transport;
            d->endpoint = m->device;
        }
    }
}

static kolo_status check_gpu(struct kolo_gdr *d)
{
    struct kolo_gpu_options options;
    int gives = 0, ordering = 0, flushes = 0;
    KOLO_TRY(kolo_gpu_options_read(&options));
    if (!options.gdr) {
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
                         "its driver exports no dma-bufs (NVIDIA's open kernel modules do)");
    }
    d->flushes = ordering < KOLO_CUDA_RDMA_OWNER;
    if (d->flushes && (flushes & KOLO_CUDA_RDMA_FLUSHED_BY_HOST) == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "writes of a NIC to its memory are not ordered, and cannot be flushed");
    }
    return KOLO_OK;
}

static kolo_status register_memory(struct kolo_gdr *d, void *at, size_t len, struct kolo_mem *out)
{
    pthread_mutex_lock(&d->host->links.lock);
    const kolo_status st = d->transport->map(d->endpoint, at, len, out);
    pthread_mutex_unlock(&d->host->links.lock);
    return st;
}

static kolo_status try_out(struct kolo_gdr *d)
{
    struct kolo_mem mem;
    struct kolo_gpu_block *block = NULL;
    KOLO_TRY(kolo_gpu_pool_take(d->gpu->pool, KOLO_GPU_MEMORY, KOLO_GDR_LEAST, &block));
    const kolo_status st = register_memory(d, (void *)(uintptr_t)block->at, KOLO_GDR_LEAST, &mem);
    if (st == KOLO_OK) {
        kolo_gdr_unmap(d, &mem);
    }
    kolo_gpu_pool_give(d->gpu->pool, block);
    return st;
}

/* ---- for transports ---- */

/* kolo_env.dma_buf. The driver exports whole pages. */
static kolo_status export_memory(void *owner, const void *at, size_t len, int *fd, uint64_t *offset)
{
    const struct kolo_gdr *d = owner;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at;
    const uint64_t first = from & ~(page - 1), end = (from + len + page - 1) & ~(page - 1);
    KOLO_TRY(kolo_gpu_enter(d->gpu));
    const kolo_status st = KOLO_CUDA(
        d->gpu, "cuMemGetHandleForAddressRange",
        mem_get_handle_for_address_range(fd, first, end - first, KOLO_CUDA_RANGE_DMA_BUF, 0));
    kolo_gpu_leave(d->gpu);
    *offset = from - first;
    return st;
}

static kolo_status copy_memory(void *owner, void *to, const void *from, size_t len, bool to_gpu)
{
    const struct kolo_gdr *d = owner;
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

/* ---- opening and closing ---- */

void kolo_gdr_open(struct kolo_gdr *d, struct kolo_comm *host, const struct kolo_gpu *gpu,
                   kolo_cuda_stream stream)
{
    *d = (struct kolo_gdr){.host = host, .gpu = gpu, .stream = stream};
    find_endpoint(d);
    if (d->endpoint == NULL) {
        return;
    }
    d->memory = (struct kolo_device_memory){.endpoint = d->endpoint,
                                            .least_bytes = KOLO_GDR_LEAST,
                                            .dma_buf = export_memory,
                                            .copy = copy_memory,
                                            .owner = d};
    kolo_links_lend_memory(host, &d->memory);
    if (check_gpu(d) == KOLO_OK && try_out(d) == KOLO_OK) {
        KOLO_LOG(
            INFO, NET,
            "NET/IB : GPU Direct RDMA (DMABUF) enabled for GPU %d: messages from %d bytes on%s",
            gpu->ordinal, (int)KOLO_GDR_LEAST, d->flushes ? ", flushed when received" : "");
        return;
    }
    d->endpoint = NULL;
    d->memory.endpoint = NULL;
    KOLO_LOG(INFO, NET, "NET/IB : GPU Direct RDMA disabled for GPU %d: %s", gpu->ordinal,
             kolo_error_text());
}

void kolo_gdr_close(struct kolo_gdr *d)
{
    if (d->host != NULL) {
        kolo_links_lend_memory(d->host, NULL);
    }
}

/* ---- messages ---- */

bool kolo_gdr_map(struct kolo_gdr *d, void *at, size_t len, struct kolo_mem *out)
{
    if (register_memory(d, at, len, out) == KOLO_OK) {
        return true;
    }
    if (!d->complained) {
        d->complained = true;
        KOLO_LOG(INFO, NET, "NET/IB : %zu bytes of GPU %d go through host memory: %s", len,
                 d->gpu->ordinal, kolo_error_text());
    }
    return false;
}

void kolo_gdr_unmap(struct kolo_gdr *d, struct kolo_mem *mem)
{
    pthread_mutex_lock(&d->host->links.lock);
    d->transport->unmap(d->endpoint, mem);
    pthread_mutex_unlock(&d->host->links.lock);
}

kolo_status kolo_gdr_flush(const struct kolo_gdr *d)
{
    enum { CURRENT_CONTEXT = 0 };
    return d->flushes
               ? KOLO_CUDA(d->gpu, "cuFlushGPUDirectRDMAWrites",
                           flush_gpu_direct_rdma_writes(CURRENT_CONTEXT, KOLO_CUDA_RDMA_OWNER))
               : KOLO_OK;
}
