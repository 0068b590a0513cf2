// SPDX-License-Identifier: Apache-2.0
/* Waits that last. */
#ifndef KOLO_CORE_HEALTH_DIAGNOSE_H
#define KOLO_CORE_HEALTH_DIAGNOSE_H

#include "core/comm.h"

/* A wait for rank `peer` (-1: not known, or any) lasts. `blocks`: the calling thread makes no other
 * call before its end. Warns of a straggler, once a call. Errors: MISMATCH, PEER (the wait can
 * never end). */
kolo_status kolo_diagnose_ask(struct kolo_comm *c, int peer, double waited_us, bool message,
                              bool blocks);
/* The wait has lasted longer than its limit. TIMEOUT names the rank for which all wait. OK: the
 * wait may go on for a moment, because that rank has just changed. */
kolo_status kolo_diagnose_late(struct kolo_comm *c, int peer, double waited_us, int limit_ms,
                               bool message);
/* kolo_env.on_wait: a transport waits for rank `peer` inside a slot. The links' lock is held. */
kolo_status kolo_diagnose_connecting(void *comm, int peer, double waited_us);
/* kolo_exec_env.stalled. */
kolo_status kolo_diagnose_stalled(struct kolo_exec_env *env, int peer, double waited_us);

#endif
