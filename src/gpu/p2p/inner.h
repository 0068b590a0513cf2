// SPDX-License-Identifier: Apache-2.0
/* The P2P path, as its files see it. */
#ifndef KOLO_GPU_P2P_INNER_H
#define KOLO_GPU_P2P_INNER_H

#include "exec/gpu/program/program_kernel.h"
#include "gpu/context/stream_order.h"
#include "gpu/ipc/mapping.h"
#include "gpu/ipc/registry.h"
#include "gpu/p2p/p2p_path.h"

#include <pthread.h>

enum {
    KOLO_P2P_PATH_CALLS = 8,
    KOLO_P2P_PATH_WORDS = 128 << 10 /* words of all pinned programs of a communicator */
};

struct kolo_p2p_path_pinned { /* host memory that the GPU reads and writes */
    struct kolo_program_control control;
    uint64_t word[KOLO_P2P_PATH_WORDS];
};

struct kolo_p2p_path_plan {
    struct kolo_p2p_path_plan *next;
    const struct kolo_algo *algo;
    int root;
    struct kolo_plan *plan;
    struct kolo_program *program;
    uint64_t at; /* address of its words; 0: each launch carries them */
};

struct kolo_p2p_path_call { /* a bound call, for the next equal call */
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
    struct kolo_gpu gpu;                /* a copy of the proxy's, which closes it */
    bool able;                          /* its kernels are loaded */
    bool fast;                          /* NVLink joins every pair of GPUs */
    unsigned slices;                    /* the most blocks of a call; reserved in the ledger */
    bool direct;                        /* zero-copy: kernels may use the buffers of other ranks */
    struct kolo_ipc_registry *registry; /* of buffers; NULL: all ranks are in one process */
    uint64_t ll_bytes;                  /* the longest LL call, as kolo_ll_bytes() counts */
    struct kolo_program_room room;
    kolo_cuda_address slab[KOLO_PROGRAM_RANKS];         /* addresses on this GPU; 0: not mapped */
    struct kolo_ipc_mapped *opened[KOLO_PROGRAM_RANKS]; /* those that are mapped by a handle */
    struct kolo_gpu_block *own, *host; /* of the slab of this rank, and of `pinned` */
    struct kolo_p2p_path_pinned *pinned;
    kolo_cuda_address pinned_at; /* the GPU's address of `pinned` */

    pthread_mutex_t order; /* of the members below, while a call is enqueued */
    struct kolo_gpu_order calls;
    struct kolo_p2p_path_plan *plans;
    uint32_t nwords;              /* of the pinned programs */
    struct kolo_chooser *chooser; /* for algorithms that rules force; NULL: not needed yet */
    struct kolo_p2p_path_call bound[KOLO_P2P_PATH_CALLS];
    unsigned next_bound;
};

/* Free the plans and the chooser. */
void kolo_p2p_path_forget(struct kolo_p2p_path *p);

/* ---- slab.c: a slab outlives its communicator until no rank stores to it ---- */

/* Take memory for this rank's slab, all zeros. The GPU's context is current. Errors: SYSTEM. */
kolo_status kolo_p2p_path_slab_make(struct kolo_p2p_path *p);
/* Tell the other ranks that this rank stores no more to their slabs. This rank's slab is freed when
 * all of them have told the same. */
void kolo_p2p_path_slab_leave(struct kolo_p2p_path *p);
/* Give this rank's slab back at once: no rank has mapped it. */
void kolo_p2p_path_slab_drop(struct kolo_p2p_path *p);

#endif
