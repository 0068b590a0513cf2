// SPDX-License-Identifier: Apache-2.0
/* Direct all-to-all: every rank sends each rank its block at once, beginning with the next rank.
 * One round, and no block moves twice.
 *
 *   q --block r--> r, where it becomes block q
 *
 * If the farthest groups (hosts, packages) are equally large, a rank serves its own group first,
 * then the other groups one after another. In each group it begins with the rank of its own place.
 * So the k-th targets of all ranks differ, and no two groups send to the same group. This is the
 * order of topology/layout/wiring.c, where ranks of the same place share a rail.
 *
 * Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
 */
#include "algos.h"

#include <stdlib.h>

struct seats { /* ranks by group */
    int each;  /* ranks of a group */
    int *rank; /* [n] at seat group * each + place */
    int *seat; /* [n] of a rank */
};

static int farthest_group(const struct kolo_shape *shape, int rank)
{
    return kolo_group_of(shape, shape->nlevels - 1, rank);
}

/* The size of the farthest groups if all are equally large, else the number of ranks. */
static int size_of_groups(const struct kolo_shape *shape)
{
    const int n = shape->nranks;
    int each = shape->nlevels > 0 ? 0 : n;
    for (int name = 0; name < n && shape->nlevels > 0; name++) {
        int count = 0;
        for (int r = 0; r < n; r++) {
            count += farthest_group(shape, r) == name;
        }
        if (count > 0 && each > 0 && count != each) {
            return n;
        }
        each = count > 0 ? count : each;
    }
    return each;
}

static void sit(const struct kolo_shape *shape, struct seats *s)
{
    int seat = 0;
    s->each = size_of_groups(shape);
    for (int name = 0; name < shape->nranks; name++) {
        for (int r = name; r < shape->nranks; r++) {
            if ((s->each < shape->nranks ? farthest_group(shape, r) : r) == name) {
                s->rank[seat] = r;
                s->seat[r] = seat++;
            }
        }
    }
}

/* The target of a rank in step 1 to n-1. */
static int target(const struct seats *s, int n, int rank, int step)
{
    const int group = s->seat[rank] / s->each, place = s->seat[rank] % s->each;
    return s->rank[(group + step / s->each) % (n / s->each) * s->each +
                   (place + step % s->each) % s->each];
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    struct seats seats = {.rank = malloc(2 * (size_t)n * sizeof(int))};
    if (seats.rank == NULL) {
        kolo_refuse(b, "out of memory for the order of targets");
        return;
    }
    seats.seat = seats.rank + n;
    sit(shape, &seats);
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(r), kolo_out(r), KOLO_MOVE);
    }
    for (int i = 1; i < n; i++) {
        for (int q = 0; q < n; q++) {
            const int r = target(&seats, n, q, i);
            kolo_transfer(b, q, kolo_in(r), r, kolo_out(q), KOLO_MOVE);
        }
    }
    free(seats.rank);
}

const struct kolo_algo kolo_algo_alltoall_direct = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "alltoall_direct"},
    .coll = KOLO_COLL_ALL_TO_ALL,
    .source = "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in "
              "MPICH, 2005, doi:10.1177/1094342005051521",
    .build = build,
};
