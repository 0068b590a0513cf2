// SPDX-License-Identifier: Apache-2.0
/* How the ranks of a new communicator meet: what creating, splitting and shrinking share. */
#ifndef KOLO_CORE_SETUP_CREATE_H
#define KOLO_CORE_SETUP_CREATE_H

#include "boot/bootstrap.h"
#include "core/comm.h"

/* Create the communicator of the ranks that meet there. hub: this rank serves the meeting. */
kolo_status kolo_create_at(const struct kolo_meet *meet, int nranks, int rank, bool hub,
                           const struct kolo_config *config, struct kolo_comm **out);
/* Name a meeting of ranks of `parent`, and give it a secret that only these ranks can derive.
 * Errors: SYSTEM. */
kolo_status kolo_create_name(const struct kolo_comm *parent, const char *what, unsigned number,
                             int color, struct kolo_meet *out);
/* The configuration of a communicator that is made of `parent` without another one. */
struct kolo_config kolo_create_config(const struct kolo_comm *parent);

#endif
