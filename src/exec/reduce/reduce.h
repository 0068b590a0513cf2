// SPDX-License-Identifier: Apache-2.0
/* Reduction, conversion and copy of host memory: the work of a MOVE on bytes.
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

/* Copy memory that does not overlap. On x86 copies from 512 bytes on use `rep movsb`. It takes the
 * lines that it overwrites without reading them, which pays if another core had read them. */
void kolo_copy_long(void *dst, const void *src, size_t bytes);
static inline void kolo_copy(void *dst, const void *src, size_t bytes)
{
    char *to = (char *)dst;
    const char *from = (const char *)src;
    if (bytes == 8) { /* most calls of a few bytes */
        memcpy(to, from, 8);
    } else if (bytes > 64) {
        kolo_copy_long(dst, src, bytes);
    } else if (bytes >= 32) { /* from both ends, overlapping in the middle */
        memcpy(to, from, 32);
        memcpy(to + bytes - 32, from + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes > 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            to[i] = from[i];
        }
    }
}

/* Copy past the caches: whole lines of dst are neither read nor kept. Use it for bytes that no core
 * reads soon. These stores are not ordered with other stores. So call kolo_copy_fence() before you
 * signal that the bytes are there. */
void kolo_copy_past(void *dst, const void *src, size_t bytes);
void kolo_copy_fence(void);

/* The chosen instruction set: "avx512", "avx2" or "generic". KOLO_ISA, one of these names, lowers
 * it. */
const char *kolo_reduce_isa(void);

#endif
