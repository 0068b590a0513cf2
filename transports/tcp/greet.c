// SPDX-License-Identifier: Apache-2.0
/* How two ranks meet on a new connection.
 *
 *   maker                                     listener
 *   HELLO  communicator, from, to, nonce  ->
 *                                         <-  CHALLENGE  nonce, proof over all so far
 *   PROOF  over all so far                ->
 *                                         <-  accepted, or refused in favour of its own
 *
 * A proof is HMAC-SHA-256 under the communicator's secret. A process without the secret stays a
 * guest, which changes nothing (acceptor.h). Where both ends make the same connection at once, the
 * lower rank's connection stays. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AGAIN_FIRST_US = 1000, AGAIN_MOST = 7 /* doublings */, ITS_OWN_US = 20 * 1000 };

static bool prove_hello(const struct kolo_endpoint *ep, const char *direction,
                        const struct kolo_tcp_hello *hello,
                        const struct kolo_tcp_challenge *challenge,
                        unsigned char out[KOLO_PROOF_BYTES])
{
    unsigned char text[8 + sizeof *hello + sizeof challenge->nonce];
    memcpy(text, direction, 8);
    memcpy(text + 8, hello, sizeof *hello);
    memcpy(text + 8 + sizeof *hello, challenge->nonce, sizeof challenge->nonce);
    return kolo_prove(ep->secret, text, sizeof text, out);
}
static const char to_maker[8] = "listens", to_listener[8] = "makes it";

static void set_options(const struct kolo_endpoint *ep, int fd)
{
    const int most = KOLO_TCP_CHUNK;
    kolo_net_options(fd, ep->env.timeout_ms);
    if (ep->nsockets > 1) { /* a slow socket must not queue bytes that a fast one could send */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most, sizeof most);
    }
}

/* ---- the side that makes the connection ---- */

static void fail_connecting(struct kolo_link *link, int error)
{
    if (error == ECONNREFUSED || error == ECONNRESET) {
        kolo_tcp_doubt(link, false);
    } else {
        kolo_tcp_fail(link, "cannot be connected to", error);
    }
}

void kolo_tcp_greet_begin(struct kolo_link *link, int index)
{
    struct kolo_tcp_socket *s = &link->socket[index];
    struct kolo_endpoint *ep = link->ep;
    const int fd = kolo_net_connect(&link->address.place, &ep->interface);
    s->again_us = 0;
    if (fd < 0) {
        fail_connecting(link, errno);
        return;
    }
    s->hello = (struct kolo_tcp_hello){.magic = KOLO_TCP_MAGIC,
                                       .version = KOLO_VERSION,
                                       .comm = ep->env.comm,
                                       .from = ep->env.rank,
                                       .to = link->base.peer.rank,
                                       .index = (uint32_t)index,
                                       .sockets = (uint32_t)link->nsockets};
    if (kolo_random(s->hello.nonce, sizeof s->hello.nonce) != KOLO_OK) {
        close(fd);
        kolo_tcp_fail(link, "cannot be greeted", errno);
        return;
    }
    set_options(ep, fd);
    s->fd = fd;
    s->since_us = kolo_now_us();
    kolo_tcp_socket_enter(s, KOLO_TCP_CONNECTING);
    kolo_tcp_socket_watch(s, EPOLL_CTL_ADD, fd);
}

/* The listener may have closed this guest for another, or lost its own connection. */
static void try_again(struct kolo_tcp_socket *s)
{
    const double pause_us = AGAIN_FIRST_US * (double)(1u << s->tries);
    kolo_tcp_socket_reset(s, KOLO_TCP_NONE);
    s->tries += s->tries < AGAIN_MOST ? 1 : 0;
    s->again_us = kolo_now_us() + pause_us;
}

static void step_connecting(struct kolo_tcp_socket *s)
{
    int error = kolo_net_connected(s->fd, 0);
    if (error == 0 && kolo_net_say(s->fd, &s->hello, sizeof s->hello)) {
        kolo_tcp_socket_enter(s, KOLO_TCP_GREETING);
        return;
    }
    error = error == 0 ? errno : error;
    if (error != EINPROGRESS && error != EAGAIN && error != EINTR) {
        fail_connecting(s->link, error);
    }
}

static void step_greeting(struct kolo_tcp_socket *s)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    const int came = kolo_net_gather(s->fd, &s->challenge, sizeof s->challenge, &s->got);
    if (came < 0) {
        try_again(s);
    } else if (came > 0) {
        const struct kolo_endpoint *ep = s->link->ep;
        if (!prove_hello(ep, to_maker, &s->hello, &s->challenge, proof) ||
            !kolo_same_bytes(proof, s->challenge.proof, KOLO_PROOF_BYTES)) {
            kolo_tcp_fail(s->link, "does not know this communicator's secret", EPROTO);
        } else if (!prove_hello(ep, to_listener, &s->hello, &s->challenge, s->proof) ||
                   !kolo_net_say(s->fd, s->proof, sizeof s->proof)) {
            try_again(s);
        } else {
            kolo_tcp_socket_enter(s, KOLO_TCP_PROVING);
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
    } else if (came > 0) { /* its own connection comes, unless it dies before */
        kolo_tcp_socket_reset(s, KOLO_TCP_NONE);
        s->again_us = kolo_now_us() + ITS_OWN_US;
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

struct tcp_guest { /* a connection that a peer made */
    struct kolo_guest base;
    bool challenged; /* its hello came, and the challenge is out */
    struct kolo_tcp_hello hello;
    struct kolo_tcp_challenge challenge;
    unsigned char proof[KOLO_PROOF_BYTES];
    size_t got; /* bytes of the hello or of the proof */
};

static bool makes_sense(const struct kolo_endpoint *ep, const struct kolo_tcp_hello *hello)
{
    return hello->magic == KOLO_TCP_MAGIC && hello->version == KOLO_VERSION &&
           hello->comm == ep->env.comm && hello->to == ep->env.rank && hello->from >= 0 &&
           hello->from < ep->env.nranks && hello->from != ep->env.rank &&
           hello->index < KOLO_TCP_SOCKETS_MAX;
}

static bool challenge_guest(const struct kolo_endpoint *ep, struct tcp_guest *g)
{
    return kolo_random(g->challenge.nonce, sizeof g->challenge.nonce) == KOLO_OK &&
           prove_hello(ep, to_maker, &g->hello, &g->challenge, g->challenge.proof) &&
           kolo_net_say(g->base.fd, &g->challenge, sizeof g->challenge);
}

static bool is_proved(const struct kolo_endpoint *ep, const struct tcp_guest *g)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    return prove_hello(ep, to_listener, &g->hello, &g->challenge, proof) &&
           kolo_same_bytes(proof, g->proof, KOLO_PROOF_BYTES);
}

static enum kolo_guest_state prove_guest(const struct kolo_endpoint *ep, struct kolo_guest *guest)
{
    struct tcp_guest *g = (struct tcp_guest *)guest;
    int came = 0;
    if (!g->challenged) {
        came = kolo_net_gather(guest->fd, &g->hello, sizeof g->hello, &g->got);
        if (came <= 0) {
            return came == 0 ? KOLO_GUEST_PROVING : KOLO_GUEST_STRANGER;
        }
        if (!makes_sense(ep, &g->hello) || !challenge_guest(ep, g)) {
            return KOLO_GUEST_STRANGER;
        }
        g->challenged = true;
    }
    came = kolo_net_gather(guest->fd, g->proof, sizeof g->proof, &g->got);
    if (came == 0) {
        return KOLO_GUEST_PROVING;
    }
    guest->from = g->hello.from;
    guest->index = g->hello.index;
    return came > 0 && is_proved(ep, g) ? KOLO_GUEST_PROVED : KOLO_GUEST_STRANGER;
}

/* Give the guest's descriptor to the link's socket. */
static void take_guest(struct kolo_link *link, struct kolo_guest *guest)
{
    struct kolo_tcp_socket *s = &link->socket[guest->index];
    if (kolo_tcp_is_greeting(s->state)) {
        kolo_tcp_socket_reset(s, KOLO_TCP_NONE);
    }
    const int fd = guest->fd;
    const struct tcp_guest *g = (const struct tcp_guest *)guest;
    guest->fd = -1;
    s->hello = g->hello;
    s->challenge = g->challenge;
    kolo_tcp_socket_up(s, fd);
}

/* A second connection for the same socket, or one where ours is preferred. */
static bool is_refused(const struct kolo_endpoint *ep, const struct kolo_link *link,
                       const struct kolo_guest *guest)
{
    if (link == NULL) {
        return kolo_acceptor_is_waiting(&ep->acceptor, guest->from, guest->index);
    }
    const struct kolo_tcp_socket *s = &link->socket[guest->index];
    return (int)guest->index >= link->nsockets || s->state == KOLO_TCP_UP ||
           s->state == KOLO_TCP_ENDED || link->base.failed != KOLO_OK ||
           (kolo_tcp_is_greeting(s->state) && ep->env.rank < guest->from);
}

static enum kolo_welcome welcome_guest(struct kolo_endpoint *ep, struct kolo_guest *guest)
{
    struct kolo_link *link = kolo_carriers_find(&ep->all, guest->from);
    const bool refused = is_refused(ep, link, guest);
    const unsigned char answer = refused ? KOLO_TCP_REFUSED : KOLO_TCP_ACCEPTED;
    if (!kolo_net_say(guest->fd, &answer, 1) || refused) {
        return KOLO_WELCOME_DONE;
    }
    if (link == NULL) {
        if (ep->env.on_contact != NULL) {
            ep->env.on_contact(ep->env.owner, guest->from);
        }
        return KOLO_WELCOME_WAITING;
    }
    take_guest(link, guest);
    return KOLO_WELCOME_DONE;
}

const struct kolo_acceptor_ops kolo_tcp_greet_guests = {.name = "tcp",
                                                        .guest_bytes = sizeof(struct tcp_guest),
                                                        .configure = set_options,
                                                        .prove = prove_guest,
                                                        .welcome = welcome_guest};

void kolo_tcp_greet_adopt(struct kolo_link *link)
{
    struct kolo_acceptor *acceptor = &link->ep->acceptor;
    for (struct kolo_guest *guest;
         (guest = kolo_acceptor_claim(acceptor, link->base.peer.rank)) != NULL;) {
        if ((int)guest->index < link->nsockets) {
            take_guest(link, guest);
        }
        kolo_guest_free(acceptor, guest);
    }
}
