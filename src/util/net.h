// SPDX-License-Identifier: Apache-2.0
/* Addresses, interfaces and stream sockets over IPv4 and IPv6.
 *
 * KOLO_SOCKET_IFNAME chooses the interface, in the form of NCCL_SOCKET_IFNAME: a list of prefixes,
 * separated by ','. '=' before the list: whole names. '^' before the list: all but these. An item
 * with a '/' is a subnet, which fits the interfaces with an address in it.
 *
 * Without KOLO_SOCKET_IFNAME the first of these rules that applies chooses. If all ranks share a
 * host: the loopback. If an address that all hosts reach is known: the interface with the route to
 * it. Else: the first interface that is up, and is neither the loopback nor docker's.
 *
 * KOLO_SOCKET_FAMILY is AF_INET or AF_INET6. */
#ifndef KOLO_NET_H
#define KOLO_NET_H

#include "util/util.h"

#include <assert.h>

struct kolo_inet {   /* an address, in its wire format */
    uint16_t family; /* AF_INET, AF_INET6; 0: none */
    uint16_t port;   /* in host order */
    unsigned char ip[16];
};
static_assert(sizeof(struct kolo_inet) == 20, "wire format");

enum { KOLO_INET_TEXT = 72 };

struct kolo_interface {
    char name[32];
    uint32_t scope;         /* for link-local addresses */
    struct kolo_inet place; /* its address; port 0 until something listens */
};

/* Choose the interface. `one_host`: all ranks share a host. `route_hint`: a numeric address that
 * all hosts reach, or NULL. Errors: INVALID (a variable that no interface fits; the text lists the
 * interfaces), UNSUPPORTED (no interface), SYSTEM. */
KOLO_CHECK kolo_status kolo_net_choose(bool one_host, const char *route_hint,
                                       struct kolo_interface *out);
/* Listen at the interface's address and place.port; port 0: at a free port, which is in
 * KOLO_PORT_RANGE if that is set. Errors: SYSTEM (see errno), INVALID (the address is not of this
 * host; KOLO_PORT_RANGE is no range). */
KOLO_CHECK kolo_status kolo_net_listen(struct kolo_interface *at, int *out);
/* A socket that begins to connect from `from` (NULL: from anywhere); -1 with errno. */
int kolo_net_connect(const struct kolo_inet *to, const struct kolo_interface *from);
/* How the connection that kolo_net_connect() began stands, after at most `wait_ms`: 0 if it is made,
 * EINPROGRESS if there is no answer yet, else its error. */
int kolo_net_connected(int fd, int wait_ms);
/* Accept one connection; -1 with errno. */
int kolo_net_accept(int listener);
/* Set TCP_NODELAY, and detect the loss of the peer's host within `timeout_ms`. */
void kolo_net_options(int fd, int timeout_ms);
/* Receive until *got, from 0 on, is `bytes`. 1: done, and *got is 0 again. 0: not yet. -1: ended
 * (errno, or 0). */
int kolo_net_gather(int fd, void *into, size_t bytes, size_t *got);
/* Send a few bytes on a socket with room. False: not all were sent, see errno. */
bool kolo_net_say(int fd, const void *from, size_t bytes);
/* "10.0.0.1<4000>", as NCCL writes it. */
const char *kolo_inet_name(const struct kolo_inet *place, char out[KOLO_INET_TEXT]);
/* The address without the port. */
const char *kolo_inet_ip(const struct kolo_inet *place, char out[KOLO_INET_TEXT]);
/* The first address of a host name, or a numeric address. Errors: INVALID (no such host). */
KOLO_CHECK kolo_status kolo_inet_find(const char *host, uint16_t port, struct kolo_inet *out);
/* Move a descriptor above the descriptors of the standard streams. */
int kolo_above_standard_streams(int fd);

#endif
