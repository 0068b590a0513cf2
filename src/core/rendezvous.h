// SPDX-License-Identifier: Apache-2.0
/* Where the members met, and where parts and survivors of them meet again. */
#ifndef KOLO_CORE_RENDEZVOUS_H
#define KOLO_CORE_RENDEZVOUS_H

#include "boot/bootstrap.h"
#include "util/descriptor.h"
#include "util/secret.h"

struct kolo_rendezvous {
    struct kolo_meet meet;
    unsigned char secret[KOLO_SECRET_BYTES]; /* of its ranks alone */
    struct kolo_own_fd reserved_fd;          /* listens at member[rank].reserved; or none */
    char route_hint[KOLO_INET_TEXT];         /* an address that all hosts reach; or "" */
    unsigned splits;                         /* splits and shrinks so far: they name the meetings */
};

struct kolo_host;
struct kolo_graph;

struct kolo_joining { /* while the communicator comes up */
    struct kolo_host *host;
    struct kolo_graph *machine; /* of KOLO_TOPO_FILE, until the order is known; NULL: none */
    char *table_text;           /* until all have it */
    bool is_ready;              /* this rank has all, and waits only to hear that the others have */
};

#endif
