// SPDX-License-Identifier: Apache-2.0
/* Direct reduce: every rank sends its vector to the root, which sums the vectors in rank order. One
 * round: for short vectors.
 *
 *   0, 1, ... n-1 --vector--> root      root: ((x0 + x1) + x2) + ...
 *
 * Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000 (the flat tree).
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 1); /* OUT may be IN, which is still to be read */
    for (int q = 0; q < n; q++) {
        kolo_term(b, n, q, kolo_in(0), shape->root, kolo_scratch(0));
    }
    kolo_local(b, shape->root, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
}

const struct kolo_algo kolo_algo_reduce_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reduce_direct"},
    .coll = KOLO_COLL_REDUCE,
    .source = "Vadhiyar, Fagg, Dongarra: Automatically tuned collective communications, 2000",
    .build = build,
};
