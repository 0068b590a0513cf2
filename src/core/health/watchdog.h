// SPDX-License-Identifier: Apache-2.0
/* The watchdog: one thread of the process, while it has communicators with peers on this host. It
 * ends a communicator when the process of a member is gone, when another member has failed, and
 * when members make different calls. */
#ifndef KOLO_CORE_HEALTH_WATCHDOG_H
#define KOLO_CORE_HEALTH_WATCHDOG_H

#include "core/comm.h"

/* Errors: SYSTEM (no thread). */
kolo_status kolo_watchdog_add(struct kolo_comm *c);
void kolo_watchdog_remove(struct kolo_comm *c);
/* Rank q is waited for: watch its process, whoever else does; if the lock is free. */
void kolo_watchdog_watch(struct kolo_comm *c, int q);
/* Look now for processes that have ended, and tell their communicators. */
void kolo_watchdog_look(void);
/* Whether rank q of `c`, for which this rank waits, itself waits for this rank in another
 * communicator, in a call that this rank has not made. Then both end; the thread's error says why.
 * Another thread might still make the call. So this is proven only if neither process has such a
 * thread; `stuck`: this process has none. If it is not proven, the result is false, with a warning
 * if `warns`. */
bool kolo_watchdog_crossed(struct kolo_comm *c, int q, bool stuck, bool warns);
/* A call of `c` has failed, and all ranks have been told. Ranks that are threads of this process may
 * still read or write its buffers: wait until they are in no call, for at most a second. The caller
 * does not hold queue.busy. */
void kolo_watchdog_await_threads(const struct kolo_comm *c);

#endif
