// SPDX-License-Identifier: Apache-2.0
/* The arguments of the fused kernels. Valid C and CUDA C++, with the same layout in both. This file
 * includes no other file of kolo, because the kernels take minutes to compile. */
#ifndef KOLO_EXEC_GPU_FUSED_FUSED_LAYOUT_H
#define KOLO_EXEC_GPU_FUSED_FUSED_LAYOUT_H

#include <stdint.h>

enum {
    KOLO_FUSED_RANKS = 32,
    KOLO_FUSED_THREADS = 512, /* of a block */
    KOLO_FUSED_ALL = -1,      /* sources or destinations of a move: all ranks, in their order */
    KOLO_FUSED_EACH = -2      /* of move m: rank m */
};

struct kolo_fused { /* the moves of a call; struct kolo_fused_rank has the addresses */
    int32_t nranks;
    int32_t from, to; /* a rank, KOLO_FUSED_ALL or KOLO_FUSED_EACH */
    int32_t from_at,
        to_at;        /* 1: that side lies at[m] elements from the buffer's start, else at it */
    uint32_t swaps;   /* 1: moves are pairs of ranks (all_to_all), the members above are unused */
    uint32_t divisor; /* above 1: of the total */
    uint32_t elem;    /* bytes of an element */
    uint32_t nmoves, npieces;
    uint64_t piece; /* elements of a piece; the last of a move may be shorter */
    uint32_t first_piece[KOLO_FUSED_RANKS + 1]; /* of each move; swaps: pieces of a pair in [1] */
    uint32_t unused;
    uint64_t at[KOLO_FUSED_RANKS], len[KOLO_FUSED_RANKS]; /* elements; swaps: one block in len[0] */
};

struct kolo_fused_rank { /* one rank's buffers, as the GPU addresses them */
    uint64_t in, out;
    uint64_t factor; /* the bits of PREMULSUM's factor */
    uint32_t arrived,
        done; /* flags of the streams, see gpu/fused/fused_path.h; kernels leave them alone */
};

struct kolo_fused_table {
    uint32_t aborted; /* not 0: the addresses may be stale, kernels do nothing */
    uint32_t unused[7];
    struct kolo_fused_rank rank[KOLO_FUSED_RANKS];
};

struct kolo_fused_launch { /* a kernel's one argument, by value */
    struct kolo_fused call;
    uint64_t table; /* of the GPU; 0: the ranks are here */
    struct kolo_fused_rank rank[KOLO_FUSED_RANKS];
};

#ifdef __cplusplus
static_assert(sizeof(struct kolo_fused) == 696 && sizeof(struct kolo_fused_rank) == 32 &&
                  sizeof(struct kolo_fused_launch) == 1728,
              "the same layout on the host and the GPU");
#else
_Static_assert(sizeof(struct kolo_fused) == 696 && sizeof(struct kolo_fused_rank) == 32 &&
                   sizeof(struct kolo_fused_launch) == 1728,
               "the same layout on the host and the GPU");
#endif
#endif
