// SPDX-License-Identifier: Apache-2.0
/* Who the members of a communicator are, and where. Fixed once it has come up. */
#ifndef KOLO_CORE_RANKS_H
#define KOLO_CORE_RANKS_H

#include "topology/machine/host.h"

#include <stdbool.h>
#include <stdint.h>

struct kolo_ranks {
    int rank, nranks;
    uint64_t id; /* equal on all ranks, differs between communicators */
    int epoch;   /* kolo_comm_epoch() */
    char name[32];
    unsigned fork_generation; /* util/threads.h: a communicator belongs to one process */
    bool threads;             /* other members are threads of this process */
    struct kolo_place *place; /* [nranks] */
    int *host_of;             /* [nranks], hosts numbered as they come */
    int nhosts, local_rank, local_size;
    /* A pool is the cores that some ranks share. Containers are hosts of their own, and may have one
     * pool. */
    int npools, pool_size; /* pool_size: the ranks of this rank's */
};

#endif
