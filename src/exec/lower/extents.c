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

static void fill_flat(const struct kolo_plan *plan, const struct kolo_sizes *s, struct arrays *a,
                      struct kolo_extents *l)
{
    const size_t chunk = flat_chunk_bytes(plan, s->count, s->elem);
    const size_t total = s->count * s->elem;
    for (size_t c = 0; c < (size_t)plan->chunks; c++) {
        const size_t begin = c * chunk;
        a->in_off[c] = a->out_off[c] = begin;
        a->block[c] = begin < total ? kolo_min(chunk, total - begin) : 0;
    }
    l->full = chunk;
}

static void fill_blocks(const struct kolo_sizes *s, struct arrays *a, struct kolo_extents *l)
{
    const bool in_is_one = l->coll == KOLO_COLL_GATHER || l->coll == KOLO_COLL_ALL_GATHER;
    const bool out_is_one = l->coll == KOLO_COLL_SCATTER || l->coll == KOLO_COLL_REDUCE_SCATTER;
    size_t packed = 0;
    for (int r = 0; r < l->nranks; r++) {
        const size_t bytes = (s->counts != NULL ? s->counts[r] : s->count) * s->elem;
        const size_t off = s->displs != NULL ? s->displs[r] * s->elem : packed;
        a->block[r] = bytes;
        a->in_off[r] = in_is_one ? 0 : off;
        a->out_off[r] = out_is_one ? 0 : off;
        packed += bytes;
        l->full = kolo_max(l->full, bytes);
    }
}

static void fill_all_to_all(const struct kolo_sizes *s, struct arrays *a, struct kolo_extents *l)
{
    for (int r = 0; r < l->nranks; r++) {
        a->block[r] = (s->counts != NULL ? s->counts[r] : s->count) * s->elem;
        a->block_out[r] = (s->out_counts != NULL ? s->out_counts[r] : s->count) * s->elem;
        a->in_off[r] = s->displs != NULL ? s->displs[r] * s->elem : (size_t)r * s->count * s->elem;
        a->out_off[r] =
            s->out_displs != NULL ? s->out_displs[r] * s->elem : (size_t)r * s->count * s->elem;
        l->full = kolo_max(l->full, kolo_max(a->block[r], a->block_out[r]));
    }
}

kolo_status kolo_extents_make(const struct kolo_plan *plan, int me, const struct kolo_sizes *sizes,
                              struct kolo_extents *out, size_t **arrays)
{
    struct kolo_extents l = {.coll = plan->shape.coll,
                             .me = me,
                             .nranks = plan->shape.nranks,
                             .chunks = plan->chunks,
                             .elem = sizes->elem};
    const size_t n = (size_t)(l.nranks > l.chunks ? l.nranks : l.chunks);
    size_t *room = calloc(4 * n + 1, sizeof *room);
    if (room == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the extents of %zu chunks", n);
    }
    struct arrays a = {room, room + n, room + 2 * n, room + 3 * n};
    if (kolo_coll_flat(l.coll)) {
        fill_flat(plan, sizes, &a, &l);
    } else if (l.coll == KOLO_COLL_ALL_TO_ALL) {
        fill_all_to_all(sizes, &a, &l);
    } else {
        fill_blocks(sizes, &a, &l);
    }
    l.in_off = a.in_off;
    l.out_off = a.out_off;
    l.block = a.block;
    l.block_out = a.block_out;
    *arrays = room;
    *out = l;
    return KOLO_OK;
}
