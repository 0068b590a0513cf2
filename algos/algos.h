// SPDX-License-Identifier: Apache-2.0
/* The built-in algorithms, and helpers that several of them use.
 *
 * Each file of this folder is one algorithm and has its name. Words:
 * - place: rank r is at place i of the ring if order[i] == r;
 * - node: in rooted collectives node 0 is the root, and node v lies v ranks or places after it.
 */
#ifndef KOLO_ALGOS_H
#define KOLO_ALGOS_H

#include "plan/plan.h"
#include "util/util.h"

extern const struct kolo_algo kolo_algo_allreduce_ring;
extern const struct kolo_algo kolo_algo_allreduce_rings;
extern const struct kolo_algo kolo_algo_allreduce_tree;
extern const struct kolo_algo kolo_algo_allreduce_doubling;
extern const struct kolo_algo kolo_algo_allreduce_rabenseifner;
extern const struct kolo_algo kolo_algo_allreduce_direct;
extern const struct kolo_algo kolo_algo_allreduce_oneshot;
extern const struct kolo_algo kolo_algo_allreduce_chain;
extern const struct kolo_algo kolo_algo_allreduce_circulant;
extern const struct kolo_algo kolo_algo_allreduce_hier;
extern const struct kolo_algo kolo_algo_allreduce_hier_oneshot;
extern const struct kolo_algo kolo_algo_allreduce_hier_leader;
extern const struct kolo_algo kolo_algo_reduce_binomial;
extern const struct kolo_algo kolo_algo_reduce_chain;
extern const struct kolo_algo kolo_algo_reduce_tree;
extern const struct kolo_algo kolo_algo_reduce_scattergather;
extern const struct kolo_algo kolo_algo_reduce_direct;
extern const struct kolo_algo kolo_algo_reduce_hier;
extern const struct kolo_algo kolo_algo_broadcast_binomial;
extern const struct kolo_algo kolo_algo_broadcast_chain;
extern const struct kolo_algo kolo_algo_broadcast_tree;
extern const struct kolo_algo kolo_algo_broadcast_scatter;
extern const struct kolo_algo kolo_algo_broadcast_direct;
extern const struct kolo_algo kolo_algo_broadcast_hier;
extern const struct kolo_algo kolo_algo_gather_binomial;
extern const struct kolo_algo kolo_algo_gather_direct;
extern const struct kolo_algo kolo_algo_scatter_binomial;
extern const struct kolo_algo kolo_algo_scatter_direct;
extern const struct kolo_algo kolo_algo_allgather_ring;
extern const struct kolo_algo kolo_algo_allgather_bruck;
extern const struct kolo_algo kolo_algo_allgather_doubling;
extern const struct kolo_algo kolo_algo_allgather_direct;
extern const struct kolo_algo kolo_algo_allgather_hier;
extern const struct kolo_algo kolo_algo_reducescatter_ring;
extern const struct kolo_algo kolo_algo_reducescatter_halving;
extern const struct kolo_algo kolo_algo_reducescatter_direct;
extern const struct kolo_algo kolo_algo_reducescatter_circulant;
extern const struct kolo_algo kolo_algo_reducescatter_hier;
extern const struct kolo_algo kolo_algo_alltoall_pairwise;
extern const struct kolo_algo kolo_algo_alltoall_bruck;
extern const struct kolo_algo kolo_algo_alltoall_direct;
extern const struct kolo_algo kolo_algo_barrier_dissemination;
extern const struct kolo_algo kolo_algo_barrier_direct;
extern const struct kolo_algo kolo_algo_barrier_central;
extern const struct kolo_algo kolo_algo_barrier_hier;

/* The place of the root on the ring; its node v is at place (start + v) mod n. */
static inline int kolo_root_place(const struct kolo_shape *shape)
{
    int place = 0;
    while (kolo_rank_at(shape, place) != shape->root) {
        place++;
    }
    return place;
}

/* The rank `v` places after place `start`. */
static inline int kolo_rank_after(const struct kolo_shape *shape, int start, int v)
{
    return kolo_rank_at(shape, (start + v) % shape->nranks);
}

/* How many of the `count` blocks from block `first` on (mod n) lie together: slices do not wrap. */
static inline int kolo_run(int first, int count, int n)
{
    const int left = n - kolo_mod(first, n);
    return count < left ? count : left;
}

/* Rank `from` adds its term to the sum that rank `to` makes. Call it for from = 0, 1, ... n-1. Then
 * every rank makes its sum by the expression ((x0 + x1) + x2) + ... */
static inline void kolo_term(struct kolo_builder *b, int n, int from, struct kolo_slice term,
                             int to, struct kolo_slice sum)
{
    const unsigned add = from == n - 1 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
    const unsigned how = from == 0 ? KOLO_MOVE : add;
    if (from == to) {
        kolo_local(b, to, term, sum, how);
    } else {
        kolo_transfer(b, from, term, to, sum, how);
    }
}

/* Folding leaves a power of two of ranks, numbered 0, 1, ... in the order of places. Each odd place
 * among the first 2 * extra gives its vector to the even place before it. */
static inline int kolo_folded_rank(const struct kolo_shape *shape, int extra, int j)
{
    return kolo_rank_at(shape, j < extra ? 2 * j : j + extra);
}

static inline void kolo_fold(const struct kolo_shape *shape, struct kolo_builder *b, int extra,
                             int chunks)
{
    const struct kolo_slice in = kolo_slice_make(KOLO_IN, 0, chunks);
    const struct kolo_slice out = kolo_slice_make(KOLO_OUT, 0, chunks);
    for (int j = 0; j < extra; j++) {
        const int even = kolo_rank_at(shape, 2 * j);
        kolo_local(b, even, in, out, KOLO_MOVE);
        kolo_transfer(b, kolo_rank_at(shape, 2 * j + 1), in, even, out, KOLO_ADD);
    }
    kolo_round(b);
}

static inline void kolo_unfold(const struct kolo_shape *shape, struct kolo_builder *b, int extra,
                               int chunks)
{
    const struct kolo_slice out = kolo_slice_make(KOLO_OUT, 0, chunks);
    for (int j = 0; j < extra; j++) {
        kolo_transfer(b, kolo_rank_at(shape, 2 * j), out, kolo_rank_at(shape, 2 * j + 1), out,
                      KOLO_MOVE);
    }
    kolo_round(b);
}

/* The largest power of two that is at most n. */
static inline int kolo_pow2_floor(int n)
{
    int pow2 = 1;
    while (pow2 <= n / 2) {
        pow2 *= 2;
    }
    return pow2;
}

#endif
