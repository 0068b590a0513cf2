// SPDX-License-Identifier: Apache-2.0
/* The kernels for AVX-512 F, BW, DQ and VL: compiled with their flags, called only where reduce.c
 * found them. Full 64-byte vectors; their masks handle what compilers leave of a loop. */
#define ISA     "avx512"
#define KERNELS kolo_kernels_avx512
#include "exec/reduce/reduce_body.h"
