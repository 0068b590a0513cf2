// SPDX-License-Identifier: Apache-2.0
/* One look at a communicator, by the watchdog. */
#ifndef KOLO_CORE_HEALTH_LOOK_H
#define KOLO_CORE_HEALTH_LOOK_H

#include "core/comm.h"

/* The process of rank q has ended: so does the communicator, unless rank q had left it before. */
void kolo_look_lose_rank(struct kolo_comm *c, int q);
/* Whether the communicator has peers of which only connections tell. */
bool kolo_look_listens(const struct kolo_comm *c);
/* End the communicator if a transport, the path, the board or the calls of other ranks say so. True
 * if something has changed since the last look. */
bool kolo_look_at(struct kolo_comm *c);

#endif
