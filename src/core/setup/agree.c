// SPDX-License-Identifier: Apache-2.0
/* Agreement among the survivors: kolo_comm_agree(), and what reconfiguring rests on.
 *
 * Each rank puts its word on the board, and waits until every other rank has come, has ended, or is
 * late. Then it proposes what it has seen. Two ranks may have seen different ends, and propose
 * different sets. The board takes one proposal, which is the result of all (agreement.h). So a rank
 * that dies at any moment leaves no two survivors with different results.
 *
 * A rank that was late is left out for good: it may go on later, when the others have agreed
 * without it. It then finds on the board that it is left out. */
#include "core/setup/agree.h"

#include "core/call/fast_path.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/health/watchdog.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { YIELDS = 200, PAUSE_US = 100, LOOK_PAUSES = 20 };

struct agreement {
    struct kolo_comm *comm;
    const bool *take_part;
    uint64_t number;
    double deadline_us;
    unsigned aborts;
};

bool kolo_agree_is_possible(const struct kolo_comm *comm)
{
    const struct kolo_board *board = comm->health.board;
    return comm->ranks.nranks == 1 || (board != NULL && (int)board->nslots == comm->ranks.nranks);
}

static bool is_left_out(const struct kolo_comm *c, int q)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    return slot != NULL && atomic_load(&slot->left_out) != 0;
}

kolo_status kolo_agree_takes_part(const struct kolo_comm *comm)
{
    return !is_left_out(comm, comm->ranks.rank)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_PEER,
                           "rank %d is left out: the other ranks have agreed to go on without it, "
                           "because it came late, or was no member of what they made",
                           comm->ranks.rank);
}

/* Look at all ranks. False: some of them may still come. */
static bool look(const struct agreement *a, uint64_t *word, unsigned char *seen)
{
    const struct kolo_comm *c = a->comm;
    const bool late = kolo_now_us() >= a->deadline_us;
    bool all = true;
    *word = ~UINT64_C(0);
    for (int q = 0; q < c->ranks.nranks; q++) {
        uint64_t brought = ~UINT64_C(0);
        const bool came =
            kolo_agreement_has_come(c->health.board, c->member[q].slot, a->number, &brought);
        const bool gone = q != c->ranks.rank && kolo_gone_is(c, q);
        const bool out = is_left_out(c, q) || (a->take_part != NULL && !a->take_part[q]);
        seen[q] = out             ? KOLO_SEEN_OUT
                  : gone          ? KOLO_SEEN_GONE
                  : came || !late ? KOLO_SEEN_HERE
                                  : KOLO_SEEN_LATE;
        *word &= out ? ~UINT64_C(0) : brought;
        all = all && (came || gone || out || late);
    }
    return all;
}

/* What is decided holds for this rank, too: it counts the others as gone, and is gone for them. */
static kolo_status learn(const struct agreement *a, const unsigned char *seen)
{
    struct kolo_comm *c = a->comm;
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (seen[q] == KOLO_SEEN_HERE) {
            continue;
        }
        struct kolo_board_slot *slot = kolo_comm_slot(c, q);
        atomic_store(&slot->left_out, 1);
        if (q == c->ranks.rank || seen[q] == KOLO_SEEN_OUT) {
            continue;
        }
        kolo_gone_note(c, q);
        if (atomic_load(&c->failure.error) == KOLO_OK) {
            const bool late = seen[q] == KOLO_SEEN_LATE;
            const kolo_status st = late ? KOLO_ERR_TIMEOUT : KOLO_ERR_PEER;
            (void)kolo_fail(
                st, "rank %d %s", q,
                late ? "did not come to an agreement in time: the others go on without it"
                     : "died or left before an agreement");
            (void)kolo_failure_end(c, st, q);
        }
    }
    return kolo_agree_takes_part(c);
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

static kolo_status decide(const struct agreement *a, uint64_t *word, unsigned char *seen)
{
    struct kolo_comm *c = a->comm;
    uint64_t found = 0;
    for (unsigned round = 0;; round++) {
        const enum kolo_outcome outcome =
            kolo_agreement_read(c->health.board, a->number, &found, seen);
        if (outcome == KOLO_OUTCOME_DECIDED) {
            *word = found;
            return learn(a, seen);
        }
        KOLO_TRY(kolo_agree_takes_part(c));
        if (outcome == KOLO_OUTCOME_PASSED) { /* the others have not waited for this rank */
            atomic_store(&c->health.slot->left_out, 1);
            return kolo_agree_takes_part(c);
        }
        if (atomic_load(&c->failure.aborts) != a->aborts) {
            return kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
        }
        if (look(a, &found, seen)) {
            kolo_agreement_propose(c->health.board, c->member[c->ranks.rank].slot, a->number, found,
                                   seen);
        } else {
            wait_a_little(round);
        }
    }
}

kolo_status kolo_agree_among(struct kolo_comm *comm, const bool *take_part, int limit_ms,
                             unsigned aborts, uint64_t *word, unsigned char *seen)
{
    if (comm->ranks.nranks == 1) {
        seen[0] = KOLO_SEEN_HERE;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_agree_takes_part(comm));
    const uint64_t last = atomic_load(&comm->health.slot->came_to);
    const struct agreement a = {.comm = comm,
                                .take_part = take_part,
                                .number = last + 1,
                                .deadline_us = kolo_now_us() + limit_ms * 1e3,
                                .aborts = aborts};
    kolo_agreement_come(comm->health.board, comm->member[comm->ranks.rank].slot, a.number, *word);
    return decide(&a, word, seen);
}

static kolo_status check_arguments(const struct kolo_comm *comm, const uint64_t *word,
                                   const int *failed, int room)
{
    if (comm == NULL || word == NULL || (failed == NULL && room > 0)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL",
                         comm == NULL   ? "comm"
                         : word == NULL ? "word"
                                        : "failed");
    }
    if (comm->ranks.fork_generation != kolo_fork_generation()) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    if (kolo_group_depth > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "kolo_comm_agree() inside a group");
    }
    if (room < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "room is %d; it must be 0 or more", room);
    }
    return kolo_agree_is_possible(comm)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED,
                           "the ranks share no memory to agree in: they are on %d hosts, or use "
                           "a transport without it",
                           comm->ranks.nhosts);
}

kolo_status kolo_comm_agree(struct kolo_comm *comm, uint64_t *word, int failed[], int room,
                            int *count_out)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(check_arguments(comm, word, failed, room));
    unsigned char *seen = calloc((size_t)comm->ranks.nranks, 1);
    uint64_t agreed = *word;
    int count = 0;
    if (seen == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", comm->ranks.nranks);
    }
    const kolo_status st = kolo_agree_among(comm, NULL, comm->options.timeout_ms,
                                            atomic_load(&comm->failure.aborts), &agreed, seen);
    for (int q = 0; st == KOLO_OK && q < comm->ranks.nranks; q++) {
        if (seen[q] != KOLO_SEEN_HERE) {
            if (count < room) {
                failed[count] = q;
            }
            count++;
        }
    }
    free(seen);
    KOLO_TRY(st);
    *word = agreed;
    if (count_out != NULL) {
        *count_out = count;
    }
    return KOLO_OK;
}
