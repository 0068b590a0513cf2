// SPDX-License-Identifier: Apache-2.0
/* Loops that add k inputs element by element, for the floors and for MPI's missing types. Plain
 * loops over vectors of one cache line; 16-bit floats are added in float32 and rounded once, to
 * nearest even. Compiled for the machine at hand. */
#ifndef KOLO_COMPARE_SUM_H
#define KOLO_COMPARE_SUM_H

#include "worker.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Sums of `bytes` (whole elements) from src[k] into dst. `streamed`: stores that leave the caches
 * alone, where dst is aligned to 64 bytes and the machine has them. dst may be src[0]. */
typedef void compare_sum_fn(void *dst, const void *const *src, int k, size_t bytes, bool streamed);

/* NULL where this machine's compiler has no such type. */
compare_sum_fn *compare_sum_of(enum compare_type type);

#endif
