// SPDX-License-Identifier: Apache-2.0
/* Opening and closing the P2P path. Every rank does its part and tells all ranks the outcome. They
 * go on only if all of them were successful. */
#include "cuda/peer_access.h"
#include "gpu/p2p/inner.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    NVLINK_SLICES = 24, /* published kernels of this kind saturate NVLink with 24 to 36 blocks, */
    PCIE_SLICES = 4,    /* and PCIe with 4 blocks */
    INBOX_BYTES = 64 << 10, /* for each rank that may store to it, at most INBOXES ranks */
    INBOXES = 16,
    SCRATCH_BYTES = 64 << 10,
    /* The longest LL call. LL takes twice the bytes and saves the time of the signals. For 8 H100,
     * NCCL 2.30's model of its kernels (src/sym_kernels.cc there) has the border near an all-reduce
     * of 20 KiB, MSCCL++ uses 16 KiB: a rank receives 7 times that. PCIe is an eighth as fast, as
     * in p2p_path.c. */
    NVLINK_LL_BYTES = 128 << 10,
    PCIE_LL_BYTES = 16 << 10
};

/* ---- the ledger: for each GPU, the blocks that may wait ---- */

enum { GPUS = 64 };
static unsigned waiting[GPUS];
static pthread_mutex_t ledger_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned reserve_blocks(const struct kolo_gpu *gpu, unsigned want)
{
    unsigned *used = gpu->ordinal < GPUS ? &waiting[gpu->ordinal] : NULL;
    pthread_mutex_lock(&ledger_lock);
    const unsigned left = used != NULL && *used < gpu->sms ? gpu->sms - *used : 0;
    const unsigned got = want < left ? want : left;
    if (used != NULL) {
        *used += got;
    }
    pthread_mutex_unlock(&ledger_lock);
    return got;
}

static void release_blocks(const struct kolo_gpu *gpu, unsigned blocks)
{
    pthread_mutex_lock(&ledger_lock);
    waiting[gpu->ordinal % GPUS] -= blocks;
    pthread_mutex_unlock(&ledger_lock);
}

/* ---- pairs ---- */

/* This process's number of a GPU; -1: the process does not see the GPU. */
static int ordinal_of(const struct kolo_cuda *cuda, const unsigned char uuid[16])
{
    int count = 0;
    if (cuda->device_get_count(&count) != KOLO_CUDA_OK) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        unsigned char own[16] = {0};
        int device = 0;
        if (cuda->device_get(&device, i) == KOLO_CUDA_OK &&
            cuda->device_get_uuid(own, device) == KOLO_CUDA_OK && memcmp(own, uuid, 16) == 0) {
            return i;
        }
    }
    return -1;
}

/* Try a pair of GPUs. A success is kept: a trial takes a second, and a process may have many
 * communicators. */
static kolo_status try_pair(const struct kolo_cuda *cuda, const int pair[2])
{
    enum { BYTES = 1 << 20, TIMEOUT_MS = 10000 };
    static bool good[GPUS][GPUS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const bool known = pair[0] < GPUS && pair[1] < GPUS;
    double gbs = 0;
    pthread_mutex_lock(&lock);
    const kolo_status st = known && good[pair[0]][pair[1]]
                               ? KOLO_OK
                               : kolo_peer_access_try(cuda, pair, BYTES, TIMEOUT_MS, &gbs);
    if (known && st == KOLO_OK) {
        good[pair[0]][pair[1]] = true;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

/* Whether NVLink joins this rank's GPU and another. NVML knows. Without NVML, native atomics tell:
 * NVLink has them, and PCIe has not. */
static bool is_fast(const struct kolo_p2p_path *p, int ordinal)
{
    enum { NATIVE_ATOMICS = 3 }; /* CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED */
    int atomics = 0, device = 0;
    if (p->comm->layout.gpu_link != KOLO_GPU_LINK_UNKNOWN) {
        return p->comm->layout.gpu_link != KOLO_GPU_PCIE;
    }
    return p->gpu.cuda->device_get(&device, ordinal) == KOLO_CUDA_OK &&
           p->gpu.cuda->device_get_p2p_attribute(&atomics, NATIVE_ATOMICS, p->gpu.device, device) ==
               KOLO_CUDA_OK &&
           atomics != 0;
}

/* The most blocks of a call, as far as all ranks know it before they have met: what joins the GPUs
 * comes from rank 0's plan. Rings are on links that not all pairs have. */
static unsigned most_slices(const struct kolo_comm *c)
{
    const bool wired = c->layout.nrings > 1;
    return c->layout.gpu_link == KOLO_GPU_PCIE && !wired ? PCIE_SLICES : NVLINK_SLICES;
}

/* Try the pairs of this rank and the ranks after it. */
static bool try_pairs(struct kolo_p2p_path *p, const unsigned char (*uuid)[16])
{
    for (int q = p->comm->ranks.rank + 1; q < p->comm->ranks.nranks; q++) {
        const int pair[2] = {p->gpu.ordinal, ordinal_of(p->gpu.cuda, uuid[q])};
        if (pair[1] < 0) {
            KOLO_LOG(INFO, INIT,
                     "GPU %d of rank %d does not see rank %d's GPU (CUDA_VISIBLE_DEVICES?); calls "
                     "go through host memory",
                     pair[0], p->comm->ranks.rank, q);
            return false;
        }
        if (try_pair(p->gpu.cuda, pair) != KOLO_OK) {
            KOLO_LOG(WARN, INIT,
                     "no peer access between GPU %d of rank %d and GPU %d of rank %d: %s; calls go "
                     "through host memory. Access control on PCI bridges (ACS) or an IOMMU can be "
                     "the cause: run `kolo doctor`",
                     pair[0], p->comm->ranks.rank, pair[1], q, kolo_error_text());
            return false;
        }
        p->fast = is_fast(p, pair[1]) && p->fast;
    }
    return true;
}

/* ---- a rank's own part ---- */

struct offer { /* what a rank tells all ranks */
    uint32_t able, fast, blocks, direct;
    uint64_t ll_bytes; /* UINT64_MAX: the default */
    uint64_t context;  /* in its process */
    struct kolo_cuda_ipc_memory slab;
};

static kolo_status make_memory(struct kolo_p2p_path *p)
{
    KOLO_TRY(kolo_p2p_path_slab_make(p));
    KOLO_TRY(kolo_gpu_pool_take(p->gpu.pool, KOLO_GPU_PINNED, sizeof *p->pinned, &p->host));
    p->pinned = p->host->host;
    p->pinned_at = p->host->at;
    memset(&p->pinned->control, 0, sizeof p->pinned->control);
    return kolo_gpu_order_open(&p->gpu, &p->calls);
}

static bool other_processes(const struct kolo_comm *c)
{
    bool other = false;
    for (int q = 0; q < c->ranks.nranks; q++) {
        other = other || c->member[q].peer.process != c->member[c->ranks.rank].peer.process;
    }
    return other;
}

/* Try the pairs, and allocate this rank's memory. The GPU's context is current. */
static struct offer make_offer(struct kolo_p2p_path *p, const unsigned char (*uuid)[16])
{
    struct offer offer = {.able = 0};
    if (p->able && !try_pairs(p, uuid)) {
        return offer;
    }
    /* If not able, the error text is that of the kernels, which did not load. */
    kolo_status st = p->able ? make_memory(p) : KOLO_ERR_SYSTEM;
    if (st == KOLO_OK && other_processes(p->comm)) {
        st = KOLO_CUDA(&p->gpu, "cuIpcGetMemHandle",
                       ipc_get_mem_handle(&offer.slab.handle, p->own->at));
    }
    if (st == KOLO_OK &&
        !kolo_cuda_ipc_find(p->gpu.cuda, p->own->at, KOLO_CUDA_IPC_BY_HANDLE, &offer.slab)) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "the driver does not know its memory at %#llx", p->own->at);
    }
    if (st != KOLO_OK) {
        KOLO_LOG(WARN, INIT, "GPU %d: %s; calls go through host memory", p->gpu.ordinal,
                 kolo_error_text());
        return offer;
    }
    offer.able = 1;
    offer.fast = p->fast;
    offer.blocks = p->slices;
    offer.direct = p->direct;
    offer.ll_bytes = p->ll_bytes;
    offer.context = (uintptr_t)p->gpu.context;
    return offer;
}

/* ---- the others' slabs ---- */

static kolo_status map_slab(struct kolo_p2p_path *p, int q, const struct offer *offer)
{
    const struct kolo_comm *c = p->comm;
    if (c->member[q].peer.process != c->member[c->ranks.rank].peer.process) {
        p->opened[q] = kolo_ipc_map(p->gpu.pool, c->member[q].peer.process, &offer->slab);
        p->slab[q] = p->opened[q] != NULL ? p->opened[q]->at : 0;
        return p->opened[q] != NULL
                   ? KOLO_OK
                   : kolo_fail(KOLO_ERR_SYSTEM, "cuIpcOpenMemHandle does not map it");
    }
    const int error =
        p->gpu.cuda->ctx_enable_peer_access((kolo_cuda_context)(uintptr_t)offer->context, 0);
    p->slab[q] = offer->slab.at;
    return kolo_cuda_check(p->gpu.cuda, error == KOLO_CUDA_PEER_ALREADY_ENABLED ? 0 : error,
                           "cuCtxEnablePeerAccess");
}

static void unmap_slabs(struct kolo_p2p_path *p)
{
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        kolo_ipc_unmap(p->opened[q]);
        p->opened[q] = NULL;
    }
    kolo_ipc_mappings_try_close(p->gpu.pool);
}

/* Set what all ranks have in common. False: some rank cannot use this path. */
static bool agree_on_offers(struct kolo_p2p_path *p, const struct offer *all)
{
    unsigned blocks = p->slices;
    uint64_t ll_bytes = UINT64_MAX;
    bool able = true, direct = true;
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        able = able && all[q].able;
        p->fast = p->fast && all[q].fast;
        blocks = all[q].blocks < blocks ? all[q].blocks : blocks;
        direct = direct && all[q].direct;
        ll_bytes = all[q].ll_bytes < ll_bytes ? all[q].ll_bytes : ll_bytes;
    }
    p->direct = direct && p->fast; /* loads over PCIe wait for their answers */
    p->ll_bytes = ll_bytes != UINT64_MAX ? ll_bytes : p->fast ? NVLINK_LL_BYTES : PCIE_LL_BYTES;
    const bool wired = p->comm->layout.nrings > 1; /* rings on links that not all pairs have */
    const unsigned most = p->fast || wired ? NVLINK_SLICES : PCIE_SLICES;
    blocks = blocks < most ? blocks : most;
    release_blocks(&p->gpu, p->slices - blocks);
    p->slices = blocks;
    if (able && blocks == 0) {
        KOLO_LOG(INFO, INIT,
                 "GPU %d: other communicators have reserved all multiprocessors; calls go through "
                 "host memory",
                 p->gpu.ordinal);
    }
    return able && blocks > 0;
}

static bool map_all(struct kolo_p2p_path *p, const struct offer *all)
{
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        if (q != p->comm->ranks.rank && map_slab(p, q, &all[q]) != KOLO_OK) {
            KOLO_LOG(WARN, INIT,
                     "memory of rank %d's GPU cannot be mapped: %s; calls go through host memory",
                     q, kolo_error_text());
            return false;
        }
    }
    return true;
}

static void say_links(const struct kolo_p2p_path *p)
{
    const enum kolo_gpu_link link = p->comm->layout.gpu_link;
    KOLO_LOG(INFO, INIT,
             "GPU %d: %d ranks on a GPU each, over %s (%s), up to %u blocks a call, %zu KiB of "
             "each GPU for it; low-latency kernels where a rank gets at most %zu bytes%s",
             p->gpu.ordinal, p->comm->ranks.nranks,
             !p->fast                    ? "PCIe"
             : link == KOLO_GPU_NVSWITCH ? "NVSwitch"
                                         : "NVLink",
             link != KOLO_GPU_LINK_UNKNOWN ? "NVML" : "by native atomics", p->slices,
             kolo_program_slab_bytes(&p->room) >> 10, p->ll_bytes,
             p->direct ? "; longer ones from buffer to buffer" : "");
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        if (q != p->comm->ranks.rank) {
            KOLO_LOG(INFO, INIT, "rank %d -> %d via P2P/%s", p->comm->ranks.rank, q,
                     p->opened[q] ? "IPC" : "direct pointer");
        }
    }
}

/* ---- opening and closing ---- */

/* Free all of a path but its slab. */
static void path_free(struct kolo_p2p_path *p)
{
    kolo_gpu_order_close(&p->gpu, &p->calls);
    kolo_gpu_pool_give(p->gpu.pool, p->host);
    kolo_p2p_path_forget(p);
    release_blocks(&p->gpu, p->slices);
    pthread_mutex_destroy(&p->order);
    free(p);
}

/* Exchange offers and map all slabs; the GPU's context is current. *up_out is the same on all
 * ranks. If it is false, nothing is mapped. */
static kolo_status exchange_offers(struct kolo_p2p_path *p, const unsigned char (*uuid)[16],
                                   struct offer *all, bool *up_out)
{
    const struct offer mine = make_offer(p, uuid);
    int32_t lacks = 0, any = 0;
    KOLO_TRY(kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, p->comm, NULL));
    if (!agree_on_offers(p, all)) {
        return KOLO_OK;
    }
    lacks = !map_all(p, all);
    KOLO_TRY(kolo_all_reduce(&lacks, &any, 1, KOLO_INT32, KOLO_MAX, p->comm, NULL));
    if (any != 0) { /* all ranks unmap before any rank frees */
        unmap_slabs(p);
        return kolo_barrier(p->comm, NULL);
    }
    if (p->direct && other_processes(p->comm)) {
        KOLO_TRY(kolo_ipc_registry_open(p->comm, &p->gpu, &p->registry));
        p->direct = p->registry != NULL;
    }
    *up_out = true;
    return KOLO_OK;
}

static kolo_status open_in_context(struct kolo_p2p_path *p, const unsigned char (*uuid)[16],
                                   bool *up_out)
{
    struct offer *all = calloc((size_t)p->comm->ranks.nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", p->comm->ranks.nranks);
    }
    const kolo_status st = exchange_offers(p, uuid, all, up_out);
    free(all);
    if (!*up_out) {
        unmap_slabs(p);
        kolo_p2p_path_slab_drop(p);
    }
    return st;
}

kolo_status kolo_p2p_path_open(struct kolo_comm *comm, struct kolo_gpu *gpu,
                               const unsigned char (*uuid)[16],
                               const struct kolo_gpu_options *options, struct kolo_p2p_path **out)
{
    struct kolo_p2p_path *p = calloc(1, sizeof *p);
    bool up = false;
    if (p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator of several GPUs");
    }
    p->comm = comm;
    p->fast = true;
    p->direct = options->direct;
    p->ll_bytes = options->ll_bytes;
    p->slices = reserve_blocks(gpu, most_slices(comm));
    p->room = (struct kolo_program_room){
        .nranks = (uint32_t)comm->ranks.nranks,
        .slices = most_slices(comm),
        .inbox_bytes =
            INBOX_BYTES * (uint32_t)(comm->ranks.nranks < INBOXES ? comm->ranks.nranks : INBOXES),
        .scratch_bytes = SCRATCH_BYTES};
    pthread_mutex_init(&p->order, NULL);
    p->able = kolo_gpu_enter(gpu) == KOLO_OK;
    const bool entered = p->able;
    gpu->stores = true;
    p->able = p->able && kolo_gpu_load(gpu) == KOLO_OK;
    p->gpu = *gpu;
    const kolo_status st = open_in_context(p, uuid, &up);
    if (!up) {
        path_free(p);
    }
    if (entered) {
        kolo_gpu_leave(gpu);
    }
    if (up) {
        say_links(p);
        *out = p;
    }
    return st;
}

static bool is_over(struct kolo_p2p_path *p)
{
    pthread_mutex_lock(&p->order);
    const bool over = kolo_gpu_order_is_over(&p->gpu, &p->calls);
    pthread_mutex_unlock(&p->order);
    return over;
}

/* Wait, and return whether no kernel of this rank runs any more. */
static bool drain_calls(struct kolo_p2p_path *p, int timeout_ms)
{
    enum { GRACE_US = 10000000 };
    const struct timespec nap = {0, 100 * 1000};
    const double end_us = kolo_now_us() + timeout_ms * 1e3;
    while (!is_over(p) && kolo_now_us() < end_us + GRACE_US) {
        if (kolo_now_us() > end_us) {
            kolo_p2p_path_abort(p);
        }
        (void)nanosleep(&nap, NULL);
    }
    return is_over(p);
}

void kolo_p2p_path_close(struct kolo_p2p_path *p, int timeout_ms)
{
    if (kolo_gpu_enter(&p->gpu) != KOLO_OK) {
        return;
    }
    const struct kolo_gpu gpu = p->gpu;
    const bool over = drain_calls(p, timeout_ms);
    kolo_ipc_registry_close(p->registry, over);
    if (over) { /* otherwise the memory that is still used stays with the driver */
        kolo_p2p_path_slab_leave(p);
        unmap_slabs(p);
        path_free(p);
    }
    kolo_gpu_leave(&gpu);
}
