// SPDX-License-Identifier: Apache-2.0
/* The arithmetic of tiers, and the trees of leaders over them. This file is a helper and no
 * algorithm. */
#include "hier.h"

bool kolo_hier_supports(const struct kolo_shape *shape)
{
    return shape->nlevels > 0 && shape->nranks <= KOLO_HIER_RANKS;
}

/* Whether level l joins ranks that tier `below` divides, and itself divides ranks at all. */
static bool says_something(const struct kolo_hier *h, int l, int below)
{
    bool joins = false;
    bool parts = false;
    for (int r = 0; r < h->n; r++) {
        const int group = kolo_group_of(h->shape, l, r);
        joins = joins || group != kolo_hier_group(h, below, r);
        parts = parts || group != 0;
    }
    return joins && parts;
}

static void fill_tier(struct kolo_hier *h, int tier)
{
    uint16_t newest[KOLO_HIER_RANKS]; /* the newest member of each group, by name */
    for (int r = 0; r < h->n; r++) {
        const int group = kolo_hier_group(h, tier, r);
        h->next[tier][r] = (uint16_t)h->n;
        if (group == r) {
            h->size[tier][r] = 0;
        } else {
            h->next[tier][newest[group]] = (uint16_t)r;
        }
        h->place[tier][r] = h->size[tier][group]++;
        newest[group] = (uint16_t)r;
    }
}

void kolo_hier_open(const struct kolo_shape *shape, struct kolo_hier *h)
{
    h->shape = shape;
    h->n = shape->nranks;
    h->top = KOLO_TIERS; /* not known yet */
    int tier = 1;
    for (int l = 0; l < shape->nlevels; l++) {
        if (says_something(h, l, tier - 1)) {
            h->level[tier++] = l;
        }
    }
    h->top = tier;
    for (int t = 0; t <= h->top; t++) {
        fill_tier(h, t);
    }
}

void kolo_hier_drop_nearest(struct kolo_hier *h)
{
    h->top--;
    for (int t = 1; t <= h->top; t++) {
        h->level[t] = h->level[t + 1];
        fill_tier(h, t);
    }
}

int kolo_hier_next(const struct kolo_hier *h, int tier, int child)
{
    int r = h->next[tier][child];
    while (r < h->n && !kolo_hier_is_group(h, tier - 1, r)) {
        r = h->next[tier][r];
    }
    return r < h->n ? r : -1;
}

int kolo_hier_children(const struct kolo_hier *h, int tier, int group)
{
    int count = 0;
    for (int child = group; child >= 0; child = kolo_hier_next(h, tier, child)) {
        count++;
    }
    return count;
}

int kolo_hier_child(const struct kolo_hier *h, int tier, int group, int k)
{
    int child = group;
    for (; k > 0; k--) {
        child = kolo_hier_next(h, tier, child);
    }
    return child;
}

int kolo_hier_match(const struct kolo_hier *h, int tier, int rank, int child)
{
    int match = child;
    if (kolo_hier_group(h, tier - 1, rank) == child) {
        return rank;
    }
    for (int k = h->place[tier - 1][rank] % h->size[tier - 1][child]; k > 0; k--) {
        match = h->next[tier - 1][match];
    }
    return match;
}

/* The rank of a group that holds block `block`. In the groups of rank `block` it is that rank
 * itself. In any other group it is the match of the holder in the group around, from the top
 * down. */
static int holder_of(const struct kolo_hier *h, int tier, int group, int block)
{
    int holder = block;
    for (int t = h->top - 1; t >= tier; t--) {
        holder = kolo_hier_match(h, t + 1, holder, kolo_hier_group(h, t, group));
    }
    return holder;
}

/* ---- rounds ---- */

/* The child behind `child`; behind the last one comes the first. */
static int child_after(const struct kolo_hier *h, int tier, int child)
{
    const int next = kolo_hier_next(h, tier, child);
    return next >= 0 ? next : kolo_hier_group(h, tier, child);
}

void kolo_hier_add_part(const struct kolo_hier *h, int tier, struct kolo_hier_turn part,
                        struct kolo_hier_round *round)
{
    part.child = kolo_hier_group(h, tier - 1, part.holder);
    round->part[round->count++] = part;
}

bool kolo_hier_ends(const struct kolo_hier *h, int tier, const struct kolo_hier_turn *part)
{
    return child_after(h, tier, part->child) == kolo_hier_group(h, tier - 1, part->holder);
}

void kolo_hier_do_round(const struct kolo_hier *h, struct kolo_builder *b, int tier,
                        struct kolo_hier_round *round, kolo_hier_pass *pass, const void *ctx)
{
    while (round->count > 0) {
        int left = 0;
        for (int i = 0; i < round->count; i++) {
            struct kolo_hier_turn *part = &round->part[i];
            pass(ctx, b, tier, part);
            if (!kolo_hier_ends(h, tier, part)) {
                part->child = child_after(h, tier, part->child);
                round->part[left++] = *part;
            }
        }
        round->count = left;
    }
    kolo_round(b);
}

/* Find each rank's block number `turn`. False: no rank has that many blocks. */
static bool find_turn(const struct kolo_hier *h, int tier, int turn, struct kolo_hier_round *round)
{
    uint16_t seen[KOLO_HIER_RANKS] = {0}; /* blocks that a rank holds */
    round->count = 0;
    for (int i = 0; i < h->n * h->n; i++) {
        struct kolo_hier_turn part = {.group = i / h->n, .block = i % h->n};
        if (!kolo_hier_is_group(h, tier, part.group)) {
            continue;
        }
        part.holder = holder_of(h, tier, part.group, part.block);
        if (seen[part.holder]++ == turn) {
            kolo_hier_add_part(h, tier, part, round);
        }
    }
    return round->count > 0;
}

void kolo_hier_each_block(const struct kolo_hier *h, struct kolo_builder *b, int tier,
                          kolo_hier_pass *pass)
{
    struct kolo_hier_round round;
    for (int turn = 0; find_turn(h, tier, turn, &round); turn++) {
        kolo_hier_do_round(h, b, tier, &round, pass, h);
    }
}

/* ---- trees of leaders ---- */

static int leader(const struct kolo_hier_tree *t, int tier, int rank)
{
    const int group = kolo_hier_group(t->hier, tier, rank);
    const bool has_root = t->root >= 0 && kolo_hier_group(t->hier, tier, t->root) == group;
    return has_root ? t->root : group;
}

/* The highest tier whose group this rank leads. */
static int led_by(const struct kolo_hier_tree *t, int rank)
{
    int tier = 0;
    while (tier < t->top && leader(t, tier + 1, rank) == rank) {
        tier++;
    }
    return tier;
}

/* Rank `child`'s parent; -1 for the leader of a group of tier top. */
static int parent_of(const struct kolo_hier_tree *t, int child)
{
    const int tier = led_by(t, child);
    return tier < t->top ? leader(t, tier + 1, child) : -1;
}

/* The number of messages between this rank and the leader of its group of tier top. */
static int depth_of(const struct kolo_hier_tree *t, int rank)
{
    int depth = 0;
    for (int r = parent_of(t, rank); r >= 0; r = parent_of(t, r)) {
        depth++;
    }
    return depth;
}

int kolo_hier_next_leaf(const struct kolo_hier_tree *t, int parent, int after)
{
    int tier = after >= 0 ? led_by(t, after) : 0;
    int r = after + 1;
    for (; tier < t->top; tier++) {
        for (; r < t->hier->n; r++) {
            if (r != parent && led_by(t, r) == tier && parent_of(t, r) == parent) {
                return r;
            }
        }
        r = 0;
    }
    return -1;
}

/* The depth of the deepest rank. */
static int deepest(const struct kolo_hier_tree *t)
{
    int most = 0;
    for (int r = 0; r < t->hier->n; r++) {
        const int depth = depth_of(t, r);
        most = depth > most ? depth : most;
    }
    return most;
}

/* One rank adds the values of its children to its own. */
static void gather_sum(const struct kolo_hier_tree *t, struct kolo_builder *b, int rank,
                       unsigned last)
{
    const struct kolo_slice sum = rank == t->root ? kolo_out(0) : kolo_scratch(0);
    int child = kolo_hier_next_leaf(t, rank, -1);
    if (child >= 0) {
        kolo_local(b, rank, kolo_in(0), sum, KOLO_MOVE);
    }
    while (child >= 0) {
        const bool leaf = kolo_hier_next_leaf(t, child, -1) < 0;
        const int next = kolo_hier_next_leaf(t, rank, child);
        const bool complete = next < 0 && parent_of(t, rank) < 0;
        kolo_transfer(b, child, leaf ? kolo_in(0) : kolo_scratch(0), rank, sum,
                      complete ? KOLO_ADD | last : KOLO_ADD);
        child = next;
    }
}

void kolo_hier_reduce(const struct kolo_hier_tree *t, struct kolo_builder *b, unsigned last)
{
    for (int depth = deepest(t) - 1; depth >= 0; depth--) {
        for (int r = 0; r < t->hier->n; r++) {
            if (depth_of(t, r) == depth) {
                gather_sum(t, b, r, last);
            }
        }
        kolo_round(b);
    }
}

void kolo_hier_broadcast(const struct kolo_hier_tree *t, struct kolo_builder *b,
                         struct kolo_slice from)
{
    for (int depth = 0; depth < deepest(t); depth++) {
        for (int r = 0; r < t->hier->n; r++) {
            if (depth_of(t, r) != depth) {
                continue;
            }
            for (int child = kolo_hier_next_leaf(t, r, -1); child >= 0;
                 child = kolo_hier_next_leaf(t, r, child)) {
                kolo_transfer(b, r, depth == 0 ? from : kolo_out(0), child, kolo_out(0), KOLO_MOVE);
            }
        }
        kolo_round(b);
    }
}
