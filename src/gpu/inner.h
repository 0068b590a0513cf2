// SPDX-License-Identifier: Apache-2.0
/* What the files of the path share.
 *
 * join.c  decides which ways the ranks of a communicator have, and opens them.
 * path.c  finds whose memory a buffer is, and takes calls on memory of the GPU.
 * group.c collects the calls of a group.
 * way.c   sends a call the way it goes:
 *
 *   fused   the ranks are threads of one process on one GPU: fused/fused_path.h
 *   p2p     each rank has a GPU, and its kernels store to the others': p2p/p2p_path.h
 *   hier    groups of ranks of one of both kinds: hier/hier_path.h
 *   proxy   through host memory: proxy/proxy.h. It stands beside p2p and hier for the calls that
 *           these cannot serve. */
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
    /* The ways that there are; each is NULL or open from joining to leaving. */
    struct kolo_fused_path *fused;
    struct kolo_p2p_path *p2p;
    struct kolo_hier_path *hier;
    struct kolo_proxy *proxy;
};

/* That of a communicator which is up; NULL: it has none. */
static inline struct kolo_gpu_path *kolo_gpu_path_of(const struct kolo_comm *c)
{
    struct kolo_comm_path *path = atomic_load(&c->path);
    return (struct kolo_gpu_path *)(void *)path;
}

/* join.c: as struct kolo_path_ops says. */
kolo_status kolo_gpu_path_join(const struct kolo_path_env *env, struct kolo_comm_path **out);
void kolo_gpu_path_leave(struct kolo_comm_path *path, int timeout_ms);
void kolo_gpu_path_abort(struct kolo_comm_path *path);

/* way.c: as struct kolo_path_ops says. */
kolo_status kolo_gpu_path_poll(struct kolo_comm_path *path, int *rank_out);
/* Enqueue a call on memory of the GPU, at once; takes v->all if it sets it to NULL. Errors:
 * those of the way. */
kolo_status kolo_gpu_path_enqueue(struct kolo_gpu_path *path, const struct kolo_gpu_call *call,
                                  struct kolo_counts *v);
/* The same for n messages of one stream, which go together. Not on the fused way. */
kolo_status kolo_gpu_path_enqueue_messages(struct kolo_gpu_path *path, const struct kolo_message *m,
                                           int n, kolo_stream stream);
/* What the hierarchical way asks about its layers. */
extern const struct kolo_hier_calls kolo_gpu_hier_calls;

/* group.c: keep a call for the end of the group; takes what `call` owns. Errors: SYSTEM. */
kolo_status kolo_gpu_group_add(struct kolo_gpu_path *path, struct kolo_call *call,
                               const struct kolo_gpu_call *gpu_call);
kolo_status kolo_gpu_group_add_message(struct kolo_gpu_path *path, const struct kolo_message *m,
                                       kolo_stream stream);
/* Enqueue what this thread's group collected. */
kolo_status kolo_gpu_group_end(void);

/* A call ends with `st`, and the communicator with it, unless only the arguments were wrong. */
static inline kolo_status kolo_gpu_path_ended(struct kolo_comm *c, kolo_status st)
{
    return st <= KOLO_ERR_MISMATCH ? kolo_comm_fail(c, st) : st;
}

#endif
