// SPDX-License-Identifier: Apache-2.0
/* Matching the ends of messages on the host. A post is the first end of a message; it stays in a
 * list until the second end comes. The callers have p2p->lock. */
#ifndef KOLO_GPU_FUSED_P2P_MATCH_H
#define KOLO_GPU_FUSED_P2P_MATCH_H

#include "gpu/fused/p2p.h"

enum kolo_gpu_post_state {
    KOLO_GPU_POST_LISTED, /* in the list */
    KOLO_GPU_POST_TAKEN,  /* off the list: the other end's thread is enqueueing the copy */
    KOLO_GPU_POST_DONE,
    KOLO_GPU_POST_FAILED
};

struct kolo_gpu_p2p_post {
    struct kolo_gpu_p2p_post *next; /* the order of the calls */
    uint64_t number;
    struct kolo_gpu_message end;      /* a copy of the end */
    struct kolo_gpu_message *matched; /* the end itself, while its group is being matched */
    /* Outside graphs. The thread of the end waits for it, and frees the post. */
    enum kolo_gpu_post_state state;
    int taker; /* if DONE: the rank whose stream copies */
};

struct kolo_gpu_p2p_flags { /* of a message in a graph, in pinned memory */
    uint32_t came, taken;
};

struct kolo_gpu_p2p_events {     /* of a rank, for its group outside graphs */
    kolo_cuda_event came, taken; /* before its messages; behind its copies */
};

struct kolo_gpu_p2p {
    const struct kolo_gpu *gpu;
    int nranks;
    struct kolo_gpu_p2p_flags *host; /* [KOLO_GPU_P2P_GRAPHS] */
    kolo_cuda_address flags;         /* as the GPU addresses them */
    struct kolo_gpu_p2p_events events[KOLO_FUSED_RANKS];

    pthread_mutex_t lock; /* of the members below; never held while something is enqueued */
    pthread_cond_t ended; /* a post, or all */
    bool aborted;
    char text[512]; /* of the failure that FAILED posts had */
    struct kolo_gpu_p2p_post *first;
    uint64_t posts;
    size_t top;                        /* flags that were used */
    uint8_t uses[KOLO_GPU_P2P_GRAPHS]; /* graphs of each message: one or two */
    size_t users;                      /* the path, and uses of flags */
};

size_t kolo_gpu_message_bytes(const struct kolo_gpu_message *message);
/* Match the messages of a group with the posts of others, and post the rest. An error leaves no post
 * of the group. Errors: INVALID, MISMATCH, SYSTEM; UNSUPPORTED (too many messages in graphs). */
kolo_status kolo_gpu_p2p_match(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message,
                               size_t n);
/* Put a post into the list, in the order of the calls; take it out. */
void kolo_gpu_post_insert(struct kolo_gpu_p2p *p2p, struct kolo_gpu_p2p_post *post);
void kolo_gpu_post_drop(struct kolo_gpu_p2p *p2p, const struct kolo_gpu_p2p_post *post);

#endif
