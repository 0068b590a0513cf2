// SPDX-License-Identifier: Apache-2.0
/* The count of kolo's own threads, beside the kernel's count of all threads of the process.
 *
 * The kernel counts a thread from before its begin until after its end. So threads that come or go
 * only make the difference larger. A change between the two looks makes the answer unknown. */
#include "util/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

enum { COUNT_BITS = 32, LINKS_OF_NO_THREADS = 2 };
#define CHANGE (UINT64_C(1) << COUNT_BITS)

static _Atomic uint64_t own; /* threads in the low bits, changes in the high ones */
static _Thread_local bool is_own;

static void forget_in_child(void)
{
    atomic_store(&own, 0); /* only the thread that forked is there */
}

static void register_forget(void)
{
    (void)pthread_atfork(NULL, NULL, forget_in_child);
}

void kolo_thread_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, register_forget);
    is_own = true;
    atomic_fetch_add(&own, CHANGE + 1);
}

void kolo_thread_end(void)
{
    atomic_fetch_add(&own, CHANGE - 1);
}

bool kolo_thread_is_alone(void)
{
    struct stat tasks;
    const uint64_t before = atomic_load(&own);
    if (is_own || stat("/proc/self/task", &tasks) != 0 || atomic_load(&own) != before) {
        return false;
    }
    return tasks.st_nlink == LINKS_OF_NO_THREADS + (before & (CHANGE - 1)) + 1;
}

/* ---- forks ---- */

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
