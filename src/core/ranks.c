// SPDX-License-Identifier: Apache-2.0
/* Which rank this is, and of how many. */
#include "core/comm.h"

int kolo_comm_rank(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->ranks.rank : -1;
}

int kolo_comm_size(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->ranks.nranks : -1;
}

int kolo_comm_epoch(const struct kolo_comm *comm)
{
    return comm != NULL ? comm->ranks.epoch : -1;
}
