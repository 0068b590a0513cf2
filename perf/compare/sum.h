// SPDX-License-Identifier: Apache-2.0
/* Loops that add k inputs element by element, for the floors and for types that MPI lacks. They are
 * plain loops over vectors of one cache line. 16-bit floats are added in float32 and rounded once,
 * to nearest even. The loops are compiled for the present machine. */
#ifndef KOLO_COMPARE_SUM_H
#define KOLO_COMPARE_SUM_H

#include "worker.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Sum `bytes` (whole elements) of src[k] into dst, which may be src[0]. `streamed`: use stores that
 * bypass the caches, if dst is aligned to 64 bytes and the machine has such stores. */
typedef void compare_sum_fn(void *dst, const void *const *src, int k, size_t bytes, bool streamed);

/* The loop of a type; NULL: this machine's compiler lacks the type. */
compare_sum_fn *compare_sum_of(enum compare_type type);

#endif
