// SPDX-License-Identifier: Apache-2.0
/* One look at a communicator, by the watchdog. */
#ifndef KOLO_CORE_HEALTH_LOOK_H
#define KOLO_CORE_HEALTH_LOOK_H

#include "core/comm.h"

#include <poll.h>

/* Whether the watchdog of rank q, a rank of this host, has not run for a while: its process is
 * stopped, or gets no time. */
bool kolo_look_is_still(const struct kolo_comm *c, int q);
/* Note on the board that this process runs. */
void kolo_look_say_runs(struct kolo_comm *c);
/* Whether rank q of this host has just run: then nobody needs to ask /proc whether it is stopped. */
bool kolo_look_has_run(const struct kolo_comm *c, int q);
/* Whether rank q of this host has neither left nor been lost. */
bool kolo_look_has_rank(const struct kolo_comm *c, int q);
/* The process of rank q has ended: so does the communicator, unless rank q had left it before.
 * `lives`: it has not, but its socket has. */
void kolo_look_lose_rank(struct kolo_comm *c, int q, bool lives);
/* Lose the ranks whose fate others have noted on the board. Under the watchdog's lock. */
void kolo_look_fates(struct kolo_comm *c);
/* The program has closed the descriptors of this process: a communicator with other ones ends. */
void kolo_look_lose_descriptors(struct kolo_comm *c);
/* What came over connections while no call looks. The links' lock is held. */
void kolo_look_listen(struct kolo_comm *c);
/* kolo_env.on_contact: `rank` has connected to this one first. */
void kolo_look_contact(void *comm, int rank);
/* End the communicator if a transport, the path, the board or the calls of other ranks say so. True
 * if something has changed since the last look. */
bool kolo_look_at(struct kolo_comm *c);

/* The connections that the watchdog sleeps on, so that the end of a process of another host is known
 * at once while no call looks there. `comms` is the first of the watchdog's list, under its lock. */
enum { KOLO_EARS = 18 };

struct kolo_ears { /* what a poll() sleeps on, and for how long */
    struct pollfd on[KOLO_EARS];
    int count, ms;
};

/* Whether some communicator has peers of which only connections tell. */
bool kolo_look_ears_any(const struct kolo_comm *comms);
/* Add the connections behind on[count], and set `ms`. `heard`: they have just had news; they are
 * left alone for a while, as they may have news all the time. `left_ms`: until the next look. */
void kolo_look_ears_prepare(struct kolo_comm *comms, bool heard, int left_ms,
                            struct kolo_ears *out);
/* Whether poll() has found news on one of on[from] to on[end - 1]. */
bool kolo_look_ears_have(const struct kolo_ears *ears, int from, int end);
/* Take in what came over connections. It sends nothing of its own. True if a communicator ends by
 * it. */
bool kolo_look_ears_hear(struct kolo_comm *comms);

#endif
