// SPDX-License-Identifier: Apache-2.0
/* Where the chunks of a call lie in user memory, and how tiles cut them. */
#ifndef KOLO_EXEC_LOWER_EXTENTS_H
#define KOLO_EXEC_LOWER_EXTENTS_H

#include "plan/plan.h"

/* Where chunks lie. Offsets in bytes from the start of IN and OUT, the same on every rank that has
 * the chunk; lengths by kolo_extent_bytes(). */
struct kolo_extents {
    enum kolo_coll coll;
    int me, nranks, chunks;
    size_t full;           /* the longest chunk */
    const size_t *in_off;  /* [IN chunks] */
    const size_t *out_off; /* [OUT chunks] */
    const size_t *block;   /* flat: [chunks] lengths; else [nranks], but all_to_all: of IN chunks */
    const size_t *block_out; /* all_to_all: of OUT chunks */
    size_t elem;             /* bytes of an element */
    bool one_tile;           /* v-forms that not all ranks know */
    size_t tile_bytes;       /* of all chunks of a tile, as far as slots allow; 0: the default */
};

/* Bytes of a chunk of `buf` at `rank`. */
size_t kolo_extent_bytes(const struct kolo_extents *extents, int rank, enum kolo_buf buf,
                         int chunk);

/* What a call says of its sizes, in elements. Regular collectives: `count` (per block, but the
 * whole vector where flat). v-forms: counts and displs by block; all_to_allv: of IN; out_*: of OUT.
 * A rank that knows only its own block (gatherv, scatterv) gives the others 0. */
struct kolo_sizes {
    size_t count, elem;
    const size_t *counts, *displs, *out_counts, *out_displs;
};
/* The extents of a call; free(*arrays) when it is no longer used. Errors: SYSTEM. */
kolo_status kolo_extents_make(const struct kolo_plan *plan, int me, const struct kolo_sizes *sizes,
                              struct kolo_extents *out, size_t **arrays);

/* Tile arithmetic, the same on every rank: bytes of a piece, number of tiles. */
void kolo_tile(const struct kolo_plan *plan, const struct kolo_extents *extents, size_t slot_bytes,
               size_t *piece, uint32_t *tiles, bool *inlined);

#endif
