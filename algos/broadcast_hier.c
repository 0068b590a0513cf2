// SPDX-License-Identifier: Apache-2.0
/* Broadcast by leaders: the root sends its vector to the leader of each other large group, and to
 * the leaders of the smaller groups around it. The leaders do the same. So one rank of a group
 * reads across its border, and the other ranks read from this rank. One message a tier.
 *
 *   {0 1} {2 3} | {4 5} {6 7}     0 -> 4, 2, 1   |   4 -> 6, 5   2 -> 3   |   6 -> 7
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
    kolo_hier_broadcast(&tree, b, kolo_in(0));
    kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_broadcast_hier = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_hier"},
    .coll = KOLO_COLL_BROADCAST,
    .source =
        "Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan: Exploiting hierarchy in parallel "
        "computer networks to optimize collective operation performance, 2000",
    .supports = kolo_hier_supports,
    .build = build,
};
