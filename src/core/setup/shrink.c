// SPDX-License-Identifier: Apache-2.0
/* What is left of a communicator after ranks have died: the survivors make a new one.
 *
 * Survivors cannot talk over the old communicator, so each derives name and place of the meeting
 * from what all of them know: the excluded ranks, and the port that the first survivor reserved
 * when it joined. */
#include "core/failure/failure.h"
#include "core/setup/create.h"

#include <unistd.h>

static bool is_among(const int *ranks, int n, int rank)
{
    int i = 0;
    while (i < n && ranks[i] != rank) {
        i++;
    }
    return i < n;
}

static int first_survivor(const int *exclude, int nexclude)
{
    int first = 0;
    while (is_among(exclude, nexclude, first)) {
        first++;
    }
    return first;
}

kolo_status kolo_comm_shrink(struct kolo_comm *comm, const int *exclude, int nexclude,
                             const struct kolo_config *config, struct kolo_comm **out)
{
    KOLO_UNCANCELLED;
    struct kolo_meet meet;
    int rank = comm != NULL ? comm->ranks.rank : 0;
    if (comm == NULL || out == NULL || (exclude == NULL && nexclude > 0)) {
        return kolo_fail(KOLO_ERR_INVALID, "%s is NULL",
                         comm == NULL  ? "comm"
                         : out == NULL ? "out"
                                       : "exclude");
    }
    if (comm->ranks.fork_generation != kolo_fork_generation()) {
        return kolo_fail(KOLO_ERR_FORKED, "this communicator belongs to the parent process");
    }
    uint64_t who = 0;
    for (int i = 0; i < nexclude; i++) {
        if (exclude[i] < 0 || exclude[i] >= comm->ranks.nranks || exclude[i] == comm->ranks.rank ||
            is_among(exclude, i, exclude[i])) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "exclude[%d] is %d; it must be another rank (0 to %d), each once", i,
                             exclude[i], comm->ranks.nranks - 1);
        }
        rank -= exclude[i] < comm->ranks.rank;
        who += UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(exclude[i] + 1); /* in any order */
    }
    const struct kolo_config as_parent = kolo_create_config(comm);
    KOLO_TRY(kolo_create_name(comm, "shrink", (unsigned)who, nexclude, &meet));
    meet.place = comm->member[first_survivor(exclude, nexclude)].reserved;
    if (rank == 0 && comm->rendezvous.reserved_fd >= 0) { /* it listens there now */
        close(comm->rendezvous.reserved_fd);
        comm->rendezvous.reserved_fd = -1;
    }
    return kolo_create_at(&meet, comm->ranks.nranks - nexclude, rank, rank == 0,
                          config != NULL ? config : &as_parent, out);
}
