// SPDX-License-Identifier: Apache-2.0
/* Messages between ranks that share one GPU in one process (see fused_path.h).
 *
 * Ends of messages are matched on the host, when the calls are made: in their order, by source and
 * tag, as messages of host memory are. Whoever calls first posts its end; whoever calls second
 * knows both buffers, and its stream copies, once the first one's stream says that it has come, and
 * tells that stream, which waits for it. All ends of a group say first, then copy, then wait: so
 * exchanges in a group never wait for each other. Ends that meet in one group and one stream are a
 * copy and nothing else.
 *
 * What streams say is the post's number, which only grows: the word of a rank's posts never goes
 * back, and one that waits for a later post is not misled by an earlier one. In graphs, which bring
 * the same values each time, a message has two flags of its own instead, which go to 1 and back. */
#ifndef KOLO_GPU_FUSED_P2P_H
#define KOLO_GPU_FUSED_P2P_H

#include "core/call/call.h"
#include "gpu/context/gpu.h"

enum {
    KOLO_GPU_P2P_POSTS = 1024,  /* ends of one rank that a group may post */
    KOLO_GPU_P2P_GRAPHS = 8192, /* messages that the graphs of a fused hold, in all */
    KOLO_GPU_P2P_BLOCK = -3     /* tag of blocks of collectives, whose lengths must be equal */
};

enum kolo_gpu_message_part {
    KOLO_GPU_MESSAGE_NONE,  /* nothing is left to do */
    KOLO_GPU_MESSAGE_WAITS, /* says that it has come, and waits */
    KOLO_GPU_MESSAGE_COPIES /* waits for the other end's stream, copies, tells it */
};

struct kolo_gpu_p2p_pending;

struct kolo_gpu_message { /* one end of a message */
    int rank;             /* whose */
    struct kolo_message m;
    kolo_stream stream; /* one for all messages of a rank in a group */
    bool captured;

    /* Of the p2p's: */
    enum kolo_gpu_message_part part;
    bool apart; /* the other end has another stream, or comes in another call */
    struct kolo_gpu_p2p_pending *other;
    kolo_cuda_address came, taken; /* words of the post */
    uint64_t value;
};

struct kolo_gpu_p2p;

/* The GPU's context is entered, here and below. Errors: SYSTEM. */
kolo_status kolo_gpu_p2p_open(const struct kolo_gpu *gpu, int nranks, struct kolo_gpu_p2p **out);
void kolo_gpu_p2p_close(struct kolo_gpu_p2p *p2p);

/* Messages of rank r's part in a call by messages; at most 2 * nranks. Returns how many. */
size_t kolo_gpu_p2p_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                           struct kolo_gpu_message *out);

/* Match the messages of a group and enqueue what they are; nobody else enqueues for their ranks
 * meanwhile. Errors: INVALID (a stream that would wait for itself, an end in a graph and one that
 * is not, a message longer than the room that this call has for it: nothing happened), UNSUPPORTED
 * (too many), MISMATCH (a message longer than the other end's room, blocks of different lengths),
 * SYSTEM. */
kolo_status kolo_gpu_p2p_enqueue(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                                 size_t n);

/* Let streams that wait for messages go on, by operations of `stream`. Once no messages are
 * enqueued any more, ends that met end by their copies; the others are told, by each call of this.
 */
kolo_status kolo_gpu_p2p_release(struct kolo_gpu_p2p *p2p, kolo_cuda_stream stream);

#endif
