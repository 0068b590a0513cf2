// SPDX-License-Identifier: Apache-2.0
/* Addresses, interfaces and stream sockets over IPv4 and IPv6.
 *
 * KOLO_SOCKET_IFNAME chooses the interface as NCCL_SOCKET_IFNAME does: prefixes apart by ',', '='
 * before the list for whole names, '^' for all but these. Without it: where all ranks share a host,
 * the loopback; else the interface by which the kernel would send to an address that is known to be
 * reached; else the first that is up and is neither loopback nor docker's. KOLO_SOCKET_FAMILY is
 * AF_INET or AF_INET6. */
#ifndef KOLO_NET_H
#define KOLO_NET_H

#include "util/util.h"

#include <assert.h>

struct kolo_inet {   /* an address; goes over the wire as it is */
    uint16_t family; /* AF_INET, AF_INET6; 0: none */
    uint16_t port;   /* in host order */
    unsigned char ip[16];
};
static_assert(sizeof(struct kolo_inet) == 20, "wire format");

enum { KOLO_INET_TEXT = 72 };

struct kolo_interface {
    char name[32];
    uint32_t scope;         /* of link-local addresses */
    struct kolo_inet place; /* its address; port 0 until something listens */
};

/* The interface for ranks that share a host, or not. `toward`: an address in numbers, or NULL.
 * Errors: INVALID (a variable that fits nothing, with what there is), UNSUPPORTED (no interface),
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_net_choose(bool one_host, const char *toward,
                                       struct kolo_interface *out);
/* Listen on its address, at place.port or, where that is 0, at one that is free. Errors: SYSTEM
 * (errno says which), INVALID (the address is not of this host). */
KOLO_CHECK kolo_status kolo_net_listen(struct kolo_interface *at, int *out);
/* Take a port of its address without listening; closing *out gives it back. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_net_reserve(struct kolo_interface *at, int *out);
/* A socket that begins to connect from `from` (NULL: from anywhere); -1 with errno. */
int kolo_net_connect(const struct kolo_inet *to, const struct kolo_interface *from);
/* Accept one; -1 with errno. */
int kolo_net_accept(int listener);
/* No delay, and a peer's host that is gone is found out in `timeout_ms`. */
void kolo_net_options(int fd, int timeout_ms);
/* Receive until *got, from 0 on, is `bytes`: 1 done, and *got is 0 again; 0 not yet; -1 ended
 * (errno, or 0). */
int kolo_net_gather(int fd, void *into, size_t bytes, size_t *got);
/* Something short, on a socket that has room: whole or not at all. */
bool kolo_net_say(int fd, const void *from, size_t bytes);
/* "10.0.0.1<4000>", as NCCL writes it. */
const char *kolo_inet_name(const struct kolo_inet *place, char out[KOLO_INET_TEXT]);
/* The address alone. */
const char *kolo_inet_ip(const struct kolo_inet *place, char out[KOLO_INET_TEXT]);
/* The first address of a host's name, or an address in numbers. Errors: INVALID (no such host). */
KOLO_CHECK kolo_status kolo_inet_find(const char *host, uint16_t port, struct kolo_inet *out);
/* A descriptor that takes no standard stream's place. */
int kolo_above_standard_streams(int fd);

#endif
