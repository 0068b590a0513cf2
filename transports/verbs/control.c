// SPDX-License-Identifier: Apache-2.0
/* The control plane: each rank holds a TCP connection to each peer beside the data. A connection
 * carries the words of its maker only, so that none has to be preferred over another.
 *
 *   maker                                                listener
 *   HELLO  communicator, from, to, nonce, proof  ->
 *                                                <-  ANSWER  proof
 *   words                                        ->
 *
 * Proofs are HMAC-SHA-256 under the communicator's secret, over the nonces of both sides; the
 * listener's nonce came with its address. A process without the secret stays a guest, which changes
 * nothing (acceptor.h).
 *
 * The death of a rank is seen on the connection that it made: it ends without BYE. A link that has
 * lost only its data path still has its connections. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TRIES = 8, AGAIN_US = 1000, WORDS_MAX = 4096 };
enum { SILENT_US = 500 * 1000 };

/* ---- proofs ---- */

static bool prove_hello(const struct kolo_endpoint *ep, const char *who,
                        const struct kolo_verbs_hello *hello, const unsigned char nonce[12],
                        unsigned char out[KOLO_PROOF_BYTES])
{
    unsigned char text[8 + offsetof(struct kolo_verbs_hello, proof) + 12];
    memcpy(text, who, 8);
    memcpy(text + 8, hello, offsetof(struct kolo_verbs_hello, proof));
    memcpy(text + sizeof text - 12, nonce, 12);
    return kolo_prove(ep->secret, text, sizeof text, out);
}
static const char by_maker[8] = "v-maker", by_listener[8] = "v-lists";

/* ---- streams ---- */

static bool watch_stream(const struct kolo_endpoint *ep, int how, int fd, struct kolo_link *link)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = link};
    return kolo_acceptor_is_whole(&ep->acceptor) && epoll_ctl(ep->epoll, how, fd, &event) == 0;
}

static void drop_stream(const struct kolo_link *link, struct kolo_verbs_stream *s)
{
    kolo_acceptor_drop(&link->ep->acceptor, s->fd);
    s->fd = -1;
    s->got = 0;
}

/* ---- the side that makes the connection ---- */

void kolo_verbs_control_begin(struct kolo_link *link)
{
    struct kolo_endpoint *ep = link->ep;
    struct kolo_verbs_stream *s = &link->out;
    link->hello = (struct kolo_verbs_hello){.magic = KOLO_VERBS_MAGIC,
                                            .version = KOLO_VERSION,
                                            .comm = ep->env.comm,
                                            .from = ep->env.rank,
                                            .to = link->base.peer.rank};
    s->again_us = 0;
    s->since_us = kolo_now_us();
    s->fd = kolo_net_connect(&link->address.place, &ep->interface);
    if (s->fd < 0 || kolo_random(link->hello.nonce, sizeof link->hello.nonce) != KOLO_OK ||
        !prove_hello(ep, by_maker, &link->hello, link->address.nonce, link->hello.proof) ||
        !watch_stream(ep, EPOLL_CTL_ADD, s->fd, link)) {
        const int error = errno;
        if (s->fd >= 0) { /* the epoll does not watch it */
            close(s->fd);
            s->fd = -1;
        }
        kolo_verbs_fail(link, "cannot be connected to", error, false);
        return;
    }
    kolo_net_options(s->fd, ep->env.timeout_ms);
    s->got = SIZE_MAX; /* the hello is not sent yet */
}

static void step_hello(struct kolo_link *link)
{
    struct kolo_verbs_stream *s = &link->out;
    int error = kolo_net_connected(s->fd, 0);
    if (error == 0 && kolo_net_say(s->fd, &link->hello, sizeof link->hello)) {
        s->got = 0;
        return;
    }
    error = error == 0 ? errno : error;
    if (error != EINPROGRESS && error != EAGAIN && error != EINTR) {
        kolo_verbs_fail(link, "cannot be connected to", error, error == ECONNREFUSED);
    }
}

static void step_answer(struct kolo_link *link)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    struct kolo_verbs_stream *s = &link->out;
    const int came = kolo_net_gather(s->fd, s->bytes, sizeof s->answer, &s->got);
    if (came < 0) { /* the peer has no memory or descriptor left, or it has died */
        drop_stream(link, s);
        if (s->tries == TRIES) {
            kolo_verbs_fail(link, "takes no connection", 0, true);
            return;
        }
        s->again_us = kolo_now_us() + AGAIN_US * (double)(1u << s->tries++);
    } else if (came > 0) {
        s->up = prove_hello(link->ep, by_listener, &link->hello, link->address.nonce, proof) &&
                kolo_same_bytes(proof, s->answer.proof, KOLO_PROOF_BYTES);
        if (!s->up) {
            kolo_verbs_fail(link, "does not know this communicator's secret", 0, false);
        }
    }
}

/* The peer never writes here, so the connection can only end. The peer's own connection, if it
 * exists, tells why. */
static void step_up(struct kolo_link *link)
{
    struct kolo_verbs_stream *s = &link->out;
    if (s->fd >= 0 && kolo_net_gather(s->fd, s->bytes, sizeof s->word, &s->got) < 0) {
        drop_stream(link, s);
        s->since_us = kolo_now_us();
    }
    if (s->fd < 0 && !link->base.bye && !kolo_doubt_is_open(&link->doubt) &&
        (link->in.fd < 0 || kolo_now_us() - s->since_us > SILENT_US)) {
        kolo_verbs_fail(link, "closed its connection", 0, true);
    }
}

bool kolo_verbs_control_flush(struct kolo_link *link)
{
    struct kolo_verbs_stream *s = &link->out;
    int sent = 0;
    while (s->up && s->fd >= 0 && sent < link->words) {
        const char *from = (const char *)&link->word[sent] + link->word_at;
        const ssize_t n =
            send(s->fd, from, sizeof link->word[0] - link->word_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            sent = errno == EAGAIN || errno == EINTR ? sent : link->words; /* the peer has gone */
            break;
        }
        link->word_at += (size_t)n;
        if (link->word_at == sizeof link->word[0]) {
            link->word_at = 0;
            sent++;
        }
    }
    link->words -= sent;
    memmove(link->word, link->word + sent, (size_t)link->words * sizeof link->word[0]);
    return link->words == 0;
}

void kolo_verbs_control_say(struct kolo_link *link, const struct kolo_verbs_word *word)
{
    struct kolo_verbs_word *grown =
        link->words < WORDS_MAX ? kolo_grow(link->word, link->words, &link->word_cap, sizeof *grown)
                                : NULL;
    if (grown == NULL) {
        kolo_verbs_fail(link, "takes too few of its control words", 0, false);
        return;
    }
    link->word = grown;
    link->word[link->words] = *word;
    link->word[link->words].magic = KOLO_VERBS_MAGIC;
    link->words++;
    (void)kolo_verbs_control_flush(link);
    kolo_carrier_activate(&link->base);
}

/* ---- words in ---- */

/* The peer's connection has ended, with an errno or 0. */
static void end_words(struct kolo_link *link, int error)
{
    drop_stream(link, &link->in);
    if (link->base.bye) {
        return;
    }
    if (error == 0 || error == ECONNRESET || error == EPIPE) { /* died, or gave this link up */
        kolo_doubt_begin(&link->doubt, &link->address.place, &link->ep->interface, true);
        kolo_carrier_activate(&link->base);
    } else {
        kolo_verbs_fail(link, "is not reached any more", error, true);
    }
}

bool kolo_verbs_control_read(struct kolo_link *link, struct kolo_verbs_word *out)
{
    struct kolo_verbs_stream *s = &link->in;
    const int came = s->fd >= 0 ? kolo_net_gather(s->fd, s->bytes, sizeof s->word, &s->got) : 0;
    if (came < 0) {
        end_words(link, errno);
    }
    if (came <= 0) {
        return false;
    }
    *out = s->word;
    return true;
}

void kolo_verbs_control_step(struct kolo_link *link)
{
    struct kolo_verbs_stream *s = &link->out;
    if (link->base.failed == KOLO_OK && s->again_us > 0 && kolo_now_us() >= s->again_us) {
        kolo_verbs_control_begin(link);
    }
    if (link->base.failed == KOLO_OK && !s->up && s->fd >= 0 && s->got == SIZE_MAX) {
        step_hello(link);
    }
    if (link->base.failed == KOLO_OK && !s->up && s->fd >= 0 && s->got != SIZE_MAX) {
        step_answer(link);
    }
    if (link->base.failed == KOLO_OK && s->up) {
        (void)kolo_verbs_control_flush(link);
        step_up(link);
    }
}

void kolo_verbs_control_end(struct kolo_link *link)
{
    drop_stream(link, &link->out);
    drop_stream(link, &link->in);
    link->out.again_us = 0;
    link->words = 0;
}

/* ---- the side that listens ---- */

struct verbs_guest { /* a connection that a peer made */
    struct kolo_guest base;
    struct kolo_verbs_hello hello;
    size_t got; /* bytes of the hello */
};

static void configure_guest(const struct kolo_endpoint *ep, int fd)
{
    kolo_net_options(fd, ep->env.timeout_ms);
}

static bool makes_sense(const struct kolo_endpoint *ep, const struct kolo_verbs_hello *hello)
{
    unsigned char proof[KOLO_PROOF_BYTES];
    return hello->magic == KOLO_VERBS_MAGIC && hello->version == KOLO_VERSION &&
           hello->comm == ep->env.comm && hello->to == ep->env.rank && hello->from >= 0 &&
           hello->from < ep->env.nranks && hello->from != ep->env.rank &&
           prove_hello(ep, by_maker, hello, ep->nonce, proof) &&
           kolo_same_bytes(proof, hello->proof, KOLO_PROOF_BYTES);
}

static enum kolo_guest_state prove_guest(const struct kolo_endpoint *ep, struct kolo_guest *guest)
{
    struct verbs_guest *g = (struct verbs_guest *)guest;
    const int came = kolo_net_gather(guest->fd, &g->hello, sizeof g->hello, &g->got);
    if (came == 0) {
        return KOLO_GUEST_PROVING;
    }
    guest->from = g->hello.from;
    return came > 0 && makes_sense(ep, &g->hello) ? KOLO_GUEST_PROVED : KOLO_GUEST_STRANGER;
}

/* From here on the link reads the connection. */
static void take_guest(struct kolo_link *link, struct kolo_guest *guest)
{
    link->in.fd = guest->fd;
    link->in.got = 0;
    link->in.up = true;
    guest->fd = -1;
    (void)watch_stream(link->ep, EPOLL_CTL_MOD, link->in.fd, link);
    kolo_carrier_activate(&link->base);
}

/* Whether the rank has a connection already. A second one can only be a replay: its maker has
 * overheard the first. */
static bool is_known(const struct kolo_endpoint *ep, const struct kolo_link *link, int rank)
{
    return link == NULL ? kolo_acceptor_is_waiting(&ep->acceptor, rank, 0)
                        : link->in.fd >= 0 || link->base.failed != KOLO_OK || link->base.bye;
}

static enum kolo_welcome welcome_guest(struct kolo_endpoint *ep, struct kolo_guest *guest)
{
    struct kolo_verbs_answer answer;
    struct kolo_link *link = kolo_carriers_find(&ep->all, guest->from);
    if (is_known(ep, link, guest->from) ||
        !prove_hello(ep, by_listener, &((struct verbs_guest *)guest)->hello, ep->nonce,
                     answer.proof) ||
        !kolo_net_say(guest->fd, &answer, sizeof answer)) {
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

const struct kolo_acceptor_ops kolo_verbs_control_guests = {.name = "verbs",
                                                            .guest_bytes =
                                                                sizeof(struct verbs_guest),
                                                            .configure = configure_guest,
                                                            .prove = prove_guest,
                                                            .welcome = welcome_guest};

void kolo_verbs_control_adopt(struct kolo_link *link)
{
    struct kolo_guest *guest = kolo_acceptor_claim(&link->ep->acceptor, link->base.peer.rank);
    if (guest != NULL) {
        take_guest(link, guest);
        kolo_guest_free(&link->ep->acceptor, guest);
    }
}
