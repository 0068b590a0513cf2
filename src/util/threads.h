// SPDX-License-Identifier: Apache-2.0
/* kolo's own threads are counted, so that it is known whether a process has others. */
#ifndef KOLO_UTIL_THREADS_H
#define KOLO_UTIL_THREADS_H

#include <stdbool.h>

/* The calling thread is kolo's own and makes no calls of the user's, until it ends. */
void kolo_thread_begin(void);
void kolo_thread_end(void);
/* Whether the caller is the only thread of this process beside kolo's own. While it waits, nobody
 * else can make a call. False also if that is not known. */
bool kolo_thread_is_alone(void);

#endif
