// SPDX-License-Identifier: Apache-2.0
/* The peer kernels of program_table.h, by the names that kolo_peer_name() gives, and those of
 * exec/gpu/ll/ll_table.h, by kolo_low_name(): a block a slice. */
#include "exec/gpu/ll/ll_table.h"
#include "exec/gpu/program/program_table.h"

#define KERNEL(name, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(KOLO_PEER_THREADS, 1)                             \
        kolo_peer_##name(const __grid_constant__ kolo_peer_launch launch)                          \
    {                                                                                              \
        __shared__ kolo_gpu::Shared shared;                                                        \
        const kolo_gpu::Threads threads = {threadIdx.x, blockDim.x, blockDim.x};                   \
        KOLO_PEER_OF(__VA_ARGS__)::run(launch, blockIdx.x, &shared, threads);                      \
    }
KOLO_PEER_TABLE(KERNEL)

#define LOW_KERNEL(name, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(KOLO_PEER_THREADS, 1)                             \
        kolo_low_##name(const __grid_constant__ kolo_low_launch launch)                            \
    {                                                                                              \
        const kolo_gpu::Threads threads = {threadIdx.x, blockDim.x, blockDim.x};                   \
        __VA_ARGS__::run(launch, blockIdx.x, threads);                                             \
    }
KOLO_LOW_TABLE(LOW_KERNEL)
