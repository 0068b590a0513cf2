// SPDX-License-Identifier: Apache-2.0
/* What the low-latency kernels take, and their part of a slab: valid C and CUDA C++, with the same
 * layout in both, as exec/gpu/program/program_layout.h. See ll.h. */
#ifndef KOLO_EXEC_GPU_LL_LL_LAYOUT_H
#define KOLO_EXEC_GPU_LL_LL_LAYOUT_H

#include "exec/gpu/program/program_layout.h"

enum {
    KOLO_LOW_BYTES = 8 << 10, /* that one rank sends another in a slice: a pack a thread */
    KOLO_LOW_PACK = 16,       /* bytes of the user's that a thread moves at a time: two lines */
    KOLO_LOW_HEAD = 128,      /* of a slot: its first line has the call's signature */
    KOLO_LOW_SLOT = KOLO_LOW_HEAD + 2 * KOLO_LOW_BYTES,
    KOLO_LOW_TURNS = 2,        /* slots that a writer has at a reader for a slice */
    KOLO_LOW_REFRESH = 1 << 25 /* calls after which every line has been written again */
};

enum { /* operations */
       KOLO_LOW_SUM,
       KOLO_LOW_PROD,
       KOLO_LOW_MIN,
       KOLO_LOW_MAX,
       KOLO_LOW_BAND,
       KOLO_LOW_BOR,
       KOLO_LOW_BXOR,
       KOLO_LOW_LAND,
       KOLO_LOW_LOR,
       KOLO_LOW_LXOR,
       KOLO_LOW_SCALED /* a sum of what each rank has multiplied by its factor */
};

struct kolo_low_launch { /* a kernel's one argument, by value: graphs keep it as it is */
    struct kolo_peer_ends ends;
    uint32_t nranks, me;
    uint32_t to, from;    /* bits: ranks that get bytes of mine; whose I take, me among them */
    uint32_t op, divisor; /* divisor above 1: of the total */
    uint64_t bytes, part; /* that one rank sends another; of these a slice, a multiple of 128 */
    uint64_t in_stride, out_stride; /* between what goes to, comes from, one rank and the next */
    uint64_t slots;                 /* where they begin in each slab */
};

KOLO_PEER_ASSERT(sizeof(struct kolo_peer_ends) == 48 + 8 * KOLO_PEER_RANKS &&
                     sizeof(struct kolo_low_launch) == 64 + sizeof(struct kolo_peer_ends),
                 "the same layout on the host and the GPU");
#endif
