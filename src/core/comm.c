// SPDX-License-Identifier: Apache-2.0
/* Communicators: how they come up, and go down.
 *
 * Coming up is four rounds of "make a blob, get everybody's": hello (who, where, which library),
 * addresses of transports, regions, costs. The rounds run over a boot star for processes, or in a
 * loop for ranks that are threads of one process; the steps are the same functions. */
#include "core/comm.h"

#include "core/call.h"
#include "core/launch.h"
#include "core/p2p.h"
#include "core/plugins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- forks ---- */

static _Atomic unsigned fork_generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

unsigned kolo_fork_generation(void)
{
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

/* ---- blobs of the rounds ---- */

struct hello {
    uint32_t magic, version;
    int32_t rank, pid;
    uint64_t host, process;
    struct kolo_place place;
    uint32_t deterministic;
    uint64_t rules, transports; /* hashes of the texts that all ranks must share */
    uint64_t salt;              /* rank 0's makes the communicator's id */
};
enum { HELLO_MAGIC = 0x6b6f6c6f, ADDRESS_BYTES = 256 };

struct address {
    uint32_t len[KOLO_TRANSPORTS_MAX];
    unsigned char bytes[KOLO_TRANSPORTS_MAX][ADDRESS_BYTES];
};

struct ready {
    unsigned char region[KOLO_HANDLE_BYTES];
    struct kolo_costs costs;
    int32_t mapper; /* index of the transport that made the region */
};

/* ---- configuration ---- */

static int choose_int(int given, const char *name, int lo, int hi, int otherwise)
{
    long value = 0;
    if (given != KOLO_UNSET) {
        return given;
    }
    return kolo_parse_int(kolo_env(name), lo, hi, &value) ? (int)value : otherwise;
}

static char *choose_text(const char *given, const char *name, const char *otherwise)
{
    const char *text = given != NULL ? given : kolo_env(name);
    return strdup(text != NULL ? text : otherwise);
}

static kolo_status check_config(const struct kolo_comm *c)
{
    if (c->deterministic != 0 && c->deterministic != 1) {
        return kolo_fail(KOLO_ERR_INVALID, "config.deterministic is %d; it must be 0 or 1",
                         c->deterministic);
    }
    if (c->timeout_ms <= 0) {
        return kolo_fail(KOLO_ERR_INVALID, "config.timeout_ms is %d; it must be positive",
                         c->timeout_ms);
    }
    if (c->device != KOLO_HOST) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "config.device is %d; only KOLO_HOST (-1) is supported", c->device);
    }
    if (c->algo_text == NULL || c->transport_text == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a configuration");
    }
    return KOLO_OK;
}

static kolo_status read_config(struct kolo_comm *c, const struct kolo_config *given)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    if (given != NULL) {
        if (given->size < offsetof(struct kolo_config, deterministic) || given->size > 4096) {
            return kolo_fail(KOLO_ERR_INVALID, "config.size is %u; start from KOLO_CONFIG_INIT",
                             given->size);
        }
        memcpy(&config, given, kolo_min(given->size, sizeof config));
    }
    c->deterministic = choose_int(config.deterministic, "KOLO_DETERMINISTIC", 0, 1, 0);
    c->timeout_ms = choose_int(config.timeout_ms, "KOLO_TIMEOUT_MS", 1, 2147483647, 600000);
    c->device = config.device == KOLO_UNSET ? KOLO_HOST : config.device;
    c->algo_text = choose_text(config.algo, "KOLO_ALGO", "");
    c->transport_text = choose_text(config.transport, "KOLO_TRANSPORT", "");
    (void)snprintf(c->name, sizeof c->name, "%s", config.name != NULL ? config.name : "comm");
    KOLO_TRY(check_config(c));
    return c->algo_text[0] != '\0' ? kolo_rules_parse(c->algo_text, &c->rules) : KOLO_OK;
}

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
    struct kolo_device *device = NULL;
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

/* The transports of config.transport in its order, or all there are. */
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
    for (int i = 0; st == KOLO_OK && c->transport_text[0] == '\0' && i < kolo_transport_count_all();
         i++) {
        (void)open_transport(c, kolo_transport_at(i)); /* one that cannot open is done without */
    }
    free(list);
    if (st == KOLO_OK && c->nopened == 0) {
        st = kolo_fail(KOLO_ERR_UNSUPPORTED, "no transport could be opened");
    }
    return st;
}

/* Of the transports that reach rank q, the one with the highest score. */
static kolo_status choose_transport(struct kolo_comm *c, int q, const struct address *from)
{
    struct kolo_member *m = &c->member[q];
    for (int i = 0; i < c->nopened; i++) {
        struct kolo_reach reach = {.size = sizeof reach};
        m->peer.address = from->bytes[i];
        m->peer.address_len = from->len[i];
        if (c->opened[i].transport->probe(c->opened[i].device, &m->peer, &reach) < 0 ||
            reach.caps == 0 || (m->transport != NULL && reach.score <= m->reach.score)) {
            continue;
        }
        m->transport = c->opened[i].transport;
        m->device = c->opened[i].device;
        m->reach = reach;
    }
    if (m->transport == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "no transport reaches rank %d (it is %s this host)",
                         q, m->peer.host == c->member[c->rank].peer.host ? "on" : "not on");
    }
    for (int i = 0; i < c->nopened; i++) {
        if (c->opened[i].device == m->device) {
            m->peer.address = from->bytes[i];
            m->peer.address_len = from->len[i];
        }
    }
    return KOLO_OK;
}

/* ---- round 1: hello ---- */

static void make_hello(struct kolo_comm *c, struct hello *out)
{
    struct kolo_host *host = NULL;
    *out = (struct hello){.magic = HELLO_MAGIC,
                          .version = KOLO_VERSION,
                          .rank = c->rank,
                          .pid = (int)getpid(),
                          .host = kolo_host_id(),
                          .process = kolo_process_id(),
                          .place = kolo_place_unknown(),
                          .deterministic = (uint32_t)c->deterministic,
                          .rules = kolo_hash(0, c->algo_text, strlen(c->algo_text)),
                          .transports = kolo_hash(0, c->transport_text, strlen(c->transport_text))};
    const double now = kolo_now_us();
    const uint64_t stack = (uint64_t)(uintptr_t)c;
    out->salt = kolo_hash(kolo_hash(out->process, &now, sizeof now), &stack, sizeof stack);
    if (kolo_host_discover(&host) == KOLO_OK) {
        out->place = kolo_host_here(host);
        if (c->rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_GRAPH)) {
            struct kolo_text text = {0};
            kolo_host_print(host, &text);
            if (text.chars != NULL) {
                text.chars[strcspn(text.chars, "\n")] = '\0';
                KOLO_LOG(INFO, GRAPH, "host %s: %s", kolo_host_name(), text.chars);
            }
            kolo_text_free(&text);
        }
        kolo_host_destroy(host);
    }
}

static kolo_status check_hello(const struct kolo_comm *c, const struct hello *mine,
                               const struct hello *h, int q)
{
    if (h->magic != HELLO_MAGIC || h->version != KOLO_VERSION || h->rank != q) {
        return kolo_fail(KOLO_ERR_VERSION, "rank %d runs kolo %u, rank %d runs %d", q, h->version,
                         c->rank, KOLO_VERSION);
    }
    if (h->deterministic != mine->deterministic || h->rules != mine->rules ||
        h->transports != mine->transports) {
        return kolo_fail(KOLO_ERR_MISMATCH, "ranks %d and %d differ in %s", c->rank, q,
                         h->deterministic != mine->deterministic ? "config.deterministic"
                         : h->rules != mine->rules               ? "the rules of KOLO_ALGO"
                                                                 : "the list of KOLO_TRANSPORT");
    }
    return KOLO_OK;
}

static kolo_status order_members(struct kolo_comm *c)
{
    int *host_of = calloc((size_t)c->nranks, sizeof *host_of);
    struct kolo_place *place = calloc((size_t)c->nranks, sizeof *place);
    if (host_of == NULL || place == NULL) {
        free(host_of);
        free(place);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    }
    c->nhosts = 0;
    for (int q = 0; q < c->nranks; q++) {
        host_of[q] = -1;
        for (int p = 0; p < q && host_of[q] < 0; p++) {
            host_of[q] = c->member[p].peer.host == c->member[q].peer.host ? host_of[p] : -1;
        }
        host_of[q] = host_of[q] < 0 ? c->nhosts++ : host_of[q];
        place[q] = c->member[q].place;
    }
    for (int q = 0; q < c->nranks; q++) {
        c->local_rank += q < c->rank && host_of[q] == host_of[c->rank];
        c->local_size += host_of[q] == host_of[c->rank];
    }
    kolo_order_ranks(c->nranks, host_of, place, c->order);
    free(host_of);
    free(place);
    return KOLO_OK;
}

static kolo_status take_hellos(struct kolo_comm *c, const struct hello *all)
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
    }
    c->id = kolo_hash(all[0].salt, &all[0].process, sizeof all[0].process);
    return order_members(c);
}

/* ---- round 2: addresses ---- */

static kolo_status make_address(struct kolo_comm *c, struct address *out)
{
    memset(out, 0, sizeof *out);
    c->env = (struct kolo_env){.size = sizeof c->env,
                               .rank = c->rank,
                               .nranks = c->nranks,
                               .comm = c->id,
                               .self = &c->member[c->rank].peer,
                               .log = log_line,
                               .fail = fail_text,
                               .aborted = (const int *)(const void *)&c->error};
    KOLO_TRY(open_transports(c));
    for (int i = 0; i < c->nopened; i++) {
        size_t len = ADDRESS_BYTES;
        KOLO_TRY(c->opened[i].transport->address(c->opened[i].device, out->bytes[i], &len));
        out->len[i] = (uint32_t)len;
    }
    return KOLO_OK;
}

static kolo_status take_addresses(struct kolo_comm *c, const struct address *all)
{
    const size_t bytes = (size_t)c->nranks * sizeof *all;
    c->addresses = malloc(bytes);
    if (c->addresses == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d addresses", c->nranks);
    }
    memcpy(c->addresses, all, bytes);
    for (int q = 0; q < c->nranks; q++) {
        if (q != c->rank) {
            KOLO_TRY(
                choose_transport(c, q, (const struct address *)(const void *)c->addresses + q));
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

static int phases_for(int nranks)
{
    return 2 * nranks +
           62; /* a ring has 2(n-1) rounds; trees and chains of few ranks some dozens */
}

static kolo_status make_region(struct kolo_comm *c)
{
    struct kolo_wires *w = &c->wires;
    const size_t n = (size_t)c->nranks, bytes = kolo_region_bytes(phases_for(c->nranks));
    *w = (struct kolo_wires){.me = c->rank,
                             .nranks = c->nranks,
                             .slot_bytes = KOLO_SLOT_BYTES,
                             .phases = phases_for(c->nranks),
                             .timeout_us = c->timeout_ms * 1e3,
                             .aborted = &c->error,
                             .resolve = kolo_call_resolve,
                             .owner = c};
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
    return KOLO_OK;
}

static kolo_status make_ready(struct kolo_comm *c, struct ready *out)
{
    const char *given = kolo_env("KOLO_COSTS");
    struct kolo_host *host = NULL;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct ready){.mapper = -1};
    KOLO_TRY(make_region(c));
    if (c->mapper != NULL) {
        memcpy(out->region, c->region.handle, sizeof out->region);
        out->mapper = (int32_t)(c->mapper - c->opened);
    }
    if (kolo_host_discover(&host) == KOLO_OK) {
        cores = kolo_host_pus(host);
        kolo_host_destroy(host);
    }
    c->wires.crowded = c->local_size > cores;
    c->wires.membarrier = kolo_membarrier_register();
    if (c->rank == 0 && c->nranks > 1) {
        if (given == NULL || !kolo_costs_parse(given, &out->costs)) {
            kolo_costs_measure(cores, &out->costs);
        }
    }
    return KOLO_OK;
}

static kolo_status take_ready(struct kolo_comm *c, const struct ready *all)
{
    c->costs = all[0].costs;
    for (int q = 0; q < c->nranks; q++) {
        struct kolo_member *m = &c->member[q];
        memcpy(m->region, all[q].region, sizeof m->region);
        m->maps = q != c->rank && c->mapper != NULL && all[q].mapper == c->mapper - c->opened &&
                  m->device == c->mapper->device && (m->reach.caps & KOLO_CAP_MAP) != 0;
        c->wires.transport[q] = m->transport;
        c->wires.device[q] = m->device;
    }
    const int tuners = kolo_tuner_count_all();
    c->tuner = tuners > 0 ? kolo_tuner_at(tuners - 1) : NULL;
    if (c->tuner != NULL) {
        KOLO_TRY(c->tuner->open(&c->env, &c->tuner_self));
    }
    const struct kolo_chooser_options options = {.nranks = c->nranks,
                                                 .nhosts = c->nhosts,
                                                 .order = c->order,
                                                 .rules = c->rules,
                                                 .costs = c->costs,
                                                 .deterministic = c->deterministic != 0,
                                                 .tuner = c->tuner,
                                                 .tuner_self = c->tuner_self,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = c->wires.phases};
    return kolo_chooser_create(&options, &c->chooser);
}

/* ---- the log of a new communicator ---- */

static void log_layout(const struct kolo_comm *c)
{
    struct kolo_text text = {0};
    struct kolo_tree trees[2];
    for (int channel = 0; channel < 2 && c->rank == 0; channel++) {
        kolo_line_ring(&text, channel, 2, c->nranks, c->order);
        KOLO_LOG(INFO, INIT, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
    for (int t = 0; t < 2; t++) {
        kolo_tree_build(c->nranks, c->order, t, c->rank, &trees[t]);
    }
    kolo_line_trees(&text, c->rank, 2, trees);
    KOLO_LOG(INFO, INIT, "%s", text.chars != NULL ? text.chars : "");
    kolo_text_free(&text);
    int at = 0;
    while (c->order[at] != c->rank) {
        at++;
    }
    const int next = c->order[(at + 1) % c->nranks];
    for (int channel = 0; channel < 2 && next != c->rank; channel++) {
        const struct kolo_edge edge = {.channel = channel,
                                       .connection = 0,
                                       .from = c->rank,
                                       .from_device = c->local_rank,
                                       .to = next,
                                       .to_device = next,
                                       .via = c->member[next].reach.via};
        kolo_line_edge(&text, &edge);
        KOLO_LOG(INFO, SHM, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
}

static void log_start(const struct kolo_comm *c)
{
    static _Atomic int told;
    if (c->rank == 0 && atomic_exchange(&told, 1) == 0 &&
        kolo_log_on(KOLO_LEVEL_VERSION, KOLO_SUB_INIT)) {
        kolo_log_print(KOLO_LEVEL_VERSION, "kolo version %d.%d.%d", KOLO_VERSION_MAJOR,
                       KOLO_VERSION_MINOR, KOLO_VERSION_PATCH);
    }
    KOLO_LOG(INFO, INIT, "kolo_comm_create comm %p rank %d nranks %d name %s - Init START",
             (const void *)c, c->rank, c->nranks, c->name);
}

static void log_done(const struct kolo_comm *c, const double at[5])
{
    if (!kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_INIT)) {
        return;
    }
    KOLO_LOG(INFO, INIT, "comm %p rank %d nRanks %d nNodes %d localRanks %d localRank %d",
             (const void *)c, c->rank, c->nranks, c->nhosts, c->local_size, c->local_rank);
    log_layout(c);
    if (c->rank == 0 && c->nranks > 1) {
        KOLO_LOG(INFO, TUNE,
                 "costs: %d cores, flag %.2g us, copy %.2g GB/s, sum %.2g GB/s, switch %.2g us, "
                 "kernels %s",
                 c->costs.cores, c->costs.latency_us, 1e-3 / c->costs.copy_us_per_byte,
                 1e-3 / c->costs.reduce_us_per_byte, c->costs.switch_us, kolo_reduce_isa());
    }
    KOLO_LOG(
        INFO, INIT,
        "Init timings: rank %d nranks %d total %.2f ms (meet %.2f, addresses %.2f, regions %.2f, "
        "costs and choice %.2f)",
        c->rank, c->nranks, (at[4] - at[0]) / 1e3, (at[1] - at[0]) / 1e3, (at[2] - at[1]) / 1e3,
        (at[3] - at[2]) / 1e3, (at[4] - at[3]) / 1e3);
    KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d commId 0x%llx region %zu bytes - Init COMPLETE",
             (const void *)c, c->rank, c->nranks, (unsigned long long)c->id,
             kolo_region_bytes(c->wires.phases));
}

/* ---- creation ---- */

static kolo_status comm_new(int nranks, int rank, const struct kolo_config *config,
                            struct kolo_comm **out)
{
    pthread_once(&fork_once, watch_forks);
    KOLO_TRY(kolo_plugins_load());
    struct kolo_comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator");
    }
    c->rank = rank;
    c->nranks = nranks;
    c->fork_generation = kolo_fork_generation();
    pthread_mutex_init(&c->device_lock, NULL);
    pthread_mutex_init(&c->queue_lock, NULL);
    pthread_mutex_init(&c->error_lock, NULL);
    kolo_status st = read_config(c, config);
    c->member = calloc((size_t)nranks, sizeof *c->member);
    c->order = calloc((size_t)nranks, sizeof *c->order);
    if (st == KOLO_OK && (c->member == NULL || c->order == NULL)) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    log_start(c);
    *out = c;
    return KOLO_OK;
}

struct rounds { /* room for everybody's blobs */
    struct hello *hello;
    struct address *address;
    struct ready *ready;
};

static void rounds_free(struct rounds *r)
{
    free(r->hello);
    free(r->address);
    free(r->ready);
}

static kolo_status rounds_make(int nranks, struct rounds *r)
{
    r->hello = calloc((size_t)nranks, sizeof *r->hello);
    r->address = calloc((size_t)nranks, sizeof *r->address);
    r->ready = calloc((size_t)nranks, sizeof *r->ready);
    if (r->hello == NULL || r->address == NULL || r->ready == NULL) {
        rounds_free(r);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    return KOLO_OK;
}

static kolo_status join_over_boot(struct kolo_comm *c, struct kolo_boot *boot, struct rounds *r,
                                  double at[5])
{
    struct hello hello;
    struct address address;
    struct ready ready;
    at[1] = kolo_now_us();
    make_hello(c, &hello);
    KOLO_TRY(kolo_boot_all_gather(boot, &hello, sizeof hello, r->hello));
    KOLO_TRY(take_hellos(c, r->hello));
    KOLO_TRY(make_address(c, &address));
    KOLO_TRY(kolo_boot_all_gather(boot, &address, sizeof address, r->address));
    KOLO_TRY(take_addresses(c, r->address));
    at[2] = kolo_now_us();
    KOLO_TRY(make_ready(c, &ready));
    KOLO_TRY(kolo_boot_all_gather(boot, &ready, sizeof ready, r->ready));
    at[3] = kolo_now_us();
    KOLO_TRY(take_ready(c, r->ready));
    KOLO_TRY(kolo_boot_barrier(boot));
    at[4] = kolo_now_us();
    return KOLO_OK;
}

static kolo_status create_at(const struct kolo_meet *meet, int nranks, int rank, bool hub,
                             const struct kolo_config *config, struct kolo_comm **out)
{
    struct kolo_comm *c = NULL;
    struct kolo_boot *boot = NULL;
    struct rounds rounds = {0};
    double at[5] = {kolo_now_us(), 0, 0, 0, 0};
    KOLO_TRY(comm_new(nranks, rank, config, &c));
    c->meet = *meet;
    kolo_status st = rounds_make(nranks, &rounds);
    st = st == KOLO_OK ? kolo_boot_open(meet, nranks, rank, hub, c->timeout_ms, &boot) : st;
    st = st == KOLO_OK ? join_over_boot(c, boot, &rounds, at) : st;
    kolo_boot_close(boot);
    rounds_free(&rounds);
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    log_done(c, at);
    *out = c;
    return KOLO_OK;
}

static kolo_status check_ranks(int nranks, int rank)
{
    if (nranks < 1 || nranks > KOLO_BOOT_MAX_RANKS) {
        return kolo_fail(KOLO_ERR_INVALID, "nranks is %d; it must be 1 to %d", nranks,
                         KOLO_BOOT_MAX_RANKS);
    }
    if (rank < 0 || rank >= nranks) {
        return kolo_fail(KOLO_ERR_INVALID, "rank is %d; it must be 0 to %d", rank, nranks - 1);
    }
    return KOLO_OK;
}

kolo_status kolo_comm_create(const struct kolo_id *id, int nranks, int rank,
                             const struct kolo_config *config, struct kolo_comm **out)
{
    struct kolo_meet meet;
    if (id == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", id == NULL ? "id" : "out");
    }
    KOLO_TRY(check_ranks(nranks, rank));
    KOLO_TRY(kolo_meet_from_id(id, &meet));
    return create_at(&meet, nranks, rank, false, config, out);
}

kolo_status kolo_comm_create_env(const struct kolo_config *config, struct kolo_comm **out)
{
    struct kolo_launch launch;
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    KOLO_TRY(kolo_launch_next(&launch));
    KOLO_LOG(INFO, INIT, "launched by %s: rank %d of %d", launch.launcher, launch.rank,
             launch.nranks);
    return create_at(&launch.meet, launch.nranks, launch.rank, launch.rank == 0, config, out);
}

/* The rounds of ranks that are all here. */
static kolo_status join_in_process(struct kolo_comm **c, int n, struct rounds *r)
{
    for (int i = 0; i < n; i++) {
        make_hello(c[i], &r->hello[i]);
        r->hello[i].place = kolo_place_unknown(); /* its thread is not known yet */
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(take_hellos(c[i], r->hello));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(make_address(c[i], &r->address[i]));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(take_addresses(c[i], r->address));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(make_ready(c[i], &r->ready[i]));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(take_ready(c[i], r->ready));
    }
    return KOLO_OK;
}

kolo_status kolo_comm_create_local(int nranks, const struct kolo_config *config,
                                   struct kolo_comm *out[])
{
    const double begin = kolo_now_us();
    struct rounds rounds = {0};
    static _Atomic unsigned counter;
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    KOLO_TRY(check_ranks(nranks, 0));
    struct kolo_comm **c = calloc((size_t)nranks, sizeof(struct kolo_comm *));
    kolo_status st = c != NULL ? rounds_make(nranks, &rounds)
                               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    const unsigned number = atomic_fetch_add(&counter, 1);
    for (int i = 0; i < nranks && st == KOLO_OK; i++) {
        st = comm_new(nranks, i, config, &c[i]);
        if (st == KOLO_OK) {
            (void)snprintf(c[i]->meet.name, sizeof c[i]->meet.name, "local-%llx-%u",
                           (unsigned long long)kolo_process_id(), number);
        }
    }
    st = st == KOLO_OK ? join_in_process(c, nranks, &rounds) : st;
    const double end = kolo_now_us();
    const double at[5] = {begin, begin, begin, end, end};
    for (int i = 0; i < nranks && c != NULL; i++) {
        if (st == KOLO_OK) {
            log_done(c[i], at);
            out[i] = c[i];
        } else {
            kolo_comm_destroy(c[i]);
        }
    }
    rounds_free(&rounds);
    free(c);
    return st;
}

/* ---- parts of communicators ---- */

static void name_meeting(const struct kolo_comm *parent, const char *what, unsigned number,
                         int color, struct kolo_meet *out)
{
    *out = parent->meet;
    (void)snprintf(out->name, sizeof out->name, "%s-%u-%d-%llx", what, number, color,
                   (unsigned long long)parent->id);
}

static struct kolo_config inherited(const struct kolo_comm *c)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.deterministic = c->deterministic;
    config.timeout_ms = c->timeout_ms;
    config.device = c->device;
    config.name = c->name;
    config.algo = c->algo_text;
    config.transport = c->transport_text;
    return config;
}

kolo_status kolo_comm_split(struct kolo_comm *comm, int color, int key,
                            const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_TRY(kolo_comm_usable(comm));
    if (out == NULL || (color < 0 && color != KOLO_NO_COLOR)) {
        return out == NULL ? kolo_fail(KOLO_ERR_INVALID, "out is NULL")
                           : kolo_fail(KOLO_ERR_INVALID,
                                       "color is %d; it must be >= 0 or KOLO_NO_COLOR", color);
    }
    const int32_t mine[2] = {color, key};
    const unsigned number = comm->splits++;
    struct kolo_meet meet;
    int32_t *all = calloc((size_t)comm->nranks, sizeof mine);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", comm->nranks);
    }
    const kolo_status st = kolo_all_gather(mine, all, 2, KOLO_INT32, comm, NULL);
    int rank = 0, size = 0;
    for (int q = 0; q < comm->nranks && st == KOLO_OK; q++) {
        const bool before = all[2 * q + 1] < key || (all[2 * q + 1] == key && q < comm->rank);
        size += all[2 * q] == color;
        rank += all[2 * q] == color && before;
    }
    free(all);
    KOLO_TRY(st);
    if (color == KOLO_NO_COLOR) {
        *out = NULL;
        return KOLO_OK;
    }
    const struct kolo_config as_parent = inherited(comm);
    name_meeting(comm, "split", number, color, &meet);
    return create_at(&meet, size, rank, rank == 0, config != NULL ? config : &as_parent, out);
}

kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                             const struct kolo_config *config, struct kolo_comm **out)
{
    struct kolo_meet meet;
    int rank = comm != NULL ? comm->rank : 0;
    if (comm == NULL || out == NULL || (exclude == NULL && nexclude > 0)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL",
                         comm == NULL  ? "comm"
                         : out == NULL ? "out"
                                       : "exclude");
    }
    if (comm->fork_generation != kolo_fork_generation()) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    uint64_t who = 0;
    for (int i = 0; i < nexclude; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) {
            again = again || exclude[k] == exclude[i];
        }
        if (exclude[i] < 0 || exclude[i] >= comm->nranks || exclude[i] == comm->rank || again) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "exclude[%d] is %d; it must be another rank (0 to %d), each once", i,
                             exclude[i], comm->nranks - 1);
        }
        rank -= exclude[i] < comm->rank;
        who += UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(exclude[i] + 1); /* in any order */
    }
    const struct kolo_config as_parent = inherited(comm);
    name_meeting(comm, "shrink", (unsigned)who, nexclude, &meet);
    return create_at(&meet, comm->nranks - nexclude, rank, rank == 0,
                     config != NULL ? config : &as_parent, out);
}

/* ---- links, when first needed ---- */

kolo_status kolo_comm_reach(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    if (m->link == NULL) {
        KOLO_TRY(m->transport->connect(m->device, &m->peer, &m->link));
        c->wires.link[q] = m->link;
    }
    if (m->maps && c->wires.region[q] == NULL) {
        void *region = NULL;
        size_t len = 0;
        KOLO_TRY(m->transport->attach(m->link, m->region, &region, &len));
        c->wires.region[q] = region;
    }
    return KOLO_OK;
}

kolo_status kolo_comm_make_slots(struct kolo_comm *c)
{
    struct kolo_head *head = &c->wires.region[c->rank]->head;
    if (c->slots.ptr != NULL || c->mapper == NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(c->mapper->transport->map(c->mapper->device, NULL,
                                       (size_t)KOLO_DEPTH * KOLO_SLOT_BYTES, &c->slots));
    (void)madvise(c->slots.ptr, c->slots.len, MADV_HUGEPAGE);
    c->wires.slots[c->rank] = c->slots.ptr;
    memcpy(head->slots, c->slots.handle, sizeof head->slots);
    atomic_store_explicit(&head->slots_ready, 1, memory_order_release);
    KOLO_LOG(INFO, EXEC, "comm %p rank %d outbox %zu bytes", (void *)c, c->rank, c->slots.len);
    return KOLO_OK;
}

kolo_status kolo_comm_map_slots(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    void *slots = NULL;
    size_t len = 0;
    if (m->in_slots) {
        return KOLO_OK;
    }
    struct kolo_head *head = &c->wires.region[q]->head;
    if (!kolo_reached(&head->slots_ready, 1)) {
        return KOLO_INPROGRESS;
    }
    KOLO_TRY(m->transport->attach(m->link, head->slots, &slots, &len));
    if (len < (size_t)KOLO_DEPTH * KOLO_SLOT_BYTES) {
        return kolo_fail(KOLO_ERR_INTERNAL, "the outbox of rank %d has %zu bytes", q, len);
    }
    c->wires.slots[q] = slots;
    m->in_slots = true;
    return KOLO_OK;
}

/* ---- errors ---- */

kolo_status kolo_comm_usable(const struct kolo_comm *comm)
{
    if (KOLO_UNLIKELY(comm == NULL)) {
        return kolo_fail(KOLO_ERR_INVALID, "comm is NULL");
    }
    if (KOLO_UNLIKELY(comm->fork_generation != kolo_fork_generation())) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    const int error = atomic_load_explicit(&comm->error, memory_order_acquire);
    if (KOLO_UNLIKELY(error != KOLO_OK)) {
        return kolo_fail((kolo_status)error, "this communicator has failed: %s", comm->error_text);
    }
    return KOLO_OK;
}

static void tell_peers(struct kolo_comm *c, kolo_status why)
{
    for (int q = 0; q < c->nranks; q++) {
        struct kolo_region *region = c->wires.region != NULL ? c->wires.region[q] : NULL;
        int32_t none = 0;
        if (c->member[q].link != NULL) {
            c->member[q].transport->abort(c->member[q].link, why);
        }
        if (region == NULL) {
            continue;
        }
        atomic_compare_exchange_strong(&region->head.abort, &none, (int32_t)why);
        kolo_wake(&c->wires, &q, 1);
    }
}

/* This rank was told of another's failure, which says nothing of the reason. */
static bool was_told(const struct kolo_comm *c, kolo_status status)
{
    const struct kolo_region *mine = c->wires.region != NULL ? c->wires.region[c->rank] : NULL;
    return mine != NULL && atomic_load(&mine->head.abort) == (int32_t)status;
}

kolo_status kolo_comm_fail(struct kolo_comm *c, kolo_status status)
{
    pthread_mutex_lock(&c->error_lock);
    kolo_status first = (kolo_status)atomic_load(&c->error);
    if (first != KOLO_OK) {
        kolo_error_set(c->error_text);
    } else {
        if (was_told(c, status)) {
            kolo_error_set("another rank failed or was aborted");
        }
        (void)snprintf(c->error_text, sizeof c->error_text, "%s", kolo_error_text());
        atomic_store_explicit(&c->error, (int)status, memory_order_release);
        first = status;
        KOLO_LOG(INFO, INIT, "comm %p rank %d failed: %s: %s", (void *)c, c->rank,
                 kolo_status_name(status), c->error_text);
        tell_peers(c, KOLO_ERR_ABORTED);
    }
    pthread_mutex_unlock(&c->error_lock);
    return first;
}

void kolo_comm_abort(struct kolo_comm *comm)
{
    if (comm == NULL || comm->fork_generation != kolo_fork_generation()) {
        return;
    }
    kolo_error_set("kolo_comm_abort() was called");
    (void)kolo_comm_fail(comm, KOLO_ERR_ABORTED);
}

kolo_status kolo_comm_error(const struct kolo_comm *comm)
{
    return comm == NULL ? KOLO_ERR_INVALID
                        : (kolo_status)atomic_load_explicit(&comm->error, memory_order_acquire);
}

int kolo_comm_rank(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->rank : -1;
}

int kolo_comm_size(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->nranks : -1;
}

/* ---- going down ---- */

static void free_wires(struct kolo_wires *w)
{
    free(w->region);
    free(w->slots);
    free(w->peer_in);
    free(w->peer_out);
    free(w->link);
    free(w->transport);
    free(w->device);
    free(w->seen_done);
}

static void close_devices(struct kolo_comm *c)
{
    for (int q = 0; c->member != NULL && q < c->nranks; q++) {
        if (c->member[q].link != NULL) {
            c->member[q].transport->disconnect(c->member[q].link);
        }
    }
    if (c->mapper != NULL) {
        if (c->slots.ptr != NULL) {
            c->mapper->transport->unmap(c->mapper->device, &c->slots);
        }
        if (c->region.ptr != NULL) {
            c->mapper->transport->unmap(c->mapper->device, &c->region);
        }
    } else {
        free(c->region.ptr);
    }
    for (int i = 0; i < c->nopened; i++) {
        c->opened[i].transport->close(c->opened[i].device);
    }
}

void kolo_comm_destroy(struct kolo_comm *c)
{
    if (c == NULL) {
        return;
    }
    if (c->fork_generation != kolo_fork_generation()) {
        return; /* the parent's; nothing of it may be touched here */
    }
    if (c->chooser != NULL) {
        kolo_call_drain(c);
        kolo_p2p_close(c);
        KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d - Destroy COMPLETE", (void *)c, c->rank,
                 c->nranks);
    }
    kolo_call_forget(c);
    close_devices(c);
    free_wires(&c->wires);
    kolo_chooser_destroy(c->chooser);
    kolo_rules_destroy(c->rules);
    if (c->tuner != NULL && c->tuner_self != NULL) {
        c->tuner->close(c->tuner_self);
    }
    pthread_mutex_destroy(&c->device_lock);
    pthread_mutex_destroy(&c->queue_lock);
    pthread_mutex_destroy(&c->error_lock);
    free(c->member);
    free(c->addresses);
    free(c->order);
    free(c->algo_text);
    free(c->transport_text);
    free(c);
}
