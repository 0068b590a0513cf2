// SPDX-License-Identifier: Apache-2.0
/* Messages between ranks that share one GPU in one process (see fused_path.h).
 *
 * The host matches the two ends of a message when the calls are made: in their order, by source and
 * tag, like messages in host memory. The first caller posts its end. The second caller knows both
 * buffers, and its stream does the work: it waits until the first stream has come to its end, and
 * copies. The first stream waits for that. All ends of a group first announce that they have come,
 * then copy, then wait. So exchanges in a group never wait for each other. If both ends are in one
 * group and one stream, the message is one copy and nothing else.
 *
 * The thread of the first caller waits on the host until the copy is enqueued, and the streams wait
 * by events that are recorded already. So no stream waits for a call that is still to come: that
 * call might not get past a call of the driver that waits for the GPU, such as cuMemFree.
 *
 * In graphs no thread waits. The streams wait for each other by two flags of the message, which go
 * to 1 and back, because a graph stores the same values at each launch. The flags end with the
 * graphs. */
#ifndef KOLO_GPU_FUSED_P2P_H
#define KOLO_GPU_FUSED_P2P_H

#include "core/call/call.h"
#include "gpu/context/gpu.h"

enum {
    KOLO_GPU_P2P_GRAPHS = 8192, /* messages in all graphs of a fused path */
    KOLO_GPU_P2P_BLOCK = -3     /* tag of blocks of collectives, whose lengths must be equal */
};

enum kolo_gpu_message_part {
    KOLO_GPU_MESSAGE_NONE,  /* nothing is left to do */
    KOLO_GPU_MESSAGE_WAITS, /* the stream announces the post, and waits for the copy */
    KOLO_GPU_MESSAGE_COPIES /* the stream waits for the other end's stream, copies, and tells it */
};

struct kolo_gpu_p2p_post;

struct kolo_gpu_message { /* one end of a message */
    int rank;             /* of this end */
    struct kolo_message m;
    kolo_stream stream; /* the same for all messages of a rank in a group */
    bool captured;

    /* Set by kolo_gpu_p2p_enqueue(): */
    enum kolo_gpu_message_part part;
    bool apart; /* the other end has another stream, or comes in another call */
    struct kolo_gpu_p2p_post *other; /* the post that this end has taken */
    struct kolo_gpu_p2p_post *post;  /* this end's own, outside graphs */
    size_t flags;                    /* of the message, in a graph */
};

struct kolo_gpu_p2p;

/* The GPU's context is current, here and below. Errors: SYSTEM. */
/* `host` is pinned memory of kolo_gpu_p2p_bytes(), all zeros, which the GPU addresses as `at`. The
 * caller closes *out, if it is set, also after an error. */
size_t kolo_gpu_p2p_bytes(void);
kolo_status kolo_gpu_p2p_open(const struct kolo_gpu *gpu, int nranks, void *host,
                              kolo_cuda_address at, struct kolo_gpu_p2p **out);
void kolo_gpu_p2p_close(struct kolo_gpu_p2p *p2p);

/* The messages of a rank's part in a collective by messages. Returns their number, at most
 * 2 * nranks. */
size_t kolo_gpu_p2p_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                           struct kolo_gpu_message *out);

/* Match the messages of a group, enqueue their operations, and wait at most `timeout_ms` for the
 * other ends of those outside graphs. No other thread enqueues for their ranks meanwhile. After
 * INVALID nothing has happened. Errors: INVALID (a stream or a thread that would wait for itself;
 * one end in a graph and the other not; a message longer than this call's buffer), UNSUPPORTED (too
 * many messages in graphs), MISMATCH (a message longer than the other end's buffer, blocks of
 * different lengths), TIMEOUT, ABORTED, SYSTEM. */
kolo_status kolo_gpu_p2p_enqueue(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                                 size_t n, int timeout_ms);

/* Let the threads and streams that wait for messages go on, without the driver. No more messages
 * are enqueued. Each call of this releases the others. */
void kolo_gpu_p2p_release(struct kolo_gpu_p2p *p2p);

#endif
