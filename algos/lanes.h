// SPDX-License-Identifier: Apache-2.0
/* Trees for the algorithms named _tree: the trees that the planner lays for the machine, else the
 * two trees of Sanders, Speck and Träff over the ring's places. An inner node of one of these two
 * is a leaf of the other.
 *
 *          4        Places are numbered 1..n. One with lowest set bit l hangs from the nearest
 *        /   \      with lowest bit 2 l, or if that lies beyond n, with 4 l, 8 l ... Odd ones
 *       2     6     are leaves. The second tree is the first one mirrored (even n) or shifted
 *      / \   /      by one (odd n). These are the trees of topology/layout/tree.c.
 *     1   3 5       n = 6
 */
#ifndef KOLO_ALGOS_LANES_H
#define KOLO_ALGOS_LANES_H

#include "algos.h"

struct kolo_lane_tree {
    int n, root;
    int depth;         /* level of the rank that is farthest from the root */
    int *up;           /* [n] parents; -1 at the root */
    int *level;        /* [n] distances from the root */
    int *first, *last; /* [n] children; -1: none */
};

/* The number of trees of a shape. */
static inline int kolo_lane_trees(const struct kolo_shape *shape)
{
    return shape->ntrees > 0 ? shape->ntrees : 2;
}
/* Make tree `which` of a shape, with `root` as its root (-1: the tree's own root). False: no
 * memory, and the builder has the error. Call kolo_lane_close() in either case. */
bool kolo_lane_open(const struct kolo_shape *shape, int which, int root, struct kolo_builder *b,
                    struct kolo_lane_tree *out);
void kolo_lane_close(struct kolo_lane_tree *tree);

/* The ranks of a level (1 to depth) send their sums of chunk `chunk` to their parents. The root
 * gets the sum of all IN into its OUT. Other ranks keep their partial sums in the same chunk of
 * `inner` (OUT or SCRATCH). Call it for the deepest level first, a round each. */
void kolo_lane_climb(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                     int chunk, enum kolo_buf inner);
/* The ranks of a level receive chunk `chunk` from their parents into OUT. The root sends it from
 * `from` (IN or OUT). Call it for level 1 first, a round each. */
void kolo_lane_descend(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                       int chunk, enum kolo_buf from);

#endif
