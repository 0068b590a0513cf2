// SPDX-License-Identifier: Apache-2.0
/* kolo's own threads and the forks of this process are counted: so it is known whether a process
 * has threads of the user's, and whether what it holds is its parent's. */
#ifndef KOLO_UTIL_THREADS_H
#define KOLO_UTIL_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>

/* The calling thread is kolo's own and makes no calls of the user's, until it ends. */
void kolo_thread_begin(void);
void kolo_thread_end(void);
/* Whether the caller is the only thread of this process beside kolo's own. While it waits, nobody
 * else can make a call. False also if that is not known. */
bool kolo_thread_is_alone(void);

/* ---- forks: what a process made before one belongs to the parent, and the child tells so ---- */

extern _Atomic unsigned kolo_forks;

/* Count from now on. */
void kolo_fork_count(void);
/* How many forks lie between this process and the first that counted. */
static inline unsigned kolo_fork_generation(void)
{
    return atomic_load_explicit(&kolo_forks, memory_order_relaxed);
}

#endif
