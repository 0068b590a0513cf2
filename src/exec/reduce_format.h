// SPDX-License-Identifier: Apache-2.0
/* Template: all kernels of a float type whose conversion is long or is an instruction of its own:
 * blocks are widened to float32, folded, and narrowed once. Parameters: NAME and TYPE; uses
 * widen_all_NAME, narrow_all_NAME and float32's functions. */

ALWAYS_INLINE void FN(gather)(kolo_op op, float *restrict acc, const void *const *src, unsigned k,
                              size_t first, size_t count)
{
    float next[FORMAT_BLOCK];
    FN(widen_all)(acc, (const TYPE *)src[0] + first, count);
    for (unsigned q = 1; q < k; q++) {
        FN(widen_all)(next, (const TYPE *)src[q] + first, count);
        for (size_t i = 0; i < count; i++) {
            acc[i] = apply_float32(op, acc[i], next[i]);
        }
    }
}

ALWAYS_INLINE void FN(fold)(kolo_op op, void *dst, const void *const *src, unsigned k, size_t count,
                            unsigned divisor)
{
    float acc[FORMAT_BLOCK];
    for (size_t first = 0; first < count; first += FORMAT_BLOCK) {
        const size_t n = count - first < FORMAT_BLOCK ? count - first : FORMAT_BLOCK;
        FN(gather)(op, acc, src, k, first, n);
        if (op == KOLO_SUM && divisor > 1) {
            for (size_t i = 0; i < n; i++) {
                acc[i] = divide_float32(acc[i], divisor);
            }
        }
        FN(narrow_all)((TYPE *)dst + first, acc, n);
    }
}

KERNEL(sum, KOLO_SUM)
KERNEL(prod, KOLO_PROD)
KERNEL(min, KOLO_MIN)
KERNEL(max, KOLO_MAX)

static void FN(scale)(void *dst, const void *src, size_t count, const void *factor)
{
    float acc[FORMAT_BLOCK];
    float by;
    FN(widen_all)(&by, factor, 1);
    for (size_t first = 0; first < count; first += FORMAT_BLOCK) {
        const size_t n = count - first < FORMAT_BLOCK ? count - first : FORMAT_BLOCK;
        FN(widen_all)(acc, (const TYPE *)src + first, n);
        for (size_t i = 0; i < n; i++) {
            acc[i] *= by;
        }
        FN(narrow_all)((TYPE *)dst + first, acc, n);
    }
}

#undef NAME
#undef TYPE
