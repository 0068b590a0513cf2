// SPDX-License-Identifier: Apache-2.0
/* Forks of this process are counted. What a process made before a fork belongs to the parent, and
 * the child tells so by the count. */
#ifndef KOLO_UTIL_FORK_H
#define KOLO_UTIL_FORK_H

#include <stdatomic.h>

extern _Atomic unsigned kolo_forks;

/* Count from now on. */
void kolo_fork_count(void);
/* How many forks lie between this process and the first that counted. */
static inline unsigned kolo_fork_generation(void)
{
    return atomic_load_explicit(&kolo_forks, memory_order_relaxed);
}

#endif
