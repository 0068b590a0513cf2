// SPDX-License-Identifier: Apache-2.0
/* The GPU kernels of a library that was built with nvcc. image.S embeds them. */
#include "exec/gpu/fused/fused.h"
#include "exec/gpu/program/program_kernel.h"

extern const unsigned char kolo_fused_fatbin[], kolo_program_fatbin[];

const void *kolo_fused_image(void)
{
    return kolo_fused_fatbin;
}

const void *kolo_program_image(void)
{
    return kolo_program_fatbin;
}
