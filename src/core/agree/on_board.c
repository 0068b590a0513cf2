// SPDX-License-Identifier: Apache-2.0
/* Agreement of ranks that are on one board.
 *
 * Each rank puts its word on the board, and waits until every other rank has come, has ended, or is
 * late. Then it proposes what it has seen. Two ranks may have seen different ends, and propose
 * different sets. The board takes one proposal, which is the result of all (agreement.h). So a rank
 * that dies at any moment leaves no two survivors with different results.
 *
 * A rank that was late is left out for good: it may go on later, when the others have agreed
 * without it. It then finds on the board that it is left out. */
#include "core/agree/inner.h"
#include "core/board/agreement.h"
#include "core/health/gone.h"
#include "core/health/watchdog.h"

#include <sched.h>
#include <unistd.h>

enum { YIELDS = 200, PAUSE_US = 100, LOOK_PAUSES = 20 };

/* Look at all ranks. False: some of them may still come. */
static bool look(const struct kolo_agreement *a, uint64_t number, uint64_t *word,
                 unsigned char *seen)
{
    const struct kolo_comm *c = a->comm;
    const bool late = kolo_now_us() >= a->deadline_us;
    bool all = true;
    *word = ~UINT64_C(0);
    for (int q = 0; q < c->ranks.nranks; q++) {
        uint64_t brought = ~UINT64_C(0);
        const bool came =
            kolo_agreement_has_come(c->health.board, c->member[q].slot, number, &brought);
        const bool gone = q != c->ranks.rank && kolo_gone_is(c, q);
        const bool out = kolo_agree_is_out(a, q);
        seen[q] = out             ? KOLO_SEEN_OUT
                  : gone          ? KOLO_SEEN_GONE
                  : came || !late ? KOLO_SEEN_HERE
                                  : KOLO_SEEN_LATE;
        *word &= out ? ~UINT64_C(0) : brought;
        all = all && (came || gone || out || late);
    }
    return all;
}

static void wait_a_little(unsigned round)
{
    if (round < YIELDS) {
        sched_yield();
        return;
    }
    if (round % LOOK_PAUSES == 0) {
        kolo_watchdog_look(); /* where no descriptor tells of ends, nobody else looks as often */
    }
    (void)usleep(PAUSE_US);
}

kolo_status kolo_agree_on_board(const struct kolo_agreement *a, uint64_t *word, unsigned char *seen)
{
    struct kolo_comm *c = a->comm;
    const int slot = c->member[c->ranks.rank].slot;
    const uint64_t number = atomic_load(&c->health.slot->came_to) + 1;
    uint64_t found = 0;
    kolo_agreement_come(c->health.board, slot, number, *word);
    for (unsigned round = 0;; round++) {
        const enum kolo_outcome outcome =
            kolo_agreement_read(c->health.board, number, &found, seen);
        if (outcome == KOLO_OUTCOME_DECIDED) {
            *word = found;
            return KOLO_OK;
        }
        KOLO_TRY(kolo_agree_takes_part(c));
        if (outcome == KOLO_OUTCOME_PASSED) { /* the others have not waited for this rank */
            kolo_agree_leave_out(c, c->ranks.rank);
            return kolo_agree_takes_part(c);
        }
        KOLO_TRY(kolo_agree_may_go_on(a));
        if (look(a, number, &found, seen)) {
            kolo_agreement_propose(c->health.board, slot, number, found, seen);
        } else {
            wait_a_little(round);
        }
    }
}
