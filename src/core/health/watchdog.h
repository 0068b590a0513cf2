// SPDX-License-Identifier: Apache-2.0
/* Who sees that something is wrong: a thread that is told when a peer's process ends, and waits
 * that last. */
#ifndef KOLO_CORE_HEALTH_WATCHDOG_H
#define KOLO_CORE_HEALTH_WATCHDOG_H

#include "core/comm.h"

/* watchdog.c: one thread of the process, while it has communicators with peers on this host. It
 * ends those of which a member's process is gone, hears of what others found, and compares calls.
 * Errors: SYSTEM (no thread). */
kolo_status kolo_watch(struct kolo_comm *c);
void kolo_unwatch(struct kolo_comm *c);
/* Around a fork. */
void kolo_watch_before_fork(void);
void kolo_watch_after_fork(bool child);
/* One more thread makes calls, or serves streams. */
void kolo_watch_caller(void);
/* Whether rank q of `c`, for which this rank waits, itself waits for this rank in another
 * communicator, in a call that this rank has not made. Then both end; the thread's error says why.
 */
bool kolo_watch_crossed(struct kolo_comm *c, int q);

/* diagnose.c: a wait for rank `peer` (-1: not known) that lasts. Warns of a straggler, once a call.
 * Errors: MISMATCH, PEER (it can never end). */
kolo_status kolo_comm_ask(struct kolo_comm *c, int peer, double waited_us, bool message);
/* For whom this rank waits in the end, as far as it knows; -1: for nobody. */
int kolo_comm_waits_for_last(const struct kolo_comm *c);
/* gossip.c: ask rank q, which has no post on our board, whom it waits for; and what it last
 * answered, if that is not old. */
void kolo_mesh_ask(struct kolo_comm *c, int q);
bool kolo_mesh_knows(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out);
/* It lasted too long: TIMEOUT, naming whom all wait for. */
kolo_status kolo_comm_late(struct kolo_comm *c, int peer, int limit_ms, bool message);
/* kolo_wires.stalled. */
kolo_status kolo_comm_stalled(struct kolo_wires *w, int peer, double waited_us);
/* The call that this rank and rank q number alike and that is not the same: this thread's error
 * names both. False: none is known. */
bool kolo_comm_say_mismatch(const struct kolo_comm *c, int q);
/* "rank 3 (pid 4711)", "call 17, all_reduce of 4 float32, sum". */
void kolo_comm_say_rank(const struct kolo_comm *c, int q, char *out, size_t room);
void kolo_comm_say_call(const struct kolo_comm *c, int q, uint64_t number, char *out, size_t room);

#endif
