// SPDX-License-Identifier: Apache-2.0
/* The calls of ranks on other hosts, which no board shows, compared with this rank's calls. */
#ifndef KOLO_CORE_HEALTH_CALLS_H
#define KOLO_CORE_HEALTH_CALLS_H

#include "core/comm.h"

/* kolo_env.last_call and on_call. A call that differs is only noted. */
void kolo_calls_last(void *comm, struct kolo_call_sign *out);
void kolo_calls_heard(void *comm, int rank, const struct kolo_call_sign *call);
/* Compare the calls that were heard before this rank made them. The caller holds links.lock. */
void kolo_calls_compare(struct kolo_comm *c);
/* Tell neighbours in gossip the last call, if it is a new one. */
void kolo_calls_tell(struct kolo_comm *c);
/* End the communicator for a call that differs; false: none does. */
bool kolo_calls_learn(struct kolo_comm *c);

#endif
