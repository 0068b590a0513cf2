// SPDX-License-Identifier: Apache-2.0
/* One descriptor beside a message over a unix socket: SCM_RIGHTS, unix(7) and cmsg(3). */
#ifndef KOLO_UTIL_PASS_FD_H
#define KOLO_UTIL_PASS_FD_H

#include <sys/socket.h>

/* Room for the control message. It must live as long as the message's header. */
union kolo_fd_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
};

/* Before sendmsg(): attach `fd` to the message. */
void kolo_fd_attach(struct msghdr *message, union kolo_fd_room *room, int fd);

/* After recvmsg() with a room as control buffer: the attached descriptor, or -1. */
int kolo_fd_attached(struct msghdr *message);

#endif
