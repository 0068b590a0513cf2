// SPDX-License-Identifier: Apache-2.0
/* Binding turns chunks into addresses and bytes.
 *
 * Tile t of a call is piece t of every chunk. So one address rule serves all collectives: base of
 * the chunk + t * piece. Every rank must have the same number of tiles. The number therefore
 * depends only on the plan and the extents, never on the memory that a rank maps.
 */
#include "exec/cpu/parts.h"

#include <stdlib.h>
#include <string.h>

enum { TILE_BYTES = 256 * 1024 }; /* the default, over all chunks of a tile: fits an L2 */

size_t kolo_extent_bytes(const struct kolo_extents *l, int rank, enum kolo_buf buf, int chunk)
{
    switch (l->coll) {
    case KOLO_COLL_ALL_REDUCE:
    case KOLO_COLL_REDUCE:
    case KOLO_COLL_BROADCAST:
        return l->block[chunk];
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return l->block[buf == KOLO_IN ? rank : chunk];
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return l->block[buf == KOLO_OUT ? rank : chunk];
    case KOLO_COLL_ALL_TO_ALL:
        if (rank != l->me) { /* the block that I send it, or that it sends me */
            return buf == KOLO_IN ? l->block_out[rank] : l->block[rank];
        }
        return buf == KOLO_IN ? l->block[chunk] : l->block_out[chunk];
    default:
        return 0;
    }
}

void kolo_tile(const struct kolo_plan *plan, const struct kolo_extents *l, size_t slot_bytes,
               size_t *piece, uint32_t *tiles, bool *inlined)
{
    const size_t chunks = kolo_coll_flat(l->coll) ? (size_t)plan->chunks : (size_t)l->nranks;
    const size_t places = plan->max_places > 0 ? (size_t)plan->max_places : 1;
    *inlined = l->full * places <= KOLO_INLINE_BYTES;
    *piece = l->full;
    *tiles = 1;
    if (l->one_tile || *inlined) {
        return;
    }
    const size_t tile = l->tile_bytes > 0 ? l->tile_bytes : TILE_BYTES;
    size_t limit = kolo_min(tile / chunks, slot_bytes / places);
    limit = kolo_max(limit / 64 * 64, 64);
    if (l->full > limit) {
        *tiles = (uint32_t)((l->full + limit - 1) / limit);
        *piece = kolo_round_up((l->full + *tiles - 1) / *tiles, 64);
        *tiles = (uint32_t)((l->full + *piece - 1) / *piece);
    }
}

/* ---- lengths ---- */

static size_t piece_of(size_t chunk_bytes, size_t piece, uint32_t tile)
{
    const size_t before = piece * tile;
    return chunk_bytes > before ? kolo_min(chunk_bytes - before, piece) : 0;
}

size_t kolo_uop_bytes(const struct kolo_prog *p, const struct kolo_extents *l,
                      const struct kolo_uop *op, uint32_t j)
{
    for (uint32_t i = 0; i < (uint32_t)op->nsrc + op->ndst; i++) {
        const struct kolo_at *at = &p->at[op->first + i];
        const int chunk = (int)(at->index + j);
        switch (at->space) {
        case KOLO_AT_IN:
            return kolo_extent_bytes(l, p->me, KOLO_IN, chunk);
        case KOLO_AT_OUT:
            return kolo_extent_bytes(l, p->me, KOLO_OUT, chunk);
        case KOLO_AT_PEER_IN:
            return kolo_extent_bytes(l, at->rank, KOLO_IN, chunk);
        case KOLO_AT_PEER_OUT:
            return kolo_extent_bytes(l, at->rank, KOLO_OUT, chunk);
        default:
            break;
        }
    }
    if (op->step < 0) {
        return l->full;
    }
    const struct kolo_step *s = &p->plan->rank[p->me].step[op->step];
    const bool sends = s->op == KOLO_SEND;
    const int src_rank = sends || s->peer < 0 ? p->me : s->peer;
    const int dst_rank = sends ? s->peer : p->me;
    if (s->src.buf != KOLO_SCRATCH) {
        return kolo_extent_bytes(l, src_rank, (enum kolo_buf)s->src.buf, (int)(s->src.first + j));
    }
    if (s->dst.buf != KOLO_SCRATCH) {
        return kolo_extent_bytes(l, dst_rank, (enum kolo_buf)s->dst.buf, (int)(s->dst.first + j));
    }
    return l->full;
}

static size_t chunk_bytes(const struct kolo_bound *b, const struct kolo_uop *op, uint32_t j)
{
    return kolo_uop_bytes(b->prog, &b->extents, op, j);
}

size_t kolo_bound_piece_bytes(const struct kolo_bound *b, const struct kolo_bound_op *op,
                              uint32_t j, uint32_t tile)
{
    return piece_of(chunk_bytes(b, &b->prog->op[op->uop], j), b->piece, tile);
}

/* ---- addresses ---- */

/* Tiles that follow one another in a long slot use its places by turns. A line that a reader still
 * has in its cache is dear to write again: within an L3 an exchange of 32 KiB took 5.7 us in 128 KiB
 * of slots, and 2.2 us in 2 MiB, where the lines have left both L2 caches when their turn comes.
 * Short slots stay in the caches, because that is faster for few lines. So does an exchange of many
 * tiles: each core's own buffers displace the lines. A core that only reads, as in a reduce of
 * 1 MiB, keeps them: 127 us without turns, 45 with them. */
static void bind_turns(struct kolo_bound *b, const struct kolo_exec_env *env, size_t bytes)
{
    const bool turns = b->tiles <= KOLO_LONG_DEPTH || kolo_coll_rooted(b->extents.coll);
    const size_t room = b->in_long && turns ? env->turn_bytes : 0;
    size_t places = 1;
    b->turn_stride = kolo_round_up(bytes, KOLO_LINE_BYTES);
    while (bytes > 0 && places * 2 * b->turn_stride <= room) {
        places *= 2;
    }
    b->turn_mask = (uint32_t)places - 1;
    b->turn_shift = (uint32_t)__builtin_popcount(b->slot_mask);
}

/* A tile goes into a short slot if the sends of each rank in this tile fit there. */
static void bind_slots(struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const struct kolo_prog *p = b->prog;
    const size_t bytes = b->inlined ? 0 : b->piece * (size_t)p->plan->max_places;
    b->in_long = bytes > env->short_slot_bytes;
    b->slot_mask = (uint32_t)(b->in_long ? p->long_depth : p->depth) - 1;
    b->slot_stride = b->in_long ? env->slot_bytes : env->short_slot_bytes + KOLO_SLOT_SKEW;
    bind_turns(b, env, bytes);
    b->once = b->tiles == 1 && p->depth == KOLO_DEPTH;
}

/* The offset of the slots in an outbox. The short slots follow the long ones. */
static size_t slots_off(const struct kolo_bound *b, const struct kolo_exec_env *env)
{
    return b->in_long ? 0 : KOLO_LONG_DEPTH * env->slot_bytes;
}

static struct kolo_bound_at bind_at(const struct kolo_bound *b, const struct kolo_exec_env *env,
                                    const struct kolo_at *at)
{
    const struct kolo_region *region = at->rank >= 0 ? env->region[at->rank] : NULL;
    struct kolo_bound_at bound = {.kind = K_FIXED, .rank = (uint32_t)at->rank};
    switch (at->space) {
    case KOLO_AT_IN:
    case KOLO_AT_PEER_IN:
        bound.kind = at->space == KOLO_AT_IN ? K_IN : K_PEER_IN;
        bound.at = b->extents.in_off[at->index];
        break;
    case KOLO_AT_OUT:
    case KOLO_AT_PEER_OUT:
        bound.kind = at->space == KOLO_AT_OUT ? K_OUT : K_PEER_OUT;
        bound.at = b->extents.out_off[at->index];
        break;
    case KOLO_AT_SCRATCH:
    case KOLO_AT_STAGE:
        bound.kind = K_PRIVATE;
        bound.at = at->index * b->piece + (at->space == KOLO_AT_STAGE ? b->stage_off : 0);
        break;
    default: /* the outbox, which is in the line or in a slot */
        bound.kind = b->inlined ? K_LINE : K_SLOT;
        bound.at = at->index * b->piece;
        bound.at += b->inlined ? (uintptr_t)region->line[at->phase * KOLO_DEPTH].data
                               : (uintptr_t)env->slots[at->rank] + slots_off(b, env);
        break;
    }
    return bound;
}

static struct kolo_bound_at bind_line(const struct kolo_exec_env *env, const struct kolo_at *at)
{
    return (struct kolo_bound_at){
        .at = (uintptr_t)&env->region[at->rank]->line[at->phase * KOLO_DEPTH],
        .kind = K_LINE,
        .rank = (uint32_t)at->rank};
}

/* Several chunks are one run if they are one in every operand: the pieces follow one another, and
 * only the last is short. */
static bool is_one_run(const struct kolo_bound *b, const struct kolo_uop *op)
{
    const struct kolo_prog *p = b->prog;
    for (uint32_t i = 0; i < (uint32_t)op->nsrc + op->ndst; i++) {
        const struct kolo_at *at = &p->at[op->first + i];
        const bool in = at->space == KOLO_AT_IN || at->space == KOLO_AT_PEER_IN;
        const bool out = at->space == KOLO_AT_OUT || at->space == KOLO_AT_PEER_OUT;
        const size_t *off = in ? b->extents.in_off : b->extents.out_off;
        for (uint32_t j = 1; (in || out) && j < op->count; j++) {
            if (off[at->index + j] != off[at->index] + j * b->piece && chunk_bytes(b, op, j) > 0) {
                return false;
            }
        }
    }
    for (uint32_t j = 1; j < op->count; j++) {
        if (chunk_bytes(b, op, j) > 0 && chunk_bytes(b, op, j - 1) != b->piece) {
            return false;
        }
    }
    return b->tiles == 1;
}

static void bind_lengths(const struct kolo_bound *b, const struct kolo_uop *op,
                         struct kolo_bound_op *bound)
{
    size_t len = 0, last = 0;
    if (op->count > 1 && !is_one_run(b, op)) {
        bound->odd = 1;
        return;
    }
    for (uint32_t j = 0; j < op->count; j++) {
        const size_t bytes = chunk_bytes(b, op, j);
        len += piece_of(bytes, b->piece, 0);
        last += piece_of(bytes, b->piece, b->tiles - 1);
        bound->odd |= b->tiles > 1 && bytes < b->piece * (b->tiles - 1);
        bound->odd |= len > UINT32_MAX;
    }
    bound->len = (uint32_t)len;
    bound->last_len = (uint32_t)last;
}

/* ---- past the caches ---- */

/* Whether this rank's IN and OUT together exceed its part of the cache. */
static bool leaves_cache(const struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const int chunks = kolo_coll_flat(b->extents.coll) ? b->extents.chunks : b->extents.nranks;
    size_t bytes = 0;
    for (int i = 0; i < chunks && b->extents.coll != KOLO_COLL_BARRIER; i++) {
        bytes += b->extents.block[i];
    }
    return env->cache_bytes > 0 && 2 * bytes > env->cache_bytes;
}

/* In place a reduction or an exchange overwrites lines that it has just read, so stores past the
 * caches do not pay. */
static enum kolo_past when_past(enum kolo_coll coll)
{
    return kolo_coll_reduces(coll) || coll == KOLO_COLL_ALL_TO_ALL ? KOLO_PAST_OUT_OF_PLACE
                                                                   : KOLO_PAST;
}

/* Whether `op` is a final move into user memory, with at most one destination elsewhere. */
static bool bind_past(const struct kolo_prog *p, const struct kolo_uop *op)
{
    unsigned user = 0;
    for (uint32_t i = 0; i < op->ndst; i++) {
        const uint8_t space = p->at[op->first + op->nsrc + i].space;
        user += space == KOLO_AT_OUT || space == KOLO_AT_PEER_OUT;
    }
    return op->code == KOLO_DO_MOVE && (op->last || op->nsrc == 1) && user > 0 &&
           user + 1 >= op->ndst;
}

/* The rank at the other end of message `index` of this program. */
static uint32_t message_peer(const struct kolo_prog *p, uint32_t index)
{
    for (uint32_t i = 0; i < p->nops; i++) {
        const struct kolo_uop *op = &p->op[i];
        if ((op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV) && op->index == index) {
            return (uint32_t)op->peer;
        }
    }
    return UINT32_MAX;
}

static void bind_ops(struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const struct kolo_prog *p = b->prog;
    const bool past = leaves_cache(b, env);
    for (uint32_t i = 0; i < p->nops; i++) {
        const struct kolo_uop *op = &p->op[i];
        struct kolo_bound_op *bound = &b->op[i];
        *bound = (struct kolo_bound_op){.code = op->code,
                                        .last = op->last,
                                        .nsrc = op->nsrc,
                                        .ndst = op->ndst,
                                        .first = op->first,
                                        .peer = op->peer,
                                        .index = op->index,
                                        .uop = i};
        const bool data =
            op->code == KOLO_DO_MOVE || op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV;
        for (uint32_t k = 0; k < (uint32_t)op->nsrc + op->ndst; k++) {
            const struct kolo_at *at = &p->at[op->first + k];
            if (data) {
                b->at[op->first + k] = bind_at(b, env, at);
            } else if (op->code == KOLO_DO_WAIT || op->code == KOLO_DO_SIGNAL) {
                b->at[op->first + k] = bind_line(env, at);
            } else if (op->code == KOLO_DO_TAKEN) {
                b->at[op->first + k] =
                    (struct kolo_bound_at){.rank = message_peer(p, at->index), .at = at->index};
            } else {
                b->at[op->first + k] =
                    (struct kolo_bound_at){.rank = (uint32_t)at->rank, .at = at->index};
            }
        }
        bound->past = past && bind_past(p, op) ? (uint8_t)when_past(b->extents.coll) : 0;
        if (data) {
            bind_lengths(b, op, bound);
        }
    }
}

/* Whether a wait is for one line of each peer. */
static bool meets_all(const struct kolo_bound *b, const struct kolo_bound_op *op, int nranks)
{
    const struct kolo_bound_at *at = &b->at[op->first];
    if (op->code != KOLO_DO_WAIT || op->nsrc != nranks - 1 || op->nsrc > MAX_OPERANDS) {
        return false;
    }
    for (unsigned i = 0; i < op->nsrc; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (at[k].rank == at[i].rank) {
                return false;
            }
        }
    }
    return true;
}

/* What kolo_exec_once() makes short: moves of one or two sources into one destination, with ordinary
 * stores, and waits for all peers. */
static void bind_simple(struct kolo_bound *b, const struct kolo_exec_env *env)
{
    for (uint32_t i = 0; b->at_once && i < b->prog->nops; i++) {
        struct kolo_bound_op *op = &b->op[i];
        if (op->code == KOLO_DO_MOVE && op->nsrc <= 2 && op->ndst == 1 && !op->odd &&
            op->past == 0 && b->extents.elem > 0) {
            op->simple_count = op->last_len / (uint32_t)b->extents.elem;
        }
        op->meets_all = meets_all(b, op, env->nranks);
    }
}

static kolo_status copy_extents(struct kolo_bound *b, const struct kolo_extents *l)
{
    const size_t n = (size_t)(l->nranks > l->chunks ? l->nranks : l->chunks);
    b->extents = *l;
    b->arrays = calloc(4 * n + 1, sizeof *b->arrays);
    if (b->arrays == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while binding a program");
    }
    const size_t **slots[] = {&b->extents.in_off, &b->extents.out_off, &b->extents.block,
                              &b->extents.block_out};
    for (size_t i = 0; i < KOLO_LENGTH(slots); i++) {
        if (*slots[i] != NULL) {
            memcpy(b->arrays + i * n, *slots[i], n * sizeof(size_t));
        }
        *slots[i] = b->arrays + i * n;
    }
    return KOLO_OK;
}

kolo_status kolo_bind(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_exec_env *env, struct kolo_bound **out)
{
    struct kolo_bound *b = calloc(1, sizeof *b);
    kolo_status st = KOLO_OK;
    if (b == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while binding a program");
    }
    b->prog = prog;
    KOLO_TRY_GOTO(st, copy_extents(b, extents), err_destroy);
    kolo_tile(prog->plan, extents, env->slot_bytes, &b->piece, &b->tiles, &b->inlined);
    if (!b->inlined && b->piece * (size_t)prog->plan->max_places > env->slot_bytes &&
        prog->uses_outbox) {
        st = kolo_fail(KOLO_ERR_UNSUPPORTED,
                       "%s sends %d chunks a tile, more than an outbox of %zu bytes holds",
                       prog->plan->algo->base.name, prog->plan->max_places, env->slot_bytes);
        goto err_destroy;
    }
    b->stage_off = (size_t)prog->plan->scratch_chunks * b->piece;
    b->private_bytes = kolo_round_up(b->stage_off + prog->stage_chunks * b->piece, 64);
    b->op = calloc(prog->nops + 1, sizeof *b->op);
    b->at = calloc(prog->nats + 1, sizeof *b->at);
    const size_t copies = b->tiles > 1 ? KOLO_TILE_COPIES : 1;
    if (b->private_bytes > 0) {
        b->private_mem = aligned_alloc(64, copies * b->private_bytes);
    }
    b->req = calloc(copies * prog->nreqs + 1, sizeof *b->req);
    if (b->op == NULL || b->at == NULL || b->req == NULL ||
        (b->private_mem == NULL && b->private_bytes > 0)) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory while binding a program");
        goto err_destroy;
    }
    bind_slots(b, env);
    bind_ops(b, env);
    kolo_store_bind(b, env);
    b->chooses = b->stores.matters || b->stores.leads;
    b->at_once = b->once && !b->chooses;
    bind_simple(b, env);
    KOLO_TRY_GOTO(st, kolo_exchange_bind(b, env), err_destroy);
    *out = b;
    return KOLO_OK;

err_destroy:
    kolo_bound_destroy(b);
    return st;
}

void kolo_bound_destroy(struct kolo_bound *b)
{
    if (b == NULL) {
        return;
    }
    free(b->op);
    free(b->at);
    free(b->arrays);
    free(b->private_mem);
    free(b->req);
    free(b->exchange);
    free(b);
}
