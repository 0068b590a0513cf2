// SPDX-License-Identifier: Apache-2.0
/* The order of ranks. The levels of a machine nest. So a lexicographic sort by (host, package, NUMA
 * node, L3, core, PU) keeps every group in one piece. A ring through k groups must leave a group at
 * least k times, and the sort reaches that bound on every level at once.
 *
 * A ring has no beginning; it begins at rank 0 by choice. Rotating the finished list would cut rank
 * 0's groups in two, and a tree over the positions would suffer. So each level's numbering is
 * rotated instead, within the groups that hold rank 0. */
#include "topology/layout/layout.h"

#include <limits.h>
#include <stdlib.h>

enum { LEVELS = 6 };

struct sort {
    const int *host_of;
    const struct kolo_place *place;
};

/* An unknown index (-1) becomes the largest key, so ranks without a place come last. */
static int key_of(const struct sort *sort, int rank, int level)
{
    int key = -1;
    if (level == 0) {
        key = sort->host_of != NULL ? sort->host_of[rank] : 0;
    } else if (sort->place != NULL) {
        const struct kolo_place *p = &sort->place[rank];
        const int keys[LEVELS] = {0, p->package, p->numa, p->l3, p->core, p->pu};
        key = keys[level];
    }
    return key >= 0 ? key : INT_MAX;
}

static int compare_ranks(const void *left, const void *right, void *context)
{
    const struct sort *sort = context;
    const int a = *(const int *)left;
    const int b = *(const int *)right;
    for (int level = 0; level < LEVELS; level++) {
        const int ka = key_of(sort, a, level);
        const int kb = key_of(sort, b, level);
        const int first = key_of(sort, 0, level);
        if (ka != kb) {
            const bool wrapped = (ka < first) != (kb < first);
            return (ka < kb) != wrapped ? -1 : 1;
        }
    }
    return a < b ? -1 : a > b;
}

void kolo_order_ranks(int nranks, const int *host_of, const struct kolo_place *place, int *order)
{
    struct sort sort = {host_of, place};
    for (int i = 0; i < nranks; i++) {
        order[i] = i;
    }
    qsort_r(order, (size_t)nranks, sizeof order[0], compare_ranks, &sort);
}
