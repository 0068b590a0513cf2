// SPDX-License-Identifier: Apache-2.0
/* Reduce along the trees that the planner lays for the machine, hung up at the root: each tree has
 * its part of the vector. Tiles follow one another. See lanes.h.
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
    kolo_scratch_chunks(b, trees); /* OUT is the root's alone */
    if (shape->nranks == 1) {
        kolo_local(b, shape->root, kolo_slice_make(KOLO_IN, 0, trees),
                   kolo_slice_make(KOLO_OUT, 0, trees), KOLO_MOVE);
    }
    for (int level = kolo_lanes_open(shape, b, tree); level > 0; level--) {
        for (int t = 0; t < trees; t++) {
            kolo_lane_climb(&tree[t], b, level, t, KOLO_SCRATCH);
        }
        kolo_round(b);
    }
    kolo_lanes_close(shape, tree);
}

const struct kolo_algo kolo_algo_reduce_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_tree"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .supports = supports,
    .build = build,
};
