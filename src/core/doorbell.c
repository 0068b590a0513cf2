// SPDX-License-Identifier: Apache-2.0
/* Sleeping on bells. As exec/cpu/wait.c says: the sleeper's membarrier stands in for a fence of the
 * ringer. */
#include "core/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint32_t kolo_sleeper_listen(struct kolo_sleeper **list, struct kolo_sleeper *self)
{
    self->next = *list;
    *list = self;
    __atomic_fetch_add(&self->bell->sleepers, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    return __atomic_load_n(&self->bell->rings, __ATOMIC_SEQ_CST);
}

void kolo_sleeper_sleep(const struct kolo_sleeper *self, uint32_t heard, long ns)
{
    const struct timespec t = {0, ns};
    syscall(SYS_futex, &self->bell->rings, FUTEX_WAIT, heard, &t, NULL, 0);
}

void kolo_sleeper_get_up(struct kolo_sleeper **list, const struct kolo_sleeper *self)
{
    __atomic_fetch_sub(&self->bell->sleepers, 1, __ATOMIC_RELEASE);
    while (*list != self) {
        list = &(*list)->next;
    }
    *list = self->next;
}

bool kolo_sleepers_wake(const struct kolo_sleeper *list, const struct kolo_comm *comm)
{
    bool any = false;
    for (; list != NULL; list = list->next) {
        if (comm == NULL || list->comm == comm) {
            __atomic_fetch_add(&list->bell->rings, 1, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, &list->bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
            any = true;
        }
    }
    return any;
}
