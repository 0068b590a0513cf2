// SPDX-License-Identifier: Apache-2.0
/* Host streams: calls that are queued, and the queries and waits for them. The progress thread and the
 * threads that wait serve them (progress.c). */
#include "core/call/progress.h"

#include <stdlib.h>

/* ---- submitting ---- */

/* Messages match in the order of their calls, whatever their streams. So a message that need not
 * wait for its stream starts here, not when the streams happen to be served. The result is the
 * stream's open group. */
static uint64_t start_in_order(struct kolo_queued *call, struct kolo_stream_queue *s)
{
    if (!kolo_queued_is_message(call)) {
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    const bool may = s->head == NULL || (call->group != 0 && call->group == s->open_group);
    pthread_mutex_unlock(&s->lock);
    return may && kolo_message_start(kolo_message_of(call)) == KOLO_OK ? call->group : 0;
}

kolo_status kolo_stream_submit(struct kolo_queued *call, struct kolo_stream_queue *s)
{
    KOLO_TRY(kolo_progress_list(s));
    const bool tried =
        call->group == 0 && kolo_queued_is_message(call) && kolo_message_of(call)->started;
    const uint64_t open_group = start_in_order(call, s);
    call->stream = s;
    call->stream_next = NULL;
    call->timeout_ms = atomic_load_explicit(&s->timeout_ms, memory_order_relaxed);
    if (call->comm != NULL) {
        atomic_store_explicit(&s->polls, kolo_queued_polls(call), memory_order_relaxed);
    }
    kolo_progress_lock();
    const bool first = atomic_load_explicit(&s->pending, memory_order_acquire) == 0;
    kolo_stream_push(s, call, open_group);
    if (call->kind == KOLO_QUEUED_COLLECTIVE) {
        kolo_queue_push(call);
    }
    const bool brief = first && !tried ? kolo_progress_try(s)
                                       : kolo_queued_is_message(call) && kolo_queued_is_brief(call);
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        kolo_progress_wake(brief);
    }
    kolo_progress_unlock();
    return KOLO_OK;
}

/* ---- public calls ---- */

static kolo_status take_stream_error(struct kolo_stream_queue *s)
{
    pthread_mutex_lock(&s->lock);
    const kolo_status st = s->error;
    if (st != KOLO_OK) {
        kolo_error_set(s->error_text);
    }
    s->error = KOLO_OK;
    pthread_mutex_unlock(&s->lock);
    return st;
}

kolo_status kolo_stream_query(kolo_stream stream)
{
    KOLO_UNCANCELLED;
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "stream is NULL");
    }
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0 &&
        kolo_progress_trylock()) { /* a serving thread does the same */
        (void)kolo_progress_try(s);
        kolo_progress_unlock();
    }
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        return KOLO_INPROGRESS;
    }
    return take_stream_error(s);
}

kolo_status kolo_stream_sync(kolo_stream stream)
{
    KOLO_UNCANCELLED;
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "stream is NULL");
    }
    if (atomic_load_explicit(&s->pending, memory_order_acquire) > 0) {
        atomic_fetch_add(&s->awaited, 1);
        kolo_progress_help(s);
        atomic_fetch_sub(&s->awaited, 1);
    }
    return take_stream_error(s);
}

void kolo_stream_destroy(kolo_stream stream)
{
    KOLO_UNCANCELLED;
    struct kolo_stream_queue *s = stream;
    if (s == NULL) {
        return;
    }
    const kolo_status ignored = kolo_stream_sync(stream);
    (void)ignored;
    if (s->listed) {
        kolo_progress_unlist(s);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}
