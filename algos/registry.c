// SPDX-License-Identifier: Apache-2.0
/* The catalogue of algorithms by collective, one row each. A new algorithm adds its row here, its
 * line in algos.h and its file's name in meson.build. The library can then verify, price, draw,
 * tune and run it.
 */
#include "algos.h"

/* clang-format off */
const struct kolo_algo *const kolo_algos[] = {
    &kolo_algo_allreduce_ring,
    &kolo_algo_allreduce_rings,
    &kolo_algo_allreduce_tree,
    &kolo_algo_allreduce_doubling,
    &kolo_algo_allreduce_rabenseifner,
    &kolo_algo_allreduce_direct,
    &kolo_algo_allreduce_oneshot,
    &kolo_algo_allreduce_chain,
    &kolo_algo_allreduce_circulant,
    &kolo_algo_allreduce_hier,
    &kolo_algo_allreduce_hier_oneshot,
    &kolo_algo_allreduce_hier_leader,
    &kolo_algo_reduce_binomial,
    &kolo_algo_reduce_chain,
    &kolo_algo_reduce_tree,
    &kolo_algo_reduce_scattergather,
    &kolo_algo_reduce_direct,
    &kolo_algo_reduce_hier,
    &kolo_algo_broadcast_binomial,
    &kolo_algo_broadcast_chain,
    &kolo_algo_broadcast_tree,
    &kolo_algo_broadcast_scatter,
    &kolo_algo_broadcast_direct,
    &kolo_algo_broadcast_hier,
    &kolo_algo_gather_binomial,
    &kolo_algo_gather_direct,
    &kolo_algo_scatter_binomial,
    &kolo_algo_scatter_direct,
    &kolo_algo_allgather_ring,
    &kolo_algo_allgather_bruck,
    &kolo_algo_allgather_doubling,
    &kolo_algo_allgather_direct,
    &kolo_algo_allgather_hier,
    &kolo_algo_reducescatter_ring,
    &kolo_algo_reducescatter_halving,
    &kolo_algo_reducescatter_direct,
    &kolo_algo_reducescatter_circulant,
    &kolo_algo_reducescatter_hier,
    &kolo_algo_alltoall_pairwise,
    &kolo_algo_alltoall_bruck,
    &kolo_algo_alltoall_direct,
    &kolo_algo_barrier_dissemination,
    &kolo_algo_barrier_direct,
    &kolo_algo_barrier_hier,
    &kolo_algo_barrier_central,
};
/* clang-format on */
const int kolo_algos_count = (int)KOLO_LENGTH(kolo_algos);
