// SPDX-License-Identifier: Apache-2.0
/* All-reduce over several rings at once: the vector is cut into as many parts as there are rings.
 * Each part goes round its own ring, in its own lane, as in allreduce_ring. If a machine joins its
 * ranks by private links, the planner lays rings that share no link, or share links evenly.
 * Together these rings use the links that one ring leaves idle: six rings carry six times as much
 * on a hybrid cube mesh. Rings beyond the number of lanes stay unused.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009; the
 * rings are those of topology/layout/wiring_local.c.
 */
#include "algos.h"

static int rank_on(const struct kolo_shape *shape, int ring, int place)
{
    return shape->order[ring * shape->nranks + kolo_mod(place, shape->nranks)];
}

static void reduce(const struct kolo_shape *shape, struct kolo_builder *b, int ring)
{
    const int n = shape->nranks;
    for (int t = 0; t < n - 1; t++) { /* chunk i - t moves right and is summed on arrival */
        const unsigned how = t == n - 2 ? KOLO_ADD | KOLO_LAST : KOLO_ADD;
        for (int i = 0; i < n; i++) {
            const int next = rank_on(shape, ring, i + 1);
            const int c = ring * n + kolo_mod(i - t, n);
            kolo_local(b, next, kolo_in(c), kolo_out(c), KOLO_MOVE);
            kolo_transfer(b, rank_on(shape, ring, i), t == 0 ? kolo_in(c) : kolo_out(c), next,
                          kolo_out(c), how);
        }
        kolo_round(b);
    }
}

static void gather(const struct kolo_shape *shape, struct kolo_builder *b, int ring)
{
    const int n = shape->nranks;
    for (int t = 0; t < n - 1; t++) { /* the finished chunk i + 1 - t moves right */
        for (int i = 0; i < n; i++) {
            const struct kolo_slice done = kolo_out(ring * n + kolo_mod(i + 1 - t, n));
            kolo_transfer(b, rank_on(shape, ring, i), done, rank_on(shape, ring, i + 1), done,
                          KOLO_MOVE);
        }
        kolo_round(b);
    }
}

static bool supports(const struct kolo_shape *shape)
{
    return shape->nrings > 1 && shape->order != NULL;
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int rings = shape->nrings < KOLO_LANES ? shape->nrings : KOLO_LANES;
    kolo_chunks(b, rings * shape->nranks);
    if (shape->nranks == 1) {
        kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, rings), kolo_slice_make(KOLO_OUT, 0, rings),
                   KOLO_MOVE);
    }
    for (int ring = 0; ring < rings; ring++) {
        kolo_lane(b, ring);
        reduce(shape, b, ring);
        gather(shape, b, ring);
    }
}

const struct kolo_algo kolo_algo_allreduce_rings = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_rings"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of "
              "workstations, 2009, doi:10.1016/j.jpdc.2008.09.002",
    .supports = supports,
    .build = build,
};
