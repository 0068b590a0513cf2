// SPDX-License-Identifier: Apache-2.0
/* The costs by which a communicator prices plans: measured, given, or told by transports. */
#ifndef KOLO_CORE_COSTS_H
#define KOLO_CORE_COSTS_H

#include "core/comm.h"

/* KOLO_COSTS, or measured once a process: a second communicator comes up the faster. */
kolo_status kolo_comm_costs_find(int cores, const struct kolo_host *host, struct kolo_costs *out);
/* What rank 0 has measured on this host. If it dies, the next rank 0 need not measure again. */
void kolo_comm_costs_keep(const struct kolo_comm *c, const struct kolo_costs *told);
/* What rank 0's transports say of the ranks that it does not share memory with. */
void kolo_comm_costs_add_net(const struct kolo_comm *c, struct kolo_costs *costs);

#endif
