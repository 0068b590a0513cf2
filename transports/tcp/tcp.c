// SPDX-License-Identifier: Apache-2.0
/* tcp: messages between ranks on different hosts, over several sockets for each pair of ranks.
 *
 * While few links have work to do, each turn asks them one by one, without epoll. So a receive that
 * finds its message costs one system call. Epoll reports events of the other links and new
 * connections, and wakes a waiting thread. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { FEW_LINKS = 8, QUIET_TURNS = 4, EPOLL_EVERY = 64, EVENTS = 64, ELDER_US = 2000 };
enum { DEFAULT_SOCKETS = 1, NOTES_MAX = 256 };
/* The speed at which a core sends or receives; and a network's if its interface does not tell. */
#define CORE_GBS   5.5
#define UNTOLD_GBS 2.0
/* Over the loopback the kernel delivers a message on the cores of the two ranks. */
#define LOOPBACK_MESSAGE_US 4.0

/* ---- the endpoint ---- */

static kolo_status read_settings(struct kolo_endpoint *ep)
{
    static const char *const words[] = {"never", "always", "price"};
    long sums = 0, seals = 0, sockets = 0;
    int codes = 0;
    KOLO_TRY(kolo_env_int("KOLO_CRC", 0, 1, 0, &sums));
    KOLO_TRY(kolo_env_int("KOLO_ENCRYPT", 0, 1, 0, &seals));
    KOLO_TRY(
        kolo_env_int("KOLO_NSOCKS_PERTHREAD", 1, KOLO_TCP_SOCKETS_MAX, DEFAULT_SOCKETS, &sockets));
    KOLO_TRY(kolo_env_word("KOLO_LOSSLESS", words, (int)KOLO_LENGTH(words), &codes));
    ep->codes = (enum kolo_tcp_codes)codes;
    ep->sums = sums == 1;
    ep->seals = seals == 1;
    ep->nsockets = (int)sockets;
    return KOLO_OK;
}

static kolo_status open_epoll(struct kolo_endpoint *ep)
{
    ep->epoll = epoll_create1(EPOLL_CLOEXEC);
    return ep->epoll >= 0 ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "tcp: epoll: %s", kolo_why(errno));
}

static void tcp_close(struct kolo_endpoint *ep);
static void queue_word(struct kolo_link *link, uint64_t word);

static kolo_status tcp_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    kolo_status st = KOLO_OK;
    char name[KOLO_INET_TEXT];
    if (ep == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "tcp: out of memory for an endpoint");
    }
    ep->env = *env;
    ep->all = (struct kolo_carriers){.name = "tcp",
                                     .env = &ep->env,
                                     .taken_kind = KOLO_TCP_TAKEN,
                                     .record_bytes = sizeof(struct kolo_carrier_message),
                                     .notify = queue_word};
    ep->epoll = -1;
    kolo_acceptor_init(&ep->acceptor, &kolo_tcp_greet_guests, ep);
    if (env->secret != NULL) {
        memcpy(ep->secret, env->secret, sizeof ep->secret);
    }
    KOLO_TRY_GOTO(st, read_settings(ep), err_close);
    KOLO_TRY_GOTO(st, kolo_net_choose(env->nhosts <= 1, env->route_hint, &ep->interface),
                  err_close);
    const double gbs = kolo_tcp_interface_gbs(ep->interface.name);
    ep->gbs = gbs > 0 ? gbs : UNTOLD_GBS;
    KOLO_TRY_GOTO(st, open_epoll(ep), err_close);
    KOLO_TRY_GOTO(st, kolo_acceptor_listen(&ep->acceptor, &ep->interface, ep->epoll), err_close);
    KOLO_LOG(INFO, NET, "NET/Socket : Using [0]%s:%s", ep->interface.name,
             kolo_inet_name(&ep->interface.place, name));
    *out = ep;
    return KOLO_OK;

err_close:
    tcp_close(ep);
    return st;
}

static kolo_status tcp_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                             struct kolo_reach *out)
{
    const bool near = peer->host == ep->env.self->host;
    *out = (struct kolo_reach){.size = sizeof *out,
                               .latency_us = near ? 2 : 15,
                               .bandwidth_gbs = near ? CORE_GBS : ep->gbs,
                               .score = 10,
                               .via = "NET/Socket/0",
                               .core_gbs = CORE_GBS,
                               .message_us = near ? LOOPBACK_MESSAGE_US : 0};
    out->caps =
        peer->address_len == sizeof(struct kolo_tcp_address) ? KOLO_CAP_HOST | KOLO_CAP_MESSAGE : 0;
    return KOLO_OK;
}

static kolo_status tcp_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    const int flags = (ep->sums ? KOLO_TCP_SUMS : 0) | (ep->seals ? KOLO_TCP_SEALS : 0) |
                      (ep->codes != KOLO_TCP_CODES_NEVER ? KOLO_TCP_CODES : 0);
    const struct kolo_tcp_address address = {KOLO_TCP_MAGIC, (uint16_t)ep->nsockets,
                                             (uint16_t)flags, ep->interface.place};
    if (*len < sizeof address) {
        return kolo_fail(KOLO_ERR_INVALID, "tcp: no room for an address");
    }
    memcpy(buf, &address, sizeof address);
    *len = sizeof address;
    return KOLO_OK;
}

/* ---- links ---- */

static kolo_status read_address(const struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                struct kolo_tcp_address *out)
{
    if (peer->address_len != sizeof *out) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d's tcp address has %zu bytes, not %zu",
                         peer->rank, peer->address_len, sizeof *out);
    }
    memcpy(out, peer->address, sizeof *out);
    if (out->magic != KOLO_TCP_MAGIC || out->sockets < 1 || out->sockets > KOLO_TCP_SOCKETS_MAX ||
        (out->place.family != AF_INET && out->place.family != AF_INET6)) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d's tcp address makes no sense", peer->rank);
    }
    if (((out->flags & KOLO_TCP_SEALS) != 0) != ep->seals) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "KOLO_ENCRYPT is 1 on rank %d and not on rank %d: set it on all ranks",
                         ep->seals ? ep->env.rank : peer->rank,
                         ep->seals ? peer->rank : ep->env.rank);
    }
    return kolo_check_range("rank", peer->rank, 0, ep->env.nranks - 1);
}

static kolo_status tcp_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                               struct kolo_link **out)
{
    struct kolo_tcp_address address;
    KOLO_TRY(read_address(ep, peer, &address));
    if (ep->codes != KOLO_TCP_CODES_NEVER || (address.flags & KOLO_TCP_CODES) != 0) {
        KOLO_TRY(kolo_tcp_lossless_prepare(ep));
    }
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "tcp: out of memory for a link");
    }
    link->ep = ep;
    link->doubt.own = KOLO_NO_FD;
    link->address = address;
    link->sums = ep->sums || (address.flags & KOLO_TCP_SUMS) != 0;
    link->decodes = (address.flags & KOLO_TCP_CODES) != 0;
    link->nsockets = kolo_min(address.sockets, (size_t)ep->nsockets) > 1
                         ? (int)kolo_min(address.sockets, (size_t)ep->nsockets)
                         : 1;
    for (int i = 0; i < KOLO_TCP_SOCKETS_MAX; i++) {
        link->socket[i].link = link;
        link->socket[i].index = i;
        link->socket[i].fd = -1;
    }
    kolo_carrier_join(&link->base, &ep->all, link, peer);
    if (!link->base.self) {
        kolo_tcp_greet_adopt(link);
        if (link->socket[0].state == KOLO_TCP_NONE && ep->env.rank < peer->rank) {
            kolo_tcp_greet_begin(link, 0);
        } else if (link->socket[0].state == KOLO_TCP_NONE) { /* the lower rank's is preferred */
            link->socket[0].again_us = kolo_now_us() + ELDER_US;
        }
    }
    *out = link;
    return KOLO_OK;
}

/* ---- progress ---- */

/* The lower rank makes further sockets once a long message was posted. */
static bool wants_more(const struct kolo_link *link)
{
    return link->has_long && !link->spread && link->nsockets > 1 &&
           link->ep->env.rank < link->base.peer.rank && link->socket[0].state == KOLO_TCP_UP;
}

/* Each socket writes one batch after another. */
static bool send_sockets(struct kolo_link *link, bool asks)
{
    bool moved = false;
    for (bool more = true; more && link->base.failed == KOLO_OK;) {
        more = false;
        for (int i = 0; i < link->nsockets && link->base.failed == KOLO_OK; i++) {
            struct kolo_tcp_socket *s = &link->socket[i];
            if (s->state == KOLO_TCP_UP && (asks || !s->full) && kolo_tcp_stream_write(s)) {
                moved = true;
                more = more || !s->full;
            }
        }
    }
    return moved;
}

/* Whether the socket is left unread in this turn. */
static bool defers(struct kolo_tcp_socket *s)
{
    const bool early = kolo_tcp_message_is_early(s);
    s->patience -= early;
    return early;
}

static bool receive_sockets(struct kolo_link *link, bool asks)
{
    const bool listens = asks && kolo_tcp_message_listens(link);
    bool moved = false;
    for (int i = 0; i < link->nsockets && link->base.failed == KOLO_OK; i++) {
        struct kolo_tcp_socket *s = &link->socket[i];
        if (s->state != KOLO_TCP_UP) {
            kolo_tcp_greet_step(s);
        } else if (listens || s->ripe) { /* a turn that defers is no reason to sleep */
            moved = defers(s) || kolo_tcp_stream_read(s) || moved;
        }
    }
    return moved;
}

/* Posted messages are written first. Frames that were read may cause further frames. */
static bool step_sockets(struct kolo_link *link, bool asks)
{
    const bool wrote = send_sockets(link, asks);
    const bool read = receive_sockets(link, asks);
    const bool again = read && (link->base.notes > 0 || link->base.sends.first != NULL);
    return (again && send_sockets(link, asks)) || wrote || read;
}

static bool is_idle(const struct kolo_link *link)
{
    bool idle =
        link->base.pending == 0 && link->base.notes == 0 && !kolo_doubt_is_open(&link->doubt);
    for (int i = 0; i < link->nsockets; i++) {
        const struct kolo_tcp_socket *s = &link->socket[i];
        idle = idle && s->count == 0 && !(s->ripe && s->state == KOLO_TCP_UP);
    }
    return idle;
}

/* How many requests ended, or 1 if only bytes moved. */
static int step_link(struct kolo_link *link, bool asks)
{
    const kolo_status why =
        (kolo_status)atomic_load_explicit(&link->base.why, memory_order_relaxed);
    bool moved = false;
    if (why == KOLO_OK && link->base.failed == KOLO_OK && !link->base.self) {
        if (wants_more(link)) {
            link->spread = true;
            for (int i = 1; i < link->nsockets; i++) {
                kolo_tcp_greet_begin(link, i);
            }
        }
        link->words = link->base.notes > 0 && link->base.note[0].kind == KOLO_TCP_WORD;
        if (kolo_doubt_is_open(&link->doubt)) {
            kolo_tcp_settle_doubt(link);
        } else {
            moved = step_sockets(link, asks) && !link->words;
        }
    }
    if (why != KOLO_OK && link->base.failed == KOLO_OK) {
        kolo_tcp_farewell_give_up(link, why);
    }
    if (link->base.failed != KOLO_OK) {
        if (why == KOLO_OK && link->base.pending > 0) { /* the text for the owner of the requests */
            (void)kolo_fail(link->base.failed, "%s", link->base.text);
        }
        if (link->bad) {
            kolo_tcp_farewell_complain(link);
        }
        kolo_tcp_message_end(link, why != KOLO_OK ? why : link->base.failed);
        kolo_tcp_hang_up(link);
    }
    const int done = link->base.done;
    link->base.done = 0;
    if (is_idle(link)) {
        kolo_carrier_rest(&link->base);
    } else {
        kolo_carrier_activate(&link->base);
    }
    return done > 0 ? done : moved;
}

/* Serve the kernel's events. A socket whose link has no work is read, to see whether it has ended;
 * *moved is raised by the requests that this ended. Returns how many events there were. */
static int ask_epoll(struct kolo_endpoint *ep, int *moved)
{
    struct epoll_event event[EVENTS];
    bool guests = ep->acceptor.nguests > 0;
    const int n = epoll_wait(ep->epoll, event, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct kolo_tcp_socket *s = event[i].data.ptr;
        if (s == NULL) {
            guests = true;
            continue;
        }
        s->ripe = s->ripe || (event[i].events & ~(uint32_t)EPOLLOUT) != 0;
        s->over = s->over || (event[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        s->full = s->full && (event[i].events & EPOLLOUT) == 0;
        if (!s->link->base.active) {
            *moved += step_link(s->link, false);
        }
    }
    if (guests) {
        kolo_acceptor_step(&ep->acceptor);
    }
    return n;
}

/* The program has closed the sockets, and their numbers may be of its own. */
static void lose_links(const struct kolo_endpoint *ep)
{
    for (struct kolo_carrier *c = ep->all.active; c != NULL; c = c->next_active) {
        kolo_tcp_fail(c->link, "is not reached any more", EBADF);
    }
}

static void queue_word(struct kolo_link *link, uint64_t word)
{
    if (link->base.notes < NOTES_MAX) { /* otherwise it is not even connected */
        kolo_tcp_message_note(
            link, &(struct kolo_carrier_note){.kind = KOLO_TCP_WORD,
                                              .total = word,
                                              .call = kolo_carriers_call(&link->ep->all)});
    }
}

static int tcp_progress(struct kolo_endpoint *ep, int budget)
{
    int moved = 0;
    const bool idle = ep->all.active == NULL;
    const bool few = ep->all.nactive <= FEW_LINKS;
    const bool asks = idle || ep->nconnecting > 0 || ep->acceptor.nguests > 0 || !few ||
                      ep->turns++ % EPOLL_EVERY == 0;
    (void)budget; /* a turn is short: every link reads and writes a bounded number of times */
    if (asks && kolo_acceptor_seems_whole(&ep->acceptor)) {
        (void)ask_epoll(ep, &moved);
    } else if (asks) {
        lose_links(ep);
    }
    kolo_carriers_hear(&ep->all);
    for (struct kolo_carrier *c = ep->all.active, *next = NULL; c != NULL; c = next) {
        next = c->next_active;
        moved += step_link(c->link, few);
    }
    ep->quiet = moved > 0 ? 0 : ep->quiet + (ep->quiet < QUIET_TURNS);
    return kolo_carriers_result(&ep->all, idle, moved);
}

/* The peer gets the reason at the next progress(). */
static void tcp_abort(struct kolo_link *link, kolo_status why)
{
    kolo_carrier_abort(&link->base, why);
}

static void tcp_notify(struct kolo_link *link, uint64_t word)
{
    kolo_carrier_notify(&link->base, word);
}

/* Bytes that a turn reads without asking epoll leave their events there. Until it is asked, its
 * descriptor is readable, and nobody can sleep on it. So who means to sleep asks, after a few turns
 * that brought nothing. Turns of other threads seldom ask, so the bytes that they read wake the sleeper. */
static int tcp_wait_fd(struct kolo_endpoint *ep)
{
    int moved = 0;
    if (ep->quiet < QUIET_TURNS || !kolo_acceptor_seems_whole(&ep->acceptor)) {
        return ep->epoll;
    }
    ep->quiet = 0;
    return ask_epoll(ep, &moved) > 0 ? -1 : ep->epoll;
}

/* ---- closing ---- */

static void tcp_disconnect(struct kolo_link *link)
{
    if (link->base.failed == KOLO_OK) {
        kolo_tcp_farewell_give_up(link, KOLO_ERR_ABORTED);
    }
    kolo_tcp_message_end(link, KOLO_ERR_ABORTED);
    kolo_tcp_hang_up(link);
    kolo_tcp_price_end(link);
    for (int i = 0; i < KOLO_TCP_SOCKETS_MAX; i++) {
        free(link->socket[i].staging);
        free(link->socket[i].coded);
        free(link->socket[i].coding);
    }
    kolo_carrier_leave(&link->base);
    free(link);
}

static void tcp_close(struct kolo_endpoint *ep)
{
    kolo_tcp_farewell_finish(ep);
    kolo_acceptor_close(&ep->acceptor);
    explicit_bzero(ep->secret, sizeof ep->secret);
    free(ep->coder);
    free(ep);
}

const struct kolo_transport kolo_transport_tcp = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "tcp"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE | KOLO_CAP_NOTIFY,
    .open = tcp_open,
    .close = tcp_close,
    .probe = tcp_probe,
    .address = tcp_address,
    .connect = tcp_connect,
    .disconnect = tcp_disconnect,
    .send = kolo_tcp_message_send,
    .recv = kolo_tcp_message_recv,
    .progress = tcp_progress,
    .abort = tcp_abort,
    .wait_fd = tcp_wait_fd,
    .notify = tcp_notify,
};
