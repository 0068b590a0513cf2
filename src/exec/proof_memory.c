// SPDX-License-Identifier: Apache-2.0
/* Cells: what each chunk of memory holds, and who may touch it now (see proof.h). */
#include "proof.h"

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
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (t->op >= 0) {
        const unsigned code = t->prog->op[t->op].code;
        snprintf(op, sizeof op, ", op %d (%s)", t->op,
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

static bool before(const struct kolo_turn *t, struct kolo_moment moment)
{
    return moment.time > 0 && t->clock[moment.component] >= moment.time;
}

static int rank_of(const struct kolo_proof *p, uint32_t component)
{
    return (int)component / p->lanes;
}

/* ---- where an operand lies ---- */

static void touch(uint32_t *touched, const struct kolo_turn *t)
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
    const int alias =
        buf == KOLO_IN && p->in_place ? kolo_alias_out_chunk(t->plan, owner, (int)chunk) : -1;
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
    touch(home->touched, t);
    return in_user_memory(t, at->rank, buf, at->index + j, out);
}

static uint32_t parity(const struct kolo_turn *t)
{
    return t->epoch & ((uint32_t)t->prog->depth - 1);
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
    const uint32_t slot = (uint32_t)at->rank * KOLO_DEPTH + parity(t);
    *out = p->outbox_cell + slot * p->max_places + at->index + j;
    if (at->rank != t->rank) {
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
    const uint32_t copy = p->set->tiles[t->call] > 1 ? t->tile % KOLO_DEPTH : 0;
    *out = p->private_cell + ((uint32_t)t->rank * KOLO_DEPTH + copy) * p->max_private +
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

static kolo_status settled(const struct kolo_turn *t, const struct kolo_cell *c, const char *what)
{
    const struct kolo_proof *p = t->proof;
    if (c->arriving >= 0) {
        const struct kolo_message *m =
            (const struct kolo_message *)p->messages.at + (size_t)c->arriving;
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
    KOLO_TRY(settled(t, c, "loads"));
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

static kolo_status unread(const struct kolo_turn *t, uint32_t cell)
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

/* Nothing is being sent from here: the receiver has it, or the sender saw that it is complete. */
static kolo_status unsent(const struct kolo_turn *t, const struct kolo_cell *c)
{
    const struct kolo_proof *p = t->proof;
    const struct kolo_list_node *node = p->nodes.at;
    const struct kolo_message *message = p->messages.at;
    for (int32_t i = c->leaving; i >= 0; i = node[i].next) {
        const struct kolo_message *m = &message[node[i].message];
        if (!before(t, m->taken) && !before(t, m->done)) {
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
    KOLO_TRY(settled(t, c, "stores over"));
    KOLO_TRY(unread(t, cell));
    KOLO_TRY(unsent(t, c));
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

/* ---- lengths ---- */

/* A number for the length of a chunk of `buf` at `rank`, as seen by `me`: two chunks with one
 * number are equally long in every call. -1: as long as any. */
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
    case KOLO_COLL_ALL_TO_ALL: /* of a peer's blocks a rank knows those it sends or gets */
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
    own_cells(t, p->private_cell + (uint32_t)t->rank * KOLO_DEPTH * p->max_private,
              KOLO_DEPTH * p->max_private);
    for (uint32_t i = 0; i < tiles * home->nin; i++) {
        const uint32_t chunk = i % home->nin;
        uint32_t cell = 0;
        at.tile = i / home->nin;
        if (in_user_memory(&at, t->rank, KOLO_IN, chunk, &cell) == KOLO_OK) {
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
    KOLO_TRY(in_user_memory(t, t->rank, KOLO_OUT, chunk, &cell));
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
    for (uint32_t i = 0; i < KOLO_DEPTH * p->max_reqs; i++) {
        if (kolo_proof_request_open(p, t->rank, runner->request[i])) {
            return kolo_proof_fail(t, "returns while request %u is open", i % p->max_reqs);
        }
    }
    return KOLO_OK;
}

/* After a barrier all have entered it. */
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
                                   rank_of(p, i));
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
