// SPDX-License-Identifier: Apache-2.0
/* How error texts name ranks and calls. The board knows the calls of the ranks on this host. */
#ifndef KOLO_CORE_BOARD_TEXT_H
#define KOLO_CORE_BOARD_TEXT_H

#include "core/comm.h"

/* "rank 3 (pid 4711)" */
void kolo_say_rank(const struct kolo_comm *c, int q, char *out, size_t room);
/* The program has closed the descriptors of this rank's process. Returns PEER, as the others do. */
kolo_status kolo_say_closed(const struct kolo_comm *c);
/* "call 17, all_reduce of 4 float32, sum" */
void kolo_say_call(const struct kolo_comm *c, int q, uint64_t number, char *out, size_t room);
/* This thread's error: rank q (-1: a rank) left before the call that this rank is in, or before a
 * message. Returns PEER. */
kolo_status kolo_say_left(const struct kolo_comm *c, int q, bool message);
/* The first call that differs between this rank and rank q: this thread's error names both forms.
 * False: no such call is known. */
bool kolo_say_mismatch(const struct kolo_comm *c, int q);
/* The same for a rank that told its call in a message. If the board shows no difference, `told` is
 * used. */
void kolo_say_told(const struct kolo_comm *c, int q, const struct kolo_call_sign *told);
/* Whether this rank has made another call than the one told, or than the one before that. *mine_out
 * and *theirs_out: both forms of the first that differs. */
bool kolo_told_differs(const struct kolo_comm *c, const struct kolo_call_sign *told,
                       struct kolo_recorded *mine_out, struct kolo_recorded *theirs_out);

#endif
