// SPDX-License-Identifier: Apache-2.0
/* The machine under program_body.h where that is a GPU: loads and stores of words that cross links,
 * the clock, and the barrier of a thread block. program_host.h has the same for the host. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_DEVICE_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_DEVICE_H

#include "exec/gpu/element.h"

#include <stdint.h>

namespace kolo_gpu
{

enum { POLLS_A_LOOK = 1024 }; /* at the abort word and the clock, during a wait */

#if defined(__CUDA_ARCH__)
KOLO_GPU uint64_t load_word(const uint64_t *at)
{
    uint64_t x;
    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory");
    return x;
}
KOLO_GPU void store_word(uint64_t *at, uint64_t x)
{
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(x) : "memory");
}
KOLO_GPU uint32_t load_flag(const uint32_t *at)
{
    uint32_t x;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
    return x;
}
KOLO_GPU void store_flag(uint32_t *at, uint32_t x)
{
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
}
KOLO_GPU uint64_t now_ns()
{
    uint64_t x;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(x));
    return x;
}
KOLO_GPU void pause(uint32_t) {}
/* Whether this thread is the first of its block to claim it. */
KOLO_GPU bool claim(uint32_t *at)
{
    return atomicExch(at, 1u) == 0;
}
/* Whether this is the last of `count` blocks of the kernel to count itself. It sees everything that
 * the other blocks did before they counted. The next count begins anew. */
KOLO_GPU bool is_last(uint32_t *at, uint32_t count)
{
    __threadfence();
    const bool last = atomicInc(at, count - 1) == count - 1;
    __threadfence();
    return last;
}
/* A barrier of the block; whether `x` holds for any of its threads. */
KOLO_GPU bool any(bool x)
{
    return __syncthreads_or(x) != 0;
}
#elif defined(__CUDACC__) /* its pass over the host's half, which runs nothing of this */
KOLO_GPU uint64_t load_word(const uint64_t *at)
{
    return *at;
}
KOLO_GPU void store_word(uint64_t *, uint64_t) {}
KOLO_GPU uint32_t load_flag(const uint32_t *at)
{
    return *at;
}
KOLO_GPU void store_flag(uint32_t *, uint32_t) {}
KOLO_GPU uint64_t now_ns()
{
    return 0;
}
KOLO_GPU void pause(uint32_t) {}
KOLO_GPU bool claim(uint32_t *)
{
    return false;
}
KOLO_GPU bool is_last(uint32_t *, uint32_t)
{
    return false;
}
KOLO_GPU bool any(bool x)
{
    return x;
}
#endif

} // namespace kolo_gpu

#endif
