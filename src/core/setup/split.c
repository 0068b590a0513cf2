// SPDX-License-Identifier: Apache-2.0
/* Parts of a communicator: ranks of one color make a communicator of their own.
 *
 * The ranks agree over the communicator itself: an all-gather brings colors and keys, a second one
 * brings the place where the first rank of each part listens. */
#include "core/call/call.h"
#include "core/call/fast_path.h"
#include "core/setup/create.h"

#include <stdio.h>
#include <stdlib.h>

/* A meeting of ranks of this communicator: they share its secret. */
kolo_status kolo_create_name(const struct kolo_comm *parent, const char *what, unsigned number,
                             int color, struct kolo_meet *out)
{
    *out = (struct kolo_meet){0};
    (void)snprintf(out->name, sizeof out->name, "%s-%u-%d-%llx", what, number, color,
                   (unsigned long long)parent->ranks.id);
    return kolo_prove(parent->rendezvous.secret, out->name, sizeof out->name, out->secret)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "HMAC-SHA-256 failed");
}

struct kolo_config kolo_create_config(const struct kolo_comm *c)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.deterministic = c->options.deterministic;
    config.timeout_ms = c->options.timeout_ms;
    config.device = c->options.cuda_ordinal;
    config.name = c->ranks.name;
    config.algo = c->options.algo_text;
    config.transport = c->options.transport_text;
    config.progress = c->options.progress;
    config.progress_arg = c->options.progress_arg;
    return config;
}

/* All ranks of the parent learn where the first rank of each part listens: meet->place is that of
 * rank `first`, which is in this rank's part, or -1. */
static kolo_status place_meeting(struct kolo_comm *parent, int first, struct kolo_meet *meet)
{
    const size_t n = (size_t)parent->ranks.nranks;
    struct kolo_inet *all = calloc(n, sizeof *all);
    kolo_status served = KOLO_OK;
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", parent->ranks.nranks);
    }
    if (first == parent->ranks.rank) {
        served = kolo_boot_serve(meet, true);
    }
    const struct kolo_inet mine = served == KOLO_OK ? meet->place : (struct kolo_inet){0};
    const kolo_status st = kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, parent, NULL);
    meet->place = first >= 0 ? all[first] : mine;
    free(all);
    KOLO_TRY(st);
    KOLO_TRY(served);
    return first < 0 || meet->place.family != 0
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_PEER, "rank %d could not listen for its part", first);
}

struct whole {
    struct kolo_meet_parent parent; /* first: the meeting sees only this member */
    const struct kolo_comm *comm;
};

/* A rank that died never joins its part. */
static kolo_status may_wait(struct kolo_meet_parent *parent, enum kolo_meet_step step)
{
    (void)step;
    return kolo_comm_usable(((struct whole *)parent)->comm);
}

kolo_status kolo_comm_split(struct kolo_comm *comm, int color, int key,
                            const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    KOLO_TRY(kolo_comm_usable(comm));
    if (out == NULL || (color < 0 && color != KOLO_NO_COLOR)) {
        return out == NULL ? kolo_fail(KOLO_ERR_INVALID, "out is NULL")
                           : kolo_fail(KOLO_ERR_INVALID,
                                       "color is %d; it must be >= 0 or KOLO_NO_COLOR", color);
    }
    if (kolo_group_depth > 0) { /* the group would exchange the colors after this call's end */
        return kolo_fail(KOLO_ERR_INVALID, "kolo_comm_split() inside a group");
    }
    const int32_t mine[2] = {color, key};
    const unsigned number = comm->rendezvous.splits++;
    struct kolo_meet meet;
    int32_t *all = calloc((size_t)comm->ranks.nranks, sizeof mine);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", comm->ranks.nranks);
    }
    const kolo_status st = kolo_all_gather(mine, all, 2, KOLO_INT32, comm, NULL);
    int rank = 0, size = 0, first = comm->ranks.rank;
    for (int q = 0; q < comm->ranks.nranks && st == KOLO_OK; q++) {
        const bool before = all[2 * q + 1] < key || (all[2 * q + 1] == key && q < comm->ranks.rank);
        size += all[2 * q] == color;
        rank += all[2 * q] == color && before;
        first = all[2 * q] == color && (all[2 * q + 1] < all[2 * first + 1] ||
                                        (all[2 * q + 1] == all[2 * first + 1] && q < first))
                    ? q
                    : first;
    }
    free(all);
    KOLO_TRY(st);
    KOLO_TRY(kolo_create_name(comm, "split", number, color, &meet));
    if (comm->ranks.nhosts > 1) {
        KOLO_TRY(place_meeting(comm, color != KOLO_NO_COLOR ? first : -1, &meet));
    }
    if (color == KOLO_NO_COLOR) {
        *out = NULL;
        return KOLO_OK;
    }
    const struct kolo_config as_parent = kolo_create_config(comm);
    struct whole whole = {.parent = {.may_wait = may_wait, .at_fault = -1}, .comm = comm};
    meet.parent = &whole.parent;
    const kolo_status made = kolo_create_at(&meet, size, rank, rank == 0 && meet.place.family == 0,
                                            config != NULL ? config : &as_parent, out);
    return made != KOLO_OK && atomic_load(&comm->failure.error) != KOLO_OK ? kolo_comm_usable(comm)
                                                                           : made;
}
