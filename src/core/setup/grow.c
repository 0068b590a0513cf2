// SPDX-License-Identifier: Apache-2.0
/* A communicator of old and new ranks.
 *
 * They meet by an id, as the ranks of kolo_comm_create() do. A rank of the old communicator may die
 * before it has joined the meeting, which then cannot know. So while old ranks wait, they watch the
 * old communicator. Nothing is sent over it: other threads may be using it. */
#include "core/call/fast_path.h"
#include "core/failure/failure.h"
#include "core/health/gone.h"
#include "core/health/watchdog.h"
#include "core/setup/create.h"

#include <stdio.h>
#include <unistd.h>

enum { LOOKS = 20, LOOK_US = 2000 };

struct old_ranks {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    struct kolo_comm *comm;
    unsigned aborts; /* of comm, before */
};

static kolo_status find_own_abort(const struct old_ranks *old)
{
    return atomic_load(&old->comm->failure.aborts) != old->aborts
               ? kolo_fail(KOLO_ERR_ABORTED, "kolo_comm_abort() was called")
               : KOLO_OK;
}

/* Who aborts leaves soon after, and so do those that hear of it: an abort goes before all ends. */
static kolo_status find_abort(const struct old_ranks *old)
{
    struct kolo_failure failure = {.size = sizeof failure};
    KOLO_TRY(find_own_abort(old));
    KOLO_TRY(kolo_comm_failure(old->comm, &failure));
    return failure.status == KOLO_ERR_ABORTED
               ? kolo_fail(KOLO_ERR_ABORTED, "the old communicator has failed: %s", failure.text)
               : KOLO_OK;
}

static kolo_status find_gone(struct old_ranks *old)
{
    char who[64];
    const int q = kolo_gone_find(old->comm, NULL, old->comm->ranks.nranks);
    if (q < 0) {
        return KOLO_OK;
    }
    old->parent.at_fault = q; /* old ranks keep their numbers */
    kolo_gone_say(old->comm, q, who, sizeof who);
    return kolo_fail(KOLO_ERR_PEER, "%s before the new communicator stood", who);
}

/* Once all have joined, the meeting itself sees an end, and a rank that is through may leave the old
 * communicator. Until then its members are waited for. */
static kolo_status may_wait(struct kolo_meet_parent *parent, enum kolo_meet_step step)
{
    struct old_ranks *old = (struct old_ranks *)parent;
    if (step == KOLO_MEET_COMPLETE) {
        return find_own_abort(old);
    }
    KOLO_TRY(find_abort(old));
    KOLO_TRY(find_gone(old));
    return kolo_comm_usable(old->comm);
}

/* The meeting has seen the end of a process and not known the rank. The kernel closes the descriptors
 * of a process some time before it reports its end. */
static void name_gone(struct old_ranks *old)
{
    for (int i = 0; i < LOOKS && find_gone(old) == KOLO_OK; i++) {
        (void)usleep(LOOK_US);
        kolo_watchdog_look();
    }
}

/* Why the meeting has ended with PEER. */
static kolo_status explain(struct old_ranks *old)
{
    char text[512];
    (void)snprintf(text, sizeof text, "%s", kolo_error_text());
    const bool is_named = old->parent.at_fault >= 0;
    if (!is_named) {
        name_gone(old);
    }
    KOLO_TRY(find_abort(old)); /* behind the loop: a rank that has left may have heard of it */
    if (is_named || old->parent.at_fault < 0) {
        kolo_error_set(text);
    }
    return KOLO_ERR_PEER;
}

static kolo_status check_arguments(const struct kolo_comm *comm, int nranks, int rank)
{
    KOLO_TRY(kolo_comm_usable(comm));
    if (kolo_group_depth > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "kolo_comm_grow() inside a group");
    }
    if (rank != comm->ranks.rank) {
        return kolo_fail(KOLO_ERR_INVALID, "rank is %d; rank %d of comm keeps its number", rank,
                         comm->ranks.rank);
    }
    return kolo_check_range("nranks", nranks, comm->ranks.nranks, KOLO_BOOT_MAX_RANKS);
}

kolo_status kolo_comm_grow(struct kolo_comm *comm, const struct kolo_id *id, int nranks, int rank,
                           const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct kolo_meet meet;
    if (comm == NULL) {
        return kolo_comm_create(id, nranks, rank, config, out);
    }
    if (id == NULL || out == NULL) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL", id == NULL ? "id" : "out");
    }
    KOLO_TRY(check_arguments(comm, nranks, rank));
    KOLO_TRY(kolo_meet_from_id(id, &meet));
    struct old_ranks old = {.parent = {.may_wait = may_wait, .at_fault = -1},
                            .comm = comm,
                            .aborts = atomic_load(&comm->failure.aborts)};
    const struct kolo_config as_comm = kolo_create_config(comm);
    meet.parent = &old.parent;
    meet.epoch = comm->ranks.epoch + 1;
    const kolo_status st =
        kolo_create_at(&meet, nranks, rank, false, config != NULL ? config : &as_comm, out);
    if (st == KOLO_ERR_PEER) {
        KOLO_TRY(explain(&old));
    }
    return st;
}
