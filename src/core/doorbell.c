// SPDX-License-Identifier: Apache-2.0
/* Bells. As exec/cpu/wait.c says: the sleeper's membarrier stands in for a fence of the ringer. */
#include "core/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t kolo_doorbell_listen(struct kolo_doorbell *bell)
{
    __atomic_fetch_add(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    return __atomic_load_n(&bell->rings, __ATOMIC_SEQ_CST);
}

void kolo_doorbell_sleep(struct kolo_doorbell *bell, uint32_t heard, long ns)
{
    const struct timespec t = {0, ns};
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, heard, &t, NULL, 0);
}

void kolo_doorbell_get_up(struct kolo_doorbell *bell)
{
    __atomic_fetch_sub(&bell->sleepers, 1, __ATOMIC_RELEASE);
}

void kolo_doorbell_ring(struct kolo_doorbell *bell)
{
    __atomic_fetch_add(&bell->rings, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void kolo_doorbell_wake_all(struct kolo_doorbell *bell)
{
    while (__atomic_load_n(&bell->sleepers, __ATOMIC_ACQUIRE) > 0) {
        kolo_doorbell_ring(bell);
        sched_yield();
    }
}
