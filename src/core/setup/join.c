// SPDX-License-Identifier: Apache-2.0
/* The rounds in which ranks join: hello, addresses, regions and costs. See join.h. */
#include "core/setup/join.h"

#include "core/agree/agree.h"
#include "core/call/call.h"
#include "core/costs.h"
#include "core/failure/failure.h"
#include "core/failure/flight_recorder.h"
#include "core/health/calls.h"
#include "core/health/diagnose.h"
#include "core/health/gossip.h"
#include "core/health/look.h"
#include "core/health/watchdog.h"
#include "core/link/links.h"
#include "core/link/open.h"
#include "core/link/region.h"
#include "plugin/catalogue.h"
#include "topology/draw/draw.h"
#include "topology/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- round 1: hello ---- */

/* Ranks of one kernel that may use the same processors share them, on whatever hosts they are. */
static uint64_t cores_of(const struct kolo_host *host)
{
    uint64_t cores = kolo_kernel_id();
    for (int i = 0; cores != 0 && i < kolo_host_pus(host); i++) {
        const int pu = kolo_host_pu_os(host, i);
        cores = kolo_hash(cores, &pu, sizeof pu);
    }
    return cores;
}

kolo_status kolo_hello_make(struct kolo_comm *c, struct kolo_hello *out)
{
    *out = (struct kolo_hello){
        .magic = HELLO_MAGIC,
        .version = KOLO_VERSION,
        .rank = c->ranks.rank,
        .pid = (int)getpid(),
        .host = kolo_host_id(),
        .process = kolo_process_id(),
        .pid_space = kolo_pid_space(),
        .place = kolo_place_unknown(),
        .deterministic = (uint32_t)c->options.deterministic,
        .epoch = c->rendezvous.meet.epoch,
        .rules = kolo_hash(0, c->options.algo_text, strlen(c->options.algo_text)),
        .transports = kolo_hash(0, c->options.transport_text, strlen(c->options.transport_text)),
        .groups = kolo_hash(0, c->options.groups_text, strlen(c->options.groups_text)),
        .codec_rule = c->options.codec_rule,
        .gpu = kolo_layout_live_gpu(c)};
    const double now = kolo_now_us();
    const uint64_t stack = (uint64_t)(uintptr_t)c;
    out->salt = kolo_hash(kolo_hash(out->process, &now, sizeof now), &stack, sizeof stack);
    KOLO_TRY(kolo_random(out->key, sizeof out->key));
    KOLO_TRY(kolo_rings_plan(c, &out->machine));
    if (kolo_host_discover(&c->joining.host) == KOLO_OK) {
        out->place = kolo_host_here(c->joining.host);
        out->cores = cores_of(c->joining.host);
        if (c->ranks.rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_GRAPH)) {
            struct kolo_text text = {0};
            kolo_host_print(c->joining.host, &text);
            if (text.chars != NULL) {
                text.chars[strcspn(text.chars, "\n")] = '\0';
                KOLO_LOG(INFO, GRAPH, "host %s: %s", kolo_host_name(), text.chars);
            }
            kolo_text_free(&text);
        }
    }
    out->cores = out->cores != 0 ? out->cores : out->host;
    return KOLO_OK;
}

static kolo_status check_hello(const struct kolo_comm *c, const struct kolo_hello *mine,
                               const struct kolo_hello *h, int q)
{
    if (h->magic != HELLO_MAGIC || h->version != KOLO_VERSION || h->rank != q) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d runs kolo %u, rank %d runs %d", q, h->version,
                         c->ranks.rank, KOLO_VERSION);
    }
    if (h->deterministic != mine->deterministic || h->rules != mine->rules ||
        h->transports != mine->transports || h->groups != mine->groups ||
        h->codec_rule != mine->codec_rule || h->machine != mine->machine) {
        return kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d differ in %s", c->ranks.rank, q,
                         h->deterministic != mine->deterministic ? "config.deterministic"
                         : h->rules != mine->rules               ? "the rules of KOLO_ALGO"
                         : h->transports != mine->transports     ? "the list of KOLO_TRANSPORT"
                         : h->groups != mine->groups             ? "KOLO_GROUPS"
                         : h->codec_rule != mine->codec_rule
                             ? "KOLO_CODEC"
                             : "the machine that KOLO_TOPO_FILE describes");
    }
    return KOLO_OK;
}

/* Where the ranks are bound, or what KOLO_GROUPS says instead. */
static kolo_status place_members(struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        c->ranks.place[q] = c->member[q].place;
    }
    if (c->options.groups_text[0] == '\0') {
        return KOLO_OK;
    }
    return kolo_places_parse(c->options.groups_text, c->ranks.nranks, c->ranks.place)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID,
                           "KOLO_GROUPS is \"%s\"; it is the number of each rank's L3, such as "
                           "0,0,1,1, and after a ';' of its NUMA node, then of its package",
                           c->options.groups_text);
}

static void count_pools(struct kolo_comm *c, const struct kolo_hello *all)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        bool is_new = true;
        for (int p = 0; p < q && is_new; p++) {
            is_new = all[p].cores != all[q].cores;
        }
        c->ranks.npools += is_new;
        c->ranks.pool_size += all[q].cores == all[c->ranks.rank].cores;
    }
}

static kolo_status order_members(struct kolo_comm *c)
{
    int *host_of = calloc((size_t)c->ranks.nranks, sizeof *host_of);
    if (host_of == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    c->ranks.nhosts = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        host_of[q] = -1;
        for (int p = 0; p < q && host_of[q] < 0; p++) {
            host_of[q] = c->member[p].peer.host == c->member[q].peer.host ? host_of[p] : -1;
        }
        host_of[q] = host_of[q] < 0 ? c->ranks.nhosts++ : host_of[q];
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        c->ranks.local_rank += q < c->ranks.rank && host_of[q] == host_of[c->ranks.rank];
        c->ranks.local_size += host_of[q] == host_of[c->ranks.rank];
    }
    c->ranks.host_of = host_of;
    kolo_order_ranks(c->ranks.nranks, host_of, c->ranks.place, c->layout.order);
    c->layout.nrings = 1;
    KOLO_TRY(kolo_layout_live_is_wanted(c) ? KOLO_OK : kolo_rings_lay(c));
    return kolo_groups_make(c->ranks.nranks, host_of, c->ranks.place, &c->layout.groups);
}

kolo_status kolo_hello_take(struct kolo_comm *c, const struct kolo_hello *all)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        KOLO_TRY(check_hello(c, &all[c->ranks.rank], &all[q], q));
        struct kolo_member *m = &c->member[q];
        m->peer = (struct kolo_peer){.size = sizeof m->peer,
                                     .rank = q,
                                     .pid = all[q].pid,
                                     .host = all[q].host,
                                     .process = all[q].process};
        m->place = all[q].place;
        memcpy(m->life, all[q].life, sizeof m->life);
        atomic_store(&m->pid_here, all[q].host == all[c->ranks.rank].host &&
                                           all[q].pid_space == all[c->ranks.rank].pid_space &&
                                           all[q].pid_space != 0
                                       ? all[q].pid
                                       : 0);
        m->gpu = all[q].gpu;
        c->ranks.epoch = all[q].epoch > c->ranks.epoch ? all[q].epoch : c->ranks.epoch;
    }
    c->ranks.id = kolo_hash(all[0].salt, &all[0].process, sizeof all[0].process);
    if (!kolo_prove(c->rendezvous.meet.secret, all[0].key, sizeof all[0].key,
                    c->rendezvous.secret)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "HMAC-SHA-256 failed");
    }
    count_pools(c, all);
    KOLO_TRY(place_members(c));
    return order_members(c);
}

/* ---- round 2: addresses ---- */

static void log_line(const char *text)
{
    KOLO_LOG(INFO, NET, "%s", text);
}

static kolo_status fail_text(kolo_status status, const char *text)
{
    return kolo_fail(status, "%s", text);
}

static void make_env(struct kolo_comm *c)
{
    if (c->rendezvous.meet.place.family != 0) {
        (void)kolo_inet_ip(&c->rendezvous.meet.place, c->rendezvous.route_hint);
    }
    c->links.env = (struct kolo_env){
        .size = sizeof c->links.env,
        .rank = c->ranks.rank,
        .nranks = c->ranks.nranks,
        .comm = c->ranks.id,
        .self = &c->member[c->ranks.rank].peer,
        .log = log_line,
        .fail = fail_text,
        .aborted = (const int *)(const void *)&c->failure.error,
        .nhosts = c->ranks.nhosts,
        .timeout_ms = c->options.timeout_ms,
        .secret = c->rendezvous.secret,
        .route_hint = c->rendezvous.route_hint[0] != '\0' ? c->rendezvous.route_hint : NULL,
        .on_peer_lost = kolo_failure_peer_lost,
        .failure_reason = kolo_failure_reason,
        .on_peer_failed = kolo_failure_peer_failed,
        .on_notify = kolo_gossip_said,
        .dma_buf = kolo_links_dma_buf,
        .copy = kolo_links_copy,
        .on_wait = kolo_diagnose_connecting,
        .on_contact = kolo_look_contact,
        .last_call = kolo_calls_last,
        .on_call = kolo_calls_heard,
        .failure_text = kolo_failure_text,
        .on_failure_text = kolo_failure_peer_text,
        .owner = c};
}

/* A port for the case that this rank is the first of a communicator that shrank: by then the ranks
 * could not tell each other any more. It listens from the start, and nobody accepts: as long as
 * this rank has the communicator, a connection to the port succeeds (probe.h). */
static kolo_status reserve_port(struct kolo_comm *c, struct kolo_inet *out)
{
    struct kolo_interface at;
    if (c->ranks.nhosts == 1) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_net_choose(false, c->links.env.route_hint, &at));
    int fd = -1;
    KOLO_TRY(kolo_net_listen(&at, &fd));
    c->rendezvous.reserved_fd = kolo_own_fd(fd);
    *out = at.place;
    return KOLO_OK;
}

/* A communicator without them is as good until its ranks want to agree. */
static void open_agree_links(struct kolo_comm *c, struct kolo_agree_address *out)
{
    *out = (struct kolo_agree_address){0};
    if (!kolo_agree_links_are_needed(c)) {
        return;
    }
    if (kolo_agree_links_open(c, out) == KOLO_OK) {
        c->health.serve = kolo_agree_serve;
        return;
    }
    KOLO_LOG(INFO, NET, "comm %p rank %d: no links for agreements: %s", (void *)c, c->ranks.rank,
             kolo_error_text());
    kolo_agree_links_close(c);
    out->len = 0;
}

kolo_status kolo_address_make(struct kolo_comm *c, struct kolo_address *out)
{
    memset(out, 0, sizeof *out);
    make_env(c);
    KOLO_TRY(reserve_port(c, &out->reserved));
    KOLO_TRY(kolo_links_open(c));
    open_agree_links(c, &out->agree);
    return kolo_links_address(c, &out->links);
}

/* Keep what the chosen transports need. The rest of what all have told goes. */
static kolo_status keep_addresses(struct kolo_comm *c, size_t bytes)
{
    unsigned char *at = c->links.addresses = malloc(bytes + 1);
    if (at == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d addresses", c->ranks.nranks);
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        struct kolo_peer *peer = &c->member[q].peer;
        if (q != c->ranks.rank) {
            memcpy(at, peer->address, peer->address_len);
            peer->address = at;
            at += peer->address_len;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_address_take(struct kolo_comm *c, const struct kolo_address *all)
{
    size_t bytes = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        c->member[q].reserved = all[q].reserved;
        if (c->agree_links != NULL) {
            c->agree_links->line[q].address = all[q].agree;
        }
        if (q != c->ranks.rank) {
            KOLO_TRY(kolo_links_choose(c, q, &all[q].links));
            bytes += c->member[q].peer.address_len;
        }
    }
    return keep_addresses(c, bytes);
}

/* ---- round 3: regions and costs ---- */

static bool maps_all(const struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        if (q != c->ranks.rank &&
            (c->links.mapper == NULL || m->device != c->links.mapper->endpoint ||
             (m->reach.caps & KOLO_CAP_MAP) == 0 ||
             m->peer.process == c->member[c->ranks.rank].peer.process)) {
            return false;
        }
    }
    return true;
}

/* This rank's part of its L3 cache: where the ranks are bound, those of the same one share it. */
static size_t cache_part(const struct kolo_comm *c, const struct kolo_host *host)
{
    const int mine = c->ranks.place[c->ranks.rank].l3;
    size_t sharers = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        const bool near = mine < 0 || c->ranks.place[q].l3 < 0 || c->ranks.place[q].l3 == mine;
        sharers += near && c->member[q].peer.host == c->member[c->ranks.rank].peer.host;
    }
    return kolo_host_l3_bytes(host) / sharers;
}

kolo_status kolo_ready_make(struct kolo_comm *c, struct kolo_ready *out)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct kolo_ready){.mapper = -1};
    const struct kolo_region_calls calls = {kolo_call_resolve, kolo_diagnose_stalled};
    KOLO_TRY(kolo_region_make(c, &calls));
    if (c->links.mapper != NULL) {
        memcpy(out->region, c->links.region.handle, sizeof out->region);
        out->mapper = (int32_t)(c->links.mapper - c->links.opened);
    }
    out->maps_all = maps_all(c);
    KOLO_TRY(kolo_board_make(c, &out->board));
    if (c->joining.host != NULL) {
        cores = kolo_host_pus(c->joining.host);
        c->links.exec_env.cache_bytes = cache_part(c, c->joining.host);
    }
    if (c->ranks.rank == 0 && c->ranks.nranks > 1) {
        kolo_table_make(c, c->joining.host, out);
    }
    c->links.exec_env.crowded = c->ranks.pool_size > cores;
    const kolo_status st = c->ranks.rank == 0 && c->ranks.nranks > 1
                               ? kolo_comm_costs_find(cores, c->joining.host, &out->costs)
                               : KOLO_OK;
    kolo_host_destroy(c->joining.host);
    c->joining.host = NULL;
    kolo_comm_costs_add_net(c, &out->costs);
    return st;
}

static kolo_status begin_gossip(struct kolo_comm *c, const struct kolo_ready *all)
{
    bool *has_board = calloc((size_t)c->ranks.nranks, sizeof *has_board);
    if (has_board == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        has_board[q] = all[q].board.has_board != 0;
    }
    const kolo_status st = kolo_gossip_begin(c, has_board);
    free(has_board);
    return st;
}

/* A flag between two L3 caches took 180 ns and more on all machines, within one 75 ns and less. */
static const double FAR_US = 0.12;

/* Find the ranks that a flag takes long to reach. */
static void find_far(struct kolo_comm *c)
{
    const struct kolo_costs *costs = &c->selection.costs;
    bool *is_far = calloc((size_t)c->ranks.nranks, sizeof *is_far);
    for (int q = 0; is_far != NULL && q < c->ranks.nranks; q++) {
        const enum kolo_near near =
            kolo_near_of(&c->ranks.place[c->ranks.rank], &c->ranks.place[q]);
        const bool beyond = near >= KOLO_NEAR_NUMA && near <= KOLO_NEAR_HOST;
        is_far[q] =
            (beyond ? costs->far[near - KOLO_NEAR_NUMA].latency_us : costs->latency_us) > FAR_US;
    }
    c->links.exec_env.is_far = is_far;
}

/* Ranks that share a core share its L2, where places by turns would be lost. All ranks must come to
 * the same answer, so it follows from rank 0's costs. */
static size_t turn_bytes(const struct kolo_comm *c)
{
    const double cores = (double)c->selection.costs.cores * c->ranks.npools;
    return cores < c->ranks.nranks ? 0 : KOLO_TURN_BYTES;
}

/* Few ranks have priced a call before they could have shared it. */
static struct kolo_prices *shared_prices(const struct kolo_comm *c)
{
    return c->health.board != NULL && c->ranks.local_size >= 16 ? &c->health.board->prices : NULL;
}

kolo_status kolo_ready_take(struct kolo_comm *c, const struct kolo_ready *all)
{
    c->selection.costs = all[0].costs;
    kolo_comm_costs_keep(c, &all[0].costs);
    c->links.exec_env.turn_bytes = turn_bytes(c);
    find_far(c);
    c->links.by_messages = c->ranks.nranks > 1;
    c->programs.sharing = c->ranks.nhosts > 1;
    for (int q = 0; q < c->ranks.nranks; q++) {
        struct kolo_member *m = &c->member[q];
        memcpy(m->region, all[q].region, sizeof m->region);
        c->links.by_messages = c->links.by_messages && all[q].mapper < 0;
        m->maps = q != c->ranks.rank && c->links.mapper != NULL &&
                  all[q].mapper == c->links.mapper - c->links.opened &&
                  m->device == c->links.mapper->endpoint && (m->reach.caps & KOLO_CAP_MAP) != 0;
        c->programs.sharing = c->programs.sharing || !all[q].maps_all;
        c->ranks.threads =
            c->ranks.threads ||
            (q != c->ranks.rank && m->peer.process == c->member[c->ranks.rank].peer.process);
        c->links.exec_env.transport[q] = m->transport;
        c->links.exec_env.endpoint[q] = m->device;
    }
    KOLO_TRY(kolo_board_take(c, &all[kolo_board_maker(c)].board));
    c->links.exec_env.waits_for = &c->health.slot->waits_for;
    kolo_flight_recorder_start(c);
    KOLO_TRY(kolo_watchdog_add(c));
    KOLO_TRY(begin_gossip(c, all));
    c->options.logs_calls = kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_COLL);
    const int tuners = kolo_tuner_count_all();
    c->selection.tuner = tuners > 0 ? kolo_tuner_at(tuners - 1) : NULL;
    if (c->selection.tuner != NULL) {
        KOLO_TRY(c->selection.tuner->open(&c->links.env, &c->selection.tuner_self));
    }
    const struct kolo_chooser_options options = {.nranks = c->ranks.nranks,
                                                 .nhosts = c->ranks.nhosts,
                                                 .npools = c->ranks.npools,
                                                 .order = c->layout.order,
                                                 .nrings = c->layout.nrings,
                                                 .ntrees = c->layout.ntrees,
                                                 .tree = c->layout.tree,
                                                 .host = c->ranks.host_of,
                                                 .by_messages = c->links.by_messages,
                                                 .place = c->ranks.place,
                                                 .nlevels = c->layout.groups.nlevels,
                                                 .group = c->layout.groups.group,
                                                 .rules = c->selection.rules,
                                                 .table = c->selection.table,
                                                 .costs = c->selection.costs,
                                                 .deterministic = c->options.deterministic != 0,
                                                 .tuner = c->selection.tuner,
                                                 .tuner_self = c->selection.tuner_self,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = c->links.exec_env.phases,
                                                 .prices = shared_prices(c)};
    return kolo_chooser_create(&options, &c->selection.chooser);
}
