// SPDX-License-Identifier: Apache-2.0
/* Declarations that the files of the GPU path share.
 *
 * join.c  decides which of the four ways the ranks of a communicator can use, and opens them.
 * path.c  finds out which memory a buffer is in, and takes the calls on GPU memory.
 * group.c collects the calls of a group.
 * way.c   sends each call one of four ways:
 *
 *   fused   the ranks are threads of one process on one GPU: fused/fused_path.h
 *   p2p     each rank has a GPU, and its kernels store to the other GPUs: p2p/p2p_path.h
 *   hier    the ranks form groups, and each group is fused or p2p: hier/hier_path.h
 *   proxy   calls go through host memory: proxy/proxy.h. A communicator with p2p or hier has a
 *           proxy, too, for the calls that these two cannot serve. */
#ifndef KOLO_GPU_INNER_H
#define KOLO_GPU_INNER_H

#include "core/call/call.h"
#include "core/path.h"
#include "gpu/fused/fused_path.h"
#include "gpu/hier/hier_path.h"
#include "gpu/p2p/p2p_path.h"
#include "gpu/proxy/proxy.h"

struct kolo_gpu_path {
    struct kolo_comm_path base;
    struct kolo_path_env env;
    struct kolo_comm *comm;
    /* A way that this communicator has not is NULL. The others are open from join to leave. */
    struct kolo_fused_path *fused;
    struct kolo_p2p_path *p2p;
    struct kolo_hier_path *hier;
    struct kolo_proxy *proxy;
};

/* The GPU path of a communicator that has joined. NULL: it has none. */
static inline struct kolo_gpu_path *kolo_gpu_path_of(const struct kolo_comm *c)
{
    struct kolo_comm_path *path = atomic_load(&c->path);
    return (struct kolo_gpu_path *)(void *)path;
}

/* join.c: the slots of struct kolo_path_ops. */
kolo_status kolo_gpu_path_join(const struct kolo_path_env *env, struct kolo_comm_path **out);
void kolo_gpu_path_leave(struct kolo_comm_path *path, int timeout_ms);
void kolo_gpu_path_abort(struct kolo_comm_path *path);

/* way.c: a slot of struct kolo_path_ops. */
kolo_status kolo_gpu_path_poll(struct kolo_comm_path *path, int *rank_out);
/* Enqueue a call on memory of the GPU at once. If v->all is NULL afterwards, the path has taken
 * the counts. Errors: those of the way. */
kolo_status kolo_gpu_path_enqueue(struct kolo_gpu_path *path, const struct kolo_gpu_call *call,
                                  struct kolo_counts *v);
/* Enqueue n messages of one stream together. Not for the fused way. */
kolo_status kolo_gpu_path_enqueue_messages(struct kolo_gpu_path *path, const struct kolo_message *m,
                                           int n, kolo_stream stream);
/* What the hierarchical way needs to know of its two layers. */
extern const struct kolo_hier_calls kolo_gpu_hier_calls;

/* group.c: keep a call until the end of the group, and take the counts that `call` owns. Errors:
 * SYSTEM. */
kolo_status kolo_gpu_group_add(struct kolo_gpu_path *path, struct kolo_call *call,
                               const struct kolo_gpu_call *gpu_call);
kolo_status kolo_gpu_group_add_message(struct kolo_gpu_path *path, const struct kolo_message *m,
                                       kolo_stream stream);
/* Enqueue the calls and messages of this thread's group. */
kolo_status kolo_gpu_group_end(void);

/* The status of a call that ends with `st`. A failure ends the communicator, too, unless only the
 * arguments were wrong. */
static inline kolo_status kolo_gpu_path_ended(struct kolo_comm *c, kolo_status st)
{
    return st <= KOLO_ERR_MISMATCH ? kolo_comm_fail(c, st) : st;
}

#endif
