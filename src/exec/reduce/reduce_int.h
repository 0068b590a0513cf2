// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of an integer type. Parameters: NAME, TYPE, and BASE, the unsigned type of
 * the same width, in which vectors wrap; WIDE, one of at least 32 bits, in which single sums and
 * products do (shorter ones would be promoted to int, which must not overflow); RATIO, a type in
 * which TYPE's quotients by any divisor are exact when cut: double up to 32 bits, since a quotient
 * below an integer is farther from it than 2^-32 of itself; BITWISE, defined for those types that
 * get the logical and bitwise kernels. */

#define ACC   TYPE
#define LANES (VECTOR_BYTES / sizeof(TYPE))
#define STEP  (64 / VECTOR_BYTES)
#define FEW   (16 / sizeof(TYPE))

/* ---- one element ---- */

/* The logical operations are bitwise ones on truth values. */
ALWAYS_INLINE TYPE FN(load)(kolo_op op, TYPE x)
{
    const bool logical = op == KOLO_LAND || op == KOLO_LOR || op == KOLO_LXOR;
    return logical ? (TYPE)(x != 0) : x;
}

ALWAYS_INLINE TYPE FN(apply)(kolo_op op, TYPE a, TYPE b)
{
    switch (op) {
    case KOLO_PROD:
        return (TYPE)((WIDE)a * (WIDE)b);
    case KOLO_MIN:
        return a < b ? a : b;
    case KOLO_MAX:
        return a > b ? a : b;
    case KOLO_LAND:
    case KOLO_BAND:
        return (TYPE)(a & b);
    case KOLO_LOR:
    case KOLO_BOR:
        return (TYPE)(a | b);
    case KOLO_LXOR:
    case KOLO_BXOR:
        return (TYPE)(a ^ b);
    default:
        return (TYPE)((WIDE)a + (WIDE)b);
    }
}

ALWAYS_INLINE TYPE FN(divide)(TYPE x, unsigned divisor)
{
    return (TYPE)((RATIO)x / (RATIO)divisor);
}

ALWAYS_INLINE TYPE FN(store)(TYPE x)
{
    return x;
}

/* ---- vectors ---- */

typedef VECTOR(TYPE) FN(vec);
typedef VECTOR(BASE) FN(base);

ALWAYS_INLINE FN(vec) FN(truth)(kolo_op op, FN(vec) x)
{
    const bool logical = op == KOLO_LAND || op == KOLO_LOR || op == KOLO_LXOR;
    return logical ? (FN(vec))(x != 0) & 1 : x;
}

ALWAYS_INLINE FN(vec) FN(take)(kolo_op op, const TYPE *src)
{
    FN(vec) x;
    memcpy(&x, src, sizeof x);
    return FN(truth)(op, x);
}

ALWAYS_INLINE FN(vec) FN(take_some)(kolo_op op, const TYPE *src, size_t count)
{
    FN(vec) x = {0};
    load_some(&x, sizeof x, src, count * sizeof *src);
    return FN(truth)(op, x);
}

ALWAYS_INLINE void FN(give)(TYPE *dst, FN(vec) x)
{
    memcpy(dst, &x, sizeof x);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, FN(vec) x, size_t count)
{
    store_some(dst, &x, sizeof x, count * sizeof *dst);
}

ALWAYS_INLINE FN(vec) FN(join)(kolo_op op, FN(vec) a, FN(vec) b)
{
    switch (op) {
    case KOLO_PROD:
        return (FN(vec))((FN(base))a * (FN(base))b);
    case KOLO_MIN:
        return PICK((FN(vec))(a < b), a, b);
    case KOLO_MAX:
        return PICK((FN(vec))(a > b), a, b);
    case KOLO_LAND:
    case KOLO_BAND:
        return a & b;
    case KOLO_LOR:
    case KOLO_BOR:
        return a | b;
    case KOLO_LXOR:
    case KOLO_BXOR:
        return a ^ b;
    default:
        return (FN(vec))((FN(base))a + (FN(base))b);
    }
}

/* No machine divides vectors of integers, so this is a loop for the compiler. */
ALWAYS_INLINE FN(vec) FN(share)(FN(vec) x, unsigned divisor)
{
    TYPE lane[LANES];
    memcpy(lane, &x, sizeof x);
    for (size_t i = 0; i < LANES; i++) {
        lane[i] = FN(divide)(lane[i], divisor);
    }
    memcpy(&x, lane, sizeof x);
    return x;
}

#if VECTOR_BYTES > 16
#define MANY_LOOPS
#endif
#include "exec/reduce/reduce_fold.h"

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)
#ifdef BITWISE
KERNEL(land, KOLO_LAND)
KERNEL(lor, KOLO_LOR)
KERNEL(lxor, KOLO_LXOR)
KERNEL(band, KOLO_BAND)
KERNEL(bor, KOLO_BOR)
KERNEL(bxor, KOLO_BXOR)
#endif

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    const TYPE by = *(const TYPE *)factor;
    const TYPE *from = src;
    TYPE *to = dst;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        to[i] = FN(apply)(KOLO_PROD, from[i], by);
    }
}

#undef ACC
#undef NAME
#undef TYPE
#undef BASE
#undef WIDE
#undef RATIO
#undef BITWISE
