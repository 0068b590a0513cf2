// SPDX-License-Identifier: Apache-2.0
/* Two-tree all-reduce: half of the vector is summed up one binary tree and broadcast down it, the
 * other half along a second tree whose inner nodes are leaves of the first, so that every rank
 * works equally. A lane for each tree. The longest path is 2 ceil(log2 n) messages; each half goes
 * in pieces one behind the other, which brings long vectors towards full bandwidth.
 *
 *   0              Node v > 0 with lowest set bit l has the children v - l/2 and v + l/2; if there
 *   `---- 4        is no node v + l/2, then v + l/4 and so on. The largest power of two hangs under
 *       /   \      the root 0. Odd nodes are leaves.
 *      2     6
 *     / \   /      n = 7
 *    1   3 5
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * 2009.
 */
#include "algos.h"

enum { PIECES = 4 }; /* of each half: while one is at the top, the next are climbing */

struct tree {
    const struct kolo_shape *shape;
    int which; /* 0 or 1; also its lane */
    int chunk; /* the one that is on its way */
};

/* The second tree is the first one mirrored (even n) or shifted by one (odd n). */
static int rank_of(const struct tree *t, int v)
{
    const int n = t->shape->nranks;
    const int other = n % 2 == 0 ? n - 1 - v : (v + 1) % n;
    return kolo_rank_at(t->shape, t->which == 0 ? v : other);
}

/* The higher child of node v, or -1. */
static int high_child(int n, int v, int low_bit)
{
    int step = low_bit / 2;
    while (step > 0 && v + step >= n) {
        step /= 2;
    }
    return step > 0 ? v + step : -1;
}

static void up(const struct tree *t, struct kolo_builder *b, int from, int to, unsigned how)
{
    const struct kolo_slice in = kolo_in(t->chunk);
    const struct kolo_slice out = kolo_out(t->chunk);
    kolo_transfer(b, rank_of(t, from), from % 2 != 0 ? in : out, rank_of(t, to), out, how);
}

static void reduce(const struct tree *t, struct kolo_builder *b, int top)
{
    const int n = t->shape->nranks;
    for (int bit = 2; bit <= top; bit *= 2) {
        for (int v = bit; v < n; v += 2 * bit) {
            const int high = high_child(n, v, bit);
            kolo_local(b, rank_of(t, v), kolo_in(t->chunk), kolo_out(t->chunk), KOLO_MOVE);
            up(t, b, v - bit / 2, v, KOLO_ADD);
            if (high >= 0) {
                up(t, b, high, v, KOLO_ADD);
            }
        }
        kolo_round(b);
    }
    kolo_local(b, rank_of(t, 0), kolo_in(t->chunk), kolo_out(t->chunk), KOLO_MOVE);
    if (top > 0) {
        up(t, b, top, 0, KOLO_ADD | KOLO_LAST);
    }
    kolo_round(b);
}

static void down(const struct tree *t, struct kolo_builder *b, int from, int to)
{
    const struct kolo_slice out = kolo_out(t->chunk);
    kolo_transfer(b, rank_of(t, from), out, rank_of(t, to), out, KOLO_MOVE);
}

static void broadcast(const struct tree *t, struct kolo_builder *b, int top)
{
    const int n = t->shape->nranks;
    if (top > 0) {
        down(t, b, 0, top);
        kolo_round(b);
    }
    for (int bit = top; bit >= 2; bit /= 2) {
        for (int v = bit; v < n; v += 2 * bit) {
            const int high = high_child(n, v, bit);
            down(t, b, v, v - bit / 2);
            if (high >= 0) {
                down(t, b, v, high);
            }
        }
        kolo_round(b);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int top = n > 1 ? kolo_pow2_floor(n - 1) : 0; /* the root's only child */
    kolo_chunks(b, 2 * PIECES);
    for (int which = 0; which < 2; which++) {
        kolo_lane(b, which);
        for (int piece = 0; piece < PIECES; piece++) {
            reduce(&(struct tree){shape, which, which * PIECES + piece}, b, top);
        }
        for (int piece = 0; piece < PIECES; piece++) {
            broadcast(&(struct tree){shape, which, which * PIECES + piece}, b, top);
        }
    }
}

const struct kolo_algo kolo_algo_allreduce_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_tree"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .build = build,
};
