// SPDX-License-Identifier: Apache-2.0
/* Groups: calls between kolo_group_begin() and kolo_group_end() of one thread start together. So
 * calls of several communicators, or both ends of messages, cannot wait for each other. */
#include "core/call/fast_path.h"
#include "core/call/parts.h"
#include "core/call/queue.h"
#include "core/path.h"

#include <stdio.h>
#include <stdlib.h>

/* Every call reads it. The initial-exec model spares each read a call of the dynamic linker. */
__attribute__((tls_model("initial-exec"))) _Thread_local int kolo_group_depth;

static _Thread_local struct {
    uint64_t number;                  /* the number of the open group */
    struct kolo_queued *head, *tail;  /* linked by `next` */
    struct kolo_comm *leaving, *last; /* destroyed in it; linked by queue.leaving */
} group;

int kolo_group_suspend(void)
{
    const int depth = kolo_group_depth;
    kolo_group_depth = 0;
    return depth;
}

void kolo_group_resume(int depth)
{
    kolo_group_depth = depth;
}

void kolo_group_add(struct kolo_queued *call, struct kolo_stream_queue *s)
{
    assert(kolo_group_depth > 0);
    call->stream = s;
    call->group = group.number;
    call->next = NULL;
    if (group.tail != NULL) {
        group.tail->next = call;
    } else {
        group.head = call;
    }
    group.tail = call;
}

bool kolo_group_leave(struct kolo_comm *comm, void (*destroy)(struct kolo_comm *))
{
    if (kolo_group_depth == 0) {
        return false;
    }
    comm->queue.leaving = NULL;
    comm->queue.destroy = destroy;
    *(group.last != NULL ? &group.last->queue.leaving : &group.leaving) = comm;
    group.last = comm;
    return true;
}

/* The calls of the group have ended: now its destroyed communicators go. */
static void leave_all(void)
{
    struct kolo_comm *comm = group.leaving;
    group.leaving = group.last = NULL;
    while (comm != NULL) {
        struct kolo_comm *next = comm->queue.leaving;
        comm->queue.destroy(comm);
        comm = next;
    }
}

kolo_status kolo_group_begin(void)
{
    static _Atomic uint64_t groups;
    if (kolo_group_depth++ == 0) {
        group.number = 1 + atomic_fetch_add(&groups, 1);
    }
    return KOLO_OK;
}

static kolo_status start_on_stream(struct kolo_queued *call)
{
    const kolo_status st = kolo_stream_submit(call, call->stream);
    if (st != KOLO_OK) {
        kolo_queued_close(call);
        free(call);
    }
    return st;
}

/* Calls that the end of a group waits for, linked by `stream_next`. Messages of one communicator that
 * follow each other, with the same time limit, are one entry: those behind the first are linked by
 * `next`. All move in one turn, so only the first that is not done is looked at. A group of thousands
 * of messages takes a time that grows with their number, not with its square. */
struct waiting {
    struct kolo_queued *first, **end;
    struct kolo_queued *last; /* added */
    kolo_status error;        /* the first */
    char *error_text;
};

static void wait_for(struct waiting *w, struct kolo_queued *call)
{
    const bool message = call->kind == KOLO_QUEUED_MESSAGE;
    struct kolo_queued *last = w->last;
    call->stream_next = NULL;
    w->last = call;
    if (message && last != NULL && last->kind == KOLO_QUEUED_MESSAGE && last->comm == call->comm &&
        last->timeout_ms == call->timeout_ms) {
        last->next = call;
    } else {
        *w->end = call;
        w->end = &call->stream_next;
    }
    if (message) {
        (void)kolo_message_start(kolo_message_of(call)); /* driving the call finds an error again */
    } else {
        kolo_queue_push(call);
    }
}

/* Put all calls of a group into their queues, before the first one runs. */
static kolo_status start_group(struct kolo_queued *calls, struct waiting *waiting)
{
    kolo_status first_error = KOLO_OK;
    while (calls != NULL) {
        struct kolo_queued *call = calls;
        calls = call->next;
        call->next = NULL;
        if (call->stream != NULL) {
            const kolo_status st = start_on_stream(call);
            first_error = first_error == KOLO_OK ? st : first_error;
        } else {
            wait_for(waiting, call);
        }
    }
    return first_error;
}

/* Free a call that is done. Its error is kept, if it is the first. */
static void collect(struct waiting *w, struct kolo_queued *call)
{
    const kolo_status st = (kolo_status)atomic_load(&call->status);
    if (st < 0 && w->error == KOLO_OK) {
        w->error = st;
        w->error_text = call->error_text;
        call->error_text = NULL;
    }
    free(call->error_text);
    free(call);
}

/* The message that takes the place of the first one of an entry, which is done: they began to wait
 * together. Or else the next entry. */
static struct kolo_queued *behind(struct kolo_queued *done)
{
    struct kolo_queued *next = done->kind == KOLO_QUEUED_MESSAGE ? done->next : NULL;
    if (next == NULL) {
        return done->stream_next;
    }
    next->stream_next = done->stream_next;
    next->spins = done->spins;
    next->deadline = done->deadline;
    return next;
}

/* Drive each unfinished call of a group once, and free those that are done. All messages of one
 * communicator move together, once a round. */
static void drive_group(struct waiting *waiting, struct kolo_pauses *pauses, unsigned *polls)
{
    const struct kolo_comm *turned = NULL;
    unsigned moves = 0;
    struct kolo_queued **at = &waiting->first;
    while (*at != NULL) {
        struct kolo_queued *call = *at;
        struct kolo_comm *c = call->comm;
        kolo_queued_drive(call, c != turned);
        turned = call->kind == KOLO_QUEUED_MESSAGE ? c : turned;
        *polls = kolo_queued_polls(call);
        if (kolo_queued_is_done(call)) {
            *at = behind(call);
            collect(waiting, call);
            moves++;
        } else {
            moves += kolo_queue_moves(c);
            at = &call->stream_next;
        }
    }
    kolo_pauses_hear(pauses, moves);
}

kolo_status kolo_group_end(void)
{
    KOLO_UNCANCELLED;
    struct waiting waiting = {.end = &waiting.first};
    struct kolo_pauses pauses = {0};
    unsigned polls = 0;
    if (kolo_group_depth == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "kolo_group_end() without kolo_group_begin()");
    }
    if (--kolo_group_depth > 0) {
        return KOLO_OK;
    }
    struct kolo_queued *calls = group.head;
    group.head = group.tail = NULL;
    const kolo_status on_devices = kolo_path_group_end();
    kolo_status first_error = start_group(calls, &waiting);
    first_error = first_error == KOLO_OK ? on_devices : first_error;
    for (;;) {
        drive_group(&waiting, &pauses, &polls);
        if (waiting.first == NULL) {
            break;
        }
        kolo_pauses_make(&pauses, polls);
    }
    if (first_error == KOLO_OK && waiting.error < 0) {
        first_error = waiting.error;
        kolo_error_set(waiting.error_text != NULL ? waiting.error_text : "");
    }
    free(waiting.error_text);
    if (group.leaving != NULL) {
        char text[1024];
        (void)snprintf(text, sizeof text, "%s", kolo_error_text());
        leave_all();
        kolo_error_set(text);
    }
    return first_error;
}
