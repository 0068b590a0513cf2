// SPDX-License-Identifier: Apache-2.0
/* One look at a communicator, by the watchdog. */
#ifndef KOLO_CORE_HEALTH_LOOK_H
#define KOLO_CORE_HEALTH_LOOK_H

#include "core/comm.h"

/* Whether the watchdog of rank q, a rank of this host, has not run for a while: its process is
 * stopped, or gets no time. */
bool kolo_look_is_still(const struct kolo_comm *c, int q);
/* Whether rank q of this host has neither left nor been lost. */
bool kolo_look_has_rank(const struct kolo_comm *c, int q);
/* The process of rank q has ended: so does the communicator, unless rank q had left it before.
 * `lives`: it has not, but its socket has. */
void kolo_look_lose_rank(struct kolo_comm *c, int q, bool lives);
/* The program has closed the descriptors of this process: a communicator with other ones ends. */
void kolo_look_lose_descriptors(struct kolo_comm *c);
/* Whether the communicator has peers of which only connections tell. */
bool kolo_look_listens(const struct kolo_comm *c);
/* What came over connections while no call looks. The links' lock is held. */
void kolo_look_listen(struct kolo_comm *c);
/* kolo_env.on_contact: `rank` has connected to this one first. */
void kolo_look_contact(void *comm, int rank);
/* End the communicator if a transport, the path, the board or the calls of other ranks say so. True
 * if something has changed since the last look. */
bool kolo_look_at(struct kolo_comm *c);

#endif
