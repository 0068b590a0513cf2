// SPDX-License-Identifier: Apache-2.0
/* Messages through rings. A ring has one producer, one consumer and two counters that only grow.
 *
 *   tail   slots filled so far     written by the producer after the slot     (release)
 *   head   slots emptied so far    written by the consumer after its copy     (release)
 *
 * A message is cut into slots. An empty message takes a slot, too, so that its arrival is an event.
 *
 * Each side keeps its own counter and the last value that it read of the other counter. It reads
 * the other side's cache line only when its own copy shows no slot left.
 *
 * A number that the peer writes is checked against this side's own numbers. It is never used as an
 * address. Source: Lamport 1977, doi:10.1145/359863.359883. */
#include "transports/fifo.h"
#include "transports/futex.h"
#include "transports/shm/shm.h"

#include <stdlib.h>

enum { SLOTS = 8, SLOT_BYTES = 16384, PAGE_BYTES = 4096, BELL_BYTES = 128 };
#define LAST (UINT32_C(1) << 31) /* the slot ends its message */

struct ring {
    _Alignas(128) _Atomic(uint64_t) tail; /* the producer's line */
    uint32_t bytes[SLOTS];                /* in each slot, and LAST; ordered by tail */
    uint32_t number[SLOTS], chain[SLOTS]; /* of the sender's call, see struct kolo_call_sign */
    _Alignas(128) _Atomic(uint64_t) head; /* the consumer's line */
    _Alignas(PAGE_BYTES) char slot[SLOTS][SLOT_BYTES];
};

struct kolo_shm_pipe {
    struct ring *out, *in; /* NULL until used */
    uint64_t tail, head;   /* ours: of `out` and of `in` */
    uint64_t seen_head, seen_tail;
    struct kolo_req_fifo sends, recvs;
};

/* ---- the region ---- */

static size_t ready_bytes(int nranks)
{
    return kolo_round_up(BELL_BYTES + (size_t)nranks * KOLO_CHANNELS * sizeof(uint32_t),
                         PAGE_BYTES);
}

static size_t ring_at(int nranks, int rank, uint32_t channel)
{
    return ready_bytes(nranks) + ((size_t)rank * KOLO_CHANNELS + channel) * sizeof(struct ring);
}

static _Atomic(uint32_t) *ready_flag(char *region, int rank, uint32_t channel)
{
    return (_Atomic(uint32_t) *)(void *)(region + BELL_BYTES) + (size_t)rank * KOLO_CHANNELS +
           channel;
}

size_t kolo_shm_region_bytes(int nranks)
{
    return ring_at(nranks, nranks, 0);
}

kolo_status kolo_shm_region_prepare(struct kolo_segment *region, int nranks)
{
    return kolo_segment_reserve(region, 0, ready_bytes(nranks));
}

/* The ring to the peer, made at the first message. */
static kolo_status open_out(struct kolo_link *link, uint32_t channel)
{
    struct kolo_endpoint *ep = link->ep;
    struct kolo_shm_pipe *pipe = link->pipe[channel];
    if (pipe->out != NULL) {
        return KOLO_OK;
    }
    char *region = kolo_segment_base(ep->region);
    const size_t at = ring_at(ep->env.nranks, link->peer.rank, channel);
    KOLO_TRY(kolo_segment_reserve(ep->region, at, sizeof(struct ring)));
    pipe->out = (struct ring *)(void *)(region + at);
    /* Release: a peer that sees the flag sees the ring's zeroes, too. */
    atomic_store_explicit(ready_flag(region, link->peer.rank, channel), 1, memory_order_release);
    return KOLO_OK;
}

/* Whether the peer has made its ring to us. */
static bool open_in(struct kolo_link *link, uint32_t channel)
{
    struct kolo_endpoint *ep = link->ep;
    struct kolo_shm_pipe *pipe = link->pipe[channel];
    if (pipe->in == NULL && atomic_load_explicit(ready_flag(link->region, ep->env.rank, channel),
                                                 memory_order_acquire) != 0) {
        const size_t at = ring_at(ep->env.nranks, ep->env.rank, channel);
        pipe->in = (struct ring *)(void *)(link->region + at);
    }
    return pipe->in != NULL;
}

/* ---- requests ---- */

static void finish_first(struct kolo_req_fifo *fifo, kolo_status status)
{
    struct kolo_req *req = kolo_req_fifo_pop(fifo);
    req->status = status;
}

static int finish_all(struct kolo_req_fifo *fifo, kolo_status status)
{
    int count = 0;
    for (; fifo->first != NULL; count++) {
        finish_first(fifo, status);
    }
    return count;
}

static kolo_status ring_damaged(struct kolo_link *link)
{
    return kolo_fail(KOLO_ERR_LINK, "the message ring with rank %d (pid %d) is damaged",
                     link->peer.rank, link->peer.pid);
}

/* ---- bells ---- */

struct kolo_doorbell *kolo_shm_bell(struct kolo_endpoint *ep)
{
    return (struct kolo_doorbell *)(void *)kolo_segment_base(ep->region);
}

/* The peer has news. Its bell rings later, once for all parts of a message. */
static void note_news(struct kolo_link *link)
{
    if (!link->rings) {
        link->rings = true;
        link->next_to_ring = link->ep->to_ring;
        link->ep->to_ring = link;
    }
}

/* The sleeper's membarrier makes up for the fence that is missing between the peer's news and the
 * load of `sleepers`. */
void kolo_shm_ring(struct kolo_endpoint *ep)
{
    atomic_signal_fence(memory_order_seq_cst);
    while (ep->to_ring != NULL) {
        struct kolo_link *link = ep->to_ring;
        struct kolo_doorbell *bell = (struct kolo_doorbell *)(void *)link->region;
        ep->to_ring = link->next_to_ring;
        link->rings = false;
        if (__atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) != 0) {
            __atomic_fetch_add(&bell->rings, 1, __ATOMIC_SEQ_CST);
            kolo_futex_wake(&bell->rings);
        }
    }
}

/* ---- moving ---- */

/* Fill slots until the ring is full or no data is left. Returns slots, or a status < 0. */
static int advance_sends(struct kolo_link *link, struct kolo_shm_pipe *pipe)
{
    struct ring *ring = pipe->out;
    int moved = 0;
    while (pipe->sends.first != NULL) {
        struct kolo_req *req = pipe->sends.first;
        if (pipe->tail - pipe->seen_head == SLOTS) {
            /* Acquire: the consumer has read the slot before this side writes it again. */
            pipe->seen_head = atomic_load_explicit(&ring->head, memory_order_acquire);
            if (pipe->tail - pipe->seen_head > SLOTS) {
                return ring_damaged(link);
            }
            if (pipe->tail - pipe->seen_head == SLOTS) {
                break;
            }
        }
        const size_t slot = pipe->tail % SLOTS;
        const size_t bytes = kolo_min(SLOT_BYTES, req->bytes - req->moved);
        kolo_bytes_read(&req->data, req->moved, ring->slot[slot], bytes);
        ring->bytes[slot] = (uint32_t)bytes | (req->moved + bytes == req->bytes ? LAST : 0);
        ring->number[slot] = req->call.number;
        ring->chain[slot] = req->call.chain;
        atomic_store_explicit(&ring->tail, ++pipe->tail, memory_order_release);
        req->moved += bytes;
        moved++;
        if (req->moved == req->bytes) {
            finish_first(&pipe->sends, KOLO_OK);
        }
    }
    return moved;
}

/* Empty slots until the ring is empty or no receive is left. Returns slots, or a status < 0. */
static int advance_recvs(struct kolo_link *link, struct kolo_shm_pipe *pipe)
{
    struct ring *ring = pipe->in;
    int moved = 0;
    while (pipe->recvs.first != NULL) {
        struct kolo_req *req = pipe->recvs.first;
        if (pipe->seen_tail == pipe->head) {
            /* Acquire: the producer has written the slot and its length. */
            pipe->seen_tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
            if (pipe->seen_tail - pipe->head > SLOTS) {
                return ring_damaged(link);
            }
            if (pipe->seen_tail == pipe->head) {
                break;
            }
        }
        const size_t slot = pipe->head % SLOTS;
        const size_t bytes = kolo_min(SLOT_BYTES, req->bytes - req->moved);
        const uint32_t came = ring->bytes[slot];
        req->call =
            (struct kolo_call_sign){.number = ring->number[slot], .chain = ring->chain[slot]};
        if (came != ((uint32_t)bytes | (req->moved + bytes == req->bytes ? LAST : 0))) {
            return kolo_fail(
                KOLO_ERR_MISMATCH,
                "a message of rank %d does not have the %zu bytes that rank %d expects",
                link->peer.rank, req->bytes, link->ep->env.rank);
        }
        kolo_bytes_write(&req->data, req->moved, ring->slot[slot], bytes);
        atomic_store_explicit(&ring->head, ++pipe->head, memory_order_release);
        req->moved += bytes;
        moved++;
        if (req->moved == req->bytes) {
            finish_first(&pipe->recvs, KOLO_OK);
        }
    }
    return moved;
}

/* Whether the producer may have found the ring full before this side emptied `received` slots. */
static bool was_full(const struct kolo_shm_pipe *pipe, int received)
{
    const uint64_t tail = atomic_load_explicit(&pipe->in->tail, memory_order_relaxed);
    return tail - (pipe->head - (uint64_t)received) >= SLOTS;
}

/* Advance one channel. Returns the slots moved, or a status < 0 that ends the link. */
static int advance_channel(struct kolo_link *link, uint32_t channel)
{
    struct kolo_shm_pipe *pipe = link->pipe[channel];
    const int sent = pipe->sends.first != NULL ? advance_sends(link, pipe) : 0;
    if (sent < 0) {
        return sent;
    }
    const bool wanted = pipe->recvs.first != NULL && open_in(link, channel);
    const int received = wanted ? advance_recvs(link, pipe) : 0;
    if (sent > 0 || (received > 0 && was_full(pipe, received))) {
        note_news(link);
    }
    return received < 0 ? received : sent + received;
}

static bool is_idle(const struct kolo_shm_pipe *pipe)
{
    return pipe->sends.first == NULL && pipe->recvs.first == NULL;
}

/* Note that `channel` has unfinished requests. */
static void activate_channel(struct kolo_link *link, uint32_t channel)
{
    struct kolo_endpoint *ep = link->ep;
    if (link->pending == 0) {
        link->next_active = NULL;
        *(ep->active == NULL ? &ep->active : &ep->active_last->next_active) = link;
        ep->active_last = link;
    }
    link->pending |= UINT32_C(1) << channel;
}

static int finish_link(struct kolo_link *link, kolo_status why)
{
    int count = 0;
    for (int channel = 0; channel < KOLO_CHANNELS; channel++) {
        struct kolo_shm_pipe *pipe = link->pipe[channel];
        if (pipe != NULL) {
            count += finish_all(&pipe->sends, why) + finish_all(&pipe->recvs, why);
        }
    }
    link->pending = 0;
    return count;
}

static int advance_link(struct kolo_link *link)
{
    int moved = 0;
    for (uint32_t left = link->pending; left != 0; left &= left - 1) {
        const uint32_t channel = (uint32_t)__builtin_ctz(left);
        const int status = advance_channel(link, channel);
        if (status < 0) {
            atomic_store(&link->why, status);
            return moved;
        }
        moved += status;
        if (is_idle(link->pipe[channel])) {
            link->pending &= ~(UINT32_C(1) << channel);
        }
    }
    return moved;
}

/* Advance the first link. An unfinished link goes to the end of the list. */
static int advance_first(struct kolo_endpoint *ep)
{
    struct kolo_link *link = ep->active;
    ep->active = link->next_active;
    int why = atomic_load(&link->why);
    int moved = why == 0 ? advance_link(link) : 0;
    why = atomic_load(&link->why);
    if (why != 0) {
        moved += finish_link(link, (kolo_status)why);
    }
    if (link->pending != 0) {
        link->next_active = NULL;
        *(ep->active == NULL ? &ep->active : &ep->active_last->next_active) = link;
        ep->active_last = link;
    }
    return moved;
}

int kolo_shm_progress(struct kolo_endpoint *ep, int budget)
{
    int moved = 0;
    const struct kolo_link *last = ep->active != NULL ? ep->active_last : NULL;
    for (bool more = last != NULL; more && moved < budget;) {
        more = ep->active != last;
        moved += advance_first(ep);
    }
    return moved;
}

static kolo_status start_request(struct kolo_link *link, const struct kolo_bytes *data,
                                 struct kolo_req *req)
{
    const int why = atomic_load(&link->why);
    if (why != 0) {
        return kolo_fail((kolo_status)why, "the link to rank %d has ended: %s", link->peer.rank,
                         kolo_status_name((kolo_status)why));
    }
    if (req->channel >= KOLO_CHANNELS) {
        return kolo_fail(KOLO_ERR_INVALID, "channel %u: a link has channels 0 to %d", req->channel,
                         KOLO_CHANNELS - 1);
    }
    if (link->pipe[req->channel] == NULL) {
        link->pipe[req->channel] = calloc(1, sizeof *link->pipe[req->channel]);
        if (link->pipe[req->channel] == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a channel to rank %d",
                             link->peer.rank);
        }
    }
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    return KOLO_OK;
}

/* Move the slots that can move at once. progress() moves the rest, and reports errors. */
static void try_channel(struct kolo_link *link, uint32_t channel)
{
    const int status = advance_channel(link, channel);
    if (status < 0) {
        atomic_store(&link->why, status);
    }
    if (!is_idle(link->pipe[channel])) {
        activate_channel(link, channel);
    }
}

kolo_status kolo_shm_send(struct kolo_link *link, const struct kolo_bytes *src,
                          struct kolo_req *req)
{
    KOLO_TRY(start_request(link, src, req));
    KOLO_TRY(open_out(link, req->channel));
    kolo_req_fifo_push(&link->pipe[req->channel]->sends, req);
    try_channel(link, req->channel);
    return KOLO_OK;
}

kolo_status kolo_shm_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                          struct kolo_req *req)
{
    KOLO_TRY(start_request(link, dst, req));
    kolo_req_fifo_push(&link->pipe[req->channel]->recvs, req);
    try_channel(link, req->channel);
    return KOLO_OK;
}

void kolo_shm_hang_up(struct kolo_link *link, kolo_status why)
{
    struct kolo_endpoint *ep = link->ep;
    struct kolo_link *before = NULL;
    struct kolo_link *at = ep->active;
    for (; at != NULL && at != link; at = at->next_active) {
        before = at;
    }
    if (at == link) {
        *(before != NULL ? &before->next_active : &ep->active) = link->next_active;
        ep->active_last = ep->active_last == link ? before : ep->active_last;
    }
    for (struct kolo_link **ring = &ep->to_ring; link->rings; ring = &(*ring)->next_to_ring) {
        if (*ring == link) {
            *ring = link->next_to_ring;
            link->rings = false;
            break;
        }
    }
    (void)finish_link(link, why);
    for (int channel = 0; channel < KOLO_CHANNELS; channel++) {
        free(link->pipe[channel]);
    }
}
