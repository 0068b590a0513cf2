// SPDX-License-Identifier: Apache-2.0
/* The transports that a communicator opens, and their addresses. */
#ifndef KOLO_CORE_LINK_OPEN_H
#define KOLO_CORE_LINK_OPEN_H

#include "core/comm.h"

enum { KOLO_LINK_ADDRESS_BYTES = 384, KOLO_TRANSPORT_NAME = 12 };

struct kolo_link_address { /* of each transport that is open here; `len` bytes from `at` on */
    struct {
        char name[KOLO_TRANSPORT_NAME]; /* the first bytes of the transport's name */
        uint16_t at, len;
    } part[KOLO_TRANSPORTS_MAX];
    unsigned char bytes[KOLO_LINK_ADDRESS_BYTES];
};

/* Open the transports that config.transport lists, or all that this communicator may need. `env` of
 * the communicator is complete. Errors: INVALID (an unknown name), UNSUPPORTED (none could be
 * opened), and those of a listed transport. */
kolo_status kolo_links_open(struct kolo_comm *comm);
/* The addresses of what was opened. `out` is zero. Errors: UNSUPPORTED (they do not fit), and those
 * of transports. */
kolo_status kolo_links_address(const struct kolo_comm *comm, struct kolo_link_address *out);
/* Of the transports that reach rank q, choose the one with the highest score. The peer's address then
 * lies in `from`. Errors: UNSUPPORTED (none reaches it). */
kolo_status kolo_links_choose(struct kolo_comm *comm, int q, const struct kolo_link_address *from);
/* Disconnect all links, unmap what was mapped, and close the transports. */
void kolo_links_close(struct kolo_comm *comm);

#endif
