// SPDX-License-Identifier: Apache-2.0
/* The fused path, as open.c (join and leave), meet.c and fused_path.c (enqueue) see it. */
#ifndef KOLO_GPU_FUSED_INNER_H
#define KOLO_GPU_FUSED_INNER_H

#include "gpu/context/stream_ops.h"
#include "gpu/context/stream_order.h"
#include "gpu/fused/fused_path.h"

#include <pthread.h>
#include <stddef.h>

enum { KOLO_FUSED_RECENT = 64 };

struct kolo_fused_part { /* a rank's part of the path */
    bool here;
    uint64_t calls;
    struct kolo_gpu_order order;
    kolo_cuda_event joint; /* for calls that one thread makes for all ranks; in graphs, too */
    pthread_mutex_t lock;  /* of the members above, while a call of the rank is enqueued */
};

struct kolo_fused_recent { /* a call that some rank made, to compare the other ranks' calls with */
    uint64_t number;
    uint64_t key;
    int rank;
    enum kolo_coll coll;
    enum kolo_type type;
    size_t count;
    bool apart;         /* each rank enqueues its own part: in graphs */
    uint64_t shared_by; /* ranks that made it, and their streams */
    kolo_stream stream[KOLO_FUSED_RANKS];
};

struct kolo_fused_meeting { /* of the ranks' threads, for their next call */
    pthread_cond_t ended;
    const struct kolo_gpu_call *call[KOLO_FUSED_RANKS]; /* of the ranks that have come */
    int came;
    uint64_t number;    /* of the meetings that have ended */
    kolo_status status; /* of the last one; the next one needs all ranks, so they have read it */
    char text[512];
};

struct kolo_fused_path {
    struct kolo_fused_path *next;
    uint64_t comm;
    int nranks, members;
    struct kolo_gpu gpu;
    /* Pinned memory, so that an abort needs no driver: a struct kolo_fused_table, and the words of
     * p2p. */
    struct kolo_gpu_block *memory;
    kolo_cuda_address table; /* the table, as the GPU addresses it */
    struct kolo_gpu_p2p *p2p;
    kolo_cuda_event whole; /* behind the last kernel of all ranks, outside graphs */

    struct kolo_fused_part part[KOLO_FUSED_RANKS];
    /* Of the members below. Never held while something is enqueued: that may wait until a stream
     * has room, and this may wait for another rank's call. */
    pthread_mutex_t lock;
    struct kolo_fused_meeting meeting;
    struct kolo_fused_recent recent[KOLO_FUSED_RECENT]; /* call k in [k % KOLO_FUSED_RECENT] */
    bool aborted, releasing, stop;
    bool lost;  /* a call has not ended */
    bool waits; /* the GPU waits, or may when a graph is launched; it counts as a pending call */
    pthread_t releaser;
};

/* Compare the rank's next call, of which nothing is enqueued yet, with those of the other ranks.
 * The caller has path->lock. */
kolo_status kolo_fused_compare(struct kolo_fused_path *path, int rank,
                               const struct kolo_gpu_call *call, bool apart);
/* Enqueue the calls of all ranks. The caller, or a thread that waits for it, has the lock of each
 * part. */
kolo_status kolo_fused_enqueue_all(struct kolo_fused_path *path,
                                   const struct kolo_gpu_call *const *call);

#define CHECK(path, name, call) KOLO_CUDA(&(path)->gpu, name, call)

static inline kolo_cuda_address kolo_fused_field(const struct kolo_fused_path *path, int rank,
                                                 size_t offset)
{
    return path->table + offsetof(struct kolo_fused_table, rank) +
           (size_t)rank * sizeof(struct kolo_fused_rank) + offset;
}
#define FIELD(path, r, member) kolo_fused_field(path, r, offsetof(struct kolo_fused_rank, member))

#endif
