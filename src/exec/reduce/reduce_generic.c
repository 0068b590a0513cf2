// SPDX-License-Identifier: Apache-2.0
/* The kernels in plain C, for any machine. On x86-64 compilers still use SSE2, which all of them
 * have. */
#define ISA     "generic"
#define KERNELS kolo_kernels_generic
#include "exec/reduce/reduce_body.h"
