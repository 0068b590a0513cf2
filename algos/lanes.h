// SPDX-License-Identifier: Apache-2.0
/* Trees for the algorithms named _tree: those that the planner lays for the machine, else the two
 * of Sanders, Speck and Träff over the ring's places, whose inner nodes are leaves of the other.
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
    int depth;         /* of the rank that is farthest from the root */
    int *up;           /* [n] parents; -1 the root's */
    int *level;        /* [n] distance from the root */
    int *first, *last; /* [n] children; -1 none */
};

/* How many trees there are. */
static inline int kolo_lane_trees(const struct kolo_shape *shape)
{
    return shape->ntrees > 0 ? shape->ntrees : 2;
}
/* Tree `which` of a shape; hung up at `root`, or (-1) where it is meant to hang. False: no memory,
 * and the builder says so. kolo_lane_close() in either case. */
bool kolo_lane_open(const struct kolo_shape *shape, int which, int root, struct kolo_builder *b,
                    struct kolo_lane_tree *out);
void kolo_lane_close(struct kolo_lane_tree *tree);

/* What the ranks of a level (1 to depth) send up of chunk `chunk`: IN summed at the root into its
 * OUT; what is on its way lies in the same chunk of `inner` (OUT or SCRATCH). The deepest level
 * first, a round each. */
void kolo_lane_climb(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                     int chunk, enum kolo_buf inner);
/* What the ranks of a level get from above of chunk `chunk`: the root's `from` (IN or OUT), into
 * OUT. Level 1 first, a round each. */
void kolo_lane_descend(const struct kolo_lane_tree *tree, struct kolo_builder *b, int level,
                       int chunk, enum kolo_buf from);

#endif
