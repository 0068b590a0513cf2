// SPDX-License-Identifier: Apache-2.0
/* Posting to peers, connecting to them, and sending; see inner.h for the protocol.
 *
 * An operation is put into a queue before anything is posted for it, so that an error finds it. */
#include "core/link/links.h"
#include "core/p2p/inner.h"

#include <stdlib.h>

/* ---- posting ---- */

kolo_status kolo_p2p_post_send(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                               struct kolo_req *req)
{
    const struct kolo_bytes data = {at, bytes, 1, bytes};
    *req = (struct kolo_req){.channel = channel};
    const kolo_status status = peer->transport->send(peer->link, &data, req);
    req->status = status < 0 ? status : req->status;
    return status;
}

kolo_status kolo_p2p_post_recv(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                               struct kolo_req *req)
{
    const struct kolo_bytes data = {at, bytes, 1, bytes};
    *req = (struct kolo_req){.channel = channel, .exclusive = 1};
    const kolo_status status = peer->transport->recv(peer->link, &data, req);
    req->status = status < 0 ? status : req->status;
    return status;
}

void *kolo_p2p_place(const struct kolo_p2p *p2p, const struct kolo_p2p_peer *peer,
                     const struct kolo_p2p_op *op, size_t bytes)
{
    const bool uses_gdr = op->gdr != NULL && op->gdr->at != NULL &&
                          kolo_links_take_memory(p2p->comm, peer->rank, bytes);
    if (uses_gdr) {
        op->gdr->used = true;
        return op->gdr->at;
    }
    return op->buf;
}

kolo_status kolo_p2p_post_header(struct kolo_p2p_peer *peer, enum kolo_p2p_kind kind,
                                 struct kolo_p2p_header *header, struct kolo_req *req)
{
    header->magic = KOLO_P2P_MAGIC;
    header->kind = (uint16_t)kind;
    header->freed = peer->freed;
    peer->told = peer->freed;
    peer->spoke = true;
    peer->owes = false;
    return kolo_p2p_post_send(peer, KOLO_P2P_CONTROL, header, sizeof *header, req);
}

kolo_status kolo_p2p_expect_header(struct kolo_p2p_peer *peer)
{
    peer->payload = false;
    return kolo_p2p_post_recv(peer, KOLO_P2P_CONTROL, &peer->header, sizeof peer->header,
                              &peer->req);
}

/* ---- peers ---- */

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
                                          KOLO_P2P_WINDOW_ALL / (size_t)p2p->comm->ranks.nranks);
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
    const bool rings = p2p->ndevices == 1 && p2p->comm->links.exec_env.membarrier;
    atomic_store(&p2p->bell, rings ? member->transport->bell(member->device) : NULL);
}

/* INVALID and UNSUPPORTED would say that nothing happened; but an operation was begun. */
static kolo_status reach(struct kolo_comm *comm, int rank)
{
    const kolo_status status = kolo_links_connect(comm, rank);
    const bool harmless = status == KOLO_ERR_INVALID || status == KOLO_ERR_UNSUPPORTED;
    return harmless ? KOLO_ERR_LINK : status;
}

kolo_status kolo_p2p_peer_open(struct kolo_p2p *p2p, int rank, struct kolo_p2p_peer **out)
{
    const struct kolo_member *member = &p2p->comm->member[rank];
    struct kolo_p2p_peer *peer = kolo_p2p_peer_get(p2p, rank);
    if (peer == NULL) {
        return KOLO_ERR_SYSTEM;
    }
    if (peer->gone) {
        p2p->comm->links.exec_env.blamed = rank;
        return kolo_fail(KOLO_ERR_LINK, "rank %d has closed its end of the link", rank);
    }
    if (!peer->open && rank != p2p->comm->ranks.rank) {
        KOLO_TRY(reach(p2p->comm, rank));
        peer->transport = member->transport;
        peer->link = member->link;
        use_device(p2p, member);
        KOLO_TRY(kolo_p2p_expect_header(peer));
        peer->open = true;
        p2p->opened[p2p->nopened++] = rank;
    }
    *out = peer;
    return KOLO_OK;
}

/* ---- sending ---- */

static bool window_has(const struct kolo_p2p_peer *peer, size_t bytes)
{
    return bytes <= KOLO_P2P_EAGER &&
           peer->charged - peer->returned + kolo_p2p_charge(bytes) <= peer->window;
}

void kolo_p2p_pass(struct kolo_p2p_op *send, struct kolo_p2p_op *recv)
{
    const bool fits = kolo_p2p_describe(recv, send->peer, send->tag, send->bytes);
    kolo_copy(recv->buf, send->buf, fits ? send->bytes : 0);
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
        kolo_p2p_pass(op, recv);
        return KOLO_OK;
    }
    struct kolo_p2p_kept *kept =
        kolo_p2p_kept_create(op->peer, op->tag, op->bytes, whole ? op->bytes : 0);
    if (kept == NULL) {
        op->end = KOLO_ERR_SYSTEM;
        return op->end;
    }
    kept->ready = !whole;
    kept->self = whole ? NULL : op;
    if (whole) {
        kolo_copy(kept->data, op->buf, op->bytes);
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
    kolo_copy(op->header.payload, op->buf, whole ? op->bytes : 0);
    KOLO_TRY(kolo_p2p_post_header(peer, KOLO_P2P_KIND_EAGER, &op->header, &op->req[0]));
    if (!whole) {
        KOLO_TRY(kolo_p2p_post_send(peer, KOLO_P2P_CONTROL, op->buf, op->bytes, &op->req[1]));
    }
    return KOLO_OK;
}

kolo_status kolo_p2p_send(struct kolo_p2p *p2p, struct kolo_p2p_op *op)
{
    struct kolo_p2p_peer *peer = NULL;
    const kolo_status status = kolo_p2p_peer_open(p2p, op->peer, &peer);
    if (status < 0) {
        op->end = status;
        kolo_p2p_push(&p2p->flying, op);
        return status;
    }
    if (op->peer == p2p->comm->ranks.rank) {
        return send_self(p2p, peer, op);
    }
    op->header = (struct kolo_p2p_header){.tag = op->tag, .bytes = op->bytes};
    if (window_has(peer, op->bytes)) {
        return send_eager(p2p, peer, op);
    }
    op->order = ++peer->ids;
    op->header.id = op->order;
    kolo_p2p_push(&peer->waiting, op);
    return kolo_p2p_post_header(peer, KOLO_P2P_KIND_READY, &op->header, &op->req[0]);
}
