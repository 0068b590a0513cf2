// SPDX-License-Identifier: Apache-2.0
/* The layout of ranks: their order in a ring, and the two trees over that order. Both are pure
 * functions of hosts and places, so every rank that has the same places computes the same layout.
 */
#ifndef KOLO_TOPOLOGY_LAYOUT_LAYOUT_H
#define KOLO_TOPOLOGY_LAYOUT_LAYOUT_H

#include "topology/machine/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Order the ranks so that neighbours share caches: order[i] is the rank at position i. Ranks are
 * sorted by host, package, NUMA node, L3, core, PU, then rank; an unknown index sorts last. Each
 * level's numbering is rotated so that rank 0 comes first and every group (host, package, L3 ...)
 * stays in one piece. As a ring, the order leaves each level the fewest possible times.
 * host_of NULL: one host; place NULL: no place is known. Cost: n log n. */
void kolo_order_ranks(int nranks, const int *host_of, const struct kolo_place *place, int *order);

/* A rank's neighbours in a tree; -1 none. In a binary tree down[0] stands before the rank in the
 * order, and down[2] is -1. */
struct kolo_tree {
    int up, down[3];
};

/* The neighbours of a position in tree `which` (0 or 1) over positions 0..n-1, as positions. Tree 0
 * is the in-order binary tree; tree 1 is its mirror for even n, its shift by one for odd n. The
 * depth of both is floor(log2 n). No position is interior in both trees. For even n each position
 * is interior in exactly one tree. For odd n position 0 is a leaf in both, and every other position
 * is interior in exactly one. Pure. Source: Sanders, Speck, Traff 2009,
 * doi:10.1016/j.parco.2009.09.001 (two-tree broadcast). */
struct kolo_tree kolo_tree_at(int n, int which, int position);
/* The neighbours of a rank, as ranks. order[] as above, NULL for 0..n-1. Cost: n, to find the
 * rank's position. */
void kolo_tree_build(int nranks, const int *order, int which, int rank, struct kolo_tree *out);

#ifdef __cplusplus
}
#endif
#endif
