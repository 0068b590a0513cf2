// SPDX-License-Identifier: Apache-2.0
/* Chain broadcast: the vector walks along the ring from the root. n-1 steps, but each rank sends
 * the vector only once. Tiles follow one another, so long vectors take hardly longer than one
 * message.
 *
 *   0 (root) --> 1 --> 2 --> ... --> n-1
 *
 * Patarasuk, Faraj, Yuan: Pipelined broadcast on Ethernet switched clusters, 2006 (the linear
 * tree).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int start = kolo_root_place(shape);
    for (int v = 0; v < shape->nranks - 1; v++) {
        kolo_transfer(b, kolo_rank_after(shape, start, v), v == 0 ? kolo_in(0) : kolo_out(0),
                      kolo_rank_after(shape, start, v + 1), kolo_out(0), KOLO_MOVE);
        kolo_round(b);
    }
    kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_broadcast_chain = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_chain"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Patarasuk, Faraj, Yuan: Pipelined broadcast on Ethernet switched clusters, 2006, "
              "doi:10.1109/IPDPS.2006.1639364",
    .build = build,
};
