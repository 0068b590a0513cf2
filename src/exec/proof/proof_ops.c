// SPDX-License-Identifier: Apache-2.0
/* The effect of each op of a lowered program on clocks and cells. Luck may satisfy a wait early.
 * The proof counts it as satisfied only at the latest moment, which makes it sure. */
#include "exec/proof/proof.h"

#include <stdlib.h>

uint64_t kolo_proof_leaf(int rank, int chunk)
{
    return kolo_proof_add(UINT64_C(0x9E3779B97F4A7C15) * (uint64_t)(rank + 1), (uint64_t)chunk);
}

/* Neither commutative nor associative, so that only the same expression gives the same symbol. */
uint64_t kolo_proof_add(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0xBF58476D1CE4E5B9) + (b ^ UINT64_C(0x94D049BB133111EB));
    x ^= x >> 29;
    x *= UINT64_C(0xD6E8FEB86659FD93);
    x ^= x >> 32;
    return x | 1; /* 0 means nothing */
}

uint64_t kolo_proof_last(uint64_t sum)
{
    return kolo_proof_add(sum, UINT64_C(0x1A57));
}

/* ---- moves ---- */

static kolo_status fold_sources(const struct kolo_turn *t, const struct kolo_uop *op, uint32_t j,
                                struct kolo_value *out)
{
    struct kolo_proof *p = t->proof;
    const int32_t moved = kolo_proof_length(t, op, j);
    for (uint32_t i = 0; i < op->nsrc; i++) {
        struct kolo_value value;
        uint32_t cell = 0;
        KOLO_TRY(kolo_proof_resolve(t, kolo_proof_operand(t, i), j, false, &cell));
        KOLO_TRY(kolo_proof_load(t, cell, &value));
        KOLO_TRY(kolo_proof_fits(t, value.length, moved));
        p->cell[cell].moved = j;
        if (i == 0) {
            *out = value;
        } else {
            KOLO_TRY(kolo_proof_fits(t, value.length, out->length));
            out->symbol = kolo_proof_add(out->symbol, value.symbol);
        }
    }
    if (op->last) {
        out->symbol = kolo_proof_last(out->symbol);
    }
    return KOLO_OK;
}

/* Chunks are moved one after the other, or as one run: no chunk may be the source of another. */
static kolo_status store_everywhere(const struct kolo_turn *t, const struct kolo_uop *op,
                                    uint32_t j, struct kolo_value value)
{
    const struct kolo_proof *p = t->proof;
    const bool copies = op->nsrc == 1 && !op->last;
    uint32_t source = 0;
    KOLO_TRY(kolo_proof_resolve(t, kolo_proof_operand(t, 0), j, false, &source));
    for (uint32_t i = 0; i < op->ndst; i++) {
        uint32_t cell = 0;
        KOLO_TRY(kolo_proof_resolve(t, kolo_proof_operand(t, op->nsrc + i), j, true, &cell));
        if (copies && cell == source) {
            continue; /* the executor skips a copy onto itself */
        }
        const uint32_t read = p->reader[(size_t)cell * p->components + t->component];
        if (read == kolo_proof_now(t) && p->cell[cell].moved != j) {
            return kolo_proof_fail(t, "chunk %u goes where chunk %u comes from", j,
                                   p->cell[cell].moved);
        }
        KOLO_TRY(kolo_proof_claim(t, cell));
        kolo_proof_store(t, cell, value);
    }
    return KOLO_OK;
}

static kolo_status do_move(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_value *value = t->proof->moving;
    if (op->nsrc == 0) {
        return kolo_proof_fail(t, "nothing to move");
    }
    for (uint32_t j = 0; j < op->count; j++) {
        KOLO_TRY(fold_sources(t, op, j, &value[j]));
    }
    for (uint32_t j = 0; j < op->count; j++) {
        KOLO_TRY(store_everywhere(t, op, j, value[j]));
    }
    return KOLO_OK;
}

/* ---- signals ---- */

static size_t line_index(const struct kolo_proof *p, int rank, uint32_t phase, uint32_t epoch)
{
    return ((size_t)rank * p->max_phases + phase) * p->epochs + epoch;
}

static kolo_status check_line(const struct kolo_turn *t, const struct kolo_at *at)
{
    if (at->rank < 0 || at->rank >= t->proof->n ||
        at->phase >= (uint32_t)t->plan->rank[at->rank].phases) {
        return kolo_proof_fail(t, "there is no line %u of rank %d", at->phase, at->rank);
    }
    return KOLO_OK;
}

static kolo_status do_signal(const struct kolo_turn *t)
{
    struct kolo_proof *p = t->proof;
    const struct kolo_at *at = kolo_proof_operand(t, 0);
    KOLO_TRY(check_line(t, at));
    if (at->rank != t->rank) {
        return kolo_proof_fail(t, "signals a line of rank %d", at->rank);
    }
    const size_t i = line_index(p, t->rank, at->phase, t->epoch);
    if (p->signalled[i] != 0) {
        return kolo_proof_fail(t, "signals line %u a second time", at->phase);
    }
    p->signalled[i] = kolo_proof_snapshot(p, t->clock);
    p->signal_slot[i] = (uint8_t)(t->epoch & ((uint32_t)t->prog->depth - 1));
    return p->signalled[i] != 0 ? KOLO_OK : kolo_proof_no_memory();
}

/* The oldest signal that satisfies a wait: of this tile, or of a later one in the same slot. */
static uint32_t find_signal(const struct kolo_turn *t, const struct kolo_at *at, uint32_t slot)
{
    const struct kolo_proof *p = t->proof;
    for (uint32_t epoch = t->epoch; epoch < p->epochs; epoch++) {
        const size_t i = line_index(p, at->rank, at->phase, epoch);
        if (p->signalled[i] != 0 && p->signal_slot[i] == slot) {
            return p->signalled[i];
        }
    }
    return 0;
}

static kolo_status do_wait(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    const uint32_t slot = t->epoch & ((uint32_t)t->prog->depth - 1);
    for (uint32_t i = 0; i < op->nsrc; i++) {
        const struct kolo_at *at = kolo_proof_operand(t, i);
        KOLO_TRY(check_line(t, at));
        if (find_signal(t, at, slot) == 0) {
            return kolo_proof_must_wait(t, "line", at->rank, at->phase);
        }
    }
    for (uint32_t i = 0; i < op->nsrc; i++) {
        const struct kolo_at *at = kolo_proof_operand(t, i);
        kolo_proof_join(p, t->clock, find_signal(t, at, slot));
        kolo_proof_touch_slot(t, at->rank);
    }
    return KOLO_OK;
}

/* ---- order within a rank, and of its tiles ---- */

static kolo_status do_after(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    if (op->peer < 0 || op->peer >= t->prog->nlanes || op->index > t->prog->nops) {
        return kolo_proof_fail(t, "there is no lane %d with op %u", op->peer, op->index);
    }
    const struct kolo_runner_lane *other = &p->runner[t->rank].lane[op->peer];
    const size_t lane = (size_t)(t->rank * p->lanes + op->peer);
    uint32_t known = 0;
    if (other->tile > t->tile) {
        known = p->lane_done[lane * p->epochs + t->epoch];
    } else if (other->tile == t->tile && other->pc >= op->index) {
        known =
            p->passed[(lane * KOLO_TILE_COPIES + t->tile % KOLO_TILE_COPIES) * (p->max_ops + 1) +
                      op->index];
    } else {
        return kolo_proof_must_wait(t, "op of lane", op->peer, op->index);
    }
    if (known != 0) {
        kolo_proof_join(p, t->clock, known);
    }
    return KOLO_OK;
}

static kolo_status do_done(const struct kolo_turn *t)
{
    struct kolo_proof *p = t->proof;
    struct kolo_runner *runner = &p->runner[t->rank];
    uint32_t least = t->tile + 1;
    KOLO_AWAIT(kolo_proof_sent(t, false));
    KOLO_TRY(kolo_proof_sent(t, true));
    const uint32_t mine = kolo_proof_snapshot(p, t->clock);
    uint32_t *all = mine != 0 ? kolo_proof_append(&p->clocks, p->components * sizeof *all) : NULL;
    if (all == NULL) {
        return kolo_proof_no_memory();
    }
    const uint32_t joined = p->clocks.count - 1;
    for (uint32_t i = 0; i < p->components; i++) {
        all[i] = t->clock[i];
    }
    p->lane_done[(size_t)(t->rank * p->lanes + t->lane) * p->epochs + t->epoch] = mine;
    runner->lane[t->lane].tile = t->tile + 1;
    for (int i = 0; i < t->prog->nlanes; i++) {
        least = runner->lane[i].tile < least ? runner->lane[i].tile : least;
    }
    for (int i = 0; i < t->prog->nlanes && least > 0; i++) {
        const size_t lane = (size_t)(t->rank * p->lanes + i);
        const uint32_t done = p->lane_done[lane * p->epochs + runner->epoch + least - 1];
        kolo_proof_join(p, all, done);
    }
    uint32_t *reached = p->done_at + (size_t)t->rank * (p->epochs + 1);
    for (uint32_t v = runner->done + 1; v <= runner->epoch + least; v++) {
        reached[v] = joined;
        runner->done = v;
    }
    return KOLO_OK;
}

static kolo_status do_left(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    for (uint32_t i = 0; i < op->nsrc; i++) {
        const int q = kolo_proof_operand(t, i)->rank;
        if (q < 0 || q >= p->n) {
            return kolo_proof_fail(t, "there is no rank %d", q);
        }
        const uint32_t done = p->done_at[(size_t)q * (p->epochs + 1) + t->epoch + 1];
        if (done == 0) {
            return kolo_proof_must_wait(t, "the end of the tile at", q, t->epoch);
        }
        kolo_proof_join(p, t->clock, done);
    }
    return KOLO_OK;
}

kolo_status kolo_proof_op(const struct kolo_turn *t)
{
    const struct kolo_uop *op = &t->prog->op[t->op];
    switch ((enum kolo_code)op->code) {
    case KOLO_DO_WAIT:
        return do_wait(t, op);
    case KOLO_DO_MOVE:
        return do_move(t, op);
    case KOLO_DO_SIGNAL:
        return do_signal(t);
    case KOLO_DO_SEND:
        return kolo_proof_send(t, op);
    case KOLO_DO_RECV:
        return kolo_proof_receive(t, op);
    case KOLO_DO_TAKEN:
        return kolo_proof_taken(t, op);
    case KOLO_DO_AFTER:
        return do_after(t, op);
    case KOLO_DO_DONE:
        return do_done(t);
    case KOLO_DO_LEFT:
        return do_left(t, op);
    }
    return kolo_proof_fail(t, "an op of kind %u", op->code);
}
