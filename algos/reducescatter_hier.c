// SPDX-License-Identifier: Apache-2.0
/* Hierarchical reduce-scatter, from near to far: allgather_hier backwards. In each small group one
 * rank sums the group's parts of a block, and another rank sums another block. The groups around
 * add these sums, up to the rank that owns the block. A sum crosses a border once. In a tier as
 * many messages follow one another as a rank sums blocks. Each rank sends n-1 blocks.
 *
 *   {0 1} {2 3}   0 <- 1: blocks 0 2   1 <- 0: blocks 1 3   ...   |   0 <-> 2   1 <-> 3
 *
 * Träff: Efficient allgather for regular SMP-clusters, 2006 (there: the all-gather).
 */
#include "hier.h"

/* The holder in a group adds the sums of the holders in its children. SCRATCH chunk b is for block
 * b. */
static void sum_up(const void *ctx, struct kolo_builder *b, int tier,
                   const struct kolo_hier_turn *part)
{
    const struct kolo_hier *h = ctx;
    const int to = part->holder, from = kolo_hier_match(h, tier, to, part->child);
    const struct kolo_slice sum = kolo_scratch(part->block), in = kolo_in(part->block);
    if (from != to) {
        const bool last = tier == h->top && kolo_hier_ends(h, tier, part);
        kolo_transfer(b, from, tier == 1 ? in : sum, to, sum, KOLO_ADD | (last ? KOLO_LAST : 0u));
    } else if (tier == 1) {
        kolo_local(b, to, in, sum, KOLO_MOVE);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    kolo_scratch_chunks(b, h.n); /* OUT may be a block of IN, which is still to be read */
    for (int t = 1; t <= h.top; t++) {
        kolo_hier_each_block(&h, b, t, sum_up);
    }
    for (int r = 0; r < h.n; r++) {
        kolo_local(b, r, kolo_scratch(r), kolo_out(0), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_reducescatter_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reducescatter_hier"},
    .coll = KOLO_COLL_REDUCE_SCATTER,
    .source = "Träff: Efficient allgather for regular SMP-clusters, 2006",
    .supports = kolo_hier_supports,
    .build = build,
};
