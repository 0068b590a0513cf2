// SPDX-License-Identifier: Apache-2.0
/* The kernels of one instruction set. reduce_body.h makes such a table in each of the files
 * reduce_generic.c, reduce_avx2.c and reduce_avx512.c, which differ in compiler flags alone. */
#ifndef KOLO_EXEC_REDUCE_REDUCE_ISA_H
#define KOLO_EXEC_REDUCE_REDUCE_ISA_H

#include "exec/reduce/reduce.h"

typedef void kolo_scale_fn(void *dst, const void *src, size_t count, const void *factor);
typedef void kolo_widen_fn(float *dst, const void *src, size_t count);
typedef void kolo_narrow_fn(void *dst, const float *src, size_t count);

/* NULL if the pair is invalid. AVG's entries are SUM's kernels. */
struct kolo_kernels {
    const char *isa;
    kolo_reduce_fn *reduce[KOLO_TYPES][KOLO_OPS];
    kolo_scale_fn *scale[KOLO_TYPES];
    kolo_widen_fn *widen[KOLO_TYPES];
    kolo_narrow_fn *narrow[KOLO_TYPES];
    struct {
        kolo_narrow_fn *encode;
        kolo_widen_fn *decode;
        kolo_reduce_fn *sum; /* of units */
    } codec[KOLO_CODECS];    /* codec.h */
};

extern const struct kolo_kernels kolo_kernels_generic;
#if defined(__x86_64__)
extern const struct kolo_kernels kolo_kernels_avx2;
extern const struct kolo_kernels kolo_kernels_avx512;
#endif

/* The best kernels that this machine runs and that are not above `limit`. NULL or any name other
 * than the three sets no limit. */
const struct kolo_kernels *kolo_kernels_choose(const char *limit);
/* The choice of this process: by KOLO_ISA. */
const struct kolo_kernels *kolo_kernels_here(void);

#endif
