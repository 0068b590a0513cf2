// SPDX-License-Identifier: Apache-2.0
/* How a link ends: its last frame, BYE or ABORT, and the delivery of the written bytes.
 *
 * A socket that still has unsent bytes is shut for writing and kept aside. Its descriptor is closed
 * when the kernel has delivered the bytes, or with the endpoint. */
#include "transports/tcp/tcp.h"
#include "util/grow.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINGER_MS = 2000, TELL_MS = 200, ANSWER_MS = 20 };

/* Whether the link is connected, and no frame is half written. */
static bool is_clean(const struct kolo_link *link)
{
    bool clean = link->socket[0].state == KOLO_TCP_UP;
    for (int i = 0; i < link->nsockets; i++) {
        const struct kolo_tcp_socket *s = &link->socket[i];
        clean = clean && !kolo_tcp_stream_is_within(s);
    }
    return clean;
}

/* Whether the peer's kernel has not acknowledged all bytes. */
static bool has_unsent(int fd)
{
    int left = 0;
    return ioctl(fd, SIOCOUTQ, &left) == 0 && left > 0;
}

/* Read and drop incoming bytes. Closing a socket with unread bytes would reset the connection, and
 * the peer might lose bytes of this side. 0: the peer has closed its end. */
static ssize_t drain_socket(int fd)
{
    char scrap[4096];
    ssize_t n = 0;
    do {
        n = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
    } while (n > 0 || (n < 0 && errno == EINTR));
    return n;
}

/* Whether the socket must stay open to deliver its bytes. */
static bool is_delivering(int fd)
{
    const bool open = drain_socket(fd) < 0 && errno == EAGAIN;
    return open && has_unsent(fd);
}

static bool close_later(struct kolo_endpoint *ep, int fd)
{
    int *closing = kolo_grow(ep->closing, ep->nclosing, &ep->closing_cap, sizeof *closing);
    if (closing == NULL) {
        return false;
    }
    ep->closing = closing;
    ep->closing[ep->nclosing++] = fd;
    return true;
}

/* Shut the sockets for writing; the kernel delivers the rest. */
static void let_deliver(struct kolo_link *link)
{
    for (int i = 0; i < link->nsockets; i++) {
        struct kolo_tcp_socket *s = &link->socket[i];
        if (s->state != KOLO_TCP_UP) {
            continue;
        }
        (void)shutdown(s->fd, SHUT_WR);
        if (is_delivering(s->fd) && close_later(link->ep, s->fd)) {
            s->fd = -1;
        }
    }
}

/* The peer may take the connection for made while its answer is on the way here. It must not find
 * the end of that connection without a reason. */
static void finish_greeting(struct kolo_tcp_socket *s)
{
    const double deadline = kolo_now_us() + ANSWER_MS * 1e3;
    while (s->state == KOLO_TCP_PROVING && kolo_now_us() < deadline) {
        kolo_tcp_greet_step(s);
        if (s->state == KOLO_TCP_PROVING) {
            (void)usleep(100);
        }
    }
}

/* Send the last frame of a link, behind the rest of a half written frame. A peer that lives reads
 * it meanwhile; a dead peer is not waited for longer than the limit. */
static void say_last(struct kolo_link *link, enum kolo_tcp_kind kind, uint32_t number)
{
    struct kolo_tcp_socket *s = &link->socket[0];
    finish_greeting(s);
    const int limit_ms = kind == KOLO_TCP_ABORT ? TELL_MS : LINGER_MS;
    const double deadline = kolo_now_us() + limit_ms * 1e3;
    while (!(kolo_tcp_stream_finish(s) && kolo_tcp_stream_last(s, kind, number)) &&
           kolo_now_us() < deadline) {
        (void)drain_socket(s->fd);
        (void)usleep(100);
    }
    let_deliver(link);
}

/* Write the rest of half written frames, or BYE could not follow. A peer that lives reads it. */
static void finish_frames(struct kolo_link *link)
{
    const double deadline = kolo_now_us() + LINGER_MS * 1e3;
    bool done = link->socket[0].state != KOLO_TCP_UP;
    while (!done && kolo_now_us() < deadline) {
        done = true;
        for (int i = 0; i < link->nsockets; i++) {
            done = kolo_tcp_stream_finish(&link->socket[i]) && done;
        }
        if (!done) {
            for (int i = 0; i < link->nsockets; i++) {
                (void)drain_socket(link->socket[i].fd);
            }
            (void)usleep(100);
        }
    }
}

/* Sockets that the program has closed must not be written to: their numbers may be of its files. */
static void forget_lost(struct kolo_link *link)
{
    for (int i = 0; i < link->nsockets && !kolo_acceptor_is_whole(&link->ep->acceptor); i++) {
        kolo_tcp_socket_reset(&link->socket[i], KOLO_TCP_ENDED);
    }
}

void kolo_tcp_farewell_complain(struct kolo_link *link)
{
    link->bad = false;
    forget_lost(link);
    say_last(link, KOLO_TCP_ABORT, (uint32_t)kolo_carriers_reason(&link->ep->all, KOLO_ERR_LINK));
}

/* Either the communicator failed, and the peer must know. Or this side wants its requests back, and
 * leaves. */
void kolo_tcp_farewell_give_up(struct kolo_link *link, kolo_status why)
{
    forget_lost(link);
    if (kolo_carriers_have_failed(&link->ep->all)) {
        say_last(link, KOLO_TCP_ABORT, (uint32_t)kolo_carriers_reason(&link->ep->all, why));
        kolo_tcp_message_end(link, why);
    } else {
        finish_frames(link);
        const bool clean = is_clean(link);
        kolo_tcp_message_end(link, why);
        if (clean) {
            say_last(link, KOLO_TCP_BYE, 0);
        }
    }
    kolo_carrier_give_up(&link->base, why);
}

void kolo_tcp_farewell_finish(struct kolo_endpoint *ep)
{
    const double deadline = kolo_now_us() + LINGER_MS * 1e3;
    const bool whole = kolo_acceptor_is_whole(&ep->acceptor);
    for (int i = 0; i < ep->nclosing && whole; i++) {
        while (is_delivering(ep->closing[i]) && kolo_now_us() < deadline) {
            (void)usleep(100);
        }
        kolo_epoll_close(ep->epoll, ep->closing[i]);
    }
    free(ep->closing);
}
