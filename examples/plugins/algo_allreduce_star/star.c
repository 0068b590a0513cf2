// SPDX-License-Identifier: Apache-2.0
/* An algorithm as a plug-in: libkolo_algo_allreduce_star.so.
 *
 * Rank 0 adds every rank's vector to its own, in rank order, and sends the result to all:
 *
 *   1 -x1-> 0: x0+x1   2 -x2-> 0: (x0+x1)+x2   ...   then 0 -> 1, 0 -> 2, ...
 *
 * It takes two rounds of messages, all of them at rank 0. So it is only good for short vectors. */
#include <kolo/plugin.h>

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    for (int rank = 1; rank < n; rank++) {
        kolo_transfer(b, rank, kolo_in(0), 0, kolo_out(0),
                      KOLO_ADD | (rank == n - 1 ? KOLO_LAST : 0));
    }
    kolo_round(b);
    for (int rank = 1; rank < n; rank++) {
        kolo_transfer(b, 0, kolo_out(0), rank, kolo_out(0), KOLO_MOVE);
    }
}

KOLO_EXPORT
extern const struct kolo_algo kolo_algo_v1;
const struct kolo_algo kolo_algo_v1 = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_star"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "a gather to rank 0, a sum there, a broadcast from there",
    .build = build,
};
