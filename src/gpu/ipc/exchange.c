// SPDX-License-Identifier: Apache-2.0
/* The registry's thread: it offers new entries to the other ranks, maps what they offer, and
 * withdraws entries whose memory is gone. */
#include "gpu/ipc/registry_inner.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* Whether rank q must map an entry. A rank of this process uses the pointer itself, and cannot open
 * a legacy handle of its own process. */
static bool is_asked(const struct kolo_ipc_registry *l, const struct kolo_ipc_entry *entry, int q)
{
    const struct kolo_member *member = l->comm->member;
    const int me = l->comm->ranks.rank;
    return q != me && (member[q].peer.process != member[me].peer.process || entry->piece[0].by_fd);
}

/* Whether a piece is still the same allocation. If the driver has no answer, it counts as the
 * same. */
static bool is_alive(const struct kolo_ipc_registry *l, const struct kolo_cuda_ipc_memory *piece)
{
    unsigned long long id = 0;
    const int error = l->gpu->cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, piece->base);
    return error == KOLO_CUDA_OK ? id == piece->id : error != KOLO_CUDA_INVALID_VALUE;
}

bool kolo_ipc_registry_is_alive(const struct kolo_ipc_registry *l,
                                const struct kolo_ipc_entry *entry)
{
    bool alive = true;
    for (unsigned i = 0; i < entry->pieces; i++) {
        alive = alive && is_alive(l, &entry->piece[i]);
    }
    return alive;
}

/* ---- messages ---- */

static bool keep_arrival(struct kolo_ipc_registry *l)
{
    struct kolo_ipc_arrival *arrival = malloc(sizeof *arrival);
    if (arrival == NULL || !kolo_unix_socket_take(&l->sockets, &arrival->rank, &arrival->message,
                                                  sizeof arrival->message, &arrival->fd)) {
        free(arrival);
        return false;
    }
    arrival->next = NULL;
    *l->end = arrival;
    l->end = &arrival->next;
    return true;
}

/* Send a message. If the receiver must first take other messages, take those that came here
 * meanwhile: the receiver may be waiting for that. */
static bool post_message(struct kolo_ipc_registry *l, int q, const struct kolo_ipc_message *message,
                         int fd)
{
    const double end_us = kolo_now_us() + KOLO_UNIX_SOCKET_MS * 1e3;
    while (!kolo_unix_socket_try(&l->sockets, q, message, sizeof *message, fd)) {
        if ((errno != EAGAIN && errno != EINTR && errno != ENOBUFS) || kolo_now_us() > end_us ||
            atomic_load(&l->stop)) {
            return false;
        }
        if (!keep_arrival(l)) {
            kolo_ipc_nap();
        }
    }
    return true;
}

/* ---- offering ---- */

static bool offer_piece(struct kolo_ipc_registry *l, struct kolo_ipc_entry *entry, unsigned i)
{
    const struct kolo_cuda_ipc_memory *piece = &entry->piece[i];
    struct kolo_ipc_message m = {.kind = OFFER,
                                 .by_fd = (uint32_t)piece->by_fd,
                                 .piece = i,
                                 .pieces = entry->pieces,
                                 .number = entry->number,
                                 .offset = piece->base - entry->piece[0].base,
                                 .bytes = piece->bytes,
                                 .total = entry->bytes,
                                 .base = piece->base,
                                 .id = piece->id};
    const int fd = piece->by_fd ? kolo_cuda_ipc_export(l->gpu->cuda, piece) : -1;
    bool sent = piece->by_fd
                    ? fd >= 0
                    : l->gpu->cuda->ipc_get_mem_handle(&m.handle, piece->base) == KOLO_CUDA_OK;
    for (int q = 0; q < l->comm->ranks.nranks && sent; q++) {
        sent = !is_asked(l, entry, q) || post_message(l, q, &m, fd);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return sent;
}

static void withdraw_entry(struct kolo_ipc_registry *l, const struct kolo_ipc_entry *entry)
{
    const struct kolo_ipc_message m = {.kind = WITHDRAW, .number = entry->number};
    for (int q = 0; q < l->comm->ranks.nranks; q++) {
        if (is_asked(l, entry, q)) {
            /* A receiver that takes no message ends, and its mapping with it. */
            (void)post_message(l, q, &m, -1);
        }
    }
}

static void refuse_entry(struct kolo_ipc_registry *l, struct kolo_ipc_entry *entry, const char *why,
                         int rank)
{
    pthread_mutex_lock(&l->lock);
    entry->state = REFUSED;
    pthread_mutex_unlock(&l->lock);
    KOLO_LOG(INFO, INIT,
             "GPU %d: rank %d cannot %s %zu bytes of rank %d; calls on them go through "
             "inboxes",
             l->gpu->ordinal, rank, why, (size_t)entry->bytes, l->comm->ranks.rank);
}

/* The oldest entry that was not offered yet. */
static struct kolo_ipc_entry *next_new(struct kolo_ipc_registry *l)
{
    struct kolo_ipc_entry *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (struct kolo_ipc_entry *entry = l->entries; entry != NULL; entry = entry->next) {
        found = entry->state == NEW ? entry : found;
    }
    if (found != NULL) {
        found->state = ASKED;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

static void offer_new(struct kolo_ipc_registry *l)
{
    for (struct kolo_ipc_entry *entry; (entry = next_new(l)) != NULL;) {
        bool sent = true;
        for (unsigned i = 0; i < entry->pieces && sent; i++) {
            sent = offer_piece(l, entry, i);
        }
        if (!sent) {
            refuse_entry(l, entry, "export", l->comm->ranks.rank);
            withdraw_entry(l, entry);
        }
    }
}

static void take_answer(struct kolo_ipc_registry *l, int q, const struct kolo_ipc_message *m)
{
    bool refused = false;
    struct kolo_ipc_entry *entry = NULL;
    int asked = 0;
    pthread_mutex_lock(&l->lock);
    for (entry = l->entries; entry != NULL && entry->number != m->number;) {
        entry = entry->next;
    }
    for (int r = 0; r < l->comm->ranks.nranks && entry != NULL; r++) {
        asked += is_asked(l, entry, r);
    }
    if (entry != NULL && entry->state == ASKED) {
        refused = m->at == 0;
        entry->there[q] = m->at;
        entry->state = ++entry->answers == asked && !refused ? THERE : ASKED;
    }
    pthread_mutex_unlock(&l->lock);
    if (refused) {
        refuse_entry(l, entry, "map", q);
        withdraw_entry(l, entry); /* the ranks that have mapped it need not keep it */
    }
}

static bool is_time_to_sweep(const struct kolo_ipc_registry *l)
{
    bool new = false;
    for (const struct kolo_ipc_entry *entry = l->entries; entry != NULL; entry = entry->next) {
        new = new || entry->state == NEW;
    }
    return new || kolo_now_us() > l->swept_us + SWEEP_MS * 1e3;
}

/* Withdraw the entries whose memory is gone. This comes before new entries, which may be at the
 * same addresses. */
static void sweep_entries(struct kolo_ipc_registry *l)
{
    struct kolo_ipc_entry *gone = NULL;
    pthread_mutex_lock(&l->lock);
    if (!is_time_to_sweep(l)) {
        pthread_mutex_unlock(&l->lock);
        return;
    }
    l->swept_us = kolo_now_us();
    for (struct kolo_ipc_entry **at = &l->entries; *at != NULL;) {
        struct kolo_ipc_entry *entry = *at;
        if (entry->state == NEW || kolo_ipc_registry_is_alive(l, entry)) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        l->count--;
        entry->next = gone;
        gone = entry;
    }
    pthread_mutex_unlock(&l->lock);
    while (gone != NULL) {
        struct kolo_ipc_entry *entry = gone;
        gone = entry->next;
        withdraw_entry(l, entry);
        free(entry);
    }
}

/* ---- mapping ---- */

static void unmap_pieces(const struct kolo_ipc_registry *l, struct kolo_ipc_mapping *m)
{
    const struct kolo_cuda *cuda = l->gpu->cuda;
    if (m->at == 0) {
        return;
    }
    if (m->by_fd) {
        for (unsigned i = 0; i < m->pieces; i++) {
            (void)cuda->mem_unmap(m->at + m->offset[i], m->bytes[i]);
        }
        (void)cuda->mem_address_free(m->at, m->total);
    } else {
        kolo_ipc_unmap(m->mapped);
        kolo_ipc_mappings_try_close(l->gpu->pool);
    }
    m->at = 0;
    m->mapped = NULL;
    m->pieces = 0;
}

static struct kolo_ipc_mapping **find_mapping(struct kolo_ipc_registry *l, int q, uint64_t number)
{
    struct kolo_ipc_mapping **at = &l->mappings;
    while (*at != NULL && ((*at)->rank != q || (*at)->number != number)) {
        at = &(*at)->next;
    }
    return at;
}

static void drop_mapping(struct kolo_ipc_registry *l, struct kolo_ipc_mapping **at)
{
    struct kolo_ipc_mapping *m = *at;
    if (m != NULL) {
        *at = m->next;
        unmap_pieces(l, m);
        free(m);
    }
}

/* Begin a mapping with its first piece. */
static void start_mapping(const struct kolo_ipc_registry *l, struct kolo_ipc_mapping *map,
                          const struct kolo_ipc_message *m)
{
    if (!map->by_fd) {
        const struct kolo_cuda_ipc_memory memory = {
            .base = m->base, .bytes = m->bytes, .id = m->id, .handle = m->handle};
        map->mapped = kolo_ipc_map(l->gpu->pool, l->comm->member[map->rank].peer.process, &memory);
        map->at = map->mapped != NULL ? map->mapped->at : 0;
    } else if (l->gpu->cuda->mem_address_reserve(&map->at, m->total, 0, 0, 0) != KOLO_CUDA_OK) {
        map->at = 0;
    }
}

static void map_piece(const struct kolo_ipc_registry *l, struct kolo_ipc_mapping *map,
                      const struct kolo_ipc_message *m, int fd)
{
    if (m->piece == 0) {
        start_mapping(l, map, m);
    }
    if (map->at == 0 || !map->by_fd) {
        return;
    }
    if (map->pieces == PIECES || fd < 0 || m->offset + m->bytes > map->total ||
        !kolo_cuda_ipc_map(l->gpu->cuda, l->gpu->device, fd, map->at + m->offset, m->bytes)) {
        unmap_pieces(l, map);
        return;
    }
    map->offset[map->pieces] = m->offset;
    map->bytes[map->pieces++] = m->bytes;
}

static void take_offer(struct kolo_ipc_registry *l, int q, const struct kolo_ipc_message *m, int fd)
{
    struct kolo_ipc_message answer = {.kind = ANSWER, .number = m->number};
    struct kolo_ipc_mapping *map = *find_mapping(l, q, m->number);
    if (map == NULL && m->piece == 0) {
        map = calloc(1, sizeof *map);
    }
    if (map != NULL && m->piece == 0) {
        *map = (struct kolo_ipc_mapping){
            .next = l->mappings, .rank = q, .number = m->number, .total = m->total};
        map->by_fd = m->by_fd != 0;
        l->mappings = map;
    }
    if (map != NULL) {
        map_piece(l, map, m, fd);
    }
    if (m->piece + 1 < m->pieces) {
        return;
    }
    answer.at = map != NULL ? map->at : 0;
    if (answer.at == 0) {
        drop_mapping(l, find_mapping(l, q, m->number));
    } else {
        KOLO_LOG(INFO, INIT, "GPU %d: %zu bytes of rank %d's memory via P2P/%s", l->gpu->ordinal,
                 (size_t)m->total, q, m->by_fd ? "CUMEM" : "IPC");
    }
    (void)post_message(l, q, &answer, -1);
}

/* ---- the thread ---- */

static bool next_arrival(struct kolo_ipc_registry *l, struct kolo_ipc_arrival *out)
{
    struct kolo_ipc_arrival *first = l->inbox;
    if (first == NULL) {
        return kolo_unix_socket_take(&l->sockets, &out->rank, &out->message, sizeof out->message,
                                     &out->fd);
    }
    *out = *first;
    l->inbox = first->next;
    l->end = l->inbox == NULL ? &l->inbox : l->end;
    free(first);
    return true;
}

static void serve_message(struct kolo_ipc_registry *l, const struct kolo_ipc_arrival *arrival)
{
    const struct kolo_ipc_message *m = &arrival->message;
    switch (m->kind) {
    case OFFER:
        take_offer(l, arrival->rank, m, arrival->fd);
        break;
    case ANSWER:
        take_answer(l, arrival->rank, m);
        break;
    default:
        drop_mapping(l, find_mapping(l, arrival->rank, m->number));
        break;
    }
    if (arrival->fd >= 0) {
        (void)close(arrival->fd);
    }
}

static void wait_for_work(struct kolo_ipc_registry *l)
{
    /* Where the program has closed them, the thread only looks now and then. */
    const bool whole = kolo_own_fd_is(&l->sockets.socket) && kolo_own_fd_is(&l->wake.heard);
    struct pollfd ready[] = {{.fd = whole ? l->sockets.socket.fd : -1, .events = POLLIN},
                             {.fd = whole ? l->wake.heard.fd : -1, .events = POLLIN}};
    pthread_mutex_lock(&l->lock);
    const int timeout_ms = l->count > 0 && whole ? SWEEP_MS : KOLO_FD_LOOK_MS;
    pthread_mutex_unlock(&l->lock);
    (void)poll(ready, KOLO_LENGTH(ready), l->inbox != NULL ? 0 : timeout_ms);
    (void)kolo_bell_hush(&l->wake);
}

void *kolo_ipc_registry_run(void *arg)
{
    struct kolo_ipc_registry *l = arg;
    /* CU_STREAM_CAPTURE_MODE_RELAXED: captures of other threads do not restrict this one. */
    int mode = 2;
    (void)l->gpu->cuda->thread_exchange_stream_capture_mode(&mode);
    /* Without the context, every request fails. */
    const bool entered = kolo_gpu_enter(l->gpu) == KOLO_OK;
    while (!atomic_load(&l->stop)) {
        struct kolo_ipc_arrival arrival;
        wait_for_work(l);
        while (!atomic_load(&l->stop) && next_arrival(l, &arrival)) {
            serve_message(l, &arrival);
        }
        sweep_entries(l);
        offer_new(l);
    }
    if (entered) {
        kolo_gpu_leave(l->gpu);
    }
    return NULL;
}

/* ---- after the thread ---- */

void kolo_ipc_registry_unmap(struct kolo_ipc_registry *l)
{
    for (struct kolo_ipc_mapping *m = l->mappings; m != NULL; m = m->next) {
        unmap_pieces(l, m);
    }
}

void kolo_ipc_registry_forget(struct kolo_ipc_registry *l)
{
    while (l->inbox != NULL) {
        struct kolo_ipc_arrival arrival;
        if (next_arrival(l, &arrival) && arrival.fd >= 0) {
            (void)close(arrival.fd);
        }
    }
    while (l->mappings != NULL) {
        struct kolo_ipc_mapping *m = l->mappings;
        l->mappings = m->next;
        free(m);
    }
}
