// SPDX-License-Identifier: Apache-2.0
/* The hierarchical path: calls on GPU memory in two layers. It needs groups of equal size whose
 * ranks need no host among themselves: ranks of one host with a GPU each, or threads on one GPU.
 *
 * Each rank is a member of two more communicators, the layers: `intra` has the ranks of its group,
 * `inter` has the ranks with the same place in each group. With G groups of S ranks, a call becomes
 * a few calls of these two, enqueued one after the other on its stream:
 *
 *   all-reduce      intra: reduce-scatter   inter: all-reduce of 1/S   intra: all-gather
 *   reduce-scatter  intra: reduce-scatter, for each group the blocks of its ranks
 *                                           inter: reduce-scatter
 *   all-gather                              inter: all-gather          intra: all-gather, G times
 *   broadcast       intra: scatter, in the root's group
 *                                           inter: broadcast of 1/S    intra: all-gather
 *   reduce          intra: reduce-scatter   inter: reduce of 1/S       intra: gather, to the root
 *
 * So a rank sends only 1/S of the bytes beyond its group, where they most often pass through host
 * memory and a network. Hierarchical collectives are described in Karonis et al. 2000,
 * doi:10.1109/IPDPS.2000.846009. The remainder that S does not divide is less than 16 bytes and an
 * element a rank. It goes whole in each group, and between the last ranks of the groups.
 *
 * The threads of ranks that share a GPU meet on the host for each step inside their group, as in
 * fused/meet.c: see run.c.
 *
 * Float sums are rounded once in each layer, and an average is the average of the groups' averages.
 * These are not the bits of one layer. So a deterministic communicator does not use this path. All
 * other results are exact. */
#ifndef KOLO_GPU_HIER_HIER_PATH_H
#define KOLO_GPU_HIER_HIER_PATH_H

#include "core/path.h"
#include "gpu/context/gpu.h"
#include "gpu/proxy/proxy.h"

struct kolo_hier_path;

/* The way of a layer's calls: see gpu/inner.h. */
enum kolo_hier_way { KOLO_HIER_FUSED, KOLO_HIER_P2P, KOLO_HIER_HIER, KOLO_HIER_PROXY };

struct kolo_hier_calls { /* calls into the GPU path of a layer */
    kolo_status (*enqueue)(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                           struct kolo_counts *v);
    /* Enqueue call[i] of layer[i], which are n ranks of one fused path; wait for the other ranks. */
    kolo_status (*meet)(struct kolo_comm *const *layer, const struct kolo_gpu_call *const *call,
                        int n);
    enum kolo_hier_way (*way)(const struct kolo_comm *layer);
    /* From now on a failure of the layer may name `ranks` more ranks, behind the layer's own. */
    void (*widen)(struct kolo_comm *layer, int ranks);
};

struct kolo_hier_env {
    const struct kolo_path_env *path;
    const struct kolo_hier_calls *calls;
    const struct kolo_gpu *gpu; /* while the layers are made */
};

/* Whether ranks q and r may be in one group; symmetric. */
typedef bool kolo_hier_is_near(const void *who, int q, int r);
/* The ranks' groups by the relation, numbered in the order of their first ranks. False: there are
 * not at least two groups, all of one size of 2 to `most` ranks. */
bool kolo_hier_path_cut(int nranks, int most, kolo_hier_is_near *is_near, const void *who,
                        int *group_out);

/* Open the layers of a communicator whose rank q is in group[q]. Collective over host memory. The
 * path takes calls of at least `least_bytes`. *out NULL: a group needs the host, or a rank lacks
 * memory; the log says which. Errors: those of collectives, SYSTEM. */
kolo_status kolo_hier_path_open(const struct kolo_hier_env *env, const int *group,
                                size_t least_bytes, struct kolo_hier_path **out);
/* From now on the communicator and its layers fail together. `proxy` is the communicator's. */
void kolo_hier_path_join(struct kolo_hier_path *layers, struct kolo_proxy *proxy);
/* Destroy the layers before kolo_hier_path_join(). */
void kolo_hier_path_drop(struct kolo_hier_path *layers, const struct kolo_gpu *gpu);
/* Wait at most `timeout_ms` until this rank's calls are over, and destroy the layers. The proxy is
 * still open. */
void kolo_hier_path_close(struct kolo_hier_path *layers, int timeout_ms);

/* Whether this path takes a call. All ranks get the same answer. */
bool kolo_hier_path_take(const struct kolo_hier_path *layers, const struct kolo_gpu_call *call);
struct kolo_hier_part {          /* a call of a rank */
    struct kolo_hier_path *path; /* of the rank */
    const struct kolo_gpu_call *call;
};
/* Enqueue calls of n ranks of one communicator, which the path takes. If the ranks of a group share
 * a GPU, this waits for the calls of the group's other ranks. Errors: those of
 * kolo_gpu_path_enqueue(). */
kolo_status kolo_hier_path_enqueue(const struct kolo_hier_part *part, int n);

/* End the layers of a communicator that has failed. Never blocks. */
void kolo_hier_path_abort(struct kolo_hier_path *layers);

#endif
