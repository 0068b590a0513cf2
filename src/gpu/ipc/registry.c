// SPDX-License-Identifier: Apache-2.0
/* The registry as calls see it: a call looks a buffer up, and enters a buffer that is new. */
#include "gpu/ipc/registry_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- entries ---- */

/* `id` is the driver's number of the memory that is at `at` now. */
static struct kolo_ipc_entry *find_entry(const struct kolo_ipc_registry *l, uint64_t id,
                                         uint64_t at, size_t bytes)
{
    for (struct kolo_ipc_entry *entry = l->entries; entry != NULL; entry = entry->next) {
        const uint64_t base = entry->piece[0].base;
        bool known = false;
        for (unsigned i = 0; i < entry->pieces; i++) {
            known = known || entry->piece[i].id == id;
        }
        if (known && at >= base && at + bytes <= base + entry->bytes &&
            (entry->pieces == 1 || kolo_ipc_registry_is_alive(l, entry))) {
            return entry;
        }
    }
    return NULL;
}

/* The allocations in which a buffer lies. 0: they cannot be exported. */
static unsigned find_pieces(const struct kolo_ipc_registry *l, uint64_t at, size_t bytes,
                            struct kolo_cuda_ipc_memory *out)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    const enum kolo_cuda_ipc_way way = kolo_cuda_ipc_way(cuda, at);
    unsigned count = 0;
    uint64_t next = at;
    do {
        const unsigned most = way == KOLO_CUDA_IPC_BY_FD       ? PIECES
                              : way == KOLO_CUDA_IPC_BY_HANDLE ? 1
                                                               : 0;
        if (count == most || (count > 0 && kolo_cuda_ipc_way(cuda, next) != way) ||
            !kolo_cuda_ipc_find(cuda, next, way, &out[count])) {
            return 0;
        }
        next = out[count].base + out[count].bytes;
        count++;
    } while (next < at + bytes);
    return count;
}

static struct kolo_ipc_entry *begin_entry(struct kolo_ipc_registry *l, uint64_t at, size_t bytes)
{
    struct kolo_cuda_ipc_memory piece[PIECES] = {{.at = 0}};
    const unsigned count = find_pieces(l, at, bytes, piece);
    struct kolo_ipc_entry *entry =
        count > 0 && l->count < ENTRIES ? calloc(1, sizeof *entry + count * sizeof *piece) : NULL;
    if (entry == NULL) {
        if (!l->told) {
            KOLO_LOG(INFO, INIT, "GPU %d: %s; calls on this buffer go through inboxes",
                     l->gpu->ordinal,
                     count > 0 ? "a buffer of more allocations than other processes map"
                               : "a buffer that other processes cannot map (cudaMallocAsync, "
                                 "managed memory, or not exportable)");
        }
        l->told = true;
        return NULL;
    }
    memcpy(entry->piece, piece, count * sizeof *piece);
    entry->pieces = count;
    for (unsigned i = 0; i < count; i++) {
        entry->bytes += piece[i].bytes;
    }
    for (int q = 0; q < l->comm->ranks.nranks; q++) {
        entry->there[q] = piece[0].base;
    }
    entry->number = ++l->numbers;
    entry->next = l->entries;
    l->entries = entry;
    l->count++;
    kolo_bell_ring(&l->wake);
    return entry;
}

static bool is_under_way(const struct kolo_ipc_entry *entry)
{
    return entry != NULL && (entry->state == NEW || entry->state == ASKED);
}

/* Wait until the ranks have answered, a second at most. Returns the entry; NULL: it is gone. */
static struct kolo_ipc_entry *wait_for(struct kolo_ipc_registry *l, uint64_t id, uint64_t at,
                                       size_t bytes)
{
    const double end_us = kolo_now_us() + KOLO_UNIX_SOCKET_MS * 1e3;
    struct kolo_ipc_entry *entry = NULL;
    while (is_under_way(entry = find_entry(l, id, at, bytes)) && !l->impatient) {
        l->impatient = kolo_now_us() > end_us; /* do not wait again for the next buffers */
        pthread_mutex_unlock(&l->lock);
        kolo_ipc_nap();
        pthread_mutex_lock(&l->lock);
    }
    return entry;
}

bool kolo_ipc_registry_find(struct kolo_ipc_registry *l, const void *ptr, size_t bytes, bool wait,
                            uint64_t *shift_out)
{
    const kolo_cuda_address at = (uintptr_t)ptr;
    unsigned long long id = 0;
    if (l->gpu->cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at) != KOLO_CUDA_OK) {
        return false;
    }
    pthread_mutex_lock(&l->lock);
    struct kolo_ipc_entry *entry = find_entry(l, id, at, bytes);
    entry = entry != NULL ? entry : begin_entry(l, at, bytes);
    entry = wait && is_under_way(entry) ? wait_for(l, id, at, bytes) : entry;
    const bool there = entry != NULL && entry->state == THERE;
    for (int q = 0; q < l->comm->ranks.nranks && there; q++) {
        shift_out[q] = entry->there[q] - entry->piece[0].base;
    }
    pthread_mutex_unlock(&l->lock);
    return there;
}

/* ---- opening and closing ---- */

static void registry_free(struct kolo_ipc_registry *l)
{
    while (l->entries != NULL) {
        struct kolo_ipc_entry *entry = l->entries;
        l->entries = entry->next;
        free(entry);
    }
    kolo_ipc_registry_forget(l);
    kolo_unix_socket_close(&l->sockets);
    kolo_bell_close(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void kolo_ipc_registry_close(struct kolo_ipc_registry *l, bool over)
{
    if (l == NULL) {
        return;
    }
    atomic_store(&l->stop, true);
    kolo_bell_ring(&l->wake);
    pthread_join(l->thread, NULL);
    if (over) {
        kolo_ipc_registry_unmap(l);
    }
    registry_free(l);
}

static kolo_status start_thread(struct kolo_ipc_registry *l, bool *up_out)
{
    uint8_t runs = 0, all_run = 0;
    KOLO_TRY(kolo_unix_socket_open(l->comm, &l->sockets));
    runs = l->sockets.works && l->wake.heard.fd >= 0 &&
           pthread_create(&l->thread, NULL, kolo_ipc_registry_run, l) == 0;
    *up_out = runs != 0;
    KOLO_TRY(kolo_all_reduce(&runs, &all_run, 1, KOLO_UINT8, KOLO_MIN, l->comm, NULL));
    return all_run != 0 ? KOLO_OK : KOLO_ERR_UNSUPPORTED;
}

kolo_status kolo_ipc_registry_open(struct kolo_comm *comm, const struct kolo_gpu *gpu,
                                   struct kolo_ipc_registry **out)
{
    struct kolo_ipc_registry *l = calloc(1, sizeof *l);
    bool runs = false;
    if (l == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for buffers of %d ranks",
                         comm->ranks.nranks);
    }
    l->comm = comm;
    l->gpu = gpu;
    l->sockets.socket = KOLO_NO_FD;
    (void)kolo_bell_open(&l->wake);
    l->end = &l->inbox;
    pthread_mutex_init(&l->lock, NULL);
    const kolo_status st = start_thread(l, &runs);
    if (st == KOLO_OK) {
        *out = l;
        return KOLO_OK;
    }
    if (runs) {
        kolo_ipc_registry_close(l, true);
    } else {
        registry_free(l);
    }
    return st == KOLO_ERR_UNSUPPORTED ? KOLO_OK : st;
}
