// SPDX-License-Identifier: Apache-2.0
/* Incoming messages of a peer: one after the other, from its control channel.
 *
 * A header is read only after the payload of the header before has come. So a sender's messages
 * match in the order sent. As in wire.c, an operation is in a queue, or is its peer's target,
 * before a request is posted for it. */
#include "core/p2p/inner.h"

#include <stdlib.h>

/* ---- a message meets its receive ---- */

/* Answer an announced message whose receive is `op`, in flying. This function posts the receive of
 * the data, so DATA has the receives in the order of the answers. */
static kolo_status answer(const struct kolo_p2p *p2p, struct kolo_p2p_peer *peer,
                          struct kolo_p2p_op *op, size_t bytes, uint64_t id)
{
    const bool fits = op->end == KOLO_OK;
    if (peer->gone) {
        op->end = KOLO_ERR_LINK;
        return kolo_fail(KOLO_ERR_LINK, "rank %d left before its message of %zu bytes was received",
                         peer->rank, bytes);
    }
    op->header = (struct kolo_p2p_header){.tag = op->info.tag, .bytes = bytes, .id = id};
    if (fits) {
        void *at = kolo_p2p_place(p2p, peer, op, bytes);
        KOLO_TRY(kolo_p2p_post_recv(peer, KOLO_P2P_DATA, at, bytes, &op->req[1]));
    }
    return kolo_p2p_post_header(peer, fits ? KOLO_P2P_KIND_SEND : KOLO_P2P_KIND_DROP, &op->header,
                                &op->req[0]);
}

/* A kept message leaves this rank's memory. */
static void release(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer, size_t bytes)
{
    peer->freed += kolo_p2p_charge(bytes);
    if (peer->rank == p2p->comm->ranks.rank) {
        peer->returned = peer->freed;
    }
}

/* Give a message whose bytes are at `data` to its receive. */
static void hand_over(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer, struct kolo_p2p_op *op,
                      int tag, size_t bytes, const void *data)
{
    const bool fits = kolo_p2p_describe(op, peer->rank, tag, bytes);
    kolo_copy(op->buf, data, fits ? bytes : 0);
    op->end = fits ? KOLO_OK : KOLO_ERR_INVALID;
    release(p2p, peer, bytes);
}

/* Accept an announced message whose receive is `op`. */
static kolo_status accept_ready(const struct kolo_p2p *p2p, struct kolo_p2p_peer *peer,
                                struct kolo_p2p_op *op, int tag, size_t bytes, uint64_t id)
{
    const bool fits = kolo_p2p_describe(op, peer->rank, tag, bytes);
    op->end = fits ? KOLO_OK : KOLO_ERR_INVALID;
    return answer(p2p, peer, op, bytes, id);
}

kolo_status kolo_p2p_deliver(struct kolo_p2p *p2p, struct kolo_p2p_op *op,
                             struct kolo_p2p_kept *kept)
{
    struct kolo_p2p_peer *peer = p2p->peer[kept->source];
    kolo_status status = KOLO_OK;
    if (!kept->ready) {
        hand_over(p2p, peer, op, kept->tag, kept->bytes, kept->data);
    } else if (kept->self != NULL) {
        kolo_p2p_pass(kept->self, op);
        kolo_p2p_remove(&peer->waiting, kept->self);
        kolo_p2p_push(&p2p->flying, kept->self);
    } else {
        status = accept_ready(p2p, peer, op, kept->tag, kept->bytes, kept->id);
    }
    free(kept);
    return status;
}

static kolo_status damaged(const struct kolo_p2p_peer *peer, const char *what)
{
    return kolo_fail(KOLO_ERR_LINK, "rank %d sent a damaged message header: %s", peer->rank, what);
}

static kolo_status expect_payload(struct kolo_p2p_peer *peer, void *at)
{
    peer->payload = true;
    return kolo_p2p_post_recv(peer, KOLO_P2P_CONTROL, at, (size_t)peer->header.bytes, &peer->req);
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

/* A short message: all of it is in the header. */
static kolo_status arrive_short(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_op *op = kolo_p2p_take_posted(p2p, peer, h->tag);
    if (op != NULL) {
        kolo_p2p_push(&p2p->flying, op);
        hand_over(p2p, peer, op, h->tag, h->bytes, h->payload);
        return kolo_p2p_expect_header(peer);
    }
    struct kolo_p2p_kept *kept = kolo_p2p_kept_create(peer->rank, h->tag, h->bytes, h->bytes);
    if (kept == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    kolo_copy(kept->data, h->payload, h->bytes);
    kolo_p2p_keep(p2p, peer, kept);
    return kolo_p2p_expect_header(peer);
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
    return h->bytes > KOLO_P2P_INLINE ? arrive_long(p2p, peer) : arrive_short(p2p, peer);
}

/* A payload is complete. There are four cases:
 *   - it went straight into its receive;
 *   - it was too long for its receive, and is dropped;
 *   - a receive was posted for it in the meantime;
 *   - no receive fits, and it is kept. */
static kolo_status payload_arrived(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_op *op = peer->target;
    struct kolo_p2p_kept *kept = peer->coming;
    const bool unwanted = peer->unwanted;
    peer->target = NULL;
    peer->coming = NULL;
    peer->unwanted = false;
    if (kept == NULL || unwanted) {
        release(p2p, peer, h->bytes);
    } else {
        op = kolo_p2p_take_posted(p2p, peer, h->tag);
    }
    if (op != NULL) {
        kolo_p2p_push(&p2p->flying, op);
    }
    if (kept != NULL && op != NULL) {
        hand_over(p2p, peer, op, h->tag, h->bytes, kept->data);
    } else if (kept != NULL && !unwanted) {
        kolo_p2p_keep(p2p, peer, kept);
        kept = NULL;
    }
    free(kept);
    return kolo_p2p_expect_header(peer);
}

static kolo_status arrive_ready(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
{
    const struct kolo_p2p_header *h = &peer->header;
    struct kolo_p2p_op *op = kolo_p2p_take_posted(p2p, peer, h->tag);
    if (op != NULL) {
        kolo_p2p_push(&p2p->flying, op);
        KOLO_TRY(accept_ready(p2p, peer, op, h->tag, h->bytes, h->id));
        return kolo_p2p_expect_header(peer);
    }
    struct kolo_p2p_kept *kept = kolo_p2p_kept_create(peer->rank, h->tag, h->bytes, 0);
    if (kept == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    kept->ready = true;
    kept->id = h->id;
    kolo_p2p_keep(p2p, peer, kept);
    return kolo_p2p_expect_header(peer);
}

/* SEND or DROP came: the peer wants a message that this rank announced, or drops it. */
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
        void *at = kolo_p2p_place(p2p, peer, op, op->bytes);
        KOLO_TRY(kolo_p2p_post_send(peer, KOLO_P2P_DATA, at, op->bytes, &op->req[1]));
    }
    return kolo_p2p_expect_header(peer);
}

void kolo_p2p_hear(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer)
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
    kolo_p2p_hear(p2p, peer);
    switch (h->kind) {
    case KOLO_P2P_KIND_EAGER:
        return arrive_eager(p2p, peer);
    case KOLO_P2P_KIND_READY:
        return arrive_ready(p2p, peer);
    case KOLO_P2P_KIND_SEND:
    case KOLO_P2P_KIND_DROP:
        return answered(p2p, peer);
    case KOLO_P2P_KIND_NOTE:
        return kolo_p2p_expect_header(peer);
    default:
        return damaged(peer, "unknown kind");
    }
}

/* ---- a peer's turn ---- */

/* The link to a peer has ended. If the peer closed it normally, that is an error only if an
 * operation still needs the peer. */
static kolo_status lost(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer, kolo_status status)
{
    const bool needed = peer->payload || peer->waiting.first != NULL || peer->posted.first != NULL;
    peer->gone = true;
    kolo_p2p_hear(p2p, peer);
    if (needed || status != KOLO_ERR_LINK) {
        p2p->comm->links.exec_env.blamed = peer->rank;
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
        return kolo_p2p_post_header(peer, KOLO_P2P_KIND_NOTE, &peer->note, &peer->note_req);
    }
    return KOLO_OK;
}
