// SPDX-License-Identifier: Apache-2.0
/* Inside point-to-point: peers, kept messages, and the protocol.
 *
 * A link has two channels for it. CONTROL carries headers of 128 bytes. For a connected peer, one
 * receive of a header is always posted. DATA carries long messages from user memory to user memory.
 *
 *   EAGER   tag, bytes, up to 96 bytes of data; longer data follow on CONTROL
 *   READY   tag, bytes, id: a message waits for its receive       (rendezvous)
 *   SEND    id: its receive is posted; the next message on DATA
 *   DROP    id: it was too long for its receive; the sender is done
 *   NOTE    no message: carries `freed`, or just shows that its sender is connected
 *
 * A receiver keeps messages that no receive fits yet. A window at the sender bounds their bytes. An
 * eager message is charged to the receiver's window until it has left the receiver's memory. The
 * receiver's next header reports that (`freed`). If the window is full, a message goes by
 * rendezvous. So no rank waits for room. A kept READY costs one small record, for a send that its
 * sender has not finished. */
#ifndef KOLO_CORE_P2P_INNER_H
#define KOLO_CORE_P2P_INNER_H

#include "core/comm.h"
#include "core/failure/failure.h"
#include "core/p2p/p2p.h"
#include "exec/lower/limits.h"
#include "util/copy.h"

#include <string.h>

enum kolo_p2p_kind {
    KOLO_P2P_KIND_EAGER = 1,
    KOLO_P2P_KIND_READY = 2,
    KOLO_P2P_KIND_SEND = 3,
    KOLO_P2P_KIND_DROP = 4,
    KOLO_P2P_KIND_NOTE = 5
};

enum {
    KOLO_P2P_CONTROL = KOLO_PLAN_CHANNELS,
    KOLO_P2P_DATA = KOLO_PLAN_CHANNELS + 1,
    KOLO_P2P_RECORD = 128,          /* charge for a kept message beside its bytes */
    KOLO_P2P_WINDOW_MOST = 1 << 20, /* the largest window of one sender */
    KOLO_P2P_WINDOW_ALL = 16 << 20, /* the windows of all senders to one rank together */
    KOLO_P2P_BUDGET = 64            /* headers of one peer in one turn */
};

struct kolo_p2p_fifo {
    struct kolo_p2p_op *first, *last;
};

/* A message that no posted receive fits yet. */
struct kolo_p2p_kept {
    struct kolo_p2p_kept *next;
    uint64_t order; /* of arrival, over all peers */
    uint64_t id;    /* of READY */
    size_t bytes;
    int source, tag;
    bool ready;               /* only announced; else the bytes are in `data` */
    struct kolo_p2p_op *self; /* announced by this rank itself */
    unsigned char data[];
};
static_assert(sizeof(struct kolo_p2p_kept) <= KOLO_P2P_RECORD, "the charge covers it");

struct kolo_p2p_peer {
    int rank;
    bool open;    /* connected, and the control receive is posted */
    bool gone;    /* its end of the link is closed */
    bool heard;   /* a header came, so the peer is connected to this rank */
    bool spoke;   /* this rank has sent it a header */
    bool unheard; /* counted in kolo_p2p.unheard */
    bool owes;    /* this rank must send a NOTE */
    const struct kolo_transport *transport;
    struct kolo_link *link;

    struct kolo_req req; /* of CONTROL, incoming */
    struct kolo_p2p_header header;
    bool payload;                 /* the request is for an eager message's payload, which goes */
    struct kolo_p2p_op *target;   /* - straight into this receive, */
    struct kolo_p2p_kept *coming; /* - or into this record, to be kept; its next is NULL */
    bool unwanted;                /* the payload was too long for its receive: it is dropped */

    struct kolo_req note_req;
    struct kolo_p2p_header note;

    uint32_t window, charged, returned; /* at the sender; charged - returned <= window */
    uint32_t came, freed, told;         /* at the receiver; told: `freed` of the last header */
    uint64_t ids;
    struct kolo_p2p_fifo waiting; /* sends that were announced */
    struct kolo_p2p_fifo posted;  /* receives from this peer */
    struct kolo_p2p_kept *kept, *kept_last;
};

struct kolo_p2p_device {
    const struct kolo_transport *transport;
    struct kolo_endpoint *device;
};

/* Under links.lock, except members whose comment says otherwise. */
struct kolo_p2p {
    struct kolo_comm *comm;
    pthread_mutex_t inbox_lock; /* of inbox; taken after links.lock, for a few instructions */
    struct kolo_p2p_fifo inbox; /* started, in order */
    _Atomic bool filled;        /* the inbox has operations; read without inbox_lock, too */
    _Atomic int active;         /* operations started and not done; any thread reads it */
    _Atomic int unheard;        /* peers that got eager messages and sent no header yet; likewise */
    _Atomic unsigned idle;      /* calls of progress with nothing pending; only a throttle */
    struct kolo_doorbell *_Atomic bell; /* of the only device, or NULL; likewise */

    struct kolo_p2p_fifo started; /* taken from the inbox */
    struct kolo_p2p_fifo any;     /* receives from any source */
    struct kolo_p2p_fifo flying;  /* requests in flight, or just started */
    struct kolo_p2p_peer **peer;  /* [nranks]; NULL until needed */
    int *opened;                  /* [nranks]; ranks of the open peers */
    int nopened;
    bool hears_all; /* every peer is open */
    struct kolo_p2p_device device[KOLO_TRANSPORTS_MAX];
    int ndevices;
    uint64_t clock;      /* orders arrivals and receives */
    kolo_status failure; /* found under the lock; kolo_comm_fail() follows */
    bool aborted;        /* the links were aborted */
};

/* ---- match.c: receives meet messages ---- */

void kolo_p2p_push(struct kolo_p2p_fifo *fifo, struct kolo_p2p_op *op);
/* Take out `op`, which must be in the queue. */
void kolo_p2p_remove(struct kolo_p2p_fifo *fifo, struct kolo_p2p_op *op);
/* Give the operation back to its owner. */
void kolo_p2p_finish(struct kolo_p2p *p2p, struct kolo_p2p_op *op, kolo_status status);

/* Take out the first posted receive that a message fits, or NULL. */
struct kolo_p2p_op *kolo_p2p_take_posted(struct kolo_p2p *p2p, struct kolo_p2p_peer *from, int tag);
/* Take out the first kept message that fits the receive, or NULL. */
struct kolo_p2p_kept *kolo_p2p_take_kept(struct kolo_p2p *p2p, const struct kolo_p2p_op *op);
void kolo_p2p_keep(struct kolo_p2p *p2p, struct kolo_p2p_peer *from, struct kolo_p2p_kept *kept);
/* Make a record of a message of `bytes`, with `room` bytes for data. NULL: out of memory. */
struct kolo_p2p_kept *kolo_p2p_kept_create(int source, int tag, size_t bytes, size_t room);
/* Write op->info. False: the message is longer than the receive. */
bool kolo_p2p_describe(struct kolo_p2p_op *op, int source, int tag, size_t bytes);
void kolo_p2p_forget(struct kolo_p2p *p2p);

/* ---- wire.c: posting, connecting, sending ---- */

static inline uint32_t kolo_p2p_charge(size_t bytes)
{
    return (uint32_t)(KOLO_P2P_RECORD + bytes);
}

/* Post a request. If that fails, the request gets the error as its status, so that no wait for it
 * blocks. */
kolo_status kolo_p2p_post_send(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                               struct kolo_req *req);
kolo_status kolo_p2p_post_recv(struct kolo_p2p_peer *peer, uint32_t channel, void *at, size_t bytes,
                               struct kolo_req *req);
/* The place of the operation's long message of `bytes`. */
void *kolo_p2p_place(const struct kolo_p2p *p2p, const struct kolo_p2p_peer *peer,
                     const struct kolo_p2p_op *op, size_t bytes);
kolo_status kolo_p2p_post_header(struct kolo_p2p_peer *peer, enum kolo_p2p_kind kind,
                                 struct kolo_p2p_header *header, struct kolo_req *req);
/* Post the receive of the peer's next header. */
kolo_status kolo_p2p_expect_header(struct kolo_p2p_peer *peer);

/* The peer's record, unconnected. NULL: no memory. */
struct kolo_p2p_peer *kolo_p2p_peer_get(struct kolo_p2p *p2p, int rank);
/* The same, connected. Errors: LINK (it has left), SYSTEM, as kolo_links_reach(). */
kolo_status kolo_p2p_peer_open(struct kolo_p2p *p2p, int rank, struct kolo_p2p_peer **out);
/* Send a started send. Also on error, it is in some queue afterwards. */
kolo_status kolo_p2p_send(struct kolo_p2p *p2p, struct kolo_p2p_op *op);
/* Copy from a send of this rank to a receive of this rank. */
void kolo_p2p_pass(struct kolo_p2p_op *send, struct kolo_p2p_op *recv);

/* ---- recv.c: incoming messages ---- */

/* Give a kept message to a receive in p2p->flying, and free its record. */
kolo_status kolo_p2p_deliver(struct kolo_p2p *p2p, struct kolo_p2p_op *op,
                             struct kolo_p2p_kept *kept);
/* The peer is connected to this rank, or never will be. Either way, nothing waits for its
 * connection any more. */
void kolo_p2p_hear(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer);
/* Handle the peer's headers and payloads that came, and send it a NOTE if it must have one. */
kolo_status kolo_p2p_poll(struct kolo_p2p *p2p, struct kolo_p2p_peer *peer);

#endif
