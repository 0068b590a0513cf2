// SPDX-License-Identifier: Apache-2.0
/* The machine that program_body.h needs, implemented for the host: a thread is a block. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_HOST_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_HOST_H

#include "exec/gpu/element.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

namespace kolo_gpu
{

KOLO_GPU uint64_t load_word(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
KOLO_GPU void store_word(uint64_t *at, uint64_t x)
{
    __atomic_store_n(at, x, __ATOMIC_RELEASE);
}
KOLO_GPU uint32_t load_flag(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
KOLO_GPU void store_flag(uint32_t *at, uint32_t x)
{
    __atomic_store_n(at, x, __ATOMIC_RELEASE);
}
KOLO_GPU uint64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
enum {
    POLLS_A_LOOK = 32
}; /* at the abort word and the clock, during a wait; polls are long here */

/* Give the core away, because the other thread needs it to make progress. Naps get longer, because
 * hundreds of blocks that wait would otherwise leave it none. */
KOLO_GPU void pause(uint32_t polls)
{
    const uint32_t naps = polls > 20 ? polls - 20 : 0;
    const timespec nap = {0, 50000l << (naps / 8 < 6 ? naps / 8 : 6)};
    if (naps > 0) {
        nanosleep(&nap, NULL);
    } else if (polls > 10) {
        sched_yield();
    }
}
KOLO_GPU bool claim(uint32_t *at)
{
    return __atomic_exchange_n(at, 1u, __ATOMIC_RELAXED) == 0;
}
KOLO_GPU bool is_last(uint32_t *at, uint32_t count)
{
    const bool last = __atomic_add_fetch(at, 1u, __ATOMIC_ACQ_REL) == count;
    if (last) {
        __atomic_store_n(at, 0u, __ATOMIC_RELAXED);
    }
    return last;
}
KOLO_GPU bool any(bool x)
{
    return x;
}

} // namespace kolo_gpu

#endif
