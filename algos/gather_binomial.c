// SPDX-License-Identifier: Apache-2.0
/* Binomial-tree gather: in round k the nodes whose lowest set bit is k send the blocks of their
 * subtree, which lie together, to the node without that bit. ceil(log2 n) rounds. Node v is rank
 * root + v, so the blocks fall into place at the root, in two pieces if they wrap.
 *
 *   1 -> 0 [1]   3 -> 2 [3]   5 -> 4 [5]   |   2 -> 0 [2 3]   |   4 -> 0 [4 5]        n = 6
 *
 * Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, practice, and
 * experience, 2007 (minimum spanning tree).
 */
#include "algos.h"

/* Node v sends its subtree of `count` blocks to node v - bit. */
static void send_subtree(const struct kolo_shape *shape, struct kolo_builder *b, int v, int bit)
{
    const int n = shape->nranks;
    const int count = v + bit < n ? bit : n - v;
    const int from = (shape->root + v) % n;
    const enum kolo_buf buf = count == 1 ? KOLO_IN : KOLO_SCRATCH;
    if (v != bit) {
        kolo_transfer(b, from, kolo_slice_make(buf, 0, count), (shape->root + v - bit) % n,
                      kolo_slice_make(KOLO_SCRATCH, bit, count), KOLO_MOVE);
        return;
    }
    for (int c = 0, run; c < count; c += run) {
        run = kolo_run(from + c, count - c, n);
        kolo_transfer(b, from, kolo_slice_make(buf, c, run), shape->root,
                      kolo_slice_make(KOLO_OUT, (from + c) % n, run), KOLO_MOVE);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, n / 2); /* the largest subtree below the root */
    kolo_local(b, shape->root, kolo_in(0), kolo_out(shape->root), KOLO_MOVE);
    for (int v = 2; v + 1 < n; v += 2) { /* inner nodes put their own block before the others */
        kolo_local(b, (shape->root + v) % n, kolo_in(0), kolo_scratch(0), KOLO_MOVE);
    }
    for (int bit = 1; bit < n; bit *= 2) {
        for (int v = bit; v < n; v += 2 * bit) {
            send_subtree(shape, b, v, bit);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_gather_binomial = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "gather_binomial"},
    .coll = KOLO_COLL_GATHER,
    .source = "Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory, "
              "practice, and experience, 2007, doi:10.1002/cpe.1206",
    .build = build,
};
