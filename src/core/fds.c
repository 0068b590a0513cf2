// SPDX-License-Identifier: Apache-2.0
/* See fds.h. */
#include "core/fds.h"

#include "util/pass_fd.h"
#include "util/secret.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct invitation { /* what rank 0 tells all */
    uint32_t bytes; /* of the name; 0: there is no socket */
    unsigned char secret[KOLO_FDS_SECRET];
    struct sockaddr_un name;
};

/* ---- coming up, and going down ---- */

/* A name that is left out is given by the kernel: unix(7), autobind. */
static bool invite(struct kolo_fds *f, struct invitation *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof out->name;
    if (kolo_random(out->secret, sizeof out->secret) != KOLO_OK ||
        bind(f->socket, (struct sockaddr *)&name, sizeof name.sun_family) != 0 ||
        getsockname(f->socket, (struct sockaddr *)&out->name, &bytes) != 0) {
        return false;
    }
    out->bytes = bytes;
    return true;
}

kolo_status kolo_fds_open(struct kolo_comm *host, struct kolo_fds *out)
{
    struct kolo_fds f = {.host = host};
    struct invitation mine = {.bytes = 0}, all = {.bytes = 0};
    uint8_t works = 0, all_work = 0;
    f.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (host->rank == 0 && f.socket >= 0 && !invite(&f, &mine)) {
        mine.bytes = 0;
    }
    kolo_status st = kolo_broadcast(&mine, &all, sizeof all, KOLO_UINT8, 0, host, NULL);
    works = f.socket >= 0 && all.bytes > 0 && all.bytes <= sizeof all.name;
    if (works && host->rank != 0) {
        works = connect(f.socket, (struct sockaddr *)&all.name, all.bytes) == 0;
    }
    st = st == KOLO_OK ? kolo_all_reduce(&works, &all_work, 1, KOLO_UINT8, KOLO_MIN, host, NULL)
                       : st;
    memcpy(f.secret, all.secret, sizeof f.secret);
    f.works = all_work != 0;
    if (st != KOLO_OK || !f.works) {
        kolo_fds_close(&f);
    }
    *out = f;
    return st;
}

void kolo_fds_close(struct kolo_fds *f)
{
    if (f->socket >= 0) {
        (void)close(f->socket);
    }
    f->socket = -1;
    f->works = false;
}

/* ---- descriptors ---- */

bool kolo_fds_send(const struct kolo_fds *f, int32_t what, int fd)
{
    struct kolo_fds_note note = {.rank = f->host->rank, .what = what};
    struct iovec iov = {&note, sizeof note};
    union kolo_fd_room room;
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    const struct timespec nap = {0, 1000 * 1000};
    const double end = kolo_now_us() + KOLO_FDS_MS * 1e3;
    memcpy(note.secret, f->secret, sizeof note.secret);
    if (fd >= 0) {
        kolo_fd_attach(&message, &room, fd);
    }
    while (sendmsg(f->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if ((errno != EAGAIN && errno != EINTR && errno != ENOBUFS) || kolo_now_us() > end) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

/* One datagram; false: none that counts. */
static bool take(const struct kolo_fds *f, struct kolo_fds_note *note, int *fd_out)
{
    struct iovec iov = {note, sizeof *note};
    union kolo_fd_room room;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    const ssize_t got = recvmsg(f->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const int fd = got < 0 ? -1 : kolo_fd_attached(&message);
    if (got == sizeof *note && memcmp(note->secret, f->secret, sizeof note->secret) == 0 &&
        note->rank >= 0 && note->rank < f->host->nranks) {
        *fd_out = fd;
        return true;
    }
    if (fd >= 0) { /* a stranger's */
        (void)close(fd);
    }
    return false;
}

bool kolo_fds_recv(const struct kolo_fds *f, int *rank_out, int32_t *what_out, int *fd_out)
{
    const double end = kolo_now_us() + KOLO_FDS_MS * 1e3;
    struct pollfd ready = {.fd = f->socket, .events = POLLIN};
    struct kolo_fds_note note;
    for (double left_us; (left_us = end - kolo_now_us()) > 0;) {
        if (poll(&ready, 1, (int)(left_us / 1e3) + 1) > 0 && take(f, &note, fd_out)) {
            *rank_out = note.rank;
            *what_out = note.what;
            return true;
        }
    }
    return false;
}
