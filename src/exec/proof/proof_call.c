// SPDX-License-Identifier: Apache-2.0
/* The begin and the end of a call: a rank's inputs, the outputs that it must have, and the accesses
 * that must be over when the call returns. Also the length of the chunk that an op moves. */
#include "exec/proof/proof.h"

#include <string.h>

static kolo_status own_cell(const struct kolo_turn *t, enum kolo_space space, uint32_t chunk,
                            uint32_t *out)
{
    const struct kolo_at at = {.space = (uint8_t)space, .rank = -1, .index = chunk};
    return kolo_proof_resolve(t, &at, 0, false, out);
}

/* ---- lengths ---- */

/* A number for the length of a chunk of `buf` at `rank`, as seen by `me`. Two chunks with the same
 * number are equally long in every call. -1: the length of every chunk. */
static int32_t length_number(const struct kolo_turn *t, int me, int rank, enum kolo_buf buf,
                             uint32_t chunk)
{
    const int n = t->proof->n;
    if (kolo_coll_flat(t->plan->shape.coll)) {
        return (int32_t)chunk;
    }
    if (!t->proof->set->uneven) {
        return -1;
    }
    switch (t->plan->shape.coll) {
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return buf == KOLO_IN ? rank : (int32_t)chunk;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return buf == KOLO_OUT ? rank : (int32_t)chunk;
    case KOLO_COLL_ALL_TO_ALL: /* a rank knows only the blocks that it sends or gets */
        return buf == KOLO_IN ? rank * n + (rank == me ? (int32_t)chunk : me)
                              : (rank == me ? (int32_t)chunk : me) * n + rank;
    default:
        return -1;
    }
}

int32_t kolo_proof_length(const struct kolo_turn *t, const struct kolo_uop *op, uint32_t j)
{
    const int me = t->rank;
    for (uint32_t i = 0; i < (uint32_t)op->nsrc + op->ndst; i++) {
        const struct kolo_at *at = &t->prog->at[op->first + i];
        switch (at->space) {
        case KOLO_AT_IN:
            return length_number(t, me, me, KOLO_IN, at->index + j);
        case KOLO_AT_OUT:
            return length_number(t, me, me, KOLO_OUT, at->index + j);
        case KOLO_AT_PEER_IN:
            return length_number(t, me, at->rank, KOLO_IN, at->index + j);
        case KOLO_AT_PEER_OUT:
            return length_number(t, me, at->rank, KOLO_OUT, at->index + j);
        default:
            break;
        }
    }
    if (op->step < 0) {
        return -1;
    }
    const struct kolo_step *s = &t->prog->plan->rank[me].step[op->step];
    const int src_rank = s->op == KOLO_SEND || s->peer < 0 ? me : s->peer;
    const int dst_rank = s->op == KOLO_SEND ? s->peer : me;
    if (s->src.buf != KOLO_SCRATCH) {
        return length_number(t, me, src_rank, (enum kolo_buf)s->src.buf, s->src.first + j);
    }
    if (s->dst.buf != KOLO_SCRATCH) {
        return length_number(t, me, dst_rank, (enum kolo_buf)s->dst.buf, s->dst.first + j);
    }
    return -1;
}

/* ---- calls ---- */

static void own_cells(const struct kolo_turn *t, uint32_t first, uint32_t count)
{
    struct kolo_proof *p = t->proof;
    for (uint32_t i = first; i < first + count; i++) {
        p->cell[i].leaving = -1;
        kolo_proof_store(t, i, (struct kolo_value){0});
    }
    memset(p->reader + (size_t)first * p->components, 0,
           (size_t)count * p->components * sizeof *p->reader);
}

void kolo_proof_enter(const struct kolo_turn *t)
{
    struct kolo_proof *p = t->proof;
    const struct kolo_home *home = kolo_proof_home(p, t->call, t->rank);
    const uint32_t tiles = p->set->tiles[t->call];
    struct kolo_turn at = *t;
    own_cells(t, home->cell, tiles * (home->nin + home->nout));
    own_cells(t, p->private_cell + (uint32_t)t->rank * KOLO_TILE_COPIES * p->max_private,
              KOLO_TILE_COPIES * p->max_private);
    for (uint32_t i = 0; i < tiles * home->nin; i++) {
        const uint32_t chunk = i % home->nin;
        uint32_t cell = 0;
        at.tile = i / home->nin;
        if (own_cell(&at, KOLO_AT_IN, chunk, &cell) == KOLO_OK) {
            const struct kolo_value leaf = {kolo_proof_leaf(t->rank, (int)chunk),
                                            t->epoch + at.tile + 1,
                                            length_number(t, t->rank, t->rank, KOLO_IN, chunk)};
            kolo_proof_store(t, cell, leaf);
        }
    }
}

static kolo_status kept_promise(const struct kolo_turn *t, uint32_t chunk)
{
    const struct kolo_home *home = kolo_proof_home(t->proof, t->call, t->rank);
    struct kolo_value value;
    uint32_t cell = 0;
    if (home->promise[chunk] == 0) {
        return KOLO_OK;
    }
    KOLO_TRY(own_cell(t, KOLO_AT_OUT, chunk, &cell));
    KOLO_TRY(kolo_proof_load(t, cell, &value));
    if (value.symbol != home->promise[chunk]) {
        return kolo_proof_fail(t, "OUT[%u] is not what the plan makes", chunk);
    }
    return KOLO_OK;
}

static kolo_status messages_over(const struct kolo_turn *t)
{
    const struct kolo_proof *p = t->proof;
    const struct kolo_runner *runner = &p->runner[t->rank];
    for (uint32_t i = 0; i < KOLO_TILE_COPIES * p->max_reqs; i++) {
        if (kolo_proof_request_open(p, t->rank, runner->request[i])) {
            return kolo_proof_fail(t, "returns while request %u is open", i % p->max_reqs);
        }
    }
    return KOLO_OK;
}

/* Check that after a barrier all ranks have entered it. */
static kolo_status all_entered(const struct kolo_turn *t)
{
    const struct kolo_proof *p = t->proof;
    for (int q = 0; q < p->n; q++) {
        const uint32_t entered = kolo_proof_home(p, t->call, q)->entered;
        const uint32_t lane = (uint32_t)(q * p->lanes);
        const uint32_t *clock = (const uint32_t *)p->clocks.at + (size_t)entered * p->components;
        if (entered == 0 || t->clock[lane] < clock[lane]) {
            return kolo_proof_fail(t, "leaves the barrier, and rank %d need not have come", q);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_proof_leave(const struct kolo_turn *t)
{
    const struct kolo_proof *p = t->proof;
    struct kolo_home *home = kolo_proof_home(p, t->call, t->rank);
    struct kolo_turn at = *t;
    home->over = true;
    KOLO_TRY(messages_over(t));
    for (uint32_t i = 0; i < p->components; i++) {
        if (home->touched[i] > t->clock[i]) {
            return kolo_proof_fail(t, "returns while rank %d may still use its memory",
                                   (int)i / p->lanes);
        }
    }
    for (at.tile = 0; at.tile < p->set->tiles[t->call]; at.tile++) {
        at.epoch = t->epoch + at.tile;
        for (uint32_t chunk = 0; chunk < home->nout; chunk++) {
            KOLO_TRY(kept_promise(&at, chunk));
        }
    }
    return t->plan->shape.coll == KOLO_COLL_BARRIER ? all_entered(t) : KOLO_OK;
}
