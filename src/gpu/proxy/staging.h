// SPDX-License-Identifier: Apache-2.0
/* Staging: calls on GPU memory by pinned memory and the collectives of the host.
 *
 * A long call is cut into tiles. They pass through two slots of pinned memory for each direction:
 * while the host works on tile t, one round of copies (rounds.h) brings tile t + 1 to the host and
 * tile t - 1 back. The tiles of a call have different elements, so a call may be in place. Long
 * sends and receives skip all this if a NIC takes GPU memory: see gdr.h.
 *
 * The driver copies, and not rounds that are enqueued with the call: if there are no kernels; for
 * messages that may use GPUDirect RDMA, which is known only when they run; and for calls of ranks
 * that share a GPU, which need no copies if rank 0 can open their memory, as only rank 0 knows.
 *
 * The floor: an all-reduce of S bytes moves S bytes over PCIe in each direction, at the same time.
 * So it takes as long as the slowest of three, plus a tile of the other two: S bytes to the host, S
 * bytes from the host, and the host's own all-reduce of S bytes, to whose memory traffic the copies
 * add 2 S. */
#ifndef KOLO_GPU_PROXY_STAGING_H
#define KOLO_GPU_PROXY_STAGING_H

#include "core/call/call.h"
#include "gpu/context/gpu.h"
#include "gpu/proxy/gdr.h"
#include "gpu/proxy/rounds.h"

enum {
    KOLO_STAGING_SLOTS = 2,
    KOLO_STAGING_TILE = 2 << 20,   /* bytes of a tile, at most; */
    KOLO_STAGING_TILES = 8,        /* less if the call has fewer tiles than this, */
    KOLO_STAGING_SHORT = 256 << 10 /* and at least this */
};

struct kolo_staging { /* used by one thread, in which the GPU's context is current */
    const struct kolo_gpu *gpu;
    struct kolo_comm *host; /* of the same ranks, on host memory */
    struct kolo_rounds rounds;
    struct kolo_gdr gdr; /* for long messages */
};

/* Open it; *s has gpu, host and open rounds, the rest is zero. Close it also after an error. Errors:
 * SYSTEM. */
kolo_status kolo_staging_open(struct kolo_staging *s);
void kolo_staging_close(struct kolo_staging *s);
/* Copies of a round, at most, that a communicator of so many ranks needs. */
static inline int kolo_staging_copies(int nranks)
{
    enum { LEAST = 64 /* messages of a group */ };
    return 2 * nranks > LEAST ? 2 * nranks : LEAST;
}

/* Before a call or n messages are enqueued, by who enqueues: the rounds that they take, and their
 * pinned memory. `may_fuse`: ranks that share the GPU may run the call. Errors: SYSTEM. */
kolo_status kolo_staging_plan(struct kolo_staging *s, const struct kolo_gpu_call *call,
                              const struct kolo_counts *v, bool may_fuse,
                              struct kolo_rounds_plan *out);
kolo_status kolo_staging_plan_exchange(struct kolo_staging *s, const struct kolo_message *message,
                                       int n, struct kolo_rounds_plan *out);

/* Run a call on GPU memory by its plan; not a barrier. After a success no copy goes on. Errors:
 * those of collectives, SYSTEM. */
kolo_status kolo_staging_run(struct kolo_staging *s, const struct kolo_gpu_call *call,
                             const struct kolo_counts *v, const struct kolo_rounds_plan *plan);
/* Run n sends and receives together. */
kolo_status kolo_staging_exchange(struct kolo_staging *s, const struct kolo_message *message, int n,
                                  const struct kolo_rounds_plan *plan);

#endif
