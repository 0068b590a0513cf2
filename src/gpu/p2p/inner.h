// SPDX-License-Identifier: Apache-2.0
/* What the files of p2p_path.h share. */
#ifndef KOLO_GPU_P2P_INNER_H
#define KOLO_GPU_P2P_INNER_H

#include "exec/gpu/program/program_kernel.h"
#include "gpu/context/stream_order.h"
#include "gpu/ipc/registry.h"
#include "gpu/p2p/p2p_path.h"

#include <pthread.h>

enum {
    KOLO_P2P_PATH_CALLS = 8,
    KOLO_P2P_PATH_WORDS = 128 << 10 /* words of all long programs of a communicator */
};

struct kolo_p2p_path_pinned { /* memory of the host's that the GPU reads and writes */
    struct kolo_program_control control;
    uint64_t word[KOLO_P2P_PATH_WORDS];
};

struct kolo_p2p_path_plan {
    struct kolo_p2p_path_plan *next;
    const struct kolo_algo *algo;
    int root;
    struct kolo_plan *plan;
    struct kolo_program *program;
    uint64_t at; /* of its words; 0: they go with each launch */
};

struct kolo_p2p_path_call { /* a call that was made before */
    uint64_t key;           /* 0: none */
    size_t elem;
    struct kolo_ll_grid grid;
    kolo_cuda_function kernel;
    bool is_ll; /* of exec/gpu/ll/ll.h */
    union {
        struct kolo_program_launch launch;
        struct kolo_ll_launch ll;
    };
};

struct kolo_p2p_path {
    struct kolo_comm *comm;
    struct kolo_gpu gpu; /* as the proxy has it, which closes it */
    bool able;           /* it has its kernels */
    bool fast;           /* every pair is joined by NVLink */
    unsigned slices;     /* the most that a call may have; of the ledger's */
    bool direct;         /* calls may go from buffer to buffer */
    struct kolo_ipc_registry
        *registry;   /* of buffers, where not all ranks are in one process; else NULL */
    size_t ll_bytes; /* the longest call for exec/gpu/ll/ll.h, as kolo_ll_bytes() */
    struct kolo_program_room room;
    kolo_cuda_address slab[KOLO_PROGRAM_RANKS]; /* as this GPU sees them; 0: not mapped */
    bool opened[KOLO_PROGRAM_RANKS];            /* by a handle */
    struct kolo_p2p_path_pinned *pinned;
    kolo_cuda_address pinned_at; /* as the GPU sees it */
    kolo_cuda_stream stream;     /* for the slab's end */

    pthread_mutex_t order; /* of all below, in calls that enqueue */
    struct kolo_gpu_order calls;
    struct kolo_p2p_path_plan *plans;
    uint32_t nwords;              /* of their programs, pinned */
    struct kolo_chooser *chooser; /* of what rules force; NULL: not asked yet */
    struct kolo_p2p_path_call bound[KOLO_P2P_PATH_CALLS];
    unsigned next_bound;
};

/* Free its plans and its chooser. */
void kolo_p2p_path_forget(struct kolo_p2p_path *p);

/* ---- slab.c: memory that outlives its communicator until nobody stores to it ---- */

/* Of zeros, on the GPU whose context is entered, with a stream to look at it. Errors: SYSTEM. */
kolo_status kolo_p2p_path_slab_make(struct kolo_p2p_path *p);
/* Tell the others that this rank stores no more to theirs, and leave ours to be freed when all of
 * them have said so of it. */
void kolo_p2p_path_slab_leave(struct kolo_p2p_path *p);
/* Free ours at once: nobody has it mapped. */
void kolo_p2p_path_slab_drop(struct kolo_p2p_path *p);

#endif
