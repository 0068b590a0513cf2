// SPDX-License-Identifier: Apache-2.0
/* One attempt to form a communicator of old and new ranks. At a first meeting everybody in the list
 * has a seat, and who is known to be dead has its seat kept empty. There all learn who has come, and
 * with that their new numbers. At a second meeting the communicator comes up.
 *
 * The first meeting of attempt 0 is that of the id. Over several hosts, later ones are at the
 * reserved port of the first old rank, and its process serves the second meeting at a port of its
 * own, which the seats tell. */
#include "core/setup/change.h"

#include "core/agree/agree.h"
#include "core/health/gone.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS_AHEAD = 16 };

/* What a rank tells of itself at the first meeting. A seat that is kept empty has zeros. */
struct seat {
    uint64_t list;           /* a hash of the old ranks' list */
    struct kolo_inet second; /* where it serves the second meeting; family 0: it does not */
    uint8_t there, is_old, unused[2];
};
static_assert(sizeof(struct seat) == 32, "wire format");

/* ---- meetings ---- */

/* The first old rank that takes part, by its number in comm. */
static int first_old(const struct kolo_change *g)
{
    int i = 0;
    while (i < g->count && g->ranks[i] < 0) {
        i++;
    }
    return i < g->count ? g->ranks[i] : -1;
}

static void place_later(const struct kolo_change *g, struct kolo_meet *meet)
{
    const int q = g->over_hosts ? first_old(g) : -1;
    meet->place = q >= 0 ? g->comm->member[q].reserved : (struct kolo_inet){0};
    if (q >= 0 && q == g->comm->ranks.rank && kolo_own_fd_is(&g->comm->rendezvous.reserved_fd)) {
        meet->listener = g->comm->rendezvous.reserved_fd.fd;
    }
}

static struct kolo_meet meeting(struct kolo_change *g, int attempt, bool second)
{
    struct kolo_meet meet = g->id;
    const size_t at = strlen(meet.name);
    if (second) {
        meet.place = g->second;
    } else if (attempt > 0) {
        place_later(g, &meet);
    }
    if (second || attempt > 0) { /* the id has a hub of its own, for one meeting */
        (void)snprintf(meet.name + at, sizeof meet.name - at, "%c%d", second ? '+' : '-', attempt);
    }
    meet.parent = &g->parent;
    meet.epoch = g->comm != NULL ? g->comm->ranks.epoch + 1 : 0;
    return meet;
}

/* The first later attempt whose first meeting is served; -1: none. */
int kolo_change_served_after(struct kolo_change *g, int attempt)
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
static kolo_status ask_first(struct kolo_change *g)
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
    struct kolo_change *g = (struct kolo_change *)parent;
    if (step != KOLO_MEET_COMPLETE) {
        KOLO_TRY(ask_first(g));
    }
    if (g->comm == NULL) {
        return kolo_change_served_after(g, g->attempt) < 0
                   ? KOLO_OK
                   : kolo_fail(KOLO_ERR_PEER, "the old ranks have begun attempt %d",
                               g->attempt + 2);
    }
    if (atomic_load(&g->comm->failure.aborts) != g->aborts) {
        return kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
    }
    KOLO_TRY(kolo_agree_takes_part(g->comm));
    if (g->over_hosts && (step == KOLO_MEET_SEEKING ||
                          (step == KOLO_MEET_JOINED && first_old(g) == g->comm->ranks.rank))) {
        kolo_probe_step(&g->probe, g->comm, g->ranks, g->count);
    }
    if (!g->over_hosts && g->attempt == 0 && g->first == NULL && step == KOLO_MEET_SEEKING &&
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

int kolo_change_left_ms(const struct kolo_change *g)
{
    const double left_us = g->deadline_us - kolo_now_us();
    return left_us > 0 ? (int)(left_us / 1e3) + 1 : 0;
}

/* ---- one attempt ---- */

/* All seats that are not empty: new ranks know of no member. */
static void seat_all(struct kolo_change *g)
{
    for (int i = 0; i < g->nranks; i++) {
        g->seats[i] = i;
        g->ranks[i] = g->members != NULL && !g->absent[i] ? g->members[i] : -1;
    }
    g->count = g->nranks;
}

static bool is_first_old(const struct kolo_change *g)
{
    return g->comm != NULL && first_old(g) == g->comm->ranks.rank;
}

/* Over several hosts: serve the second meeting, whose place the seats tell. */
static kolo_status serve_second(struct kolo_change *g)
{
    g->second = (struct kolo_inet){0};
    struct kolo_meet meet = meeting(g, g->attempt, true);
    KOLO_TRY(kolo_boot_serve(&meet, true));
    g->second = meet.place;
    return KOLO_OK;
}

/* Nobody comes to it: then it ends as one that this rank alone has joined. */
static void dismiss_second(struct kolo_change *g)
{
    const struct kolo_meet meet = meeting(g, g->attempt, true);
    struct kolo_boot *boot = NULL;
    int count = 0, me = 0;
    for (int i = 0; i < g->nranks; i++) {
        me = i == g->seat ? count : me;
        count += !g->absent[i];
    }
    if (kolo_boot_open(&meet, count, me, false, 1, NULL, &boot) == KOLO_OK) {
        kolo_boot_close(boot);
    }
}

static kolo_status exchange_seats(struct kolo_change *g, struct kolo_boot *boot, struct seat *all)
{
    struct seat mine = {.there = 1, .is_old = g->comm != NULL};
    if (g->over_hosts && is_first_old(g)) {
        KOLO_TRY(serve_second(g));
        mine.second = g->second;
    }
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
static kolo_status meet_first(struct kolo_change *g, int limit_ms, struct seat *all)
{
    seat_all(g);
    struct kolo_meet meet = meeting(g, g->attempt, false);
    meet.absent = g->attempt > 0 ? g->absent : NULL;
    KOLO_TRY(kolo_boot_open(&meet, g->nranks, g->seat, g->attempt > 0 && is_first_old(g), limit_ms,
                            NULL, &g->first));
    const kolo_status st = exchange_seats(g, g->first, all);
    if (st != KOLO_OK) {
        char text[512];
        (void)snprintf(text, sizeof text, "%s", kolo_error_text());
        kolo_boot_give_up(g->first, st);
        if (g->over_hosts && is_first_old(g) && g->second.family != 0) {
            dismiss_second(g);
        }
        kolo_error_set(text);
    }
    return st;
}

/* Those who have come move up. Returns this rank's number, and in *host_out that of the first old
 * rank. */
static int move_up(struct kolo_change *g, const struct seat *all, int *host_out)
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

kolo_status kolo_change_try(struct kolo_change *g, int limit_ms, const struct kolo_config *config,
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
        g->second = all[g->seats[host]].second;
        struct kolo_meet meet = meeting(g, g->attempt, true);
        const int rest_ms = (int)((until_us - kolo_now_us()) / 1e3);
        meet.limit_ms = rest_ms > 1 ? rest_ms : 1;
        st = kolo_create_at(&meet, g->count, me, me == host && g->second.family == 0, config, out);
    }
    const int at_fault = g->parent.at_fault;
    kolo_boot_close(g->first);
    g->first = NULL;
    g->parent.at_fault = at_fault; /* and not what the first meeting said at its end */
    free(all);
    return st;
}

bool kolo_change_may_retry(kolo_status st)
{
    return st == KOLO_ERR_PEER || st == KOLO_ERR_LINK || st == KOLO_ERR_TIMEOUT;
}

/* ---- begin and end ---- */

kolo_status kolo_change_begin(struct kolo_change *g, const struct kolo_id *id, int nranks,
                              int timeout_ms)
{
    KOLO_TRY(kolo_check_range("nranks", nranks, 1, KOLO_BOOT_MAX_RANKS));
    KOLO_TRY(kolo_meet_from_id(id, &g->id));
    g->over_hosts =
        g->comm != NULL && g->comm->ranks.nranks > 1 && !kolo_agree_is_on_board(g->comm);
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

void kolo_change_end(struct kolo_change *g)
{
    explicit_bzero(g->id.secret, sizeof g->id.secret);
    kolo_probe_end(&g->probe);
    free(g->absent);
    free(g->ranks);
    free(g->seats);
}
