// SPDX-License-Identifier: Apache-2.0
/* Communicators: how they come up, and go down.
 *
 * Coming up is three rounds of "make a blob, get everybody's": hello (who, where, which library),
 * addresses of transports, regions and costs. The rounds run over a boot star for processes, or in
 * a loop for ranks that are threads of one process; the steps are the same functions. */
#include "boot/launch.h"
#include "core/call/memo.h"
#include "core/comm.h"
#include "core/health/watchdog.h"
#include "core/setup/join.h"
#include "gpu/path.h"
#include "memory/segment.h"
#include "memory/serve.h"
#include "plugin/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- forks ---- */

_Atomic unsigned kolo_forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    kolo_watch_after_fork(true);
    atomic_fetch_add_explicit(&kolo_forks, 1, memory_order_relaxed);
}

static void in_parent(void)
{
    kolo_watch_after_fork(false);
}

static void watch_forks(void)
{
    (void)pthread_atfork(kolo_watch_before_fork, in_parent, in_child);
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
    c->spare_fd = -1;
    c->fork_generation = kolo_fork_generation();
    pthread_mutex_init(&c->device_lock, NULL);
    pthread_mutex_init(&c->queue_lock, NULL);
    pthread_mutex_init(&c->error_lock, NULL);
    kolo_status st = kolo_comm_configure(c, config);
    c->member = calloc((size_t)nranks, sizeof *c->member);
    c->order = calloc((size_t)nranks, sizeof *c->order);
    c->place = calloc((size_t)nranks, sizeof *c->place);
    c->post = c->own_post = aligned_alloc(_Alignof(struct kolo_post), sizeof *c->own_post);
    if (st == KOLO_OK && (c->member == NULL || c->order == NULL || c->place == NULL ||
                          c->own_post == NULL || !kolo_memo_create(c))) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    memset(c->own_post, 0, sizeof *c->own_post);
    c->wires.blamed = -1;
    kolo_log_start(c);
    *out = c;
    return KOLO_OK;
}

struct rounds { /* room for everybody's blobs; to be freed in any case */
    struct kolo_hello *hello;
    struct kolo_address *address;
    struct kolo_ready *ready;
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
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    return KOLO_OK;
}

/* Rank 0's table, or what is wrong with it: on all ranks the same. */
static kolo_status spread_table(struct kolo_comm *c, struct kolo_boot *boot,
                                const struct kolo_ready *first)
{
    if (first->table_bytes == 0) {
        return KOLO_OK;
    }
    if (c->table_text == NULL) {
        c->table_text = malloc(first->table_bytes);
    }
    if (c->table_text == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a table");
    }
    KOLO_TRY(kolo_boot_spread(boot, c->table_text, first->table_bytes));
    return kolo_table_take(c, first, c->table_text);
}

static kolo_status join_over_boot(struct kolo_comm *c, struct kolo_boot *boot, struct rounds *r,
                                  double at[5])
{
    struct kolo_hello hello;
    struct kolo_address address;
    struct kolo_ready ready;
    at[1] = kolo_now_us();
    KOLO_TRY(kolo_hello_make(c, &hello));
    KOLO_TRY(kolo_boot_all_gather(boot, &hello, sizeof hello, r->hello));
    KOLO_TRY(kolo_hello_take(c, r->hello));
    KOLO_TRY(kolo_live_lay(c, boot));
    KOLO_TRY(kolo_address_make(c, &address));
    KOLO_TRY(kolo_boot_all_gather(boot, &address, sizeof address, r->address));
    KOLO_TRY(kolo_address_take(c, r->address));
    at[2] = kolo_now_us();
    KOLO_TRY(kolo_ready_make(c, &ready));
    KOLO_TRY(kolo_boot_all_gather(boot, &ready, sizeof ready, r->ready));
    at[3] = kolo_now_us();
    KOLO_TRY(spread_table(c, boot, &r->ready[0]));
    KOLO_TRY(kolo_ready_take(c, r->ready));
    KOLO_TRY(kolo_mesh_join(c, boot));
    KOLO_TRY(kolo_boot_barrier(boot));
    at[4] = kolo_now_us();
    return KOLO_OK;
}

/* A rank that has gone before this one looked for it may have been told why: by whom this one is
 * told, too. */
static kolo_status find_reason(struct kolo_boot *boot, kolo_status st)
{
    char text[sizeof(((struct kolo_comm *)0)->error_text)];
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    const kolo_status told = kolo_boot_why(boot);
    if (told == KOLO_INPROGRESS) {
        kolo_error_set(text);
        return st;
    }
    return told;
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
    c->meet.starved = kolo_service_starved;
    kolo_status st = rounds_make(nranks, &rounds);
    st = st == KOLO_OK ? kolo_boot_open(&c->meet, nranks, rank, hub, c->timeout_ms, &boot) : st;
    st = st == KOLO_OK ? join_over_boot(c, boot, &rounds, at) : st;
    st = st == KOLO_ERR_PEER && boot != NULL ? find_reason(boot, st) : st;
    st = st == KOLO_OK ? kolo_device_join(c) : st;
    if (st != KOLO_OK && boot != NULL) {
        kolo_boot_give_up(boot, st);
    }
    kolo_boot_close(boot);
    rounds_free(&rounds);
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    kolo_log_done(c, at);
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
    const kolo_status st = create_at(&launch.meet, launch.nranks, launch.rank,
                                     launch.rank == 0 && !launch.served, config, out);
    kolo_launch_done(&launch);
    return st;
}

/* The rounds of ranks that are all here. */
static kolo_status join_in_process(struct kolo_comm **c, int n, struct rounds *r)
{
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_hello_make(c[i], &r->hello[i]));
        r->hello[i].place = kolo_place_unknown(); /* its thread is not known yet */
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_hello_take(c[i], r->hello));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_address_make(c[i], &r->address[i]));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_address_take(c[i], r->address));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_ready_make(c[i], &r->ready[i]));
    }
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_table_take(c[i], &r->ready[0], c[0]->table_text));
        KOLO_TRY(kolo_ready_take(c[i], r->ready));
        KOLO_TRY(kolo_device_join_local(c[i]));
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
            kolo_log_done(c[i], at);
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

/* A meeting of ranks of this communicator: they share its secret. */
static kolo_status name_meeting(const struct kolo_comm *parent, const char *what, unsigned number,
                                int color, struct kolo_meet *out)
{
    *out = (struct kolo_meet){0};
    (void)snprintf(out->name, sizeof out->name, "%s-%u-%d-%llx", what, number, color,
                   (unsigned long long)parent->id);
    return kolo_prove(parent->secret, out->name, sizeof out->name, out->secret)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "HMAC-SHA-256 failed");
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

/* All ranks of the parent learn where the first rank of each part listens: meet->place is that of
 * rank `first`, which is in this rank's part, or -1. */
static kolo_status place_meeting(struct kolo_comm *parent, int first, struct kolo_meet *meet)
{
    const size_t n = (size_t)parent->nranks;
    struct kolo_inet *all = calloc(n, sizeof *all);
    kolo_status served = KOLO_OK;
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", parent->nranks);
    }
    if (first == parent->rank) {
        served = kolo_boot_serve(meet, true);
    }
    const struct kolo_inet mine = served == KOLO_OK ? meet->place : (struct kolo_inet){0};
    const kolo_status st = kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, parent, NULL);
    meet->place = first >= 0 ? all[first] : mine;
    free(all);
    KOLO_TRY(st);
    KOLO_TRY(served);
    return first < 0 || meet->place.family != 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_PEER, "rank %d could not listen for its part", first);
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
    int rank = 0, size = 0, first = comm->rank;
    for (int q = 0; q < comm->nranks && st == KOLO_OK; q++) {
        const bool before = all[2 * q + 1] < key || (all[2 * q + 1] == key && q < comm->rank);
        size += all[2 * q] == color;
        rank += all[2 * q] == color && before;
        first = all[2 * q] == color && (all[2 * q + 1] < all[2 * first + 1] ||
                                        (all[2 * q + 1] == all[2 * first + 1] && q < first))
                    ? q
                    : first;
    }
    free(all);
    KOLO_TRY(st);
    KOLO_TRY(name_meeting(comm, "split", number, color, &meet));
    if (comm->nhosts > 1) {
        KOLO_TRY(place_meeting(comm, color != KOLO_NO_COLOR ? first : -1, &meet));
    }
    if (color == KOLO_NO_COLOR) {
        *out = NULL;
        return KOLO_OK;
    }
    const struct kolo_config as_parent = inherited(comm);
    meet.parent_failed = (const int *)(const void *)&comm->error;
    const kolo_status made = create_at(&meet, size, rank, rank == 0 && meet.place.family == 0,
                                       config != NULL ? config : &as_parent, out);
    return made != KOLO_OK && atomic_load(&comm->error) != KOLO_OK ? kolo_comm_usable(comm) : made;
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
    int first = 0;
    for (int i = 0; i < nexclude; i = exclude[i] == first ? (first++, 0) : i + 1) {
    }
    const struct kolo_config as_parent = inherited(comm);
    KOLO_TRY(name_meeting(comm, "shrink", (unsigned)who, nexclude, &meet));
    meet.place = comm->member[first].spare;
    if (rank == 0 && comm->spare_fd >= 0) { /* it listens there now */
        close(comm->spare_fd);
        comm->spare_fd = -1;
    }
    return create_at(&meet, comm->nranks - nexclude, rank, rank == 0,
                     config != NULL ? config : &as_parent, out);
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
        KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d - Destroy COMPLETE", (void *)c, c->rank,
                 c->nranks);
    }
    kolo_board_leave(c);
    kolo_unwatch(c);
    kolo_device_leave(c);
    kolo_p2p_close(c);
    kolo_call_forget(c);
    if (c->spare_fd >= 0) {
        close(c->spare_fd);
    }
    close_devices(c);
    if (c->own_board != NULL) {
        kolo_segment_drop(c->own_board);
    }
    free(c->own_post);
    free_wires(&c->wires);
    kolo_chooser_destroy(c->chooser);
    kolo_rules_destroy(c->rules);
    kolo_table_destroy(c->table);
    free(c->table_text);
    if (c->tuner != NULL && c->tuner_self != NULL) {
        c->tuner->close(c->tuner_self);
    }
    pthread_mutex_destroy(&c->device_lock);
    pthread_mutex_destroy(&c->queue_lock);
    pthread_mutex_destroy(&c->error_lock);
    free(c->member);
    free(c->addresses);
    free(c->order);
    free(c->tree);
    kolo_host_destroy(c->host);
    kolo_graph_destroy(c->machine);
    free(c->place);
    free(c->host_of);
    kolo_groups_free(&c->groups);
    free(c->algo_text);
    free(c->transport_text);
    free(c->groups_text);
    free(c);
}
