// SPDX-License-Identifier: Apache-2.0
/* A rank's links to its peers, their regions and their outboxes. Functions that connect or map are
 * called with links.lock held. */
#ifndef KOLO_CORE_LINK_LINKS_H
#define KOLO_CORE_LINK_LINKS_H

#include "core/comm.h"

/* Connect to rank q, unless the link is there already. Errors: of the transport, or the status that
 * has ended the communicator meanwhile. */
kolo_status kolo_links_connect(struct kolo_comm *comm, int q);
/* The same, and map the region of rank q if its transport maps memory. The caller holds `busy`. */
kolo_status kolo_links_reach(struct kolo_comm *comm, int q);
/* Make this rank's outbox. Only its short slots are sure to have their pages. */
kolo_status kolo_links_make_outbox(struct kolo_comm *comm);
/* Reserve the long slots, before the first program that writes them runs. Errors: SYSTEM. */
kolo_status kolo_links_reserve_long(struct kolo_comm *comm);
/* Map the outbox of rank q. INPROGRESS until rank q has made it. */
kolo_status kolo_links_map_outbox(struct kolo_comm *comm, int q);

/* Memory of a device that one transport can read and write. A path lends it to the links of its
 * communicator on host memory. */
struct kolo_device_memory {
    const struct kolo_endpoint *endpoint; /* of the transport that takes it */
    size_t least_bytes;                   /* shorter messages go through host memory */
    /* As struct kolo_env says. */
    kolo_status (*dma_buf)(void *owner, const void *at, size_t len, int *fd, uint64_t *offset);
    kolo_status (*copy)(void *owner, void *to, const void *from, size_t len, bool to_device);
    void *owner;
};
/* From now on messages may be of such memory; NULL: no more. It needs no lock, as the path's thread
 * is the only one that uses the communicator. */
void kolo_links_lend_memory(struct kolo_comm *comm, const struct kolo_device_memory *memory);
/* Whether a message of `bytes` with rank q may be of lent memory. */
bool kolo_links_take_memory(const struct kolo_comm *comm, int q, size_t bytes);
/* kolo_env.dma_buf and .copy, by the memory that was lent. Errors: UNSUPPORTED (there is none), and
 * those of the path. */
kolo_status kolo_links_dma_buf(void *comm, const void *at, size_t len, int *fd, uint64_t *offset);
kolo_status kolo_links_copy(void *comm, void *to, const void *from, size_t len, bool to_device);

#endif
