// SPDX-License-Identifier: Apache-2.0
/* Inline floor: each rank with an input stores it and the call's number in one cache line. The
 * ranks that need the input poll that line. If every rank waits for every rank, two lines or more
 * need no acknowledgement. In other calls the writer may run ahead by as many calls as it has
 * lines. */
#include "floor.h"

static bool is_synchronizing(enum compare_collective c)
{
    return c == COMPARE_ALL_REDUCE || c == COMPARE_ALL_GATHER || c == COMPARE_REDUCE_SCATTER ||
           c == COMPARE_ALL_TO_ALL || c == COMPARE_BARRIER;
}

static bool from_root(enum compare_collective c)
{
    return c == COMPARE_BROADCAST || c == COMPARE_SCATTER;
}

const char *floor_inline_refuse(const struct compare_point *p)
{
    const bool all = p->collective == COMPARE_SCATTER || p->collective == COMPARE_ALL_TO_ALL ||
                     p->collective == COMPARE_REDUCE_SCATTER;
    const size_t elems = p->count * (all ? (size_t)p->nranks : 1);
    return elems * p->elem_bytes > FLOOR_INLINE ? "more than a line holds" : NULL;
}

static void await_line(const struct floor *f, const struct floor_line *line, uint32_t want)
{
    unsigned polls = 0;
    while ((int32_t)(atomic_load_explicit(&line->epoch, memory_order_acquire) - want) < 0) {
        floor_relax(f, &polls);
    }
}

/* Copy the usual short lengths without a call. */
static inline void copy_small(void *dst, const void *src, size_t bytes)
{
    if (bytes == 8) {
        memcpy(dst, src, 8);
    } else if (bytes == 32) {
        memcpy(dst, src, 32);
    } else {
        memcpy(dst, src, bytes);
    }
}

/* Wait until all readers are past the call that last used this line. */
static void await_credit(struct floor *f, const struct compare_point *p, uint32_t call)
{
    const uint32_t want = call + 1 - FLOOR_DEPTH;
    if ((int32_t)(f->credit - want) >= 0) {
        return;
    }
    uint32_t least = call;
    for (int q = 0; q < f->nranks; q++) {
        const bool reads = from_root(p->collective) ? q != p->root : q == p->root;
        if (reads && q != f->rank) {
            floor_await(f, &f->area->done[q], want);
            const uint32_t done =
                atomic_load_explicit(&f->area->done[q].word, memory_order_relaxed);
            least = (int32_t)(done - least) < 0 ? done : least;
        }
    }
    f->credit = least;
}

static void give(struct floor *f, const struct compare_point *p, uint32_t call)
{
    struct floor_line *line = &f->area->line[f->rank][call % FLOOR_DEPTH];
    if (!is_synchronizing(p->collective)) {
        await_credit(f, p, call);
    }
    copy_small(line->data, p->send, p->send_elems * p->elem_bytes);
    floor_store(f, &line->epoch, call + 1);
}

/* Wait for the lines of all ranks, and collect their data in rank order. The own input is used in
 * place. */
static void collect(const struct floor *f, const struct compare_point *p, uint32_t call,
                    const void **src)
{
    for (int q = 0; q < f->nranks; q++) {
        const struct floor_line *line = &f->area->line[q][call % FLOOR_DEPTH];
        if (q != f->rank) {
            await_line(f, line, call + 1);
        }
        src[q] = q == f->rank ? p->send : line->data;
    }
}

static void sum_small(const struct floor *f, const struct compare_point *p, const void **src)
{
    f->sum(p->recv, src, f->nranks, p->count * p->elem_bytes, false);
}

static void take(struct floor *f, const struct compare_point *p, uint32_t call)
{
    const void *src[COMPARE_RANKS_MAX];
    const size_t bytes = p->count * p->elem_bytes, mine = (size_t)f->rank * bytes;
    if (from_root(p->collective)) {
        const struct floor_line *line = &f->area->line[p->root][call % FLOOR_DEPTH];
        await_line(f, line, call + 1);
        copy_small(p->recv, line->data + (p->collective == COMPARE_SCATTER ? mine : 0), bytes);
        return;
    }
    collect(f, p, call, src);
    if (compare_reduces(p->collective)) {
        for (int q = 0; p->collective == COMPARE_REDUCE_SCATTER && q < f->nranks; q++) {
            src[q] = (const char *)src[q] + mine;
        }
        sum_small(f, p, src);
        return;
    }
    const size_t at = p->collective == COMPARE_ALL_TO_ALL ? mine : 0;
    for (int q = 0; q < f->nranks && bytes > 0; q++) {
        copy_small((char *)p->recv + (size_t)q * bytes, (const char *)src[q] + at, bytes);
    }
}

/* Sum the floats of two ranks. This is the shortest call, and shows the distance of two cores. */
static void sum_pair(struct floor *f, const struct compare_point *p)
{
    const uint32_t call = f->calls++, at = call % FLOOR_DEPTH;
    struct floor_line *mine = &f->area->line[f->rank][at];
    const struct floor_line *theirs = &f->area->line[1 - f->rank][at];
    const float *in = p->send;
    float *out = p->recv, sent[FLOOR_INLINE / sizeof(float)];
    for (size_t i = 0; i < p->count; i++) {
        memcpy(mine->data + i * sizeof *in, in + i, sizeof *in);
    }
    atomic_store_explicit(&mine->epoch, call + 1, memory_order_release);
    await_line(f, theirs, call + 1);
    for (size_t i = 0; i < p->count; i++) {
        memcpy(sent + i, theirs->data + i * sizeof *in, sizeof *in);
        out[i] = in[i] + sent[i];
    }
}

void floor_inline_call(struct floor *f, const struct compare_point *p)
{
    if (p->collective == COMPARE_ALL_REDUCE && p->type == COMPARE_FLOAT32 && f->nranks == 2 &&
        !f->crowded) {
        sum_pair(f, p);
        return;
    }
    const uint32_t call = f->calls++;
    const bool is_root = f->rank == p->root, synchronizing = is_synchronizing(p->collective);
    if (synchronizing || is_root == from_root(p->collective)) {
        give(f, p, call);
    }
    if (synchronizing || is_root != from_root(p->collective)) {
        take(f, p, call);
        if (!synchronizing) {
            floor_set(f, &f->area->done[f->rank], call + 1);
        }
    } else if (p->collective == COMPARE_SCATTER) {
        copy_small(p->recv, p->send, p->count * p->elem_bytes);
    }
}
