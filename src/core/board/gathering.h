// SPDX-License-Identifier: Apache-2.0
/* Members of a host that come together before they go on.
 *
 * Where ranks share cores, a rank that has heard of a death and goes on at once takes the time of
 * those that have yet to hear. So all sleep here until the last has come, which wakes them. Nobody
 * depends on it: a wait is short, and who does not come is found by the meeting that follows. */
#ifndef KOLO_CORE_BOARD_GATHERING_H
#define KOLO_CORE_BOARD_GATHERING_H

#include "core/comm.h"

/* This rank has come for the time `number`, which begins at 1. */
void kolo_gathering_come(struct kolo_comm *c, uint32_t number);
/* Whether those of ranks[n] that are on the board have come for this time, or a later one, or others
 * have gone on already. If not, sleep until then, or for `most_ms`, below 1000. True: go on. */
bool kolo_gathering_await(struct kolo_comm *c, uint32_t number, const int *ranks, int n,
                          int most_ms);

#endif
