// SPDX-License-Identifier: Apache-2.0
/* Reduction and conversion of host memory: the work of a MOVE on bytes.
 *
 * Each pair of type and operation has one kernel, compiled from one source for plain C, AVX2 and
 * AVX-512. At run time the library chooses the best one that the machine runs.
 *
 * All versions give the same bits. They combine elements from left to right without contraction. A
 * NaN result is always the same NaN (quiet, positive, no payload), because the compiler chooses
 * which operand's payload survives an addition. */
#ifndef KOLO_EXEC_REDUCE_REDUCE_H
#define KOLO_EXEC_REDUCE_REDUCE_H

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* dst[i] = ((src[0][i] op src[1][i]) op ...) op src[k-1][i], in the accumulator type (float32 for
 * float16, bfloat16 and float8, else the type itself), rounded once.
 * - k is at least 1. With k 1 the kernel copies; logical results become 0 or 1, and NaNs the one
 *   NaN.
 * - A divisor above 1 divides the total before rounding (integers: toward zero); for sums only.
 * - Memory is aligned to the element. dst may be any of the sources, but may not partly overlap
 *   one.
 * - MIN and MAX order -0 below +0. Integers wrap. The unused bytes of FLOAT64_INT32 become 0. */
typedef void kolo_reduce_fn(void *dst, const void *const *src, unsigned k, size_t count,
                            unsigned divisor);

/* The kernel of a pair. AVG and created operations (op >= KOLO_OPS) have SUM's kernel. NULL if
 * kolo_op_valid() is false. */
kolo_reduce_fn *kolo_reduce_kernel(enum kolo_type type, kolo_op op);
/* Whether the table at kolo_op in kolo.h has this pair. */
bool kolo_op_valid(enum kolo_type type, kolo_op op);

/* dst[i] = src[i] * *factor in the accumulator type, rounded once. `factor` is one element of
 * `type`, which must be an integer or a float. dst may be src. */
void kolo_scale(enum kolo_type type, void *dst, const void *src, size_t count, const void *factor);

/* A 16- or 8-bit float type to float32 (exact; NaNs become quiet) and back (to nearest, ties to
 * even). Overflow gives infinity; FLOAT8_E4M3 has none and gives a NaN of the same sign, from
 * beyond 464. */
void kolo_widen(enum kolo_type type, float *dst, const void *src, size_t count);
void kolo_narrow(enum kolo_type type, void *dst, const float *src, size_t count);

/* The chosen instruction set: "avx512", "avx2" or "generic". KOLO_ISA, one of these names, lowers
 * it. */
const char *kolo_reduce_isa(void);

#endif
