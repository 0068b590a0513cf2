// SPDX-License-Identifier: Apache-2.0
/* How two ranks meet on a new connection.
 *
 *   maker                                     listener
 *   HELLO  communicator, from, to, nonce  ->
 *                                         <-  CHALLENGE  nonce, proof over all so far
 *   PROOF  over all so far                ->
 *                                         <-  accepted, or refused in favour of its own
 *
 * A proof is HMAC-SHA-256 under the communicator's secret, so whoever lacks it changes nothing: its
 * connection costs one of KOLO_TCP_GUESTS descriptors for at most 5 s, and the oldest makes room
 * for a newer. Where both ends make the same connection at once, that of the lower rank stays. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AGAIN_FIRST_US = 1000, AGAIN_MOST = 7 /* doublings */, ACCEPTS = 64 };

/* ---- sockets ---- */

/* s NULL: a guest's. */
static bool watch(struct kolo_tcp_socket *s, int epoll, int how, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};
    if (epoll_ctl(epoll, how, fd, &event) == 0) {
        return true;
    }
    if (s != NULL) {
        kolo_tcp_fail(s->link, "cannot be watched", errno);
    }
    return false;
}

static bool is_between(enum kolo_tcp_state state)
{
    return state == KOLO_TCP_CONNECTING || state == KOLO_TCP_GREETING || state == KOLO_TCP_PROVING;
}

static void enter(struct kolo_tcp_socket *s, enum kolo_tcp_state state)
{
    struct kolo_device *dev = s->link->dev;
    dev->nconnecting += is_between(state) - is_between(s->state);
    s->state = state;
    s->got = 0;
}

void kolo_tcp_socket_reset(struct kolo_tcp_socket *s, enum kolo_tcp_state state)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    s->fd = -1;
    enter(s, state);
}

/* Between two ends of one address nothing is ever congested. A control that paces by what it has
 * measured (bbr, where that is the system's) takes the pauses between calls for the link's rate,
 * and by chance sends at half of it for good. */
static void choose_congestion_control(const struct kolo_tcp_socket *s)
{
    const struct kolo_inet *here = &s->link->dev->interface.place, *there = &s->link->address.place;
    if (here->family == there->family && memcmp(here->ip, there->ip, sizeof here->ip) == 0) {
        (void)setsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    }
}

void kolo_tcp_socket_up(struct kolo_tcp_socket *s, int fd)
{
    struct kolo_device *dev = s->link->dev;
    char text[160];
    char name[KOLO_INET_TEXT];
    enter(s, KOLO_TCP_UP);
    s->again_us = 0;
    if (s->fd != fd) {
        s->fd = fd;
        (void)watch(s, dev->epoll, EPOLL_CTL_MOD, fd);
    }
    choose_congestion_control(s);
    s->ripe = true;
    s->full = false;
    if (s->staging == NULL) {
        s->staging = malloc(KOLO_TCP_STAGING);
    }
    if (s->staging == NULL) {
        kolo_tcp_fail(s->link, "no memory for a socket to it", 0);
        return;
    }
    (void)snprintf(text, sizeof text, "tcp: rank %d to %d, socket %d of %d over %s to %s",
                   dev->env.rank, s->link->base.peer.rank, s->index, s->link->nsockets,
                   dev->interface.name, kolo_inet_name(&s->link->address.place, name));
    dev->env.log(text);
}

static bool prove(const struct kolo_device *dev, const char *direction,
                  const struct kolo_tcp_hello *hello, const struct kolo_tcp_challenge *challenge,
                  unsigned char out[KOLO_PROOF_BYTES])
{
    unsigned char text[8 + sizeof *hello + sizeof challenge->nonce];
    memcpy(text, direction, 8);
    memcpy(text + 8, hello, sizeof *hello);
    memcpy(text + 8 + sizeof *hello, challenge->nonce, sizeof challenge->nonce);
    return kolo_prove(dev->secret, text, sizeof text, out);
}
static const char to_maker[8] = "listens", to_listener[8] = "makes it";

static void set_options(const struct kolo_device *dev, int fd)
{
    const int most = KOLO_TCP_CHUNK;
    kolo_net_options(fd, dev->env.timeout_ms);
    if (dev->nsockets > 1) { /* so that a slow socket does not swallow what a fast one could take */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
    }
}

/* ---- the side that makes the connection ---- */

void kolo_tcp_greet_begin(struct kolo_link *link, int index)
{
    struct kolo_tcp_socket *s = &link->socket[index];
    struct kolo_device *dev = link->dev;
    const int fd = kolo_net_connect(&link->address.place, &dev->interface);
    s->again_us = 0;
    if (fd < 0) {
        kolo_tcp_fail(link, "cannot be connected to", errno);
        return;
    }
    s->hello = (struct kolo_tcp_hello){.magic = KOLO_TCP_MAGIC,
                                       .version = KOLO_VERSION,
                                       .comm = dev->env.comm,
                                       .from = dev->env.rank,
                                       .to = link->base.peer.rank,
                                       .index = (uint32_t)index,
                                       .sockets = (uint32_t)link->nsockets};
    if (kolo_random(s->hello.nonce, sizeof s->hello.nonce) != KOLO_OK) {
        close(fd);
        kolo_tcp_fail(link, "cannot be greeted", errno);
        return;
    }
    set_options(dev, fd);
    s->fd = fd;
    s->since_us = kolo_now_us();
    enter(s, KOLO_TCP_CONNECTING);
    (void)watch(s, dev->epoll, EPOLL_CTL_ADD, fd);
}

/* The listener may have made room for another, or lost its own of the two. */
static void try_again(struct kolo_tcp_socket *s)
{
    const double pause_us = AGAIN_FIRST_US * (double)(1u << s->tries);
    kolo_tcp_socket_reset(s, KOLO_TCP_NONE);
    s->tries += s->tries < AGAIN_MOST ? 1 : 0;
    s->again_us = kolo_now_us() + pause_us;
}

static void step_connecting(struct kolo_tcp_socket *s)
{
    if (kolo_net_say(s->fd, &s->hello, sizeof s->hello)) {
        enter(s, KOLO_TCP_GREETING);
    } else if (errno != EAGAIN && errno != ENOTCONN && errno != EINTR) {
        kolo_tcp_fail(s->link, "cannot be connected to", errno);
    }
}

static void step_greeting(struct kolo_tcp_socket *s)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    const int came = kolo_net_gather(s->fd, &s->challenge, sizeof s->challenge, &s->got);
    if (came < 0) {
        try_again(s);
    } else if (came > 0) {
        const struct kolo_device *dev = s->link->dev;
        if (!prove(dev, to_maker, &s->hello, &s->challenge, proof) ||
            !kolo_same_proof(proof, s->challenge.proof)) {
            kolo_tcp_fail(s->link, "does not know this communicator's secret", 0);
        } else if (!prove(dev, to_listener, &s->hello, &s->challenge, s->proof) ||
                   !kolo_net_say(s->fd, s->proof, sizeof s->proof)) {
            try_again(s);
        } else {
            enter(s, KOLO_TCP_PROVING);
        }
    }
}

static void step_proving(struct kolo_tcp_socket *s)
{
    unsigned char answer = KOLO_TCP_REFUSED;
    const int came = kolo_net_gather(s->fd, &answer, 1, &s->got);
    if (came < 0) {
        try_again(s);
    } else if (came > 0 && answer == KOLO_TCP_ACCEPTED) {
        kolo_tcp_socket_up(s, s->fd);
    } else if (came > 0) {
        kolo_tcp_socket_reset(s, KOLO_TCP_NONE); /* its own is on the way */
    }
}

void kolo_tcp_greet_step(struct kolo_tcp_socket *s)
{
    if (s->state == KOLO_TCP_NONE && s->again_us > 0 && kolo_now_us() >= s->again_us) {
        kolo_tcp_greet_begin(s->link, s->index);
    }
    if (s->state == KOLO_TCP_CONNECTING) {
        step_connecting(s);
    }
    if (s->state == KOLO_TCP_GREETING) {
        step_greeting(s);
    }
    if (s->state == KOLO_TCP_PROVING) {
        step_proving(s);
    }
}

/* ---- the side that listens ---- */

static void guest_free(struct kolo_tcp_socket *s)
{
    if (s->fd >= 0) {
        close(s->fd);
    }
    free(s);
}

static void remove_guest(struct kolo_device *dev, int at)
{
    dev->nguests--;
    memmove(&dev->guest[at], &dev->guest[at + 1],
            (size_t)(dev->nguests - at) * sizeof dev->guest[0]);
}

static bool makes_sense(const struct kolo_device *dev, const struct kolo_tcp_hello *hello)
{
    return hello->magic == KOLO_TCP_MAGIC && hello->version == KOLO_VERSION &&
           hello->comm == dev->env.comm && hello->to == dev->env.rank && hello->from >= 0 &&
           hello->from < dev->env.nranks && hello->from != dev->env.rank &&
           hello->index < KOLO_TCP_SOCKETS_MAX;
}

static bool challenge(const struct kolo_device *dev, struct kolo_tcp_socket *s)
{
    return kolo_random(s->challenge.nonce, sizeof s->challenge.nonce) == KOLO_OK &&
           prove(dev, to_maker, &s->hello, &s->challenge, s->challenge.proof) &&
           kolo_net_say(s->fd, &s->challenge, sizeof s->challenge);
}

static bool is_proved(const struct kolo_device *dev, const struct kolo_tcp_socket *s)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    return prove(dev, to_listener, &s->hello, &s->challenge, proof) &&
           kolo_same_proof(proof, s->proof);
}

/* Answer, and give the descriptor to the link's socket. */
static void take_guest(struct kolo_link *link, struct kolo_tcp_socket *guest)
{
    struct kolo_tcp_socket *s = &link->socket[guest->hello.index];
    if (is_between(s->state)) {
        kolo_tcp_socket_reset(s, KOLO_TCP_NONE);
    }
    const int fd = guest->fd;
    guest->fd = -1;
    kolo_tcp_socket_up(s, fd);
}

static bool is_waiting(const struct kolo_device *dev, const struct kolo_tcp_hello *hello)
{
    for (int i = 0; i < dev->nwaiting; i++) {
        const struct kolo_tcp_hello *other = &dev->waiting[i]->hello;
        if (other->from == hello->from && other->index == hello->index) {
            return true;
        }
    }
    return false;
}

/* A second connection for the same socket, or one where ours is preferred. */
static bool is_refused(const struct kolo_device *dev, const struct kolo_link *link,
                       const struct kolo_tcp_hello *hello)
{
    if (link == NULL) {
        return is_waiting(dev, hello);
    }
    const struct kolo_tcp_socket *s = &link->socket[hello->index];
    return (int)hello->index >= link->nsockets || s->state == KOLO_TCP_UP ||
           s->state == KOLO_TCP_ENDED || link->base.failed != KOLO_OK ||
           (is_between(s->state) && dev->env.rank < hello->from);
}

static bool keep_waiting(struct kolo_device *dev, struct kolo_tcp_socket *s)
{
    struct kolo_tcp_socket **waiting =
        kolo_grow(dev->waiting, dev->nwaiting, &dev->waiting_cap, sizeof *waiting);
    if (waiting == NULL) {
        return false;
    }
    dev->waiting = waiting;
    dev->waiting[dev->nwaiting++] = s;
    return true;
}

/* The guest at `at` has proved who it is, and is a guest no more. */
static void welcome(struct kolo_device *dev, int at)
{
    struct kolo_tcp_socket *s = dev->guest[at];
    struct kolo_link *link = kolo_carriers_find(&dev->all, s->hello.from);
    const bool refused = is_refused(dev, link, &s->hello);
    const unsigned char answer = refused ? KOLO_TCP_REFUSED : KOLO_TCP_ACCEPTED;
    remove_guest(dev, at);
    if (!kolo_net_say(s->fd, &answer, 1) || refused) {
        guest_free(s);
    } else if (link != NULL) {
        take_guest(link, s);
        guest_free(s);
    } else if (!keep_waiting(dev, s)) {
        guest_free(s);
    }
}

/* Let the guest go on. False: it is no guest any more. */
static bool step_guest(struct kolo_device *dev, int at)
{
    struct kolo_tcp_socket *s = dev->guest[at];
    int came = 0;
    if (s->state == KOLO_TCP_GREETING) {
        came = kolo_net_gather(s->fd, &s->hello, sizeof s->hello, &s->got);
        if (came > 0 && makes_sense(dev, &s->hello) && challenge(dev, s)) {
            s->state = KOLO_TCP_PROVING;
            came = 0;
        } else if (came > 0) {
            came = -1;
        }
    }
    if (s->state == KOLO_TCP_PROVING) {
        came = kolo_net_gather(s->fd, s->proof, sizeof s->proof, &s->got);
        if (came > 0 && is_proved(dev, s)) {
            welcome(dev, at);
            return false;
        }
        came = came > 0 ? -1 : came;
    }
    if (came < 0 || kolo_now_us() - s->since_us > KOLO_TCP_GUEST_MS * 1e3) {
        dev->strangers++;
        remove_guest(dev, at);
        guest_free(s);
        return false;
    }
    return true;
}

/* False: there is none. One for whom there is no memory finds its connection closed, and tries
 * again. */
static bool accept_guest(struct kolo_device *dev)
{
    const int fd = kolo_net_accept(dev->listener);
    if (fd < 0) {
        return errno == EINTR || errno == ECONNABORTED;
    }
    struct kolo_tcp_socket *s = calloc(1, sizeof *s);
    if (s == NULL || !watch(NULL, dev->epoll, EPOLL_CTL_ADD, fd)) {
        free(s);
        close(fd);
        return true;
    }
    if (dev->nguests == KOLO_TCP_GUESTS) {
        dev->strangers++;
        guest_free(dev->guest[0]);
        remove_guest(dev, 0);
    }
    set_options(dev, fd);
    s->fd = fd;
    s->state = KOLO_TCP_GREETING;
    s->since_us = kolo_now_us();
    dev->guest[dev->nguests++] = s;
    (void)step_guest(dev, dev->nguests - 1); /* its hello is mostly there already */
    return true;
}

void kolo_tcp_greet_guests(struct kolo_device *dev)
{
    for (int i = 0; i < ACCEPTS && accept_guest(dev); i++) {
    }
    for (int i = 0; i < dev->nguests;) {
        i += step_guest(dev, i) ? 1 : 0;
    }
}

void kolo_tcp_greet_adopt(struct kolo_link *link)
{
    struct kolo_device *dev = link->dev;
    for (int i = 0; i < dev->nwaiting;) {
        struct kolo_tcp_socket *s = dev->waiting[i];
        if (s->hello.from != link->base.peer.rank) {
            i++;
            continue;
        }
        dev->waiting[i] = dev->waiting[--dev->nwaiting];
        if ((int)s->hello.index < link->nsockets) {
            take_guest(link, s);
        }
        guest_free(s);
    }
}

void kolo_tcp_greet_close(struct kolo_device *dev)
{
    for (int i = 0; i < dev->nguests; i++) {
        guest_free(dev->guest[i]);
    }
    for (int i = 0; i < dev->nwaiting; i++) {
        guest_free(dev->waiting[i]);
    }
    free(dev->waiting);
}
