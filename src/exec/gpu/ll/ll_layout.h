// SPDX-License-Identifier: Apache-2.0
/* The arguments of the low-latency kernels, and their part of a slab. Valid C and CUDA C++, with
 * the same layout in both, as exec/gpu/program/program_layout.h. */
#ifndef KOLO_EXEC_GPU_LL_LL_LAYOUT_H
#define KOLO_EXEC_GPU_LL_LL_LAYOUT_H

#include "exec/gpu/program/program_layout.h"

enum {
    KOLO_LL_BYTES = 8 << 10, /* that one rank sends another in a slice; each thread moves a pack */
    KOLO_LL_PACK = 16,       /* bytes of user data that a thread moves at a time: two lines */
    KOLO_LL_HEAD = 128,      /* bytes of a slot's head, whose first line has the call's signature */
    KOLO_LL_SLOT = KOLO_LL_HEAD + 2 * KOLO_LL_BYTES,
    KOLO_LL_TURNS = 2,        /* slots that a writer has at a reader for a slice */
    KOLO_LL_REFRESH = 1 << 25 /* calls after which every line has been written again */
};

enum { /* operations */
       KOLO_LL_SUM,
       KOLO_LL_PROD,
       KOLO_LL_MIN,
       KOLO_LL_MAX,
       KOLO_LL_BAND,
       KOLO_LL_BOR,
       KOLO_LL_BXOR,
       KOLO_LL_LAND,
       KOLO_LL_LOR,
       KOLO_LL_LXOR,
       KOLO_LL_SCALED /* a sum after each rank has multiplied its input by its factor */
};

struct kolo_ll_launch { /* a kernel's one argument, by value, so that a graph keeps a copy */
    struct kolo_program_ends ends;
    uint32_t nranks, me;
    uint32_t to, from;    /* bits: ranks that get data of this rank; ranks whose data it takes */
    uint32_t op, divisor; /* divisor above 1: of the total */
    uint64_t bytes;       /* that one rank sends another */
    uint64_t part;        /* bytes of these in a slice; a multiple of 128 */
    uint64_t in_stride, out_stride; /* between the data to, or from, one rank and the next */
    uint64_t slots;                 /* offset of the slots in each slab */
};

KOLO_PROGRAM_ASSERT(sizeof(struct kolo_program_ends) == 48 + 8 * KOLO_PROGRAM_RANKS &&
                        sizeof(struct kolo_ll_launch) == 64 + sizeof(struct kolo_program_ends),
                    "the same layout on the host and the GPU");
#endif
