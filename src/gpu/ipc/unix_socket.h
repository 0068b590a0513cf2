// SPDX-License-Identifier: Apache-2.0
/* Short messages between the ranks of a host, each with a descriptor or without: SCM_RIGHTS
 * (unix(7)) over datagrams to sockets whose names the kernel gives, each with a secret that its
 * receiver made; what lacks it is dropped. Those of one rank to another arrive in their order. */
#ifndef KOLO_GPU_IPC_UNIX_SOCKET_H
#define KOLO_GPU_IPC_UNIX_SOCKET_H

#include "core/comm.h"

enum {
    KOLO_FDS_SECRET = 16,
    KOLO_FDS_BYTES = 160, /* of a message, at most */
    KOLO_FDS_MS = 1000    /* whoever is asked answers at once: it takes microseconds, or he died */
};

struct kolo_fds {
    struct kolo_comm *host; /* borrowed */
    bool works;             /* alike on all ranks: all have sockets, and reach the others' */
    int socket;
    struct kolo_fds_end *end; /* [ranks] */
};

/* Collective. Errors: those of collectives. Where sockets do not do, that is none, but !works. */
kolo_status kolo_fds_open(struct kolo_comm *host, struct kolo_fds *out);
void kolo_fds_close(struct kolo_fds *f);

/* To rank `to`; fd -1: there is none, which is told. False: it did not go, at once or within
 * KOLO_FDS_MS; at once with errno EAGAIN where the receiver has to take others first. */
bool kolo_fds_try(const struct kolo_fds *f, int to, const void *data, size_t bytes, int fd);
bool kolo_fds_send(const struct kolo_fds *f, int to, const void *data, size_t bytes, int fd);

/* The next one, whosever, of so many bytes: *fd_out is the caller's, or -1. False: there is none
 * now, or within KOLO_FDS_MS. */
bool kolo_fds_take(const struct kolo_fds *f, int *rank_out, void *data, size_t bytes, int *fd_out);
bool kolo_fds_recv(const struct kolo_fds *f, int *rank_out, void *data, size_t bytes, int *fd_out);

#endif
