// SPDX-License-Identifier: Apache-2.0
/* Waits that last: whom they are for in the end, and whether they can end at all. */
#include "core/health/diagnose.h"

#include "core/board/text.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/health/gossip.h"
#include "core/health/look.h"
#include "core/health/waits.h"
#include "core/health/watchdog.h"
#include "util/threads.h"

#include <stdio.h>
#include <string.h>

enum { WARN_US = 10 * 1000 * 1000, STOPPED_US = 200 * 1000, LEFT_US = 50 * 1000 };
/* A rank is watched by few others, which may all be stopped. So who waits for it watches it, too. */
enum { WATCH_US = 500 * 1000 };
/* A rank is named once it has been the end of the chain for SURE_US. For that, a wait may go on for
 * DOUBT_US after its limit. */
enum { SURE_US = 250 * 1000, DOUBT_US = 500 * 1000, ASK_US = 100 * 1000 };

/* ---- what a rank does ---- */

/* How many calls rank q has begun, by the board or by its own word. */
static bool knows_calls(const struct kolo_comm *c, int q, uint64_t *out)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    int waits_for = -1;
    if (slot != NULL) {
        *out = atomic_load_explicit(&slot->begun, memory_order_acquire);
        return true;
    }
    return kolo_waits_known(c, q, &waits_for, out);
}

/* What rank q does instead of what is waited for. */
static void say_state(const struct kolo_comm *c, int q, bool message, char *out, size_t room)
{
    char call[128];
    uint64_t begun = 0;
    const uint64_t mine = kolo_comm_calls(c);
    if (kolo_waits_is_stopped(c, q)) {
        (void)snprintf(out, room, "which is stopped (SIGSTOP or a debugger)");
    } else if (!knows_calls(c, q, &begun) || message) {
        (void)snprintf(out, room, "which does not answer");
    } else if (begun < mine) {
        kolo_say_call(c, q, begun, call, sizeof call);
        (void)snprintf(out, room, "which has not made that call; %s %s",
                       begun > 0 ? "its last was" : "it has made", call);
    } else {
        (void)snprintf(out, room, "which has made that call, too, and does not go on");
    }
}

/* ---- the end of the chain ---- */

/* The rank that the wait depends on in the end. *for_us: how long it has been this rank. */
static int find_end(struct kolo_comm *c, int peer, double *for_us)
{
    const int last = kolo_waits_end(c, peer), at = peer >= 0 ? peer % KOLO_AWAITED : 0;
    const double now = kolo_now_us();
    if (atomic_exchange(&c->health.awaited[at], last + 1) != last + 1) {
        atomic_store(&c->health.awaited_us[at], (uint64_t)now);
    }
    *for_us = now - (double)atomic_load(&c->health.awaited_us[at]);
    return last;
}

/* ---- too late ---- */

enum wait { WAIT_CALL, WAIT_MESSAGE, WAIT_CONNECT };

/* False: they do not wait in a circle any more. */
static bool say_circle(const struct kolo_comm *c, int peer, char *out, size_t room)
{
    enum { LISTED = 8 };
    int rank[LISTED];
    const int n = kolo_waits_circle(c, peer, rank, LISTED), listed = n < LISTED ? n : LISTED;
    size_t len = (size_t)snprintf(out, room, "ranks");
    for (int i = 0; i < listed; i++) {
        len += (size_t)snprintf(out + len, room - len, "%s %d",
                                i == 0       ? ""
                                : i == n - 1 ? " and"
                                             : ",",
                                rank[i]);
    }
    if (n > listed) {
        len += (size_t)snprintf(out + len, room - len, " and %d more", n - listed);
    }
    (void)snprintf(out + len, room - len, " wait for each other%s",
                   n > 2 ? " in a circle, each for the next one" : "");
    return n > 0;
}

static kolo_status say_late(struct kolo_comm *c, int peer, int last, int limit_ms, enum wait wait)
{
    const bool message = wait == WAIT_MESSAGE;
    char mine[128], state[200], who[48];
    (void)snprintf(mine, sizeof mine, message ? "for a message," : "to connect");
    if (wait == WAIT_CALL) {
        char call[120];
        kolo_say_call(c, c->ranks.rank, kolo_comm_calls(c), call, sizeof call);
        (void)snprintf(mine, sizeof mine, "in %s,", call);
    }
    c->links.exec_env.blamed = last >= 0 ? last : -1;
    if (last == KOLO_WAITS_CIRCLE && say_circle(c, peer, state, sizeof state)) {
        return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d waited %d ms %s for rank %d: %s", c->ranks.rank,
                         limit_ms, mine, peer, state);
    }
    if (last < 0 && peer >= 0 && peer < c->ranks.nranks) {
        return kolo_fail(
            KOLO_ERR_TIMEOUT,
            "rank %d waited %d ms %s for rank %d; the rank that holds them up is not known",
            c->ranks.rank, limit_ms, mine, peer);
    }
    if (last < 0) {
        return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d waited %d ms %s%s", c->ranks.rank, limit_ms,
                         message ? "for a message" : mine,
                         message ? " from any rank" : " it is not known for whom");
    }
    kolo_say_rank(c, last, who, sizeof who);
    say_state(c, last, wait != WAIT_CALL, state, sizeof state);
    if (last == peer) {
        return kolo_fail(KOLO_ERR_TIMEOUT, "rank %d waited %d ms %s for %s, %s", c->ranks.rank,
                         limit_ms, mine, who, state);
    }
    return kolo_fail(KOLO_ERR_TIMEOUT,
                     "rank %d waited %d ms %s for rank %d, and that one in the end for %s, %s",
                     c->ranks.rank, limit_ms, mine, peer, who, state);
}

/* Whether the end of the chain can be named, or is in doubt for too long. Where a call and a
 * message wait for each other, nobody can be named. Then the call should end first, because its
 * text says more: which call it is. */
static bool find_culprit(struct kolo_comm *c, int peer, double over_us, enum wait wait, int *out)
{
    double for_us = 0;
    const int last = find_end(c, peer, &for_us);
    const bool steady = for_us > SURE_US, stopped = kolo_waits_is_stopped(c, last);
    *out = steady || stopped ? last : KOLO_WAITS_UNKNOWN;
    return (steady && (last >= 0 || wait == WAIT_CALL)) || stopped || over_us > DOUBT_US;
}

kolo_status kolo_diagnose_late(struct kolo_comm *c, int peer, double waited_us, int limit_ms,
                               bool message)
{
    const enum wait wait = message ? WAIT_MESSAGE : WAIT_CALL;
    int last = -1;
    if (!find_culprit(c, peer, waited_us - limit_ms * 1e3, wait, &last)) {
        return kolo_diagnose_ask(c, peer, waited_us, message, false);
    }
    return say_late(c, peer, last, limit_ms, wait);
}

/* ---- asking ---- */

static void warn(struct kolo_comm *c, int q, double waited_us, bool message)
{
    char who[48], state[200];
    const uint64_t number = kolo_comm_calls(c);
    if (c->health.warned == number + 1) {
        return;
    }
    c->health.warned = number + 1;
    kolo_say_rank(c, q, who, sizeof who);
    say_state(c, q, message, state, sizeof state);
    KOLO_LOG(WARN, COLL, "comm %p (%s) rank %d has waited %.1f s for %s, %s", (void *)c,
             c->ranks.name, c->ranks.rank, waited_us / 1e6, who, state);
}

/* Whether it had left when this rank asked before, too: what it sent last may have come since this
 * rank looked for messages, and there is a turn between two asks. */
static bool left_before(struct kolo_member *m)
{
    const uint64_t now = (uint64_t)kolo_now_us();
    uint64_t then = 0;
    (void)atomic_compare_exchange_strong(&m->left_us, &then, now);
    return then != 0 && now - then > LEFT_US;
}

/* Rank q has left without the call that is waited for, or the message: it never comes. */
static kolo_status check_left(struct kolo_comm *c, int q, bool message)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    if (slot == NULL || atomic_load(&slot->presence) != KOLO_PRESENCE_LEFT ||
        (message ? !left_before(&c->member[q]) : atomic_load(&slot->begun) >= kolo_comm_calls(c))) {
        return KOLO_OK;
    }
    c->links.exec_env.blamed = q;
    kolo_failure_peer_left(c, q);
    return kolo_say_left(c, q, message);
}

/* All others are gone, and this thread, which waits, is the only one that could send to itself. */
static kolo_status check_nobody(struct kolo_comm *c, bool stuck)
{
    char who[64] = "";
    bool nobody = true;
    int last = -1;
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (q != c->ranks.rank) { /* each is asked: left_before() takes two asks */
            nobody = kolo_gone_is(c, q) && left_before(&c->member[q]) && nobody;
            last = q;
        }
    }
    if (!nobody || !stuck) {
        return KOLO_OK;
    }
    c->links.exec_env.blamed = last;
    if (last >= 0) {
        kolo_gone_say(c, last, who, sizeof who);
    }
    return kolo_fail(KOLO_ERR_PEER,
                     "rank %d waits for a message from any rank, and there is none%s%s",
                     c->ranks.rank, who[0] != '\0' ? " any more: the last, " : " but itself", who);
}

/* Whether this rank waits for a rank that waits for this rank in another communicator. */
static kolo_status check_crossed(struct kolo_comm *c, int peer, double waited_us, bool stuck)
{
    const uint64_t number = kolo_comm_calls(c);
    const bool warns = waited_us > WARN_US && c->health.warned != number + 1;
    atomic_store_explicit(&c->health.slot->stuck, stuck ? number : 0, memory_order_release);
    if (kolo_watchdog_crossed(c, peer, stuck, warns)) {
        c->links.exec_env.blamed = peer;
        return KOLO_ERR_MISMATCH;
    }
    return KOLO_OK;
}

kolo_status kolo_diagnose_ask(struct kolo_comm *c, int peer, double waited_us, bool message,
                              bool blocks)
{
    const bool stuck = blocks && kolo_thread_is_alone();
    double for_us = 0;
    if (message && peer == KOLO_ANY_SOURCE) {
        return check_nobody(c, stuck);
    }
    if (peer < 0 || peer >= c->ranks.nranks || peer == c->ranks.rank) {
        return KOLO_OK;
    }
    atomic_store_explicit(&c->health.slot->since_us, (uint64_t)(kolo_now_us() - waited_us),
                          memory_order_relaxed);
    kolo_look_say_runs(c);
    if (waited_us > WATCH_US) {
        kolo_watchdog_watch(c, peer);
    }
    const int last = find_end(c, peer, &for_us);
    atomic_store_explicit(&c->health.slot->waits_for_last,
                          (last == KOLO_WAITS_CIRCLE ? KOLO_WAITS_UNKNOWN : last) + 1,
                          memory_order_relaxed);
    kolo_gossip_ask(c, peer);
    KOLO_TRY(message ? KOLO_OK : check_crossed(c, peer, waited_us, stuck));
    if (last >= 0 &&
        (waited_us > WARN_US || (waited_us > STOPPED_US && kolo_waits_is_stopped(c, last)))) {
        warn(c, last, waited_us, message);
    }
    return check_left(c, message ? peer : last, message);
}

kolo_status kolo_diagnose_stalled(struct kolo_exec_env *env, int peer, double waited_us)
{
    struct kolo_comm *c = env->owner;
    return waited_us > env->timeout_us
               ? kolo_diagnose_late(c, peer, waited_us, c->options.timeout_ms, false)
               : kolo_diagnose_ask(c, peer, waited_us, false, true);
}

/* Calls have the communicator's time-out. An attempt to come up may have less: then all ranks end it
 * together, and those that live try again without one that is stopped. */
static int connect_limit_ms(const struct kolo_comm *c)
{
    const int attempt_ms = c->joining.is_ready ? 0 : c->rendezvous.meet.limit_ms;
    return attempt_ms > 0 && attempt_ms < c->options.timeout_ms ? attempt_ms
                                                                : c->options.timeout_ms;
}

/* The wait is on the board as one for a message, which expires if nobody renews it. */
kolo_status kolo_diagnose_connecting(void *comm, int peer, double waited_us)
{
    struct kolo_comm *c = comm;
    const double now = kolo_now_us();
    const int limit_ms = connect_limit_ms(c);
    int last = -1;
    if (waited_us < 0) {
        kolo_waits_message_over(c, peer);
        return KOLO_OK;
    }
    kolo_look_listen(c);
    if (now - c->health.connect_asked_us < ASK_US || waited_us < ASK_US) {
        return KOLO_OK;
    }
    c->health.connect_asked_us = now;
    if (waited_us > limit_ms * 1e3 &&
        find_culprit(c, peer, waited_us - limit_ms * 1e3, WAIT_CONNECT, &last)) {
        return say_late(c, peer, last, limit_ms, WAIT_CONNECT);
    }
    kolo_waits_message(c, peer, true);
    return kolo_diagnose_ask(c, peer, waited_us, true, false);
}
