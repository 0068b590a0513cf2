// SPDX-License-Identifier: Apache-2.0
/* A rank's links to its peers, their regions and their outboxes. Every function here is called with
 * device_lock held. */
#ifndef KOLO_CORE_LINK_LINKS_H
#define KOLO_CORE_LINK_LINKS_H

#include "core/comm.h"

/* Connect to rank q, unless the link is there already. Errors: of the transport, or the status that
 * has ended the communicator meanwhile. */
kolo_status kolo_links_connect(struct kolo_comm *comm, int q);
/* The same, and map the region of rank q if its transport maps memory. The caller holds `busy`. */
kolo_status kolo_links_reach(struct kolo_comm *comm, int q);
/* Make this rank's outbox. */
kolo_status kolo_links_make_outbox(struct kolo_comm *comm);
/* Map the outbox of rank q. INPROGRESS until rank q has made it. */
kolo_status kolo_links_map_outbox(struct kolo_comm *comm, int q);

#endif
