// SPDX-License-Identifier: Apache-2.0
/* What a communicator keeps for its calls: the queue, and caches of plans and programs. */
#ifndef KOLO_CORE_CALL_STATE_H
#define KOLO_CORE_CALL_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_BOUNDS = 512, KOLO_BOUND_WAYS = 4, KOLO_MEMOS = 128 };

struct kolo_algo;
struct kolo_bound;
struct kolo_comm;
struct kolo_memo;
struct kolo_plan;
struct kolo_premulsum;
struct kolo_prog;
struct kolo_queued;
struct kolo_shared_memo;

struct kolo_cached_plan {
    struct kolo_cached_plan *next;
    const struct kolo_algo *algo;
    int root;
    struct kolo_plan *plan;
};
struct kolo_cached_prog {
    struct kolo_cached_prog *next;
    const struct kolo_plan *plan;
    uint64_t links; /* hash of the link bits it was lowered for */
    struct kolo_prog *prog;
};
struct kolo_cached_bound { /* in one of the KOLO_BOUND_WAYS places that its numbers give */
    const struct kolo_prog *prog;
    size_t count, elem, tile_bytes;
    uint64_t used;
    struct kolo_bound *bound;
    uint64_t memos[KOLO_MEMOS / 64], shared_memos[KOLO_MEMOS / 64]; /* bits: those that had it */
};

struct kolo_programs {                    /* by who holds queue.busy */
    struct kolo_memo *memo;               /* [KOLO_MEMOS] the call cache, see memo.h */
    struct kolo_shared_memo *shared_memo; /* [KOLO_MEMOS] */
    struct kolo_cached_plan *plans;
    struct kolo_cached_prog *progs;
    struct kolo_cached_bound *bounds; /* [KOLO_BOUNDS] */
    uint64_t uses;
    bool sharing;   /* large calls look at what memory is shared; alike on all ranks */
    bool announced; /* this rank has said from when on */
};

struct kolo_call_queue {
    _Atomic int busy;                   /* one thread runs calls */
    pthread_mutex_t lock;               /* of head, tail, premulsums */
    _Atomic(struct kolo_queued *) head; /* written under lock */
    struct kolo_queued *tail;
    _Atomic unsigned moves;            /* counts steps of queued calls that got on, and messages */
    struct kolo_premulsum *premulsums; /* operations that the user created */
    struct kolo_comm *leaving;         /* the next one destroyed in the same group */
    void (*destroy)(struct kolo_comm *);
};

#endif
