// SPDX-License-Identifier: Apache-2.0
/* Hierarchies: the groups of a shape as tiers, which the algorithms named _hier climb.
 *
 *   tier 0: every rank alone    tiers 1 to top-1: the shape's groups, nearest first, without the
 *   tier top: all ranks                           levels that divide no group further
 *
 * The name of a group is its smallest rank. Its *children* are the groups of the tier below that
 * lie in it, in the order of their names. Whatever the sizes, a rank has one *match* in each other
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
    int level[KOLO_TIERS]; /* the shape's level of each tier from 1 to top-1 */
    /* By tier and rank: the next rank of its group (n: none), the rank's place in the group, and at
     * the group's name the size of the group. */
    uint16_t next[KOLO_TIERS][KOLO_HIER_RANKS];
    uint16_t place[KOLO_TIERS][KOLO_HIER_RANKS];
    uint16_t size[KOLO_TIERS][KOLO_HIER_RANKS];
};

/* supports() of the hierarchical algorithms. True: the shape has groups. */
bool kolo_hier_supports(const struct kolo_shape *shape);
void kolo_hier_open(const struct kolo_shape *shape, struct kolo_hier *h);
/* Leave out tier 1. The hierarchy must have other tiers. */
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
/* The child after `child` in the same group of `tier`; -1: none. Children are of tier-1. A group's
 * first child has the group's name. */
int kolo_hier_next(const struct kolo_hier *h, int tier, int child);
int kolo_hier_children(const struct kolo_hier *h, int tier, int group);
/* Child k of a group. */
int kolo_hier_child(const struct kolo_hier *h, int tier, int group, int k);
/* The match of `rank` in `child`, a child of the rank's own group of `tier`. In its own child a
 * rank is its own match. The matches of a child's ranks are spread evenly. */
int kolo_hier_match(const struct kolo_hier *h, int tier, int rank, int child);

/* A holder's part in a round over a tier: with one rank in each child of its group it exchanges a
 * block, or a run of chunks. */
struct kolo_hier_turn {
    int group, block, holder;
    int child; /* whose turn it is. First the holder's own child, last the one before */
};
struct kolo_hier_round {
    int count; /* a rank has one part at most */
    struct kolo_hier_turn part[KOLO_HIER_RANKS];
};
typedef void kolo_hier_pass(const void *ctx, struct kolo_builder *b, int tier,
                            const struct kolo_hier_turn *part);
void kolo_hier_add_part(const struct kolo_hier *h, int tier, struct kolo_hier_turn part,
                        struct kolo_hier_round *round);
/* Call `pass` for all parts, and for all children of each. Each holder begins behind its own child:
 * else all groups would send to the first one at the same time. */
void kolo_hier_do_round(const struct kolo_hier *h, struct kolo_builder *b, int tier,
                        struct kolo_hier_round *round, kolo_hier_pass *pass, const void *ctx);
/* Whether it is the last turn of this part. */
bool kolo_hier_ends(const struct kolo_hier *h, int tier, const struct kolo_hier_turn *part);
/* Do all groups of a tier and all blocks, in as many rounds as a rank holds blocks. So no rank sends
 * two messages to the same rank in one round. `pass` gets `h`. */
void kolo_hier_each_block(const struct kolo_hier *h, struct kolo_builder *b, int tier,
                          kolo_hier_pass *pass);

/* Trees of leaders. In each group of tier `top` and below, the leader is `root` if `root` is a
 * member, else the smallest rank (root -1: always). A leader's children are the leaders of its
 * group's children, at each tier that it leads. */
struct kolo_hier_tree {
    const struct kolo_hier *hier;
    int top, root;
};
/* The child of `parent` after `after` (-1: the first), nearest first; -1: none is left. */
int kolo_hier_next_leaf(const struct kolo_hier_tree *t, int parent, int after);

/* Every rank but the leaders of tier top sends its value to its parent. A rank without children
 * sends IN. A rank with children sends the sum of its own value and theirs. The sum lies in SCRATCH
 * chunk 0, at `root` in OUT. A group of tier top with one rank has no sum. `last`: these sums are
 * complete. */
void kolo_hier_reduce(const struct kolo_hier_tree *t, struct kolo_builder *b, unsigned last);
/* The leaders of tier top send `from` to their children. The children send OUT to their own
 * children, and so on. */
void kolo_hier_broadcast(const struct kolo_hier_tree *t, struct kolo_builder *b,
                         struct kolo_slice from);

#endif
