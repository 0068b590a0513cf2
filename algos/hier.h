// SPDX-License-Identifier: Apache-2.0
/* Hierarchies: the groups of a shape as tiers, which the algorithms named _hier climb.
 *
 *   tier 0: every rank alone    tiers 1 to top-1: the shape's groups, nearest first, but those that
 *   tier top: all ranks                           part nobody further are left out
 *
 * A group is named by its smallest rank. Its *children* are the groups of the tier below that lie
 * in it, in the order of their names. Whatever the sizes, a rank has one *match* in each other
 * child of its group.
 */
#ifndef KOLO_ALGOS_HIER_H
#define KOLO_ALGOS_HIER_H

#include "algos.h"

enum {
    KOLO_TIERS = KOLO_LEVELS + 2,
    KOLO_HIER_RANKS = 512 /* the tables of a hierarchy lie on the stack */
};

struct kolo_hier {
    const struct kolo_shape *shape;
    int n, top;
    int level[KOLO_TIERS]; /* of the shape; for tiers 1 to top-1 */
    /* By tier and rank: the next rank of its group (n: none), its place among them, and, for the
     * name of a group, how many they are. */
    uint16_t next[KOLO_TIERS][KOLO_HIER_RANKS];
    uint16_t place[KOLO_TIERS][KOLO_HIER_RANKS];
    uint16_t size[KOLO_TIERS][KOLO_HIER_RANKS];
};

/* supports() of these algorithms: there are groups. */
bool kolo_hier_supports(const struct kolo_shape *shape);
void kolo_hier_open(const struct kolo_shape *shape, struct kolo_hier *h);
/* Leave out tier 1; there are others. */
void kolo_hier_drop_nearest(struct kolo_hier *h);

/* The group of a rank. */
static inline int kolo_hier_group(const struct kolo_hier *h, int tier, int rank)
{
    if (tier == 0) {
        return rank;
    }
    return tier == h->top ? 0 : kolo_group_of(h->shape, h->level[tier], rank);
}
static inline bool kolo_hier_is_group(const struct kolo_hier *h, int tier, int name)
{
    return kolo_hier_group(h, tier, name) == name;
}
/* The next child after `child` (which is of tier-1) of the same group of `tier`; -1: there is none.
 * A group's first child has its name. */
int kolo_hier_next(const struct kolo_hier *h, int tier, int child);
int kolo_hier_children(const struct kolo_hier *h, int tier, int group);
/* Child k of a group. */
int kolo_hier_child(const struct kolo_hier *h, int tier, int group, int k);
/* The match of `rank` in `child`, which is a child of its own group of `tier`; itself in its own
 * child. Matches of the ranks of a child are spread evenly. */
int kolo_hier_match(const struct kolo_hier *h, int tier, int rank, int child);

/* Who holds block b among the ranks of a group: rank b in its own groups; from the top down, in
 * each other group the match of the one that holds it in the group around. */
int kolo_hier_holder(const struct kolo_hier *h, int tier, int group, int block);
/* What a pass of blocks over a tier does with one of them, in one group. */
typedef void kolo_hier_block(const struct kolo_hier *h, struct kolo_builder *b, int tier, int group,
                             int block);
/* For all groups of a tier and all blocks, in as many rounds as a rank holds blocks: so that in a
 * round no rank sends another two messages. */
void kolo_hier_each_block(const struct kolo_hier *h, struct kolo_builder *b, int tier,
                          kolo_hier_block *pass);

/* Trees of leaders: in each group of tier `top` and below, the leader is `root` where it is a
 * member (-1: nowhere), else the smallest rank; a leader's children are the leaders of its group's
 * children, at each tier that it leads. */
struct kolo_hier_tree {
    const struct kolo_hier *hier;
    int top, root;
};
/* Rank `child`'s parent; -1 for the leader of a group of tier top. */
int kolo_hier_parent(const struct kolo_hier_tree *t, int child);
/* Messages between this rank and the leader of its group of tier top. */
int kolo_hier_depth(const struct kolo_hier_tree *t, int rank);
/* The child after `after` (-1: the first) of a parent, the nearest first; -1: none is left. */
int kolo_hier_next_leaf(const struct kolo_hier_tree *t, int parent, int after);

/* Every rank but the leaders of tier top gives its parent what it has: IN, or where it has children
 * the sum of its own and theirs, which lies in SCRATCH chunk 0, at `root` in OUT. A group of tier
 * top of one rank has no sum. `last`: these sums are complete. */
void kolo_hier_reduce(const struct kolo_hier_tree *t, struct kolo_builder *b, unsigned last);
/* The leaders of tier top send `from` to their children, these send OUT to theirs, and so on. */
void kolo_hier_broadcast(const struct kolo_hier_tree *t, struct kolo_builder *b,
                         struct kolo_slice from);

#endif
