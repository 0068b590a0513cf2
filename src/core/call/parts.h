// SPDX-License-Identifier: Apache-2.0
/* The functions that the files of the call state machine share. */
#ifndef KOLO_CORE_CALL_PARTS_H
#define KOLO_CORE_CALL_PARTS_H

#include "core/call/call.h"
#include "exec/reduce/codec.h"

/* ---- call.c ---- */

/* The buffers that the program runs on: the caller's, or copies in the accumulator type or in units
 * of a codec. */
static inline const void *kolo_call_run_in(const struct kolo_call *call)
{
    return call->wide_in != NULL ? call->wide_in : call->args.in;
}
static inline void *kolo_call_run_out(const struct kolo_call *call)
{
    return call->wide_out != NULL ? call->wide_out : call->args.out;
}

/* The elements of the program's buffers, where `elems` are those of the caller's. Units begin anew in
 * each rank's block. */
static inline size_t kolo_call_run_elems(const struct kolo_call *call, size_t elems)
{
    return call->codec == KOLO_CODEC_NONE
               ? elems
               : elems / call->args.count * kolo_codec_units(call->codec, call->args.count);
}

/* ---- core/codec.c ---- */

/* Whether the arguments go with the codec that is asked for. Errors: INVALID, UNSUPPORTED. */
kolo_status kolo_call_check_codec(const struct kolo_call *call);
/* Decide whether the call is compressed: call->codec, algo and tile_bytes. `plain` is the choice for
 * an uncompressed call. Errors: SYSTEM. */
kolo_status kolo_call_choose_codec(struct kolo_call *call, const struct kolo_pick *plain);
/* Make units of the input, and room for those of the output. Errors: SYSTEM. */
kolo_status kolo_call_encode(struct kolo_call *call);
void kolo_call_decode(const struct kolo_call *call);

/* ---- buffers.c: entry lines, and which calls have them ---- */

/* Whether a call of this size and shape may have entries, whatever its memory is. */
bool kolo_call_may_have_entries(const struct kolo_call *call);
/* Set call->uses_entries, the same on all ranks. Errors: as kolo_links_reach(). */
kolo_status kolo_call_decide_entries(struct kolo_call *call);
/* Whether a call that had no entries must decide again. */
bool kolo_comm_must_ask(const struct kolo_comm *c);
void kolo_call_make_entry(const struct kolo_call *call, struct kolo_entry *out);
void kolo_call_publish_entry(const struct kolo_call *call);
/* Wait for the lines of all ranks. INPROGRESS unless `block`. */
kolo_status kolo_call_wait_entries(struct kolo_call *call, bool block);
/* After that: whether all ranks' buffers lie in memory that their peers map. All ranks get the same
 * answer. */
bool kolo_call_is_mapped(const struct kolo_call *call);

/* ---- program.c: plan, program and binding, from caches where possible ---- */

kolo_status kolo_call_find_plan(struct kolo_comm *c, const struct kolo_algo *algo, int root,
                                const struct kolo_plan **out);
/* Set call->prog, for the links of this call. */
kolo_status kolo_call_find_prog(struct kolo_call *call, const struct kolo_plan *plan);
/* Set call->bound, and map the outboxes that it needs. INPROGRESS, only without `block`: an outbox
 * is not there yet. */
kolo_status kolo_call_find_bound(struct kolo_call *call, bool block);

/* ---- group.c ---- */

/* Append an allocated call to the calling thread's open group. */
void kolo_group_add(struct kolo_queued *call, struct kolo_stream_queue *s);
/* Calls that a communicator makes for itself, while it comes up or goes down, run at once: between
 * suspend and resume this thread has no open group. resume() takes the result of suspend(). */
int kolo_group_suspend(void);
void kolo_group_resume(int depth);
/* If this thread has an open group, destroy() `comm` at the end of the group, which may have calls
 * on it. False: no group is open. */
bool kolo_group_leave(struct kolo_comm *comm, void (*destroy)(struct kolo_comm *));

/* ---- op.c: operations that users create; PREMULSUM, a sum of inputs that are scaled first ---- */

struct kolo_premulsum {
    struct kolo_premulsum *next;
    kolo_op op;
    enum kolo_type type;
    unsigned char factor[16];
};

/* Check that `op` was created on this communicator for `type`, and copy its factor's bits: the
 * operation may be destroyed before a queued call begins. Errors: INVALID. */
kolo_status kolo_op_find(struct kolo_comm *comm, kolo_op op, enum kolo_type type,
                         uint64_t *factor_out);
/* Free all operations of a communicator. */
void kolo_op_forget(struct kolo_comm *comm);

#endif
