// SPDX-License-Identifier: Apache-2.0
/* Circulant-graph reduce-scatter: fewest rounds, ceil(log2 n), and least volume, n-1 blocks, for
 * every n. Rank r numbers the blocks r, r+1, r+2, ... (mod n). In each round it gives away the
 * upper half of the blocks that are left. If that half begins at +d, the rank d further gets it and
 * adds it to its lower half. Block r remains. The operation must be commutative, as all of ours
 * are.
 *
 *   left: 7 -> 4 -> 2 -> 1      round 1: blocks +4 +5 +6 to rank +4, there +0 +1 +2      n = 7
 *                               round 2: blocks +2 +3    to rank +2, there +0 +1
 *                               round 3: block  +1       to rank +1, there +0
 *
 * Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024.
 */
#include "algos.h"

/* Round one, from IN: rank `from` gives its blocks +skip ... to rank from + skip. */
static void give_first(struct kolo_builder *b, int n, int from, int skip)
{
    const int to = (from + skip) % n;
    const int count = n - skip;
    const enum kolo_buf sum = n == 2 ? KOLO_OUT : KOLO_SCRATCH;
    const unsigned how = n == 2 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
    for (int c = 0, run; c < count; c += run) {
        run = kolo_run(to + c, count - c, n);
        const struct kolo_slice block = kolo_slice_make(KOLO_IN, (to + c) % n, run);
        kolo_local(b, to, block, kolo_slice_make(sum, c, run), KOLO_MOVE);
        kolo_transfer(b, from, block, to, kolo_slice_make(sum, c, run), how);
    }
    if (count < skip) { /* odd n: one block gets nothing in the first round */
        kolo_local(b, to, kolo_in((to + count) % n), kolo_scratch(count), KOLO_MOVE);
    }
}

/* Later rounds, from the sums in SCRATCH, where block +c is chunk c. */
static void give(struct kolo_builder *b, int n, int from, int skip, int left)
{
    const int to = (from + skip) % n;
    const int count = left - skip;
    const enum kolo_buf sum = skip == 1 ? KOLO_OUT : KOLO_SCRATCH;
    if (skip == 1) {
        kolo_local(b, to, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    }
    kolo_transfer(b, from, kolo_slice_make(KOLO_SCRATCH, skip, count), to,
                  kolo_slice_make(sum, 0, count), skip == 1 ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, (n + 1) / 2);
    if (n == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int left = n; left > 1; left = (left + 1) / 2) {
        for (int r = 0; r < n; r++) {
            if (left == n) {
                give_first(b, n, r, (left + 1) / 2);
            } else {
                give(b, n, r, (left + 1) / 2, left);
            }
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_reducescatter_circulant = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reducescatter_circulant"},
    .coll = KOLO_COLL_REDUCE_SCATTER,
    .source = "Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024, "
              "arXiv:2410.14234",
    .build = build,
};
