// SPDX-License-Identifier: Apache-2.0
/* What ended a communicator, and who is told. */
#ifndef KOLO_CORE_FAILURE_FAILURE_H
#define KOLO_CORE_FAILURE_FAILURE_H

#include "core/comm.h"

/* INVALID for NULL, FORKED in a child process, the error that ended it; else OK. */
kolo_status kolo_comm_usable(const struct kolo_comm *comm);
/* The same by the caller that holds `busy`, which nobody gets in a forked child. A rank that fails
 * notes the failure in its own region, too. */
static inline bool kolo_comm_is_usable(const struct kolo_comm *c)
{
    return atomic_load_explicit(&c->links.own->abort, memory_order_acquire) == KOLO_OK;
}
/* End the communicator with `status`, whose text is this thread's. The text and the rank at fault
 * are those of the cause behind `status`, if that is known. Returns the status that ended it first.
 */
kolo_status kolo_comm_fail(struct kolo_comm *comm, kolo_status status);
/* End the communicator with `status`, for which `rank` is at fault; -1: no rank in particular.
 * Returns the status that ended it first. */
kolo_status kolo_failure_end(struct kolo_comm *comm, kolo_status status, int rank);
/* End the communicator for what transports have reported; false: they have reported nothing. */
bool kolo_failure_learn(struct kolo_comm *comm);

/* Call `ended` once when the communicator ends; at once, if it has ended. Observers are told in the
 * order of registration: first set-up releases the path (streams that wait), then the flight
 * recorder writes its file, last a communicator above ends in turn. They are told after the peers,
 * by the thread that found the failure, without any lock of the communicator. An observer must not
 * block. It stays until the communicator is gone. */
void kolo_failure_observe(struct kolo_comm *comm,
                          void (*ended)(void *owner, const struct kolo_verdict *why), void *owner);

/* What transports report, as struct kolo_env says. A report is only noted here. It ends the
 * communicator at the next look, of a call that fails or of the watchdog. */
void kolo_failure_peer_lost(void *comm, int rank, const char *what, int error);
void kolo_failure_peer_failed(void *comm, int rank, int32_t reason);
/* `rank` is known to have left in order. */
void kolo_failure_peer_left(struct kolo_comm *c, int rank);
void kolo_failure_peer_text(void *comm, int rank, const char *text);
/* The reason of this rank's failure, and its text, which transports tell the peers. */
int32_t kolo_failure_reason(void *comm);
void kolo_failure_text(void *comm, char *out, size_t room);

#endif
