// SPDX-License-Identifier: Apache-2.0
/* Extents of the chunks of a call in user memory.
 *
 * Flat collectives cut one vector into chunks of equal length. The length is a multiple of 64
 * bytes, so that two ranks never share a cache line of results. A vector that fits into the signal
 * lines is cut to the element. In block collectives each chunk is a block.
 */
#include "exec/lower/extents.h"

#include "exec/lower/program.h"

#include <stdlib.h>

struct arrays {
    size_t *in_off, *out_off, *block, *block_out;
};

static size_t flat_chunk_bytes(const struct kolo_plan *plan, size_t count, size_t elem)
{
    const size_t chunks = (size_t)plan->chunks;
    const size_t places = plan->max_places > 0 ? (size_t)plan->max_places : 1;
    const size_t bytes = (count + chunks - 1) / chunks * elem;
    return bytes * places <= KOLO_INLINE_BYTES || chunks == 1 ? bytes : kolo_round_up(bytes, 64);
}

static void fill_flat(const struct kolo_plan *plan, const struct kolo_coll_args *args,
                      struct arrays *a, struct kolo_extents *l)
{
    const size_t chunk = flat_chunk_bytes(plan, args->count, l->elem);
    const size_t total = args->count * l->elem;
    for (size_t c = 0; c < (size_t)plan->chunks; c++) {
        const size_t begin = c * chunk;
        a->in_off[c] = a->out_off[c] = begin;
        a->block[c] = begin < total ? kolo_min(chunk, total - begin) : 0;
    }
    l->full = chunk;
}

/* Bytes of block r, and its offset among blocks that are not one. `all` is NULL, or the counts of
 * all ranks and behind them the displacements. */
static size_t block_bytes(const struct kolo_extents *l, size_t count, const size_t *all, int r)
{
    return (all != NULL ? all[r] : count) * l->elem;
}
static size_t block_offset(const struct kolo_extents *l, size_t count, const size_t *all, int r)
{
    return (all != NULL ? all[l->nranks + r] : (size_t)r * count) * l->elem;
}

static void fill_blocks(const struct kolo_coll_args *args, struct arrays *a, struct kolo_extents *l)
{
    const bool in_is_one = kolo_coll_is_one_block(l->coll, true);
    const bool out_is_one = kolo_coll_is_one_block(l->coll, false);
    for (int r = 0; r < l->nranks; r++) {
        const size_t off = block_offset(l, args->count, args->v.all, r);
        a->block[r] = block_bytes(l, args->count, args->v.all, r);
        a->in_off[r] = in_is_one ? 0 : off;
        a->out_off[r] = out_is_one ? 0 : off;
        l->full = kolo_max(l->full, a->block[r]);
    }
}

static void fill_all_to_all(const struct kolo_coll_args *args, struct arrays *a,
                            struct kolo_extents *l)
{
    const size_t *in = args->v.all, *out = in != NULL ? in + 2 * l->nranks : NULL;
    for (int r = 0; r < l->nranks; r++) {
        a->block[r] = block_bytes(l, args->count, in, r);
        a->block_out[r] = block_bytes(l, args->count, out, r);
        a->in_off[r] = block_offset(l, args->count, in, r);
        a->out_off[r] = block_offset(l, args->count, out, r);
        l->full = kolo_max(l->full, kolo_max(a->block[r], a->block_out[r]));
    }
}

kolo_status kolo_extents_make(const struct kolo_plan *plan, int me,
                              const struct kolo_coll_args *args, size_t elem,
                              struct kolo_extents *out, size_t **arrays)
{
    struct kolo_extents l = {.coll = plan->shape.coll,
                             .me = me,
                             .nranks = plan->shape.nranks,
                             .chunks = plan->chunks,
                             .elem = elem};
    const size_t n = (size_t)(l.nranks > l.chunks ? l.nranks : l.chunks);
    size_t *room = calloc(4 * n + 1, sizeof *room);
    if (room == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the extents of %zu chunks", n);
    }
    struct arrays a = {room, room + n, room + 2 * n, room + 3 * n};
    if (kolo_coll_flat(l.coll)) {
        fill_flat(plan, args, &a, &l);
    } else if (l.coll == KOLO_COLL_ALL_TO_ALL) {
        fill_all_to_all(args, &a, &l);
    } else {
        fill_blocks(args, &a, &l);
    }
    l.in_off = a.in_off;
    l.out_off = a.out_off;
    l.block = a.block;
    l.block_out = a.block_out;
    *arrays = room;
    *out = l;
    return KOLO_OK;
}
