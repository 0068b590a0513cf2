// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of a float type that is computed element by element. Parameters: NAME,
 * TYPE, ACC, and functions LOAD(TYPE) -> ACC, STORE(ACC) -> TYPE, MINIMUM and MAXIMUM(ACC, ACC),
 * and CANONICAL(ACC), which replaces any NaN by the one that results are. */

ALWAYS_INLINE ACC FN(load)(kolo_op op, TYPE x)
{
    (void)op;
    return LOAD(x);
}

ALWAYS_INLINE ACC FN(apply)(kolo_op op, ACC a, ACC b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
        return MINIMUM(a, b);
    case KOLO_MAX:
        return MAXIMUM(a, b);
    default:
        return a + b;
    }
}

ALWAYS_INLINE ACC FN(divide)(ACC x, unsigned divisor)
{
    return x / (ACC)divisor;
}

ALWAYS_INLINE TYPE FN(store)(ACC x)
{
    return STORE(CANONICAL(x));
}

#include "exec/reduce_fold.h"

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    const ACC by = LOAD(*(const TYPE *)factor);
    const TYPE *from = src;
    TYPE *to = dst;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        to[i] = FN(store)(LOAD(from[i]) * by);
    }
}

#undef NAME
#undef TYPE
#undef ACC
#undef LOAD
#undef STORE
#undef MINIMUM
#undef MAXIMUM
#undef CANONICAL
