// SPDX-License-Identifier: Apache-2.0
/* Hierarchical all-gather, from far to near. Each rank sends its block to its match in each other
 * large group. A group then spreads the blocks of its ranks among its smaller groups, and so on.
 * A block crosses a border once, and all ranks share this work. In a tier as many messages follow
 * one another as a rank holds blocks. Each rank receives n-1 blocks.
 *
 *   {0 1} {2 3}   0 <-> 2   1 <-> 3   |   0 -> 1: blocks 0 2   1 -> 0: blocks 1 3   ...
 *
 * Träff: Efficient allgather for regular SMP-clusters, 2006 (there: equal groups).
 */
#include "hier.h"

static void spread(const void *ctx, struct kolo_builder *b, int tier,
                   const struct kolo_hier_turn *part)
{
    const int from = part->holder, block = part->block;
    const int to = kolo_hier_match(ctx, tier, from, part->child);
    if (to != from) {
        kolo_transfer(b, from, from == block ? kolo_in(0) : kolo_out(block), to, kolo_out(block),
                      KOLO_MOVE);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    for (int r = 0; r < h.n; r++) {
        kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
    }
    for (int t = h.top; t >= 1; t--) {
        kolo_hier_each_block(&h, b, t, spread);
    }
}

const struct kolo_algo kolo_algo_allgather_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allgather_hier"},
    .coll = KOLO_COLL_ALL_GATHER,
    .source = "Träff: Efficient allgather for regular SMP-clusters, 2006",
    .supports = kolo_hier_supports,
    .build = build,
};
