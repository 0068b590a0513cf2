// SPDX-License-Identifier: Apache-2.0
/* All fused kernels: X(name, functor), for the GPU's module and for its emulation on the host.
 * The pairs of type and operation are those of the table at kolo_op in kolo.h; kolo_fused_name()
 * says which of them share a kernel. */
#ifndef KOLO_EXEC_GPU_FUSED_FUSED_TABLE_H
#define KOLO_EXEC_GPU_FUSED_FUSED_TABLE_H

#include "exec/gpu/fused/fused_body.h"

namespace kolo_gpu
{
typedef Integer<int8_t> Int8;
typedef Integer<uint8_t> Uint8;
typedef Integer<int16_t> Int16;
typedef Integer<uint16_t> Uint16;
typedef Integer<int32_t> Int32;
typedef Integer<uint32_t> Uint32;
typedef Integer<int64_t, uint64_t> Int64;
typedef Integer<uint64_t, uint64_t> Uint64;
typedef Small<CodeFloat16> Float16;
typedef Small<CodeBfloat16> Bfloat16;
typedef Float<float> Float32;
typedef Float<double> Float64;
typedef Small<CodeE4m3> Float8E4m3;
typedef Small<CodeE5m2> Float8E5m2;
typedef Pair<Int32, int32_t> Int32Int32;
typedef Pair<Int64, int64_t> Int64Int64;
typedef Pair<Float32, int32_t> Float32Int32;
typedef Pair<Float64, int32_t, true> Float64Int32;
} // namespace kolo_gpu

#define KOLO_FUSED_OF(Type, Op) kolo_gpu::FoldKernel<kolo_gpu::Fold<kolo_gpu::Type, kolo_gpu::Op>>

#define KOLO_FUSED_SIGNED(X, name, Type)                                                           \
    X(sum_##name, KOLO_FUSED_OF(Type, Sum))                                                        \
    X(min_##name, KOLO_FUSED_OF(Type, Min))                                                        \
    X(max_##name, KOLO_FUSED_OF(Type, Max))
#define KOLO_FUSED_NUMBERS(X, name, Type)                                                          \
    KOLO_FUSED_SIGNED(X, name, Type)                                                               \
    X(prod_##name, KOLO_FUSED_OF(Type, Prod))                                                      \
    X(scaled_##name, kolo_gpu::FoldKernel<kolo_gpu::Scaled<kolo_gpu::Type>>)
#define KOLO_FUSED_UNSIGNED(X, name, Type, Elem)                                                   \
    KOLO_FUSED_NUMBERS(X, name, Type)                                                              \
    X(band_##name, KOLO_FUSED_OF(Type, And))                                                       \
    X(bor_##name, KOLO_FUSED_OF(Type, Or))                                                         \
    X(bxor_##name, KOLO_FUSED_OF(Type, Xor))                                                       \
    X(land_##name, KOLO_FUSED_OF(Truth<Elem>, And))                                                \
    X(lor_##name, KOLO_FUSED_OF(Truth<Elem>, Or))                                                  \
    X(lxor_##name, KOLO_FUSED_OF(Truth<Elem>, Xor))
#define KOLO_FUSED_PAIRS(X, name, Type)                                                            \
    X(minloc_##name, KOLO_FUSED_OF(Type, Min))                                                     \
    X(maxloc_##name, KOLO_FUSED_OF(Type, Max))
#define KOLO_FUSED_COPY(X, bytes, Unit) X(copy_##bytes, kolo_gpu::FoldKernel<kolo_gpu::Copy<Unit>>)
#define KOLO_FUSED_SWAP(X, bytes, Unit) X(swap_##bytes, kolo_gpu::SwapKernel<Unit>)

#define KOLO_FUSED_TABLE(X)                                                                        \
    KOLO_FUSED_SWAP(X, 1, uint8_t)                                                                 \
    KOLO_FUSED_SWAP(X, 2, uint16_t)                                                                \
    KOLO_FUSED_SWAP(X, 4, uint32_t)                                                                \
    KOLO_FUSED_SWAP(X, 8, uint64_t)                                                                \
    KOLO_FUSED_FOLDS(X)

/* Those with a functor, for exec/gpu/program/program_table.h, too. */
#define KOLO_FUSED_FOLDS(X)                                                                        \
    KOLO_FUSED_COPY(X, 1, uint8_t)                                                                 \
    KOLO_FUSED_COPY(X, 2, uint16_t)                                                                \
    KOLO_FUSED_COPY(X, 4, uint32_t)                                                                \
    KOLO_FUSED_COPY(X, 8, uint64_t)                                                                \
    KOLO_FUSED_SIGNED(X, int8, Int8)                                                               \
    KOLO_FUSED_SIGNED(X, int16, Int16)                                                             \
    KOLO_FUSED_SIGNED(X, int32, Int32)                                                             \
    KOLO_FUSED_SIGNED(X, int64, Int64)                                                             \
    KOLO_FUSED_UNSIGNED(X, uint8, Uint8, uint8_t)                                                  \
    KOLO_FUSED_UNSIGNED(X, uint16, Uint16, uint16_t)                                               \
    KOLO_FUSED_UNSIGNED(X, uint32, Uint32, uint32_t)                                               \
    KOLO_FUSED_UNSIGNED(X, uint64, Uint64, uint64_t)                                               \
    KOLO_FUSED_NUMBERS(X, float16, Float16)                                                        \
    KOLO_FUSED_NUMBERS(X, bfloat16, Bfloat16)                                                      \
    KOLO_FUSED_NUMBERS(X, float32, Float32)                                                        \
    KOLO_FUSED_NUMBERS(X, float64, Float64)                                                        \
    KOLO_FUSED_NUMBERS(X, float8_e4m3, Float8E4m3)                                                 \
    KOLO_FUSED_NUMBERS(X, float8_e5m2, Float8E5m2)                                                 \
    KOLO_FUSED_PAIRS(X, int32_int32, Int32Int32)                                                   \
    KOLO_FUSED_PAIRS(X, int64_int64, Int64Int64)                                                   \
    KOLO_FUSED_PAIRS(X, float32_int32, Float32Int32)                                               \
    KOLO_FUSED_PAIRS(X, float64_int32, Float64Int32)

#endif
