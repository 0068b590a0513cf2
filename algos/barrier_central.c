// SPDX-License-Identifier: Apache-2.0
/* Central barrier: all ranks signal one, and it signals all. Two messages one after the other, but
 * only 2(n-1) in all. So it is for ranks that share cores and signal by messages: each message then
 * takes time from all. Both ways of a link are used, so that over TCP a signal carries the
 * acknowledgement of the other. The messages are empty.
 *
 *   1 -> 0   2 -> 0   3 -> 0   |   0 -> 1   0 -> 2   0 -> 3        n = 4
 *
 * Mellor-Crummey, Scott: Algorithms for scalable synchronization on shared-memory multiprocessors,
 * 1991 (there: a counter in memory).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int first = kolo_rank_at(shape, 0);
    const struct kolo_slice nothing = kolo_slice_make(KOLO_SCRATCH, 0, 0);
    for (int i = 1; i < shape->nranks; i++) {
        kolo_transfer(b, kolo_rank_at(shape, i), nothing, first, nothing, KOLO_MOVE);
    }
    kolo_round(b);
    for (int i = 1; i < shape->nranks; i++) {
        kolo_transfer(b, first, nothing, kolo_rank_at(shape, i), nothing, KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_barrier_central = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "barrier_central"},
    .coll = KOLO_COLL_BARRIER,
    .source = "Mellor-Crummey, Scott: Algorithms for scalable synchronization on shared-memory "
              "multiprocessors, 1991, doi:10.1145/103727.103729",
    .build = build,
};
