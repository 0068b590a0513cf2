// SPDX-License-Identifier: Apache-2.0
/* Which ranks are gone: for them nobody needs to wait. */
#ifndef KOLO_CORE_HEALTH_GONE_H
#define KOLO_CORE_HEALTH_GONE_H

#include "core/comm.h"

/* Rank q has destroyed its communicator, or its process has ended: it makes no more calls, sends no
 * more messages and comes to no meeting. False also if that is not known. */
bool kolo_gone_is(const struct kolo_comm *c, int q);
/* The first i of n for which ranks[i] is the number of another rank that is gone; ranks NULL: of the
 * ranks 0 to n - 1. Negative numbers are passed over. -1: there is none. */
int kolo_gone_find(const struct kolo_comm *c, const int *ranks, int n);
/* Whether kolo_gone_find() may find more than when *seen (at first 0) was written here. Who asks often
 * is spared the look at all ranks. */
bool kolo_gone_has_news(const struct kolo_comm *c, uint32_t *seen);
/* Note that rank q is gone: others have told it. */
void kolo_gone_note(struct kolo_comm *c, int q);
/* "rank 3 (pid 4711) died", "... left", or what is known without a board: "... died or left". */
void kolo_gone_say(const struct kolo_comm *c, int q, char *out, size_t room);

#endif
