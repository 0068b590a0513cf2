// SPDX-License-Identifier: Apache-2.0
/* Direct broadcast: the root sends its vector to all ranks. One round. In shared memory one copy
 * serves all ranks.
 *
 *   root --vector--> 0, 1, ... n-1
 *
 * Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000 (the flat tree).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int i = 1; i < n; i++) {
        kolo_transfer(b, shape->root, kolo_in(0), (shape->root + i) % n, kolo_out(0), KOLO_MOVE);
    }
    kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_broadcast_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_direct"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000",
    .build = build,
};
