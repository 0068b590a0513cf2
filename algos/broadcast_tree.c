// SPDX-License-Identifier: Apache-2.0
/* Broadcast along the trees that the planner lays for the machine, hung up at the root: each tree
 * has its part of the vector, so that the links which no ring would use are used, too. Tiles follow
 * one another. See lanes.h.
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * 2009.
 */
#include "lanes.h"

static bool supports(const struct kolo_shape *shape)
{
    return shape->ntrees > 0;
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_lane_tree tree[KOLO_LANES];
    const int trees = shape->ntrees;
    kolo_chunks(b, trees);
    const int depth = kolo_lanes_open(shape, b, tree);
    for (int level = 1; level <= depth; level++) {
        for (int t = 0; t < trees; t++) {
            kolo_lane_descend(&tree[t], b, level, t, KOLO_IN);
        }
        kolo_round(b);
    }
    kolo_local(b, shape->root, kolo_slice_make(KOLO_IN, 0, trees),
               kolo_slice_make(KOLO_OUT, 0, trees), KOLO_MOVE);
    kolo_lanes_close(shape, tree);
}

const struct kolo_algo kolo_algo_broadcast_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_tree"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .supports = supports,
    .build = build,
};
