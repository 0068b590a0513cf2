// SPDX-License-Identifier: Apache-2.0
/* A communicator of some ranks of another one, which only these ranks make.
 *
 * The members need not talk over the parent first. Each derives name and secret of a meeting from
 * the list of members and the tag, which are the same on all, and the first member serves it. So
 * members of other groups may make theirs at the same time, in any order. While they meet, each
 * watches the parent's board, where it finds a member that has ended. Only ranks of one host find
 * such a meeting: over several hosts its place would have to be told. */
#include "core/agree/agree.h"
#include "core/call/call.h"
#include "core/health/gone.h"
#include "core/setup/create.h"

#include <stdlib.h>
#include <string.h>

static const double WARN_US = 10e6;

struct members {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    struct kolo_comm *comm;
    const int *ranks; /* [nranks] in comm, by the number in the new communicator */
    int nranks, me;
    unsigned aborts; /* of comm, before */
    double warn_us;
};

/* All members come to the same answer, but for who is in no list. */
static kolo_status find_me(struct members *m)
{
    const int total = m->comm->ranks.nranks;
    KOLO_TRY(kolo_check_range("nranks", m->nranks, 1, total));
    bool *listed = calloc((size_t)total, sizeof *listed);
    if (listed == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", total);
    }
    kolo_status st = KOLO_OK;
    for (int i = 0; i < m->nranks && st == KOLO_OK; i++) {
        const int q = m->ranks[i];
        if (q < 0 || q >= total || listed[q]) {
            st = kolo_fail(KOLO_ERR_INVALID, "members[%d] is %d; it must be a rank (0 to %d), %s",
                           i, q, total - 1, "each once");
            break;
        }
        listed[q] = true;
        m->me = q == m->comm->ranks.rank ? i : m->me;
    }
    free(listed);
    return st != KOLO_OK || m->me >= 0
               ? st
               : kolo_fail(KOLO_ERR_INVALID, "none of the %d members is rank %d, which calls",
                           m->nranks, m->comm->ranks.rank);
}

/* Until all have come, this rank looks whether a member has ended. From then on the meeting itself
 * sees an end, and a member that is through may leave the parent. */
static kolo_status may_wait(struct kolo_meet_parent *parent, enum kolo_meet_step step)
{
    char who[64];
    struct members *m = (struct members *)parent;
    if (atomic_load(&m->comm->failure.aborts) != m->aborts) {
        return kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
    }
    if (step == KOLO_MEET_SEEKING && m->warn_us > 0 && kolo_now_us() > m->warn_us) {
        m->warn_us = 0; /* once */
        KOLO_LOG(WARN, INIT, "a group of %d ranks has waited %d s for rank %d to join", m->nranks,
                 (int)(WARN_US / 1e6), m->ranks[0]);
    }
    const int gone = step != KOLO_MEET_COMPLETE ? kolo_gone_find(m->comm, m->ranks, m->nranks) : -1;
    if (gone < 0) {
        return KOLO_OK;
    }
    parent->at_fault = gone;
    kolo_gone_say(m->comm, m->ranks[gone], who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER, "%s before the new communicator stood", who);
}

static kolo_status name_meeting(struct members *m, const char *tag, struct kolo_meet *out)
{
    const uint64_t hash =
        kolo_hash(kolo_hash(0, tag, strlen(tag)), m->ranks, (size_t)m->nranks * sizeof *m->ranks);
    KOLO_TRY(kolo_create_name(m->comm, "group", (unsigned)hash, (int)(hash >> 32), out));
    out->parent = &m->parent;
    return KOLO_OK;
}

kolo_status kolo_comm_create_group(struct kolo_comm *comm, const int members[], int nranks,
                                   const char *tag, const struct kolo_config *config,
                                   struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct kolo_meet meet;
    KOLO_TRY(kolo_check_members_call(comm, "kolo_comm_create_group"));
    KOLO_TRY(kolo_check_given("members", members));
    KOLO_TRY(kolo_check_given("tag", tag));
    KOLO_TRY(kolo_check_given("out", out));
    struct members m = {.parent = {.may_wait = may_wait, .at_fault = -1},
                        .comm = comm,
                        .ranks = members,
                        .nranks = nranks,
                        .me = -1,
                        .aborts = atomic_load(&comm->failure.aborts),
                        .warn_us = kolo_now_us() + WARN_US};
    KOLO_TRY(find_me(&m));
    if (comm->ranks.nhosts > 1) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "the ranks are on %d hosts; %s", comm->ranks.nhosts,
                         "kolo_comm_split() takes any");
    }
    KOLO_TRY(name_meeting(&m, tag, &meet));
    const struct kolo_config as_parent = kolo_create_config(comm);
    return kolo_create_at(&meet, nranks, m.me, m.me == 0, config != NULL ? config : &as_parent,
                          out);
}
