// SPDX-License-Identifier: Apache-2.0
/* Agreement among the survivors: kolo_comm_agree(), and what reconfiguring rests on.
 *
 * Ranks of one host agree on their board (on_board.c), others over links (over_links.c). Either
 * way a decision outlives the rank that made it. */
#include "core/agree/inner.h"
#include "core/agree/links.h"
#include "core/call/fast_path.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"

#include <stdlib.h>
#include <string.h>

bool kolo_agree_is_on_board(const struct kolo_comm *comm)
{
    const struct kolo_board *board = comm->health.board;
    return board != NULL && (int)board->nslots == comm->ranks.nranks;
}

static bool have_links(const struct kolo_comm *comm)
{
    const struct kolo_agree_links *l = comm->agree_links;
    for (int q = 0; l != NULL && q < comm->ranks.nranks; q++) {
        if (l->line[q].address.len == 0) {
            return false;
        }
    }
    return l != NULL;
}

bool kolo_agree_is_possible(const struct kolo_comm *comm)
{
    return comm->ranks.nranks == 1 || kolo_agree_is_on_board(comm) || have_links(comm);
}

kolo_status kolo_agree_check_possible(const struct kolo_comm *comm)
{
    return kolo_agree_is_possible(comm)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED, "the ranks share no memory to agree in, and some "
                                                 "have no link for it");
}

bool kolo_agree_is_left_out(const struct kolo_comm *c, int q)
{
    const struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    return atomic_load(&c->member[q].left_out) ||
           (slot != NULL && atomic_load(&slot->left_out) != 0);
}

void kolo_agree_leave_out(const struct kolo_comm *c, int q)
{
    struct kolo_board_slot *slot = kolo_comm_slot(c, q);
    atomic_store(&c->member[q].left_out, true);
    if (slot != NULL) {
        atomic_store(&slot->left_out, 1);
    }
}

bool kolo_agree_is_out(const struct kolo_agreement *a, int q)
{
    return kolo_agree_is_left_out(a->comm, q) || (a->take_part != NULL && !a->take_part[q]);
}

kolo_status kolo_agree_may_go_on(const struct kolo_agreement *a)
{
    return atomic_load(&a->comm->failure.aborts) == a->aborts
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
}

kolo_status kolo_agree_takes_part(const struct kolo_comm *comm)
{
    return !kolo_agree_is_left_out(comm, comm->ranks.rank)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_PEER,
                           "rank %d is left out: the other ranks have agreed to go on without it, "
                           "because it came late, or was no member of what they made",
                           comm->ranks.rank);
}

/* What is decided holds for this rank, too: it counts the others as gone, and is gone for them. */
static kolo_status learn(struct kolo_comm *c, const unsigned char *seen)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (seen[q] == KOLO_SEEN_HERE) {
            continue;
        }
        kolo_agree_leave_out(c, q);
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

kolo_status kolo_agree_among(struct kolo_comm *comm, const bool *take_part, int limit_ms,
                             unsigned aborts, uint64_t *word, unsigned char *seen)
{
    const struct kolo_agreement a = {.comm = comm,
                                     .take_part = take_part,
                                     .limit_ms = limit_ms,
                                     .deadline_us = kolo_now_us() + limit_ms * 1e3,
                                     .aborts = aborts};
    if (comm->ranks.nranks == 1) {
        seen[0] = KOLO_SEEN_HERE;
        return KOLO_OK;
    }
    KOLO_TRY(kolo_agree_takes_part(comm));
    KOLO_TRY(kolo_agree_is_on_board(comm) ? kolo_agree_on_board(&a, word, seen)
                                          : kolo_agree_over_links(&a, word, seen));
    return learn(comm, seen);
}

/* ---- the call ---- */

kolo_status kolo_check_given(const char *name, const void *pointer)
{
    return pointer != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_INVALID, "%s is NULL", name);
}

kolo_status kolo_check_members_call(const struct kolo_comm *comm, const char *call)
{
    KOLO_TRY(kolo_check_given("comm", comm));
    if (comm->ranks.fork_generation != kolo_fork_generation()) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    return kolo_group_depth == 0 ? KOLO_OK
                                 : kolo_fail(KOLO_ERR_INVALID, "%s() inside a group", call);
}

static kolo_status check_arguments(const struct kolo_comm *comm, const uint64_t *word,
                                   const int *failed, int room)
{
    KOLO_TRY(kolo_check_members_call(comm, "kolo_comm_agree"));
    KOLO_TRY(kolo_check_given("word", word));
    if (room < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "room is %d; it must be 0 or more", room);
    }
    KOLO_TRY(room > 0 ? kolo_check_given("failed", failed) : KOLO_OK);
    return kolo_agree_check_possible(comm);
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
