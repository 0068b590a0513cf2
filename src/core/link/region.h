// SPDX-License-Identifier: Apache-2.0
/* A rank's region, which peers map, and the executor's view of all ranks (struct kolo_exec_env). */
#ifndef KOLO_CORE_LINK_REGION_H
#define KOLO_CORE_LINK_REGION_H

#include "core/comm.h"

struct kolo_region_calls { /* what the executor calls back, as struct kolo_exec_env says */
    kolo_status (*resolve)(struct kolo_exec_env *env, int q, const struct kolo_entry *entry);
    kolo_status (*stalled)(struct kolo_exec_env *env, int peer, double waited_us);
};

/* Make comm->links.exec_env and the region, by the transport whose memory peers map, if there is one. Peers'
 * transports are chosen. Errors: SYSTEM, and those of the transport. */
kolo_status kolo_region_make(struct kolo_comm *comm, const struct kolo_region_calls *calls);
/* Reserve the lines of the first `phases` phases of this rank's region, which a program is about to
 * write. The caller holds links.lock. Errors: SYSTEM. */
kolo_status kolo_region_reserve(struct kolo_comm *comm, int phases);
/* Free the arrays of `env`; the region is its transport's. */
void kolo_region_free(struct kolo_exec_env *env);

#endif
