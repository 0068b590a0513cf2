// SPDX-License-Identifier: Apache-2.0
/* Counts of kolo's own threads and of the forks of this process. They tell whether the process has
 * threads of the application, and whether its state belongs to its parent. */
#ifndef KOLO_UTIL_THREADS_H
#define KOLO_UTIL_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>

/* Between begin and end, the calling thread is one of kolo's own: it makes no calls for the
 * application. */
void kolo_thread_begin(void);
void kolo_thread_end(void);
/* Whether the caller is the only thread of this process beside kolo's own. While it waits, nobody
 * else can make a call. False also if that is not known. */
bool kolo_thread_is_alone(void);

/* ---- forks: state that a process made before a fork belongs to the parent ---- */

extern _Atomic unsigned kolo_forks;

/* Count from now on. */
void kolo_fork_count(void);
/* How many forks lie between this process and the first that counted. */
static inline unsigned kolo_fork_generation(void)
{
    return atomic_load_explicit(&kolo_forks, memory_order_relaxed);
}

#endif
