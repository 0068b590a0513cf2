// SPDX-License-Identifier: Apache-2.0
/* Whom a process watches: the next processes of its host, in the order of the ranks.
 *
 * If each process watched each other one, n of them would need n * n connections. On a board, one
 * process that sees an end notes it for all. So each watches the next KOLO_RING_WATCHED that live,
 * and is watched by as many. When one of them has ended or left, the next one takes its place. So a
 * chain of ends of any length is seen by the process before it. Without a board each watches all. */
#ifndef KOLO_CORE_HEALTH_RING_H
#define KOLO_CORE_HEALTH_RING_H

#include "core/comm.h"

/* Whether rank q is of another process of this host. */
bool kolo_ring_has(const struct kolo_comm *c, int q);
/* The next rank whose process is to be watched; -1: enough are. Under the watchdog's lock. */
int kolo_ring_next(struct kolo_comm *c);
/* Whether a communicator of the watchdog's list has a call under way, or may have, and hears of some
 * ends by its board alone. */
bool kolo_ring_relies(const struct kolo_comm *comms);

#endif
