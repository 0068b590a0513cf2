// SPDX-License-Identifier: Apache-2.0
/* The two trees of the double binary tree. Number the positions 1..n; a number's lowest set bit is
 * its height in the in-order tree, so odd numbers are leaves and even ones interior:
 *
 *              4                      tree 0, n = 6        tree 1 = mirror, i -> 7 - i
 *          2       6                  leaves 1 3 5         leaves 2 4 6
 *        1   3   5
 *
 * A map that changes every number's parity swaps leaves and interior. For even n the mirror is such
 * a map. For odd n the shift by one is, except for number 1, which is a leaf twice. So a rank
 * forwards in one tree only. Two halves of a message, one down each tree, use every rank's link
 * fully.
 * Source: Sanders, Speck, Traff 2009, doi:10.1016/j.parco.2009.09.001. */
#include "topology/layout/layout.h"

/* The in-order tree over 1..n; 0 none. A right child that would lie beyond n is replaced by the
 * largest subtree that fits. */
static int parent_of(int n, int i)
{
    const int bit = i & -i;
    const int up = (i ^ bit) | (bit << 1);
    return up <= n ? up : i ^ bit;
}

static int left_of(int i)
{
    const int bit = i & -i;
    return bit > 1 ? i - bit / 2 : 0;
}

static int right_of(int n, int i)
{
    int step = (i & -i) / 2;
    while (step > 0 && i + step > n) {
        step /= 2;
    }
    return step > 0 ? i + step : 0;
}

/* Map a position to its number in a tree, and back. No position (-1) maps to no number (0). */
static int number_of(int n, int which, int position)
{
    if (which == 0) {
        return position + 1;
    }
    return n % 2 == 0 ? n - position : kolo_mod(position - 1, n) + 1;
}

static int position_of(int n, int which, int number)
{
    if (number == 0) {
        return -1;
    }
    if (which == 0) {
        return number - 1;
    }
    return n % 2 == 0 ? n - number : number % n;
}

struct kolo_tree kolo_tree_at(int n, int which, int position)
{
    const int i = number_of(n, which, position);
    const bool mirrored = which != 0 && n % 2 == 0;
    const int left = position_of(n, which, left_of(i));
    const int right = position_of(n, which, right_of(n, i));
    const struct kolo_tree tree = {
        .up = position_of(n, which, parent_of(n, i)),
        .down = {mirrored ? right : left, mirrored ? left : right, -1},
    };
    return tree;
}

static int rank_at(const int *order, int position)
{
    return position >= 0 && order != NULL ? order[position] : position;
}

void kolo_tree_build(int nranks, const int *order, int which, int rank, struct kolo_tree *out)
{
    int position = order == NULL ? rank : 0;
    while (order != NULL && order[position] != rank) {
        position++;
    }
    const struct kolo_tree tree = kolo_tree_at(nranks, which, position);
    *out = (struct kolo_tree){rank_at(order, tree.up),
                              {rank_at(order, tree.down[0]), rank_at(order, tree.down[1]), -1}};
}
