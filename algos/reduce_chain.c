// SPDX-License-Identifier: Apache-2.0
/* Chain reduce: the partial sum walks along the ring, from the last node down to the root. n-1
 * steps, but each rank sends one vector and receives one. Tiles follow one another, so long vectors
 * take hardly longer than one message.
 *
 *   n-1 --> n-2 --> ... --> 1 --> 0 (root)
 *
 * Sanders, Sibeyn: A bandwidth latency tradeoff for broadcast and reduction, 2003 (the linear
 * pipeline).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int start = kolo_root_place(shape);
    kolo_scratch_chunks(b, 1); /* OUT is the root's alone */
    if (n == 1) {
        kolo_local(b, shape->root, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int v = n - 1; v > 0; v--) {
        const int to = kolo_rank_after(shape, start, v - 1);
        const struct kolo_slice sum = v == 1 ? kolo_out(0) : kolo_scratch(0);
        kolo_local(b, to, kolo_in(0), sum, KOLO_MOVE);
        kolo_transfer(b, kolo_rank_after(shape, start, v),
                      v == n - 1 ? kolo_in(0) : kolo_scratch(0), to, sum,
                      v == 1 ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_reduce_chain = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_chain"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Sanders, Sibeyn: A bandwidth latency tradeoff for broadcast and reduction, 2003",
    .build = build,
};
