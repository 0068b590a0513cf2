// SPDX-License-Identifier: Apache-2.0
/* Two-tree all-reduce: half of the vector is summed up one binary tree and broadcast down it, the
 * other half along a second tree whose inner nodes are leaves of the first, so that every rank
 * works equally. A lane for each tree. The longest path is 2 floor(log2 n) messages; each half goes
 * in pieces one behind the other, which brings long vectors towards full bandwidth.
 *
 *          4          Nodes are numbered 1..n; one with lowest set bit l has the children i - l/2
 *        /   \        and i + l/2, or if that lies beyond n, the next of i + l/4, i + l/8, ... that
 *       2     6       does not. Odd nodes are leaves. These are the trees of topology/tree.c, which
 *      / \   /        the log shows.
 *     1   3 5         n = 6
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * 2009.
 */
#include "algos.h"

enum { PIECES = 4 }; /* of each half: while one is at the top, the next are climbing */

struct tree {
    const struct kolo_shape *shape;
    int which; /* 0 or 1; also its lane */
    int root;  /* the largest power of two */
    int chunk; /* the one that is on its way */
};

/* The second tree is the first one mirrored (even n) or shifted by one (odd n). */
static int rank_of(const struct tree *t, int node)
{
    const int n = t->shape->nranks;
    const int other = n % 2 == 0 ? n - node : node % n;
    return kolo_rank_at(t->shape, t->which == 0 ? node - 1 : other);
}

/* The higher child of a node, or 0. */
static int high_child(int n, int node, int low_bit)
{
    int step = low_bit / 2;
    while (step > 0 && node + step > n) {
        step /= 2;
    }
    return step > 0 ? node + step : 0;
}

static void up(const struct tree *t, struct kolo_builder *b, int from, int to, bool last)
{
    const bool leaf = from % 2 != 0;
    kolo_transfer(b, rank_of(t, from), leaf ? kolo_in(t->chunk) : kolo_out(t->chunk),
                  rank_of(t, to), kolo_out(t->chunk), last ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
}

static void reduce(const struct tree *t, struct kolo_builder *b)
{
    const int n = t->shape->nranks;
    for (int bit = 2; bit <= t->root; bit *= 2) {
        for (int node = bit; node <= n; node += 2 * bit) {
            const int high = high_child(n, node, bit);
            kolo_local(b, rank_of(t, node), kolo_in(t->chunk), kolo_out(t->chunk), KOLO_MOVE);
            up(t, b, node - bit / 2, node, node == t->root && high == 0);
            if (high != 0) {
                up(t, b, high, node, node == t->root);
            }
        }
        kolo_round(b);
    }
}

static void down(const struct tree *t, struct kolo_builder *b, int from, int to)
{
    const struct kolo_slice out = kolo_out(t->chunk);
    kolo_transfer(b, rank_of(t, from), out, rank_of(t, to), out, KOLO_MOVE);
}

static void broadcast(const struct tree *t, struct kolo_builder *b)
{
    const int n = t->shape->nranks;
    for (int bit = t->root; bit >= 2; bit /= 2) {
        for (int node = bit; node <= n; node += 2 * bit) {
            const int high = high_child(n, node, bit);
            down(t, b, node, node - bit / 2);
            if (high != 0) {
                down(t, b, node, high);
            }
        }
        kolo_round(b);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    kolo_chunks(b, 2 * PIECES);
    if (shape->nranks == 1) {
        kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, 2 * PIECES),
                   kolo_slice_make(KOLO_OUT, 0, 2 * PIECES), KOLO_MOVE);
    }
    for (int which = 0; which < 2; which++) {
        struct tree t = {shape, which, kolo_pow2_floor(shape->nranks), 0};
        kolo_lane(b, which);
        for (int piece = 0; piece < PIECES; piece++) {
            t.chunk = which * PIECES + piece;
            reduce(&t, b);
        }
        for (int piece = 0; piece < PIECES; piece++) {
            t.chunk = which * PIECES + piece;
            broadcast(&t, b);
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
