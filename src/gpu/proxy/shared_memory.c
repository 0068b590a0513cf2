// SPDX-License-Identifier: Apache-2.0
/* The memory of a call of ranks that share a GPU: what a rank offers, and what rank 0 opens. All of
 * this is done before the call is enqueued. */
#include "gpu/proxy/shared_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether rank q is in rank 0's process. */
static bool is_here(const struct kolo_shared_gpu *l, int q)
{
    return l->host->member[q].peer.process == l->host->member[0].peer.process;
}

/* ---- offering ---- */

struct note { /* goes with the descriptor of an allocation */
    uint64_t base, bytes, id;
};

/* Describe memory that has a handle. The driver is asked once for each allocation. */
static bool offer_handle(struct kolo_shared_gpu *l, kolo_cuda_address at,
                         struct kolo_cuda_ipc_memory *out)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    if (!kolo_cuda_ipc_find(cuda, at, KOLO_CUDA_IPC_BY_HANDLE, out) ||
        cuda->ipc_get_mem_handle(&out->handle, out->base) != KOLO_CUDA_OK) {
        return false;
    }
    l->known[out->id % KOLO_SHARED_GPU_KNOWN] = *out;
    return true;
}

static bool is_known(const struct kolo_shared_gpu *l, kolo_cuda_address at,
                     struct kolo_cuda_ipc_memory *out)
{
    unsigned long long id = 0;
    if (l->gpu->cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at) != KOLO_CUDA_OK) {
        return false;
    }
    const struct kolo_cuda_ipc_memory *known = &l->known[id % KOLO_SHARED_GPU_KNOWN];
    if (id == 0 || known->id != id || known->by_fd != 0 || at < known->base ||
        at >= known->base + known->bytes) {
        return false;
    }
    *out = *known;
    out->at = at;
    return true;
}

/* Send the descriptor of an allocation to rank 0, if rank 0 does not have it. */
static bool offer_descriptor(struct kolo_shared_gpu *l, const struct kolo_cuda_ipc_memory *memory)
{
    const struct note note = {memory->base, memory->bytes, memory->id};
    struct kolo_cuda_ipc_memory *sent = &l->known[note.id % KOLO_SHARED_GPU_KNOWN];
    if (sent->id == note.id && sent->base == note.base && sent->bytes == note.bytes) {
        return true;
    }
    const int fd = l->sockets.works ? kolo_cuda_ipc_export(l->gpu->cuda, memory) : -1;
    const bool done = fd >= 0 && kolo_unix_socket_send(&l->sockets, 0, &note, sizeof note, fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (done) {
        *sent = *memory;
    }
    return done;
}

/* Describe a buffer, which rank 0 can open. */
static bool offer_memory(struct kolo_shared_gpu *l, const void *ptr, size_t bytes,
                         struct kolo_cuda_ipc_memory *out)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    const kolo_cuda_address at = (uintptr_t)ptr;
    bool found = ptr != NULL;
    out->at = at;
    if (ptr == NULL || is_here(l, l->host->ranks.rank)) {
        return true;
    }
    if (!is_known(l, at, out)) {
        const enum kolo_cuda_ipc_way way = kolo_cuda_ipc_way(cuda, at);
        found = way == KOLO_CUDA_IPC_BY_HANDLE ? offer_handle(l, at, out)
                : way == KOLO_CUDA_IPC_BY_FD   ? kolo_cuda_ipc_find(cuda, at, way, out)
                                               : false;
    }
    return found && at + bytes <= out->base + out->bytes &&
           (out->by_fd == 0 || offer_descriptor(l, out));
}

struct kolo_shared_gpu_offer kolo_shared_gpu_offer(struct kolo_shared_gpu *l,
                                                   const struct kolo_gpu_call *call, bool captured)
{
    const struct kolo_coll_args *args = &call->args;
    const struct kolo_coll_extent extent =
        kolo_coll_extent_of(args, l->host->ranks.rank, l->host->ranks.nranks);
    struct kolo_shared_gpu_offer offer = {.key = kolo_gpu_call_key(call, l->host->ranks.nranks),
                                          .factor = call->args.factor,
                                          .captured = captured};
    if (atomic_exchange(&l->forget, false)) {
        memset(l->known, 0, sizeof l->known);
    }
    const bool in = offer_memory(l, extent.has_in ? call->args.in : NULL,
                                 kolo_coll_in_bytes(args, &extent), &offer.in);
    const bool out = offer_memory(l, extent.has_out ? call->args.out : NULL,
                                  kolo_coll_out_bytes(args, &extent), &offer.out);
    offer.usable = in && out;
    return offer;
}

/* ---- opening ---- */

static void close_mapping(struct kolo_shared_gpu *l, struct kolo_shared_gpu_mapping *m)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    if (m->at == 0) {
        return;
    }
    if (m->by_fd) {
        (void)cuda->mem_unmap(m->at, m->bytes);
        (void)cuda->mem_address_free(m->at, m->bytes);
    } else {
        kolo_ipc_unmap(m->mapped);
    }
    *m = (struct kolo_shared_gpu_mapping){.at = 0};
}

void kolo_shared_gpu_close(struct kolo_shared_gpu *l)
{
    for (int i = 0; i < KOLO_SHARED_GPU_MAPPINGS; i++) {
        close_mapping(l, &l->mapping[i]);
    }
    kolo_ipc_mappings_try_close(l->gpu->pool);
    kolo_unix_socket_close(&l->sockets);
}

static int by_use(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Mark the mappings that were not used for the longest time, until a quarter of all is free. */
static void retire_oldest(struct kolo_shared_gpu *l)
{
    enum { MOST = KOLO_SHARED_GPU_MAPPINGS / 4 * 3 };
    uint64_t used[KOLO_SHARED_GPU_MAPPINGS];
    size_t n = 0;
    for (int i = 0; i < KOLO_SHARED_GPU_MAPPINGS; i++) {
        const struct kolo_shared_gpu_mapping *m = &l->mapping[i];
        if (m->at != 0 && !m->stale) {
            used[n++] = m->used;
        }
    }
    if (n > MOST) {
        qsort(used, n, sizeof *used, by_use);
        for (int i = 0; i < KOLO_SHARED_GPU_MAPPINGS; i++) {
            struct kolo_shared_gpu_mapping *m = &l->mapping[i];
            m->stale = m->stale || (m->at != 0 && m->used < used[n - MOST]);
        }
    }
}

void kolo_shared_gpu_tidy(struct kolo_shared_gpu *l)
{
    retire_oldest(l);
    for (int i = 0; i < KOLO_SHARED_GPU_MAPPINGS; i++) {
        if (l->mapping[i].stale) {
            close_mapping(l, &l->mapping[i]);
        }
    }
    kolo_ipc_mappings_close(l->gpu->pool);
    l->full = false;
}

/* The mapping of rank q's allocation, or a free entry for it, or NULL if there is none. A mapping
 * of another allocation at the same addresses is stale, because its memory is gone. */
static struct kolo_shared_gpu_mapping *find_mapping(struct kolo_shared_gpu *l, int q,
                                                    const struct kolo_cuda_ipc_memory *memory)
{
    struct kolo_shared_gpu_mapping *unused = NULL;
    for (int i = 0; i < KOLO_SHARED_GPU_MAPPINGS; i++) {
        struct kolo_shared_gpu_mapping *m = &l->mapping[i];
        const bool overlaps = m->at != 0 && !m->stale && m->rank == q &&
                              m->base < memory->base + memory->bytes &&
                              memory->base < m->base + m->bytes;
        if (overlaps && m->base == memory->base && m->bytes == memory->bytes &&
            m->id == memory->id) {
            return m;
        }
        if (overlaps) {
            m->stale = true;
            l->full = true;
        }
        unused = m->at == 0 ? m : unused;
    }
    if (unused == NULL) {
        l->full = true;
    }
    return unused;
}

bool kolo_shared_gpu_open_memory(struct kolo_shared_gpu *l, int q,
                                 const struct kolo_cuda_ipc_memory *memory, uint64_t *out)
{
    if (memory->at == 0 || is_here(l, q)) {
        *out = memory->at;
        return true;
    }
    struct kolo_shared_gpu_mapping *m = find_mapping(l, q, memory);
    if (m == NULL) {
        return false;
    }
    if (m->at == 0) { /* a descriptor would have come, and been mapped */
        struct kolo_ipc_mapped *mapped =
            memory->by_fd ? NULL
                          : kolo_ipc_map(l->gpu->pool, l->host->member[q].peer.process, memory);
        if (mapped == NULL) {
            l->full = true; /* perhaps old memory is still mapped there */
            return false;
        }
        *m = (struct kolo_shared_gpu_mapping){.rank = q,
                                              .base = memory->base,
                                              .bytes = memory->bytes,
                                              .id = memory->id,
                                              .at = mapped->at,
                                              .mapped = mapped};
    }
    m->used = ++l->uses;
    *out = m->at + (memory->at - memory->base);
    return true;
}

/* ---- descriptors ---- */

/* Map an allocation by its descriptor. 0: failed. */
static kolo_cuda_address map_fd(const struct kolo_shared_gpu *l, int fd, size_t bytes)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    kolo_cuda_address at = 0;
    if (cuda->mem_address_reserve(&at, bytes, 0, 0, 0) != KOLO_CUDA_OK) {
        return 0;
    }
    if (!kolo_cuda_ipc_map(cuda, l->gpu->device, fd, at, bytes)) {
        (void)cuda->mem_address_free(at, bytes);
        return 0;
    }
    return at;
}

void kolo_shared_gpu_take_descriptors(struct kolo_shared_gpu *l)
{
    int q = 0, fd = -1;
    struct note note;
    while (l->sockets.works && kolo_unix_socket_take(&l->sockets, &q, &note, sizeof note, &fd)) {
        const struct kolo_cuda_ipc_memory memory = {
            .base = note.base, .bytes = note.bytes, .id = note.id};
        struct kolo_shared_gpu_mapping *m = find_mapping(l, q, &memory);
        const kolo_cuda_address at =
            fd >= 0 && m != NULL && m->at == 0 ? map_fd(l, fd, memory.bytes) : 0;
        if (fd >= 0) {
            (void)close(fd);
        }
        if (at != 0) {
            *m = (struct kolo_shared_gpu_mapping){.rank = q,
                                                  .base = memory.base,
                                                  .bytes = memory.bytes,
                                                  .id = memory.id,
                                                  .by_fd = true,
                                                  .at = at,
                                                  .used = ++l->uses};
            KOLO_LOG(INFO, INIT, "Channel 00/0 : %d[%d] -> 0[%d] via P2P/CUMEM", q, l->gpu->ordinal,
                     l->gpu->ordinal);
        }
    }
}
