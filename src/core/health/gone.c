// SPDX-License-Identifier: Apache-2.0
/* Which ranks are gone.
 *
 * A communicator has one verdict, about one rank. More ranks may die before all have heard of the
 * first. So each rank also keeps a set: ranks whose process has ended, ranks that have left, and
 * ranks whose end was told to it. The set only grows. */
#include "core/health/gone.h"

#include "core/board/text.h"
#include "core/failure/failure.h"
#include "core/health/watchdog.h"

#include <stdio.h>

static bool has_ended(const struct kolo_comm *c, int q)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    return atomic_load(&c->member[q].lost) || atomic_load(&c->member[q].end) != 0 ||
           (slot != NULL && atomic_load_explicit(&slot->fate, memory_order_acquire) != 0);
}

static bool has_left(const struct kolo_comm *c, int q)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    return atomic_load(&c->member[q].end) == KOLO_END_LEFT + 1 ||
           (slot != NULL &&
            atomic_load_explicit(&slot->presence, memory_order_acquire) == KOLO_PRESENCE_LEFT);
}

bool kolo_gone_is(const struct kolo_comm *c, int q)
{
    return has_ended(c, q) || has_left(c, q);
}

bool kolo_gone_has_news(const struct kolo_comm *c, uint32_t *seen)
{
    const struct kolo_board *board = c->health.board;
    uint32_t now = 1 + atomic_load_explicit(&c->health.ends, memory_order_acquire);
    if (board != NULL) { /* each of them only grows */
        now += atomic_load_explicit(&board->fates, memory_order_acquire) +
               atomic_load_explicit(&board->leaves, memory_order_acquire);
    }
    const bool has = now != *seen;
    *seen = now;
    return has;
}

/* The rank whose end is this communicator's verdict, if there is one; -1: none. */
static int rank_of_verdict(const struct kolo_comm *c)
{
    struct kolo_verdict found = {.rank = -1};
    if (atomic_load_explicit(&c->failure.error, memory_order_acquire) != KOLO_OK) {
        found.status = c->failure.verdict.status;
        found.rank = c->failure.verdict.rank;
    } else if (c->health.board != NULL) {
        (void)kolo_verdict_read(c->health.board, &found);
    }
    return found.status == KOLO_ERR_PEER ? found.rank : -1;
}

int kolo_gone_find(const struct kolo_comm *c, const int *ranks, int n)
{
    const int named = rank_of_verdict(c);
    for (int i = 0; i < n; i++) {
        if (named >= 0 && named != c->ranks.rank && (ranks != NULL ? ranks[i] : i) == named &&
            kolo_gone_is(c, named)) {
            return i; /* all ranks name this one */
        }
    }
    for (int i = 0; i < n; i++) {
        const int q = ranks != NULL ? ranks[i] : i;
        if (q >= 0 && q != c->ranks.rank && kolo_gone_is(c, q)) {
            return i;
        }
    }
    return -1;
}

void kolo_gone_note(struct kolo_comm *c, int q)
{
    atomic_store(&c->member[q].lost, true);
    atomic_fetch_add(&c->health.ends, 1);
}

void kolo_gone_say(const struct kolo_comm *c, int q, char *out, size_t room)
{
    char who[48];
    kolo_say_rank(c, q, who, sizeof who);
    (void)snprintf(out, room, "%s %s", who,
                   has_left(c, q)                 ? "left"
                   : kolo_comm_slot(c, q) != NULL ? "died"
                                                  : "died or left");
}

/* The rank at fault is lost for the others, even if it lives: it is late, or not reached. */
static bool is_at_fault(const struct kolo_failure *failure, int q)
{
    const kolo_status st = failure->status;
    return failure->rank == q &&
           (st == KOLO_ERR_PEER || st == KOLO_ERR_TIMEOUT || st == KOLO_ERR_LINK);
}

kolo_status kolo_comm_failed_ranks(struct kolo_comm *comm, int ranks[], int room, int *count_out)
{
    struct kolo_failure failure = {.size = sizeof failure};
    int count = 0;
    if (comm == NULL || count_out == NULL || room < 0 || (ranks == NULL && room > 0)) {
        return room < 0 ? kolo_fail(KOLO_ERR_INVALID, "room is %d; it must be 0 or more", room)
                        : kolo_fail(KOLO_ERR_INVALID, "%s is NULL",
                                    comm == NULL        ? "comm"
                                    : count_out == NULL ? "count_out"
                                                        : "ranks");
    }
    KOLO_TRY(kolo_comm_failure(comm, &failure));
    if (failure.status != KOLO_OK) {
        kolo_watchdog_look();
    }
    for (int q = 0; q < comm->ranks.nranks && failure.status != KOLO_OK; q++) {
        if ((q != comm->ranks.rank && kolo_gone_is(comm, q)) || is_at_fault(&failure, q)) {
            if (count < room) {
                ranks[count] = q;
            }
            count++;
        }
    }
    *count_out = count;
    return KOLO_OK;
}
