// SPDX-License-Identifier: Apache-2.0
/* Datagrams with descriptors between the ranks of a host. Every rank binds a socket to a name of
 * the abstract namespace, and all ranks gather the names and secrets. */
#include "gpu/ipc/unix_socket.h"

#include "util/descriptor.h"
#include "util/secret.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

struct kolo_unix_socket_end { /* a rank's socket, as it tells all ranks */
    uint32_t bytes;           /* of the name; 0: no socket */
    unsigned char secret[KOLO_UNIX_SOCKET_SECRET];
    struct sockaddr_un name;
};

struct note {
    unsigned char secret[KOLO_UNIX_SOCKET_SECRET];
    int32_t rank; /* the sender's */
    uint32_t bytes;
    unsigned char data[KOLO_UNIX_SOCKET_BYTES];
};

/* ---- opening and closing ---- */

/* The kernel gives a name to a socket that is bound without one: unix(7), autobind. */
static void bind_socket(const struct kolo_unix_socket *f, struct kolo_unix_socket_end *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof out->name;
    if (f->socket.fd >= 0 && kolo_random(out->secret, sizeof out->secret) == KOLO_OK &&
        bind(f->socket.fd, (struct sockaddr *)&name, sizeof name.sun_family) == 0 &&
        getsockname(f->socket.fd, (struct sockaddr *)&out->name, &bytes) == 0) {
        out->bytes = bytes;
    }
}

static bool reaches_end(const struct kolo_unix_socket_end *end)
{
    const int trial = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool reached = trial >= 0 && end->bytes > 0 && end->bytes <= sizeof end->name &&
                         connect(trial, (const struct sockaddr *)&end->name, end->bytes) == 0;
    if (trial >= 0) {
        (void)close(trial);
    }
    return reached;
}

static kolo_status exchange_ends(struct kolo_unix_socket *f)
{
    struct kolo_unix_socket_end mine = {.bytes = 0};
    uint8_t works = 1, all_work = 0;
    bind_socket(f, &mine);
    KOLO_TRY(kolo_all_gather(&mine, f->end, sizeof mine, KOLO_UINT8, f->host, NULL));
    for (int q = 0; q < f->host->ranks.nranks; q++) {
        works = works && reaches_end(&f->end[q]);
    }
    KOLO_TRY(kolo_all_reduce(&works, &all_work, 1, KOLO_UINT8, KOLO_MIN, f->host, NULL));
    f->works = all_work != 0;
    return KOLO_OK;
}

kolo_status kolo_unix_socket_open(struct kolo_comm *host, struct kolo_unix_socket *out)
{
    struct kolo_unix_socket f = {.host = host};
    f.end = calloc((size_t)host->ranks.nranks, sizeof *f.end);
    if (f.end == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for sockets of %d ranks",
                         host->ranks.nranks);
    }
    f.socket = kolo_own_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const kolo_status st = exchange_ends(&f);
    if (st != KOLO_OK || !f.works) {
        kolo_unix_socket_close(&f);
    }
    *out = f;
    return st;
}

void kolo_unix_socket_close(struct kolo_unix_socket *f)
{
    kolo_own_fd_close(&f->socket);
    free(f->end);
    f->end = NULL;
    f->works = false;
}

/* ---- messages ---- */

bool kolo_unix_socket_try(const struct kolo_unix_socket *f, int to, const void *data, size_t bytes,
                          int fd)
{
    struct kolo_unix_socket_end *end = &f->end[to];
    struct note note = {.rank = f->host->ranks.rank, .bytes = (uint32_t)bytes};
    struct iovec iov = {&note, sizeof note};
    union kolo_fd_room room;
    struct msghdr message = {
        .msg_name = &end->name, .msg_namelen = end->bytes, .msg_iov = &iov, .msg_iovlen = 1};
    assert(bytes <= sizeof note.data);
    memcpy(note.secret, end->secret, sizeof note.secret);
    memcpy(note.data, data, bytes);
    if (fd >= 0) {
        kolo_fd_attach(&message, &room, fd);
    }
    return kolo_own_fd_is(&f->socket) &&
           sendmsg(f->socket.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool kolo_unix_socket_send(const struct kolo_unix_socket *f, int to, const void *data, size_t bytes,
                           int fd)
{
    const struct timespec nap = {0, 1000 * 1000};
    const double end = kolo_now_us() + KOLO_UNIX_SOCKET_MS * 1e3;
    while (!kolo_unix_socket_try(f, to, data, bytes, fd)) {
        if ((errno != EAGAIN && errno != EINTR && errno != ENOBUFS) || kolo_now_us() > end) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

/* Take one datagram. False: there is none (errno EAGAIN), or it is no message. */
static bool take_one(const struct kolo_unix_socket *f, struct note *note, int *fd_out)
{
    struct iovec iov = {note, sizeof *note};
    union kolo_fd_room room;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = room.bytes,
                             .msg_controllen = sizeof room.bytes};
    const ssize_t got = kolo_own_fd_is(&f->socket)
                            ? recvmsg(f->socket.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)
                            : -1;
    if (got < 0) {
        return false;
    }
    const int fd = kolo_fd_attached(&message);
    const struct kolo_unix_socket_end *own = &f->end[f->host->ranks.rank];
    if (got == sizeof *note && memcmp(note->secret, own->secret, sizeof own->secret) == 0 &&
        note->rank >= 0 && note->rank < f->host->ranks.nranks) {
        *fd_out = fd;
        return true;
    }
    if (fd >= 0) { /* from a process without the secret */
        (void)close(fd);
    }
    errno = EINTR;
    return false;
}

bool kolo_unix_socket_take(const struct kolo_unix_socket *f, int *rank_out, void *data,
                           size_t bytes, int *fd_out)
{
    struct note note;
    for (;;) {
        int fd = -1;
        if (!take_one(f, &note, &fd)) {
            if (errno == EINTR) {
                continue;
            }
            return false;
        }
        if (note.bytes == bytes) {
            memcpy(data, note.data, bytes);
            *rank_out = note.rank;
            *fd_out = fd;
            return true;
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
}
