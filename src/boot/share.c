// SPDX-License-Identifier: Apache-2.0
/* The answer to an exchange, as memory.
 *
 * Each of N ranks gets the bytes of all N. Through sockets the hub's thread would copy the answer N
 * times. So ranks of its host get a descriptor of sealed memory, where the answer lies once. The
 * descriptor lies beside the frame's header, whose digest is of the bytes in that memory. */
#include "boot/wire.h"
#include "util/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Write or read all of it. */
static bool move_all(int fd, void *bytes, size_t len, bool writes)
{
    char *at = bytes;
    size_t done = 0;
    while (done < len) {
        const ssize_t n = writes ? pwrite(fd, at + done, len - done, (off_t)done)
                                 : pread(fd, at + done, len - done, (off_t)done);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

int kolo_boot_share(void *bytes, size_t len)
{
    const int fd = memfd_create("kolo-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (!move_all(fd, bytes, len, true) || fcntl(fd, F_ADD_SEALS, SEALS) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool kolo_boot_take_shared(int *shared, void *out, size_t len)
{
    struct stat info;
    const int fd = *shared;
    const bool taken = fstat(fd, &info) == 0 && info.st_size >= 0 && (size_t)info.st_size == len &&
                       move_all(fd, out, len, false);
    close(fd);
    *shared = -1;
    return taken;
}

ssize_t kolo_boot_send_shared(int socket, const struct kolo_boot_header *header, int shared)
{
    union kolo_fd_room room;
    struct iovec part = {(void *)header, sizeof *header};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    kolo_fd_attach(&message, &room, shared);
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t kolo_boot_receive(int socket, void *out, size_t len, int *shared)
{
    union kolo_fd_room room;
    struct iovec part = {out, len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    const ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    const int fd = n > 0 ? kolo_fd_attached(&message) : -1;
    if (fd >= 0 && *shared >= 0) {
        close(*shared);
    }
    *shared = fd >= 0 ? fd : *shared;
    if (n > 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
        errno = EMFILE;
        return -1;
    }
    return n;
}
