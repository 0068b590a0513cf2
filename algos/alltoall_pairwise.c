// SPDX-License-Identifier: Apache-2.0
/* Pairwise exchange: in each round the ranks form pairs, and a pair swaps its two blocks. Every
 * rank sends and receives one block a round, so no receiver is crowded. A block arrives in the
 * place of the block that left in the same round, so the algorithm works in place. The pairs are
 * those of a round-robin tournament: n-1 rounds for even n, n for odd n, where one rank rests.
 *
 *   0-4 1-3 2-5  |  0-1 2-4 3-5  |  0-2 3-4 1-5  |  0-3 1-2 4-5  |  0-5 1-4 2-3       n = 6
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

/* The partner of rank r in round t: the rank p with p + r = t (mod m). m is n or n - 1, whichever
 * is odd. A rank that would meet itself rests, or for even n meets rank n - 1. */
static int partner(int n, int t, int r)
{
    const int m = n % 2 != 0 ? n : n - 1;
    if (r == m) {
        return (t % 2 == 0 ? t : t + m) / 2;
    }
    const int other = kolo_mod(t - r, m);
    return other == r && m < n ? m : other;
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int rounds = n % 2 != 0 ? n : n - 1;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(r), kolo_out(r), KOLO_MOVE);
    }
    for (int t = 0; t < rounds; t++) {
        for (int r = 0; r < n; r++) {
            const int peer = partner(n, t, r);
            if (peer != r) {
                kolo_transfer(b, r, kolo_in(peer), peer, kolo_out(r), KOLO_MOVE);
            }
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_alltoall_pairwise = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "alltoall_pairwise"},
    .coll = KOLO_COLL_ALL_TO_ALL,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
