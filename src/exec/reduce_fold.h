// SPDX-License-Identifier: Apache-2.0
/* Template: folding k arrays of one type into one. Included once per type, without guard, with
 *     NAME  the type's name, which ends the names of all its functions
 *     TYPE  what lies in memory            ACC  what is computed with
 * and inline functions load_NAME(op, TYPE) -> ACC, apply_NAME(op, ACC, ACC) -> ACC,
 * divide_NAME(ACC, divisor) -> ACC, store_NAME(ACC) -> TYPE. `op` is a constant wherever fold_NAME
 * is called, so each kernel is a plain loop. Two sources, and the sums of four, meet in registers;
 * anything else goes block by block through accumulators that stay in the L1 cache, which costs
 * nothing once the sources come from beyond it.
 *
 * INDEPENDENT tells the compiler what the contract says: dst is a source or lies apart from it, so
 * no iteration reads what another one writes. */

ALWAYS_INLINE void FN(two)(kolo_op op, TYPE *dst, const TYPE *a, const TYPE *b, size_t count)
{
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const ACC x = FN(load)(op, a[i]);
        const ACC y = FN(load)(op, b[i]);
        dst[i] = FN(store)(FN(apply)(op, x, y));
    }
}

ALWAYS_INLINE void FN(four)(TYPE *dst, const void *const *src, size_t count)
{
    const kolo_op op = KOLO_SUM;
    const TYPE *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        ACC x = FN(apply)(op, FN(load)(op, a[i]), FN(load)(op, b[i]));
        x = FN(apply)(op, x, FN(load)(op, c[i]));
        dst[i] = FN(store)(FN(apply)(op, x, FN(load)(op, d[i])));
    }
}

/* acc = src[0] op ... op src[k-1] of `count` elements from `first` on. */
ALWAYS_INLINE void FN(gather)(kolo_op op, ACC *restrict acc, const void *const *src, unsigned k,
                              size_t first, size_t count)
{
    const TYPE *a = (const TYPE *)src[0] + first;
    for (size_t i = 0; i < count; i++) {
        acc[i] = FN(load)(op, a[i]);
    }
    for (unsigned q = 1; q < k; q++) {
        const TYPE *b = (const TYPE *)src[q] + first;
        for (size_t i = 0; i < count; i++) {
            acc[i] = FN(apply)(op, acc[i], FN(load)(op, b[i]));
        }
    }
}

ALWAYS_INLINE void FN(many)(kolo_op op, TYPE *dst, const void *const *src, unsigned k, size_t count,
                            unsigned divisor)
{
    enum { BLOCK = BLOCK_BYTES / sizeof(ACC) };
    ACC acc[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t n = count - first < BLOCK ? count - first : BLOCK;
        FN(gather)(op, acc, src, k, first, n);
        if (op == KOLO_SUM && divisor > 1) {
            for (size_t i = 0; i < n; i++) {
                acc[i] = FN(divide)(acc[i], divisor);
            }
        }
        for (size_t i = 0; i < n; i++) {
            dst[first + i] = FN(store)(acc[i]);
        }
    }
}

ALWAYS_INLINE void FN(fold)(kolo_op op, void *dst, const void *const *src, unsigned k, size_t count,
                            unsigned divisor)
{
    if (k == 2 && divisor <= 1) {
        FN(two)(op, dst, src[0], src[1], count);
    } else if (k == 4 && divisor <= 1 && op == KOLO_SUM) {
        FN(four)(dst, src, count);
    } else {
        FN(many)(op, dst, src, k, count, divisor);
    }
}
