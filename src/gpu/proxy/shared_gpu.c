// SPDX-License-Identifier: Apache-2.0
/* A call of ranks that share a GPU: the exchange of offers, the mapping of buffers on rank 0, and
 * the kernel. */
#include "gpu/proxy/shared_gpu.h"

#include "core/call/parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum outcome { DONE = 0, CANNOT_OPEN = 1 }; /* a negative value is a status */

/* ---- offering ---- */

/* Describe a buffer, which rank 0 can open. */
static bool offer_memory(const struct kolo_shared_gpu *l, const void *ptr, size_t bytes,
                         struct kolo_cuda_ipc_memory *out)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    const kolo_cuda_address at = (uintptr_t)ptr;
    if (ptr == NULL) {
        return true;
    }
    const enum kolo_cuda_ipc_way way = kolo_cuda_ipc_way(cuda, at);
    return (way == KOLO_CUDA_IPC_BY_HANDLE || (way == KOLO_CUDA_IPC_BY_FD && l->sockets.works)) &&
           kolo_cuda_ipc_find(cuda, at, way, out) && at + bytes <= out->base + out->bytes &&
           (way == KOLO_CUDA_IPC_BY_FD ||
            cuda->ipc_get_mem_handle(&out->handle, out->base) == KOLO_CUDA_OK);
}

struct kolo_shared_gpu_offer kolo_shared_gpu_offer(const struct kolo_shared_gpu *l,
                                                   const struct kolo_gpu_call *call)
{
    const struct kolo_coll_args *args = &call->args;
    const struct kolo_coll_extent extent =
        kolo_coll_extent_of(args, l->host->ranks.rank, l->host->ranks.nranks);
    struct kolo_shared_gpu_offer offer = {.key = kolo_gpu_call_key(call, l->host->ranks.nranks),
                                          .factor = call->args.factor};
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
    atomic_store(&l->full, false);
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
            atomic_store(&l->full, true);
        }
        unused = m->at == 0 ? m : unused;
    }
    if (unused == NULL) {
        atomic_store(&l->full, true);
    }
    return unused;
}

static bool is_here(const struct kolo_shared_gpu *l, int q,
                    const struct kolo_cuda_ipc_memory *memory)
{
    return memory->at == 0 ||
           l->host->member[q].peer.process == l->host->member[l->host->ranks.rank].peer.process;
}

static bool open_memory(struct kolo_shared_gpu *l, int q, const struct kolo_cuda_ipc_memory *memory,
                        uint64_t *out)
{
    if (is_here(l, q, memory)) {
        *out = memory->at;
        return true;
    }
    struct kolo_shared_gpu_mapping *m = find_mapping(l, q, memory);
    if (m == NULL) {
        return false;
    }
    if (m->at == 0) {
        struct kolo_ipc_mapped *mapped =
            memory->by_fd ? NULL
                          : kolo_ipc_map(l->gpu->pool, l->host->member[q].peer.process, memory);
        if (mapped == NULL) {
            atomic_store(&l->full, true); /* perhaps old memory is still mapped there */
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

enum { NEEDS_IN = 1, NEEDS_OUT = 2 }; /* the descriptors for which rank 0 asks a rank */

kolo_status kolo_shared_gpu_open(struct kolo_shared_gpu *l)
{
    return kolo_unix_socket_open(l->host, &l->sockets);
}

static void export_memory(const struct kolo_shared_gpu *l, int32_t which,
                          const struct kolo_cuda_ipc_memory *memory)
{
    const int fd = kolo_cuda_ipc_export(l->gpu->cuda, memory);
    /* Not sent: rank 0 waits a limited time. */
    (void)kolo_unix_socket_send(&l->sockets, 0, &which, sizeof which, fd);
    if (fd >= 0) {
        (void)close(fd);
    }
}

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

static bool needs_descriptor(struct kolo_shared_gpu *l, int q,
                             const struct kolo_cuda_ipc_memory *memory)
{
    if (memory->by_fd == 0 || is_here(l, q, memory)) {
        return false;
    }
    const struct kolo_shared_gpu_mapping *m = find_mapping(l, q, memory);
    return m != NULL && m->at == 0;
}

/* On rank 0: map the descriptors that come. A mapping that failed is noticed when the buffer is
 * opened. */
static void receive_fds(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *offer,
                        int asked)
{
    int q = 0, fd = -1;
    int32_t which = 0;
    for (; asked > 0 && kolo_unix_socket_recv(&l->sockets, &q, &which, sizeof which, &fd);
         asked--) {
        const struct kolo_cuda_ipc_memory *memory =
            which == NEEDS_IN ? &offer[q].in : &offer[q].out;
        struct kolo_shared_gpu_mapping *m = find_mapping(l, q, memory);
        const kolo_cuda_address at =
            fd >= 0 && m != NULL && m->at == 0 ? map_fd(l, fd, memory->bytes) : 0;
        if (fd >= 0) {
            (void)close(fd);
        }
        if (at != 0) {
            *m = (struct kolo_shared_gpu_mapping){.rank = q,
                                                  .base = memory->base,
                                                  .bytes = memory->bytes,
                                                  .id = memory->id,
                                                  .by_fd = true,
                                                  .at = at,
                                                  .used = ++l->uses};
            KOLO_LOG(INFO, INIT, "Channel 00/0 : %d[%d] -> 0[%d] via P2P/CUMEM", q, l->gpu->ordinal,
                     l->gpu->ordinal);
        }
    }
}

/* Rank 0 tells which descriptors it lacks, and the ranks send them. */
static kolo_status exchange_fds(struct kolo_shared_gpu *l,
                                const struct kolo_shared_gpu_offer *offer)
{
    uint8_t mine[KOLO_FUSED_RANKS] = {0}, need[KOLO_FUSED_RANKS] = {0};
    const int n = l->host->ranks.nranks;
    int asked = 0, any = 0;
    for (int q = 0; q < n; q++) {
        any += offer[q].in.by_fd != 0 || offer[q].out.by_fd != 0;
    }
    if (any == 0) {
        return KOLO_OK;
    }
    for (int q = 0; q < n && l->host->ranks.rank == 0; q++) {
        const bool in = needs_descriptor(l, q, &offer[q].in);
        const bool out =
            needs_descriptor(l, q, &offer[q].out) && !(in && offer[q].in.base == offer[q].out.base);
        mine[q] = (uint8_t)((in ? NEEDS_IN : 0) | (out ? NEEDS_OUT : 0));
        asked += in + out;
    }
    KOLO_TRY(kolo_broadcast(mine, need, sizeof need, KOLO_UINT8, 0, l->host, NULL));
    const uint8_t own = need[l->host->ranks.rank];
    if ((own & NEEDS_IN) != 0) {
        export_memory(l, NEEDS_IN, &offer[l->host->ranks.rank].in);
    }
    if ((own & NEEDS_OUT) != 0) {
        export_memory(l, NEEDS_OUT, &offer[l->host->ranks.rank].out);
    }
    receive_fds(l, offer, asked);
    return KOLO_OK;
}

/* ---- running ---- */

/* Log once that rank 0 cannot open memory of rank q. Other memory may be better. */
static void say_closed(struct kolo_shared_gpu *l, int q)
{
    if (!l->said && l->host->ranks.rank == 0) {
        l->said = true;
        KOLO_LOG(
            INFO, INIT,
            "rank 0 cannot open a buffer of rank %d on GPU %d (managed memory, a pool, several "
            "allocations, or a mapping that is still in its place); such calls go through the "
            "host",
            q, l->gpu->ordinal);
    }
}

static bool is_ended(const struct kolo_shared_gpu *l)
{
    return atomic_load(&l->host->failure.error) != KOLO_OK;
}

/* Wait for the kernel. A GPU that has failed ends no kernel, and says so to any call. That call may
 * wait for another thread of the process, which waits for the kernel at most. */
static kolo_status wait_for_kernel(struct kolo_shared_gpu *l, kolo_cuda_stream own)
{
    enum { SPIN_US = 1000, ASK_US = 1000000 };
    const struct timespec nap = {0, 20 * 1000};
    const double start = kolo_now_us();
    double asked = start;
    while (atomic_load_explicit(l->words.ended, memory_order_acquire) == 0) {
        const double now = kolo_now_us();
        if (is_ended(l)) {
            return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
        }
        if (now - asked > ASK_US) {
            asked = now;
            KOLO_TRY(KOLO_CUDA(l->gpu, "cuStreamSynchronize", stream_synchronize(own)));
        }
        if (now - start > SPIN_US) {
            (void)nanosleep(&nap, NULL);
        }
    }
    return KOLO_OK;
}

static int32_t lead_call(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *offer,
                         kolo_cuda_stream own, bool *released_out)
{
    struct kolo_fused_table *table = l->words.table;
    int closed = -1;
    for (int q = 0; q < l->host->ranks.nranks; q++) { /* all, so that the next call finds nothing
                                                         stale */
        struct kolo_fused_rank *rank = &table->rank[q];
        rank->factor = offer[q].factor;
        const bool in = open_memory(l, q, &offer[q].in, &rank->in);
        const bool out = open_memory(l, q, &offer[q].out, &rank->out);
        closed = in && out ? closed : q;
    }
    if (closed >= 0) {
        say_closed(l, closed);
        return CANNOT_OPEN;
    }
    if (is_ended(l)) { /* the stream may have gone on without this call */
        return (int32_t)kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    atomic_store(l->words.ended, 0);
    __atomic_store_n(&table->aborted, 0, __ATOMIC_RELEASE);
    atomic_store_explicit(l->words.done, 1, memory_order_release);
    *released_out = true;
    const kolo_status st = wait_for_kernel(l, own);
    __atomic_store_n(&table->aborted, 1, __ATOMIC_RELEASE);
    return (int32_t)st;
}

kolo_status kolo_shared_gpu_enqueue(struct kolo_shared_gpu *l, const struct kolo_gpu_call *call)
{
    struct kolo_fused_launch argument = {.table = l->words.table_at};
    struct kolo_cuda_stream_op op = {
        .kind = KOLO_CUDA_WRITE_32, .at = l->words.ended_at, .value = 1};
    KOLO_TRY(kolo_gpu_launch(l->gpu, l->host->ranks.nranks, call, &argument));
    return KOLO_CUDA(l->gpu, "cuStreamBatchMemOp", stream_batch_mem_op(call->stream, 1, &op, 0));
}

static kolo_status check_same(const struct kolo_shared_gpu *l,
                              const struct kolo_shared_gpu_offer *offer)
{
    for (int q = 1; q < l->host->ranks.nranks; q++) {
        if (offer[q].key != offer[0].key) {
            return kolo_fail(KOLO_ERR_MISMATCH,
                             "ranks 0 and %d are in different calls on memory of their GPU", q);
        }
    }
    return KOLO_OK;
}

static kolo_status run_offers(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *offer,
                              kolo_cuda_stream own, bool *done_out, bool *released_out)
{
    int32_t outcome = DONE;
    KOLO_TRY(check_same(l, offer));
    for (int q = 0; q < l->host->ranks.nranks; q++) {
        if (!offer[q].usable) {
            outcome = CANNOT_OPEN;
            say_closed(l, q);
        }
    }
    if (outcome == CANNOT_OPEN) {
        *done_out = false;
        return KOLO_OK;
    }
    KOLO_TRY(exchange_fds(l, offer));
    if (l->host->ranks.rank == 0) {
        outcome = lead_call(l, offer, own, released_out);
    }
    const int32_t mine = outcome;
    KOLO_TRY(kolo_broadcast(&mine, &outcome, 1, KOLO_INT32, 0, l->host, NULL));
    if (outcome < 0) {
        return l->host->ranks.rank == 0
                   ? (kolo_status)outcome
                   : kolo_fail((kolo_status)outcome,
                               "rank 0 could not run the kernel for all ranks");
    }
    *done_out = outcome == DONE;
    return KOLO_OK;
}

kolo_status kolo_shared_gpu_run(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *mine,
                                kolo_cuda_stream own, bool *done_out, bool *released_out)
{
    struct kolo_shared_gpu_offer *all = calloc((size_t)l->host->ranks.nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", l->host->ranks.nranks);
    }
    kolo_status st = kolo_all_gather(mine, all, sizeof *mine, KOLO_UINT8, l->host, NULL);
    st = st == KOLO_OK ? run_offers(l, all, own, done_out, released_out) : st;
    free(all);
    return st;
}
