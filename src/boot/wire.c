// SPDX-License-Identifier: Apache-2.0
/* Sockets and frames of the meeting point, and what guards the frames.
 *
 * Abstract UNIX sockets have no file, and hence no permissions (CVE-2022-42919 came from the belief
 * that they do). So both ends check SO_PEERCRED, and turn another user's process away before they
 * read a byte. See unix(7), RFC 2104 (HMAC). */
#include "boot/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

kolo_status kolo_boot_check(const struct kolo_meet *meet, int nranks, int rank, int timeout_ms)
{
    KOLO_TRY(kolo_check_range("nranks", nranks, 1, KOLO_BOOT_MAX_RANKS));
    KOLO_TRY(kolo_check_range("rank", rank, 0, nranks - 1));
    if (timeout_ms < 1) {
        return kolo_fail(KOLO_ERR_INVALID, "timeout_ms is %d; it must be positive", timeout_ms);
    }
    if (meet->name[0] == '\0' || strnlen(meet->name, sizeof meet->name) == sizeof meet->name) {
        return kolo_fail(KOLO_ERR_INVALID, "the meeting point's name is empty or too long");
    }
    return KOLO_OK;
}

kolo_status kolo_boot_no_crypto(void)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "libcrypto failed");
}

kolo_status kolo_boot_other_secret(const struct kolo_meet *meet, int rank)
{
    return kolo_fail(KOLO_ERR_INVALID,
                     "rank %d and meeting point \"%s\" do not have the same secret "
                     "(is the id, or KOLO_SECRET, the same on all ranks?)",
                     rank, meet->name);
}

kolo_status kolo_boot_no_answer(const struct kolo_meet *meet, int host_rank, int rank,
                                int timeout_ms)
{
    char host[80] = "";
    if (host_rank >= 0) {
        (void)snprintf(host, sizeof host, ": rank %d runs it, and is stopped or gets no time",
                       host_rank);
    }
    return kolo_fail(KOLO_ERR_TIMEOUT, "meeting point \"%s\" did not answer rank %d in %d ms%s",
                     meet->name, rank, timeout_ms, host);
}

kolo_status kolo_boot_nobody(const struct kolo_meet *meet, int rank, int timeout_ms)
{
    char place[KOLO_INET_TEXT] = "", shown[KOLO_INET_TEXT + 3] = "";
    if (meet->place.family != 0) {
        (void)snprintf(shown, sizeof shown, " (%s)", kolo_inet_name(&meet->place, place));
    }
    return kolo_fail(KOLO_ERR_TIMEOUT,
                     "nobody answered rank %d at meeting point \"%s\"%s in %d ms: rank 0, or the "
                     "process that made the id, has not come",
                     rank, meet->name, shown, timeout_ms);
}

uint32_t kolo_boot_name_hash(const struct kolo_meet *meet)
{
    return (uint32_t)kolo_hash(0, meet->name, strnlen(meet->name, sizeof meet->name));
}

struct kolo_boot_header kolo_boot_header_make(enum kolo_boot_type type, uint32_t seq, size_t len)
{
    return (struct kolo_boot_header){.magic = KOLO_BOOT_MAGIC,
                                     .wire = KOLO_BOOT_WIRE,
                                     .type = (uint16_t)type,
                                     .seq = seq,
                                     .len = (uint32_t)len};
}

bool kolo_boot_guard_begin(struct kolo_boot_guard *guard, const struct kolo_meet *meet, bool is_hub)
{
    char name[sizeof meet->name] = "";
    memcpy(name, meet->name, strnlen(meet->name, sizeof meet->name));
    *guard = (struct kolo_boot_guard){.is_hub = is_hub};
    return kolo_prove(meet->secret, name, sizeof name, guard->key);
}

bool kolo_boot_guard_turn(struct kolo_boot_guard *guard, const void *body, size_t len)
{
    unsigned char next[KOLO_SECRET_BYTES];
    const bool made = kolo_prove(guard->key, body, len, next);
    memcpy(guard->key, next, sizeof next);
    explicit_bzero(next, sizeof next);
    return made;
}

bool kolo_boot_sum(const void *body, size_t len, unsigned char out[KOLO_BOOT_MAC])
{
    unsigned char digest[KOLO_DIGEST_BYTES] = {0};
    const bool made = kolo_digest(body, len, digest);
    memcpy(out, digest, KOLO_BOOT_MAC);
    return made;
}

/* Frame `number` of the hub or of the rank. */
static bool make_mac(const struct kolo_boot_guard *guard, bool of_hub, uint32_t number,
                     const struct kolo_boot_header *header, unsigned char out[KOLO_BOOT_MAC])
{
    struct {
        char sender[4];
        uint32_t number;
        unsigned char header[offsetof(struct kolo_boot_header, mac)];
    } text;
    unsigned char mac[KOLO_PROOF_BYTES] = {0};
    memcpy(text.sender, of_hub ? "hub " : "rank", sizeof text.sender);
    text.number = number;
    memcpy(text.header, header, sizeof text.header);
    const bool made = kolo_prove(guard->key, &text, sizeof text, mac);
    memcpy(out, mac, KOLO_BOOT_MAC);
    return made;
}

/* The key of frame `number` of the hub or of the rank is used for its body only. */
static bool mask_body(const struct kolo_boot_guard *guard, bool of_hub, uint32_t number,
                      const void *body, size_t len, void *out)
{
    unsigned char key[KOLO_SECRET_BYTES], start[KOLO_MASK_START] = {of_hub};
    memcpy(start + 4, &number, sizeof number);
    const bool made = kolo_prove(guard->key, "kolo body", sizeof "kolo body", key) &&
                      kolo_mask(key, start, body, len, out);
    explicit_bzero(key, sizeof key);
    return made;
}

static bool is_masked(enum kolo_boot_type type, size_t len)
{
    return len > 0 && type != KOLO_BOOT_HELLO && type != KOLO_BOOT_CHALLENGE;
}

bool kolo_boot_mask(const struct kolo_boot_guard *guard, enum kolo_boot_type type, const void *body,
                    size_t len, void *out)
{
    if (guard->masks && is_masked(type, len)) {
        return mask_body(guard, guard->is_hub, guard->sent, body, len, out);
    }
    if (len > 0) {
        memcpy(out, body, len);
    }
    return true;
}

bool kolo_boot_unmask(const struct kolo_boot_guard *guard, const struct kolo_boot_header *header,
                      void *body)
{
    return (header->wire & KOLO_BOOT_MASKED) == 0 ||
           !is_masked((enum kolo_boot_type)header->type, header->len) ||
           mask_body(guard, !guard->is_hub, guard->taken - 1, body, header->len, body);
}

void kolo_boot_seal(struct kolo_boot_guard *guard, struct kolo_boot_header *header)
{
    header->wire |= guard->masks ? KOLO_BOOT_MASKED : 0;
    if (!make_mac(guard, guard->is_hub, guard->sent++, header, header->mac)) {
        memset(header->mac, 0, sizeof header->mac);
    }
}

bool kolo_boot_is_sealed(struct kolo_boot_guard *guard, const struct kolo_boot_header *header)
{
    unsigned char mac[KOLO_BOOT_MAC];
    return make_mac(guard, !guard->is_hub, guard->taken++, header, mac) &&
           kolo_same_bytes(mac, header->mac, sizeof mac);
}

bool kolo_boot_is_whole(const struct kolo_boot_header *header, const void *body)
{
    unsigned char sum[KOLO_BOOT_MAC];
    return kolo_boot_sum(body, header->len, sum) && kolo_same_bytes(sum, header->sum, sizeof sum);
}

/* The abstract address "kolo-<uid>-<hash of the meeting's name>". Returns its length. */
static socklen_t address_of(const struct kolo_meet *meet, struct sockaddr_un *out)
{
    const uint64_t hash = kolo_hash(0, meet->name, strnlen(meet->name, sizeof meet->name));
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const int len = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "kolo-%u-%016llx",
                             (unsigned)geteuid(), (unsigned long long)hash);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

static int open_socket(void)
{
    return kolo_above_standard_streams(
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool kolo_boot_is_net(int fd)
{
    int family = AF_UNSPEC;
    socklen_t len = sizeof family;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) != 0 || family != AF_UNIX;
}

int kolo_boot_accept(int listener)
{
    return kolo_above_standard_streams(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
        return kolo_fail(KOLO_ERR_SYSTEM, "socket for the meeting point: %s", kolo_why(errno));
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
    return kolo_fail(KOLO_ERR_SYSTEM, "listen on meeting point \"%s\": %s", address.sun_path + 1,
                     strerror(error));
}

static bool has_secret(const struct kolo_meet *meet)
{
    static const unsigned char none[sizeof meet->secret];
    return memcmp(meet->secret, none, sizeof none) != 0;
}

kolo_status kolo_boot_listen_net(const struct kolo_meet *meet, int *out)
{
    struct kolo_interface at = {.name = "the meeting point's address", .place = meet->place};
    if (!has_secret(meet)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "ranks on several hosts need a secret: set KOLO_SECRET to 64 hexadecimal "
                         "digits, the same on all ranks");
    }
    if (meet->listener > 0) {
        *out = fcntl(meet->listener, F_DUPFD_CLOEXEC, 3);
        return *out >= 0 ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "a descriptor for the meeting point: %s",
                                     kolo_why(errno));
    }
    const kolo_status st = kolo_net_listen(&at, out);
    return st < 0 && errno == EADDRINUSE ? KOLO_INPROGRESS : st;
}

static kolo_status connect_net(const struct kolo_meet *meet, int timeout_ms, int *out)
{
    char name[KOLO_INET_TEXT];
    if (!has_secret(meet)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "ranks on several hosts need a secret: set KOLO_SECRET to 64 hexadecimal "
                         "digits, the same on all ranks");
    }
    const int fd = kolo_net_connect(&meet->place, NULL);
    const int error = fd < 0 ? errno : kolo_net_connected(fd, timeout_ms);
    if (error == 0) {
        kolo_net_options(fd, timeout_ms);
        *out = fd;
        return KOLO_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (error == EMFILE || error == ENFILE || error == EACCES || error == EPERM ||
        error == EAFNOSUPPORT) {
        return kolo_fail(KOLO_ERR_SYSTEM, "connect to meeting point %s: %s",
                         kolo_inet_name(&meet->place, name), kolo_why(error));
    }
    return KOLO_INPROGRESS;
}

static kolo_status connect_here(const struct kolo_meet *meet, int *out)
{
    struct sockaddr_un address;
    const socklen_t len = address_of(meet, &address);
    const int fd = open_socket();
    pid_t pid = 0;
    if (fd < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "socket to the meeting point: %s", kolo_why(errno));
    }
    if (connect(fd, (const struct sockaddr *)&address, len) == 0) {
        if (kolo_boot_peer_is_us(fd, &pid)) {
            *out = fd;
            return KOLO_OK;
        }
        close(fd);
        return kolo_fail(KOLO_ERR_SYSTEM, "meeting point \"%s\" is held by another user's process",
                         address.sun_path + 1);
    }
    const int error = errno;
    close(fd);
    if (error == ECONNREFUSED || error == EAGAIN || error == EINTR) {
        return KOLO_INPROGRESS;
    }
    return kolo_fail(KOLO_ERR_SYSTEM, "connect to meeting point \"%s\": %s", address.sun_path + 1,
                     strerror(error));
}

bool kolo_boot_is_served(const struct kolo_meet *meet)
{
    int fd = -1;
    const bool served = connect_here(meet, &fd) == KOLO_OK;
    if (served) {
        close(fd);
    }
    return served;
}

kolo_status kolo_boot_connect(const struct kolo_meet *meet, int timeout_ms, int *out)
{
    const kolo_status st = connect_here(meet, out);
    return st == KOLO_INPROGRESS && meet->place.family != 0 ? connect_net(meet, timeout_ms, out)
                                                            : st;
}
