// SPDX-License-Identifier: Apache-2.0
/* Mapped floor: every rank maps all buffers, so each byte is loaded from an input and stored into
 * an output once. A rank waits until the buffers that it uses are ready (entered). It returns when
 * no rank uses its own buffers any more (left).
 *
 * - Pull: a rank writes its own output only.
 * - Push: a rank writes into the outputs of others.
 *
 * Sums are shared among the ranks if that helps. A share is a contiguous part of whole lines. A
 * block of a share is summed into the own output, and then copied on from the nearest cache. */
#include "floor.h"

enum { LINE = 64 };

const char *floor_mapped_refuse(const struct floor *f, const struct compare_point *p)
{
    if (p->collective >= COMPARE_BARRIER) {
        return "moves nothing";
    }
    if (!p->shared) {
        return "needs shared buffers";
    }
    return f->two && p->collective == COMPARE_REDUCE_SCATTER ? "has nothing to push" : NULL;
}

/* ---- entering and leaving ---- */

static void await_rank(const struct floor *f, const struct compare_flag *flags, int rank)
{
    if (rank != f->rank) {
        floor_await(f, &flags[rank], f->calls);
    }
}

static void await_all(const struct floor *f, const struct compare_flag *flags)
{
    for (int q = 0; q < f->nranks; q++) {
        await_rank(f, flags, q);
    }
}

static void leave(const struct floor *f)
{
    floor_set(f, &f->area->left[f->rank], f->calls);
}

/* ---- shares ---- */

static size_t share_of(const struct floor *f, size_t bytes, int rank, size_t *at)
{
    const size_t n = (size_t)f->nranks;
    const size_t share = ((bytes + n - 1) / n + LINE - 1) / LINE * LINE;
    *at = (size_t)rank * share;
    if (*at >= bytes) {
        return 0;
    }
    return bytes - *at < share ? bytes - *at : share;
}

static void inputs_at(const struct floor *f, size_t at, const void **src)
{
    for (int q = 0; q < f->nranks; q++) {
        src[q] = f->in[q] + at;
    }
}

/* Write [at, at + len) of the sum to out[first .. first + count). If the outputs are streamed, the
 * sum is computed again for each, because the inputs are in the caches by then. */
static void sum_to(const struct floor *f, size_t at, size_t len, int first, int count)
{
    const void *src[COMPARE_RANKS_MAX];
    const int own = f->rank >= first && f->rank < first + count ? f->rank : first;
    for (size_t done = 0; done < len; done += FLOOR_BLOCK) {
        const size_t block = len - done < FLOOR_BLOCK ? len - done : FLOOR_BLOCK;
        inputs_at(f, at + done, src);
        char *out = f->out[own] + at + done;
        f->sum(out, src, f->nranks, block, f->streamed);
        for (int q = first; q < first + count; q++) {
            if (q != own && f->streamed) {
                f->sum(f->out[q] + at + done, src, f->nranks, block, true);
            } else if (q != own) {
                floor_copy(f->out[q] + at + done, out, block);
            }
        }
    }
}

/* ---- the collectives ---- */

static void all_reduce(const struct floor *f, size_t bytes)
{
    size_t at;
    const size_t len = share_of(f, bytes, f->rank, &at);
    await_all(f, f->area->entered);
    if (f->two) {
        sum_to(f, at, len, 0, f->nranks);
    } else {
        sum_to(f, at, len, f->rank, 1);
        floor_set(f, &f->area->reduced[f->rank], f->calls);
        for (int d = 1; d < f->nranks; d++) {
            const int q = (f->rank + d) % f->nranks;
            const size_t its = share_of(f, bytes, q, &at);
            await_rank(f, f->area->reduced, q);
            floor_copy_out(f->out[f->rank] + at, f->out[q] + at, its, f->streamed);
        }
    }
    leave(f);
    await_all(f, f->area->left);
}

static void reduce(const struct floor *f, size_t bytes, int root)
{
    size_t at = 0;
    if (f->two) {
        const size_t len = share_of(f, bytes, f->rank, &at);
        await_all(f, f->area->entered);
        sum_to(f, at, len, root, 1);
        leave(f);
        await_all(f, f->area->left);
    } else if (f->rank == root) {
        await_all(f, f->area->entered);
        sum_to(f, 0, bytes, root, 1);
        leave(f);
    } else {
        await_rank(f, f->area->left, root);
        leave(f);
    }
}

/* With push all ranks copy: each rank copies its share of the root's input to every rank. */
static void broadcast(const struct floor *f, size_t bytes, int root)
{
    size_t at;
    if (f->two) {
        const size_t len = share_of(f, bytes, f->rank, &at);
        await_all(f, f->area->entered);
        for (int q = 0; q < f->nranks; q++) {
            if (q != root) {
                floor_copy_out(f->out[q] + at, f->in[root] + at, len, f->streamed);
            }
        }
        leave(f);
        await_all(f, f->area->left);
    } else if (f->rank == root) {
        leave(f);
        await_all(f, f->area->left);
    } else {
        await_rank(f, f->area->entered, root);
        floor_copy_out(f->out[f->rank], f->in[root], bytes, f->streamed);
        leave(f);
    }
}

static void reduce_scatter(const struct floor *f, size_t bytes)
{
    const void *src[COMPARE_RANKS_MAX];
    await_all(f, f->area->entered);
    inputs_at(f, (size_t)f->rank * bytes, src);
    f->sum(f->out[f->rank], src, f->nranks, bytes, f->streamed);
    leave(f);
    await_all(f, f->area->left);
}

/* Exchange blocks between all pairs. `in_step` and `out_step` are the offsets between the blocks of
 * a buffer; 0: the buffer has a single block. */
static void exchange(const struct floor *f, size_t bytes, size_t in_step, size_t out_step)
{
    const size_t me = (size_t)f->rank;
    if (f->two) {
        await_all(f, f->area->entered);
    }
    for (int d = 0; d < f->nranks; d++) {
        const int q = (f->rank + d) % f->nranks;
        const size_t peer = (size_t)q;
        if (f->two) {
            floor_copy_out(f->out[q] + me * out_step, f->in[f->rank] + peer * in_step, bytes,
                           f->streamed);
        } else {
            await_rank(f, f->area->entered, q);
            floor_copy_out(f->out[f->rank] + peer * out_step, f->in[q] + me * in_step, bytes,
                           f->streamed);
        }
    }
    leave(f);
    await_all(f, f->area->left);
}

static void gather(const struct floor *f, size_t bytes, int root)
{
    const size_t mine = (size_t)f->rank * bytes;
    if (!f->two && f->rank == root) {
        for (int q = 0; q < f->nranks; q++) {
            await_rank(f, f->area->entered, q);
            floor_copy_out(f->out[root] + (size_t)q * bytes, f->in[q], bytes, f->streamed);
        }
        leave(f);
        return;
    }
    if (!f->two) {
        await_rank(f, f->area->left, root);
        leave(f);
        return;
    }
    await_rank(f, f->area->entered, root);
    floor_copy_out(f->out[root] + mine, f->in[f->rank], bytes, f->streamed);
    leave(f);
    if (f->rank == root) {
        await_all(f, f->area->left);
    }
}

static void scatter(const struct floor *f, size_t bytes, int root)
{
    if (f->two && f->rank == root) {
        for (int q = 0; q < f->nranks; q++) {
            await_rank(f, f->area->entered, q);
            floor_copy_out(f->out[q], f->in[root] + (size_t)q * bytes, bytes, f->streamed);
        }
        leave(f);
    } else if (f->two) {
        await_rank(f, f->area->left, root);
        leave(f);
    } else {
        await_rank(f, f->area->entered, root);
        floor_copy_out(f->out[f->rank], f->in[root] + (size_t)f->rank * bytes, bytes, f->streamed);
        leave(f);
        if (f->rank == root) {
            await_all(f, f->area->left);
        }
    }
}

void floor_mapped_call(struct floor *f, const struct compare_point *p)
{
    const size_t bytes = p->count * p->elem_bytes;
    f->calls++;
    floor_set(f, &f->area->entered[f->rank], f->calls);
    switch (p->collective) {
    case COMPARE_ALL_REDUCE:
        all_reduce(f, bytes);
        break;
    case COMPARE_REDUCE:
        reduce(f, bytes, p->root);
        break;
    case COMPARE_BROADCAST:
        broadcast(f, bytes, p->root);
        break;
    case COMPARE_ALL_GATHER:
        exchange(f, bytes, 0, bytes);
        break;
    case COMPARE_REDUCE_SCATTER:
        reduce_scatter(f, bytes);
        break;
    case COMPARE_ALL_TO_ALL:
        exchange(f, bytes, bytes, bytes);
        break;
    case COMPARE_GATHER:
        gather(f, bytes, p->root);
        break;
    default:
        scatter(f, bytes, p->root);
        break;
    }
}
