// SPDX-License-Identifier: Apache-2.0
/* Which interface carries the data, and sockets on it.
 *
 * KOLO_SOCKET_IFNAME chooses as NCCL_SOCKET_IFNAME does: prefixes apart by ',', '=' before the list
 * for whole names, '^' for all but these. Without it: where the ranks share a host, the loopback;
 * else the interface by which the kernel would send to the address that the ranks met at; else the
 * first that is up and is neither loopback nor docker's. KOLO_SOCKET_FAMILY is AF_INET or AF_INET6.
 * Only that one address is listened on. */
#include "transports/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- addresses ---- */

static socklen_t to_sockaddr(const struct kolo_tcp_place *place, uint32_t scope,
                             struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (place->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(place->port);
        memcpy(&in->sin_addr, place->ip, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(place->port);
    memcpy(&in6->sin6_addr, place->ip, 16);
    in6->sin6_scope_id = IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) ? scope : 0;
    return sizeof *in6;
}

/* False for another family. */
static bool from_sockaddr(const struct sockaddr *from, struct kolo_tcp_place *out)
{
    *out = (struct kolo_tcp_place){0};
    if (from == NULL || (from->sa_family != AF_INET && from->sa_family != AF_INET6)) {
        return false;
    }
    out->family = from->sa_family;
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)from;
        out->port = ntohs(in->sin_port);
        memcpy(out->ip, &in->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
        out->port = ntohs(in6->sin6_port);
        memcpy(out->ip, &in6->sin6_addr, 16);
    }
    return true;
}

const char *kolo_tcp_place_name(const struct kolo_tcp_place *place, char out[72])
{
    char ip[INET6_ADDRSTRLEN] = "?";
    (void)inet_ntop(place->family, place->ip, ip, sizeof ip);
    (void)snprintf(out, 72, "%s<%u>", ip, place->port);
    return out;
}

/* ---- choosing ---- */

struct wish {
    const char *names; /* KOLO_SOCKET_IFNAME, or NULL */
    bool exact, inverted;
    int family; /* 0: any */
};

static bool is_named(const struct wish *wish, const char *name)
{
    for (const char *at = wish->names; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        const bool same = strncmp(at, name, len) == 0 && (!wish->exact || name[len] == '\0');
        if (len > 0 && same) {
            return true;
        }
        at += len + (at[len] == ',' ? 1 : 0);
    }
    return false;
}

static bool is_local(const struct ifaddrs *at)
{
    return (at->ifa_flags & IFF_LOOPBACK) != 0;
}

static bool fits(const struct wish *wish, const struct ifaddrs *at)
{
    const int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
    if ((at->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6) ||
        (wish->family != 0 && family != wish->family)) {
        return false;
    }
    return wish->names == NULL || is_named(wish, at->ifa_name) != wish->inverted;
}

static bool is_link_local(const struct sockaddr *address)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

/* How welcome an address is: 0 not at all. */
static int rank_of(const struct kolo_device *dev, const struct wish *wish, const struct ifaddrs *at,
                   const struct kolo_tcp_place *routed)
{
    struct kolo_tcp_place place;
    const bool one_host = dev->env.nhosts <= 1;
    if (!fits(wish, at) || !from_sockaddr(at->ifa_addr, &place)) {
        return 0;
    }
    const bool docker = strncmp(at->ifa_name, "docker", 6) == 0;
    int rank = 1 + (at->ifa_addr->sa_family == AF_INET ? 1 : 0);
    if (is_local(at) != one_host || is_link_local(at->ifa_addr)) {
        rank -= wish->names != NULL || one_host ? 0 : 8;
    } else {
        rank += 4;
    }
    rank += docker ? 0 : 8;
    rank += memcmp(place.ip, routed->ip, sizeof place.ip) == 0 && !one_host ? 32 : 0;
    return rank;
}

/* The address that the kernel would send from to dev->env.toward; family 0: none. */
static void find_route(const struct kolo_device *dev, struct kolo_tcp_place *out)
{
    struct kolo_tcp_place to = {0};
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    *out = (struct kolo_tcp_place){0};
    if (dev->env.toward == NULL) {
        return;
    }
    to.port = 9; /* no datagram is sent */
    to.family = inet_pton(AF_INET, dev->env.toward, to.ip) == 1    ? AF_INET
                : inet_pton(AF_INET6, dev->env.toward, to.ip) == 1 ? AF_INET6
                                                                   : 0;
    const int fd = to.family != 0 ? socket(to.family, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) {
        return;
    }
    len = to_sockaddr(&to, 0, &address);
    if (connect(fd, (const struct sockaddr *)&address, len) == 0) {
        len = sizeof address;
        if (getsockname(fd, (struct sockaddr *)&address, &len) == 0) {
            (void)from_sockaddr((const struct sockaddr *)&address, out);
        }
    }
    close(fd);
}

static kolo_status read_wish(const struct kolo_device *dev, struct wish *out)
{
    const char *family = kolo_env("KOLO_SOCKET_FAMILY");
    char text[160];
    *out = (struct wish){.names = kolo_env("KOLO_SOCKET_IFNAME")};
    if (family != NULL && strcmp(family, "AF_INET") != 0 && strcmp(family, "AF_INET6") != 0) {
        (void)snprintf(text, sizeof text,
                       "KOLO_SOCKET_FAMILY is \"%.40s\"; it is AF_INET or AF_INET6", family);
        return dev->env.fail(KOLO_ERR_INVALID, text);
    }
    if (family != NULL) {
        out->family = strcmp(family, "AF_INET") == 0 ? AF_INET : AF_INET6;
    }
    if (out->names != NULL && (out->names[0] == '^' || out->names[0] == '=')) {
        out->inverted = *out->names == '^';
        out->exact = *out->names++ == '=';
    }
    return KOLO_OK;
}

static kolo_status found_none(const struct kolo_device *dev, const struct wish *wish,
                              const struct ifaddrs *all)
{
    char text[400];
    size_t len =
        (size_t)snprintf(text, sizeof text, "tcp: no interface that is up %s%.60s; there are",
                         wish->names != NULL ? "fits KOLO_SOCKET_IFNAME " : "has an address",
                         wish->names != NULL ? wish->names : "");
    for (const struct ifaddrs *at = all; at != NULL && len + 40 < sizeof text; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET) {
            len += (size_t)snprintf(text + len, sizeof text - len, " %s", at->ifa_name);
        }
    }
    return dev->env.fail(wish->names != NULL ? KOLO_ERR_INVALID : KOLO_ERR_UNSUPPORTED, text);
}

kolo_status kolo_tcp_place_choose(struct kolo_device *dev)
{
    struct ifaddrs *all = NULL;
    struct kolo_tcp_place routed;
    struct wish wish;
    int best = 0;
    KOLO_TRY(read_wish(dev, &wish));
    if (getifaddrs(&all) != 0) {
        return dev->env.fail(KOLO_ERR_SYSTEM, "tcp: the interfaces cannot be listed");
    }
    find_route(dev, &routed);
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        const int rank = rank_of(dev, &wish, at, &routed);
        if (rank > best) {
            best = rank;
            (void)from_sockaddr(at->ifa_addr, &dev->place);
            (void)snprintf(dev->interface, sizeof dev->interface, "%s", at->ifa_name);
            dev->scope = if_nametoindex(at->ifa_name);
        }
    }
    const kolo_status st = best > 0 ? KOLO_OK : found_none(dev, &wish, all);
    freeifaddrs(all);
    return st;
}

/* ---- sockets ---- */

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

static int open_socket(int family)
{
    return above_standard_streams(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

static void set_int(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* A host that is gone is found out within the communicator's time-out, where the kernel alone would
 * take a quarter of an hour. */
static void set_options(const struct kolo_device *dev, int fd)
{
    const int timeout_ms = dev->env.timeout_ms > 1000 ? dev->env.timeout_ms : 1000;
    const int quarter_s = timeout_ms / 4000 > 0 ? timeout_ms / 4000 : 1;
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, quarter_s < 60 ? quarter_s : 60);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, quarter_s < 20 ? quarter_s : 20);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
    if (dev->nsockets > 1) { /* so that a slow socket does not swallow what a fast one could take */
        set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, KOLO_TCP_CHUNK);
    }
}

kolo_status kolo_tcp_place_listen(struct kolo_device *dev)
{
    struct sockaddr_storage address;
    socklen_t len = to_sockaddr(&dev->place, dev->scope, &address);
    char text[200];
    char name[72];
    dev->listener = open_socket(dev->place.family);
    if (dev->listener >= 0 && bind(dev->listener, (struct sockaddr *)&address, len) == 0 &&
        listen(dev->listener, SOMAXCONN) == 0 &&
        getsockname(dev->listener, (struct sockaddr *)&address, &len) == 0 &&
        from_sockaddr((struct sockaddr *)&address, &dev->place)) {
        return KOLO_OK;
    }
    (void)snprintf(text, sizeof text, "tcp: listening on %s %s: %s", dev->interface,
                   kolo_tcp_place_name(&dev->place, name), strerror(errno));
    return dev->env.fail(KOLO_ERR_SYSTEM, text);
}

int kolo_tcp_place_connect(const struct kolo_device *dev, const struct kolo_tcp_place *place)
{
    struct sockaddr_storage from;
    struct sockaddr_storage to;
    struct kolo_tcp_place own = dev->place;
    own.port = 0;
    const socklen_t from_len = to_sockaddr(&own, dev->scope, &from);
    const socklen_t to_len = to_sockaddr(place, dev->scope, &to);
    const int fd = open_socket(place->family);
    if (fd < 0) {
        return -1;
    }
    set_options(dev, fd);
    set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    /* From the chosen interface, where its address is of the same family. */
    const bool bound =
        own.family != place->family || bind(fd, (struct sockaddr *)&from, from_len) == 0;
    if (bound && (connect(fd, (struct sockaddr *)&to, to_len) == 0 || errno == EINPROGRESS)) {
        return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int kolo_tcp_place_accept(const struct kolo_device *dev)
{
    const int fd =
        above_standard_streams(accept4(dev->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd >= 0) {
        set_options(dev, fd);
    }
    return fd;
}
