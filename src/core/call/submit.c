// SPDX-License-Identifier: Apache-2.0
/* Where a call goes: a blocking call on an idle communicator runs at once, in its thread; else it
 * is queued, on its stream or in the open group. */
#include "core/call/call.h"
#include "core/call/fast_path.h"
#include "core/call/parts.h"
#include "core/call/progress.h"
#include "core/call/queue.h"
#include "core/health/gone.h"
#include "core/health/watchdog.h"
#include "exec/cpu/wait.h"

#include <stdlib.h>
#include <string.h>

static kolo_status wait_queued(struct kolo_queued *call)
{
    struct kolo_pauses pauses = {0};
    double progressed_us = 0;
    while (!kolo_queued_is_done(call)) {
        kolo_queued_drive(call, true);
        if (!kolo_queued_is_done(call)) {
            kolo_pauses_hear(&pauses, kolo_queue_moves(call->comm));
            kolo_pauses_make(&pauses, kolo_queued_polls(call));
            kolo_wait_progress(&call->comm->links.exec_env, &progressed_us);
        }
    }
    const kolo_status st = (kolo_status)atomic_load(&call->status);
    if (st < 0 && call->error_text != NULL) {
        kolo_error_set(call->error_text);
    }
    free(call->error_text);
    call->error_text = NULL;
    return st;
}

/* The communicator is idle, and comm->busy held. */
static kolo_status run_idle(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    kolo_status st = kolo_call_step(call, true);
    if (KOLO_UNLIKELY(st < 0)) {
        st = st <= KOLO_ERR_MISMATCH ? kolo_comm_fail(c, st) : st;
    }
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        kolo_call_take_back(call);
    } else if (st == KOLO_OK) {
        kolo_call_record_end(call);
    }
    kolo_call_close(call);
    return st;
}

static kolo_status run_now(struct kolo_queued *call)
{
    struct kolo_comm *c = call->comm;
    if (call->kind == KOLO_QUEUED_COLLECTIVE &&
        atomic_exchange_explicit(&c->queue.busy, 1, memory_order_acquire) == 0) {
        const bool idle = kolo_queue_first(c) == NULL;
        const kolo_status st = idle ? run_idle(kolo_call_of(call)) : KOLO_OK;
        atomic_store_explicit(&c->queue.busy, 0, memory_order_release);
        if (KOLO_UNLIKELY(idle && st <= KOLO_ERR_MISMATCH)) {
            kolo_watchdog_await_threads(c);
        }
        if (idle) {
            return st;
        }
    }
    atomic_store(&call->status, KOLO_INPROGRESS);
    if (call->kind == KOLO_QUEUED_COLLECTIVE) {
        kolo_queue_push(call);
    }
    return wait_queued(call);
}

static struct kolo_queued *keep_call(const struct kolo_queued *call, size_t bytes)
{
    struct kolo_queued *kept = malloc(bytes);
    if (kept != NULL) {
        memcpy(kept, call, bytes);
        atomic_store(&kept->status, KOLO_INPROGRESS);
    }
    return kept;
}

static kolo_status submit(struct kolo_queued *call, size_t bytes, struct kolo_stream_queue *s)
{
    if (kolo_group_depth == 0 && s == NULL) {
        return run_now(call);
    }
    struct kolo_queued *kept = keep_call(call, bytes);
    if (kept == NULL) {
        kolo_queued_close(call);
        return kolo_comm_fail(call->comm, kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call"));
    }
    if (kolo_group_depth > 0) {
        kolo_group_add(kept, s);
        return KOLO_OK;
    }
    const kolo_status st = kolo_stream_submit(kept, s);
    if (st != KOLO_OK) {
        kolo_queued_close(kept);
        free(kept);
    }
    return st;
}

kolo_status kolo_call_submit(struct kolo_call *call, kolo_stream stream)
{
    return submit(&call->base, sizeof *call, stream);
}

kolo_status kolo_message_submit(struct kolo_message_call *call, kolo_stream stream)
{
    struct kolo_stream_queue *s = stream;
    if (kolo_group_depth == 0 && s != NULL &&
        atomic_load_explicit(&s->pending, memory_order_acquire) == 0 &&
        kolo_message_attempt(call, s)) {
        return KOLO_OK;
    }
    return submit(&call->base, sizeof *call, stream);
}

/* Whether rank q reads lines or slots of this rank's last tiles. */
static bool reads_of_me(const struct kolo_exec_env *env, int q)
{
    bool reads = false;
    for (int parity = 0; parity < KOLO_DEPTH; parity++) {
        for (int i = 0; i < env->readers[parity].count; i++) {
            reads = reads || env->readers[parity].list[i] == q;
        }
    }
    return reads;
}

void kolo_call_drain(struct kolo_comm *c)
{
    struct kolo_pauses pauses = {0};
    double progressed_us = 0;
    while (kolo_queue_first(c) != NULL) {
        kolo_queue_drive(c);
        kolo_pauses_hear(&pauses, kolo_queue_moves(c));
        kolo_pauses_make(&pauses, 0);
        kolo_wait_progress(&c->links.exec_env, &progressed_us);
    }
    kolo_progress_rest(c); /* no thread is inside a call of c any more */
    const double deadline = kolo_now_us() + c->options.timeout_ms * 1e3;
    while (kolo_p2p_leaves_behind(c) && kolo_comm_error(c) == KOLO_OK &&
           kolo_p2p_progress(c) == KOLO_OK && kolo_now_us() < deadline) {
        kolo_pauses_hear(&pauses, kolo_queue_moves(c));
        kolo_pauses_make(&pauses, 0);
        kolo_wait_progress(&c->links.exec_env, &progressed_us);
    }
    /* Wait until the peers have read what they read of this rank in its last call. */
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (c->links.exec_env.region[q] != NULL && !kolo_gone_is(c, q) &&
            (c->links.exec_env.entries > 0 || reads_of_me(&c->links.exec_env, q)) &&
            kolo_comm_error(c) == KOLO_OK) {
            (void)kolo_wait(&c->links.exec_env, &c->links.exec_env.region[q]->head.done,
                            c->links.exec_env.epoch, q);
        }
    }
}
