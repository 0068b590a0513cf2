// SPDX-License-Identifier: Apache-2.0
/* All-reduce by leaders. The ranks of a group send their vectors to its leader, and leaders send
 * their sums to the leader of the group around. The leaders of the largest groups exchange their
 * sums. Then the result goes back down. Only one rank of each group has far links, and a vector
 * crosses each border once: for machines whose far links are scarce. One message a tier up, one
 * across, one a tier down.
 *
 *   {0 1 2} {3 4 5}   0 <- 1 2   3 <- 4 5   |   0 <-> 3   |   0 -> 1 2   3 -> 4 5
 *
 * Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: Exploiting hierarchy in parallel computer
 * networks to optimize collective operation performance, 2000.
 */
#include "hier.h"

/* Each leader adds the sums of all leaders, in their order. */
static void exchange(const struct kolo_hier_tree *t, struct kolo_builder *b, int leader)
{
    const struct kolo_hier *h = t->hier;
    for (int from = 0; from >= 0; from = kolo_hier_next(h, h->top, from)) {
        const bool alone = kolo_hier_next_leaf(t, from, -1) < 0;
        const struct kolo_slice term = alone ? kolo_in(0) : kolo_scratch(0);
        const bool last = kolo_hier_next(h, h->top, from) < 0;
        const unsigned how = from == 0 ? KOLO_MOVE : last ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
        if (from == leader) {
            kolo_local(b, leader, term, kolo_scratch(1), how);
        } else {
            kolo_transfer(b, from, term, leader, kolo_scratch(1), how);
        }
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    const struct kolo_hier_tree groups = {&h, h.top - 1, -1};
    kolo_scratch_chunks(b, 2); /* OUT may be IN, which is still to be read */
    kolo_hier_reduce(&groups, b, 0);
    for (int leader = 0; leader >= 0; leader = kolo_hier_next(&h, h.top, leader)) {
        exchange(&groups, b, leader);
        kolo_local(b, leader, kolo_scratch(1), kolo_out(0), KOLO_MOVE);
    }
    kolo_round(b);
    kolo_hier_broadcast(&groups, b, kolo_out(0));
}

const struct kolo_algo kolo_algo_allreduce_hier_leader = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_hier_leader"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: Exploiting hierarchy in parallel "
        "computer networks to optimize collective operation performance, 2000",
    .supports = kolo_hier_supports,
    .build = build,
};
