// SPDX-License-Identifier: Apache-2.0
/* Who serves the streams of a process: one progress thread, or the threads that wait for a stream. */
#ifndef KOLO_CORE_CALL_PROGRESS_H
#define KOLO_CORE_CALL_PROGRESS_H

#include "core/call/queue.h"

/* Have the stream served from now on; the first one starts the thread. Errors: SYSTEM. */
kolo_status kolo_progress_list(struct kolo_stream_queue *s);
/* The last stream ends the thread. */
void kolo_progress_unlist(struct kolo_stream_queue *s);

/* The lock of all that serve. */
void kolo_progress_lock(void);
void kolo_progress_unlock(void);
/* For a query, which may be repeated at once and must not keep others from the lock. False: it is
 * held or wanted, or the streams are those of a forked process's parent. */
bool kolo_progress_trylock(void);

/* With the lock: try the stream's first call. False: it is none to be tried. */
bool kolo_progress_try(struct kolo_stream_queue *s);
/* With the lock: a call has been queued. Whoever serves looks at once, or soon at a short (`brief`)
 * call. */
void kolo_progress_wake(bool brief);

/* Serve all streams until this one is idle. */
void kolo_progress_help(struct kolo_stream_queue *s);

/* Messages have moved without the thread that serves the streams: those that sleep look again. */
void kolo_progress_rouse(void);
/* Wait until no thread serves a stream, or sleeps on the communicator's bell. Then no thread is
 * inside a call that has left its queue. */
void kolo_progress_rest(const struct kolo_comm *comm);

#endif
