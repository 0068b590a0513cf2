// SPDX-License-Identifier: Apache-2.0
/* Descriptors that are still kolo's, bells, and descriptors that travel as SCM_RIGHTS beside one
 * byte; see stat(2), epoll_ctl(2) and unix(7). */
#include "util/descriptor.h"

#include "util/util.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SOON_US = 100 };

int kolo_poll_soon(int fd, short events, int timeout_ms)
{
    struct pollfd one = {.fd = fd, .events = events};
    const double until_us = kolo_now_us() + SOON_US;
    int ready = 0;
    while (timeout_ms > 0 && ready == 0 && kolo_now_us() < until_us) {
        (void)sched_yield();
        ready = poll(&one, 1, 0);
    }
    return ready != 0 ? ready : poll(&one, 1, timeout_ms);
}

/* ---- descriptors of kolo ---- */

struct kolo_own_fd kolo_own_fd(int fd)
{
    struct stat info;
    struct kolo_own_fd own = {.fd = fd};
    if (fd >= 0 && fstat(fd, &info) == 0) {
        own.device = info.st_dev;
        own.inode = info.st_ino;
    }
    return own;
}

/* A look that fails for another reason than the number proves nothing: the descriptor stays kolo's,
 * as before the look. */
bool kolo_own_fd_is(const struct kolo_own_fd *own)
{
    struct stat info = {.st_dev = own->device, .st_ino = own->inode};
    const bool is_open = own->fd >= 0 && (fstat(own->fd, &info) == 0 || errno != EBADF);
    if (is_open && (own->inode == 0 || /* the first look failed */
                    (info.st_dev == own->device && info.st_ino == own->inode))) {
        return true;
    }
    errno = EBADF;
    return false;
}

void kolo_own_fd_close(struct kolo_own_fd *own)
{
    const int error = errno;
    if (kolo_own_fd_is(own)) {
        close(own->fd);
    }
    own->fd = -1;
    errno = error;
}

/* Whether epoll_ctl() has just failed because it has no such entry, or is no epoll. Source:
 * epoll_ctl(2). */
static bool has_no_entry(void)
{
    return errno == ENOENT || errno == EBADF || errno == EINVAL || errno == EPERM;
}

/* The kernel finds an entry by number and file, so an epoll of the program has none for a socket of
 * kolo, and stays as it is. */
bool kolo_epoll_is_own(int epoll, const struct kolo_own_fd *watched, struct epoll_event event)
{
    return epoll >= 0 && kolo_own_fd_is(watched) &&
           (epoll_ctl(epoll, EPOLL_CTL_MOD, watched->fd, &event) == 0 || !has_no_entry());
}

void kolo_epoll_close(int epoll, int fd)
{
    if (fd >= 0 && (epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0 || !has_no_entry())) {
        close(fd);
    }
}

/* ---- bells ---- */

bool kolo_bell_open(struct kolo_bell *out)
{
    int pair[2] = {-1, -1};
    const bool open = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0;
    *out = (struct kolo_bell){kolo_own_fd(pair[0]), kolo_own_fd(pair[1])};
    return open;
}

void kolo_bell_ring(const struct kolo_bell *bell)
{
    enum { TRIES = 100, NAP_US = 1000 };
    /* Without the ring its thread sleeps on, and so does the thread that joins it. The kernel may
     * have no memory for the byte at the moment. A full socket has been rung. */
    for (int i = 0; i < TRIES && kolo_own_fd_is(&bell->rung) &&
                    send(bell->rung.fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
                    errno != EAGAIN && errno != EPIPE;
         i++) {
        (void)usleep(NAP_US);
    }
}

bool kolo_bell_hush(const struct kolo_bell *bell)
{
    char rings[64];
    ssize_t n = 0;
    if (!kolo_own_fd_is(&bell->heard)) {
        return false;
    }
    do {
        n = recv(bell->heard.fd, rings, sizeof rings, MSG_DONTWAIT);
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n < 0 && errno == EAGAIN; /* 0: the other end was closed */
}

void kolo_bell_close(struct kolo_bell *bell)
{
    kolo_own_fd_close(&bell->heard);
    kolo_own_fd_close(&bell->rung);
}

/* ---- beside a message ---- */

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
