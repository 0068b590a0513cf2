// SPDX-License-Identifier: Apache-2.0
/* verbs: ranks on different hosts over InfiniBand and RoCE.
 *
 * Each rail has one completion queue for all links, and every turn polls it. Epoll reports the
 * control connections. While messages move, epoll is asked seldom. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EPOLL_EVERY = 256, QUIET_EPOLL_EVERY = 16, EVENTS = 64, QUIET_TURNS = 100 };
enum { TIMEOUT = 18 /* 4.096 us * 2^18 = 1.07 s */, RETRIES = 7, LANES_EACH = 2 };

/* ---- the endpoint ---- */

static kolo_status read_settings(struct kolo_endpoint *ep)
{
    long timeout, retries, level, class, lanes, disabled, encrypts;
    KOLO_TRY(kolo_env_int("KOLO_ENCRYPT", 0, 1, 0, &encrypts));
    KOLO_TRY(kolo_env_int("KOLO_IB_DISABLE", 0, 1, 0, &disabled));
    KOLO_TRY(kolo_env_int("KOLO_IB_TIMEOUT", 1, 31, TIMEOUT, &timeout));
    KOLO_TRY(kolo_env_int("KOLO_IB_RETRY_CNT", 0, 7, RETRIES, &retries));
    KOLO_TRY(kolo_env_int("KOLO_IB_SL", 0, 15, 0, &level));
    KOLO_TRY(kolo_env_int("KOLO_IB_TC", 0, 255, 0, &class));
    KOLO_TRY(kolo_env_int("KOLO_IB_QPS_PER_CONNECTION", 1, KOLO_VERBS_LANES, LANES_EACH, &lanes));
    ep->timeout = (uint8_t)timeout;
    ep->retries = (uint8_t)retries;
    ep->service_level = (uint8_t)level;
    ep->traffic_class = (uint8_t) class;
    ep->lanes = (uint16_t)lanes;
    if (disabled != 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "verbs: KOLO_IB_DISABLE is 1");
    }
    return encrypts == 0 ? KOLO_OK
                         : kolo_fail(KOLO_ERR_UNSUPPORTED,
                                     "verbs: KOLO_ENCRYPT is 1, and nothing encrypts RDMA traffic");
}

static kolo_status watch_descriptor(const struct kolo_endpoint *ep, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return epoll_ctl(ep->epoll, EPOLL_CTL_ADD, fd, &event) == 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "verbs: epoll: %s", kolo_why(errno));
}

static kolo_status watch_all(struct kolo_endpoint *ep)
{
    ep->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (ep->epoll < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: epoll: %s", kolo_why(errno));
    }
    KOLO_TRY(kolo_acceptor_listen(&ep->acceptor, &ep->interface, ep->epoll));
    for (int i = 0; i < ep->nrails; i++) {
        KOLO_TRY(watch_descriptor(ep, ep->rail[i].channel->fd));
        KOLO_TRY(watch_descriptor(ep, ep->rail[i].context->async_fd));
    }
    return KOLO_OK;
}

static void log_rails(const struct kolo_endpoint *ep)
{
    struct kolo_text text = {0};
    char name[KOLO_INET_TEXT];
    kolo_text_add(&text, "NET/IB : Using");
    for (int i = 0; i < ep->nrails; i++) {
        const struct kolo_verbs_rail *rail = &ep->rail[i];
        kolo_text_add(&text, " [%d]%s:%u/%s", i, rail->name, rail->port,
                      rail->self.ethernet ? "RoCE" : "IB");
    }
    kolo_text_add(&text, "; OOB %s:%s", ep->interface.name,
                  kolo_inet_name(&ep->interface.place, name));
    KOLO_LOG(INFO, NET, "%s", text.chars != NULL ? text.chars : "NET/IB");
    kolo_text_free(&text);
}

static void verbs_close(struct kolo_endpoint *ep);
static void send_word(struct kolo_link *link, uint64_t word);

static kolo_status verbs_open(const struct kolo_env *env, struct kolo_endpoint **out)
{
    struct kolo_endpoint *ep = calloc(1, sizeof *ep);
    kolo_status st = KOLO_OK;
    if (ep == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for an endpoint");
    }
    ep->env = *env;
    ep->all = (struct kolo_carriers){.name = "verbs",
                                     .env = &ep->env,
                                     .taken_kind = KOLO_VERBS_TAKEN,
                                     .record_bytes = sizeof(struct kolo_verbs_message),
                                     .drop = kolo_verbs_message_drop,
                                     .notify = send_word};
    ep->pid = (int)getpid();
    ep->epoll = -1;
    kolo_acceptor_init(&ep->acceptor, &kolo_verbs_control_guests, ep);
    if (env->secret != NULL) {
        memcpy(ep->secret, env->secret, sizeof ep->secret);
    }
    ep->vias = calloc((size_t)env->nranks, sizeof *ep->vias);
    if (ep->vias == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for the names of rails");
        goto err_close;
    }
    KOLO_TRY_GOTO(st, read_settings(ep), err_close);
    KOLO_TRY_GOTO(st, kolo_verbs_memory_open(ep), err_close);
    KOLO_TRY_GOTO(st, kolo_verbs_library(&ep->lib), err_close);
    KOLO_TRY_GOTO(st, kolo_random(ep->nonce, sizeof ep->nonce), err_close);
    KOLO_TRY_GOTO(st, kolo_verbs_rails_open(ep), err_close);
    KOLO_TRY_GOTO(st, kolo_net_choose(env->nhosts <= 1, env->route_hint, &ep->interface),
                  err_close);
    KOLO_TRY_GOTO(st, watch_all(ep), err_close);
    log_rails(ep);
    *out = ep;
    return KOLO_OK;

err_close:
    verbs_close(ep);
    return st;
}

static kolo_status verbs_address(struct kolo_endpoint *ep, void *buf, size_t *len)
{
    struct kolo_verbs_address address;
    if (*len < sizeof address) {
        return kolo_fail(KOLO_ERR_INVALID, "verbs: no room for an address");
    }
    kolo_verbs_address_make(ep, &address);
    memcpy(buf, &address, sizeof address);
    *len = sizeof address;
    return KOLO_OK;
}

/* ---- links ---- */

static void verbs_disconnect(struct kolo_link *link);

static kolo_status verbs_connect(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                 struct kolo_link **out)
{
    struct kolo_verbs_address address;
    int pair[KOLO_VERBS_LANES][2];
    if (!kolo_verbs_address_read(peer->address, peer->address_len, &address) || peer->rank < 0 ||
        peer->rank >= ep->env.nranks) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d's verbs address makes no sense", peer->rank);
    }
    const int count = kolo_verbs_address_pair(ep, peer->rank, &address, pair);
    if (count == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "verbs: no rail reaches rank %d", peer->rank);
    }
    struct kolo_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for a link");
    }
    link->ep = ep;
    link->address = address;
    link->in.fd = link->out.fd = -1;
    kolo_carrier_join(&link->base, &ep->all, link, peer);
    if (!link->base.self) {
        link->connecting = true;
        ep->nconnecting++;
        const kolo_status st = kolo_verbs_lanes_open(link, pair, count);
        if (st != KOLO_OK) {
            link->base.failed = st; /* connect() returns the status: no failure is reported */
            verbs_disconnect(link);
            return st;
        }
        link->doubt.own = KOLO_NO_FD;
        kolo_verbs_control_begin(link);
        kolo_verbs_control_adopt(link);
        kolo_carrier_activate(&link->base);
    }
    *out = link;
    return KOLO_OK;
}

/* ---- requests ---- */

static kolo_status verbs_send(struct kolo_link *link, const struct kolo_bytes *src,
                              struct kolo_req *req)
{
    const bool first = link->base.sends.first == NULL; /* else earlier sends go first */
    KOLO_TRY(kolo_verbs_message_send(link, src, req));
    if (first && link->nlive > 0) {
        (void)kolo_verbs_pump(link);
    }
    return KOLO_OK;
}

static kolo_status verbs_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                              struct kolo_req *req)
{
    KOLO_TRY(kolo_verbs_message_recv(link, dst, req));
    if (link->base.notes > 0 && link->nlive > 0) {
        (void)kolo_verbs_pump(link);
    }
    return KOLO_OK;
}

/* ---- progress ---- */

static void end_link(struct kolo_link *link, kolo_status why)
{
    if (why == KOLO_OK && link->base.pending > 0) { /* the text for the owner of the requests */
        (void)kolo_fail(link->base.failed, "%s", link->base.text);
    }
    if (link->complains) {
        kolo_verbs_complain(link);
    }
    if (kolo_verbs_is_ours(link->ep)) {
        kolo_verbs_lanes_stop(link);
    }
    kolo_verbs_message_end(link, why != KOLO_OK ? why : link->base.failed);
    kolo_verbs_connected(link);
    kolo_verbs_control_end(link);
    kolo_doubt_end(&link->doubt);
}

static void settle_doubt(struct kolo_link *link)
{
    const int error = kolo_doubt_step(&link->doubt);
    if (error != 0) {
        kolo_verbs_fail(link,
                        error == ECONNRESET ? "closed its connection"
                        : error == ENOLINK  ? "lost its connection, and lives"
                                            : "is not reached any more",
                        error, true);
    }
}

static bool is_idle(const struct kolo_link *link)
{
    return link->base.pending == 0 && link->base.notes == 0 && link->words == 0 &&
           link->again == NULL && !kolo_doubt_is_open(&link->doubt) &&
           (link->base.failed != KOLO_OK || link->base.self ||
            (!link->connecting && !link->base.bye && link->nlive == link->nlanes));
}

/* How many requests ended, or 1 if only bytes moved. */
static int step_link(struct kolo_link *link, bool asks)
{
    const kolo_status why =
        (kolo_status)atomic_load_explicit(&link->base.why, memory_order_relaxed);
    bool moved = false;
    if (why == KOLO_OK && link->base.failed == KOLO_OK && !link->base.self) {
        if (asks || link->connecting) {
            kolo_verbs_words_step(link);
        }
        if (link->nlive < link->nlanes || link->base.bye) {
            kolo_verbs_lanes_step(link);
        }
        if (kolo_doubt_is_open(&link->doubt) && link->base.failed == KOLO_OK) {
            settle_doubt(link);
        }
        moved = link->nlive > 0 && link->base.failed == KOLO_OK && kolo_verbs_pump(link);
    }
    if (why != KOLO_OK && link->base.failed == KOLO_OK) {
        kolo_verbs_give_up(link, why);
    }
    if (link->base.failed != KOLO_OK) {
        end_link(link, why);
    }
    const int done = link->base.done;
    link->base.done = 0;
    if (is_idle(link)) {
        kolo_carrier_rest(&link->base);
    }
    return done > 0 ? done : moved;
}

/* Serve the kernel's events. */
static void ask_epoll(struct kolo_endpoint *ep)
{
    struct epoll_event event[EVENTS];
    bool others = ep->acceptor.nguests > 0;
    const int n = epoll_wait(ep->epoll, event, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct kolo_link *link = event[i].data.ptr;
        if (link != NULL) {
            link->ripe = true;
            kolo_carrier_activate(&link->base);
        }
        others = others || link == NULL;
    }
    if (others) {
        kolo_acceptor_step(&ep->acceptor);
        kolo_verbs_rails_hear(ep);
    }
    for (int i = 0; others && i < ep->nrails; i++) { /* its completion may be handled already */
        kolo_verbs_lanes_wake(&ep->rail[i]);
    }
}

/* The program has closed the descriptors, and their numbers may be of its own. */
static void lose_links(const struct kolo_endpoint *ep)
{
    for (struct kolo_carrier *c = ep->all.active; c != NULL; c = c->next_active) {
        kolo_verbs_fail(c->link, "is not reached any more", EBADF, true);
    }
}

static void send_word(struct kolo_link *link, uint64_t word)
{
    if (!link->base.self) {
        kolo_verbs_control_say(
            link, &(struct kolo_verbs_word){.kind = KOLO_VERBS_NOTIFY,
                                            .value = word,
                                            .call = kolo_carriers_call(&link->ep->all)});
    }
}

static int verbs_progress(struct kolo_endpoint *ep, int budget)
{
    int moved = 0;
    const bool idle = ep->all.active == NULL;
    const unsigned every = ep->quiet < QUIET_TURNS ? EPOLL_EVERY : QUIET_EPOLL_EVERY;
    const bool asks =
        idle || ep->nconnecting > 0 || ep->acceptor.nguests > 0 || ep->turns++ % every == 0;
    (void)budget; /* a turn is short: every rail gives a bounded number of completions */
    if (asks && kolo_acceptor_seems_whole(&ep->acceptor)) {
        ask_epoll(ep);
    } else if (asks) {
        lose_links(ep);
    }
    const int seen = kolo_verbs_lanes_poll(ep);
    kolo_carriers_hear(&ep->all);
    for (struct kolo_carrier *c = ep->all.active, *next = NULL; c != NULL; c = next) {
        struct kolo_link *link = c->link;
        const bool ripe = link->ripe;
        next = c->next_active;
        link->ripe = false;
        moved += step_link(link, ripe || (asks && link->nlive < link->nlanes));
    }
    /* A turn with completions may have left some. */
    ep->quiet = moved > 0 || seen > 0 ? 0 : ep->quiet + 1;
    return kolo_carriers_result(&ep->all, idle, moved);
}

/* The peer gets the reason at the next progress(). */
static void verbs_abort(struct kolo_link *link, kolo_status why)
{
    kolo_carrier_abort(&link->base, why);
}

static void verbs_notify(struct kolo_link *link, uint64_t word)
{
    kolo_carrier_notify(&link->base, word);
}

/* A long wait sleeps until a completion; a short one polls, which is faster. An armed queue reports
 * only later completions. So the caller may sleep only after all armed queues were found empty. */
static int verbs_wait_fd(struct kolo_endpoint *ep)
{
    bool armed = true;
    for (int i = 0; i < ep->nrails && ep->quiet >= QUIET_TURNS; i++) {
        struct kolo_verbs_rail *rail = &ep->rail[i];
        if (!rail->armed) {
            rail->armed = ibv_req_notify_cq(rail->cq, 0) == 0;
            armed = false;
        }
    }
    return armed && ep->quiet >= QUIET_TURNS ? ep->epoll : -1;
}

/* ---- closing ---- */

static void verbs_disconnect(struct kolo_link *link)
{
    struct kolo_endpoint *ep = link->ep;
    if (kolo_verbs_is_ours(ep)) {
        if (link->base.failed == KOLO_OK) {
            kolo_verbs_give_up(link, KOLO_ERR_ABORTED);
        }
        kolo_verbs_lanes_stop(link);
        kolo_verbs_message_end(link, KOLO_ERR_ABORTED);
        kolo_verbs_lanes_close(link);
    }
    kolo_verbs_connected(link);
    kolo_verbs_control_end(link);
    kolo_doubt_end(&link->doubt);
    free(link->word);
    kolo_carrier_leave(&link->base);
    free(link);
}

static void verbs_close(struct kolo_endpoint *ep)
{
    if (kolo_verbs_is_ours(ep)) {
        kolo_verbs_memory_close(ep);
        kolo_verbs_rails_close(ep);
    }
    kolo_verbs_memory_free(ep);
    kolo_acceptor_close(&ep->acceptor);
    free(ep->lane);
    free(ep->lane_use);
    free(ep->vias);
    explicit_bzero(ep->secret, sizeof ep->secret);
    free(ep);
}

const struct kolo_transport kolo_transport_verbs = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_transport), "verbs"},
    .caps = KOLO_CAP_HOST | KOLO_CAP_CUDA | KOLO_CAP_MESSAGE | KOLO_CAP_NOTIFY,
    .open = verbs_open,
    .close = verbs_close,
    .probe = kolo_verbs_address_probe,
    .address = verbs_address,
    .connect = verbs_connect,
    .disconnect = verbs_disconnect,
    .map = kolo_verbs_memory_map,
    .unmap = kolo_verbs_memory_unmap,
    .send = verbs_send,
    .recv = verbs_recv,
    .progress = verbs_progress,
    .abort = verbs_abort,
    .wait_fd = verbs_wait_fd,
    .notify = verbs_notify,
};
