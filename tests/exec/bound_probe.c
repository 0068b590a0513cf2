// SPDX-License-Identifier: Apache-2.0
#include "bound_probe.h"

#include "exec/cpu/bound.h"
#include "exec/cpu/env.h"
#include "exec/cpu/region.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that the op moves in this tile, chunk by chunk. */
static size_t by_chunk(const struct kolo_bound *b, const struct kolo_bound_op *op, uint32_t tile)
{
    size_t sum = 0;
    for (uint32_t j = 0; j < b->prog->op[op->uop].count; j++) {
        sum += kolo_bound_piece_bytes(b, op, j, tile);
    }
    return sum;
}

static bool moves_data(const struct kolo_bound_op *op)
{
    return op->code == KOLO_DO_MOVE || op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV;
}

static void compare(const struct kolo_bound *b, uint32_t i, struct kolo_text *text)
{
    const struct kolo_bound_op *op = &b->op[i];
    for (uint32_t t = 0; t < b->tiles; t++) {
        const size_t want = by_chunk(b, op, t);
        const size_t have = t + 1 == b->tiles ? op->last_len : op->len;
        if (!op->odd && have != want) {
            kolo_text_add(text, "rank %d, op %u, tile %u of %u: %zu bytes, its chunks have %zu",
                          b->prog->me, i, t, b->tiles, have, want);
            return;
        }
    }
}

static size_t short_of(size_t slot_bytes)
{
    return slot_bytes / 3;
}

/* Every outbox operand lies within the slot. */
static void stays_in_slot(const struct kolo_bound *b, uint32_t i, size_t room,
                          struct kolo_text *text)
{
    const struct kolo_uop *op = &b->prog->op[i];
    for (uint32_t k = 0; k < (uint32_t)op->nsrc + op->ndst; k++) {
        const struct kolo_at *at = &b->prog->at[op->first + k];
        const size_t end = b->turn_mask * b->turn_stride + (at->index + op->count) * b->piece;
        const size_t limit = b->inlined               ? KOLO_INLINE_BYTES
                             : b->slot_stride == room ? room
                                                      : short_of(room);
        if (at->space == KOLO_AT_OUTBOX && end > limit) {
            kolo_text_add(text, "rank %d, op %u: ends %zu bytes into an outbox of %zu", b->prog->me,
                          i, end, limit);
            return;
        }
    }
}

char *bound_probe(const struct kolo_prog *prog, const struct kolo_extents *extents,
                  size_t slot_bytes, int phases)
{
    const size_t n = (size_t)prog->plan->shape.nranks;
    struct kolo_region *region = aligned_alloc(KOLO_LINE_BYTES, kolo_region_bytes(phases));
    struct kolo_region **regions = calloc(n, sizeof(void *));
    char **slots = calloc(n, sizeof(char *));
    struct kolo_text text = {0};
    struct kolo_bound *b = NULL;
    for (size_t q = 0; q < n; q++) {
        regions[q] = region;
        slots[q] = (char *)region; /* only addresses are made of it */
    }
    const struct kolo_exec_env env = {.me = prog->me,
                                      .nranks = (int)n,
                                      .region = regions,
                                      .slots = slots,
                                      .slot_bytes = slot_bytes,
                                      .short_slot_bytes = short_of(slot_bytes),
                                      .turn_bytes = slot_bytes,
                                      .phases = phases};
    if (kolo_bind(prog, extents, &env, &b) == KOLO_OK) {
        for (uint32_t i = 0; i < prog->nops && text.len == 0; i++) {
            if (moves_data(&b->op[i])) {
                compare(b, i, &text);
                stays_in_slot(b, i, slot_bytes, &text);
            }
        }
    } else {
        kolo_text_add(&text, "not bound: %s", kolo_error_text());
    }
    kolo_bound_destroy(b);
    free(region);
    free(regions);
    free(slots);
    return text.chars != NULL ? text.chars : strdup("");
}
