// SPDX-License-Identifier: Apache-2.0
/* Broadcast along the trees that the planner lays for the machine (lanes.h), rooted at the
 * collective's root. Each tree has its part of the vector and a lane. So the trees also use the
 * links that no ring would use. Tiles follow one another.
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
    kolo_chunks(b, shape->ntrees);
    for (int t = 0; t < shape->ntrees; t++) {
        struct kolo_lane_tree tree;
        kolo_lane(b, t);
        if (kolo_lane_open(shape, t, shape->root, b, &tree)) {
            for (int level = 1; level <= tree.depth; level++) {
                kolo_lane_descend(&tree, b, level, t, KOLO_IN);
                kolo_round(b);
            }
            kolo_local(b, shape->root, kolo_in(t), kolo_out(t), KOLO_MOVE);
        }
        kolo_lane_close(&tree);
    }
}

const struct kolo_algo kolo_algo_broadcast_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_tree"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .supports = supports,
    .build = build,
};
