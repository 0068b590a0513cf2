// SPDX-License-Identifier: Apache-2.0
/* Cells of memory: the value of each chunk, and the check of each access against the clocks. */
#include "exec/proof/proof.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kolo_status kolo_proof_fail(const struct kolo_turn *t, const char *format, ...)
{
    static const char *const codes[] = {"wait",  "move",  "signal", "send", "recv",
                                        "taken", "after", "done",   "left"};
    char text[300], op[40] = "";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (t->op >= 0) {
        const unsigned code = t->prog->op[t->op].code;
        (void)snprintf(op, sizeof op, ", op %d (%s)", t->op,
                       code < KOLO_LENGTH(codes) ? codes[code] : "unknown");
    }
    return kolo_fail(KOLO_ERR_INVALID, "%s: rank %d%s, tile %u, call %d: %s",
                     t->plan->algo->base.name, t->rank, op, t->tile, t->call, text);
}

void *kolo_proof_append(struct kolo_array *array, size_t each)
{
    if (array->count == array->cap) {
        const uint32_t cap = array->cap > 0 ? 2 * array->cap : 256;
        void *grown = realloc(array->at, cap * each);
        if (grown == NULL) {
            return NULL;
        }
        array->at = grown;
        array->cap = cap;
    }
    return (char *)array->at + each * array->count++;
}

/* ---- clocks ---- */

uint32_t kolo_proof_snapshot(struct kolo_proof *p, const uint32_t *clock)
{
    const size_t bytes = p->components * sizeof *clock;
    uint32_t *copy = kolo_proof_append(&p->clocks, bytes);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, clock, bytes);
    return p->clocks.count - 1;
}

void kolo_proof_join(struct kolo_proof *p, uint32_t *clock, uint32_t snapshot)
{
    const uint32_t *other = (const uint32_t *)p->clocks.at + (size_t)snapshot * p->components;
    for (uint32_t i = 0; i < p->components; i++) {
        clock[i] = other[i] > clock[i] ? other[i] : clock[i];
    }
}

static bool happened_before(const struct kolo_turn *t, struct kolo_moment moment)
{
    return moment.time > 0 && t->clock[moment.component] >= moment.time;
}

static int rank_of(const struct kolo_proof *p, uint32_t component)
{
    return (int)component / p->lanes;
}

kolo_status kolo_proof_fits(const struct kolo_turn *t, int32_t have, int32_t moved)
{
    if (moved >= 0 && have >= 0 && have != moved) {
        return kolo_proof_fail(t, "moves data of chunk %d by the length of chunk %d", have, moved);
    }
    return KOLO_OK;
}

/* ---- where an operand lies ---- */

static void note_read(uint32_t *touched, const struct kolo_turn *t)
{
    touched[t->component] = kolo_proof_now(t);
}

static kolo_status in_user_memory(const struct kolo_turn *t, int owner, enum kolo_buf buf,
                                  uint32_t chunk, uint32_t *out)
{
    const struct kolo_proof *p = t->proof;
    struct kolo_home *home = kolo_proof_home(p, t->call, owner);
    const uint32_t chunks = buf == KOLO_IN ? home->nin : home->nout;
    if (chunk >= chunks) {
        return kolo_proof_fail(t, "chunk %u of %u of rank %d's %s", chunk, chunks, owner,
                               buf == KOLO_IN ? "IN" : "OUT");
    }
    const bool apart = !p->in_place || p->set->prog[t->call * p->n + owner]->apart;
    const int alias =
        buf == KOLO_IN && !apart ? kolo_alias_out_chunk(t->plan, owner, (int)chunk) : -1;
    const uint32_t at = buf == KOLO_OUT ? chunk : alias >= 0 ? (uint32_t)alias : home->nout + chunk;
    *out = home->cell + t->tile * (home->nin + home->nout) + at;
    return KOLO_OK;
}

static kolo_status in_peer_memory(const struct kolo_turn *t, const struct kolo_at *at, uint32_t j,
                                  bool write, uint32_t *out)
{
    const struct kolo_proof *p = t->proof;
    const enum kolo_buf buf = at->space == KOLO_AT_PEER_IN ? KOLO_IN : KOLO_OUT;
    if (at->rank < 0 || at->rank >= p->n || (write && buf == KOLO_IN)) {
        return kolo_proof_fail(t, write ? "IN of rank %d is written" : "there is no rank %d",
                               at->rank);
    }
    if (!p->runner[t->rank].entered[at->rank]) {
        return kolo_proof_fail(t, "memory of rank %d without having read its entry line", at->rank);
    }
    struct kolo_home *home = kolo_proof_home(p, t->call, at->rank);
    if (home->over) {
        return kolo_proof_fail(t, "rank %d may have returned from the call, and its memory is used",
                               at->rank);
    }
    note_read(home->touched, t);
    return in_user_memory(t, at->rank, buf, at->index + j, out);
}

/* First cell of the outbox of `owner` in this tile: short slots, then long ones. */
static uint32_t slot_cell(const struct kolo_turn *t, int owner)
{
    const struct kolo_proof *p = t->proof;
    const uint32_t copy = p->set->in_long[t->call]
                              ? KOLO_DEPTH + (t->epoch & ((uint32_t)t->prog->long_depth - 1))
                              : t->epoch & ((uint32_t)t->prog->depth - 1);
    return p->outbox_cell +
           ((uint32_t)owner * (KOLO_DEPTH + KOLO_LONG_DEPTH) + copy) * p->max_places;
}

static kolo_status in_outbox(const struct kolo_turn *t, const struct kolo_at *at, uint32_t j,
                             bool write, uint32_t *out)
{
    const struct kolo_proof *p = t->proof;
    if (at->rank < 0 || at->rank >= p->n || (write && at->rank != t->rank)) {
        return kolo_proof_fail(t, "%s the outbox of rank %d", write ? "writes" : "reads", at->rank);
    }
    const struct kolo_rank_plan *owner = &t->plan->rank[at->rank];
    if (at->index + j >= (uint32_t)owner->places || at->phase >= (uint32_t)owner->phases) {
        return kolo_proof_fail(t, "place %u, line %u of rank %d, which has %d and %d",
                               at->index + j, at->phase, at->rank, owner->places, owner->phases);
    }
    *out = slot_cell(t, at->rank) + at->index + j;
    if (at->rank != t->rank && !p->set->in_long[t->call]) {
        kolo_proof_touch_slot(t, at->rank);
    }
    if (write) {
        p->cell[*out].phase = at->phase;
    } else if (p->cell[*out].phase != at->phase) {
        return kolo_proof_fail(t, "place %u of rank %d lies in line %u, is read in line %u",
                               at->index + j, at->rank, p->cell[*out].phase, at->phase);
    }
    return KOLO_OK;
}

static kolo_status in_private(const struct kolo_turn *t, const struct kolo_at *at, uint32_t j,
                              uint32_t *out)
{
    const struct kolo_proof *p = t->proof;
    const uint32_t scratch = (uint32_t)t->prog->plan->scratch_chunks;
    const bool stage = at->space == KOLO_AT_STAGE;
    const uint32_t chunks = stage ? t->prog->stage_chunks : scratch;
    if (at->index + j >= chunks) {
        return kolo_proof_fail(t, "chunk %u of %u of %s", at->index + j, chunks,
                               stage ? "the stage" : "SCRATCH");
    }
    const uint32_t copy = p->set->tiles[t->call] > 1 ? t->tile % KOLO_TILE_COPIES : 0;
    *out = p->private_cell + ((uint32_t)t->rank * KOLO_TILE_COPIES + copy) * p->max_private +
           (stage ? scratch : 0) + at->index + j;
    return KOLO_OK;
}

kolo_status kolo_proof_resolve(const struct kolo_turn *t, const struct kolo_at *at, uint32_t j,
                               bool write, uint32_t *out)
{
    switch (at->space) {
    case KOLO_AT_IN:
        return write ? kolo_proof_fail(t, "IN is written")
                     : in_user_memory(t, t->rank, KOLO_IN, at->index + j, out);
    case KOLO_AT_OUT:
        return in_user_memory(t, t->rank, KOLO_OUT, at->index + j, out);
    case KOLO_AT_SCRATCH:
    case KOLO_AT_STAGE:
        return in_private(t, at, j, out);
    case KOLO_AT_PEER_IN:
    case KOLO_AT_PEER_OUT:
        return in_peer_memory(t, at, j, write, out);
    case KOLO_AT_OUTBOX:
        return in_outbox(t, at, j, write, out);
    default:
        return kolo_proof_fail(t, "an operand in space %u", at->space);
    }
}

/* ---- loads and stores ---- */

static kolo_status check_written(const struct kolo_turn *t, const struct kolo_cell *c,
                                 const char *what)
{
    const struct kolo_proof *p = t->proof;
    if (c->arriving >= 0) {
        const struct kolo_proof_message *m =
            (const struct kolo_proof_message *)p->messages.at + (size_t)c->arriving;
        return kolo_proof_fail(t, "%s where a message from rank %d is being received", what,
                               m->from);
    }
    if (t->clock[c->writer] < c->written) {
        return kolo_proof_fail(t, "%s what rank %d writes, without an order between them", what,
                               rank_of(p, c->writer));
    }
    return KOLO_OK;
}

kolo_status kolo_proof_load(const struct kolo_turn *t, uint32_t cell, struct kolo_value *out)
{
    struct kolo_proof *p = t->proof;
    const struct kolo_cell *c = &p->cell[cell];
    KOLO_TRY(check_written(t, c, "loads"));
    if (c->value.epoch != t->epoch + 1) {
        return c->value.epoch == 0
                   ? kolo_proof_fail(t, "loads what nobody has written")
                   : kolo_proof_fail(t, "loads what belongs to tile %u of all calls, should be %u",
                                     c->value.epoch - 1, t->epoch);
    }
    p->reader[(size_t)cell * p->components + t->component] = kolo_proof_now(t);
    *out = c->value;
    return KOLO_OK;
}

static kolo_status check_unread(const struct kolo_turn *t, uint32_t cell)
{
    const struct kolo_proof *p = t->proof;
    const uint32_t *reader = p->reader + (size_t)cell * p->components;
    for (uint32_t i = 0; i < p->components; i++) {
        if (reader[i] > t->clock[i]) {
            return kolo_proof_fail(t, "stores where rank %d may still load", rank_of(p, i));
        }
    }
    return KOLO_OK;
}

/* Check that no message is leaving from this cell: the receiver has it, or the sender saw that it
 * is complete. */
static kolo_status check_sent(const struct kolo_turn *t, const struct kolo_cell *c)
{
    const struct kolo_proof *p = t->proof;
    const struct kolo_list_node *node = p->nodes.at;
    const struct kolo_proof_message *message = p->messages.at;
    for (int32_t i = c->leaving; i >= 0; i = node[i].next) {
        const struct kolo_proof_message *m = &message[node[i].message];
        if (!happened_before(t, m->taken) && !happened_before(t, m->done)) {
            return kolo_proof_fail(t, "stores where a message to rank %d may still be sent from",
                                   m->to);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_proof_claim(const struct kolo_turn *t, uint32_t cell)
{
    struct kolo_proof *p = t->proof;
    struct kolo_cell *c = &p->cell[cell];
    KOLO_TRY(check_written(t, c, "stores over"));
    KOLO_TRY(check_unread(t, cell));
    KOLO_TRY(check_sent(t, c));
    memset(p->reader + (size_t)cell * p->components, 0, p->components * sizeof *p->reader);
    c->leaving = -1;
    return KOLO_OK;
}

void kolo_proof_store(const struct kolo_turn *t, uint32_t cell, struct kolo_value value)
{
    struct kolo_cell *c = &t->proof->cell[cell];
    c->value = value;
    c->writer = t->component;
    c->written = kolo_proof_now(t);
    c->arriving = -1;
}

kolo_status kolo_proof_claim_slot(const struct kolo_turn *t, uint32_t epoch, uint32_t slot)
{
    const struct kolo_proof *p = t->proof;
    for (uint32_t old = 0; old < epoch && old < p->epochs; old++) {
        const size_t tile = (size_t)t->rank * p->epochs + old;
        const uint32_t *touched = p->slot_touched + tile * p->components;
        for (uint32_t i = 0; p->slot_of[tile] == slot && i < p->components; i++) {
            if (touched[i] > t->clock[i]) {
                return kolo_proof_fail(
                    t,
                    "for tile %u of all calls, writes lines and slots that rank %d may still read",
                    epoch, rank_of(p, i));
            }
        }
    }
    return KOLO_OK;
}

kolo_status kolo_proof_claim_long_slot(const struct kolo_turn *t, uint32_t slot)
{
    const struct kolo_proof *p = t->proof;
    const uint32_t copy = (uint32_t)t->rank * (KOLO_DEPTH + KOLO_LONG_DEPTH) + KOLO_DEPTH + slot;
    for (uint32_t i = 0; i < p->max_places; i++) {
        KOLO_TRY(check_unread(t, p->outbox_cell + copy * p->max_places + i));
    }
    return KOLO_OK;
}
