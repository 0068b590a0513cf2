// SPDX-License-Identifier: Apache-2.0
/* The processor's time counter, which takes few instructions to note.
 *
 * It is the time-stamp counter on x86-64 and the virtual counter on AArch64. Both agree on all
 * cores of a machine. On other processors it is the clock. The reader derives the counter's rate
 * from two moments whose clock times it knows, too. */
#ifndef KOLO_TICKS_H
#define KOLO_TICKS_H

#include "util/util.h"

#include <stdatomic.h>

/* The counter gives two halves. They stay apart, because joining costs more than storing both. */
struct kolo_ticks {
    _Atomic uint32_t low, high;
};

static inline void kolo_ticks_halves(uint32_t *low, uint32_t *high)
{
#if defined(__x86_64__)
    __asm__ volatile("rdtsc" : "=a"(*low), "=d"(*high));
#else
    uint64_t now;
#if defined(__aarch64__)
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
#else
    now = (uint64_t)(kolo_now_us() * 1e3);
#endif
    *low = (uint32_t)now;
    *high = (uint32_t)(now >> 32);
#endif
}

static inline void kolo_ticks_note(struct kolo_ticks *at)
{
    uint32_t low, high;
    kolo_ticks_halves(&low, &high);
    atomic_store_explicit(&at->low, low, memory_order_relaxed);
    atomic_store_explicit(&at->high, high, memory_order_relaxed);
}

static inline uint64_t kolo_ticks_now(void)
{
    uint32_t low, high;
    kolo_ticks_halves(&low, &high);
    return (uint64_t)high << 32 | low;
}

/* The counter, with kolo_now_us() of the same moment: both are read again if the thread lost its
 * core between them. */
static inline uint64_t kolo_ticks_moment(double *now_us)
{
    enum { TRIES = 10, CLOSE_US = 2 };
    double before = kolo_now_us();
    for (int i = 1;; i++) {
        const uint64_t ticks = kolo_ticks_now();
        *now_us = kolo_now_us();
        if (*now_us - before < CLOSE_US || i == TRIES) {
            return ticks;
        }
        before = *now_us;
    }
}

static inline uint64_t kolo_ticks_read(const struct kolo_ticks *at)
{
    const uint64_t high = atomic_load_explicit(&at->high, memory_order_relaxed);
    return high << 32 | atomic_load_explicit(&at->low, memory_order_relaxed);
}

#endif
