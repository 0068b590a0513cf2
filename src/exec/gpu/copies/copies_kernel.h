// SPDX-License-Identifier: Apache-2.0
/* The kernel that copies, for both modules of kernels: a process that has loaded one needs no other
 * for it. */
#ifndef KOLO_EXEC_GPU_COPIES_COPIES_KERNEL_H
#define KOLO_EXEC_GPU_COPIES_COPIES_KERNEL_H

#include "exec/gpu/copies/copies_body.h"

/* The batch crosses the link to the host: each block takes a window of it at once. */
extern "C" __global__ void __launch_bounds__(KOLO_COPIES_THREADS, 1)
    kolo_copies(const __grid_constant__ kolo_copies_launch launch)
{
    enum { WORDS = sizeof(kolo_copy) / sizeof(uint64_t) };
    __shared__ kolo_copy window[KOLO_COPIES_WINDOW];
    const kolo_copy_batch *batch = (const kolo_copy_batch *)(uintptr_t)launch.batch;
    const uint64_t *words = (const uint64_t *)(batch + 1);
    const kolo_gpu::Who who = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    const uint64_t count = *(const volatile uint64_t *)&batch->count;
    uint64_t before = 0;
    if (__syncthreads_or(*(const volatile uint32_t *)(uintptr_t)launch.stop != 0) != 0) {
        return;
    }
    for (uint64_t first = 0; first < count; first += KOLO_COPIES_WINDOW) {
        const uint64_t left = count - first, most = KOLO_COPIES_WINDOW;
        const uint64_t here = left < most ? left : most;
        for (uint64_t i = threadIdx.x; i < here * WORDS; i += blockDim.x) {
            ((uint64_t *)window)[i] = ((const volatile uint64_t *)words)[first * WORDS + i];
        }
        __syncthreads();
        before = kolo_gpu::copy_window(window, here, before, who);
        __syncthreads();
    }
}

#endif
