// SPDX-License-Identifier: Apache-2.0
/* A collective as one kernel, where one GPU reaches the buffers of all its ranks.
 *
 * Every collective is then a few *moves*: each reads equal blocks of one rank's IN or of all
 * ranks', folds them in rank order, and writes the result to one rank's OUT or to all. All-to-all
 * swaps blocks between two ranks instead, reading both before it writes either, so that it may be
 * in place. Moves are cut into *pieces*; thread blocks take pieces. Nothing waits for anything:
 * each byte of input is read once, each byte of output written once, which is the least that memory
 * can be asked for.
 *
 * The structs are what kernels take: valid C and CUDA C++, with the same layout in both. */
#ifndef KOLO_EXEC_FUSED_H
#define KOLO_EXEC_FUSED_H

#include <kolo/plugin.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KOLO_FUSED_RANKS = 32,
    KOLO_FUSED_THREADS = 512, /* of a block */
    KOLO_FUSED_ALL = -1,      /* sources or destinations of a move: all ranks, in their order */
    KOLO_FUSED_EACH = -2      /* of move m: rank m */
};

struct kolo_fused { /* what is done; addresses are apart */
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
    uint64_t factor;        /* the bits of PREMULSUM's factor */
    uint32_t arrived, done; /* flags of the streams, see core/team.h; kernels leave them alone */
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

/* From a call to its moves. nranks is 1 to KOLO_FUSED_RANKS; `count` is what the public call takes;
 * counts[nranks] and displs[nranks] (elements) for all_gather and reduce_scatter with blocks of
 * different lengths, else NULL. */
struct kolo_fused_shape {
    enum kolo_coll coll;
    int nranks, root;
    size_t count, elem;
    const size_t *counts, *displs;
};
/* Not for barriers, which move nothing. `sms` (multiprocessors of the GPU) decides how long pieces
 * are, never what results. */
void kolo_fused_lower(const struct kolo_fused_shape *shape, unsigned sms, struct kolo_fused *out);
/* Blocks that pay: one for each piece, up to `sms` times 2. */
unsigned kolo_fused_blocks(const struct kolo_fused *call, unsigned sms);

/* The kernel that serves the call: "kolo_fused_sum_float32", "kolo_fused_copy_4", ... `op` above
 * KOLO_OPS is a PREMULSUM; it counts for collectives that reduce, which must be valid pairs. */
enum { KOLO_FUSED_NAME = 48 };
void kolo_fused_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                     char out[KOLO_FUSED_NAME]);

/* Cubins and PTX of all of them for the driver's module loader, or NULL where kolo was built
 * without nvcc. */
const void *kolo_fused_image(void);

#ifdef __cplusplus
}
static_assert(sizeof(struct kolo_fused) == 696 && sizeof(struct kolo_fused_rank) == 32 &&
                  sizeof(struct kolo_fused_launch) == 1728,
              "the same layout on the host and the GPU");
#else
_Static_assert(sizeof(struct kolo_fused) == 696 && sizeof(struct kolo_fused_rank) == 32 &&
                   sizeof(struct kolo_fused_launch) == 1728,
               "the same layout on the host and the GPU");
#endif
#endif
