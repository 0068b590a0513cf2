// SPDX-License-Identifier: Apache-2.0
/* The trees of lanes.h, and the rounds in which sums climb them and data comes down. This file is a
 * helper and no algorithm. */
#include "lanes.h"

#include <stdlib.h>

/* The parent of number i in the tree of 1..n; 0: i is the root. */
static int number_above(int n, int i)
{
    const int bit = i & -i;
    const int up = (i ^ bit) | 2 * bit;
    return up <= n ? up : i ^ bit;
}

/* The rank of a number. Apart from the shift, the map is its own inverse. */
static int rank_of(const struct kolo_shape *shape, int which, int number)
{
    const int n = shape->nranks;
    const int other = n % 2 == 0 ? n - number : number % n;
    return kolo_rank_at(shape, which == 0 ? number - 1 : other);
}

static void fill(const struct kolo_shape *shape, int which, int *up)
{
    const int n = shape->nranks;
    for (int i = 1; i <= n && shape->ntrees == 0; i++) {
        const int above = number_above(n, i);
        up[rank_of(shape, which, i)] = above > 0 ? rank_of(shape, which, above) : -1;
    }
    for (int r = 0; r < n && shape->ntrees > 0; r++) {
        up[r] = shape->tree[which * n + r];
    }
}

/* Make `root` the root: reverse the edges from it to the old root. */
static void hang_up(int *up, int root)
{
    int below = -1;
    for (int at = root; at >= 0;) {
        const int above = up[at];
        up[at] = below;
        below = at;
        at = above;
    }
}

static void measure(struct kolo_lane_tree *tree)
{
    for (int r = 0; r < tree->n; r++) {
        int level = 0;
        for (int at = r; tree->up[at] >= 0; at = tree->up[at]) {
            level++;
        }
        tree->level[r] = level;
        tree->root = level == 0 ? r : tree->root;
        tree->depth = level > tree->depth ? level : tree->depth;
        tree->first[r] = tree->last[r] = -1;
    }
    for (int r = 0; r < tree->n; r++) {
        const int up = tree->up[r];
        if (up >= 0) {
            tree->first[up] = tree->first[up] < 0 ? r : tree->first[up];
            tree->last[up] = r;
        }
    }
}

bool kolo_lane_open(const struct kolo_shape *shape, int which, int root, struct kolo_builder *b,
                    struct kolo_lane_tree *out)
{
    const size_t n = (size_t)shape->nranks;
    *out = (struct kolo_lane_tree){.n = shape->nranks, .up = malloc(4 * n * sizeof *out->up)};
    if (out->up == NULL) {
        kolo_refuse(b, "out of memory for a tree");
        return false;
    }
    out->level = out->up + n;
    out->first = out->level + n;
    out->last = out->first + n;
    fill(shape, which, out->up);
    if (root >= 0) {
        hang_up(out->up, root);
    }
    measure(out);
    return true;
}

void kolo_lane_close(struct kolo_lane_tree *tree)
{
    free(tree->up);
}

void kolo_lane_climb(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                     int chunk, enum kolo_buf inner)
{
    for (int r = 0; r < tree->n; r++) {
        const int up = tree->level[r] == level ? tree->up[r] : -1;
        if (up < 0) {
            continue;
        }
        const struct kolo_slice term =
            kolo_slice_make(tree->first[r] < 0 ? KOLO_IN : inner, chunk, 1);
        const struct kolo_slice sum =
            kolo_slice_make(up == tree->root ? KOLO_OUT : inner, chunk, 1);
        const bool last = up == tree->root && tree->last[up] == r;
        if (tree->first[up] == r) {
            kolo_local(b, up, kolo_in(chunk), sum, KOLO_MOVE);
        }
        kolo_transfer(b, r, term, up, sum, last ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
    }
}

void kolo_lane_descend(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                       int chunk, enum kolo_buf from)
{
    for (int r = 0; r < tree->n; r++) {
        const int up = tree->level[r] == level ? tree->up[r] : -1;
        if (up >= 0) {
            const struct kolo_slice src =
                kolo_slice_make(up == tree->root ? from : KOLO_OUT, chunk, 1);
            kolo_transfer(b, up, src, r, kolo_out(chunk), KOLO_MOVE);
        }
    }
}
