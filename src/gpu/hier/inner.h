// SPDX-License-Identifier: Apache-2.0
/* The hierarchical path, as hier_path.c (layers), steps.c (the steps of a call) and run.c (which
 * enqueues them) see it. */
#ifndef KOLO_GPU_HIER_INNER_H
#define KOLO_GPU_HIER_INNER_H

#include "gpu/hier/hier_path.h"

#include <pthread.h>

enum {
    KOLO_HIER_SCRATCH_BYTES = 8 << 20, /* a call that does not fit goes in tiles */
    /* The inter layer times out later than the calls inside a group, whose message is more
     * exact. */
    KOLO_HIER_GRACE_MS = 1000
};

struct kolo_hier_tie { /* the observer of a layer's failure */
    struct kolo_hier_path *path;
    struct kolo_comm *layer;
};

struct kolo_hier_path {
    struct kolo_hier_tie tie[2];
    struct kolo_comm *comm, *intra, *inter;
    struct kolo_path_env env;
    const struct kolo_hier_calls *calls;
    struct kolo_proxy *proxy; /* of `comm`, for calls that go in one layer */
    int *rank_of;  /* [groups * size]: [g * size + i] is the rank at place i of group g */
    int *group_of; /* [nranks] */
    bool in_order; /* the groups in their order have the ranks in their order */
    size_t least_bytes;
    const struct kolo_gpu *gpu;
    struct kolo_gpu_block *block; /* of the scratch */
    kolo_cuda_address scratch;
    pthread_mutex_t order; /* while a call is enqueued, so that its steps stay together */
    pthread_mutex_t gate;  /* of `closed`, and while one layer's failure ends the other */
    bool closed;           /* the layers are being destroyed */
};

struct kolo_hier_step {      /* a call of a layer, or copies into the scratch */
    struct kolo_comm *layer; /* NULL: copies */
    struct kolo_gpu_call call;
    struct kolo_counts v; /* owned; those of `call` */
    /* Copies: elements [at, at + count) of the blocks of the group's ranks, one after the other. */
    int group;
    size_t at, count;
};

struct kolo_hier_run { /* a call of a rank, while its steps are enqueued */
    struct kolo_hier_path *path;
    const struct kolo_gpu_call *call;
    bool meets; /* the threads of a group meet for the calls of `intra` */
    struct kolo_hier_step *step;
    int nsteps, room, next;
};

/* steps.c: add the steps of a call, which are the same on all ranks of a group but for those of
 * `inter`. Errors: SYSTEM. */
kolo_status kolo_hier_run_plan(struct kolo_hier_run *run);
/* run.c: takes step->v in any case. Errors: SYSTEM. */
kolo_status kolo_hier_run_add(struct kolo_hier_run *run, const struct kolo_hier_step *step);

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
