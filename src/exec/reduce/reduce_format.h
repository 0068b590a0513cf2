// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of a float type of 16 or 8 bits, and its conversions: widened to float32,
 * folded, and rounded once. Parameters: NAME, TYPE; HALF_OF_FLOAT, defined where a code is the
 * upper half of a float32. Uses raw_NAME, widen_lanes_NAME() and narrow_lanes_NAME() of
 * reduce_convert.h and float32's functions on vectors. */

/* ---- a vector of float32 at a time ---- */

ALWAYS_INLINE vec_float FN(floats_of)(const TYPE *src, size_t count)
{
    FN(raw) code = {0};
    load_some(&code, sizeof code, src, count * sizeof *src);
    return FN(widen_lanes)(code);
}

ALWAYS_INLINE void FN(codes_of)(TYPE *dst, vec_float x, size_t count)
{
    const FN(raw) code = FN(narrow_lanes)(x);
    store_some(dst, &code, sizeof code, count * sizeof *dst);
}

#ifdef HALF_OF_FLOAT
/* ---- folding halves of float32 where they lie: two of them in a word, without a shuffle ---- */

#define LANES (2 * FLOAT_LANES)
#define STEP  (64 / VECTOR_BYTES)

typedef struct {
    vec_float upper, lower;
} FN(vec);

ALWAYS_INLINE FN(vec) FN(apart)(vec_word pair)
{
    return (FN(vec)){(vec_float)(pair & 0xffff0000), (vec_float)(pair << 16)};
}

ALWAYS_INLINE vec_word FN(together)(FN(vec) x)
{
    return (rounded_to_half(x.upper) & 0xffff0000) | rounded_to_half(x.lower) >> 16;
}

ALWAYS_INLINE FN(vec) FN(take)(kolo_op op, const TYPE *src)
{
    vec_word pair;
    memcpy(&pair, src, sizeof pair);
    (void)op;
    return FN(apart)(pair);
}

ALWAYS_INLINE FN(vec) FN(take_some)(kolo_op op, const TYPE *src, size_t count)
{
    vec_word pair = {0};
    load_some(&pair, sizeof pair, src, count * sizeof *src);
    (void)op;
    return FN(apart)(pair);
}

ALWAYS_INLINE void FN(give)(TYPE *dst, FN(vec) x)
{
    const vec_word pair = FN(together)(x);
    memcpy(dst, &pair, sizeof pair);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, FN(vec) x, size_t count)
{
    const vec_word pair = FN(together)(x);
    store_some(dst, &pair, sizeof pair, count * sizeof *dst);
}

ALWAYS_INLINE FN(vec) FN(join)(kolo_op op, FN(vec) a, FN(vec) b)
{
    return (FN(vec)){join_float32(op, a.upper, b.upper), join_float32(op, a.lower, b.lower)};
}

ALWAYS_INLINE FN(vec) FN(share)(FN(vec) x, unsigned divisor)
{
    return (FN(vec)){share_float32(x.upper, divisor), share_float32(x.lower, divisor)};
}

#else
/* ---- folding the others ---- */

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
    (void)op;
    return FN(floats_of)(src, count);
}

ALWAYS_INLINE void FN(give)(TYPE *dst, vec_float x)
{
    const FN(raw) code = FN(narrow_lanes)(x);
    memcpy(dst, &code, sizeof code);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, vec_float x, size_t count)
{
    FN(codes_of)(dst, x, count);
}

ALWAYS_INLINE vec_float FN(join)(kolo_op op, vec_float a, vec_float b)
{
    return join_float32(op, a, b);
}

ALWAYS_INLINE vec_float FN(share)(vec_float x, unsigned divisor)
{
    return share_float32(x, divisor);
}

#endif

#include "exec/reduce/reduce_fold.h"

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    const TYPE *from = src;
    TYPE *to = dst;
    const float by = FN(floats_of)(factor, 1)[0];
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        FN(codes_of)(to + i, FN(floats_of)(from + i, n) * by, n);
    }
}

static void FN(widen)(float *dst, const void *src, size_t count)
{
    const TYPE *from = src;
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        const vec_float x = FN(floats_of)(from + i, n);
        store_some(dst + i, &x, sizeof x, n * sizeof *dst);
    }
}

static void FN(narrow)(void *dst, const float *src, size_t count)
{
    TYPE *to = dst;
    for (size_t i = 0; i < count; i += FLOAT_LANES) {
        const size_t n = count - i < FLOAT_LANES ? count - i : FLOAT_LANES;
        FN(codes_of)(to + i, take_some_float32(KOLO_SUM, src + i, n), n);
    }
}

#undef NAME
#undef TYPE
#undef HALF_OF_FLOAT
