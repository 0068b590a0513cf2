// SPDX-License-Identifier: Apache-2.0
#include "util/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- addresses ---- */

static socklen_t to_sockaddr(const struct kolo_inet *place, uint32_t scope,
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

/* False: the family is neither IPv4 nor IPv6. */
static bool from_sockaddr(const struct sockaddr *from, struct kolo_inet *out)
{
    *out = (struct kolo_inet){0};
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

const char *kolo_inet_ip(const struct kolo_inet *place, char out[KOLO_INET_TEXT])
{
    if (inet_ntop(place->family, place->ip, out, KOLO_INET_TEXT) == NULL) {
        (void)snprintf(out, KOLO_INET_TEXT, "?");
    }
    return out;
}

int kolo_net_gather(int fd, void *into, size_t bytes, size_t *got)
{
    while (*got < bytes) {
        const ssize_t n = recv(fd, (char *)into + *got, bytes - *got, MSG_DONTWAIT);
        if (n > 0) {
            *got += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            return 0;
        } else if (n == 0 || errno != EINTR) {
            errno = n == 0 ? 0 : errno;
            return -1;
        }
    }
    *got = 0;
    return 1;
}

bool kolo_net_say(int fd, const void *from, size_t bytes)
{
    return send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

const char *kolo_inet_name(const struct kolo_inet *place, char out[KOLO_INET_TEXT])
{
    char ip[KOLO_INET_TEXT];
    (void)snprintf(out, KOLO_INET_TEXT, "%.46s<%u>", kolo_inet_ip(place, ip), place->port);
    return out;
}

kolo_status kolo_inet_find(const char *host, uint16_t port, struct kolo_inet *out)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found = NULL;
    const int error = getaddrinfo(host, NULL, &wanted, &found);
    bool is = false;
    for (const struct addrinfo *at = found; error == 0 && at != NULL && !is; at = at->ai_next) {
        is = from_sockaddr(at->ai_addr, out);
    }
    if (error == 0) {
        freeaddrinfo(found);
    }
    out->port = port;
    return is ? KOLO_OK
              : kolo_fail(KOLO_ERR_INVALID, "host \"%s\" has no address: %s", host,
                          error != 0 ? gai_strerror(error) : "none of IPv4 or IPv6");
}

/* ---- choosing ---- */

struct wish {
    const char *names; /* KOLO_SOCKET_IFNAME, or NULL: names, and subnets, which have a '/' */
    bool exact, inverted;
    int family; /* 0: any */
};

/* The subnet of a list's item, such as "10.0.0.0/8" or "fd00::/8". False: it is none. */
static bool read_subnet(const char *item, size_t len, struct kolo_inet *out, long *bits)
{
    char text[KOLO_INET_TEXT];
    if (len >= sizeof text) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)len, item);
    char *slash = strchr(text, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    *out = (struct kolo_inet){0};
    out->family = inet_pton(AF_INET, text, out->ip) == 1    ? AF_INET
                  : inet_pton(AF_INET6, text, out->ip) == 1 ? AF_INET6
                                                            : 0;
    return out->family != 0 &&
           kolo_parse_int(slash + 1, 0, out->family == AF_INET ? 32 : 128, bits);
}

static bool is_in_subnet(const struct kolo_inet *subnet, long bits, const struct kolo_inet *place)
{
    const size_t whole = (size_t)bits / 8;
    const unsigned rest = (unsigned)bits % 8;
    return subnet->family == place->family && memcmp(subnet->ip, place->ip, whole) == 0 &&
           (rest == 0 || (subnet->ip[whole] ^ place->ip[whole]) >> (8 - rest) == 0);
}

/* Whether the list names the interface, or a subnet of its address. */
static bool is_named(const struct wish *wish, const struct ifaddrs *interface)
{
    const char *name = interface->ifa_name;
    for (const char *at = wish->names; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        struct kolo_inet subnet, place;
        long bits = 0;
        const bool same = memchr(at, '/', len) != NULL
                              ? read_subnet(at, len, &subnet, &bits) &&
                                    from_sockaddr(interface->ifa_addr, &place) &&
                                    is_in_subnet(&subnet, bits, &place)
                              : strncmp(at, name, len) == 0 && (!wish->exact || name[len] == '\0');
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

static bool fits_wish(const struct wish *wish, const struct ifaddrs *at)
{
    const int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
    if ((at->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6) ||
        (wish->family != 0 && family != wish->family)) {
        return false;
    }
    return wish->names == NULL || is_named(wish, at) != wish->inverted;
}

static bool is_link_local(const struct sockaddr *address)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

/* The preference of an address; 0: it does not fit the wish. */
static int rank_of(bool one_host, const struct wish *wish, const struct ifaddrs *at,
                   const struct kolo_inet *routed)
{
    struct kolo_inet place;
    if (!fits_wish(wish, at) || !from_sockaddr(at->ifa_addr, &place)) {
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

/* The address from which the kernel would send to `toward`; family 0: none. */
static void find_route(const char *toward, struct kolo_inet *out)
{
    struct kolo_inet to = {0};
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    *out = (struct kolo_inet){0};
    if (toward == NULL) {
        return;
    }
    to.port = 9; /* no datagram is sent */
    to.family = inet_pton(AF_INET, toward, to.ip) == 1    ? AF_INET
                : inet_pton(AF_INET6, toward, to.ip) == 1 ? AF_INET6
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

/* An item with a '/' that is no subnet would fit nothing: say so. */
static kolo_status check_subnets(const char *names)
{
    for (const char *at = names; *at != '\0';) {
        const size_t len = strcspn(at, ",");
        struct kolo_inet subnet;
        long bits = 0;
        if (memchr(at, '/', len) != NULL && !read_subnet(at, len, &subnet, &bits)) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "KOLO_SOCKET_IFNAME has \"%.*s\", which is no subnet such as "
                             "10.0.0.0/8 or fd00::/8",
                             (int)len, at);
        }
        at += len + (at[len] == ',' ? 1 : 0);
    }
    return KOLO_OK;
}

static kolo_status read_wish(struct wish *out)
{
    const char *family = kolo_env("KOLO_SOCKET_FAMILY");
    *out = (struct wish){.names = kolo_env("KOLO_SOCKET_IFNAME")};
    if (family != NULL && strcmp(family, "AF_INET") != 0 && strcmp(family, "AF_INET6") != 0) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_SOCKET_FAMILY is \"%s\"; it must be AF_INET or AF_INET6", family);
    }
    if (family != NULL) {
        out->family = strcmp(family, "AF_INET") == 0 ? AF_INET : AF_INET6;
    }
    if (out->names != NULL && (out->names[0] == '^' || out->names[0] == '=')) {
        out->inverted = *out->names == '^';
        out->exact = *out->names++ == '=';
    }
    return out->names != NULL ? check_subnets(out->names) : KOLO_OK;
}

static kolo_status found_none(const struct wish *wish, const struct ifaddrs *all)
{
    struct kolo_text list = {0};
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET) {
            kolo_text_add(&list, " %s", at->ifa_name);
        }
    }
    const char *there = list.chars != NULL ? list.chars : " none";
    const kolo_status st =
        wish->names != NULL
            ? kolo_fail(KOLO_ERR_INVALID,
                        "no interface that is up fits KOLO_SOCKET_IFNAME \"%s\"; "
                        "there are%s",
                        kolo_env("KOLO_SOCKET_IFNAME"), there)
            : kolo_fail(KOLO_ERR_UNSUPPORTED, "no interface has an address; there are%s", there);
    kolo_text_free(&list);
    return st;
}

kolo_status kolo_net_choose(bool one_host, const char *route_hint, struct kolo_interface *out)
{
    struct ifaddrs *all = NULL;
    struct kolo_inet routed;
    struct wish wish;
    int best = 0;
    bool local = false;
    KOLO_TRY(read_wish(&wish));
    if (getifaddrs(&all) != 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "listing the interfaces: %s", kolo_why(errno));
    }
    find_route(route_hint, &routed);
    *out = (struct kolo_interface){0};
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        const int rank = rank_of(one_host, &wish, at, &routed);
        if (rank > best) {
            best = rank;
            local = is_local(at);
            (void)from_sockaddr(at->ifa_addr, &out->place);
            out->place.port = 0;
            (void)snprintf(out->name, sizeof out->name, "%s", at->ifa_name);
            out->scope = if_nametoindex(at->ifa_name);
        }
    }
    const kolo_status st = best > 0 ? KOLO_OK : found_none(&wish, all);
    freeifaddrs(all);
    if (st == KOLO_OK && local && !one_host && wish.family != 0 && routed.family != 0 &&
        routed.family != wish.family) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "KOLO_SOCKET_FAMILY is \"%s\", of which this host has no address beside the "
            "loopback's; the other hosts are reached by the other family, at %s",
            kolo_env("KOLO_SOCKET_FAMILY"), route_hint);
    }
    return st;
}

/* ---- sockets ---- */

int kolo_above_standard_streams(int fd)
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
    return kolo_above_standard_streams(
        socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

static void set_int(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

void kolo_net_options(int fd, int timeout_ms)
{
    const int least_ms = timeout_ms > 1000 ? timeout_ms : 1000;
    const int quarter_s = least_ms / 4000 > 0 ? least_ms / 4000 : 1;
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, quarter_s < 60 ? quarter_s : 60);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, quarter_s < 20 ? quarter_s : 20);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, least_ms);
}

/* Close `fd` if it is open. errno keeps its value. Returns -1. */
static int give_up(int fd)
{
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return -1;
}

/* A socket that listens at at->place, which gets the port. -1: see errno. */
static int listen_at(struct kolo_interface *at, bool again)
{
    struct sockaddr_storage address;
    socklen_t len = to_sockaddr(&at->place, at->scope, &address);
    const int fd = open_socket(at->place.family);
    if (fd >= 0 && again) {
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    }
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, len) == 0 && listen(fd, SOMAXCONN) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &len) == 0 &&
        from_sockaddr((struct sockaddr *)&address, &at->place)) {
        return fd;
    }
    return give_up(fd);
}

/* Listen at the first free port of KOLO_PORT_RANGE, `range`. errno: EADDRINUSE if none is free. */
static kolo_status listen_in_range(struct kolo_interface *at, const char *range, int *out)
{
    char ip[KOLO_INET_TEXT], first_text[8] = "";
    const char *dash = strchr(range, '-');
    long first = 0, last = 0;
    if (dash != NULL && (size_t)(dash - range) < sizeof first_text) {
        memcpy(first_text, range, (size_t)(dash - range));
    }
    if (dash == NULL || !kolo_parse_int(first_text, 1, 65535, &first) ||
        !kolo_parse_int(dash + 1, first, 65535, &last)) {
        errno = EINVAL;
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_PORT_RANGE is \"%s\"; it is the first and the last of a range of "
                         "ports, 1 to 65535, such as 30000-30099",
                         range);
    }
    *out = -1;
    errno = EADDRINUSE;
    for (long port = first; port <= last && *out < 0 && errno == EADDRINUSE; port++) {
        at->place.port = (uint16_t)port;
        *out = listen_at(at, true);
    }
    if (*out >= 0) {
        return KOLO_OK;
    }
    const int error = errno;
    at->place.port = 0;
    const kolo_status st =
        kolo_fail(KOLO_ERR_SYSTEM, "no port of KOLO_PORT_RANGE \"%s\" can be listened at on %s: %s",
                  range, kolo_inet_ip(&at->place, ip), kolo_why(error));
    errno = error;
    return st;
}

kolo_status kolo_net_listen(struct kolo_interface *at, int *out)
{
    char name[KOLO_INET_TEXT];
    if (at->place.port == 0 && kolo_env("KOLO_PORT_RANGE") != NULL) {
        return listen_in_range(at, kolo_env("KOLO_PORT_RANGE"), out);
    }
    /* Connections of an earlier job may linger at a port that the user chose. */
    *out = listen_at(at, at->place.port != 0);
    if (*out >= 0) {
        return KOLO_OK;
    }
    const int error = errno;
    const kolo_status st =
        kolo_fail(error == EADDRNOTAVAIL ? KOLO_ERR_INVALID : KOLO_ERR_SYSTEM,
                  "listening on %s %s: %s", at->name, kolo_inet_name(&at->place, name),
                  error == EADDRNOTAVAIL ? "this is no address of this host" : kolo_why(error));
    errno = error;
    return st;
}

int kolo_net_connect(const struct kolo_inet *to, const struct kolo_interface *from)
{
    struct sockaddr_storage address;
    const uint32_t scope = from != NULL ? from->scope : 0;
    const int fd = open_socket(to->family);
    bool bound = fd >= 0;
    if (bound && from != NULL && from->place.family == to->family) {
        struct kolo_inet own = from->place;
        own.port = 0;
        set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        const socklen_t len = to_sockaddr(&own, scope, &address);
        bound = bind(fd, (struct sockaddr *)&address, len) == 0;
    }
    const socklen_t len = to_sockaddr(to, scope, &address);
    if (bound && (connect(fd, (struct sockaddr *)&address, len) == 0 || errno == EINPROGRESS)) {
        return fd;
    }
    return give_up(fd);
}

/* Nobody listens at the place, and the kernel chose the same port for this side: TCP connects the
 * socket to itself (a simultaneous open). */
static bool is_own_end(int fd)
{
    struct sockaddr_storage here, there;
    struct kolo_inet own = {0}, other = {0};
    socklen_t len = sizeof here, len_there = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &len_there) == 0 &&
           from_sockaddr((const struct sockaddr *)&here, &own) &&
           from_sockaddr((const struct sockaddr *)&there, &other) &&
           memcmp(&own, &other, sizeof own) == 0;
}

int kolo_net_connected(int fd, int wait_ms)
{
    struct pollfd answer = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t len = sizeof error;
    if (poll(&answer, 1, wait_ms) <= 0) {
        return EINPROGRESS;
    }
    error = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 ? error : errno;
    return error == 0 && is_own_end(fd) ? ECONNREFUSED : error;
}

int kolo_net_accept(int listener)
{
    return kolo_above_standard_streams(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}
