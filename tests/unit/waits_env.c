// SPDX-License-Identifier: Apache-2.0
#include "waits_env.h"

#include "core/comm.h"
#include "exec/cpu/wait.h"

bool kolo_test_has_membarrier(void)
{
    return kolo_membarrier_register();
}

bool kolo_test_sleeps_until_woken(const struct kolo_comm *comm)
{
    return comm->links.exec_env.membarrier;
}

void kolo_test_crowd(struct kolo_comm *comm)
{
    comm->links.exec_env.crowded = true;
}
