// SPDX-License-Identifier: Apache-2.0
/* Circulant-graph all-reduce: fewest rounds, 2 ceil(log2 n), and least volume, 2(n-1)/n of the
 * vector, for every n. The rank at place i numbers the chunks i, i+1, i+2, ... (mod n). In each
 * round of the reduce-scatter it gives away the upper half of the chunks that are left. If that
 * half begins at +d, the place d further gets it. Chunk i remains. The all-gather runs the same
 * rounds backwards.
 *
 *   left: 7 -> 4 -> 2 -> 1      round 1: chunks +4 +5 +6 to place +4, there +0 +1 +2      n = 7
 *                               round 2: chunks +2 +3    to place +2, there +0 +1
 *                               round 3: chunk  +1       to place +1, there +0
 *
 * Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024.
 */
#include "algos.h"

/* The number of chunks that are left after k rounds. */
static int left_after(int n, int k)
{
    return (n + (1 << k) - 1) >> k;
}

static struct kolo_slice part(enum kolo_buf buf, int first, int count, int n)
{
    return kolo_slice_make(buf, kolo_mod(first, n), count);
}

/* Place i sends `count` chunks from its `skip`-th on, the first time from IN. */
static void give(const struct kolo_shape *shape, struct kolo_builder *b, int i, int k)
{
    const int n = shape->nranks;
    const int skip = left_after(n, k);
    const int count = left_after(n, k - 1) - skip;
    const int from = kolo_rank_at(shape, i);
    const int to = kolo_rank_after(shape, i, skip);
    const unsigned how = skip == 1 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
    for (int c = 0, run; c < count; c += run) {
        run = kolo_run(i + skip + c, count - c, n);
        const struct kolo_slice in = part(KOLO_IN, i + skip + c, run, n);
        const struct kolo_slice out = part(KOLO_OUT, i + skip + c, run, n);
        if (k == 1) {
            kolo_local(b, to, in, out, KOLO_MOVE);
        }
        kolo_transfer(b, from, k == 1 ? in : out, to, out, how);
    }
    if (k == 1 && count < skip) { /* odd n: one chunk gets nothing in the first round */
        const int c = kolo_mod(i + 2 * skip - 1, n);
        kolo_local(b, to, kolo_in(c), kolo_out(c), KOLO_MOVE);
    }
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int rounds = kolo_log2_ceil(n);
    kolo_chunks(b, n);
    if (n == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int k = 1; k <= rounds; k++) {
        for (int i = 0; i < n; i++) {
            give(shape, b, i, k);
        }
        kolo_round(b);
    }
    for (int k = rounds; k >= 1; k--) { /* back: the giver gets the finished chunks */
        const int skip = left_after(n, k);
        const int count = left_after(n, k - 1) - skip;
        for (int i = 0; i < n; i++) {
            for (int c = 0, run; c < count; c += run) {
                run = kolo_run(i + c, count - c, n);
                const struct kolo_slice done = part(KOLO_OUT, i + c, run, n);
                kolo_transfer(b, kolo_rank_at(shape, i), done, kolo_rank_after(shape, i, n - skip),
                              done, KOLO_MOVE);
            }
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_allreduce_circulant = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_circulant"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Träff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, 2024, "
              "arXiv:2410.14234",
    .build = build,
};
