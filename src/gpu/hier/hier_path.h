// SPDX-License-Identifier: Apache-2.0
/* Calls on GPU memory in two layers, where ranks fall into groups of equal size that need no host
 * among themselves: those of a host on a GPU each, or threads on one GPU.
 *
 * Each rank is a member of two more communicators: `near`, of its group, and `far`, of the ranks
 * with its place in each group. Of G groups of S ranks, a call is a few calls of those, enqueued
 * one after the other on its stream:
 *
 *   all-reduce      near: reduce-scatter    far: all-reduce of 1/S    near: all-gather
 *   reduce-scatter  near: reduce-scatter, for each group the blocks of its ranks
 *                                           far: reduce-scatter
 *   all-gather                              far: all-gather           near: all-gather, G times
 *   broadcast       near: scatter, in the root's group
 *                                           far: broadcast of 1/S     near: all-gather
 *   reduce          near: reduce-scatter    far: reduce of 1/S        near: gather, to the root
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

#include "core/comm.h"
#include "gpu/gpu.h"

struct kolo_layers;

/* Whether ranks q and r may be in one group; symmetric. */
typedef bool kolo_layers_near(const void *who, int q, int r);
/* The ranks' groups, numbered in the order of their first ranks; false: there are no two groups,
 * all of one size of 2 to `most` ranks, which the relation makes. */
bool kolo_layers_cut(int nranks, int most, kolo_layers_near *near, const void *who, int *group_out);

/* Collective over host memory of `comm`, whose rank q is in group[q]. Calls of at least
 * `least_bytes` are taken. *out NULL: some group needs the host, or a rank lacks memory, which the
 * log tells. Errors: those of collectives, SYSTEM. */
kolo_status kolo_layers_open(struct kolo_comm *comm, const struct kolo_gpu *gpu, const int *group,
                             size_t least_bytes, struct kolo_layers **out);
/* From now on comm->layers is `layers`, and each fails with the others. */
void kolo_layers_join(struct kolo_layers *layers);
/* Before that: away with them. */
void kolo_layers_drop(struct kolo_layers *layers, const struct kolo_gpu *gpu);
/* Waits until this rank's calls are over, `timeout_ms` at most. The relay is still open. */
void kolo_layers_close(struct kolo_layers *layers, int timeout_ms);

/* Whether a call goes in layers; alike on all ranks. */
bool kolo_layers_take(const struct kolo_layers *layers, const struct kolo_gpu_call *call);
/* Enqueue one that does. Errors: those of kolo_device_enqueue(). */
kolo_status kolo_layers_enqueue(struct kolo_layers *layers, const struct kolo_gpu_call *call);

/* A layer has failed: so does the communicator above it. */
void kolo_layers_tell(struct kolo_comm *layer);
/* The communicator has failed: so do its layers. Never blocks. */
void kolo_layers_abort(struct kolo_layers *layers);

#endif
