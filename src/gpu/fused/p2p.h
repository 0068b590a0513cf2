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
#include "gpu/gpu.h"

enum {
    KOLO_MAIL_POSTS = 1024,  /* ends of one rank that a group may post */
    KOLO_MAIL_GRAPHS = 8192, /* messages that the graphs of a team hold, in all */
    KOLO_MAIL_BLOCK = -3     /* tag of blocks of collectives, whose lengths must be equal */
};

enum kolo_letter_part {
    KOLO_LETTER_NONE,  /* nothing is left to do */
    KOLO_LETTER_WAITS, /* says that it has come, and waits */
    KOLO_LETTER_COPIES /* waits for the other end's stream, copies, tells it */
};

struct kolo_mail_post;

struct kolo_letter { /* one end of a message */
    int rank;        /* whose */
    struct kolo_message m;
    kolo_stream stream; /* one for all letters of a rank in a group */
    bool captured;

    /* Of the mail's: */
    enum kolo_letter_part part;
    bool apart; /* the other end has another stream, or comes in another call */
    struct kolo_mail_post *other;
    kolo_cuda_address came, taken; /* words of the post */
    uint64_t value;
};

struct kolo_mail;

/* The GPU's context is entered, here and below. Errors: SYSTEM. */
kolo_status kolo_mail_open(const struct kolo_gpu *gpu, int nranks, struct kolo_mail **out);
void kolo_mail_close(struct kolo_mail *mail);

/* Letters of rank r's part in a call by messages; at most 2 * nranks. Returns how many. */
size_t kolo_mail_blocks(const struct kolo_gpu_call *call, int rank, int nranks,
                        struct kolo_letter *out);

/* Match the letters of a group and enqueue what they are; nobody else enqueues for their ranks
 * meanwhile. Errors: INVALID (a stream that would wait for itself, an end in a graph and one that
 * is not, a message longer than the room that this call has for it: nothing happened), UNSUPPORTED
 * (too many), MISMATCH (a message longer than the other end's room, blocks of different lengths),
 * SYSTEM. */
kolo_status kolo_mail_enqueue(struct kolo_mail *mail, struct kolo_letter *letter, size_t n);

/* Let streams that wait for letters go on, by operations of `stream`. Once no letters are enqueued
 * any more, ends that met end by their copies; the others are told, by each call of this. */
kolo_status kolo_mail_release(struct kolo_mail *mail, kolo_cuda_stream stream);

#endif
