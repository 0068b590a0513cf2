// SPDX-License-Identifier: Apache-2.0
/* Sockets, proofs and frames of the meeting point. Abstract UNIX sockets have no file and hence no
 * permissions (CVE-2022-42919 came of relying on that), so both ends look at SO_PEERCRED: another
 * user's process is turned away before a byte is read. See unix(7), RFC 2104 (HMAC). */
#include "boot_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct kolo_boot_header kolo_boot_header_make(enum kolo_boot_type type, uint32_t seq, size_t len)
{
    return (struct kolo_boot_header){.magic = KOLO_BOOT_MAGIC,
                                     .wire = KOLO_BOOT_WIRE,
                                     .type = (uint16_t)type,
                                     .seq = seq,
                                     .len = (uint32_t)len};
}

bool kolo_boot_prove(const struct kolo_meet *meet, int direction,
                     const struct kolo_boot_hello *hello,
                     const struct kolo_boot_challenge *challenge,
                     unsigned char out[KOLO_BOOT_PROOF])
{
    struct kolo_boot_challenge bare = *challenge;
    unsigned char text[4 + sizeof meet->name + sizeof *hello + sizeof bare];
    unsigned char *at = text;
    memset(bare.proof, 0, sizeof bare.proof);
    at = mempcpy(at, direction == KOLO_BOOT_TO_RANK ? "hub " : "rank", 4);
    memset(at, 0, sizeof meet->name);
    memcpy(at, meet->name, strnlen(meet->name, sizeof meet->name));
    at = mempcpy(at + sizeof meet->name, hello, sizeof *hello);
    memcpy(at, &bare, sizeof bare);
    return kolo_prove(meet->secret, text, sizeof text, out);
}

/* The abstract address "kolo-<uid>-<hash of the meeting's name>"; returns its length. */
static socklen_t address_of(const struct kolo_meet *meet, struct sockaddr_un *out)
{
    const uint64_t hash = kolo_hash(0, meet->name, strnlen(meet->name, sizeof meet->name));
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int len = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "kolo-%u-%016llx",
                             (unsigned)geteuid(), (unsigned long long)hash);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* A program that was started without standard streams must not find our socket in their place. */
static int above_standard_streams(int fd)
{
    if (fd < 0 || fd > 2) {
        return fd;
    }
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
    return moved;
}

static int open_socket(void)
{
    return above_standard_streams(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int kolo_boot_accept(int listener)
{
    return above_standard_streams(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

bool kolo_boot_peer_is_us(int fd, pid_t *pid_out)
{
    struct ucred cred = {0};
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || len != sizeof cred) {
        return false;
    }
    *pid_out = cred.pid;
    return cred.uid == geteuid();
}

kolo_status kolo_boot_listen(const struct kolo_meet *meet, int *out)
{
    struct sockaddr_un address;
    const socklen_t len = address_of(meet, &address);
    const int fd = open_socket();
    if (fd < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "socket for the meeting point: %s", strerror(errno));
    }
    if (bind(fd, (const struct sockaddr *)&address, len) == 0 && listen(fd, SOMAXCONN) == 0) {
        *out = fd;
        return KOLO_OK;
    }
    const int error = errno;
    close(fd);
    if (error == EADDRINUSE) {
        return KOLO_INPROGRESS;
    }
    return kolo_fail(KOLO_ERR_SYSTEM, "listen on meeting point '%s': %s", address.sun_path + 1,
                     strerror(error));
}

kolo_status kolo_boot_connect(const struct kolo_meet *meet, int *out)
{
    struct sockaddr_un address;
    const socklen_t len = address_of(meet, &address);
    const int fd = open_socket();
    pid_t pid = 0;
    if (fd < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "socket to the meeting point: %s", strerror(errno));
    }
    if (connect(fd, (const struct sockaddr *)&address, len) == 0) {
        if (kolo_boot_peer_is_us(fd, &pid)) {
            *out = fd;
            return KOLO_OK;
        }
        close(fd);
        return kolo_fail(KOLO_ERR_SYSTEM, "meeting point '%s' is held by another user's process",
                         address.sun_path + 1);
    }
    const int error = errno;
    close(fd);
    if (error == ECONNREFUSED || error == EAGAIN || error == EINTR) {
        return KOLO_INPROGRESS;
    }
    return kolo_fail(KOLO_ERR_SYSTEM, "connect to meeting point '%s': %s", address.sun_path + 1,
                     strerror(error));
}
