// SPDX-License-Identifier: Apache-2.0
/* Binding turns a program into a launch: the slices of a call cut its chunks into tiles. */
#include "exec/gpu/program/program_kernel.h"

#include <string.h>

enum { ALIGN = 128 }; /* of pieces: fits every type, and the GPU's cache lines */

static kolo_status cut_tiles(const struct kolo_program *p, const struct kolo_extents *extents,
                             struct kolo_program_launch *l)
{
    size_t limit = l->room.inbox_bytes / kolo_max(p->inbox_chunks, 1);
    limit = kolo_min(limit, l->room.scratch_bytes / kolo_max(p->scratch_chunks, 1));
    limit = limit / ALIGN * ALIGN;
    if (limit == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "%s of %u ranks has %u chunks for an inbox of %u bytes and %u for scratch "
                         "of %u",
                         p->plan->algo->base.name, l->room.nranks, p->inbox_chunks,
                         l->room.inbox_bytes, p->scratch_chunks, l->room.scratch_bytes);
    }
    const size_t part = kolo_round_up((extents->full + l->slices - 1) / l->slices, ALIGN);
    l->tiles = (uint32_t)kolo_max((part + limit - 1) / limit, 1);
    l->part = part;
    l->piece = kolo_round_up((part + l->tiles - 1) / l->tiles, ALIGN);
    return KOLO_OK;
}

/* Whether chunks follow one another and are equally long, except for the last ones. */
static bool is_regular(const struct kolo_extents *e, size_t chunks, struct kolo_program_launch *l)
{
    size_t total = 0;
    bool regular = true;
    for (size_t i = 0; i < chunks; i++) {
        total += e->block[i];
    }
    l->full = e->full;
    l->total = total;
    l->in_stride = chunks > 1 ? e->in_off[1] : 0;
    l->out_stride = chunks > 1 ? e->out_off[1] : 0;
    for (size_t i = 0; i < chunks; i++) {
        const size_t before = i * e->full;
        regular = regular && e->in_off[i] == i * l->in_stride &&
                  e->out_off[i] == i * l->out_stride &&
                  e->block[i] == (before < total ? kolo_min(e->full, total - before) : 0);
    }
    return regular;
}

static kolo_status measure_chunks(const struct kolo_extents *e, struct kolo_program_launch *l)
{
    const bool flat = kolo_coll_flat(e->coll);
    const size_t chunks = (size_t)(flat ? e->chunks : e->nranks);
    if (is_regular(e, chunks, l)) {
        return KOLO_OK;
    }
    if (e->coll != KOLO_COLL_ALL_GATHER && e->coll != KOLO_COLL_REDUCE_SCATTER) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "blocks of several lengths in %s on GPUs",
                         kolo_coll_name(e->coll));
    }
    const bool gathers = e->coll == KOLO_COLL_ALL_GATHER; /* IN is one block, else OUT is */
    l->varied = 1;
    l->in_stride = !gathers;
    l->out_stride = gathers;
    for (size_t r = 0; r < chunks; r++) {
        l->span[r] =
            (struct kolo_program_span){gathers ? e->out_off[r] : e->in_off[r], e->block[r]};
    }
    return KOLO_OK;
}

kolo_status kolo_program_bind(const struct kolo_program *p, uint64_t program,
                              const struct kolo_extents *extents,
                              const struct kolo_program_room *room, unsigned slices,
                              struct kolo_program_launch *out)
{
    *out = (struct kolo_program_launch){.room = *room,
                                        .me = (uint32_t)p->me,
                                        .lanes = p->nlanes,
                                        .slices = slices,
                                        .nstages = p->nstages,
                                        .joined = p->joined,
                                        .program = program};
    if (p->nlanes * slices > room->slices) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s takes %u blocks of %u", p->plan->algo->base.name,
                         p->nlanes * slices, room->slices);
    }
    memcpy(out->lane, p->lane, sizeof out->lane);
    if (program == 0) {
        assert(p->nwords <= KOLO_PROGRAM_HELD);
        memcpy(out->word, p->word, p->nwords * sizeof p->word[0]);
    }
    KOLO_TRY(measure_chunks(extents, out));
    return cut_tiles(p, extents, out);
}

/* ---- straight from buffer to buffer ---- */

void kolo_program_bind_direct(enum kolo_coll coll, size_t bytes, struct kolo_program_launch *l)
{
    const uint32_t n = l->room.nranks;
    const size_t share =
        coll == KOLO_COLL_ALL_REDUCE ? kolo_round_up((bytes + n - 1) / n, ALIGN) : bytes;
    const size_t at = l->me * share;
    const size_t left = coll != KOLO_COLL_ALL_REDUCE ? bytes : at < bytes ? bytes - at : 0;
    const unsigned nsrc = coll == KOLO_COLL_ALL_GATHER ? 1 : n;
    const unsigned ndst = coll == KOLO_COLL_REDUCE_SCATTER ? 1 : n;
    l->direct = KOLO_PROGRAM_OP(KOLO_PROGRAM_DIRECT, 1, nsrc, ndst, 0);
    l->direct_bytes = kolo_min(share, left);
    l->in_at = coll == KOLO_COLL_ALL_GATHER ? 0 : at;
    l->out_at = coll == KOLO_COLL_REDUCE_SCATTER ? 0 : at;
    l->direct_part = kolo_round_up((share + l->slices - 1) / l->slices, ALIGN);
    l->meets = 1;
}
