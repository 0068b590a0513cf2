// SPDX-License-Identifier: Apache-2.0
/* A rank's region, which peers map, and the executor's view of all ranks (struct kolo_wires). */
#ifndef KOLO_CORE_LINK_REGION_H
#define KOLO_CORE_LINK_REGION_H

#include "core/comm.h"

struct kolo_region_calls { /* what the executor calls back, as struct kolo_wires says */
    kolo_status (*resolve)(struct kolo_wires *w, int q, const struct kolo_entry *entry);
    kolo_status (*stalled)(struct kolo_wires *w, int peer, double waited_us);
};

/* Make comm->wires and the region, by the transport whose memory peers map, if there is one. Peers'
 * transports are chosen. Errors: SYSTEM, and those of the transport. */
kolo_status kolo_region_make(struct kolo_comm *comm, const struct kolo_region_calls *calls);
/* Free the arrays of `w`; the region is its transport's. */
void kolo_region_free(struct kolo_wires *w);

#endif
