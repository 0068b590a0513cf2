// SPDX-License-Identifier: Apache-2.0
/* Descriptors travel as SCM_RIGHTS beside one byte; see unix(7). */
#include "util/pass_fd.h"

#include <string.h>

void kolo_fd_attach(struct msghdr *message, union kolo_fd_room *room, int fd)
{
    memset(room, 0, sizeof *room);
    message->msg_control = room->bytes;
    message->msg_controllen = sizeof room->bytes;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
}

int kolo_fd_attached(struct msghdr *message)
{
    int fd = -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd)) {
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    }
    return fd;
}
