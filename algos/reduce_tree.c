// SPDX-License-Identifier: Apache-2.0
/* Reduce along the trees that the planner lays for the machine (lanes.h), rooted at the
 * collective's root. Each tree has its part of the vector and a lane. Tiles follow one another.
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
    kolo_scratch_chunks(b, shape->ntrees); /* OUT is the root's alone */
    for (int t = 0; t < shape->ntrees; t++) {
        struct kolo_lane_tree tree;
        kolo_lane(b, t);
        if (shape->nranks == 1) {
            kolo_local(b, shape->root, kolo_in(t), kolo_out(t), KOLO_MOVE);
        }
        if (kolo_lane_open(shape, t, shape->root, b, &tree)) {
            for (int level = tree.depth; level > 0; level--) {
                kolo_lane_climb(&tree, b, level, t, KOLO_SCRATCH);
                kolo_round(b);
            }
        }
        kolo_lane_close(&tree);
    }
}

const struct kolo_algo kolo_algo_reduce_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_tree"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .supports = supports,
    .build = build,
};
