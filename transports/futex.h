// SPDX-License-Identifier: Apache-2.0
/* Wake the threads that sleep on a word. Not FUTEX_PRIVATE: they may be in another process. */
#ifndef KOLO_TRANSPORTS_FUTEX_H
#define KOLO_TRANSPORTS_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void kolo_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, (void *)0, (void *)0, 0);
}

#endif
