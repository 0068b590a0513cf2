// SPDX-License-Identifier: Apache-2.0
/* Headers, payloads and data of point-to-point messages; see p2p_inner.h for the protocol.
 *
 * CONTROL is handled one message after the other: the next header is looked at only when the
 * payload of the one before is there, so a sender's messages are matched in order. An operation is
 * put into a queue before anything is posted for it, so that an error can find it. */
#include "core/p2p_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- posting -------------------------------------------------------------------------------- */

/* A request that could not be posted has that status, so nobody waits for it. */
static kolo_status post_send(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                             struct kolo_req *req)
{
    const struct kolo_bytes data = {at, bytes, 1, bytes};
    *req = (struct kolo_req){.channel = channel};
    const kolo_status status = peer->transport->send(peer->link, &data, req);
    req->status = status < 0 ? status : req->status;
    return status;
}

static kolo_status post_recv(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                             struct kolo_req *req)
{
    const struct kolo_bytes data = {at, bytes, 1, bytes};
    *req = (struct kolo_req){.channel = channel};
    const kolo_status status = peer->transport->recv(peer->link, &data, req);
    req->status = status < 0 ? status : req->status;
    return status;
}

static kolo_status post_header(struct kolo_p2p_peer *peer, enum kolo_p2p_kind kind,
                               struct kolo_p2p_header *header, struct kolo_req *req)
{
    header->magic = KOLO_P2P_MAGIC;
    header->kind = (uint16_t)kind;
    header->freed = peer->freed;
    peer->told = peer->freed;
    peer->spoke = true;
    peer->owes = false;
    return post_send(peer, KOLO_P2P_CONTROL, header, sizeof *header, req);
}

static kolo_status expect_header(struct kolo_p2p_peer *peer)
{
    peer->payload = false;
    return post_recv(peer, KOLO_P2P_CONTROL, &peer->header, sizeof peer->header, &peer->req);
}

static kolo_status expect_payload(struct kolo_p2p_peer *peer, void *at)
{
    peer->payload = true;
    return post_recv(peer, KOLO_P2P_CONTROL, at, (size_t)peer->header.bytes, &peer->req);
}

/* ---- peers ---------------------------------------------------------------------------------- */

struct kolo_p2p_peer *kolo_p2p_peer_get(struct kolo_p2p *p2p, int rank)
{
    if (p2p->peer[rank] == NULL) {
        struct kolo_p2p_peer *peer = calloc(1, sizeof *peer);
        if (peer == NULL) {
            (void)kolo_fail(KOLO_ERR_SYSTEM, "no memory for messages with rank %d", rank);
            return NULL;
        }
        peer->rank = rank;
        peer->window = (uint32_t)kolo_min(KOLO_P2P_WINDOW_MOST,
                                          KOLO_P2P_WINDOW_ALL / (size_t)p2p->comm->nranks);
        p2p->peer[rank] = peer;
    }
    return p2p->peer[rank];
}

static void use_device(struct kolo_p2p *p2p, const struct kolo_member *member)
{
    for (int i = 0; i < p2p->ndevices; i++) {
        if (p2p->device[i].device == member->device) {
            return;
        }
    }
    assert(p2p->ndevices < KOLO_TRANSPORTS_MAX);
    p2p->device[p2p->ndevices++] =
        (struct kolo_p2p_device){.transport = member->transport, .device = member->device};
}

kolo_status kolo_p2p_peer_open(struct kolo_p2p *p2p, int rank, struct kolo_p2p_peer **out)
{
    const struct kolo_member *member = &p2p->comm->member[rank];
    struct kolo_p2p_peer *peer = kolo_p2p_peer_get(p2p, rank);
    if (peer == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    if (peer->gone) {
        return kolo_fail(KOLO_ERR_LINK, "rank %d has closed its end of the link", rank);
    }
    if (!peer->open && rank != p2p->comm->rank) {
        KOLO_TRY(kolo_comm_reach(p2p->comm, rank));
        peer->transport = member->transport;
        peer->link = member->link;
        use_device(p2p, member);
        KOLO_TRY(expect_header(peer));
        peer->open = true;
        p2p->opened[p2p->nopened++] = rank;
    }
    *out = peer;
    return KOLO_OK;
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool window_has(const struct kolo_p2p_peer *peer, size_t bytes)
{
    return bytes <= KOLO_P2P_EAGER &&
           peer->charged - peer->returned + kolo_p2p_charge(bytes) <= peer->window;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

static void pass(struct kolo_p2p_op *send, struct kolo_p2p_op *recv)
{
    const bool fits = kolo_p2p_describe(recv, send->peer, send->tag, send->bytes);
    copy(recv->buf, send->buf, fits ? send->bytes : 0);
    recv->end = fits ? KOLO_OK : KOLO_ERR_INVALID;
}

/* To this rank itself: straight across, or kept like any other. */
static kolo_status send_self(struct kolo_p2p *p2p, struct kolo_p2p_peer *self,
                             struct kolo_p2p_op *op)
{
    struct kolo_p2p_op *recv = kolo_p2p_take_posted(p2p, self, op->tag);
    const bool whole = recv != NULL || window_has(self, op->bytes);
    kolo_p2p_push(whole ? &p2p->flying : &self->waiting, op);
    if (recv != NULL) {
        kolo_p2p_push(&p2p->flying, recv);
        pass(op, recv);
        return KOLO_OK;
    }
    struct kolo_p2p_kept *kept =
        kolo_p2p_kept_create(op->peer, op->tag, op->bytes, whole ? op->bytes : 0);
    if (kept == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    kept->ready = !whole;
    kept->self = whole ? NULL : op;
    if (whole) {
        copy(kept->data, op->buf, op->bytes);
        self->charged += kolo_p2p_charge(op->bytes);
    }
    kolo_p2p_keep(p2p, self, kept);
    return KOLO_OK;
}

static kolo_status send_eager(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer,
                              struct kolo_p2p_op *op)
{
    const bool whole = op->bytes <= KOLO_P2P_INLINE;
    kolo_p2p_push(&p2p->flying, op);
    peer->charged += kolo_p2p_charge(op->bytes);
    if (!peer->heard && !peer->unheard) {
        peer->unheard = true;
        atomic_fetch_add_explicit(&p2p->unheard, 1, memory_order_relaxed);
    }
    copy(op->header.payload, op->buf, whole ? op->bytes : 0);
    KOLO_TRY(post_header(peer, KOLO_P2P_KIND_EAGER, &op->header, &op->req[0]));
    if (!whole) {
        KOLO_TRY(post_send(peer, KOLO_P2P_CONTROL, op->buf, op->bytes, &op->req[1]));
    }
    return KOLO_OK;
}

kolo_status kolo_p2p_send(struct kolo_p2p *p2p, struct kolo_p2p_op *op)
{
    struct kolo_p2p_peer *peer = NULL;
    const kolo_status status = kolo_p2p_peer_open(p2p, op->peer, &peer);
    if (status < 0) {
        kolo_p2p_push(&p2p->flying, op);
        return status;
    }
    if (op->peer == p2p->comm->rank) {
        return send_self(p2p, peer, op);
    }
    op->header = (struct kolo_p2p_header){.tag = op->tag, .bytes = op->bytes};
    if (window_has(peer, op->bytes)) {
        return send_eager(p2p, peer, op);
    }
    op->order = ++peer->ids;
    op->header.id = op->order;
    kolo_p2p_push(&peer->waiting, op);
    return post_header(peer, KOLO_P2P_KIND_READY, &op->header, &op->req[0]);
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Answer an announced message for which `op`, in flying, is the receive. The data's receive is
 * posted here, so DATA has them in the order of the answers. */
static kolo_status answer(struct kolo_p2p_peer *peer, struct kolo_p2p_op *op, size_t bytes,
                          uint64_t id)
{
    const bool fits = op->end == KOLO_OK;
    if (peer->gone) {
        return kolo_fail(KOLO_ERR_LINK, "rank %d left before its message of %zu bytes was received",
                         peer->rank, bytes);
    }
    op->header = (struct kolo_p2p_header){.tag = op->info.tag, .bytes = bytes, .id = id};
    if (fits) {
        KOLO_TRY(post_recv(peer, KOLO_P2P_DATA, op->buf, bytes, &op->req[1]));
    }
    return post_header(peer, fits ? KOLO_P2P_KIND_SEND : KOLO_P2P_KIND_DROP, &op->header,
                       &op->req[0]);
}

/* A kept message leaves this rank's memory. */
static void release(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer, size_t bytes)
{
    peer->freed += kolo_p2p_charge(bytes);
    if (peer->rank == p2p->comm->rank) {
        peer->returned = peer->freed;
    }
}

kolo_status kolo_p2p_deliver(struct kolo_p2p *p2p, struct kolo_p2p_op *op,
                             struct kolo_p2p_kept *kept)
{
    struct kolo_p2p_peer *peer = p2p->peer[kept->source];
    const bool fits = kolo_p2p_describe(op, kept->source, kept->tag, kept->bytes);
    kolo_status status = KOLO_OK;
    op->end = fits ? KOLO_OK : KOLO_ERR_INVALID;
    if (!kept->ready) {
        copy(op->buf, kept->data, fits ? kept->bytes : 0);
        release(p2p, peer, kept->bytes);
    } else if (kept->self != NULL) {
        pass(kept->self, op);
        kolo_p2p_remove(&peer->waiting, kept->self);
        kolo_p2p_push(&p2p->flying, kept->self);
    } else {
        status = answer(peer, op, kept->bytes, kept->id);
    }
    free(kept);
    return status;
}

/* The bytes of an eager message are in kept->data: to the receive that fits by now, or keep it. */
static kolo_status settle(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer,
                          struct kolo_p2p_kept *kept)
{
    struct kolo_p2p_op *op = kolo_p2p_take_posted(p2p, peer, kept->tag);
    if (op == NULL) {
        kolo_p2p_keep(p2p, peer, kept);
        return KOLO_OK;
    }
    kolo_p2p_push(&p2p->flying, op);
    return kolo_p2p_deliver(p2p, op, kept);
}

static kolo_status damaged(const struct kolo_p2p_peer *peer, const char *what)
{
    return kolo_fail(KOLO_ERR_LINK, "rank %d sent a damaged message header: %s", peer->rank, what);
}

/* An eager message whose payload follows. */
static kolo_status arrive_long(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_op *op = kolo_p2p_take_posted(p2p, peer, h->tag);
    if (op != NULL && kolo_p2p_describe(op, peer->rank, h->tag, h->bytes)) {
        peer->target = op;
        return expect_payload(peer, op->buf);
    }
    if (op != NULL) {
        op->end = KOLO_ERR_INVALID;
        kolo_p2p_push(&p2p->flying, op);
    }
    peer->unwanted = op != NULL;
    peer->coming = kolo_p2p_kept_create(peer->rank, h->tag, h->bytes, h->bytes);
    return peer->coming != NULL ? expect_payload(peer, peer->coming->data) : KOLO_ERR_SYSTEM;
}

static kolo_status arrive_eager(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    if (h->bytes > KOLO_P2P_EAGER) {
        return damaged(peer, "too long to be eager");
    }
    peer->came += kolo_p2p_charge(h->bytes);
    if (peer->came - peer->freed > peer->window) {
        return damaged(peer, "more than fits into the window");
    }
    if (h->bytes > KOLO_P2P_INLINE) {
        return arrive_long(p2p, peer);
    }
    struct kolo_p2p_kept *kept = kolo_p2p_kept_create(peer->rank, h->tag, h->bytes, h->bytes);
    if (kept == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    copy(kept->data, h->payload, h->bytes);
    KOLO_TRY(settle(p2p, peer, kept));
    return expect_header(peer);
}

static kolo_status payload_arrived(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    struct kolo_p2p_kept *kept = peer->coming;
    if (peer->target != NULL || peer->unwanted) {
        release(p2p, peer, peer->header.bytes);
    }
    peer->coming = NULL;
    if (peer->target != NULL) {
        kolo_p2p_push(&p2p->flying, peer->target);
        peer->target = NULL;
    } else if (peer->unwanted) {
        peer->unwanted = false;
        free(kept);
    } else {
        KOLO_TRY(settle(p2p, peer, kept));
    }
    return expect_header(peer);
}

static kolo_status arrive_ready(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_kept *kept = kolo_p2p_kept_create(peer->rank, h->tag, h->bytes, 0);
    if (kept == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    kept->ready = true;
    kept->id = h->id;
    KOLO_TRY(settle(p2p, peer, kept));
    return expect_header(peer);
}

/* Our announced message is wanted, or not. */
static kolo_status answered(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_op *op = peer->waiting.first;
    while (op != NULL && op->order != h->id) {
        op = op->next;
    }
    if (op == NULL || op->bytes != h->bytes) {
        return damaged(peer, "an answer to nothing");
    }
    kolo_p2p_remove(&peer->waiting, op);
    kolo_p2p_push(&p2p->flying, op);
    if (h->kind == KOLO_P2P_KIND_SEND) {
        KOLO_TRY(post_send(peer, KOLO_P2P_DATA, op->buf, op->bytes, &op->req[1]));
    }
    return expect_header(peer);
}

static void hear(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    peer->heard = true;
    if (peer->unheard) {
        peer->unheard = false;
        atomic_fetch_sub_explicit(&p2p->unheard, 1, memory_order_relaxed);
    }
}

static kolo_status header_arrived(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    if (h->magic != KOLO_P2P_MAGIC) {
        return damaged(peer, "wrong magic number");
    }
    if (peer->charged - h->freed > peer->charged - peer->returned) {
        return damaged(peer, "it freed what it never got");
    }
    peer->returned = h->freed;
    peer->owes = peer->owes || !peer->spoke;
    hear(p2p, peer);
    switch (h->kind) {
    case KOLO_P2P_KIND_EAGER:
        return arrive_eager(p2p, peer);
    case KOLO_P2P_KIND_READY:
        return arrive_ready(p2p, peer);
    case KOLO_P2P_KIND_SEND:
    case KOLO_P2P_KIND_DROP:
        return answered(p2p, peer);
    case KOLO_P2P_KIND_NOTE:
        return expect_header(peer);
    default:
        return damaged(peer, "unknown kind");
    }
}

/* ---- a peer's turn -------------------------------------------------------------------------- */

/* A link that its peer closed in peace ends the communicator only if somebody needs that peer. */
static kolo_status lost(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer, kolo_status status)
{
    const bool needed = peer->payload || peer->waiting.first != NULL || peer->posted.first != NULL;
    peer->gone = true;
    hear(p2p, peer);
    if (needed || status != KOLO_ERR_LINK) {
        return kolo_fail(status, "the link to rank %d ended while messages were under way: %s",
                         peer->rank, kolo_status_name(status));
    }
    return KOLO_OK;
}

kolo_status kolo_p2p_poll(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    for (int i = 0; i < KOLO_P2P_BUDGET && !peer->gone; i++) {
        const kolo_status status = peer->req.status;
        if (status == KOLO_INPROGRESS) {
            break;
        }
        if (status < 0) {
            return lost(p2p, peer, status);
        }
        KOLO_TRY(peer->payload ? payload_arrived(p2p, peer) : header_arrived(p2p, peer));
    }
    const uint32_t untold = peer->freed - peer->told;
    const bool owes = peer->owes || (untold > 0 && untold >= peer->window / 2);
    if (owes && !peer->gone && peer->note_req.status != KOLO_INPROGRESS) {
        return post_header(peer, KOLO_P2P_KIND_NOTE, &peer->note, &peer->note_req);
    }
    return KOLO_OK;
}
