// SPDX-License-Identifier: Apache-2.0
/* Reduce by leaders: the ranks of a group send their vectors to its leader. The leader sums them
 * and sends the sum to the leader of the group around, up to the root, which leads all its groups.
 * One vector crosses each border. One message a tier.
 *
 *   {0 1} {2 3} | {4 5} {6 7}     6 <- 7   |   0 <- 1   2 <- 3   4 <- 5 6   |   0 <- 2 4
 *
 * Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: Exploiting hierarchy in parallel computer
 * networks to optimize collective operation performance, 2000.
 */
#include "hier.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    struct kolo_hier h;
    kolo_hier_open(shape, &h);
    const struct kolo_hier_tree tree = {&h, h.top, shape->root};
    kolo_scratch_chunks(b, 1); /* OUT is the root's alone */
    if (h.n == 1) {
        kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    kolo_hier_reduce(&tree, b, KOLO_LAST);
}

const struct kolo_algo kolo_algo_reduce_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_hier"},
    .coll = KOLO_COLL_REDUCE,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: Exploiting hierarchy in parallel "
        "computer networks to optimize collective operation performance, 2000",
    .supports = kolo_hier_supports,
    .build = build,
};
