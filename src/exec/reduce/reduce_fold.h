// SPDX-License-Identifier: Apache-2.0
/* Template: folding k arrays of one type into one. Included once per type, without guard, with
 *     NAME   the type's name, which ends the names of all its functions
 *     TYPE   what lies in memory
 *     LANES  how many of them a vector holds    STEP  how many vectors a step takes
 *     MANY_LOOPS, defined where loops for single k are short enough to have several
 * and inline functions on vectors: take_NAME(op, TYPE *) and give_NAME(TYPE *, vector) load and
 * store; take_some_NAME and give_some_NAME do so for up to LANES; join_NAME(op, vector, vector) and
 * share_NAME(vector, divisor) compute. If FEW is defined, load_NAME, apply_NAME, divide_NAME and
 * store_NAME take up to FEW elements one by one, which is faster. `op` is a constant in every call
 * of fold_NAME, so each kernel is a plain loop.
 *
 * One pass for every k: an accumulator stays in its register until all sources are in it. A step
 * takes one or two cache lines of each source. More at a time does not suit the prefetchers
 * (measured: 256 bytes a step lose a seventh beyond the caches). */

/* Without masks, a part of a vector has to be put together. */
#if defined(FEW) && !defined(__AVX512F__)
#define REST_BY_ELEMENTS
#endif

#ifdef FEW
/* `count` elements from `first` on, one by one. */
ALWAYS_INLINE void FN(few)(kolo_op op, TYPE *dst, const void *const *src, unsigned k, size_t first,
                           size_t count, unsigned divisor)
{
    for (size_t i = first; i < first + count; i++) {
        ACC sum = FN(load)(op, ((const TYPE *)src[0])[i]);
        for (unsigned q = 1; q < k; q++) {
            sum = FN(apply)(op, sum, FN(load)(op, ((const TYPE *)src[q])[i]));
        }
        if (op == KOLO_SUM && divisor > 1) {
            sum = FN(divide)(sum, divisor);
        }
        dst[i] = FN(store)(sum);
    }
}
#endif

/* Fold the whole array if it has only a few elements. */
ALWAYS_INLINE bool FN(fold_few)(kolo_op op, void *dst, const void *const *src, unsigned k,
                                size_t count, unsigned divisor)
{
#ifdef FEW
    if (count <= FEW && k == 2 && divisor <= 1) {
        FN(few)(op, dst, src, 2, 0, count, 0);
        return true;
    }
    if (count <= FEW) {
        FN(few)(op, dst, src, k, 0, count, divisor);
        return true;
    }
#else
    (void)op, (void)dst, (void)src, (void)k, (void)count, (void)divisor;
#endif
    return false;
}

/* dst[i...] of STEP vectors. */
ALWAYS_INLINE void FN(step)(kolo_op op, TYPE *dst, const void *const *src, unsigned k, size_t i,
                            unsigned divisor)
{
    FN(vec) sum[STEP];
    const TYPE *a = (const TYPE *)src[0] + i;
#pragma GCC unroll 16
    for (size_t s = 0; s < STEP; s++) {
        sum[s] = FN(take)(op, a + s * LANES);
    }
#pragma GCC unroll 8
    for (unsigned q = 1; q < k; q++) {
        const TYPE *b = (const TYPE *)src[q] + i;
#pragma GCC unroll 16
        for (size_t s = 0; s < STEP; s++) {
            sum[s] = FN(join)(op, sum[s], FN(take)(op, b + s * LANES));
        }
    }
#pragma GCC unroll 16
    for (size_t s = 0; s < STEP; s++) {
        const bool shares = op == KOLO_SUM && divisor > 1;
        FN(give)(dst + i + s * LANES, shares ? FN(share)(sum[s], divisor) : sum[s]);
    }
}

/* Do all whole steps. Returns the index behind them. Up to 8, k is a constant, so that the
 * addresses of all sources stay in registers. */
ALWAYS_INLINE size_t FN(steps)(kolo_op op, TYPE *dst, const void *const *src, unsigned k,
                               size_t count)
{
    const void *here[8];
    size_t i = 0;
#pragma GCC unroll 8
    for (unsigned q = 0; q < k; q++) {
        here[q] = src[q];
    }
    for (; i + STEP * LANES <= count; i += STEP * LANES) {
        FN(step)(op, dst, here, k, i, 0);
    }
    return i;
}

#ifndef REST_BY_ELEMENTS
/* Fold n elements, up to LANES. */
ALWAYS_INLINE void FN(rest)(kolo_op op, TYPE *dst, const void *const *src, unsigned k, size_t i,
                            size_t n, unsigned divisor)
{
    FN(vec) sum = FN(take_some)(op, (const TYPE *)src[0] + i, n);
    for (unsigned q = 1; q < k; q++) {
        sum = FN(join)(op, sum, FN(take_some)(op, (const TYPE *)src[q] + i, n));
    }
    if (op == KOLO_SUM && divisor > 1) {
        sum = FN(share)(sum, divisor);
    }
    FN(give_some)(dst + i, sum, n);
}
#endif

ALWAYS_INLINE void FN(fold)(kolo_op op, void *dst, const void *const *src, unsigned k, size_t count,
                            unsigned divisor)
{
    TYPE *to = dst;
    size_t i = 0;
    if (divisor <= 1 && k == 2) {
        i = FN(steps)(op, to, src, 2, count);
    }
#ifdef MANY_LOOPS
    if (divisor <= 1 && k > 2 && k <= 4) {
        i = k == 3 ? FN(steps)(op, to, src, 3, count) : FN(steps)(op, to, src, 4, count);
    } else if (divisor <= 1 && k == 8) {
        i = FN(steps)(op, to, src, 8, count);
    }
#endif
    for (; i + STEP * LANES <= count; i += STEP * LANES) {
        FN(step)(op, to, src, k, i, divisor);
    }
#ifdef REST_BY_ELEMENTS
    FN(few)(op, to, src, k, i, count - i, divisor);
#else
    for (; i < count; i += LANES) {
        const size_t left = count - i;
        FN(rest)(op, to, src, k, i, left < LANES ? left : LANES, divisor);
    }
#endif
}

#undef STEP
#undef LANES
#undef FEW
#undef MANY_LOOPS
#undef REST_BY_ELEMENTS
