// SPDX-License-Identifier: Apache-2.0
/* Direct gather: every rank sends its block to the root. One round, and no block moves twice.
 *
 *   r --block r--> root, for each r
 *
 * Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000 (the flat tree).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_local(b, shape->root, kolo_in(0), kolo_out(shape->root), KOLO_MOVE);
    for (int i = 1; i < n; i++) {
        const int from = (shape->root + i) % n;
        kolo_transfer(b, from, kolo_in(0), shape->root, kolo_out(from), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_gather_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "gather_direct"},
    .coll = KOLO_COLL_GATHER,
    .source = "Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000",
    .build = build,
};
