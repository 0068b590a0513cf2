// SPDX-License-Identifier: Apache-2.0
/* The states of a socket, and the failure of its link.
 *
 * A socket that ends without BYE does not tell whether the peer has died. The link is in doubt then
 * (doubt.h), and fails when that is known. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- states ---- */

void kolo_tcp_socket_watch(struct kolo_tcp_socket *s, int how, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    const struct kolo_endpoint *ep = s->link->ep;
    if (!kolo_acceptor_is_whole(&ep->acceptor) || epoll_ctl(ep->epoll, how, fd, &event) != 0) {
        const int error = errno;
        if (how == EPOLL_CTL_ADD) { /* a reset closes only what the epoll watches */
            close(fd);
            s->fd = -1;
        }
        kolo_tcp_fail(s->link, "cannot be watched", error);
    }
}

bool kolo_tcp_is_greeting(enum kolo_tcp_state state)
{
    return state == KOLO_TCP_CONNECTING || state == KOLO_TCP_GREETING || state == KOLO_TCP_PROVING;
}

void kolo_tcp_socket_enter(struct kolo_tcp_socket *s, enum kolo_tcp_state state)
{
    struct kolo_endpoint *ep = s->link->ep;
    ep->nconnecting += kolo_tcp_is_greeting(state) - kolo_tcp_is_greeting(s->state);
    s->state = state;
    s->got = 0;
}

void kolo_tcp_socket_reset(struct kolo_tcp_socket *s, enum kolo_tcp_state state)
{
    kolo_acceptor_drop(&s->link->ep->acceptor, s->fd);
    s->fd = -1;
    s->ripe = s->over = false;
    kolo_seal_close(s->seal);
    s->seal = NULL;
    kolo_tcp_socket_enter(s, state);
}

/* Between two ends with one address there is no congestion. A control that paces by measured rates,
 * for example bbr, takes the pauses between calls for the rate of the link. It may then send at
 * half the rate for ever. */
static void choose_congestion_control(const struct kolo_tcp_socket *s)
{
    const struct kolo_inet *here = &s->link->ep->interface.place, *there = &s->link->address.place;
    if (here->family == there->family && memcmp(here->ip, there->ip, sizeof here->ip) == 0) {
        (void)setsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    }
}

/* The keys come from the greeting, which both ends proved to each other. */
static bool seal_socket(struct kolo_tcp_socket *s)
{
    const struct kolo_endpoint *ep = s->link->ep;
    unsigned char text[sizeof s->hello + sizeof s->challenge.nonce];
    memcpy(text, &s->hello, sizeof s->hello);
    memcpy(text + sizeof s->hello, s->challenge.nonce, sizeof s->challenge.nonce);
    s->seal = kolo_seal_open(ep->secret, text, sizeof text, s->hello.from == ep->env.rank);
    return s->seal != NULL;
}

void kolo_tcp_socket_up(struct kolo_tcp_socket *s, int fd)
{
    struct kolo_endpoint *ep = s->link->ep;
    char name[KOLO_INET_TEXT];
    kolo_tcp_socket_enter(s, KOLO_TCP_UP);
    s->again_us = 0;
    if (s->fd != fd) {
        s->fd = fd;
        kolo_tcp_socket_watch(s, EPOLL_CTL_MOD, fd);
    }
    choose_congestion_control(s);
    s->ripe = true;
    s->full = false;
    if (s->staging == NULL) {
        s->staging = malloc(KOLO_TCP_STAGING);
    }
    if (s->staging == NULL) {
        kolo_tcp_fail(s->link, "cannot be read: out of memory for a socket", ENOMEM);
        return;
    }
    if (ep->seals && !seal_socket(s)) {
        kolo_tcp_fail(s->link, "cannot be encrypted to", ENOMEM);
        return;
    }
    KOLO_LOG(INFO, NET, "tcp: rank %d to %d, socket %d of %d over %s to %s%s", ep->env.rank,
             s->link->base.peer.rank, s->index, s->link->nsockets, ep->interface.name,
             kolo_inet_name(&s->link->address.place, name), s->seal != NULL ? ", encrypted" : "");
}

/* ---- failures ---- */

void kolo_tcp_hang_up(struct kolo_link *link)
{
    kolo_doubt_end(&link->doubt);
    for (int i = 0; i < KOLO_TCP_SOCKETS_MAX; i++) {
        kolo_tcp_socket_reset(&link->socket[i], KOLO_TCP_ENDED);
        link->socket[i].again_us = 0;
    }
}

void kolo_tcp_fail(struct kolo_link *link, const char *what, int error)
{
    const struct kolo_env *env = &link->ep->env;
    const bool bad = error == EBADMSG;
    if (kolo_carrier_fail(&link->base, &link->address.place, what, bad ? 0 : error)) {
        link->bad = bad;
        if (env->on_peer_lost != NULL) {
            env->on_peer_lost(env->owner, link->base.peer.rank, what, error);
        }
    }
}

void kolo_tcp_settle_doubt(struct kolo_link *link)
{
    const int error = kolo_doubt_step(&link->doubt);
    if (error != 0) {
        kolo_tcp_fail(link,
                      error == ECONNRESET     ? "closed its connection"
                      : error == ECONNREFUSED ? "is gone"
                      : error == ENOLINK      ? "lost its connection, and lives"
                                              : "is not reached any more",
                      error);
        kolo_doubt_end(&link->doubt);
    }
}

void kolo_tcp_doubt(struct kolo_link *link, bool met)
{
    if (!kolo_doubt_is_open(&link->doubt) && link->base.failed == KOLO_OK) {
        kolo_tcp_hang_up(link);
        kolo_doubt_begin(&link->doubt, &link->address.place, &link->ep->interface, met);
        kolo_carrier_activate(&link->base);
        kolo_tcp_settle_doubt(link);
    }
}

void kolo_tcp_ended(struct kolo_tcp_socket *s, int error)
{
    struct kolo_link *link = s->link;
    if (link->base.bye) { /* all its frames are here, even if a reset follows */
        kolo_tcp_socket_reset(s, KOLO_TCP_ENDED);
        if (s->index == 0) {
            kolo_carrier_left(&link->base);
        }
    } else if (error == 0 || error == ECONNRESET || error == ECONNABORTED || error == EPIPE) {
        kolo_tcp_doubt(link, true);
    } else {
        kolo_tcp_fail(link, "is not reached any more", error);
    }
}
