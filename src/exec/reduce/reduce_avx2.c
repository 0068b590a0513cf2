// SPDX-License-Identifier: Apache-2.0
/* The kernels for AVX2 and F16C: compiled with their flags, called only where reduce.c found both.
 */
#define ISA     "avx2"
#define KERNELS kolo_kernels_avx2
#include "exec/reduce/reduce_body.h"
