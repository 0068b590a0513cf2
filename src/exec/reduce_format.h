// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of a float type of 16 or 8 bits, and its conversions: widened to float32,
 * folded, and rounded once. Parameters: NAME, TYPE; uses widen_some_NAME(), code_some_NAME() and
 * raw_NAME of reduce_convert.h and float32's functions on vectors. */

#define LANES FLOAT_LANES
#define STEP  (VECTOR_BYTES > 16 ? 2 : 1)

typedef vec_float FN(vec);

ALWAYS_INLINE vec_float FN(take)(kolo_op op, const TYPE *src)
{
    FN(raw) code;
    memcpy(&code, src, sizeof code);
    (void)op;
    return FN(widen_lanes)(code);
}

ALWAYS_INLINE vec_float FN(take_some)(kolo_op op, const TYPE *src, size_t count)
{
    FN(raw) code = {0};
    load_some(&code, sizeof code, src, count * sizeof *src);
    (void)op;
    return FN(widen_lanes)(code);
}

ALWAYS_INLINE void FN(give)(TYPE *dst, vec_float x)
{
    const FN(raw) code = FN(narrow_lanes)(x);
    memcpy(dst, &code, sizeof code);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, vec_float x, size_t count)
{
    const FN(raw) code = FN(narrow_lanes)(x);
    store_some(dst, &code, sizeof code, count * sizeof *dst);
}

ALWAYS_INLINE vec_float FN(join)(kolo_op op, vec_float a, vec_float b)
{
    return join_float32(op, a, b);
}

ALWAYS_INLINE vec_float FN(share)(vec_float x, unsigned divisor)
{
    return share_float32(x, divisor);
}

#include "exec/reduce_fold.h"

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    const TYPE *from = src;
    TYPE *to = dst;
    const float by = FN(take_some)(KOLO_PROD, factor, 1)[0];
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        FN(give_some)(to + i, FN(take_some)(KOLO_PROD, from + i, n) * by, n);
    }
}

static void FN(widen)(float *dst, const void *src, size_t count)
{
    const TYPE *from = src;
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        const vec_float x = FN(take_some)(KOLO_SUM, from + i, n);
        store_some(dst + i, &x, sizeof x, n * sizeof *dst);
    }
}

static void FN(narrow)(void *dst, const float *src, size_t count)
{
    TYPE *to = dst;
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        FN(give_some)(to + i, take_some_float32(KOLO_SUM, src + i, n), n);
    }
}

#undef NAME
#undef TYPE
