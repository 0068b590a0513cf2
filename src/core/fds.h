// SPDX-License-Identifier: Apache-2.0
/* Descriptors from the ranks of a host to rank 0: SCM_RIGHTS (unix(7)) over datagrams to a socket
 * whose name the kernel gives, each with a secret that rank 0 made; what lacks it is dropped. */
#ifndef KOLO_CORE_FDS_H
#define KOLO_CORE_FDS_H

#include "core/comm.h"

enum {
    KOLO_FDS_SECRET = 16,
    KOLO_FDS_MS = 1000 /* ranks are in one call: it takes microseconds, or somebody died */
};

struct kolo_fds {
    struct kolo_comm *host; /* borrowed */
    bool works;             /* alike on all ranks: rank 0's socket is there, and all reach it */
    int socket;
    unsigned char secret[KOLO_FDS_SECRET];
};

struct kolo_fds_note { /* what comes with a descriptor */
    unsigned char secret[KOLO_FDS_SECRET];
    int32_t rank, what; /* the sender's, and a number of its own */
};

/* Collective. Errors: those of collectives. Where sockets do not do, that is none, but !works. */
kolo_status kolo_fds_open(struct kolo_comm *host, struct kolo_fds *out);
void kolo_fds_close(struct kolo_fds *f);

/* To rank 0; fd -1: there is none, which is told. On rank 0, the next one, whosever: *fd_out is the
 * caller's, or -1. False: it did not go, or none came, within KOLO_FDS_MS. */
bool kolo_fds_send(const struct kolo_fds *f, int32_t what, int fd);
bool kolo_fds_recv(const struct kolo_fds *f, int *rank_out, int32_t *what_out, int *fd_out);

#endif
