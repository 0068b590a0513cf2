// SPDX-License-Identifier: Apache-2.0
/* A communicator of any old and new ranks, which goes on without those that die meanwhile.
 *
 * It is made in attempts. At a first meeting everybody in the list has a seat, and who is known to
 * be dead has its seat kept empty. There all learn who has come, and with that their new numbers. At
 * a second meeting the communicator comes up. If an attempt fails, the old ranks agree on who is
 * gone (agree.h), and so all of them begin the same next attempt, or all end. New ranks share no
 * memory with them. They look for the first meeting of a later attempt: it is served once the old
 * ranks have given up the earlier one. */
#include "core/agree/agree.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/setup/create.h"
#include "core/setup/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ATTEMPTS_AHEAD = 16, SEEK_US = 1000, VAIN_ATTEMPTS = 2, MOST_NEW = 63 };

/* Agreed word: this bit is set if all may try again; bit i, if new rank number i lives. */
#define MAY_RETRY (UINT64_C(1) << MOST_NEW)

struct change {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    struct kolo_comm *comm;         /* NULL: this is a new rank */
    const int *members;             /* [nranks] of old ranks; NULL: this is a new rank */
    int nranks, seat;
    struct kolo_meet id;
    struct kolo_boot *first; /* kept during the second meeting: it tells who ends before it comes */
    int attempt;
    int timeout_ms;
    double deadline_us;
    unsigned aborts;
    bool *absent; /* [nranks] seats */
    /* Who takes part in the present meeting: numbers in comm, or -1, and seats. */
    int *ranks, *seats; /* [nranks] */
    int count;
};

/* What a rank tells of itself at the first meeting. A seat that is kept empty has zeros. */
struct seat {
    uint64_t list; /* a hash of the old ranks' list */
    uint8_t there, is_old, unused[6];
};

/* ---- meetings ---- */

static struct kolo_meet meeting(struct change *g, int attempt, bool second)
{
    struct kolo_meet meet = g->id;
    const size_t at = strlen(meet.name);
    if (second || attempt > 0) { /* the id has a hub of its own, for one meeting */
        (void)snprintf(meet.name + at, sizeof meet.name - at, "%c%d", second ? '+' : '-', attempt);
    }
    meet.parent = &g->parent;
    meet.epoch = g->comm != NULL ? g->comm->ranks.epoch + 1 : 0;
    return meet;
}

/* The first later attempt whose first meeting is served; -1: none. */
static int served_after(struct change *g, int attempt)
{
    for (int next = attempt + 1; next <= attempt + ATTEMPTS_AHEAD; next++) {
        const struct kolo_meet meet = meeting(g, next, false);
        if (kolo_boot_is_served(&meet)) {
            return next;
        }
    }
    return -1;
}

/* Between the meetings a member may end that the second one does not know yet. */
static kolo_status ask_first(struct change *g)
{
    if (g->first == NULL || !kolo_boot_has_ended(g->first)) {
        return KOLO_OK;
    }
    const kolo_status st = kolo_boot_why(g->first);
    const int seat = g->parent.at_fault;
    g->parent.at_fault = -1;
    for (int i = 0; i < g->count; i++) {
        g->parent.at_fault = g->seats[i] == seat ? i : g->parent.at_fault;
    }
    return st < KOLO_OK ? st : kolo_fail(KOLO_ERR_PEER, "a member ended between two meetings");
}

/* A new rank waits until the old ones have given up this attempt, an old one while its members
 * live. */
static kolo_status may_wait(struct kolo_meet_parent *parent, enum kolo_meet_step step)
{
    char who[64];
    struct change *g = (struct change *)parent;
    if (step != KOLO_MEET_COMPLETE) {
        KOLO_TRY(ask_first(g));
    }
    if (g->comm == NULL) {
        return served_after(g, g->attempt) < 0
                   ? KOLO_OK
                   : kolo_fail(KOLO_ERR_PEER, "the old ranks have begun attempt %d",
                               g->attempt + 2);
    }
    if (atomic_load(&g->comm->failure.aborts) != g->aborts) {
        return kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
    }
    KOLO_TRY(kolo_agree_takes_part(g->comm));
    if (g->attempt == 0 && g->first == NULL && step == KOLO_MEET_SEEKING &&
        !kolo_boot_is_served(&g->id)) {
        return kolo_fail(KOLO_ERR_PEER, "the process that made the id has ended");
    }
    const int gone = step == KOLO_MEET_COMPLETE ? -1 : kolo_gone_find(g->comm, g->ranks, g->count);
    if (gone < 0) {
        return KOLO_OK;
    }
    parent->at_fault = gone;
    kolo_gone_say(g->comm, g->ranks[gone], who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER, "%s before the new communicator stood", who);
}

static int left_ms(const struct change *g)
{
    const double left_us = g->deadline_us - kolo_now_us();
    return left_us > 0 ? (int)(left_us / 1e3) + 1 : 0;
}

/* ---- one attempt ---- */

/* All seats that are not empty: new ranks know of no member. */
static void seat_all(struct change *g)
{
    for (int i = 0; i < g->nranks; i++) {
        g->seats[i] = i;
        g->ranks[i] = g->members != NULL && !g->absent[i] ? g->members[i] : -1;
    }
    g->count = g->nranks;
}

static bool is_first_old(const struct change *g)
{
    int i = 0;
    while (i < g->count && g->ranks[i] < 0) {
        i++;
    }
    return i < g->count && g->comm != NULL && g->ranks[i] == g->comm->ranks.rank;
}

static kolo_status exchange_seats(struct change *g, struct kolo_boot *boot, struct seat *all)
{
    struct seat mine = {.there = 1, .is_old = g->comm != NULL};
    if (g->members != NULL) {
        mine.list = kolo_hash(0, g->members, (size_t)g->nranks * sizeof *g->members);
    }
    KOLO_TRY(kolo_boot_all_gather(boot, &mine, sizeof mine, all));
    const struct seat *first = NULL;
    for (int i = 0; i < g->nranks; i++) {
        first = first == NULL && all[i].is_old ? &all[i] : first;
        if (all[i].is_old && all[i].list != first->list) {
            return kolo_fail(KOLO_ERR_INVALID, "the old ranks in places %d and %d give %s",
                             (int)(first - all), i, "different lists of members");
        }
    }
    return first != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_PEER, "no old rank has come to form the communicator");
}

/* Find out at the first meeting who has come. */
static kolo_status meet_first(struct change *g, int limit_ms, struct seat *all)
{
    struct kolo_meet meet = meeting(g, g->attempt, false);
    seat_all(g);
    meet.absent = g->attempt > 0 ? g->absent : NULL;
    KOLO_TRY(kolo_boot_open(&meet, g->nranks, g->seat, g->attempt > 0 && is_first_old(g), limit_ms,
                            &g->first));
    const kolo_status st = exchange_seats(g, g->first, all);
    if (st != KOLO_OK) {
        kolo_boot_give_up(g->first, st);
    }
    return st;
}

/* Those who have come move up. Returns this rank's number, and in *host_out that of the first old
 * rank. */
static int move_up(struct change *g, const struct seat *all, int *host_out)
{
    int me = -1;
    *host_out = -1;
    g->count = 0;
    for (int i = 0; i < g->nranks; i++) {
        if (all[i].there) {
            me = i == g->seat ? g->count : me;
            *host_out = *host_out < 0 && all[i].is_old ? g->count : *host_out;
            g->seats[g->count] = i;
            g->ranks[g->count++] = g->members != NULL ? g->members[i] : -1;
        }
    }
    return me;
}

static kolo_status try_once(struct change *g, int limit_ms, const struct kolo_config *config,
                            struct kolo_comm **out)
{
    int host = -1;
    const double until_us = kolo_now_us() + limit_ms * 1e3;
    struct seat *all = calloc((size_t)g->nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", g->nranks);
    }
    g->parent.at_fault = -1;
    kolo_status st = meet_first(g, limit_ms, all);
    if (st == KOLO_OK) {
        const int me = move_up(g, all, &host);
        struct kolo_meet meet = meeting(g, g->attempt, true);
        const int rest_ms = (int)((until_us - kolo_now_us()) / 1e3);
        meet.limit_ms = rest_ms > 1 ? rest_ms : 1;
        st = kolo_create_at(&meet, g->count, me, me == host, config, out);
    }
    const int at_fault = g->parent.at_fault;
    kolo_boot_close(g->first);
    g->first = NULL;
    g->parent.at_fault = at_fault; /* and not what the first meeting said at its end */
    free(all);
    return st;
}

/* ---- old ranks ---- */

static bool may_retry(kolo_status st)
{
    return st == KOLO_ERR_PEER || st == KOLO_ERR_LINK || st == KOLO_ERR_TIMEOUT;
}

/* What this rank says of the attempt that failed. */
static uint64_t judge(const struct change *g, kolo_status st)
{
    const int at = g->parent.at_fault;
    const int seat = at >= 0 && at < g->count ? g->seats[at] : -1;
    const bool has_time = left_ms(g) > g->timeout_ms / 4;
    uint64_t word = may_retry(st) && has_time ? ~UINT64_C(0) : ~MAY_RETRY;
    for (int i = 0, number = 0; i < g->nranks; i++) {
        if (g->members[i] < 0) {
            word &= i == seat || g->absent[i] ? ~(UINT64_C(1) << number) : ~UINT64_C(0);
            number++;
        }
    }
    return word;
}

/* Empty the seats of the dead. Returns how many they are. */
static int empty_seats(struct change *g, uint64_t word, const unsigned char *seen)
{
    int emptied = 0;
    for (int i = 0, number = 0; i < g->nranks; i++) {
        const int q = g->members[i];
        const bool gone = q >= 0 ? seen[q] != KOLO_SEEN_HERE : (word >> number++ & 1) == 0;
        emptied += gone && !g->absent[i];
        g->absent[i] = g->absent[i] || gone;
    }
    return emptied;
}

/* After an attempt that failed on all ranks: OK if all try again. */
static kolo_status agree_to_retry(struct change *g, const bool *take_part, kolo_status st,
                                  int *vain)
{
    char text[512];
    uint64_t word = judge(g, st);
    unsigned char *seen = calloc((size_t)g->comm->ranks.nranks, 1);
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    if (seen == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", g->comm->ranks.nranks);
    }
    const int half_ms = left_ms(g) / 2, least_ms = g->timeout_ms / 8;
    const int limit_ms = 1 + (half_ms > least_ms ? half_ms : least_ms);
    const kolo_status agreed =
        kolo_agree_among(g->comm, take_part, limit_ms, g->aborts, &word, seen);
    const int emptied = agreed == KOLO_OK ? empty_seats(g, word, seen) : 0;
    free(seen);
    KOLO_TRY(agreed);
    *vain = emptied > 0 ? 0 : *vain + 1;
    if ((word & MAY_RETRY) != 0 && *vain <= VAIN_ATTEMPTS) {
        return KOLO_OK;
    }
    return kolo_fail(st, "%s", text);
}

static kolo_status form(struct change *g, const bool *take_part, const struct kolo_config *config,
                        struct kolo_comm **out)
{
    const struct kolo_config as_comm = kolo_create_config(g->comm);
    for (int vain = 0;; g->attempt++) {
        const kolo_status st =
            try_once(g, left_ms(g) / 2 + 1, config != NULL ? config : &as_comm, out);
        if (st == KOLO_OK) {
            return KOLO_OK;
        }
        KOLO_LOG(INFO, INIT, "comm %p rank %d: attempt %d to form a communicator failed: %s",
                 (void *)g->comm, g->comm->ranks.rank, g->attempt + 1, kolo_error_text());
        KOLO_TRY(agree_to_retry(g, take_part, st, &vain));
    }
}

/* The list, and for whom agreements wait. */
static kolo_status check_members(struct change *g, bool *take_part)
{
    const struct kolo_comm *comm = g->comm;
    int fresh = 0;
    g->seat = -1;
    for (int i = 0; i < g->nranks; i++) {
        const int q = g->members[i];
        if (q < -1 || q >= comm->ranks.nranks || (q >= 0 && take_part[q])) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "members[%d] is %d; it must be a rank (0 to %d), each once, or -1", i,
                             q, comm->ranks.nranks - 1);
        }
        if (q >= 0) {
            take_part[q] = true;
        }
        g->seat = q == comm->ranks.rank ? i : g->seat;
        fresh += q < 0;
    }
    if (g->seat < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "rank %d is not in members[]: it must not call this",
                         comm->ranks.rank);
    }
    return fresh <= MOST_NEW
               ? kolo_agree_takes_part(comm)
               : kolo_fail(KOLO_ERR_INVALID, "%d new ranks are more than %d", fresh, MOST_NEW);
}

static kolo_status check_arguments(const struct kolo_comm *comm, const struct kolo_id *id,
                                   const int *members, struct kolo_comm *const *out)
{
    KOLO_TRY(kolo_check_members_call(comm, "kolo_comm_reconfigure"));
    KOLO_TRY(kolo_check_given("id", id));
    KOLO_TRY(kolo_check_given("members", members));
    KOLO_TRY(kolo_check_given("out", out));
    return kolo_agree_is_on_board(comm) || comm->ranks.nranks == 1
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED,
                           "the ranks share no memory: they are on %d hosts, or use a transport "
                           "without it",
                           comm->ranks.nhosts);
}

/* ---- both ---- */

static kolo_status begin_change(struct change *g, const struct kolo_id *id, int nranks,
                                int timeout_ms)
{
    KOLO_TRY(kolo_check_range("nranks", nranks, 1, KOLO_BOOT_MAX_RANKS));
    KOLO_TRY(kolo_meet_from_id(id, &g->id));
    g->id.place = (struct kolo_inet){0}; /* all are on this host */
    g->nranks = nranks;
    g->parent = (struct kolo_meet_parent){.may_wait = may_wait, .at_fault = -1};
    g->timeout_ms = timeout_ms;
    g->deadline_us = kolo_now_us() + timeout_ms * 1e3;
    g->absent = calloc((size_t)nranks, sizeof *g->absent);
    g->ranks = calloc((size_t)nranks, sizeof *g->ranks);
    g->seats = calloc((size_t)nranks, sizeof *g->seats);
    return g->absent != NULL && g->ranks != NULL && g->seats != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
}

static void end_change(struct change *g)
{
    explicit_bzero(g->id.secret, sizeof g->id.secret);
    free(g->absent);
    free(g->ranks);
    free(g->seats);
}

kolo_status kolo_comm_reconfigure(struct kolo_comm *comm, const struct kolo_id *id,
                                  const int members[], int nranks, const struct kolo_config *config,
                                  struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(check_arguments(comm, id, members, out));
    struct change g = {
        .comm = comm, .members = members, .aborts = atomic_load(&comm->failure.aborts)};
    bool *take_part = calloc((size_t)comm->ranks.nranks, sizeof *take_part);
    kolo_status st = take_part != NULL ? begin_change(&g, id, nranks, comm->options.timeout_ms)
                                       : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks",
                                                   comm->ranks.nranks);
    st = st == KOLO_OK ? check_members(&g, take_part) : st;
    st = st == KOLO_OK ? form(&g, take_part, config, out) : st;
    free(take_part);
    end_change(&g);
    return st;
}

/* ---- new ranks ---- */

static kolo_status seek(struct change *g, const struct kolo_config *config, struct kolo_comm **out)
{
    kolo_status st = KOLO_INPROGRESS;
    for (g->attempt = -1; left_ms(g) > 0;) {
        const int next = served_after(g, g->attempt);
        if (next < 0) {
            (void)usleep(SEEK_US);
            continue;
        }
        g->attempt = next;
        st = try_once(g, left_ms(g), config, out);
        if (!may_retry(st)) {
            return st;
        }
    }
    return st < KOLO_OK ? st
                        : kolo_fail(KOLO_ERR_TIMEOUT, "new rank %d: nobody serves the id", g->seat);
}

kolo_status kolo_comm_enter(const struct kolo_id *id, int nranks, int rank,
                            const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct change g = {.seat = rank};
    int timeout_ms = 0;
    KOLO_TRY(kolo_check_given("id", id));
    KOLO_TRY(kolo_check_given("out", out));
    KOLO_TRY(kolo_options_timeout(config, &timeout_ms));
    kolo_status st = begin_change(&g, id, nranks, timeout_ms);
    st = st == KOLO_OK ? kolo_check_range("rank", rank, 0, nranks - 1) : st;
    st = st == KOLO_OK ? seek(&g, config, out) : st;
    end_change(&g);
    return st;
}
