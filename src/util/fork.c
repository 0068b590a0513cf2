// SPDX-License-Identifier: Apache-2.0
/* The count of forks: each child adds one. */
#include "util/fork.h"

#include <pthread.h>

_Atomic unsigned kolo_forks;

static void count_in_child(void)
{
    atomic_fetch_add_explicit(&kolo_forks, 1, memory_order_relaxed);
}

static void register_count(void)
{
    (void)pthread_atfork(NULL, NULL, count_in_child);
}

void kolo_fork_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_count);
}
