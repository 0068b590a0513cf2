// SPDX-License-Identifier: Apache-2.0
/* How error texts name ranks and calls. The board knows the calls of the ranks on this host. */
#ifndef KOLO_CORE_BOARD_TEXT_H
#define KOLO_CORE_BOARD_TEXT_H

#include "core/comm.h"

/* "rank 3 (pid 4711)" */
void kolo_say_rank(const struct kolo_comm *c, int q, char *out, size_t room);
/* "call 17, all_reduce of 4 float32, sum" */
void kolo_say_call(const struct kolo_comm *c, int q, uint64_t number, char *out, size_t room);
/* The first call that differs between this rank and rank q: this thread's error names both forms.
 * False: no such call is known. */
bool kolo_say_mismatch(const struct kolo_comm *c, int q);

#endif
