// SPDX-License-Identifier: Apache-2.0
/* Recursive halving and doubling: partners at growing distance exchange halves of the part that
 * they still share, and each sums the half that it keeps. Then the finished parts come together in
 * the same steps backwards. 2 log2 n steps and 2(n-1)/n of the vector for a power of two. Other
 * numbers of ranks fold as in allreduce_doubling.
 *
 *   rank 0 keeps   [0 1 2 3]  ->  [0 1]  ->  [0]   ->  [0 1]  ->  [0 1 2 3]      n = 4
 *   rank 1                        [2 3]  ->  [2]   ->  [2 3]
 *   rank 2                        [0 1]  ->  [1]   ->  [0 1]
 *
 * Rabenseifner: Optimization of collective reduction operations, 2004.
 */
#include "algos.h"

/* The first chunk that rank j keeps when `parts` ranks share the vector. */
static int kept(int pow2, int parts, int j)
{
    int first = 0;
    for (int bit = 1; bit < parts; bit *= 2) {
        first += (j & bit) != 0 ? pow2 / (2 * bit) : 0;
    }
    return first;
}

/* Rank j sends its partner the part that the partner keeps from now on. */
static void halve(const struct kolo_shape *shape, struct kolo_builder *b, int bit, int j)
{
    const int pow2 = kolo_pow2_floor(shape->nranks);
    const int extra = shape->nranks - pow2;
    const int peer = j ^ bit;
    const int from = kolo_folded_rank(shape, extra, j);
    const int to = kolo_folded_rank(shape, extra, peer);
    const int first = kept(pow2, 2 * bit, peer);
    const struct kolo_slice in = kolo_slice_make(KOLO_IN, first, pow2 / (2 * bit));
    const struct kolo_slice out = kolo_slice_make(KOLO_OUT, first, pow2 / (2 * bit));
    if (bit == 1 && peer >= extra) {
        kolo_local(b, to, in, out, KOLO_MOVE);
    }
    const unsigned last = 2 * bit == pow2 ? KOLO_LAST : 0;
    const unsigned left = j < peer ? KOLO_LEFT : 0;
    kolo_transfer(b, from, bit == 1 && j >= extra ? in : out, to, out, KOLO_ADD | last | left);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int pow2 = kolo_pow2_floor(shape->nranks);
    const int extra = shape->nranks - pow2;
    kolo_chunks(b, pow2);
    if (pow2 == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    kolo_fold(shape, b, extra, pow2);
    for (int bit = 1; bit < pow2; bit *= 2) {
        for (int j = 0; j < pow2; j++) {
            halve(shape, b, bit, j);
        }
        kolo_round(b);
    }
    for (int bit = pow2 / 2; bit >= 1; bit /= 2) { /* back: partners swap their finished parts */
        for (int j = 0; j < pow2; j++) {
            const struct kolo_slice done =
                kolo_slice_make(KOLO_OUT, kept(pow2, 2 * bit, j), pow2 / (2 * bit));
            kolo_transfer(b, kolo_folded_rank(shape, extra, j), done,
                          kolo_folded_rank(shape, extra, j ^ bit), done, KOLO_MOVE);
        }
        kolo_round(b);
    }
    kolo_unfold(shape, b, extra, pow2);
}

const struct kolo_algo kolo_algo_allreduce_rabenseifner = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_rabenseifner"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Rabenseifner: Optimization of collective reduction operations, 2004, "
              "doi:10.1007/978-3-540-24685-5_1",
    .build = build,
};
