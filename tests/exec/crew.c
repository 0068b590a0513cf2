// SPDX-License-Identifier: Apache-2.0
#include "crew.h"

#include "exec/cpu/bound.h"
#include "exec/cpu/env.h"
#include "exec/cpu/exec.h"
#include "exec/cpu/wait.h"
#include "transports/transports.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct crew_rank {
    struct crew *crew;
    struct kolo_exec_env env;
    struct kolo_peer peer;
    unsigned char address[256];
    struct kolo_endpoint *device;
    const struct crew_call *call;
    int ncalls;
    uint64_t random;
    unsigned jitter;
    kolo_status status;
    char text[512];
};

struct crew {
    int n;
    enum crew_links links;
    unsigned seed;
    struct crew_rank *rank;
    struct kolo_region **region;
    char **slots;
    _Atomic int stop;
    struct kolo_transport transport;
};

const char *crew_links_name(enum crew_links links)
{
    static const char *const names[] = {"mapped", "arena", "message", "mixed"};
    return names[links];
}

static unsigned draw(unsigned seed, int a, int b)
{
    uint64_t x =
        seed * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)(unsigned)a * 1000003u + (unsigned)b * 77u;
    x ^= x >> 31;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (unsigned)(x >> 40) % 4;
}

static bool shared(enum crew_links links, unsigned seed, int rank, int buf)
{
    return links == CREW_MAPPED || (links == CREW_MIXED && draw(seed, rank + 1000, buf) != 0);
}

bool crew_apart(enum crew_links links, unsigned seed, int rank)
{
    return (links == CREW_MAPPED || links == CREW_MIXED) && seed % 2 == 0 &&
           draw(seed, rank + 2000, 2) != 0;
}

uint8_t crew_bits(enum crew_links links, unsigned seed, int me, int q)
{
    const int lo = me < q ? me : q, hi = me < q ? q : me;
    if (links == CREW_MESSAGE || (links == CREW_MIXED && draw(seed, lo, hi) == 0)) {
        return 0;
    }
    return (uint8_t)(KOLO_LINK_MAP | (shared(links, seed, q, 0) ? KOLO_LINK_PEER_IN : 0) |
                     (shared(links, seed, q, 1) ? KOLO_LINK_PEER_OUT : 0) |
                     (shared(links, seed, me, 0) ? KOLO_LINK_MY_IN : 0) |
                     (shared(links, seed, me, 1) ? KOLO_LINK_MY_OUT : 0) |
                     (crew_apart(links, seed, q) ? KOLO_LINK_PEER_APART : 0) |
                     (crew_apart(links, seed, me) ? KOLO_LINK_MY_APART : 0));
}

static void log_nothing(const char *text)
{
    (void)text;
}

static kolo_status fail_text(kolo_status status, const char *text)
{
    return kolo_fail(status, "%s", text);
}

static kolo_status resolve(struct kolo_exec_env *env, int q, const struct kolo_entry *entry)
{
    env->peer_in[q] = (const void *)(uintptr_t)entry->in_at;
    env->peer_out[q] = (void *)(uintptr_t)entry->out_at;
    return KOLO_OK;
}

static void jitter(void *arg)
{
    struct crew_rank *r = arg;
    r->random = r->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    const unsigned draw = (unsigned)(r->random >> 33);
    if (draw % 4 == 0) {
        for (unsigned i = 0; i < draw / 4 % 8; i++) {
            sched_yield();
        }
    }
}

static void open_rank(struct crew *c, int rank, size_t slot_bytes, size_t short_slot_bytes,
                      int phases)
{
    struct crew_rank *r = &c->rank[rank];
    const size_t n = (size_t)c->n;
    c->region[rank] = aligned_alloc(KOLO_LINE_BYTES, kolo_region_bytes(phases));
    memset(c->region[rank], 0, kolo_region_bytes(phases));
    c->slots[rank] = calloc(1, kolo_outbox_bytes(slot_bytes, short_slot_bytes));
    r->crew = c;
    r->env =
        (struct kolo_exec_env){.me = rank,
                               .nranks = c->n,
                               .region = c->region,
                               .slots = c->slots,
                               .slot_bytes = slot_bytes,
                               .short_slot_bytes = short_slot_bytes,
                               .turn_bytes = slot_bytes,
                               .phases = phases,
                               .cache_bytes = (size_t)rank % 2, /* odd ranks store past it */
                               /* ranks 0, 2, 3, 5, ... store past them into outboxes */
                               .store_rule = rank % 3 == 1 ? KOLO_STORE_ORDINARY : KOLO_STORE_PAST,
                               .crowded = true,
                               .timeout_us = 20e6,
                               .aborted = &c->stop,
                               .resolve = resolve};
    r->env.peer_in = calloc(n, sizeof(void *));
    r->env.peer_out = calloc(n, sizeof(void *));
    r->env.link = calloc(n, sizeof(void *));
    r->env.transport = calloc(n, sizeof(void *));
    r->env.endpoint = calloc(n, sizeof(void *));
    r->env.seen_done = calloc(n, sizeof(uint32_t));
    r->env.jitter_arg = r;
    r->peer =
        (struct kolo_peer){.size = sizeof r->peer, .rank = rank, .pid = 1, .host = 1, .process = 1};
    const struct kolo_env env = {.size = sizeof env,
                                 .rank = rank,
                                 .nranks = c->n,
                                 .comm = (uint64_t)(uintptr_t)c,
                                 .self = &r->peer,
                                 .log = log_nothing,
                                 .fail = fail_text,
                                 .aborted = NULL};
    r->peer.address_len = sizeof r->address;
    if (kolo_transport_loop.open(&env, &r->device) != KOLO_OK ||
        kolo_transport_loop.address(r->device, r->address, &r->peer.address_len) != KOLO_OK) {
        abort();
    }
    r->peer.address = r->address;
}

/* The loop, which stores into exclusive memory what a transport may that reads ahead. */
static kolo_status scribble_and_receive(struct kolo_link *link, const struct kolo_bytes *dst,
                                        struct kolo_req *req)
{
    for (size_t i = 0; req->exclusive != 0 && dst->bytes > 0 && i < dst->count; i++) {
        memset((char *)dst->at + i * dst->stride, 0xa5, dst->bytes);
    }
    return kolo_transport_loop.recv(link, dst, req);
}

struct crew *crew_create(int nranks, enum crew_links links, unsigned seed, size_t slot_bytes,
                         size_t short_slot_bytes, int phases)
{
    struct crew *c = calloc(1, sizeof *c);
    c->n = nranks;
    c->links = links;
    c->seed = seed;
    c->rank = calloc((size_t)nranks, sizeof *c->rank);
    c->region = calloc((size_t)nranks, sizeof(void *));
    c->slots = calloc((size_t)nranks, sizeof(void *));
    c->transport = kolo_transport_loop;
    c->transport.recv = scribble_and_receive;
    for (int r = 0; r < nranks; r++) {
        open_rank(c, r, slot_bytes, short_slot_bytes, phases);
    }
    for (int r = 0; r < nranks; r++) {
        for (int q = 0; q < nranks; q++) {
            struct kolo_exec_env *env = &c->rank[r].env;
            if (q == r || (crew_bits(links, seed, r, q) & KOLO_LINK_MAP) != 0) {
                continue;
            }
            env->transport[q] = &c->transport;
            env->endpoint[q] = c->rank[r].device;
            if (kolo_transport_loop.connect(env->endpoint[q], &c->rank[q].peer, &env->link[q]) !=
                KOLO_OK) {
                abort();
            }
        }
    }
    return c;
}

void crew_destroy(struct crew *c)
{
    for (int r = 0; c != NULL && r < c->n; r++) {
        struct kolo_exec_env *env = &c->rank[r].env;
        for (int q = 0; q < c->n; q++) {
            if (env->link[q] != NULL) {
                kolo_transport_loop.disconnect(env->link[q]);
            }
        }
        kolo_transport_loop.close(c->rank[r].device);
        free(env->peer_in);
        free(env->peer_out);
        free(env->link);
        free(env->transport);
        free(env->endpoint);
        free(env->seen_done);
        free(c->region[r]);
        free(c->slots[r]);
    }
    if (c != NULL) {
        free(c->rank);
        free(c->region);
        free(c->slots);
    }
    free(c);
}

static kolo_status run_call(struct crew_rank *r, const struct crew_call *call,
                            struct kolo_bound **bound)
{
    struct kolo_exec_env *env = &r->env;
    struct kolo_extents extents;
    size_t *arrays = NULL;
    unsigned spins = 0;
    double deadline = 0;
    KOLO_TRY(
        kolo_extents_make(call->prog->plan, env->me, &call->args, call->elem, &extents, &arrays));
    kolo_status st = kolo_bind(call->prog, &extents, env, bound);
    free(arrays);
    KOLO_TRY(st);
    const struct kolo_entry mine = {.in_at = (uintptr_t)call->in, .out_at = (uintptr_t)call->out};
    kolo_entry_publish(env, &mine);
    for (int q = 0; q < env->nranks; q++) {
        KOLO_TRY(q == env->me || env->region[q] == NULL ? KOLO_OK : kolo_entry_wait(env, q, true));
    }
    struct kolo_exec x = {.env = env,
                          .bound = *bound,
                          .in = call->in,
                          .out = call->out,
                          .reduce = call->reduce,
                          .divisor = call->divisor,
                          .elem = call->elem,
                          .block = true};
    kolo_exec_start(&x);
    while ((st = kolo_exec_step(&x)) == KOLO_INPROGRESS) {
        KOLO_TRY(kolo_pause(env, &spins, &deadline));
    }
    env->entries++;
    return st;
}

static void *run_rank(void *arg)
{
    struct crew_rank *r = arg;
    struct kolo_bound **bound = calloc((size_t)r->ncalls, sizeof(void *));
    r->status = KOLO_OK;
    r->env.jitter = r->jitter != 0 ? jitter : NULL;
    r->random = r->jitter * 2654435761u + (unsigned)r->env.me * 40503u;
    for (int i = 0; i < r->ncalls && r->status == KOLO_OK; i++) {
        const struct crew_call *call = &r->call[i];
        if (call->hook != NULL) {
            call->hook(call->hook_arg, false);
        }
        r->status = run_call(r, call, &bound[i]);
        if (call->hook != NULL && r->status == KOLO_OK) {
            call->hook(call->hook_arg, true);
        }
    }
    if (r->status != KOLO_OK) {
        strncpy(r->text, kolo_error_text(), sizeof r->text - 1);
        int none = 0;
        atomic_compare_exchange_strong(&r->crew->stop, &none, KOLO_ERR_ABORTED);
    }
    for (int i = 0; i < r->ncalls; i++) {
        kolo_bound_destroy(bound[i]);
    }
    free(bound);
    return NULL;
}

kolo_status crew_run(struct crew *c, int ncalls, const struct crew_call *call, unsigned jitter_seed,
                     double timeout_ms)
{
    pthread_t thread[64];
    kolo_status first = KOLO_OK;
    for (int r = 0; r < c->n; r++) {
        struct crew_rank *rank = &c->rank[r];
        rank->call = &call[r * ncalls];
        rank->ncalls = ncalls;
        rank->jitter = jitter_seed;
        rank->env.timeout_us = timeout_ms * 1e3;
        if (pthread_create(&thread[r], NULL, run_rank, rank) != 0) {
            abort();
        }
    }
    for (int r = 0; r < c->n; r++) {
        pthread_join(thread[r], NULL);
        if (c->rank[r].status != KOLO_OK && (first == KOLO_OK || first == KOLO_ERR_ABORTED)) {
            first = c->rank[r].status;
            kolo_error_set(c->rank[r].text);
        }
    }
    return first;
}
