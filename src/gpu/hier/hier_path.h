// SPDX-License-Identifier: Apache-2.0
/* Calls on GPU memory in two layers, where ranks fall into groups of equal size that need no host
 * among themselves: those of a host on a GPU each, or threads on one GPU.
 *
 * Each rank is a member of two more communicators: `intra`, of its group, and `inter`, of the ranks
 * with its place in each group. Of G groups of S ranks, a call is a few calls of those, enqueued
 * one after the other on its stream:
 *
 *   all-reduce      intra: reduce-scatter   inter: all-reduce of 1/S   intra: all-gather
 *   reduce-scatter  intra: reduce-scatter, for each group the blocks of its ranks
 *                                           inter: reduce-scatter
 *   all-gather                              inter: all-gather          intra: all-gather, G times
 *   broadcast       intra: scatter, in the root's group
 *                                           inter: broadcast of 1/S    intra: all-gather
 *   reduce          intra: reduce-scatter   inter: reduce of 1/S       intra: gather, to the root
 *
 * So what a rank sends beyond its group, which most often goes through host memory and a network,
 * is 1/S of what it is in one layer. The idea is that of hierarchical collectives, as in Karonis et
 * al. 2000, doi:10.1109/IPDPS.2000.846009. What S does not divide, less than 16 bytes and an
 * element a rank, goes whole in each group and between their last ranks.
 *
 * Sums of floats are rounded once in each layer, an average is that of the groups' averages: not
 * the bits of one layer, so not where the communicator is deterministic. All else is exact. */
#ifndef KOLO_GPU_HIER_HIER_PATH_H
#define KOLO_GPU_HIER_HIER_PATH_H

#include "core/path.h"
#include "gpu/context/gpu.h"
#include "gpu/proxy/proxy.h"

struct kolo_hier_path;

/* Which way calls of a layer go. */
enum kolo_hier_way { KOLO_HIER_FUSED, KOLO_HIER_P2P, KOLO_HIER_HIER, KOLO_HIER_PROXY };

struct kolo_hier_calls { /* what layers need of their own paths */
    kolo_status (*enqueue)(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                           struct kolo_counts *v);
    enum kolo_hier_way (*way)(const struct kolo_comm *layer);
    /* Failures of the layer may name so many ranks of another communicator behind its own. */
    void (*widen)(struct kolo_comm *layer, int ranks);
};

struct kolo_hier_env {
    const struct kolo_path_env *path;
    const struct kolo_hier_calls *calls;
    const struct kolo_gpu *gpu; /* while the layers are made */
};

/* Whether ranks q and r may be in one group; symmetric. */
typedef bool kolo_hier_is_near(const void *who, int q, int r);
/* The ranks' groups, numbered in the order of their first ranks; false: there are no two groups,
 * all of one size of 2 to `most` ranks, which the relation makes. */
bool kolo_hier_path_cut(int nranks, int most, kolo_hier_is_near *is_near, const void *who,
                        int *group_out);

/* Collective over host memory of the communicator, whose rank q is in group[q]. Calls of at least
 * `least_bytes` are taken. *out NULL: some group needs the host, or a rank lacks memory, which the
 * log tells. Errors: those of collectives, SYSTEM. */
kolo_status kolo_hier_path_open(const struct kolo_hier_env *env, const int *group,
                                size_t least_bytes, struct kolo_hier_path **out);
/* From now on the communicator and its layers fail together. `proxy` is the communicator's. */
void kolo_hier_path_join(struct kolo_hier_path *layers, struct kolo_proxy *proxy);
/* Before that: away with them. */
void kolo_hier_path_drop(struct kolo_hier_path *layers, const struct kolo_gpu *gpu);
/* Waits until this rank's calls are over, `timeout_ms` at most. The proxy is still open. */
void kolo_hier_path_close(struct kolo_hier_path *layers, int timeout_ms);

/* Whether a call goes in layers; alike on all ranks. */
bool kolo_hier_path_take(const struct kolo_hier_path *layers, const struct kolo_gpu_call *call);
/* Enqueue one that does. Errors: those of kolo_gpu_path_enqueue(). */
kolo_status kolo_hier_path_enqueue(struct kolo_hier_path *layers, const struct kolo_gpu_call *call);

/* The communicator has failed: so do its layers. Never blocks. */
void kolo_hier_path_abort(struct kolo_hier_path *layers);

#endif
