// SPDX-License-Identifier: Apache-2.0
/* Short messages between the ranks of a host, each with or without a descriptor: datagrams with
 * SCM_RIGHTS (unix(7)). The kernel names the sockets. A message has a secret that its receiver
 * made; a message without it is dropped. The messages of one rank to another arrive in order. */
#ifndef KOLO_GPU_IPC_UNIX_SOCKET_H
#define KOLO_GPU_IPC_UNIX_SOCKET_H

#include "core/comm.h"
#include "util/descriptor.h"

enum {
    KOLO_UNIX_SOCKET_SECRET = 16,
    KOLO_UNIX_SOCKET_BYTES = 160, /* of a message, at most */
    KOLO_UNIX_SOCKET_MS = 1000 /* time-out; an answer takes microseconds if the other rank lives */
};

struct kolo_unix_socket {
    struct kolo_comm *host; /* borrowed */
    bool works;             /* all ranks have sockets and reach each other; the same on all ranks */
    struct kolo_own_fd socket;
    struct kolo_unix_socket_end *end; /* [ranks] */
};

/* Open the sockets. Collective. If sockets do not work here, the call succeeds with works = false.
 * Errors: those of collectives. */
kolo_status kolo_unix_socket_open(struct kolo_comm *host, struct kolo_unix_socket *out);
void kolo_unix_socket_close(struct kolo_unix_socket *f);

/* Send a message to rank `to`; fd -1: without a descriptor, and the receiver sees that. try sends
 * now or never; send tries for KOLO_UNIX_SOCKET_MS. False: not sent. errno EAGAIN: the receiver
 * must first take other messages. */
bool kolo_unix_socket_try(const struct kolo_unix_socket *f, int to, const void *data, size_t bytes,
                          int fd);
bool kolo_unix_socket_send(const struct kolo_unix_socket *f, int to, const void *data, size_t bytes,
                           int fd);

/* Take the next message of `bytes`, from any rank. The caller closes *fd_out; -1: no descriptor.
 * False: there is none now. */
bool kolo_unix_socket_take(const struct kolo_unix_socket *f, int *rank_out, void *data,
                           size_t bytes, int *fd_out);

#endif
