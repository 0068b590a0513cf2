// SPDX-License-Identifier: Apache-2.0
/* Extents: the offsets and lengths of a call's chunks in user memory, and how tiles cut them. */
#ifndef KOLO_EXEC_LOWER_EXTENTS_H
#define KOLO_EXEC_LOWER_EXTENTS_H

#include "plan/plan.h"

/* The offsets of chunks, in bytes from the start of IN and OUT. They are the same on every rank
 * that has the chunk. kolo_extent_bytes() gives the lengths. */
struct kolo_extents {
    enum kolo_coll coll;
    int me, nranks, chunks;
    size_t full;           /* the longest chunk */
    const size_t *in_off;  /* [IN chunks] */
    const size_t *out_off; /* [OUT chunks] */
    const size_t *block;   /* lengths: [chunks] if flat, else [nranks]; all_to_all: of IN chunks */
    const size_t *block_out; /* all_to_all: lengths of OUT chunks */
    size_t elem;             /* bytes of an element */
    bool one_tile;           /* a v-form whose sizes not all ranks know */
    size_t tile_bytes;       /* over all chunks of a tile; slots may limit it; 0: the default */
};

/* Bytes of a chunk of `buf` at `rank`. */
size_t kolo_extent_bytes(const struct kolo_extents *extents, int rank, enum kolo_buf buf,
                         int chunk);

/* The sizes that a call names, in elements.
 * - Regular collectives: `count`, of the whole vector if flat, else per block.
 * - v-forms: counts and displs by block.
 * - all_to_allv: counts and displs for IN, out_counts and out_displs for OUT.
 * A rank that knows only its own block (gatherv, scatterv) sets the other counts to 0. */
struct kolo_sizes {
    size_t count, elem;
    const size_t *counts, *displs, *out_counts, *out_displs;
};
/* Make the extents of a call. Call free(*arrays) after their last use. Errors: SYSTEM. */
kolo_status kolo_extents_make(const struct kolo_plan *plan, int me, const struct kolo_sizes *sizes,
                              struct kolo_extents *out, size_t **arrays);

/* Tile arithmetic, the same on every rank: bytes of a piece, number of tiles, and whether the
 * outbox fits into the signal lines (`inlined`). */
void kolo_tile(const struct kolo_plan *plan, const struct kolo_extents *extents, size_t slot_bytes,
               size_t *piece, uint32_t *tiles, bool *inlined);

#endif
