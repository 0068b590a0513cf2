// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of float32 or float64. Parameters: NAME, TYPE; WORD, the unsigned integer
 * of its width; NAN_BITS, the NaN that results are. */

#define ACC   TYPE
#define LANES (VECTOR_BYTES / sizeof(TYPE))
#define STEP  (64 / VECTOR_BYTES)
#define FEW   (16 / sizeof(TYPE))

/* ---- one element ---- */

ALWAYS_INLINE WORD FN(bits)(TYPE x)
{
    WORD bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ALWAYS_INLINE TYPE FN(of)(WORD bits)
{
    TYPE x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ALWAYS_INLINE TYPE FN(load)(kolo_op op, TYPE x)
{
    (void)op;
    return x;
}

/* Equal numbers differ in bits only if they are zeros: then or gives -0 and and gives +0. */
ALWAYS_INLINE TYPE FN(extreme)(bool min, TYPE a, TYPE b)
{
    const WORD x = FN(bits)(a), y = FN(bits)(b);
    if (a != a || b != b) {
        return FN(of)(NAN_BITS);
    }
    if (a == b) {
        return FN(of)(min ? x | y : x & y);
    }
    return (a < b) == min ? a : b;
}

ALWAYS_INLINE TYPE FN(apply)(kolo_op op, TYPE a, TYPE b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
    case KOLO_MAX:
        return FN(extreme)(op == KOLO_MIN, a, b);
    default:
        return a + b;
    }
}

ALWAYS_INLINE TYPE FN(divide)(TYPE x, unsigned divisor)
{
    return x / (TYPE)divisor;
}

ALWAYS_INLINE TYPE FN(store)(TYPE x)
{
    return x == x ? x : FN(of)(NAN_BITS);
}

/* ---- vectors ---- */

typedef VECTOR(TYPE) FN(vec);
typedef VECTOR(WORD) FN(word);

ALWAYS_INLINE FN(vec) FN(canonical)(FN(vec) x)
{
    return (FN(vec))PICK((FN(word))(x != x), (FN(word)){0} + NAN_BITS, (FN(word))x);
}

ALWAYS_INLINE FN(vec) FN(extremes)(bool min, FN(vec) a, FN(vec) b)
{
    const FN(word) x = (FN(word))a, y = (FN(word))b;
    const FN(word) first = (FN(word))(min ? a < b : a > b);
    const FN(word) zero = min ? x | y : x & y;
    const FN(word) number = PICK((FN(word))(a == b), zero, PICK(first, x, y));
    /* NOLINTNEXTLINE(misc-redundant-expression): only a NaN is not equal to itself */
    const FN(word) nan = (FN(word))(a != a) | (FN(word))(b != b);
    return (FN(vec))PICK(nan, (FN(word)){0} + NAN_BITS, number);
}

ALWAYS_INLINE FN(vec) FN(take)(kolo_op op, const TYPE *src)
{
    FN(vec) x;
    memcpy(&x, src, sizeof x);
    (void)op;
    return x;
}

ALWAYS_INLINE FN(vec) FN(take_some)(kolo_op op, const TYPE *src, size_t count)
{
    FN(vec) x = {0};
    load_some(&x, sizeof x, src, count * sizeof *src);
    (void)op;
    return x;
}

ALWAYS_INLINE void FN(give)(TYPE *dst, FN(vec) x)
{
    x = FN(canonical)(x);
    memcpy(dst, &x, sizeof x);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, FN(vec) x, size_t count)
{
    x = FN(canonical)(x);
    store_some(dst, &x, sizeof x, count * sizeof *dst);
}

ALWAYS_INLINE FN(vec) FN(join)(kolo_op op, FN(vec) a, FN(vec) b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
    case KOLO_MAX:
        return FN(extremes)(op == KOLO_MIN, a, b);
    default:
        return a + b;
    }
}

ALWAYS_INLINE FN(vec) FN(share)(FN(vec) x, unsigned divisor)
{
    return x / (TYPE)divisor;
}

#if VECTOR_BYTES > 16
#define MANY_LOOPS
#endif
#include "exec/reduce/reduce_fold.h"

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    const TYPE by = *(const TYPE *)factor;
    const TYPE *from = src;
    TYPE *to = dst;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        to[i] = FN(store)(from[i] * by);
    }
}

#undef ACC
#undef NAME
#undef TYPE
#undef WORD
#undef NAN_BITS
