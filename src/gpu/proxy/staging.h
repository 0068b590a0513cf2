// SPDX-License-Identifier: Apache-2.0
/* GPU memory through pinned memory and the collectives of the host.
 *
 * A long call is cut into tiles, which pass through a few slots of pinned memory for each
 * direction: while the host works on tile t, a stream brings tile t + 1 and another one takes tile
 * t - 1 back. Tiles of one call touch different elements, so a call may be in place. The thread
 * waits for the event of the copy that it needs next, and once for all at the end. Long sends and
 * receives go past all that where a NIC takes memory of the GPU: see gdr.h.
 *
 * The floor: an all-reduce of S bytes takes S bytes over PCIe each way, at once. So it takes as
 * long as the slowest of three: S at the rate of PCIe to the host, S at the rate from it, the
 * host's own all-reduce of S bytes (whose memory traffic the copies add 2 S to); and a tile of the
 * other two. */
#ifndef KOLO_GPU_PROXY_STAGING_H
#define KOLO_GPU_PROXY_STAGING_H

#include "core/call/call.h"
#include "gpu/gpu.h"
#include "gpu/proxy/gdr.h"

enum {
    KOLO_STAGING_SLOTS = 4,
    KOLO_STAGING_TILE = 2 << 20,   /* bytes, at most; */
    KOLO_STAGING_TILES = 8,        /* shorter ones if the call has fewer than so many, */
    KOLO_STAGING_SHORT = 256 << 10 /* but not below this */
};

struct kolo_staging_side { /* from a GPU, or to it */
    char *pinned;          /* KOLO_STAGING_SLOTS tiles */
    kolo_cuda_stream stream;
    kolo_cuda_event event[KOLO_STAGING_SLOTS]; /* after the last copy of a slot */
};

struct kolo_staging { /* one thread's, the GPU's context is entered */
    const struct kolo_gpu *gpu;
    struct kolo_comm *host; /* of the same ranks, on host memory */
    struct kolo_staging_side in, out;
    struct kolo_direct direct; /* for long messages that need not go through the host */
};

/* `s` has gpu and host, the rest is zero. Errors: SYSTEM; close it then, too. */
kolo_status kolo_staging_open(struct kolo_staging *s);
void kolo_staging_close(struct kolo_staging *s);

/* Make a call whose buffers are of the GPU; not a barrier. No copy goes on when it returns. Errors:
 * those of collectives, SYSTEM. */
kolo_status kolo_staging_run(struct kolo_staging *s, const struct kolo_gpu_call *call,
                             const struct kolo_counts *v);
/* The same for n sends and receives, which go together. */
kolo_status kolo_staging_exchange(struct kolo_staging *s, const struct kolo_message *message,
                                  int n);

#endif
