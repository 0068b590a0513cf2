// SPDX-License-Identifier: Apache-2.0
/* All low-latency kernels: X(name, functor). There is one kernel for each type, with all operations
 * of fused_table.h, and one kernel that moves. A call has a few hundred packs at most. A branch
 * that all threads take in the same way costs less than compiling and loading a hundred more
 * kernels. */
#ifndef KOLO_EXEC_GPU_LL_LL_TABLE_H
#define KOLO_EXEC_GPU_LL_LL_TABLE_H

#include "exec/gpu/fused/fused_table.h"
#include "exec/gpu/ll/ll_body.h"

#define KOLO_LL_FOLD(Kind, Type)                                                                   \
    kolo_gpu::LlKernel<kolo_gpu::LlFold<kolo_gpu::Kind<kolo_gpu::Type>>>

#define KOLO_LL_TABLE(X)                                                                           \
    X(copy, kolo_gpu::LlKernel<kolo_gpu::LlCopy>)                                                  \
    X(int8, KOLO_LL_FOLD(LlSigned, Int8))                                                          \
    X(int16, KOLO_LL_FOLD(LlSigned, Int16))                                                        \
    X(int32, KOLO_LL_FOLD(LlSigned, Int32))                                                        \
    X(int64, KOLO_LL_FOLD(LlSigned, Int64))                                                        \
    X(uint8, KOLO_LL_FOLD(LlUnsigned, Uint8))                                                      \
    X(uint16, KOLO_LL_FOLD(LlUnsigned, Uint16))                                                    \
    X(uint32, KOLO_LL_FOLD(LlUnsigned, Uint32))                                                    \
    X(uint64, KOLO_LL_FOLD(LlUnsigned, Uint64))                                                    \
    X(float16, KOLO_LL_FOLD(LlNumbers, Float16))                                                   \
    X(bfloat16, KOLO_LL_FOLD(LlNumbers, Bfloat16))                                                 \
    X(float32, KOLO_LL_FOLD(LlNumbers, Float32))                                                   \
    X(float64, KOLO_LL_FOLD(LlNumbers, Float64))                                                   \
    X(float8_e4m3, KOLO_LL_FOLD(LlNumbers, Float8E4m3))                                            \
    X(float8_e5m2, KOLO_LL_FOLD(LlNumbers, Float8E5m2))                                            \
    X(int32_int32, KOLO_LL_FOLD(LlPairs, Int32Int32))                                              \
    X(int64_int64, KOLO_LL_FOLD(LlPairs, Int64Int64))                                              \
    X(float32_int32, KOLO_LL_FOLD(LlPairs, Float32Int32))                                          \
    X(float64_int32, KOLO_LL_FOLD(LlPairs, Float64Int32))

#endif
