// SPDX-License-Identifier: Apache-2.0
/* Binomial-tree scatter: each node passes the upper half of its blocks to the node where that half
 * begins, until all nodes have their own block. ceil(log2 n) rounds. Node v is rank root + v, so
 * the root's blocks go out as they lie, in two pieces if they wrap.
 *
 *   0 -> 4 [4 5]   |   0 -> 2 [2 3]   |   0 -> 1 [1]   2 -> 3 [3]   4 -> 5 [5]        n = 6
 *
 * Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, practice, and
 * experience, 2007 (minimum spanning tree).
 */
#include "algos.h"

/* Node v - bit sends node v the `count` blocks of its subtree. */
static void send_subtree(const struct kolo_shape *shape, struct kolo_builder *b, int v, int bit)
{
    const int n = shape->nranks;
    const int count = v + bit < n ? bit : n - v;
    const int to = (shape->root + v) % n;
    const enum kolo_buf buf = count == 1 ? KOLO_OUT : KOLO_SCRATCH;
    if (v != bit) {
        kolo_transfer(b, (shape->root + v - bit) % n, kolo_slice_make(KOLO_SCRATCH, bit, count), to,
                      kolo_slice_make(buf, 0, count), KOLO_MOVE);
        return;
    }
    for (int c = 0, run; c < count; c += run) {
        run = kolo_run(to + c, count - c, n);
        kolo_transfer(b, shape->root, kolo_slice_make(KOLO_IN, (to + c) % n, run), to,
                      kolo_slice_make(buf, c, run), KOLO_MOVE);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, n / 2); /* the largest subtree below the root */
    for (int bit = kolo_pow2_floor(n); bit >= 1; bit /= 2) {
        for (int v = bit; v < n; v += 2 * bit) {
            send_subtree(shape, b, v, bit);
        }
        kolo_round(b);
    }
    kolo_local(b, shape->root, kolo_in(shape->root), kolo_out(0), KOLO_MOVE);
    for (int v = 2; v + 1 < n; v += 2) { /* inner nodes keep the first of their blocks */
        kolo_local(b, (shape->root + v) % n, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    }
}

const struct kolo_algo kolo_algo_scatter_binomial = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "scatter_binomial"},
    .coll = KOLO_COLL_SCATTER,
    .source = "Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, "
              "practice, and experience, 2007, doi:10.1002/cpe.1206",
    .build = build,
};
