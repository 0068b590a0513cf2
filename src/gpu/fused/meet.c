// SPDX-License-Identifier: Apache-2.0
/* The threads of ranks that share a GPU meet for each call, and the last one enqueues for all.
 * While they wait for each other they hold nothing of the driver's, and no stream waits for
 * them. */
#include "gpu/context/deadline.h"
#include "gpu/fused/inner.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The other ranks cannot meet any more; who gives up ends the communicator. */
static kolo_status give_up(struct kolo_fused_path *path, const struct kolo_gpu_call *const *call,
                           int timeout_ms)
{
    struct kolo_fused_meeting *m = &path->meeting;
    int mine = 0, absent = 0;
    for (int r = 0; r < path->nranks; r++) {
        mine = call[r] != NULL ? r : mine;
        absent = m->call[r] == NULL ? r : absent;
    }
    for (int r = 0; r < path->nranks; r++) {
        if (call[r] != NULL) {
            m->call[r] = NULL;
            m->came--;
        }
    }
    return path->aborted
               ? kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended")
               : kolo_fail(KOLO_ERR_TIMEOUT,
                           "rank %d waited %d ms for rank %d, which did not make call %llu of GPU "
                           "memory; one thread makes the calls of several ranks in a group",
                           mine, timeout_ms, absent,
                           (unsigned long long)path->part[mine].calls + 1);
}

/* Wait until the last rank has enqueued the calls. The caller has path->lock. */
static kolo_status wait_for_all(struct kolo_fused_path *path,
                                const struct kolo_gpu_call *const *call, int timeout_ms)
{
    struct kolo_fused_meeting *m = &path->meeting;
    const struct timespec end = kolo_gpu_time_in(timeout_ms);
    const uint64_t number = m->number;
    bool late = false;
    while (m->number == number) {
        if (m->came == path->nranks) { /* the last one is at it */
            pthread_cond_wait(&m->ended, &path->lock);
        } else if (path->aborted || late) {
            return give_up(path, call, timeout_ms);
        } else {
            late = pthread_cond_timedwait(&m->ended, &path->lock, &end) != 0;
        }
    }
    if (m->status != KOLO_OK) {
        kolo_error_set(m->text);
    }
    return m->status;
}

/* Enqueue the calls of all ranks, who are here. The caller has path->lock. */
static kolo_status lead_meeting(struct kolo_fused_path *path)
{
    struct kolo_fused_meeting *m = &path->meeting;
    pthread_mutex_unlock(&path->lock);
    const kolo_status st = kolo_fused_enqueue_all(path, m->call);
    pthread_mutex_lock(&path->lock);
    m->status = st;
    (void)snprintf(m->text, sizeof m->text, "%s", st != KOLO_OK ? kolo_error_text() : "");
    memset(m->call, 0, sizeof m->call);
    m->came = 0;
    m->number++;
    pthread_cond_broadcast(&m->ended);
    return st;
}

static kolo_status come(struct kolo_fused_path *path, const struct kolo_gpu_call *const *call)
{
    if (path->aborted) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(call[r] != NULL ? kolo_fused_compare(path, r, call[r], false) : KOLO_OK);
    }
    for (int r = 0; r < path->nranks; r++) {
        if (call[r] != NULL) {
            path->meeting.call[r] = call[r];
            path->meeting.came++;
        }
    }
    return KOLO_OK;
}

static kolo_status meet_locked(struct kolo_fused_path *path,
                               const struct kolo_gpu_call *const *call, int timeout_ms)
{
    pthread_mutex_lock(&path->lock);
    kolo_status st = come(path, call);
    if (st == KOLO_OK) {
        st = path->meeting.came == path->nranks ? lead_meeting(path)
                                                : wait_for_all(path, call, timeout_ms);
    }
    pthread_mutex_unlock(&path->lock);
    return st;
}

static kolo_status is_any_captured(const struct kolo_fused_path *path,
                                   const struct kolo_gpu_call *const *call, bool *out)
{
    for (int r = 0; r < path->nranks && !*out; r++) {
        KOLO_TRY(call[r] != NULL ? kolo_gpu_is_capturing(&path->gpu, call[r]->stream, out)
                                 : KOLO_OK);
    }
    return KOLO_OK;
}

/* The last thread enqueues for all, and cannot name the default stream of another thread. */
static kolo_status check_stream(const struct kolo_gpu_call *call)
{
    enum { PER_THREAD = 2 }; /* cudaStreamPerThread */
    return (uintptr_t)call->stream != PER_THREAD
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID,
                           "stream is cudaStreamPerThread, which is another stream in each thread; "
                           "give each rank one of its own (cudaStreamNonBlocking), or the calls of "
                           "all ranks in one group");
}

/* In graphs the ranks do not meet: each enqueues its own call. */
static kolo_status enqueue_each(struct kolo_fused_path *path,
                                const struct kolo_gpu_call *const *call)
{
    for (int r = 0; r < path->nranks; r++) {
        KOLO_TRY(call[r] != NULL ? kolo_fused_path_enqueue(path, r, call[r]) : KOLO_OK);
    }
    return KOLO_OK;
}

kolo_status kolo_fused_path_meet(struct kolo_fused_path *path,
                                 const struct kolo_gpu_call *const *call, int timeout_ms)
{
    bool all = true, captured = false;
    for (int r = 0; r < path->nranks; r++) {
        all = all && call[r] != NULL;
    }
    for (int r = 0; r < path->nranks && !all; r++) {
        KOLO_TRY(call[r] != NULL ? check_stream(call[r]) : KOLO_OK);
    }
    KOLO_TRY(kolo_gpu_enter(&path->gpu));
    kolo_status st = all ? KOLO_OK : is_any_captured(path, call, &captured);
    if (st == KOLO_OK && captured) {
        kolo_gpu_leave(&path->gpu);
        return enqueue_each(path, call);
    }
    for (int r = 0; r < path->nranks && st == KOLO_OK; r++) { /* in one order */
        if (call[r] != NULL) {
            pthread_mutex_lock(&path->part[r].lock);
        }
    }
    if (st == KOLO_OK) {
        st = all ? kolo_fused_enqueue_all(path, call) : meet_locked(path, call, timeout_ms);
        for (int r = 0; r < path->nranks; r++) {
            if (call[r] != NULL) {
                pthread_mutex_unlock(&path->part[r].lock);
            }
        }
    }
    kolo_gpu_leave(&path->gpu);
    return st;
}
