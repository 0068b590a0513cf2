// SPDX-License-Identifier: Apache-2.0
/* What the files of the call state machine share. */
#ifndef KOLO_CORE_CALL_PARTS_H
#define KOLO_CORE_CALL_PARTS_H

#include "core/call/call.h"

/* ---- check.c: what the arguments say ---- */

/* Whether this rank reads send, writes recv; elements that they span from their start. */
bool kolo_call_has_in(const struct kolo_call *call);
bool kolo_call_has_out(const struct kolo_call *call);
size_t kolo_call_span(const struct kolo_call *call, bool in);
/* As struct kolo_query says. */
size_t kolo_call_bytes(const struct kolo_call *call);
bool kolo_call_reduces(const struct kolo_call *call);
/* v-forms that not all ranks know run as messages, so that each edge has its own length. */
bool kolo_call_by_messages(const struct kolo_call *call);

/* ---- call.c ---- */

/* What all ranks must agree on, hashed. */
uint64_t kolo_call_signature(const struct kolo_call *call);
/* The buffers that the program runs on: the caller's, or those in the accumulator type. */
const void *kolo_call_run_in(const struct kolo_call *call);
void *kolo_call_run_out(const struct kolo_call *call);

/* ---- buffers.c: entry lines, and which calls have them ---- */

/* Whether a call like this may have entries: by size and shape, whatever memory there is. */
bool kolo_call_may_have_entries(const struct kolo_call *call);
/* call->uses_entries, alike on all ranks. Errors: of connecting. */
kolo_status kolo_call_decide_entries(struct kolo_call *call);
/* Whether that has to be decided anew for a call that had none. */
bool kolo_comm_must_ask(const struct kolo_comm *c);
void kolo_call_make_entry(const struct kolo_call *call, struct kolo_entry *out);
void kolo_call_publish_entry(const struct kolo_call *call);
/* Wait for the lines of all ranks. INPROGRESS unless `block`. */
kolo_status kolo_call_wait_entries(struct kolo_call *call, bool block);
/* After that: whether all that the ranks bring lies in memory that their peers map; alike on all
 * ranks. */
bool kolo_call_is_mapped(const struct kolo_call *call);

/* ---- program.c: plan, program and binding, from caches where possible ---- */

kolo_status kolo_call_find_plan(struct kolo_comm *c, const struct kolo_algo *algo, int root,
                                const struct kolo_plan **out);
/* call->prog, for the links as they are in this call. */
kolo_status kolo_call_find_prog(struct kolo_call *call, const struct kolo_plan *plan);
/* call->bound; maps the outboxes it needs (INPROGRESS until they are there, unless `block`). */
kolo_status kolo_call_find_bound(struct kolo_call *call, bool block);
/* ---- fast_path.c: what is kept of calls, so that one like it needs none of that ---- */

bool kolo_memo_create(struct kolo_comm *c);
/* Take algorithm, program and binding from a call like this one that had no entries. */
bool kolo_memo_recall(struct kolo_call *call);
/* After binding: `call` is about to run. */
void kolo_memo_learn(struct kolo_call *call);
/* Nothing that uses `bound` may be kept; NULL: nothing at all. */
void kolo_memo_forget(struct kolo_comm *c, const struct kolo_bound *bound);
void kolo_memo_destroy(struct kolo_comm *c);

#endif
