// SPDX-License-Identifier: Apache-2.0
/* All-reduce along the trees of lanes.h: each lane sums its part of the vector up its tree and
 * broadcasts the sum down. With two complementary trees every rank works equally, and the longest
 * path is 2 floor(log2 n) messages. Each part goes in pieces one behind the other, which brings
 * long vectors towards full bandwidth.
 *
 * Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
 * 2009.
 */
#include "lanes.h"

enum { PIECES = 4 }; /* of each part: while one is at the top, the next are climbing */

static void climb(const struct kolo_lane_tree *tree, struct kolo_builder *b, int chunk)
{
    for (int level = tree->depth; level > 0; level--) {
        kolo_lane_climb(tree, b, level, chunk, KOLO_OUT);
        kolo_round(b);
    }
}

static void descend(const struct kolo_lane_tree *tree, struct kolo_builder *b, int chunk)
{
    for (int level = 1; level <= tree->depth; level++) {
        kolo_lane_descend(tree, b, level, chunk, KOLO_OUT);
        kolo_round(b);
    }
}

static void build_lane(const struct kolo_shape *shape, int lane, struct kolo_builder *b)
{
    struct kolo_lane_tree tree;
    if (kolo_lane_open(shape, lane, -1, b, &tree)) {
        kolo_lane(b, lane);
        for (int i = 0; i < PIECES; i++) {
            climb(&tree, b, lane * PIECES + i);
        }
        for (int i = 0; i < PIECES; i++) {
            descend(&tree, b, lane * PIECES + i);
        }
    }
    kolo_lane_close(&tree);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int lanes = kolo_lane_trees(shape), chunks = lanes * PIECES;
    kolo_chunks(b, chunks);
    if (shape->nranks == 1) {
        kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, chunks), kolo_slice_make(KOLO_OUT, 0, chunks),
                   KOLO_MOVE);
    }
    for (int lane = 0; lane < lanes; lane++) {
        build_lane(shape, lane, b);
    }
}

const struct kolo_algo kolo_algo_allreduce_tree = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_tree"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction "
              "and scan, 2009, doi:10.1016/j.parco.2009.09.001",
    .build = build,
};
