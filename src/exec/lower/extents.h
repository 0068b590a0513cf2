// SPDX-License-Identifier: Apache-2.0
/* Extents: the offsets and lengths of a call's chunks in user memory, and how tiles cut them. */
#ifndef KOLO_EXEC_LOWER_EXTENTS_H
#define KOLO_EXEC_LOWER_EXTENTS_H

#include "plan/coll.h"

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

/* Make the extents of a call, of whose arguments only the counts matter. `elem` is the bytes of an
 * element where the call runs, which may be those of a wider type. A rank that knows only its own
 * block (gatherv, scatterv) has 0 for the other counts. Call free(*arrays) after the last use of
 * the extents. Errors: SYSTEM. */
kolo_status kolo_extents_make(const struct kolo_plan *plan, int me,
                              const struct kolo_coll_args *args, size_t elem,
                              struct kolo_extents *out, size_t **arrays);

/* Tile arithmetic, the same on every rank: bytes of a piece, number of tiles, and whether the
 * outbox fits into the signal lines (`inlined`). */
void kolo_tile(const struct kolo_plan *plan, const struct kolo_extents *extents, size_t slot_bytes,
               size_t *piece, uint32_t *tiles, bool *inlined);

#endif
