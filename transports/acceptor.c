// SPDX-License-Identifier: Apache-2.0
/* Guests: connections that have not proved anything, and proved ones that wait for their link.
 *
 * Every descriptor is watched edge-triggered, and its epoll entry holds NULL until a link adopts
 * it. Each turn therefore asks every guest; there are at most KOLO_ACCEPTOR_GUESTS of them. */
#include "transports/acceptor.h"

#include "util/grow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { GUEST_MS = 5000, ACCEPTS_A_TURN = 64, ASK_US = 1000 };

static const struct epoll_event comes = {.events = EPOLLIN, .data.ptr = NULL};

void kolo_acceptor_init(struct kolo_acceptor *a, const struct kolo_acceptor_ops *ops,
                        struct kolo_endpoint *ep)
{
    *a = (struct kolo_acceptor){.ops = ops, .ep = ep, .listener = KOLO_NO_FD, .epoll = -1};
}

kolo_status kolo_acceptor_listen(struct kolo_acceptor *a, struct kolo_interface *at, int epoll)
{
    struct epoll_event event = comes;
    int fd = -1;
    a->epoll = epoll;
    KOLO_TRY(kolo_net_listen(at, &fd));
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        const int error = errno;
        close(fd);
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: epoll: %s", a->ops->name, kolo_why(error));
    }
    a->listener = kolo_own_fd(fd);
    return KOLO_OK;
}

static bool watch_guest(const struct kolo_acceptor *a, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = NULL};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool kolo_acceptor_is_whole(const struct kolo_acceptor *a)
{
    return kolo_epoll_is_own(a->epoll, &a->listener, comes);
}

bool kolo_acceptor_seems_whole(struct kolo_acceptor *a)
{
    const double now_us = kolo_now_us();
    if (now_us - a->asked_us > ASK_US) {
        a->asked_us = now_us;
        a->lost = !kolo_acceptor_is_whole(a);
    }
    return !a->lost;
}

void kolo_acceptor_drop(const struct kolo_acceptor *a, int fd)
{
    if (fd >= 0 && kolo_acceptor_is_whole(a)) {
        kolo_epoll_close(a->epoll, fd);
    }
}

void kolo_guest_free(const struct kolo_acceptor *a, struct kolo_guest *guest)
{
    kolo_acceptor_drop(a, guest->fd);
    free(guest);
}

static void remove_guest(struct kolo_acceptor *a, int at)
{
    a->nguests--;
    memmove(&a->guest[at], &a->guest[at + 1], (size_t)(a->nguests - at) * sizeof a->guest[0]);
}

static void expel_guest(struct kolo_acceptor *a, int at)
{
    struct kolo_guest *guest = a->guest[at];
    a->strangers++;
    remove_guest(a, at);
    kolo_guest_free(a, guest);
}

static bool keep_waiting(struct kolo_acceptor *a, struct kolo_guest *guest)
{
    struct kolo_guest **waiting =
        kolo_grow(a->waiting, a->nwaiting, &a->waiting_cap, sizeof(struct kolo_guest *));
    if (waiting == NULL) {
        return false;
    }
    a->waiting = waiting;
    a->waiting[a->nwaiting++] = guest;
    return true;
}

/* Let the guest at `at` go on. False: it is no longer among the guests. */
static bool step_guest(struct kolo_acceptor *a, int at)
{
    struct kolo_guest *guest = a->guest[at];
    switch (a->ops->prove(a->ep, guest)) {
    case KOLO_GUEST_PROVED:
        remove_guest(a, at);
        if (a->ops->welcome(a->ep, guest) == KOLO_WELCOME_DONE || !keep_waiting(a, guest)) {
            kolo_guest_free(a, guest);
        }
        return false;
    case KOLO_GUEST_PROVING:
        if (kolo_now_us() - guest->since_us <= GUEST_MS * 1e3) {
            return true;
        }
        break;
    case KOLO_GUEST_STRANGER:
        break;
    }
    expel_guest(a, at);
    return false;
}

/* Accept one connection. False: none is there. Without memory for its record the connection is
 * closed, and the peer tries again. */
static bool accept_guest(struct kolo_acceptor *a)
{
    const int fd = kolo_net_accept(a->listener.fd);
    if (fd < 0) {
        return errno == EINTR || errno == ECONNABORTED;
    }
    struct kolo_guest *guest = calloc(1, a->ops->guest_bytes);
    if (guest == NULL || !watch_guest(a, fd)) {
        free(guest);
        close(fd);
        return true;
    }
    if (a->nguests == KOLO_ACCEPTOR_GUESTS) {
        expel_guest(a, 0);
    }
    a->ops->configure(a->ep, fd);
    guest->fd = fd;
    guest->since_us = kolo_now_us();
    a->guest[a->nguests++] = guest;
    (void)step_guest(a, a->nguests - 1); /* its first words are mostly there already */
    return true;
}

void kolo_acceptor_step(struct kolo_acceptor *a)
{
    for (int i = 0; i < ACCEPTS_A_TURN && accept_guest(a); i++) {
    }
    for (int i = 0; i < a->nguests;) {
        i += step_guest(a, i) ? 1 : 0;
    }
}

bool kolo_acceptor_is_waiting(const struct kolo_acceptor *a, int from, uint32_t index)
{
    for (int i = 0; i < a->nwaiting; i++) {
        if (a->waiting[i]->from == from && a->waiting[i]->index == index) {
            return true;
        }
    }
    return false;
}

struct kolo_guest *kolo_acceptor_claim(struct kolo_acceptor *a, int rank)
{
    for (int i = 0; i < a->nwaiting; i++) {
        struct kolo_guest *guest = a->waiting[i];
        if (guest->from == rank) {
            a->waiting[i] = a->waiting[--a->nwaiting];
            return guest;
        }
    }
    return NULL;
}

void kolo_acceptor_close(struct kolo_acceptor *a)
{
    if (a->strangers > 0) {
        KOLO_LOG(INFO, NET, "%s: %llu connections proved nothing and were closed", a->ops->name,
                 (unsigned long long)a->strangers);
    }
    for (int i = 0; i < a->nguests; i++) {
        kolo_guest_free(a, a->guest[i]);
    }
    for (int i = 0; i < a->nwaiting; i++) {
        kolo_guest_free(a, a->waiting[i]);
    }
    free(a->waiting);
    /* Without a listener nothing was in the epoll, and it is as new as its number. */
    if (a->epoll >= 0 && (a->listener.fd < 0 || kolo_acceptor_is_whole(a))) {
        close(a->epoll);
    }
    kolo_own_fd_close(&a->listener);
}
