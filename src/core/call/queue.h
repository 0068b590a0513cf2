// SPDX-License-Identifier: Apache-2.0
/* Queues of calls. A communicator's queue holds its collectives, in call order. A stream's queue
 * holds the collectives, messages and host functions on that stream. A collective on a stream is in
 * both queues, and runs when it heads both. */
#ifndef KOLO_CORE_CALL_QUEUE_H
#define KOLO_CORE_CALL_QUEUE_H

#include "core/comm.h"
#include "core/failure/failure.h"
#include "core/p2p/p2p.h"
#include "core/pauses.h"

enum kolo_queued_kind { KOLO_QUEUED_COLLECTIVE, KOLO_QUEUED_MESSAGE, KOLO_QUEUED_HOST_FUNC };

struct kolo_stream_queue;

struct kolo_queued { /* the first member of the struct of each kind */
    enum kolo_queued_kind kind;
    struct kolo_comm *comm;          /* NULL: a host function */
    struct kolo_queued *next;        /* in the communicator's queue, or in the open group */
    struct kolo_queued *stream_next; /* in the stream's queue, or in the group's list of waits */
    struct kolo_stream_queue *stream;
    uint64_t group; /* the number of its group; 0: none */
    unsigned spins;
    int timeout_ms; /* 0: the communicator's */
    double deadline, asked_us;
    _Atomic int status;
    char *error_text;
};

struct kolo_message_call { /* a send or a receive */
    struct kolo_queued base;
    bool started;
    struct kolo_p2p_op *op; /* allocated */
    struct kolo_recv_info *info;
};

struct kolo_host_call { /* a function of the user's */
    struct kolo_queued base;
    void (*fn)(void *);
    void *arg;
};

struct kolo_stream_queue {
    pthread_mutex_t lock;
    struct kolo_queued *head, *tail;
    _Atomic int pending;
    _Atomic int awaited;    /* the threads that wait for it */
    _Atomic unsigned polls; /* kolo_queued_polls() of its last call with a communicator */
    kolo_status error;
    char error_text[512];
    _Atomic int timeout_ms;         /* for calls that are queued later; 0: the communicator's */
    uint64_t open_group;            /* not 0: the queue holds only started messages of this group */
    struct kolo_stream_queue *next; /* in the progress thread's list */
    _Atomic unsigned listed;        /* the fork generation and one; 0: it never was in that list */
};

static inline bool kolo_queued_is_message(const struct kolo_queued *call)
{
    return call != NULL && call->kind == KOLO_QUEUED_MESSAGE;
}

static inline struct kolo_message_call *kolo_message_of(struct kolo_queued *queued)
{
    assert(queued->kind == KOLO_QUEUED_MESSAGE);
    return (struct kolo_message_call *)queued;
}

/* ---- a communicator's queue of collectives ---- */

void kolo_queue_push(struct kolo_queued *call);
static inline struct kolo_queued *kolo_queue_first(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->queue.head, memory_order_acquire);
}
/* Counts what moves in a communicator, for kolo_pauses_hear(). */
static inline unsigned kolo_queue_moves(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->queue.moves, memory_order_relaxed);
}
/* Advance the call that heads the queue, if it may run and no other thread runs one. */
void kolo_queue_drive(struct kolo_comm *c);

/* The same, if `call` heads the queue and its next step is known (core/call/call.h). The call may
 * be gone. */
void kolo_queue_try(struct kolo_comm *c, const struct kolo_queued *call);

/* ---- messages: independent of the queue ---- */

/* Start the message unless it is started. Errors: of the message, or of its communicator. */
kolo_status kolo_message_start(struct kolo_message_call *call);
/* Start a short message that is not in its stream yet, and end it here if it ends at once. False: it
 * may have started, and its call is queued as others are. */
bool kolo_message_attempt(struct kolo_message_call *call, struct kolo_stream_queue *s);
/* Advance one message. `turns`: all messages of its communicator move. Else only its own state is
 * read. */
void kolo_message_drive(struct kolo_message_call *call, bool turns);

/* ---- a stream's queue ---- */

/* `open_group`: for struct kolo_stream_queue. */
void kolo_stream_push(struct kolo_stream_queue *s, struct kolo_queued *call, uint64_t open_group);
/* Take the call that heads its stream off it, and free it. The next one may run. */
void kolo_stream_pop(struct kolo_queued *call);

/* ---- waiting ---- */

static inline bool kolo_queued_is_done(const struct kolo_queued *call)
{
    return atomic_load_explicit(&call->status, memory_order_acquire) != KOLO_INPROGRESS;
}
/* Drive a collective or a message once; `turns` as above. */
void kolo_queued_drive(struct kolo_queued *call, bool turns);
/* Whether a thread that does not wait for the call may advance it in passing: the call is short,
 * and outside a group or a message that has started, and a message connects to nobody. */
bool kolo_queued_is_brief(const struct kolo_queued *call);
/* How often a wait polls this call before it gives the core away. */
unsigned kolo_queued_polls(const struct kolo_queued *call);
/* Free the memory that a collective or a message owns. It is not in a queue. */
void kolo_queued_close(struct kolo_queued *call);

/* ---- stream.c ---- */

/* Append an allocated call to a stream. On error the caller still owns the call. Errors: SYSTEM. */
kolo_status kolo_stream_submit(struct kolo_queued *call, struct kolo_stream_queue *s);

#endif
