// SPDX-License-Identifier: Apache-2.0
/* One-shot all-reduce tier by tier. In a group every rank sends its vector to all and sums all
 * vectors. Then each rank does the same with its matches in the neighbouring groups, whose vectors
 * are the sums of their groups, and so on. One message a tier on the longest path. Of a tier's far
 * links a rank waits for as many as there are neighbouring groups: for short vectors.
 *
 *   {0 1 2} {3 4 5}   0 <-> 1 <-> 2 <-> 0   3 <-> 4 <-> 5 <-> 3   |   0 <-> 3   1 <-> 4   2 <-> 5
 *
 * All ranks of a group hold the same sum, so groups may have any size. A rank without a partner of
 * its own asks a rank that has another partner already.
 *
 * Ruefenacht, Bull, Booth: Generalisation of recursive doubling for AllReduce, 2017 (there: with
 * equal factors).
 */
#include "hier.h"

/* The slice with a rank's sum of its group. A tier that adds nothing leaves the sum where the tier
 * below has it. */
static struct kolo_slice sum_of(const struct kolo_hier *h, int tier, int rank)
{
    int t = tier;
    while (t > 0 && kolo_hier_children(h, t, kolo_hier_group(h, t, rank)) == 1) {
        t--;
    }
    return t > 0 ? kolo_scratch(t - 1) : kolo_in(0);
}

/* Add the sums of the children of this rank's group, in their order. */
static void exchange(const struct kolo_hier *h, struct kolo_builder *b, int tier, int rank)
{
    const int group = kolo_hier_group(h, tier, rank);
    const struct kolo_slice sum = kolo_scratch(tier - 1);
    if (kolo_hier_children(h, tier, group) == 1) {
        return;
    }
    for (int child = group; child >= 0; child = kolo_hier_next(h, tier, child)) {
        const int from = kolo_hier_match(h, tier, rank, child);
        const bool last = tier == h->top && kolo_hier_next(h, tier, child) < 0;
        const unsigned add = last ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
        const unsigned how = child == group ? KOLO_MOVE : add;
        const struct kolo_slice term = sum_of(h, tier - 1, from);
        if (from == rank) {
            kolo_local(b, rank, term, sum, how);
        } else {
            kolo_transfer(b, from, term, rank, sum, how);
        }
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    kolo_scratch_chunks(b, h.top); /* OUT may be IN, which is still to be read */
    for (int t = 1; t <= h.top; t++) {
        for (int r = 0; r < h.n; r++) {
            exchange(&h, b, t, r);
        }
        kolo_round(b);
    }
    for (int r = 0; r < h.n; r++) {
        kolo_local(b, r, sum_of(&h, h.top, r), kolo_out(0), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_allreduce_hier_oneshot = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_hier_oneshot"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Ruefenacht, Bull, Booth: Generalisation of recursive doubling for AllReduce: now "
              "with simulation, 2017",
    .supports = kolo_hier_supports,
    .build = build,
};
