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

/* Put all calls of a group into their queues, before the first one runs. */
static kolo_status start_group(struct kolo_queued *calls, struct kolo_queued **waiting)
{
    struct kolo_queued **tail = waiting;
    kolo_status first_error = KOLO_OK;
    while (calls != NULL) {
        struct kolo_queued *call = calls;
        calls = call->next;
        call->next = NULL;
        if (call->stream != NULL) {
            const kolo_status st = start_on_stream(call);
            first_error = first_error == KOLO_OK ? st : first_error;
            continue;
        }
        call->stream_next = NULL;
        *tail = call;
        tail = &call->stream_next;
        if (call->kind == KOLO_QUEUED_MESSAGE) {
            (void)kolo_message_start(
                kolo_message_of(call)); /* driving the call finds an error again */
        } else {
            kolo_queue_push(call);
        }
    }
    return first_error;
}

/* Drive each unfinished call of a group once. All messages of one communicator move together, once
 * a round. True: all calls are done. */
static bool drive_group(struct kolo_queued *waiting, struct kolo_pauses *pauses, unsigned *polls)
{
    const struct kolo_comm *turned = NULL;
    unsigned moves = 0;
    bool done = true;
    for (struct kolo_queued *call = waiting; call != NULL; call = call->stream_next) {
        if (kolo_queued_is_done(call)) {
            continue;
        }
        kolo_queued_drive(call, call->comm != turned);
        turned = call->kind == KOLO_QUEUED_MESSAGE ? call->comm : turned;
        *polls = kolo_queued_polls(call);
        moves += kolo_queue_moves(call->comm);
        done = done && kolo_queued_is_done(call);
    }
    kolo_pauses_hear(pauses, moves);
    return done;
}

/* Free the calls. Returns `first_error`, or else the first error of the calls. */
static kolo_status collect_group(struct kolo_queued *waiting, kolo_status first_error)
{
    while (waiting != NULL) {
        struct kolo_queued *next = waiting->stream_next;
        char *text = waiting->error_text;
        const kolo_status st = (kolo_status)atomic_load(&waiting->status);
        if (st < 0 && first_error == KOLO_OK) {
            first_error = st;
            kolo_error_set(text != NULL ? text : "");
        }
        free(text);
        free(waiting);
        waiting = next;
    }
    return first_error;
}

kolo_status kolo_group_end(void)
{
    KOLO_UNCANCELLED;
    struct kolo_queued *waiting = NULL;
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
    while (!drive_group(waiting, &pauses, &polls)) {
        kolo_pauses_make(&pauses, polls);
    }
    first_error = collect_group(waiting, first_error);
    if (group.leaving != NULL) {
        char text[1024];
        (void)snprintf(text, sizeof text, "%s", kolo_error_text());
        leave_all();
        kolo_error_set(text);
    }
    return first_error;
}
