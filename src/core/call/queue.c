// SPDX-License-Identifier: Apache-2.0
/* Which thread runs a queued call, and when.
 *
 * A communicator's collectives run one after the other. The thread that holds comm->busy runs them:
 * any waiting thread drives the head of the queue that it waits for. Messages progress on their own
 * (core/p2p). A call that has ended leaves its stream, or its status tells its waiter. */
#include "core/call/queue.h"

#include "core/call/call.h"
#include "core/call/progress.h"
#include "core/health/diagnose.h"
#include "core/health/waits.h"

#include <stdlib.h>
#include <string.h>

/* ---- a stream's queue ---- */

void kolo_stream_push(struct kolo_stream_queue *s, struct kolo_queued *call, uint64_t open_group)
{
    atomic_fetch_add(&s->pending, 1);
    pthread_mutex_lock(&s->lock);
    s->open_group = open_group;
    if (s->tail != NULL) {
        s->tail->stream_next = call;
    } else {
        s->head = call;
    }
    s->tail = call;
    pthread_mutex_unlock(&s->lock);
}

void kolo_stream_pop(struct kolo_queued *call)
{
    struct kolo_stream_queue *s = call->stream;
    pthread_mutex_lock(&s->lock);
    assert(s->head == call);
    s->head = call->stream_next;
    s->tail = s->head == NULL ? NULL : s->tail;
    pthread_mutex_unlock(&s->lock);
    free(call->error_text);
    free(call);
    atomic_fetch_sub_explicit(&s->pending, 1, memory_order_release);
}

static bool heads_stream(const struct kolo_queued *call)
{
    if (call->stream == NULL) {
        return true;
    }
    pthread_mutex_lock(&call->stream->lock);
    const bool heads = call->stream->head == call;
    pthread_mutex_unlock(&call->stream->lock);
    return heads;
}

static void note_error(struct kolo_stream_queue *s, kolo_status st)
{
    pthread_mutex_lock(&s->lock);
    if (s->error == KOLO_OK) {
        s->error = st;
        strncpy(s->error_text, kolo_error_text(), sizeof s->error_text - 1);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- the end of a call ---- */

void kolo_queued_close(struct kolo_queued *call)
{
    if (call->kind == KOLO_QUEUED_COLLECTIVE) {
        kolo_call_close(kolo_call_of(call));
    } else if (call->kind == KOLO_QUEUED_MESSAGE) {
        free(kolo_message_of(call)->op);
        kolo_message_of(call)->op = NULL;
    }
}

static void finish(struct kolo_queued *call, kolo_status st)
{
    const bool collective = call->kind == KOLO_QUEUED_COLLECTIVE;
    if (call->kind == KOLO_QUEUED_MESSAGE && call->deadline > 0) {
        kolo_waits_message_over(call->comm, kolo_message_of(call)->op->peer);
    }
    if (st == KOLO_OK && collective) {
        kolo_call_record_end(kolo_call_of(call));
    }
    if (st <= KOLO_ERR_MISMATCH) { /* the call returns what ended the communicator */
        st = kolo_comm_fail(call->comm, st);
        if (collective) {
            kolo_call_take_back(kolo_call_of(call));
        }
    }
    if (st < 0) {
        call->error_text = strdup(kolo_error_text());
    }
    kolo_queued_close(call);
    if (call->stream == NULL) {
        atomic_store_explicit(&call->status, (int)st, memory_order_release);
        return;
    }
    if (st < 0) {
        note_error(call->stream, st);
    }
    kolo_stream_pop(call);
}

/* The time limit until a call ends. Tiles that complete do not extend it. */
static kolo_status check_deadline(struct kolo_queued *call, int peer)
{
    /* Looks without the clock. Later ones may have long naps between them, and in a crowd all. */
    enum { BRIEF = 256, BRIEF_IN_CROWD = 16 };
    const bool message = call->kind == KOLO_QUEUED_MESSAGE;
    struct kolo_comm *c = call->comm;
    const unsigned brief = c->links.exec_env.crowded ? BRIEF_IN_CROWD : BRIEF;
    call->spins += call->spins <= brief;
    if (call->spins <= brief) {
        return KOLO_OK;
    }
    const double now = kolo_now_us();
    const int limit_ms = call->timeout_ms > 0 ? call->timeout_ms : c->options.timeout_ms;
    if (call->deadline <= 0) {
        call->deadline = now + limit_ms * 1e3;
    }
    if (message) {
        kolo_waits_message(c, peer,
                           call->stream == NULL || atomic_load(&call->stream->awaited) > 0);
    }
    if (now > call->deadline) {
        return kolo_diagnose_late(c, peer, now - (call->deadline - limit_ms * 1e3), limit_ms,
                                  message);
    }
    if (now - call->asked_us > 1e5) {
        call->asked_us = now;
        return kolo_diagnose_ask(c, peer, now - (call->deadline - limit_ms * 1e3), message,
                                 call->stream == NULL);
    }
    return KOLO_OK;
}

/* ---- a communicator's queue ---- */

void kolo_queue_push(struct kolo_queued *call)
{
    struct kolo_comm *c = call->comm;
    assert(call->kind == KOLO_QUEUED_COLLECTIVE);
    pthread_mutex_lock(&c->queue.lock);
    call->next = NULL;
    if (c->queue.tail != NULL) {
        c->queue.tail->next = call;
    } else {
        atomic_store(&c->queue.head, call);
    }
    c->queue.tail = call;
    pthread_mutex_unlock(&c->queue.lock);
}

static void pop_first(struct kolo_comm *c)
{
    pthread_mutex_lock(&c->queue.lock);
    struct kolo_queued *next = atomic_load(&c->queue.head)->next;
    atomic_store(&c->queue.head, next);
    c->queue.tail = next == NULL ? NULL : c->queue.tail;
    pthread_mutex_unlock(&c->queue.lock);
}

/* One step of the call that heads the queue. comm->busy is held. */
static void step_first(struct kolo_comm *c, struct kolo_queued *call)
{
    assert(atomic_load_explicit(&c->queue.busy, memory_order_relaxed) != 0);
    kolo_status st = kolo_comm_usable(c);
    if (st == KOLO_OK) {
        const struct kolo_exec *x = &kolo_call_of(call)->exec;
        const unsigned before = x->moves;
        st = kolo_call_step(kolo_call_of(call), false);
        if (x->moves != before) {
            atomic_fetch_add_explicit(&c->queue.moves, 1, memory_order_relaxed);
        }
    }
    if (st == KOLO_INPROGRESS) {
        const kolo_status late = check_deadline(call, c->links.exec_env.stuck_at);
        st = late < 0 ? late : st;
    }
    if (st != KOLO_INPROGRESS) {
        pop_first(c);
        finish(call, st);
    }
}

void kolo_queue_drive(struct kolo_comm *c)
{
    if (atomic_exchange_explicit(&c->queue.busy, 1, memory_order_acquire) != 0) {
        return;
    }
    struct kolo_queued *call = kolo_queue_first(c);
    if (call != NULL && heads_stream(call)) {
        step_first(c, call);
    }
    atomic_store_explicit(&c->queue.busy, 0, memory_order_release);
}

void kolo_queue_try(struct kolo_comm *c, const struct kolo_queued *call)
{
    if (atomic_exchange_explicit(&c->queue.busy, 1, memory_order_acquire) != 0) {
        return;
    }
    struct kolo_queued *first = kolo_queue_first(c);
    if (first == call && heads_stream(first) && kolo_call_is_known(kolo_call_of(first))) {
        step_first(c, first);
    }
    atomic_store_explicit(&c->queue.busy, 0, memory_order_release);
}

/* ---- messages ---- */

kolo_status kolo_message_start(struct kolo_message_call *call)
{
    if (!call->started) {
        KOLO_TRY(kolo_comm_usable(call->base.comm));
        KOLO_TRY(kolo_p2p_start(call->op));
        call->started = true;
    }
    return KOLO_OK;
}

/* p2p owns the operation until it has a status, even if its communicator has failed. */
static kolo_status step_message(struct kolo_message_call *call, bool turns)
{
    KOLO_TRY(kolo_message_start(call));
    if (turns) {
        (void)kolo_p2p_progress(call->base.comm);
    }
    if (atomic_load_explicit(&call->op->status, memory_order_acquire) == KOLO_INPROGRESS) {
        return KOLO_INPROGRESS;
    }
    const kolo_status st = kolo_p2p_result(call->op);
    if (st == KOLO_OK && call->info != NULL) {
        const uint32_t size = call->info->size;
        *call->info = call->op->info;
        call->info->size = size;
    }
    return st;
}

bool kolo_message_attempt(struct kolo_message_call *call, struct kolo_stream_queue *s)
{
    if (call->op->bytes > KOLO_P2P_EAGER || kolo_comm_usable(call->base.comm) != KOLO_OK ||
        kolo_p2p_attempt(call->op) != KOLO_OK) {
        return false; /* an error is found again when its turn comes */
    }
    call->started = true;
    kolo_progress_rouse();
    const kolo_status st = step_message(call, false);
    if (st != KOLO_INPROGRESS) {
        const bool ends = st <= KOLO_ERR_MISMATCH; /* the communicator, as in finish() */
        kolo_queued_close(&call->base);
        if (st < 0) {
            note_error(s, ends ? kolo_comm_fail(call->base.comm, st) : st);
        }
    }
    return st != KOLO_INPROGRESS;
}

void kolo_message_drive(struct kolo_message_call *call, bool turns)
{
    struct kolo_comm *c = call->base.comm;
    const kolo_status st = step_message(call, turns);
    if (st != KOLO_INPROGRESS) {
        finish(&call->base, st);
    } else if (kolo_comm_error(c) == KOLO_OK) {
        const kolo_status late = check_deadline(&call->base, call->op->peer);
        if (late < 0) {
            (void)kolo_comm_fail(c, late); /* this ends the message, too */
        }
    }
}

/* ---- waiting ---- */

void kolo_queued_drive(struct kolo_queued *call, bool turns)
{
    if (call->kind == KOLO_QUEUED_MESSAGE) {
        kolo_message_drive(kolo_message_of(call), turns);
    } else {
        kolo_queue_drive(call->comm);
    }
}

bool kolo_queued_is_brief(const struct kolo_queued *call)
{
    if (call->kind == KOLO_QUEUED_HOST_FUNC) {
        return false;
    }
    if (call->kind == KOLO_QUEUED_COLLECTIVE) {
        return call->group == 0 && ((const struct kolo_call *)call)->extent.bytes <= KOLO_P2P_EAGER;
    }
    const struct kolo_message_call *message = (const struct kolo_message_call *)call;
    const struct kolo_p2p_op *op = message->op;
    return (call->group == 0 || message->started) && op->bytes <= KOLO_P2P_EAGER &&
           kolo_p2p_is_open(call->comm, op->peer);
}

unsigned kolo_queued_polls(const struct kolo_queued *call)
{
    enum { POLLS = 200 };
    return call->comm != NULL && !call->comm->links.exec_env.crowded ? POLLS : 0;
}
