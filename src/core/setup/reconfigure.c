// SPDX-License-Identifier: Apache-2.0
/* A communicator of any old and new ranks, which goes on without those that die meanwhile.
 *
 * It is made in attempts (change.h). If one fails, the old ranks agree on who is gone (agree.h), and
 * so all of them begin the same next attempt, or all end. New ranks cannot agree with them. They look
 * for the first meeting of a later attempt: it is served once the old ranks have given up the
 * earlier one. Over several hosts they could not find it, so with new ranks there is one attempt. */
#include "core/agree/agree.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/setup/change.h"
#include "core/setup/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEEK_US = 1000, VAIN_ATTEMPTS = 2, MOST_NEW = 63 };

/* Agreed word: this bit is set if all may try again; bit i, if new rank number i lives. */
#define MAY_RETRY (UINT64_C(1) << MOST_NEW)

/* ---- old ranks ---- */

/* What this rank says of the attempt that failed. */
static uint64_t judge(const struct kolo_change *g, kolo_status st)
{
    const int at = g->parent.at_fault;
    const int seat = at >= 0 && at < g->count ? g->seats[at] : -1;
    bool may = kolo_change_may_retry(st) && kolo_change_left_ms(g) > g->timeout_ms / 4;
    for (int i = 0; i < g->nranks; i++) {
        may = may && !(g->over_hosts && g->members[i] < 0);
    }
    uint64_t word = may ? ~UINT64_C(0) : ~MAY_RETRY;
    for (int i = 0, number = 0; i < g->nranks; i++) {
        if (g->members[i] < 0) {
            word &= i == seat || g->absent[i] ? ~(UINT64_C(1) << number) : ~UINT64_C(0);
            number++;
        }
    }
    return word;
}

/* Empty the seats of the dead. Returns how many they are. */
static int empty_seats(struct kolo_change *g, uint64_t word, const unsigned char *seen)
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

/* The first old rank whose seat will be emptied, the same on all ranks; -1: none. */
static int find_lost(const struct kolo_change *g, const unsigned char *seen)
{
    int i = 0;
    while (i < g->nranks &&
           (g->members[i] < 0 || g->absent[i] || seen[g->members[i]] == KOLO_SEEN_HERE)) {
        i++;
    }
    return i < g->nranks ? g->members[i] : -1;
}

static kolo_status say_lost(const struct kolo_change *g, int q)
{
    char who[64];
    kolo_gone_say(g->comm, q, who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER, "%s before the new communicator stood", who);
}

/* On a board, who is late is left out. Over hosts the late end the call, so all get the time that
 * the longest attempt takes, or one that is only slow would be named. */
static int retry_limit_ms(const struct kolo_change *g)
{
    const int left_ms = kolo_change_left_ms(g), least_ms = g->timeout_ms / 8;
    return 1 + (g->over_hosts            ? left_ms + 2 * least_ms
                : left_ms / 2 > least_ms ? left_ms / 2
                                         : least_ms);
}

/* After an attempt that failed on all ranks: OK if all try again. */
static kolo_status agree_to_retry(struct kolo_change *g, const bool *take_part, kolo_status st,
                                  int *vain)
{
    char text[512];
    uint64_t word = judge(g, st);
    unsigned char *seen = calloc((size_t)g->comm->ranks.nranks, 1);
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    if (seen == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", g->comm->ranks.nranks);
    }
    const int limit_ms = retry_limit_ms(g);
    const kolo_status agreed =
        kolo_agree_among(g->comm, take_part, limit_ms, g->aborts, &word, seen);
    const int lost = agreed == KOLO_OK ? find_lost(g, seen) : -1;
    const int emptied = agreed == KOLO_OK ? empty_seats(g, word, seen) : 0;
    free(seen);
    KOLO_TRY(agreed);
    *vain = emptied > 0 ? 0 : *vain + 1;
    if ((word & MAY_RETRY) != 0 && *vain <= VAIN_ATTEMPTS) {
        return KOLO_OK;
    }
    return lost < 0 ? kolo_fail(st, "%s", text) : say_lost(g, lost);
}

static kolo_status form(struct kolo_change *g, const bool *take_part,
                        const struct kolo_config *config, struct kolo_comm **out)
{
    const struct kolo_config as_comm = kolo_create_config(g->comm);
    for (int vain = 0;; g->attempt++) {
        const kolo_status st = kolo_change_try(g, kolo_change_left_ms(g) / 2 + 1,
                                               config != NULL ? config : &as_comm, out);
        if (st == KOLO_OK) {
            return KOLO_OK;
        }
        KOLO_LOG(INFO, INIT, "comm %p rank %d: attempt %d to form a communicator failed: %s",
                 (void *)g->comm, g->comm->ranks.rank, g->attempt + 1, kolo_error_text());
        KOLO_TRY(agree_to_retry(g, take_part, st, &vain));
    }
}

/* The list, and for whom agreements wait. */
static kolo_status check_members(struct kolo_change *g, bool *take_part)
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
    return kolo_agree_check_possible(comm);
}

kolo_status kolo_comm_reconfigure(struct kolo_comm *comm, const struct kolo_id *id,
                                  const int members[], int nranks, const struct kolo_config *config,
                                  struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(check_arguments(comm, id, members, out));
    struct kolo_change g = {
        .comm = comm, .members = members, .aborts = atomic_load(&comm->failure.aborts)};
    bool *take_part = calloc((size_t)comm->ranks.nranks, sizeof *take_part);
    kolo_status st = take_part != NULL ? kolo_change_begin(&g, id, nranks, comm->options.timeout_ms)
                                       : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks",
                                                   comm->ranks.nranks);
    st = st == KOLO_OK ? check_members(&g, take_part) : st;
    st = st == KOLO_OK ? form(&g, take_part, config, out) : st;
    free(take_part);
    kolo_change_end(&g);
    return st;
}

/* ---- new ranks ---- */

/* `near`: the id is of this host, where later attempts may be served, unless the old ranks have said
 * that they are on several. */
static kolo_status seek(struct kolo_change *g, bool near, const struct kolo_config *config,
                        struct kolo_comm **out)
{
    kolo_status st = KOLO_INPROGRESS;
    for (g->attempt = -1; kolo_change_left_ms(g) > 0;) {
        const int next =
            g->attempt < 0 && g->id.place.family != 0 ? 0 : kolo_change_served_after(g, g->attempt);
        if (next < 0) {
            (void)usleep(SEEK_US);
            continue;
        }
        g->attempt = next;
        st = kolo_change_try(g, kolo_change_left_ms(g), config, out);
        if (!kolo_change_may_retry(st) || !near || g->second.family != 0) {
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
    struct kolo_change g = {.seat = rank};
    int timeout_ms = 0;
    KOLO_TRY(kolo_check_given("id", id));
    KOLO_TRY(kolo_check_given("out", out));
    KOLO_TRY(kolo_options_timeout(config, &timeout_ms));
    kolo_status st = kolo_change_begin(&g, id, nranks, timeout_ms);
    st = st == KOLO_OK ? kolo_check_range("rank", rank, 0, nranks - 1) : st;
    st = st == KOLO_OK ? seek(&g, kolo_id_is_from_here(id), config, out) : st;
    kolo_change_end(&g);
    return st;
}
