// SPDX-License-Identifier: Apache-2.0
/* Kernels for GPUs are in this library: see fused_image.S. */
#include "exec/fused.h"

extern const unsigned char kolo_fused_fatbin[];

const void *kolo_fused_image(void)
{
    return kolo_fused_fatbin;
}
