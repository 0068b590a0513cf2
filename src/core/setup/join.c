// SPDX-License-Identifier: Apache-2.0
/* The rounds in which ranks join: hello, addresses, regions and costs. See join.h. */
#include "core/setup/join.h"

#include "core/call/call.h"
#include "core/health/watchdog.h"
#include "exec/cpu/wait.h"
#include "gpu/proxy/gdr.h"
#include "plugin/catalogue.h"
#include "topology/draw/draw.h"
#include "topology/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- transports ---- */

static void log_line(const char *text)
{
    KOLO_LOG(INFO, NET, "%s", text);
}

static kolo_status fail_text(kolo_status status, const char *text)
{
    return kolo_fail(status, "%s", text);
}

static kolo_status open_transport(struct kolo_comm *c, const struct kolo_transport *transport)
{
    struct kolo_endpoint *device = NULL;
    if (c->nopened == KOLO_TRANSPORTS_MAX) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "more than %d transports", KOLO_TRANSPORTS_MAX);
    }
    const kolo_status st = transport->open(&c->env, &device);
    if (st < 0) {
        KOLO_LOG(INFO, NET, "transport %s is not used: %s", transport->base.name,
                 kolo_error_text());
        return st;
    }
    c->opened[c->nopened++] = (struct kolo_opened){transport, device};
    return KOLO_OK;
}

static void say_unused(struct kolo_comm *c, const struct kolo_transport *transport)
{
    (void)snprintf(c->unused, sizeof c->unused, "; %s is not used: %s", transport->base.name,
                   kolo_error_text());
}

/* Those that map memory, or those that only carry messages. One that cannot open is done without.
 * True if there was none such. */
static bool open_all(struct kolo_comm *c, bool maps)
{
    bool all = true;
    for (int i = 0; i < kolo_transport_count_all(); i++) {
        const struct kolo_transport *transport = kolo_transport_at(i);
        if (((transport->caps & KOLO_CAP_MAP) != 0) == maps &&
            open_transport(c, transport) != KOLO_OK) {
            all = false;
            say_unused(c, transport);
        }
    }
    return all;
}

/* The transports of config.transport in its order, or all that this communicator may need. */
static kolo_status open_transports(struct kolo_comm *c)
{
    char *list = strdup(c->transport_text), *rest = NULL;
    kolo_status st = list != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    for (char *word = list != NULL ? strtok_r(list, ",", &rest) : NULL;
         word != NULL && st == KOLO_OK; word = strtok_r(NULL, ",", &rest)) {
        const struct kolo_transport *transport = kolo_transport_find(word);
        st = transport != NULL ? open_transport(c, transport)
                               : kolo_fail(KOLO_ERR_INVALID,
                                           "no transport is called %s (config.transport or "
                                           "KOLO_TRANSPORT is \"%s\")",
                                           word, c->transport_text);
    }
    if (st == KOLO_OK && c->transport_text[0] == '\0') {
        const bool all = open_all(c, true);
        if (c->nhosts > 1 || !all) { /* else nobody would use them */
            (void)open_all(c, false);
        }
    }
    free(list);
    if (st == KOLO_OK && c->nopened == 0) {
        st = kolo_fail(KOLO_ERR_UNSUPPORTED, "no transport could be opened%s", c->unused);
    }
    return st;
}

/* Where rank q's address for a transport is; -1: it has not opened it. */
static int part_of(const struct kolo_address *from, const struct kolo_transport *transport)
{
    char name[TRANSPORT_NAME] = "";
    strncpy(name, transport->base.name, sizeof name - 1);
    for (int i = 0; i < KOLO_TRANSPORTS_MAX; i++) {
        const bool within = from->part[i].at + from->part[i].len <= ADDRESS_BYTES;
        if (within && memcmp(from->part[i].name, name, sizeof name) == 0) {
            return i;
        }
    }
    return -1;
}

static void use_address(struct kolo_member *m, const struct kolo_address *from, int part)
{
    m->peer.address = from->bytes + from->part[part].at;
    m->peer.address_len = from->part[part].len;
}

/* Of the transports that reach rank q, the one with the highest score. */
static kolo_status choose_transport(struct kolo_comm *c, int q, const struct kolo_address *from)
{
    struct kolo_member *m = &c->member[q];
    for (int i = 0; i < c->nopened; i++) {
        struct kolo_reach reach = {.size = sizeof reach};
        const int part = part_of(from, c->opened[i].transport);
        if (part < 0) {
            continue;
        }
        use_address(m, from, part);
        if (c->opened[i].transport->probe(c->opened[i].device, &m->peer, &reach) < 0) {
            say_unused(c, c->opened[i].transport);
            continue;
        }
        if (reach.caps == 0 || (m->transport != NULL && reach.score <= m->reach.score)) {
            continue;
        }
        m->transport = c->opened[i].transport;
        m->device = c->opened[i].device;
        m->reach = reach;
    }
    if (m->transport == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "no transport reaches rank %d (it is %s this host)%s", q,
                         m->peer.host == c->member[c->rank].peer.host ? "on" : "not on", c->unused);
    }
    use_address(m, from, part_of(from, m->transport));
    return KOLO_OK;
}

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
    if (!kolo_prove(c->meet.secret, all[0].key, sizeof all[0].key, c->secret)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "HMAC-SHA-256 failed");
    }
    KOLO_TRY(place_members(c));
    return order_members(c);
}

/* ---- round 2: addresses ---- */

static void make_env(struct kolo_comm *c)
{
    if (c->meet.place.family != 0) {
        (void)kolo_inet_ip(&c->meet.place, c->toward);
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
                               .on_peer_lost = kolo_comm_gone,
                               .failure_reason = kolo_comm_reason,
                               .on_peer_failed = kolo_comm_told,
                               .on_notify = kolo_comm_said,
                               .dma_buf = kolo_direct_export,
                               .copy = kolo_direct_copy,
                               .owner = c};
}

static kolo_status add_address(const struct kolo_opened *opened, int part, size_t *used,
                               struct kolo_address *out)
{
    const char *name = opened->transport->base.name;
    size_t len = ADDRESS_BYTES - *used;
    KOLO_TRY(opened->transport->address(opened->device, out->bytes + *used, &len));
    if (len > ADDRESS_BYTES - *used) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "the address of transport %s has %zu bytes; %zu fit",
                         name, len, ADDRESS_BYTES - *used);
    }
    strncpy(out->part[part].name, name, TRANSPORT_NAME - 1);
    out->part[part].at = (uint16_t)*used;
    out->part[part].len = (uint16_t)len;
    *used += len;
    return KOLO_OK;
}

/* A port that nobody listens on, until this rank is the first of a communicator that shrank: by
 * then the ranks could not tell each other any more. */
static kolo_status make_spare(struct kolo_comm *c, struct kolo_inet *out)
{
    struct kolo_interface at;
    if (c->nhosts == 1) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_net_choose(false, c->env.route_hint, &at));
    KOLO_TRY(kolo_net_reserve(&at, &c->spare_fd));
    *out = at.place;
    return KOLO_OK;
}

kolo_status kolo_address_make(struct kolo_comm *c, struct kolo_address *out)
{
    size_t used = 0;
    memset(out, 0, sizeof *out);
    make_env(c);
    KOLO_TRY(make_spare(c, &out->spare));
    KOLO_TRY(open_transports(c));
    for (int i = 0; i < c->nopened; i++) {
        KOLO_TRY(add_address(&c->opened[i], i, &used, out));
    }
    return KOLO_OK;
}

kolo_status kolo_address_take(struct kolo_comm *c, const struct kolo_address *all)
{
    const size_t bytes = (size_t)c->nranks * sizeof *all;
    c->addresses = malloc(bytes);
    if (c->addresses == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d addresses", c->nranks);
    }
    memcpy(c->addresses, all, bytes);
    for (int q = 0; q < c->nranks; q++) {
        c->member[q].spare = all[q].spare;
        if (q != c->rank) {
            KOLO_TRY(choose_transport(c, q,
                                      (const struct kolo_address *)(const void *)c->addresses + q));
        }
    }
    return KOLO_OK;
}

/* ---- round 3: regions and costs ---- */

/* The device whose memory our peers can map: the first that reaches one so, else the first there
 * is. */
static struct kolo_opened *find_mapper(struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        for (int i = 0; i < c->nopened && q != c->rank; i++) {
            if (c->opened[i].device == m->device && (m->reach.caps & KOLO_CAP_MAP) != 0) {
                return &c->opened[i];
            }
        }
    }
    return NULL;
}

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

/* A ring has 2(n-1) rounds, an all-to-all n - 1; trees and chains of few ranks some dozens. Inside
 * one host a ring of very many ranks is slower than what else there is, and its lines would be most
 * of the memory that they take. */
static int phases_for(const struct kolo_comm *c)
{
    const int rings = c->nrings < KOLO_LANES ? c->nrings : KOLO_LANES;
    const bool crowd = c->nhosts == 1 && c->nranks > 128;
    return (crowd ? 1 : 2 * rings) * c->nranks + 62;
}

static kolo_status make_region(struct kolo_comm *c)
{
    struct kolo_wires *w = &c->wires;
    const size_t n = (size_t)c->nranks, bytes = kolo_region_bytes(phases_for(c));
    *w = (struct kolo_wires){.me = c->rank,
                             .nranks = c->nranks,
                             .slot_bytes = KOLO_SLOT_BYTES,
                             .short_slot_bytes = KOLO_SHORT_SLOT_BYTES,
                             .phases = phases_for(c),
                             .timeout_us = c->timeout_ms * 1e3,
                             .aborted = &c->error,
                             .resolve = kolo_call_resolve,
                             .owner = c,
                             .stalled = kolo_comm_stalled,
                             .stuck_at = -1,
                             .blamed = -1};
    w->region = calloc(n, sizeof *w->region);
    w->slots = calloc(n, sizeof *w->slots);
    w->peer_in = calloc(n, sizeof *w->peer_in);
    w->peer_out = calloc(n, sizeof *w->peer_out);
    w->link = calloc(n, sizeof *w->link);
    w->transport = calloc(n, sizeof *w->transport);
    w->device = calloc(n, sizeof *w->device);
    w->seen_done = calloc(n, sizeof *w->seen_done);
    if (w->region == NULL || w->slots == NULL || w->peer_in == NULL || w->peer_out == NULL ||
        w->link == NULL || w->transport == NULL || w->device == NULL || w->seen_done == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    c->mapper = find_mapper(c);
    if (c->mapper != NULL) {
        KOLO_TRY(c->mapper->transport->map(c->mapper->device, NULL, bytes, &c->region));
    } else { /* nobody maps it, but the executor keeps its own flags there */
        c->region.ptr = aligned_alloc(4096, kolo_round_up(bytes, 4096));
        if (c->region.ptr == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a region of %zu bytes", bytes);
        }
        memset(c->region.ptr, 0, bytes);
    }
    w->region[c->rank] = c->region.ptr;
    c->own = &w->region[c->rank]->head;
    atomic_store(&c->member[c->rank].told_region, w->region[c->rank]);
    return KOLO_OK;
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
    KOLO_TRY(make_region(c));
    if (c->mapper != NULL) {
        memcpy(out->region, c->region.handle, sizeof out->region);
        out->mapper = (int32_t)(c->mapper - c->opened);
    }
    out->maps_all = maps_all(c);
    KOLO_TRY(kolo_board_make(c, out));
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
    KOLO_TRY(kolo_board_take(c, all));
    c->wires.waits_for = &c->post->waits_for;
    KOLO_TRY(kolo_watch(c));
    KOLO_TRY(kolo_mesh_begin(c, all));
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
