// SPDX-License-Identifier: Apache-2.0
/* Scatter and all-gather: the root's vector is cut into n chunks and scattered down a binomial
 * tree, then all chunks go round the ring. ceil(log2 n) + n-1 steps. Each link carries about twice
 * the vector instead of log2 n times. Inner nodes of the tree do not get again the chunks that they
 * passed on.
 *
 *   0 --[2 3]--> 2   0 --[1]--> 1   2 --[3]--> 3   |   chunks right by one, three times      n = 4
 *
 * Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: Interprocessor collective communication
 * library (InterCom), 1994; Chan, Heimlich, Purkayastha, van de Geijn: Collective communication:
 * theory, practice, and experience, 2007.
 */
#include "algos.h"

/* Node v has the chunks of its subtree after the scatter; the root has all. */
static bool scattered_to(int v, int chunk)
{
    const int subtree = v & -v; /* the lowest set bit */
    return v == 0 || (chunk >= v && chunk < v + subtree);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int start = kolo_root_place(shape);
    kolo_chunks(b, n);
    for (int bit = kolo_pow2_floor(n); bit >= 1; bit /= 2) {
        for (int v = 0; v + bit < n; v += 2 * bit) {
            const int child = v + bit;
            const int count = child + bit < n ? bit : n - child;
            kolo_transfer(b, kolo_rank_after(shape, start, v),
                          kolo_slice_make(v == 0 ? KOLO_IN : KOLO_OUT, child, count),
                          kolo_rank_after(shape, start, child),
                          kolo_slice_make(KOLO_OUT, child, count), KOLO_MOVE);
        }
        kolo_round(b);
    }
    for (int t = 0; t < n - 1; t++) {
        for (int v = 0; v < n - 1; v++) { /* chunk v - t moves right, but not to the root */
            const int c = kolo_mod(v - t, n);
            if (!scattered_to(v + 1, c)) {
                kolo_transfer(b, kolo_rank_after(shape, start, v),
                              v == 0 ? kolo_in(c) : kolo_out(c),
                              kolo_rank_after(shape, start, v + 1), kolo_out(c), KOLO_MOVE);
            }
        }
        kolo_round(b);
    }
    kolo_local(b, shape->root, kolo_slice_make(KOLO_IN, 0, n), kolo_slice_make(KOLO_OUT, 0, n),
               KOLO_MOVE);
}

const struct kolo_algo kolo_algo_broadcast_scatter = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "broadcast_scatter"},
    .coll = KOLO_COLL_BROADCAST,
    .source = "Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: Interprocessor collective "
              "communication library (InterCom), 1994; Chan et al. 2007, doi:10.1002/cpe.1206",
    .build = build,
};
