// SPDX-License-Identifier: Apache-2.0
/* The rounds in which ranks join: hello, addresses, regions and costs. See join.h. */
#include "core/setup/join.h"

#include "core/call/call.h"
#include "core/failure/failure.h"
#include "core/health/diagnose.h"
#include "core/health/flight_recorder.h"
#include "core/health/gossip.h"
#include "core/health/watchdog.h"
#include "core/link/links.h"
#include "core/link/open.h"
#include "core/link/region.h"
#include "exec/cpu/wait.h"
#include "plugin/catalogue.h"
#include "topology/draw/draw.h"
#include "topology/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- round 1: hello ---- */

kolo_status kolo_hello_make(struct kolo_comm *c, struct kolo_hello *out)
{
    *out = (struct kolo_hello){.magic = HELLO_MAGIC,
                               .version = KOLO_VERSION,
                               .rank = c->rank,
                               .pid = (int)getpid(),
                               .host = kolo_host_id(),
                               .process = kolo_process_id(),
                               .place = kolo_place_unknown(),
                               .deterministic = (uint32_t)c->deterministic,
                               .rules = kolo_hash(0, c->algo_text, strlen(c->algo_text)),
                               .transports =
                                   kolo_hash(0, c->transport_text, strlen(c->transport_text)),
                               .groups = kolo_hash(0, c->groups_text, strlen(c->groups_text)),
                               .gpu = kolo_live_gpu(c)};
    const double now = kolo_now_us();
    const uint64_t stack = (uint64_t)(uintptr_t)c;
    out->salt = kolo_hash(kolo_hash(out->process, &now, sizeof now), &stack, sizeof stack);
    KOLO_TRY(kolo_random(out->key, sizeof out->key));
    KOLO_TRY(kolo_rings_plan(c, &out->machine));
    if (kolo_host_discover(&c->host) == KOLO_OK) {
        out->place = kolo_host_here(c->host);
        if (c->rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_GRAPH)) {
            struct kolo_text text = {0};
            kolo_host_print(c->host, &text);
            if (text.chars != NULL) {
                text.chars[strcspn(text.chars, "\n")] = '\0';
                KOLO_LOG(INFO, GRAPH, "host %s: %s", kolo_host_name(), text.chars);
            }
            kolo_text_free(&text);
        }
    }
    return KOLO_OK;
}

static kolo_status check_hello(const struct kolo_comm *c, const struct kolo_hello *mine,
                               const struct kolo_hello *h, int q)
{
    if (h->magic != HELLO_MAGIC || h->version != KOLO_VERSION || h->rank != q) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d runs kolo %u, rank %d runs %d", q, h->version,
                         c->rank, KOLO_VERSION);
    }
    if (h->deterministic != mine->deterministic || h->rules != mine->rules ||
        h->transports != mine->transports || h->groups != mine->groups ||
        h->machine != mine->machine) {
        return kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d differ in %s", c->rank, q,
                         h->deterministic != mine->deterministic ? "config.deterministic"
                         : h->rules != mine->rules               ? "the rules of KOLO_ALGO"
                         : h->transports != mine->transports     ? "the list of KOLO_TRANSPORT"
                         : h->groups != mine->groups             ? "KOLO_GROUPS"
                                                     : "the machine that KOLO_TOPO_FILE describes");
    }
    return KOLO_OK;
}

/* Where the ranks are bound, or what KOLO_GROUPS says instead. */
static kolo_status place_members(struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        c->place[q] = c->member[q].place;
    }
    if (c->groups_text[0] == '\0') {
        return KOLO_OK;
    }
    return kolo_places_parse(c->groups_text, c->nranks, c->place)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INVALID,
                           "KOLO_GROUPS is \"%s\"; it is the number of each rank's L3, such as "
                           "0,0,1,1, and after a ';' of its NUMA node, then of its package",
                           c->groups_text);
}

static kolo_status order_members(struct kolo_comm *c)
{
    int *host_of = calloc((size_t)c->nranks, sizeof *host_of);
    if (host_of == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    c->nhosts = 0;
    for (int q = 0; q < c->nranks; q++) {
        host_of[q] = -1;
        for (int p = 0; p < q && host_of[q] < 0; p++) {
            host_of[q] = c->member[p].peer.host == c->member[q].peer.host ? host_of[p] : -1;
        }
        host_of[q] = host_of[q] < 0 ? c->nhosts++ : host_of[q];
    }
    for (int q = 0; q < c->nranks; q++) {
        c->local_rank += q < c->rank && host_of[q] == host_of[c->rank];
        c->local_size += host_of[q] == host_of[c->rank];
    }
    c->host_of = host_of;
    kolo_order_ranks(c->nranks, host_of, c->place, c->order);
    c->nrings = 1;
    KOLO_TRY(kolo_live_is_wanted(c) ? KOLO_OK : kolo_rings_lay(c));
    return kolo_groups_make(c->nranks, host_of, c->place, &c->groups);
}

kolo_status kolo_hello_take(struct kolo_comm *c, const struct kolo_hello *all)
{
    for (int q = 0; q < c->nranks; q++) {
        KOLO_TRY(check_hello(c, &all[c->rank], &all[q], q));
        struct kolo_member *m = &c->member[q];
        m->peer = (struct kolo_peer){.size = sizeof m->peer,
                                     .rank = q,
                                     .pid = all[q].pid,
                                     .host = all[q].host,
                                     .process = all[q].process};
        m->place = all[q].place;
        m->gpu = all[q].gpu;
    }
    c->id = kolo_hash(all[0].salt, &all[0].process, sizeof all[0].process);
    if (!kolo_prove(c->rendezvous.secret, all[0].key, sizeof all[0].key, c->secret)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "HMAC-SHA-256 failed");
    }
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
    if (c->rendezvous.place.family != 0) {
        (void)kolo_inet_ip(&c->rendezvous.place, c->toward);
    }
    c->env = (struct kolo_env){.size = sizeof c->env,
                               .rank = c->rank,
                               .nranks = c->nranks,
                               .comm = c->id,
                               .self = &c->member[c->rank].peer,
                               .log = log_line,
                               .fail = fail_text,
                               .aborted = (const int *)(const void *)&c->error,
                               .nhosts = c->nhosts,
                               .timeout_ms = c->timeout_ms,
                               .secret = c->secret,
                               .route_hint = c->toward[0] != '\0' ? c->toward : NULL,
                               .on_peer_lost = kolo_failure_peer_lost,
                               .failure_reason = kolo_failure_reason,
                               .on_peer_failed = kolo_failure_peer_failed,
                               .on_notify = kolo_gossip_said,
                               .dma_buf = kolo_links_dma_buf,
                               .copy = kolo_links_copy,
                               .owner = c};
}

/* A port that nobody listens on, until this rank is the first of a communicator that shrank: by
 * then the ranks could not tell each other any more. */
static kolo_status reserve_port(struct kolo_comm *c, struct kolo_inet *out)
{
    struct kolo_interface at;
    if (c->nhosts == 1) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_net_choose(false, c->env.route_hint, &at));
    KOLO_TRY(kolo_net_reserve(&at, &c->reserved_fd));
    *out = at.place;
    return KOLO_OK;
}

kolo_status kolo_address_make(struct kolo_comm *c, struct kolo_address *out)
{
    memset(out, 0, sizeof *out);
    make_env(c);
    KOLO_TRY(reserve_port(c, &out->reserved));
    KOLO_TRY(kolo_links_open(c));
    return kolo_links_address(c, &out->links);
}

kolo_status kolo_address_take(struct kolo_comm *c, const struct kolo_address *all)
{
    c->addresses = malloc((size_t)c->nranks * sizeof *c->addresses);
    if (c->addresses == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d addresses", c->nranks);
    }
    for (int q = 0; q < c->nranks; q++) {
        c->addresses[q] = all[q].links;
        c->member[q].reserved = all[q].reserved;
        if (q != c->rank) {
            KOLO_TRY(kolo_links_choose(c, q, &c->addresses[q]));
        }
    }
    return KOLO_OK;
}

/* ---- round 3: regions and costs ---- */

static bool maps_all(const struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        if (q != c->rank && (c->mapper == NULL || m->device != c->mapper->device ||
                             (m->reach.caps & KOLO_CAP_MAP) == 0)) {
            return false;
        }
    }
    return true;
}

/* KOLO_COSTS, or measured once a process: a second communicator comes up the faster. */
static kolo_status find_costs(int cores, const struct kolo_host *host, struct kolo_costs *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kolo_costs measured;
    const char *given = kolo_env("KOLO_COSTS");
    if (given != NULL) {
        return kolo_costs_parse(given, out)
                   ? KOLO_OK
                   : kolo_fail(KOLO_ERR_INVALID,
                               "KOLO_COSTS is \"%s\"; it is a list such as "
                               "cores=2,latency_us=0.2,copy_gbs=10,reduce_gbs=10,step_us=0.01,"
                               "switch_us=1, and beyond an L3 numa_latency_us=0.1,numa_gbs=7,"
                               "package_latency_us,package_gbs,host_latency_us,host_gbs,cross_gbs",
                               given);
    }
    pthread_mutex_lock(&lock);
    if (measured.size == 0) {
        kolo_costs_measure(cores, kolo_env("KOLO_TOPO_FILE") == NULL ? host : NULL, &measured);
        measured.size = sizeof measured;
    }
    *out = measured;
    pthread_mutex_unlock(&lock);
    return KOLO_OK;
}

/* What rank 0's transports say of the ranks that it does not share memory with. */
static void cost_net(const struct kolo_comm *c, struct kolo_costs *costs)
{
    double latency_us = 0, slowest_gbs = 0;
    for (int q = 1; q < c->nranks; q++) {
        const struct kolo_reach *reach = &c->member[q].reach;
        if ((reach->caps & KOLO_CAP_MAP) == 0 && reach->latency_us > latency_us) {
            latency_us = reach->latency_us;
            slowest_gbs = reach->bandwidth_gbs;
        }
    }
    if (latency_us > 0 && slowest_gbs > 0 && kolo_env("KOLO_COSTS") == NULL) {
        costs->net = (struct kolo_far){latency_us, 1e-3 / slowest_gbs};
    }
}

/* This rank's part of its L3 cache: where the ranks are bound, those of the same one share it. */
static size_t cache_part(const struct kolo_comm *c, const struct kolo_host *host)
{
    const int mine = c->place[c->rank].l3;
    size_t sharers = 0;
    for (int q = 0; q < c->nranks; q++) {
        const bool near = mine < 0 || c->place[q].l3 < 0 || c->place[q].l3 == mine;
        sharers += near && c->member[q].peer.host == c->member[c->rank].peer.host;
    }
    return kolo_host_l3_bytes(host) / sharers;
}

kolo_status kolo_ready_make(struct kolo_comm *c, struct kolo_ready *out)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct kolo_ready){.mapper = -1};
    const struct kolo_region_calls calls = {kolo_call_resolve, kolo_diagnose_stalled};
    KOLO_TRY(kolo_region_make(c, &calls));
    if (c->mapper != NULL) {
        memcpy(out->region, c->region.handle, sizeof out->region);
        out->mapper = (int32_t)(c->mapper - c->opened);
    }
    out->maps_all = maps_all(c);
    KOLO_TRY(kolo_board_make(c, &out->board));
    if (c->host != NULL) {
        cores = kolo_host_pus(c->host);
        c->wires.cache_bytes = cache_part(c, c->host);
    }
    if (c->rank == 0 && c->nranks > 1) {
        kolo_table_make(c, c->host, out);
    }
    c->wires.crowded = c->local_size > cores;
    c->wires.membarrier = kolo_membarrier_register();
    const kolo_status st =
        c->rank == 0 && c->nranks > 1 ? find_costs(cores, c->host, &out->costs) : KOLO_OK;
    kolo_host_destroy(c->host);
    c->host = NULL;
    cost_net(c, &out->costs);
    return st;
}

/* Any two members are threads of one process. */
static bool shares_process(const struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        for (int p = 0; p < q; p++) {
            if (c->member[p].peer.process == c->member[q].peer.process) {
                return true;
            }
        }
    }
    return false;
}

static kolo_status begin_gossip(struct kolo_comm *c, const struct kolo_ready *all)
{
    bool *has_board = calloc((size_t)c->nranks, sizeof *has_board);
    if (has_board == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    for (int q = 0; q < c->nranks; q++) {
        has_board[q] = all[q].board.has_board != 0;
    }
    const kolo_status st = kolo_gossip_begin(c, has_board);
    free(has_board);
    return st;
}

kolo_status kolo_ready_take(struct kolo_comm *c, const struct kolo_ready *all)
{
    c->costs = all[0].costs;
    c->by_messages = c->nranks > 1;
    for (int q = 0; q < c->nranks; q++) {
        c->by_messages = c->by_messages && all[q].mapper < 0;
    }
    c->sharing = c->nhosts > 1 || shares_process(c);
    for (int q = 0; q < c->nranks; q++) {
        struct kolo_member *m = &c->member[q];
        memcpy(m->region, all[q].region, sizeof m->region);
        m->maps = q != c->rank && c->mapper != NULL && all[q].mapper == c->mapper - c->opened &&
                  m->device == c->mapper->device && (m->reach.caps & KOLO_CAP_MAP) != 0;
        c->sharing = c->sharing || !all[q].maps_all;
        c->threads =
            c->threads || (q != c->rank && m->peer.process == c->member[c->rank].peer.process);
        c->wires.transport[q] = m->transport;
        c->wires.device[q] = m->device;
    }
    KOLO_TRY(kolo_board_take(c, &all[kolo_board_maker(c)].board));
    c->wires.waits_for = &c->post->waits_for;
    kolo_flight_recorder_start(c);
    KOLO_TRY(kolo_watchdog_add(c));
    KOLO_TRY(begin_gossip(c, all));
    c->logs_calls = kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_COLL);
    const int tuners = kolo_tuner_count_all();
    c->tuner = tuners > 0 ? kolo_tuner_at(tuners - 1) : NULL;
    if (c->tuner != NULL) {
        KOLO_TRY(c->tuner->open(&c->env, &c->tuner_self));
    }
    const struct kolo_chooser_options options = {.nranks = c->nranks,
                                                 .nhosts = c->nhosts,
                                                 .order = c->order,
                                                 .nrings = c->nrings,
                                                 .ntrees = c->ntrees,
                                                 .tree = c->tree,
                                                 .host = c->host_of,
                                                 .by_messages = c->by_messages,
                                                 .place = c->place,
                                                 .nlevels = c->groups.nlevels,
                                                 .group = c->groups.group,
                                                 .rules = c->rules,
                                                 .table = c->table,
                                                 .costs = c->costs,
                                                 .deterministic = c->deterministic != 0,
                                                 .tuner = c->tuner,
                                                 .tuner_self = c->tuner_self,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = c->wires.phases};
    return kolo_chooser_create(&options, &c->chooser);
}
