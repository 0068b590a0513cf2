// SPDX-License-Identifier: Apache-2.0
/* Private floor: only its rank maps a buffer, so data for another rank are first copied into a
 * slot. A rank has a ring of 8 slots of 64 KiB (128 if ranks share cores). A call goes through the
 * ring tile by tile, in up to three stages. Each stage advances when it can:
 *
 *   fill    copy a tile of IN into the own slot
 *   reduce  (two phases) sum the own share of the tile, into OUT and into a second slot
 *   take    read what is wanted from the others' slots into OUT
 *
 * With turns the ring is 2 MiB of slots that are no larger than a tile. A line that the reader's L2
 * still has is dear to write again; here it has left the L2 before its turn comes. No rank is more
 * than 8 tiles ahead all the same.
 *
 * In one phase, every rank that wants a reduction does all of it. In two phases, each rank does its
 * share. */
#include "floor.h"

enum { LINE = 64, SMALL = 32768 };

/* One call on one rank. */
struct slots_pass {
    struct floor *f;
    const struct compare_point *p;
    bool fills, takes, reduces; /* the stages of this rank */
    size_t chunk;               /* bytes: the vector, or the block of one rank */
    size_t piece;               /* bytes of a chunk in one tile */
    uint32_t tiles, base;
};

static bool is_blocked_input(const struct slots_pass *x)
{
    const enum compare_collective c = x->p->collective;
    return x->f->two || c == COMPARE_REDUCE_SCATTER || c == COMPARE_ALL_TO_ALL ||
           c == COMPARE_SCATTER;
}

static bool wants_all(enum compare_collective c)
{
    return c != COMPARE_BROADCAST && c != COMPARE_SCATTER;
}

const char *floor_slots_refuse(const struct floor *f, const struct compare_point *p)
{
    if (p->collective >= COMPARE_BARRIER) {
        return "moves nothing";
    }
    if (f->two && p->collective != COMPARE_ALL_REDUCE && p->collective != COMPARE_REDUCE) {
        return "has one phase";
    }
    return NULL;
}

static char *slot(const struct floor *f, int rank, int zone, uint32_t tile)
{
    const size_t ring = ((size_t)rank * 2 + (size_t)zone) * FLOOR_RING_BYTES;
    return f->slots + ring + (tile & f->ring_mask) * f->ring_stride;
}

void floor_slots_prepare(struct floor *f, const struct compare_point *p)
{
    const bool blocks = p->collective == COMPARE_REDUCE_SCATTER ||
                        p->collective == COMPARE_ALL_TO_ALL || p->collective == COMPARE_SCATTER;
    const size_t n = (size_t)f->nranks, bytes = p->count * p->elem_bytes + LINE * n;
    const size_t most = bytes * (blocks ? n : 1);
    f->ring_mask = FLOOR_DEPTH - 1;
    f->ring_stride = FLOOR_SLOT_STRIDE;
    if (f->turns) {
        f->ring_stride = ((most < f->slot_bytes ? most : f->slot_bytes) / LINE + 2) * LINE;
        while ((size_t)(f->ring_mask + 1) * 2 * f->ring_stride <= FLOOR_RING_BYTES) {
            f->ring_mask = f->ring_mask * 2 + 1;
        }
    }
}

/* Bytes of chunk `c` in tile `t`, and their offset in the chunk. In two phases the last chunk may
 * be short, or empty. */
static size_t piece_of(const struct slots_pass *x, int c, uint32_t t, size_t *at)
{
    const size_t bytes = x->p->count * x->p->elem_bytes;
    size_t end = x->chunk;
    if (x->f->two) {
        const size_t first = (size_t)c * x->chunk;
        end = first >= bytes ? 0 : bytes - first;
        end = end > x->chunk ? x->chunk : end;
    }
    *at = (size_t)t * x->piece;
    if (*at >= end) {
        return 0;
    }
    return end - *at < x->piece ? end - *at : x->piece;
}

/* ---- may the next tile be done? ---- */

static bool all_at(const struct slots_pass *x, const struct compare_flag *flags, uint32_t want)
{
    for (int q = 0; q < x->f->nranks; q++) {
        if (q != x->f->rank && !floor_is_at(&flags[q], want)) {
            return false;
        }
    }
    return true;
}

/* Whether all readers of the slot for this tile are done with it. */
static bool has_credit(struct slots_pass *x, uint32_t t)
{
    struct floor *f = x->f;
    const uint32_t want = x->base + t + 1 - FLOOR_DEPTH;
    if ((int32_t)(f->credit - want) >= 0) {
        return true;
    }
    uint32_t least = x->base + t;
    for (int q = 0; q < f->nranks; q++) {
        const enum compare_collective c = x->p->collective;
        const bool rooted = c == COMPARE_GATHER || (c == COMPARE_REDUCE && !f->two);
        if (q == f->rank || (rooted && q != x->p->root)) {
            continue;
        }
        const uint32_t done = atomic_load_explicit(&f->area->done[q].word, memory_order_acquire);
        least = (int32_t)(done - least) < 0 ? done : least;
    }
    f->credit = least;
    return (int32_t)(least - want) >= 0;
}

static bool can_take(const struct slots_pass *x, uint32_t t)
{
    const struct floor_area *area = x->f->area;
    const uint32_t want = x->base + t + 1;
    if (x->f->two) {
        return all_at(x, area->reduced, want);
    }
    return wants_all(x->p->collective) ? all_at(x, area->filled, want)
                                       : floor_is_at(&area->filled[x->p->root], want);
}

/* ---- one tile of a stage ---- */

static void fill(const struct slots_pass *x, uint32_t t)
{
    const struct floor *f = x->f;
    char *to = slot(f, f->rank, 0, x->base + t);
    const char *in = x->p->send;
    size_t at, len;
    if (!is_blocked_input(x)) {
        len = piece_of(x, 0, t, &at);
        floor_copy_out(to, in + at, len, f->past);
        return;
    }
    for (int q = 0; q < f->nranks; q++) {
        len = piece_of(x, q, t, &at);
        if (q != f->rank && len > 0) {
            floor_copy_out(to + (size_t)q * x->piece, in + (size_t)q * x->chunk + at, len, f->past);
        }
    }
}

/* The addresses of all inputs to this rank's chunk: the own one in IN, the others in slots. */
static void inputs(const struct slots_pass *x, uint32_t t, size_t at, const void **src)
{
    const struct floor *f = x->f;
    const size_t block = is_blocked_input(x) ? (size_t)f->rank : 0;
    for (int q = 0; q < f->nranks; q++) {
        src[q] = q == f->rank ? (const char *)x->p->send + block * x->chunk + at
                              : slot(f, q, 0, x->base + t) + block * x->piece;
    }
}

static void reduce_share(const struct slots_pass *x, uint32_t t)
{
    const struct floor *f = x->f;
    const void *src[COMPARE_RANKS_MAX];
    size_t at;
    const size_t len = piece_of(x, f->rank, t, &at);
    char *share = slot(f, f->rank, 1, x->base + t);
    if (len == 0) {
        return;
    }
    inputs(x, t, at, src);
    if (x->takes) {
        char *out = (char *)x->p->recv + (size_t)f->rank * x->chunk + at;
        f->sum(out, src, f->nranks, len, false);
        if (x->p->collective == COMPARE_ALL_REDUCE) {
            floor_copy_out(share, out, len, f->past);
        }
    } else {
        f->sum(share, src, f->nranks, len, f->past);
    }
}

static void take_shares(const struct slots_pass *x, uint32_t t)
{
    const struct floor *f = x->f;
    for (int q = 0; q < f->nranks; q++) {
        size_t at;
        const size_t len = piece_of(x, q, t, &at);
        if (q != f->rank && len > 0) {
            floor_copy_out((char *)x->p->recv + (size_t)q * x->chunk + at,
                           slot(f, q, 1, x->base + t), len, f->streamed);
        }
    }
}

static void take_blocks(const struct slots_pass *x, uint32_t t)
{
    const struct floor *f = x->f;
    const struct compare_point *p = x->p;
    size_t at;
    const size_t len = piece_of(x, 0, t, &at);
    const size_t own = is_blocked_input(x) ? (size_t)f->rank : 0;
    for (int q = 0; q < f->nranks; q++) {
        const bool one = p->collective == COMPARE_SCATTER || p->collective == COMPARE_BROADCAST;
        if (one && q != p->root) {
            continue;
        }
        const char *from = q == f->rank ? (const char *)p->send + own * x->chunk + at
                                        : slot(f, q, 0, x->base + t) + own * x->piece;
        char *to = (char *)p->recv + (one ? 0 : (size_t)q * x->chunk) + at;
        if (to != from) {
            floor_copy_out(to, from, len, f->streamed);
        }
    }
}

static void take(const struct slots_pass *x, uint32_t t)
{
    if (x->f->two) {
        take_shares(x, t);
    } else if (compare_reduces(x->p->collective)) {
        const void *src[COMPARE_RANKS_MAX];
        size_t at;
        const size_t len = piece_of(x, 0, t, &at);
        inputs(x, t, at, src);
        x->f->sum((char *)x->p->recv + at, src, x->f->nranks, len, x->f->streamed);
    } else {
        take_blocks(x, t);
    }
}

/* ---- a call ---- */

static void set_tiles(struct slots_pass *x)
{
    const struct floor *f = x->f;
    const size_t bytes = x->p->count * x->p->elem_bytes, n = (size_t)f->nranks;
    x->chunk = bytes;
    if (f->two) {
        x->chunk = ((bytes + n - 1) / n + LINE - 1) / LINE * LINE;
    }
    x->piece = is_blocked_input(x) ? f->slot_bytes / n / LINE * LINE : f->slot_bytes;
    if (x->chunk < x->piece) { /* the blocks of a tile follow one another */
        x->piece = (x->chunk + LINE - 1) / LINE * LINE;
    }
    x->tiles = (uint32_t)((x->chunk + x->piece - 1) / x->piece);
}

static void set_stages(struct slots_pass *x)
{
    const bool is_root = x->f->rank == x->p->root;
    x->fills = x->takes = true;
    x->reduces = x->f->two;
    switch (x->p->collective) {
    case COMPARE_BROADCAST:
        x->fills = is_root;
        x->takes = !is_root;
        break;
    case COMPARE_SCATTER:
        x->fills = is_root;
        break;
    case COMPARE_REDUCE:
        x->fills = x->f->two || !is_root;
        x->takes = is_root;
        break;
    case COMPARE_GATHER:
        x->fills = !is_root;
        x->takes = is_root;
        break;
    default:
        break;
    }
}

/* One tile, and every rank waits for every rank. There are no stages, and no acknowledgements,
 * because two slots suffice. Fewer slots stay in nearer caches. */
static void small_call(struct floor *f, const struct compare_point *p)
{
    const void *src[COMPARE_RANKS_MAX];
    const uint32_t tile = f->tiles++, place = f->turns ? tile : tile % 2;
    const size_t bytes = p->count * p->elem_bytes;
    const bool blocks = p->send_elems > p->count;
    const size_t at = blocks ? (size_t)f->rank * bytes : 0;
    char *mine = slot(f, f->rank, 0, place);
    for (int q = 0; q < (blocks ? f->nranks : 1); q++) {
        if (!blocks || q != f->rank) {
            floor_copy_out(mine + (size_t)q * bytes, (const char *)p->send + (size_t)q * bytes,
                           bytes, f->past);
        }
    }
    floor_set(f, &f->area->filled[f->rank], tile + 1);
    for (int q = 0; q < f->nranks; q++) {
        src[q] = (q == f->rank ? (const char *)p->send : slot(f, q, 0, place)) + at;
        if (q != f->rank) {
            floor_await(f, &f->area->filled[q], tile + 1);
        }
    }
    if (compare_reduces(p->collective)) {
        f->sum(p->recv, src, f->nranks, bytes, false);
        return;
    }
    for (int q = 0; q < f->nranks; q++) {
        floor_copy((char *)p->recv + (size_t)q * bytes, src[q], bytes);
    }
}

static bool is_small(const struct floor *f, const struct compare_point *p)
{
    const bool synchronizing =
        p->collective == COMPARE_ALL_REDUCE || p->collective == COMPARE_ALL_GATHER ||
        p->collective == COMPARE_REDUCE_SCATTER || p->collective == COMPARE_ALL_TO_ALL;
    return synchronizing && !f->two && p->send_elems * p->elem_bytes <= SMALL;
}

void floor_slots_call(struct floor *f, const struct compare_point *p)
{
    if (is_small(f, p)) {
        small_call(f, p);
        return;
    }
    struct slots_pass x = {.f = f, .p = p, .base = f->tiles};
    const int me = f->rank;
    unsigned polls = 0;
    set_tiles(&x);
    set_stages(&x);
    const uint32_t n = x.tiles;
    uint32_t filled = x.fills ? 0 : n, reduced = x.reduces ? 0 : n, taken = x.takes ? 0 : n;
    while (filled < n || reduced < n || taken < n) {
        bool moved = false;
        if (filled < n && has_credit(&x, filled)) {
            fill(&x, filled++);
            floor_set(f, &f->area->filled[me], x.base + filled);
            moved = true;
        }
        if (reduced < filled && all_at(&x, f->area->filled, x.base + reduced + 1)) {
            reduce_share(&x, reduced++);
            floor_set(f, &f->area->reduced[me], x.base + reduced);
            if (!x.takes) {
                floor_set(f, &f->area->done[me], x.base + reduced);
            }
            moved = true;
        }
        if (taken < n && taken < (x.reduces ? reduced : n) && can_take(&x, taken)) {
            take(&x, taken++);
            floor_set(f, &f->area->done[me], x.base + taken);
            moved = true;
        }
        if (!moved) {
            floor_relax(f, &polls);
        } else {
            polls = 0;
        }
    }
    if (!x.takes) {
        floor_set(f, &f->area->done[me], x.base + n);
    }
    f->tiles += n;
}
