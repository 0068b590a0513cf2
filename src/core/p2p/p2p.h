// SPDX-License-Identifier: Apache-2.0
/* Point to point: sends and receives between two ranks, matched by source and tag.
 *
 * Operations of one communicator progress independently of its collectives and of each other.
 * Messages of one sender match in the order they were started, and receives in the order they were
 * posted. A receive takes the earliest message that it fits (the rule of MPI 4.1, section 3.5).
 * inner.h describes the protocol.
 *
 * To wait for an operation, call kolo_p2p_progress() until op->status is not INPROGRESS, then
 * kolo_p2p_result(). */
#ifndef KOLO_CORE_P2P_P2P_H
#define KOLO_CORE_P2P_P2P_H

#include "util/util.h"

#include <kolo/plugin.h>

#include <assert.h>
#include <stdatomic.h>

struct kolo_comm;

enum {
    KOLO_UNTAGGED = -2,    /* tag of kolo_send and kolo_recv: never matches a tagged message */
    KOLO_P2P_EAGER = 8192, /* longer messages wait for their receive */
    KOLO_P2P_INLINE = 96,  /* at most this many bytes go in the header */
    KOLO_P2P_MAGIC = 0x6b703270
};

/* A header on the control channel. A payload may follow it. It is sent as it lies in memory. */
struct kolo_p2p_header {
    uint32_t magic;
    uint16_t kind; /* enum kolo_p2p_kind */
    uint16_t pad;
    int32_t tag;
    uint32_t freed; /* the charges that its sender has freed for the peer so far, modulo 2^32 */
    uint64_t bytes; /* of the message */
    uint64_t id;    /* of the announced message */
    unsigned char payload[KOLO_P2P_INLINE];
};
static_assert(sizeof(struct kolo_p2p_header) == 128, "wire format");

/* A place that a long message may use instead of the buffer: memory of a GPU that is registered
 * with the transport. */
struct kolo_p2p_gdr {
    void *at;  /* NULL: there is none */
    bool used; /* the message used it */
};

/* One send or receive. Set the members up to `tag`, zero the rest, and start it. p2p owns it until
 * status is not INPROGRESS. */
struct kolo_p2p_op {
    struct kolo_comm *comm;
    bool is_send;
    void *buf;
    size_t bytes;               /* capacity for a receive */
    struct kolo_p2p_gdr *gdr;   /* or NULL */
    int peer, tag;              /* receives: also KOLO_ANY_SOURCE, KOLO_ANY_TAG */
    struct kolo_recv_info info; /* of a finished receive; if too long: the bytes sent */
    _Atomic int status;         /* release: all other members were written before */

    struct kolo_p2p_op *next; /* this and the rest are p2p's own, under links.lock */
    uint64_t order;           /* of a receive: when it was posted; of a send: its id */
    kolo_status end;          /* its status when its requests are done */
    struct kolo_req req[2];   /* header; data */
    struct kolo_p2p_header header;
};

/* Check the peer and the tag of a send or a receive. Errors: INVALID, or the error of the
 * communicator. */
kolo_status kolo_p2p_check(const struct kolo_comm *comm, bool is_send, int peer, int tag);

/* Queue the operation; progress does the rest. Any thread may call; it never blocks. On error
 * nothing was queued, and op->status has the error, too. Errors: INVALID (peer, tag), UNSUPPORTED
 * (no transport carries messages to the peer), SYSTEM, or the error of the communicator. */
kolo_status kolo_p2p_start(struct kolo_p2p_op *op);

/* As kolo_p2p_start(), and take one turn if that connects to nobody. Then the operation may have its
 * status. */
kolo_status kolo_p2p_attempt(struct kolo_p2p_op *op);

/* Advance all operations of `comm`. Any thread may call. While another thread does it, the call
 * returns at once. It may connect to a peer. A fatal status ends the communicator. The call returns
 * it only after every started operation has its status, so callers loop until then. */
kolo_status kolo_p2p_progress(struct kolo_comm *comm);

/* Whether the peer is connected, and the peers of all messages that have started: then progress
 * connects to nobody. Any thread may call. False, too, while another thread makes progress. */
bool kolo_p2p_is_open(struct kolo_comm *comm, int peer);

/* Whether this rank may not leave yet. An operation is not done yet. Or a message went to a rank
 * that may not have connected yet, and that would lose it. A rank that is gone needs no message.
 * Any thread may call. */
bool kolo_p2p_leaves_behind(struct kolo_comm *comm);

/* What the communicator's peers ring when they have moved messages, so that progress has work. NULL:
 * some of them do not, or there are no messages yet. It stays until kolo_p2p_close(). Any thread may
 * call. */
struct kolo_doorbell *kolo_p2p_bell(const struct kolo_comm *comm);

/* The status of a finished operation. kolo_error_text() of this thread gets the cause of an error.
 */
kolo_status kolo_p2p_result(const struct kolo_p2p_op *op);

/* Free the state. No operation may be running in any thread. Links that are still connected are
 * aborted, because posted receives use memory that is freed here. */
void kolo_p2p_close(struct kolo_comm *comm);

#endif
