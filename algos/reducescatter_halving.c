// SPDX-License-Identifier: Apache-2.0
/* Recursive-halving reduce-scatter: partners at distance n/2, n/4, ... 1 send each other the half
 * of their sums that the other's side needs. log2 n steps and n-1 blocks, for powers of two.
 *
 *   rank 0: [0 1 2 3] --[2 3]--> 2   then [0 1] --[1]--> 1   then [0]        n = 4
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

static bool supports(const struct kolo_shape *shape)
{
    return kolo_is_pow2(shape->nranks);
}

/* Rank r sends its partner at `distance` the sums that the partner's side needs. Sums wait in n/2
 * chunks of SCRATCH. */
static void halve(struct kolo_builder *b, int n, int distance, int r)
{
    const int peer = r ^ distance;
    const int first = peer & ~(distance - 1);
    const struct kolo_slice in = kolo_slice_make(KOLO_IN, first, distance);
    const struct kolo_slice kept = kolo_slice_make(KOLO_SCRATCH, first % (n / 2), distance);
    const struct kolo_slice term = distance == n / 2 ? in : kept;
    const struct kolo_slice sum = distance == 1 ? kolo_out(0) : kept;
    if (term.buf != sum.buf) { /* the first and the last step */
        kolo_local(b, peer, term, sum, KOLO_MOVE);
    }
    kolo_transfer(b, r, term, peer, sum, distance == 1 ? KOLO_ADD | KOLO_LAST : KOLO_ADD);
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, n / 2);
    if (n == 1) {
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    }
    for (int distance = n / 2; distance >= 1; distance /= 2) {
        for (int r = 0; r < n; r++) {
            halve(b, n, distance, r);
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_reducescatter_halving = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "reducescatter_halving"},
    .coll = KOLO_COLL_REDUCE_SCATTER,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .supports = supports,
    .build = build,
};
