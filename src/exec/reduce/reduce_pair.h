// SPDX-License-Identifier: Apache-2.0
/* Template: MINLOC and MAXLOC of a pair type. Parameters: NAME; TYPE, a struct of value and index;
 * VALUE, the value's type; LANE, the signed integer as wide; INDEX_SHIFT, how many bits of a lane
 * the index leaves unused; NANS(x), which values of a vector are NaN; NAN_BITS; TWICE_LANES. The
 * result does not depend on the operands' order: NaN wins, then the value, then the smaller index.
 *
 * Pairs stay as they lie in memory: even lanes are values, odd lanes are indices. The kernel
 * compares all lanes as both. The result for a value then also decides for its index. */

#define LANES (VECTOR_BYTES / sizeof(TYPE))
#define STEP  (64 / VECTOR_BYTES)

typedef VECTOR(LANE) FN(vec);
typedef VECTOR(VALUE) FN(values);

/* Set in the lanes of indices. */
ALWAYS_INLINE FN(vec) FN(indices)(void)
{
    FN(vec) mask = {0};
    for (size_t i = 1; i < 2 * LANES; i += 2) {
        mask[i] = -1;
    }
    return mask;
}

/* Spread the mask of a value to its index. */
ALWAYS_INLINE FN(vec) FN(both)(FN(vec) mask)
{
    return __builtin_shufflevector(mask, mask, TWICE_LANES);
}

/* An index at the upper end of its lane is ordered as it is without what lies beside it. */
ALWAYS_INLINE FN(vec) FN(from_memory)(FN(vec) x)
{
    return PICK(FN(indices)(), x << INDEX_SHIFT, x);
}

ALWAYS_INLINE FN(vec) FN(to_memory)(FN(vec) x)
{
    const LANE unused = INDEX_SHIFT > 0 ? ((LANE)1 << INDEX_SHIFT) - 1 : -1;
    const FN(vec) index = (x >> INDEX_SHIFT) & unused, zero = {0};
    const FN(vec) value = PICK((FN(vec))NANS((FN(values))x), zero + (LANE)NAN_BITS, x);
    return PICK(FN(indices)(), index, value);
}

ALWAYS_INLINE FN(vec) FN(take)(kolo_op op, const TYPE *src)
{
    FN(vec) x;
    memcpy(&x, src, sizeof x);
    (void)op;
    return FN(from_memory)(x);
}

ALWAYS_INLINE FN(vec) FN(take_some)(kolo_op op, const TYPE *src, size_t count)
{
    FN(vec) x = {0};
    load_some(&x, sizeof x, src, count * sizeof *src);
    (void)op;
    return FN(from_memory)(x);
}

ALWAYS_INLINE void FN(give)(TYPE *dst, FN(vec) x)
{
    x = FN(to_memory)(x);
    memcpy(dst, &x, sizeof x);
}

ALWAYS_INLINE void FN(give_some)(TYPE *dst, FN(vec) x, size_t count)
{
    x = FN(to_memory)(x);
    store_some(dst, &x, sizeof x, count * sizeof *dst);
}

/* Equal values that differ in bits are zeros: then or gives -0 and and gives +0. */
ALWAYS_INLINE FN(vec) FN(join)(kolo_op op, FN(vec) a, FN(vec) b)
{
    const bool min = op == KOLO_MINLOC;
    const FN(values) x = (FN(values))a, y = (FN(values))b;
    const FN(vec) a_nan = (FN(vec))NANS(x), b_nan = (FN(vec))NANS(y);
    const FN(vec) a_first = (FN(vec))(min ? x < y : x > y);
    const FN(vec) b_first = (FN(vec))(min ? y < x : y > x);
    const FN(vec) a_wins = FN(both)(a_first | (a_nan & ~b_nan));
    const FN(vec) b_wins = FN(both)(b_first | (b_nan & ~a_nan));
    const FN(vec) value = PICK(a_nan, a, min ? a | b : a & b);
    const FN(vec) index = PICK((FN(vec))(a < b), a, b);
    const FN(vec) tie = PICK(FN(indices)(), index, value);
    return PICK(a_wins, a, PICK(b_wins, b, tie));
}

ALWAYS_INLINE FN(vec) FN(share)(FN(vec) x, unsigned divisor)
{
    (void)divisor;
    return x;
}

#include "exec/reduce/reduce_fold.h"

KERNEL(minloc, KOLO_MINLOC)
KERNEL(maxloc, KOLO_MAXLOC)

#undef NAME
#undef TYPE
#undef VALUE
#undef LANE
#undef INDEX_SHIFT
#undef NANS
#undef NAN_BITS
#undef TWICE_LANES
