// SPDX-License-Identifier: Apache-2.0
/* Recursive doubling: in step k each rank exchanges its whole partial sum with the rank whose
 * number differs in bit k. ceil(log2 n) steps of the whole vector: best for short vectors. Both
 * partners put the lower rank's sum on the left, so all ranks compute the same expression. If n is
 * no power of two, the surplus ranks fold into a neighbour before and get the result after.
 *
 *   0 <-> 1   2 <-> 3   |   0 <-> 2   1 <-> 3        n = 4
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int pow2 = kolo_pow2_floor(shape->nranks);
    const int extra = shape->nranks - pow2;
    if (pow2 == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    kolo_fold(shape, b, extra, 1);
    for (int bit = 1; bit < pow2; bit *= 2) {
        const unsigned add = 2 * bit == pow2 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
        for (int j = 0; j < pow2; j++) {
            const int peer = j ^ bit;
            const int from = kolo_folded_rank(shape, extra, j);
            const int to = kolo_folded_rank(shape, extra, peer);
            if (bit == 1 && peer >= extra) {
                kolo_local(b, to, kolo_in(0), kolo_out(0), KOLO_MOVE);
            }
            kolo_transfer(b, from, bit == 1 && j >= extra ? kolo_in(0) : kolo_out(0), to,
                          kolo_out(0), j < peer ? add | KOLO_LEFT : add);
        }
        kolo_round(b);
    }
    kolo_unfold(shape, b, extra, 1);
}

const struct kolo_algo kolo_algo_allreduce_doubling = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_doubling"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
