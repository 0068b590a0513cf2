// SPDX-License-Identifier: Apache-2.0
/* Hierarchical all-reduce with many leaders: a reduce-scatter inside each group, an all-reduce of
 * each part among the ranks that own it in their groups, an all-gather inside. So all ranks work. A
 * byte crosses a package's border once in each direction, and not once for each rank beyond it.
 * Each tier does the middle step the same way. So all sums climb first, then all results come down:
 * 2 messages a tier on the longest path. Each rank sends 2(n-1)/n of the vector.
 *
 *   {0 1} {2 3}    chunks 0 1 2 3 end at ranks 0 2 1 3
 *   up    0 <- 1: chunks 0 1   1 <- 0: chunks 2 3 |  0 <- 2: chunk 0   2 <- 0: chunk 1 ...
 *   down  0 -> 2: chunk 0   2 -> 0: chunk 1   ... |  0 -> 1: chunks 0 1   1 -> 0: chunks 2 3
 *
 * Chunk c is a number whose digits, one a tier, say which child owns it there. A group with fewer
 * children than the widest of its tier shares these digits out evenly.
 *
 * Bayatpour, Chakraborty, Subramoni, Lu, Panda: Scalable reduction collectives with data
 * partitioning-based multi-leader design, 2017.
 */
#include "hier.h"

struct cut {
    struct kolo_hier hier;
    int chunks;
    int width[KOLO_TIERS];  /* most children of a group of a tier: the digit's base */
    int stride[KOLO_TIERS]; /* chunks that differ in digits of higher tiers alone */
};

static void measure(struct cut *cut)
{
    const struct kolo_hier *h = &cut->hier;
    cut->chunks = 1;
    for (int t = h->top; t >= 1; t--) {
        int width = 1;
        for (int g = 0; g < h->n; g++) {
            const int children = kolo_hier_is_group(h, t, g) ? kolo_hier_children(h, t, g) : 0;
            width = children > width ? children : width;
        }
        cut->width[t] = width;
        cut->stride[t] = cut->chunks;
        cut->chunks *= width;
    }
}

/* Very uneven groups would need far more chunks than there are ranks. The nearest tiers are then
 * left out. */
static void open_cut(const struct kolo_shape *shape, struct cut *out)
{
    kolo_hier_open(shape, &out->hier);
    measure(out);
    while (out->chunks > 4 * shape->nranks && out->hier.top > 1) {
        kolo_hier_drop_nearest(&out->hier);
        measure(out);
    }
}

static int owner(const struct cut *cut, int tier, int group, int chunk)
{
    for (int t = tier; t >= 1; t--) {
        const int digit = chunk / cut->stride[t] % cut->width[t];
        const int children = kolo_hier_children(&cut->hier, t, group);
        group = kolo_hier_child(&cut->hier, t, group, digit * children / cut->width[t]);
    }
    return group;
}

/* The owners of a run of chunks in a group's children send their sums to its owner in the group. */
static void climb(const void *ctx, struct kolo_builder *b, int tier,
                  const struct kolo_hier_turn *part)
{
    const struct cut *cut = ctx;
    const int to = part->holder, from = owner(cut, tier - 1, part->child, part->block);
    const struct kolo_slice in = kolo_slice_make(KOLO_IN, part->block, cut->stride[tier]);
    const struct kolo_slice out = kolo_slice_make(KOLO_OUT, part->block, cut->stride[tier]);
    if (from != to) {
        const bool last = tier == cut->hier.top && kolo_hier_ends(&cut->hier, tier, part);
        kolo_transfer(b, from, tier == 1 ? in : out, to, out, KOLO_ADD | (last ? KOLO_LAST : 0u));
    } else if (tier == 1) {
        kolo_local(b, to, in, out, KOLO_MOVE);
    }
}

/* The owner in the group sends them the results. */
static void descend(const void *ctx, struct kolo_builder *b, int tier,
                    const struct kolo_hier_turn *part)
{
    const struct cut *cut = ctx;
    const int from = part->holder, to = owner(cut, tier - 1, part->child, part->block);
    const struct kolo_slice out = kolo_slice_make(KOLO_OUT, part->block, cut->stride[tier]);
    if (from != to) {
        kolo_transfer(b, from, out, to, out, KOLO_MOVE);
    }
}

/* Find each owner's run number `turn`, so that no rank sends two messages to the same rank in one
 * round. False: no owner has that many runs. If all groups of a tier are alike, each owner has one.
 */
static bool find_turn(const struct cut *cut, int tier, int turn, struct kolo_hier_round *round)
{
    uint16_t seen[KOLO_HIER_RANKS] = {0}; /* runs that a rank owns */
    round->count = 0;
    for (int group = 0; group < cut->hier.n; group++) {
        const bool is_group = kolo_hier_is_group(&cut->hier, tier, group);
        for (int chunk = 0; is_group && chunk < cut->chunks; chunk += cut->stride[tier]) {
            const int holder = owner(cut, tier, group, chunk);
            if (seen[holder]++ == turn) {
                const struct kolo_hier_turn part = {group, chunk, holder, 0};
                kolo_hier_add_part(&cut->hier, tier, part, round);
            }
        }
    }
    return round->count > 0;
}

static void each_run(const struct cut *cut, struct kolo_builder *b, int tier, kolo_hier_pass *pass)
{
    struct kolo_hier_round round;
    for (int turn = 0; find_turn(cut, tier, turn, &round); turn++) {
        kolo_hier_do_round(&cut->hier, b, tier, &round, pass, cut);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct cut cut;
    open_cut(shape, &cut);
    kolo_chunks(b, cut.chunks);
    for (int t = 1; t <= cut.hier.top; t++) {
        each_run(&cut, b, t, climb);
    }
    for (int t = cut.hier.top; t >= 1; t--) {
        each_run(&cut, b, t, descend);
    }
}

const struct kolo_algo kolo_algo_allreduce_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_hier"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Bayatpour, Chakraborty, Subramoni, Lu, Panda: Scalable reduction collectives with "
              "data partitioning-based multi-leader design, 2017, doi:10.1145/3126908.3126954",
    .supports = kolo_hier_supports,
    .build = build,
};
