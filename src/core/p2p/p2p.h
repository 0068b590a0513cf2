// SPDX-License-Identifier: Apache-2.0
/* Point to point: sends and receives between two ranks, matched by source and tag.
 *
 * Operations of one communicator progress independently of its collectives and of each other.
 * Messages of one sender match in the order they were started, receives in the order they were
 * posted: a receive takes the earliest message it fits (the rule of MPI 4.1, section 3.5). What
 * travels is in inner.h.
 *
 * Who waits for an operation calls kolo_p2p_progress() until op->status is not INPROGRESS, then
 * kolo_p2p_result(). */
#ifndef KOLO_CORE_P2P_P2P_H
#define KOLO_CORE_P2P_P2P_H

#include "util/util.h"

#include <kolo/plugin.h>

#include <assert.h>
#include <stdatomic.h>

struct kolo_comm;

enum {
    KOLO_UNTAGGED = -2,    /* tag of kolo_send and kolo_recv: matched apart from tagged ones */
    KOLO_P2P_EAGER = 8192, /* longer messages wait for their receive */
    KOLO_P2P_INLINE = 24,  /* so many bytes ride in the header */
    KOLO_P2P_MAGIC = 0x6b703270
};

/* What travels on the control channel, before its payload if there is one. As it lies in memory. */
struct kolo_p2p_header {
    uint32_t magic;
    uint16_t kind; /* enum kolo_p2p_kind */
    uint16_t spare;
    int32_t tag;
    uint32_t freed; /* what the sender of this header has freed for its peer so far, modulo 2^32 */
    uint64_t bytes; /* of the message */
    uint64_t id;    /* of the announced message */
    uint64_t unused;
    unsigned char payload[KOLO_P2P_INLINE];
};
static_assert(sizeof(struct kolo_p2p_header) == 64, "wire format");

/* Where a long message may go to, or come from, in place of the buffer: memory of a GPU that is
 * registered with the transport. */
struct kolo_p2p_direct {
    void *at;  /* NULL: nowhere */
    bool used; /* it did */
};

/* One send or receive. Set the members up to tag (and the rest zero) and start it; it is p2p's
 * until status is not INPROGRESS. */
struct kolo_p2p_op {
    struct kolo_comm *comm;
    bool is_send;
    void *buf;
    size_t bytes;                   /* capacity for a receive */
    struct kolo_p2p_direct *direct; /* or NULL */
    int peer, tag;                  /* receives: also KOLO_ANY_SOURCE, KOLO_ANY_TAG */
    struct kolo_recv_info info;     /* of a receive, when done; too long: bytes that were sent */
    _Atomic int status;             /* release: everything else was written before */

    struct kolo_p2p_op *next; /* from here on p2p's own, under comm->device_lock */
    uint64_t order;           /* of a receive: when it was posted; of a send: its id */
    kolo_status end;          /* the status it gets when its requests are done */
    struct kolo_req req[2];   /* header; data */
    struct kolo_p2p_header header;
};

/* Check what every send and receive must say. Errors: INVALID (peer, tag), or what ended the
 * communicator. */
kolo_status kolo_p2p_check(const struct kolo_comm *comm, bool is_send, int peer, int tag);

/* Queue the operation; progress does the rest. Any thread, never blocks. Where this returns an
 * error, op->status has it too and nothing was queued. Errors: INVALID (peer, tag), UNSUPPORTED
 * (the peer is reached without messages), SYSTEM, or what ended the communicator. */
kolo_status kolo_p2p_start(struct kolo_p2p_op *op);

/* Advance all operations of `comm`. Any thread; where another one is at it, this returns at once.
 * May connect to a peer. A fatal status ends the communicator; it is returned only after every
 * operation that was started has got its status, so callers loop until then. */
kolo_status kolo_p2p_progress(struct kolo_comm *comm);

/* Whether kolo_p2p_progress() is worth a call: something was started and is not done, or a message
 * went to a rank that may not yet have connected, and would lose it if this rank left. Any thread.
 */
bool kolo_p2p_pending(const struct kolo_comm *comm);

/* The status of a finished operation, with kolo_error_text() of this thread saying what happened.
 */
kolo_status kolo_p2p_result(const struct kolo_p2p_op *op);

/* Make the state; the first start does it. Any thread. Errors: SYSTEM. */
kolo_status kolo_p2p_open(struct kolo_comm *comm);
/* Free it. No operation may be running in any thread. Links that are still connected are aborted,
 * for posted receives borrow memory that goes away here. */
void kolo_p2p_close(struct kolo_comm *comm);

#endif
