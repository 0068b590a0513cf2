// SPDX-License-Identifier: Apache-2.0
/* What is left of a communicator after ranks have died: the survivors make a new one.
 *
 * Survivors cannot talk over the old communicator, so each derives name and place of the meeting
 * from what all of them know: the excluded ranks, and the port that the first survivor reserved
 * when it joined. While they meet, each still watches the old communicator. The end of one more
 * rank, which would be waited for in vain, ends the meeting for all.
 *
 * Survivors of deaths on several hosts may know of different deaths. They then go to different
 * meetings, or wait at one where no rank knows of all deaths. So they also look for ends that no
 * other rank could tell them of. A call that finds an end fails. The caller excludes this rank, too,
 * and calls again. After the last of these calls all survivors have excluded the same ranks. */
#include "core/agree/agree.h"
#include "core/board/gathering.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/setup/create.h"
#include "core/setup/probe.h"

#include <stdlib.h>

enum { GATHER_US = 500 * 1000, GATHER_LOOK_MS = 50 };

struct survivors {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    struct kolo_comm *comm;
    int *ranks; /* [nranks] in comm, by the number in the new communicator */
    int nranks, me;
    unsigned aborts;    /* of comm, before */
    uint32_t seen_ends; /* kolo_gone_has_news() */
    struct kolo_probe probe;
};

static kolo_status check_arguments(const struct kolo_comm *comm, const int *exclude, int nexclude,
                                   struct kolo_comm *const *out)
{
    KOLO_TRY(kolo_check_members_call(comm, "kolo_comm_shrink"));
    KOLO_TRY(kolo_check_given("out", out));
    if (nexclude < 0) {
        return kolo_fail(KOLO_ERR_INVALID, "nexclude is %d; it must be 0 or more", nexclude);
    }
    return nexclude > 0 ? kolo_check_given("exclude", exclude) : KOLO_OK;
}

static kolo_status find_survivors(struct survivors *s, const int *exclude, int nexclude)
{
    const struct kolo_comm *comm = s->comm;
    s->ranks = calloc((size_t)comm->ranks.nranks, sizeof *s->ranks);
    if (s->ranks == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", comm->ranks.nranks);
    }
    for (int i = 0; i < nexclude; i++) {
        const int q = exclude[i];
        if (q < 0 || q >= comm->ranks.nranks || q == comm->ranks.rank || s->ranks[q] != 0) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "exclude[%d] is %d; it must be another rank (0 to %d), each once", i,
                             q, comm->ranks.nranks - 1);
        }
        s->ranks[q] = 1; /* excluded, until the others have moved up */
    }
    for (int q = 0; q < comm->ranks.nranks; q++) {
        if (s->ranks[q] == 0) {
            s->me = q == comm->ranks.rank ? s->nranks : s->me;
            s->ranks[s->nranks++] = q;
        }
    }
    return KOLO_OK;
}

/* This rank looks until all have come. From then on the meeting itself sees an end, and a rank that
 * is through may leave. Two kinds of ranks probe the ranks of other hosts: the rank that serves the
 * meeting, for all that have joined it, and those that seek a meeting, because others may have gone
 * to another one. */
static kolo_status may_wait(struct kolo_meet_parent *parent, enum kolo_meet_step step)
{
    char who[64];
    struct survivors *s = (struct survivors *)parent;
    const bool joining = step != KOLO_MEET_COMPLETE;
    if (atomic_load(&s->comm->failure.aborts) != s->aborts) {
        return kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called");
    }
    if (step == (s->me == 0 ? KOLO_MEET_JOINED : KOLO_MEET_SEEKING)) {
        kolo_probe_step(&s->probe, s->comm, s->ranks, s->nranks);
    }
    const int gone = joining && kolo_gone_has_news(s->comm, &s->seen_ends)
                         ? kolo_gone_find(s->comm, s->ranks, s->nranks)
                         : -1;
    if (gone < 0) {
        return KOLO_OK;
    }
    parent->at_fault = gone;
    kolo_gone_say(s->comm, s->ranks[gone], who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER, "%s, and is not among the excluded ranks", who);
}

/* The excluded ranks, in any order, name the meeting. */
static kolo_status name_meeting(struct survivors *s, const int *exclude, int nexclude,
                                struct kolo_meet *meet)
{
    struct kolo_comm *comm = s->comm;
    uint64_t who = 0;
    for (int i = 0; i < nexclude; i++) {
        who += UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(exclude[i] + 1);
    }
    KOLO_TRY(kolo_create_name(comm, "shrink", (unsigned)who, nexclude, meet));
    meet->place = comm->member[s->ranks[0]].reserved;
    if (kolo_own_fd_is(&comm->rendezvous.reserved_fd)) {
        meet->listener = comm->rendezvous.reserved_fd.fd;
    }
    meet->parent = &s->parent;
    meet->epoch = comm->ranks.epoch + 1;
    return KOLO_OK;
}

/* Name the rank by its number in the old communicator, which the caller knows. */
static kolo_status note_end(const struct survivors *s)
{
    char who[64];
    const int q = s->ranks[s->parent.at_fault];
    kolo_gone_note(s->comm, q);
    kolo_gone_say(s->comm, q, who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER,
                     "%s before the new communicator stood: it must be excluded, too", who);
}

/* Where ranks share cores, wait for a while until all survivors of this host have come. */
static kolo_status gather(struct survivors *s, int nexclude)
{
    const uint32_t number = (uint32_t)nexclude + 1; /* a survivor that comes again excludes more */
    const double until = kolo_now_us() + GATHER_US;
    bool all = !s->comm->links.exec_env.crowded;
    kolo_gathering_come(s->comm, number);
    while (!all && kolo_now_us() < until) {
        KOLO_TRY(may_wait(&s->parent, KOLO_MEET_SEEKING));
        all = kolo_gathering_await(s->comm, number, s->ranks, s->nranks, GATHER_LOOK_MS);
    }
    return KOLO_OK;
}

static kolo_status meet_again(struct survivors *s, const int *exclude, int nexclude,
                              const struct kolo_config *config, struct kolo_comm **out)
{
    struct kolo_meet meet;
    KOLO_TRY(find_survivors(s, exclude, nexclude));
    KOLO_TRY(may_wait(&s->parent, KOLO_MEET_SEEKING));
    KOLO_TRY(gather(s, nexclude));
    KOLO_TRY(name_meeting(s, exclude, nexclude, &meet));
    const struct kolo_config as_parent = kolo_create_config(s->comm);
    return kolo_create_at(&meet, s->nranks, s->me, s->me == 0, config != NULL ? config : &as_parent,
                          out);
}

kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                             const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(check_arguments(comm, exclude, nexclude, out));
    struct survivors s = {.parent = {.may_wait = may_wait, .at_fault = -1},
                          .comm = comm,
                          .aborts = atomic_load(&comm->failure.aborts)};
    kolo_status st = meet_again(&s, exclude, nexclude, config, out);
    if (st == KOLO_ERR_PEER && s.parent.at_fault >= 0) {
        st = note_end(&s);
    }
    kolo_probe_end(&s.probe);
    free(s.ranks);
    return st;
}
