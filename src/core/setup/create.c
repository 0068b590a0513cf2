// SPDX-License-Identifier: Apache-2.0
/* How communicators come up.
 *
 * Coming up is three rounds of "make a blob, get everybody's": hello (who, where, which library),
 * addresses of transports, regions and costs. The rounds run over a boot star for processes, or in
 * a loop for ranks that are threads of one process; the steps are the same functions. */
#include "core/setup/create.h"

#include "boot/launch.h"
#include "core/agree/agree.h"
#include "core/board/agreement.h"
#include "core/call/memo.h"
#include "core/call/parts.h"
#include "core/comm.h"
#include "core/failure/failure.h"
#include "core/health/gossip.h"
#include "core/health/waits.h"
#include "core/health/watchdog.h"
#include "core/path.h"
#include "core/setup/join.h"
#include "exec/cpu/wait.h"
#include "memory/serve.h"
#include "plugin/catalogue.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After a time-out, how long others may take to say that they have the communicator. */
enum { LATE_MS = 1000 };

/* How ranks wait on the board for the last one: yields, then naps. */
enum { BOARD_RANKS = 16, YIELDS = 300, NAP_US = 200 };

/* ---- creation ---- */

static void abort_path(void *owner, const struct kolo_verdict *why)
{
    struct kolo_comm *c = owner;
    struct kolo_comm_path *path = atomic_load(&c->path);
    (void)why;
    if (path != NULL) {
        path->ops->abort(path);
    }
}

/* A failure may come before the path is there to be ended, so the failure is looked for behind. */
static kolo_status join_path(struct kolo_comm *c, bool local)
{
    const struct kolo_path_env env = {
        .comm = c, .local = local, .split = kolo_comm_split, .destroy = kolo_comm_destroy};
    const struct kolo_path_ops *ops = NULL;
    struct kolo_comm_path *path = NULL;
    if (c->options.cuda_ordinal == KOLO_HOST) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_path_find(c->options.cuda_ordinal, &ops));
    const int depth = kolo_group_suspend();
    const kolo_status st = ops->join(&env, &path);
    kolo_group_resume(depth);
    if (path != NULL) {
        path->ops = ops;
    }
    atomic_store(&c->path, path);
    if (atomic_load(&c->failure.error) != KOLO_OK) {
        abort_path(c, &c->failure.verdict);
    }
    return st;
}

static kolo_status comm_new(int nranks, int rank, const struct kolo_config *config,
                            struct kolo_comm **out)
{
    kolo_fork_count();
    KOLO_TRY(kolo_plugins_load());
    struct kolo_comm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a communicator");
    }
    c->ranks.rank = rank;
    c->ranks.nranks = nranks;
    c->rendezvous.reserved_fd = KOLO_NO_FD;
    c->ranks.fork_generation = kolo_fork_generation();
    /* Before kolo has a thread: then the kernel registers the process without a wait of 20 ms. */
    c->links.exec_env.membarrier = kolo_membarrier_register();
    pthread_mutex_init(&c->links.lock, NULL);
    pthread_mutex_init(&c->queue.lock, NULL);
    pthread_mutex_init(&c->failure.lock, NULL);
    kolo_status st = kolo_comm_configure(c, config);
    c->member = calloc((size_t)nranks, sizeof *c->member);
    c->layout.order = calloc((size_t)nranks, sizeof *c->layout.order);
    c->ranks.place = calloc((size_t)nranks, sizeof *c->ranks.place);
    c->health.own_slot = aligned_alloc(_Alignof(struct kolo_lone_slot), sizeof *c->health.own_slot);
    if (st == KOLO_OK && (c->member == NULL || c->layout.order == NULL || c->ranks.place == NULL ||
                          c->health.own_slot == NULL || !kolo_memo_create(c))) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    memset(c->health.own_slot, 0, sizeof *c->health.own_slot);
    c->health.own_slot->it.records_at = offsetof(struct kolo_lone_slot, record);
    c->health.slot = &c->health.own_slot->it;
    c->links.exec_env.blamed = -1;
    kolo_failure_observe(c, abort_path, c);
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
    if (c->joining.table_text == NULL) {
        c->joining.table_text = malloc(first->table_bytes);
    }
    if (c->joining.table_text == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a table");
    }
    KOLO_TRY(kolo_boot_spread(boot, c->joining.table_text, first->table_bytes));
    c->joining.table_text[first->table_bytes - 1] = '\0'; /* whatever rank 0 sent */
    return kolo_table_take(c, first, c->joining.table_text);
}

static int limit_of(const struct kolo_comm *c)
{
    const int given = c->rendezvous.meet.limit_ms;
    return given > 0 ? given : c->options.timeout_ms;
}

/* Whether all members have a place on the board of this host, and are few enough to look there for
 * each other: many would take the cores from those that are late. */
static bool meets_on_board(const struct kolo_comm *c)
{
    return kolo_agree_is_on_board(c) && c->ranks.nranks <= BOARD_RANKS;
}

/* A rank that is late may wait for one whose process is stopped, which had come up before that. */
static kolo_status too_late(const struct kolo_comm *c, int late)
{
    const struct kolo_meet *meet = &c->rendezvous.meet;
    int stopped = 0;
    while (stopped < c->ranks.nranks && !kolo_waits_is_stopped(c, stopped)) {
        stopped++;
    }
    const bool stops = stopped < c->ranks.nranks;
    const int who = stops ? stopped : late;
    if (meet->parent != NULL) {
        meet->parent->at_fault = who;
    }
    return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d %s when rank %d's %d ms were over", who,
                     stops ? "was stopped" : "had not come up", c->ranks.rank, limit_of(c));
}

/* The barrier that ends the creation, on the board. Ranks that come together do not sleep. A rank
 * that waits for another one's memory times out first, and says so: this one waits longer. */
static kolo_status await_board(const struct kolo_comm *c, struct kolo_boot *boot)
{
    const double deadline_us = kolo_now_us() + (limit_of(c) + LATE_MS) * 1e3;
    const struct kolo_board_slot *slot = c->health.board->slot;
    int late = 0;
    atomic_store(&c->health.slot->is_ready, 1);
    for (int yields = 0;;) {
        const bool ended = yields == YIELDS && kolo_boot_has_ended(boot);
        while (late < c->ranks.nranks && atomic_load(&slot[late].is_ready) != 0) {
            late++;
        }
        if (late == c->ranks.nranks) {
            kolo_boot_is_over(boot);
            return KOLO_OK;
        }
        if (ended) {
            return kolo_boot_barrier(boot); /* takes the reason */
        }
        if (yields < YIELDS) {
            yields++;
            (void)sched_yield();
            continue;
        }
        KOLO_TRY(kolo_boot_may_wait(boot));
        if (kolo_now_us() > deadline_us) {
            return too_late(c, late);
        }
        (void)usleep(NAP_US);
    }
}

static kolo_status join_over_boot(struct kolo_comm *c, struct kolo_boot *boot, struct rounds *r,
                                  double at[5])
{
    struct kolo_address address;
    struct kolo_ready ready;
    at[1] = kolo_now_us();
    KOLO_TRY(kolo_hello_take(c, r->hello));
    KOLO_TRY(kolo_layout_live_lay(c, boot));
    KOLO_TRY(kolo_address_make(c, &address));
    KOLO_TRY(kolo_boot_all_gather(boot, &address, sizeof address, r->address));
    KOLO_TRY(kolo_address_take(c, r->address));
    at[2] = kolo_now_us();
    KOLO_TRY(kolo_ready_make(c, &ready));
    KOLO_TRY(kolo_boot_all_gather(boot, &ready, sizeof ready, r->ready));
    at[3] = kolo_now_us();
    KOLO_TRY(spread_table(c, boot, &r->ready[0]));
    KOLO_TRY(kolo_ready_take(c, r->ready));
    KOLO_TRY(kolo_gossip_join(c, boot));
    c->joining.is_ready = true;
    KOLO_TRY(meets_on_board(c) ? await_board(c, boot) : kolo_boot_barrier(boot));
    at[4] = kolo_now_us();
    return KOLO_OK;
}

/* A rank that has gone before this one looked for it may have been told why: by whom this one is
 * told, too. */
static kolo_status find_reason(struct kolo_boot *boot, kolo_status st)
{
    char text[sizeof(((struct kolo_comm *)0)->failure.text)];
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    const kolo_status told = kolo_boot_why(boot);
    if (told == KOLO_INPROGRESS) {
        kolo_error_set(text);
        return st;
    }
    return told;
}

/* A rank whose process has ended. Others may have left because of it. -1: none is known. */
static int find_dead(const struct kolo_comm *c)
{
    int q = 0;
    kolo_watchdog_look();
    while (q < c->ranks.nranks && !atomic_load(&c->member[q].lost)) {
        q++;
    }
    return q < c->ranks.nranks ? q : -1;
}

/* A communicator comes up on all ranks, or on none: a rank may have heard the end of the last
 * exchange while another has not, because the process between them died. On one host, all have the
 * board by then, where the first of them settles it. */
static kolo_status settle_on_board(struct kolo_comm *c, kolo_status st)
{
    struct kolo_meet_parent *parent = c->rendezvous.meet.parent;
    if (st != KOLO_OK && parent != NULL && parent->at_fault < 0) {
        parent->at_fault = find_dead(c);
    }
    int at_fault = parent != NULL ? parent->at_fault : -1;
    const kolo_status settled = kolo_standing_settle(c->health.board, st, &at_fault);
    if (settled == KOLO_OK || st != KOLO_OK) {
        return settled == KOLO_OK ? KOLO_OK : st;
    }
    if (parent != NULL) {
        parent->at_fault = at_fault;
    }
    return kolo_fail(settled, "another rank could not go on, because the rank at fault %s",
                     "ended before all knew that the communicator stood");
}

/* Over several hosts, who has heard the end says so to those that ask. Nobody has heard it before
 * all were ready. So a rank that was ready, and has not heard, asks by an agreement. Who has failed
 * before leaves: for the others it is gone from this communicator, though its process may live. So
 * only the meeting says whose end was the reason. */
static kolo_status settle_over_links(struct kolo_comm *c, int limit_ms, kolo_status st)
{
    char text[512];
    uint64_t word = 0;
    if (st == KOLO_OK) {
        kolo_agree_stands(c);
    }
    unsigned char *seen = st != KOLO_OK && c->joining.is_ready && kolo_agree_is_possible(c)
                              ? calloc((size_t)c->ranks.nranks, 1)
                              : NULL;
    if (seen == NULL) {
        return st;
    }
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    const unsigned aborts = atomic_load(&c->failure.aborts);
    const bool agreed = kolo_agree_among(c, NULL, limit_ms, aborts, &word, seen) == KOLO_OK;
    free(seen);
    KOLO_LOG(INFO, INIT, "comm %p rank %d: %s, and by the others the communicator %s", (void *)c,
             c->ranks.rank, text, agreed && word != 0 ? "stands" : "does not stand");
    return agreed && word != 0 ? KOLO_OK : kolo_fail(st, "%s", text);
}

static kolo_status settle(struct kolo_comm *c, int limit_ms, kolo_status st)
{
    return kolo_agree_is_on_board(c) ? settle_on_board(c, st)
           : c->agree_links != NULL  ? settle_over_links(c, limit_ms, st)
                                     : st;
}

/* Join the meeting, and say hello to all. A rank that has no hello comes all the same, to tell the
 * others why. */
static kolo_status meet_all(struct kolo_comm *c, bool hub, int limit_ms, struct kolo_hello *all,
                            struct kolo_boot **boot_out)
{
    struct kolo_hello hello;
    char text[sizeof c->failure.text] = "";
    const kolo_status made = kolo_hello_make(c, &hello);
    if (made == KOLO_OK) {
        c->health.lives = kolo_life_begin(hello.life);
    } else {
        (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    }
    const struct kolo_boot_first first = {&hello, sizeof hello, all};
    KOLO_TRY(kolo_boot_open(&c->rendezvous.meet, c->ranks.nranks, c->ranks.rank, hub, limit_ms,
                            made == KOLO_OK ? &first : NULL, boot_out));
    return made == KOLO_OK ? KOLO_OK : kolo_fail(made, "%s", text);
}

kolo_status kolo_create_at(const struct kolo_meet *meet, int nranks, int rank, bool hub,
                           const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct kolo_comm *c = NULL;
    struct kolo_boot *boot = NULL;
    struct rounds rounds = {0};
    double at[5] = {kolo_now_us(), 0, 0, 0, 0};
    KOLO_TRY(comm_new(nranks, rank, config, &c));
    c->rendezvous.meet = *meet;
    c->rendezvous.meet.starved = kolo_service_starved;
    kolo_status st = rounds_make(nranks, &rounds);
    const int limit_ms = limit_of(c);
    st = st == KOLO_OK ? meet_all(c, hub, limit_ms, rounds.hello, &boot) : st;
    st = st == KOLO_OK ? join_over_boot(c, boot, &rounds, at) : st;
    st = st == KOLO_ERR_PEER && boot != NULL ? find_reason(boot, st) : st;
    st = settle(c, st == KOLO_ERR_TIMEOUT ? LATE_MS : limit_ms / 4 + 1, st);
    st = st == KOLO_OK ? join_path(c, false) : st;
    if (st != KOLO_OK && boot != NULL) {
        kolo_boot_give_up(boot, st);
    }
    kolo_boot_close(boot);
    rounds_free(&rounds);
    if (st != KOLO_OK) {
        kolo_comm_destroy(c);
        return st;
    }
    at[4] = at[4] > 0 ? at[4] : kolo_now_us();
    kolo_log_done(c, at);
    *out = c;
    return KOLO_OK;
}

static kolo_status check_ranks(int nranks, int rank)
{
    KOLO_TRY(kolo_check_range("nranks", nranks, 1, KOLO_BOOT_MAX_RANKS));
    return kolo_check_range("rank", rank, 0, nranks - 1);
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
    return kolo_create_at(&meet, nranks, rank, false, config, out);
}

kolo_status kolo_comm_create_env(const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct kolo_launch launch;
    int timeout_ms = 0;
    if (out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "out is NULL");
    }
    KOLO_TRY(kolo_options_timeout(config, &timeout_ms));
    KOLO_TRY(kolo_launch_next(timeout_ms, &launch));
    const kolo_status st = kolo_create_at(&launch.meet, launch.nranks, launch.rank,
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
        KOLO_TRY(kolo_table_take(c[i], &r->ready[0], c[0]->joining.table_text));
        KOLO_TRY(kolo_ready_take(c[i], r->ready));
        KOLO_TRY(join_path(c[i], true));
    }
    return KOLO_OK;
}

kolo_status kolo_comm_create_local(int nranks, const struct kolo_config *config,
                                   struct kolo_comm *out[])
{
    KOLO_UNCANCELLED;
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
            (void)snprintf(c[i]->rendezvous.meet.name, sizeof c[i]->rendezvous.meet.name,
                           "local-%llx-%u", (unsigned long long)kolo_process_id(), number);
        }
    }
    st = st == KOLO_OK ? join_in_process(c, nranks, &rounds) : st;
    const double end = kolo_now_us();
    const double at[5] = {begin, begin, begin, end, end};
    for (int i = 0; i < nranks && c != NULL; i++) {
        if (st == KOLO_OK) {
            kolo_agree_stands(c[i]);
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
