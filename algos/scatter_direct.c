// SPDX-License-Identifier: Apache-2.0
/* Direct scatter: the root sends every rank its block. One round, and no block moves twice.
 *
 *   root --block r--> r, for each r
 *
 * Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000 (the flat tree).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int i = 1; i < n; i++) {
        const int to = (shape->root + i) % n;
        kolo_transfer(b, shape->root, kolo_in(to), to, kolo_out(0), KOLO_MOVE);
    }
    kolo_local(b, shape->root, kolo_in(shape->root), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_scatter_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "scatter_direct"},
    .coll = KOLO_COLL_SCATTER,
    .source = "Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000",
    .build = build,
};
