// SPDX-License-Identifier: Apache-2.0
/* What hier_path.c, which makes the layers, and steps.c, which enqueues calls on them, share. */
#ifndef KOLO_GPU_HIER_INNER_H
#define KOLO_GPU_HIER_INNER_H

#include "gpu/hier/hier_path.h"

#include <pthread.h>

enum {
    KOLO_HIER_SCRATCH_BYTES = 8 << 20, /* what does not fit there goes in tiles */
    /* A layer's time-out comes later than what is inside it, which is more exact. */
    KOLO_HIER_GRACE_MS = 1000
};

struct kolo_hier_tie { /* what a layer's failure is told to */
    struct kolo_hier_path *path;
    struct kolo_comm *layer;
};

struct kolo_hier_path {
    struct kolo_hier_tie tie[2];
    struct kolo_comm *comm, *intra, *inter;
    struct kolo_path_env env;
    const struct kolo_hier_calls *calls;
    struct kolo_proxy *proxy; /* of `comm`: for calls that go in one layer */
    int *rank_of;             /* [groups * size]: of place i of group g in [g * size + i] */
    int *group_of;            /* [nranks] */
    bool in_order;            /* a group's ranks follow each other, and groups do */
    size_t least_bytes;
    const struct kolo_gpu *gpu;
    kolo_cuda_address scratch;
    pthread_mutex_t order; /* in calls that enqueue: the steps of one stay together */
    pthread_mutex_t gate;  /* while one layer's failure ends the other; of `closed` */
    bool closed;           /* they are being destroyed, one after the other */
};

static inline int kolo_hier_size(const struct kolo_hier_path *l)
{
    return l->intra->ranks.nranks;
}

static inline int kolo_hier_groups(const struct kolo_hier_path *l)
{
    return l->inter->ranks.nranks;
}

static inline int kolo_hier_rank_at(const struct kolo_hier_path *l, int group, int place)
{
    return l->rank_of[group * kolo_hier_size(l) + place];
}

static inline int kolo_hier_place_of(const struct kolo_hier_path *l, int rank)
{
    int place = 0;
    while (kolo_hier_rank_at(l, l->group_of[rank], place) != rank) {
        place++;
    }
    return place;
}

#endif
