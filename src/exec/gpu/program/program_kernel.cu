// SPDX-License-Identifier: Apache-2.0
/* The program kernels of program_table.h, with the names of kolo_program_name(), and the kernels of
 * exec/gpu/ll/ll_table.h, by kolo_ll_name(): a block a slice. */
#include "exec/gpu/copies/copies_kernel.h"
#include "exec/gpu/ll/ll_table.h"
#include "exec/gpu/program/program_table.h"

#define KERNEL(name, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(KOLO_PROGRAM_THREADS, 1)                          \
        kolo_program_##name(const __grid_constant__ kolo_program_launch launch)                    \
    {                                                                                              \
        __shared__ kolo_gpu::Shared shared;                                                        \
        const kolo_gpu::Threads threads = {threadIdx.x, blockDim.x, blockDim.x};                   \
        KOLO_PROGRAM_OF(__VA_ARGS__)::run(launch, blockIdx.x, &shared, threads);                   \
    }
KOLO_PROGRAM_TABLE(KERNEL)

#define LL_KERNEL(name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(KOLO_PROGRAM_THREADS, 1)                          \
        kolo_ll_##name(const __grid_constant__ kolo_ll_launch launch)                              \
    {                                                                                              \
        const kolo_gpu::Threads threads = {threadIdx.x, blockDim.x, blockDim.x};                   \
        __VA_ARGS__::run(launch, blockIdx.x, threads);                                             \
    }
KOLO_LL_TABLE(LL_KERNEL)
