// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of an integer type. Parameters: NAME, TYPE, and WIDE, an unsigned type of
 * at least 32 bits and TYPE's width, in which sums and products wrap (shorter ones would be
 * promoted to int, which must not overflow); LONG, int64_t or uint64_t by sign, which holds any
 * divisor; BITWISE, defined for those types that get the logical and bitwise kernels. */

#define ACC TYPE

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
    return (TYPE)((LONG)x / (LONG)divisor);
}

ALWAYS_INLINE TYPE FN(store)(TYPE x)
{
    return x;
}

#include "exec/reduce_fold.h"

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
#undef WIDE
#undef LONG
#undef BITWISE
