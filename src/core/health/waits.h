// SPDX-License-Identifier: Apache-2.0
/* Chains of waits: rank 0 waits for rank 3, which waits for rank 1, which is stopped. */
#ifndef KOLO_CORE_HEALTH_WAITS_H
#define KOLO_CORE_HEALTH_WAITS_H

#include "core/comm.h"

/* The bits of a word (gossip.c) that count calls. */
#define KOLO_WORD_CALLS ((UINT64_C(1) << 30) - 1)

enum { KOLO_WAITS_NOBODY = -1, KOLO_WAITS_UNKNOWN = -2, KOLO_WAITS_CIRCLE = -3 };

/* Whether the process of rank q is stopped, by a signal or a debugger; false if that is not known.
 */
bool kolo_waits_is_stopped(const struct kolo_comm *c, int q);
/* The last word of rank q, if it is not old: whom that rank waits for in the end (or NOBODY, or
 * UNKNOWN), and its calls. */
bool kolo_waits_known(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out);
/* The rank that a wait for rank `peer` (-1: any rank) depends on in the end: all chains of waits
 * lead to it, and it waits for nobody. CIRCLE: kolo_waits_circle() has ranks. UNKNOWN: the chains
 * lead to several ranks that wait for nobody, or to no rank that is known. */
int kolo_waits_end(const struct kolo_comm *c, int peer);
/* The same for all that this rank waits for, but never CIRCLE; NOBODY: it does not wait. */
int kolo_waits_last(const struct kolo_comm *c);
/* The circle that a wait for rank `peer` leads to: ranks of this host, each of which waits for the
 * next one and for no other. How many they are, and the first `most` of them from the lowest on. 0:
 * there is no circle. */
int kolo_waits_circle(const struct kolo_comm *c, int peer, int *out, int most);
/* Note that this rank waits for a message from `peer` (-1: any rank) or to it, or that this wait is
 * over. The note expires unless it is renewed. `blocks`: a thread waits. */
void kolo_waits_message(struct kolo_comm *c, int peer, bool blocks);
void kolo_waits_message_over(struct kolo_comm *c, int peer);

struct kolo_crossed { /* `rank` of `comm` waits there for this rank */
    struct kolo_comm *comm;
    int rank;
    bool stuck; /* all threads of its process wait */
};
/* Whether rank q of `c` and this one wait for each other: this one in `c`, rank q in another one of
 * `comms` (by health.next), in a call that this rank has not made. Then the thread's error says so. */
bool kolo_waits_cross(struct kolo_comm *comms, const struct kolo_comm *c, int q,
                      struct kolo_crossed *out);

#endif
