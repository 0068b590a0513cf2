// SPDX-License-Identifier: Apache-2.0
/* Staging: calls on GPU memory by pinned memory and the collectives of the host.
 *
 * A long call is cut into tiles. They pass through a few slots of pinned memory for each direction:
 * while the host works on tile t, one stream copies tile t + 1 to the host and another stream
 * copies tile t - 1 back. The tiles of a call have different elements, so a call may be in place.
 * The thread waits for the event of the next copy that it needs, and for all copies at the end.
 * Long sends and receives skip all this if a NIC takes GPU memory: see gdr.h.
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

enum {
    KOLO_STAGING_SLOTS = 4,
    KOLO_STAGING_TILE = 2 << 20,   /* bytes of a tile, at most; */
    KOLO_STAGING_TILES = 8,        /* less if the call has fewer tiles than this, */
    KOLO_STAGING_SHORT = 256 << 10 /* and at least this */
};

struct kolo_staging_side { /* one direction: from a GPU, or to it */
    struct kolo_gpu_block *block;
    char *pinned;                              /* KOLO_STAGING_SLOTS tiles */
    kolo_cuda_stream stream;                   /* the pool's */
    kolo_cuda_event event[KOLO_STAGING_SLOTS]; /* after the last copy of a slot */
};

struct kolo_staging { /* used by one thread, in which the GPU's context is current */
    const struct kolo_gpu *gpu;
    struct kolo_comm *host; /* of the same ranks, on host memory */
    struct kolo_staging_side in, out;
    struct kolo_gdr gdr; /* for long messages */
};

/* Open it; *s has gpu and host, the rest is zero. Close it also after an error. Errors: SYSTEM. */
kolo_status kolo_staging_open(struct kolo_staging *s);
void kolo_staging_close(struct kolo_staging *s);

/* Run a call on GPU memory; not a barrier. No copy goes on when it returns. Errors: those of
 * collectives, SYSTEM. */
kolo_status kolo_staging_run(struct kolo_staging *s, const struct kolo_gpu_call *call,
                             const struct kolo_counts *v);
/* Run n sends and receives together. */
kolo_status kolo_staging_exchange(struct kolo_staging *s, const struct kolo_message *message,
                                  int n);

#endif
