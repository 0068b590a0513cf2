// SPDX-License-Identifier: Apache-2.0
/* The proxy, as proxy.c (calls and the thread) and open.c (opening, aborting, closing) see it. */
#ifndef KOLO_GPU_PROXY_INNER_H
#define KOLO_GPU_PROXY_INNER_H

#include "gpu/context/stream_order.h"
#include "gpu/proxy/proxy.h"
#include "gpu/proxy/shared_gpu.h"
#include "gpu/proxy/staging.h"

/* Entries of streams for a rank's calls that are enqueued and not served, at most; not those of
 * graphs. A stream has room for about 1024. A call takes those of its rounds, and up to so many
 * more: two for other paths, two for its order, the host function, a kernel and what tells its
 * end. */
enum { KOLO_PROXY_ENTRIES = 960, KOLO_PROXY_CALL_ENTRIES = 7 };

struct kolo_proxy_job { /* a call of this rank, for the thread */
    struct kolo_proxy_job *next;
    struct kolo_proxy *proxy;
    struct kolo_gpu_call call;
    struct kolo_counts v;
    struct kolo_rounds_plan plan;
    struct kolo_shared_gpu_met met; /* if ranks that share the GPU can run it */
    _Atomic int users;              /* who enqueues it and the thread, or `kept` and the graph */
    /* [nmessages], instead of a collective; then only call.stream is set. */
    struct kolo_message *message;
    int nmessages;
    struct kolo_proxy_job *kept; /* the next job of a graph; a graph may bring its jobs again */
    bool captured;
    _Atomic bool ended; /* of a graph: it is not pending any more */
};

struct kolo_proxy {
    struct kolo_comm *comm, *host;
    struct kolo_comm *desk;              /* for those who enqueue; NULL unless `fuses` */
    void (*destroy)(struct kolo_comm *); /* of `host` and `desk` */
    struct kolo_gpu gpu;
    bool fuses;
    bool lost;                    /* a call has not ended */
    struct kolo_gpu_block *words; /* of staging.rounds and of shared.words */
    struct kolo_staging staging;  /* only the thread uses it */
    struct kolo_shared_gpu shared;

    /* Of the members up to `lock`, and of a part of `shared`. It is held while a call is enqueued,
     * which may wait until a stream has room, or for other ranks; so the thread never takes it. */
    pthread_mutex_t order;
    struct kolo_gpu_order calls;
    struct kolo_proxy_job *kept;

    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t came, room;
    int ahead; /* entries of calls outside of graphs that are enqueued and not served */
    struct kolo_proxy_job *first, **last;
    uint64_t served;    /* jobs */
    bool serving;       /* a job */
    bool aborted, stop; /* the thread ends when no jobs are left */
    pthread_t thread;
    bool releasing, released; /* the releaser runs; it shall end */
    pthread_t releaser;
};

/* The function of the thread: run the jobs until `stop`. */
void *kolo_proxy_run(void *proxy);
void kolo_proxy_job_leave(struct kolo_proxy_job *job);
/* A job of a graph is not pending any more. */
void kolo_proxy_job_end(struct kolo_proxy_job *job);

#endif
