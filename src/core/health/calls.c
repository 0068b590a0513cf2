// SPDX-License-Identifier: Apache-2.0
/* The calls of other hosts, compared with this rank's.
 *
 * Most mismatches show in the data: a message carries its sender's call, and the receive compares
 * it (exec/cpu/exec.c). Three kinds of calls do not: a message for which no receive is ever posted,
 * a wait for a rank that sends nothing, and calls that exchange no data at all. So a message
 * without a receive is compared when it comes, and the first ranks of the hosts tell their last
 * call to their neighbours in gossip ten times a second. Inside a host the board has all calls. */
#include "core/health/calls.h"

#include "core/board/text.h"
#include "core/failure/failure.h"
#include "core/health/gossip.h"

void kolo_calls_last(void *comm, struct kolo_call_sign *out)
{
    const struct kolo_comm *c = comm;
    const struct kolo_board_slot *slot = c->health.slot;
    struct kolo_recorded call;
    *out = slot != NULL && kolo_record_find(slot, kolo_comm_calls(c), &call)
               ? kolo_record_sign(slot, call.number, call.key, call.count)
               : (struct kolo_call_sign){0};
}

enum { SAME, DIFFERENT, NOT_MADE };

/* A call that is too old to be known counts as the same. */
static int compare(const struct kolo_comm *c, const struct kolo_call_sign *told)
{
    struct kolo_recorded mine, theirs;
    return kolo_told_differs(c, told, &mine, &theirs) ? DIFFERENT
           : theirs.number > kolo_comm_calls(c)       ? NOT_MADE
                                                      : SAME;
}

/* Whether `told` still waits for this rank to make that call. */
static bool take(struct kolo_comm *c, int q, const struct kolo_call_sign *told)
{
    const int result = compare(c, told);
    if (result == DIFFERENT && atomic_load(&c->health.differs) == 0) {
        c->health.differing = *told;
        atomic_store(&c->health.differs, q + 1);
    }
    return result == NOT_MADE;
}

static bool still_waits(struct kolo_comm *c, int q)
{
    struct kolo_member *m = &c->member[q];
    if (m->heard.number != 0 && !take(c, q, &m->heard)) {
        m->heard = (struct kolo_call_sign){0};
    }
    return m->heard.number != 0;
}

/* The oldest call that this rank has not made is kept: if it differs, it is the first one. */
void kolo_calls_heard(void *comm, int rank, const struct kolo_call_sign *call)
{
    struct kolo_comm *c = comm;
    if (c->health.slot != NULL && !still_waits(c, rank) && take(c, rank, call)) {
        c->member[rank].heard = *call;
    }
}

void kolo_calls_compare(struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        (void)still_waits(c, q);
    }
}

void kolo_calls_tell(struct kolo_comm *c)
{
    /* Acquire: the first call is made after gossip has begun. */
    const uint64_t calls = atomic_load_explicit(&c->health.slot->begun, memory_order_acquire);
    if (calls != c->health.told_calls) {
        c->health.told_calls = calls;
        kolo_gossip_tell(c);
    }
}

bool kolo_calls_learn(struct kolo_comm *c)
{
    const int q = atomic_load(&c->health.differs) - 1;
    if (q < 0 || atomic_load(&c->failure.error) != KOLO_OK) {
        return false;
    }
    kolo_say_told(c, q, &c->health.differing);
    (void)kolo_failure_end(c, KOLO_ERR_MISMATCH, q);
    return true;
}
