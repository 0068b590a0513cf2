// SPDX-License-Identifier: Apache-2.0
/* What the files of the call state machine share. */
#ifndef KOLO_CORE_CALL_PARTS_H
#define KOLO_CORE_CALL_PARTS_H

#include "core/call.h"

/* ---- call_check.c: what the arguments say ---- */

/* Whether this rank reads send, writes recv; elements that they span from their start. */
bool kolo_call_has_in(const struct kolo_call *call);
bool kolo_call_has_out(const struct kolo_call *call);
size_t kolo_call_span(const struct kolo_call *call, bool in);
/* As struct kolo_query says. */
size_t kolo_call_bytes(const struct kolo_call *call);
bool kolo_call_reduces(const struct kolo_call *call);
/* v-forms that not all ranks know run as messages, so that each edge has its own length. */
bool kolo_call_by_messages(const struct kolo_call *call);

/* ---- call_prog.c: plan, program and binding, from caches where possible ---- */

kolo_status kolo_call_find_plan(struct kolo_comm *c, const struct kolo_algo *algo, int root,
                                const struct kolo_plan **out);
/* call->prog, for the links as they are in this call. */
kolo_status kolo_call_find_prog(struct kolo_call *call, const struct kolo_plan *plan);
/* call->bound; maps the outboxes it needs (INPROGRESS until they are there, unless `block`). */
kolo_status kolo_call_find_bound(struct kolo_call *call, bool block);
/* A call like one before skips choosing, lowering and binding. */
bool kolo_memo_knows(struct kolo_call *call);
void kolo_memo_learn(const struct kolo_call *call);

#endif
