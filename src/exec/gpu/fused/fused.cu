// SPDX-License-Identifier: Apache-2.0
/* The fused kernels of fused_table.h, by the names that kolo_fused_name() gives. */
#include "exec/gpu/copies/copies_kernel.h"
#include "exec/gpu/fused/fused_table.h"

/* By all threads of a block. The ranks' addresses come into shared memory first: every load needs
 * them, and the table lies in global memory. */
template <class Kernel> static __device__ __forceinline__ void run(const kolo_fused_launch &launch)
{
    __shared__ kolo_fused_rank rank[KOLO_FUSED_RANKS];
    const kolo_fused_table *table = (const kolo_fused_table *)(uintptr_t)launch.table;
    const kolo_fused_rank *from = table != nullptr ? table->rank : launch.rank;
    if (table != nullptr && *(const volatile uint32_t *)&table->aborted != 0) {
        return;
    }
    for (int r = (int)threadIdx.x; r < launch.call.nranks; r += (int)blockDim.x) {
        rank[r] = from[r];
    }
    __syncthreads();
    const kolo_gpu::Who who = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    Kernel::run(launch.call, rank, who);
}

#define KERNEL(name, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__(KOLO_FUSED_THREADS, 2)                            \
        kolo_fused_##name(const __grid_constant__ kolo_fused_launch launch)                        \
    {                                                                                              \
        run<__VA_ARGS__>(launch);                                                                  \
    }
KOLO_FUSED_TABLE(KERNEL)
