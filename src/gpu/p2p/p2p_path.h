// SPDX-License-Identifier: Apache-2.0
/* The P2P path: ranks of one host with a GPU each, whose kernels store to the memory of the other
 * GPUs over NVLink or PCIe.
 *
 * A call enqueues one kernel on each rank (exec/gpu/program/program_kernel.h). It stores to the
 * slabs of the other ranks and waits for words in its own slab. The host takes no part, and the
 * epochs are on the GPUs, so a graph can hold the call. Ranks of the same process use a slab's
 * address; ranks of other processes map it by a legacy IPC handle. gpu/ipc/registry.h maps users'
 * buffers.
 *
 * All blocks that wait must be resident at the same time; otherwise some would wait for blocks that
 * cannot start. A ledger of the process counts the blocks of all its communicators on each GPU, at
 * most one for each multiprocessor. */
#ifndef KOLO_GPU_P2P_P2P_PATH_H
#define KOLO_GPU_P2P_P2P_PATH_H

#include "core/comm.h"
#include "gpu/context/gpu.h"
#include "gpu/options.h"

struct kolo_p2p_path;

/* Open the path. Collective over host memory of `comm`. Its ranks are on one host, rank q on the
 * GPU with uuid[q]; the GPUs differ. Each pair of GPUs is first tried with data. Loads kernels into
 * *gpu, which is open. *out NULL: some rank cannot use the path; the log says why. Errors: SYSTEM,
 * and those of collectives. */
kolo_status kolo_p2p_path_open(struct kolo_comm *comm, struct kolo_gpu *gpu,
                               const unsigned char (*uuid)[16],
                               const struct kolo_gpu_options *options, struct kolo_p2p_path **out);
/* Wait at most `timeout_ms` until this rank's calls are over, and close the path. The GPU is still
 * open. */
void kolo_p2p_path_close(struct kolo_p2p_path *path, int timeout_ms);

/* Enqueue this rank's kernel. Not for v-forms whose counts not all ranks know. Errors: ABORTED,
 * SYSTEM. */
kolo_status kolo_p2p_path_enqueue(struct kolo_p2p_path *path, const struct kolo_gpu_call *call);
/* Follow before, and note behind, everything else that is enqueued for the communicator. So it
 * takes effect in the order of the calls, whatever their streams. `path` may be NULL. Errors:
 * SYSTEM. */
kolo_status kolo_p2p_path_follow(struct kolo_p2p_path *path, kolo_stream stream);
kolo_status kolo_p2p_path_note(struct kolo_p2p_path *path, kolo_stream stream);

/* OK, or why a kernel gave up: TIMEOUT or MISMATCH, with the rank for which it waited. */
kolo_status kolo_p2p_path_learn(const struct kolo_p2p_path *path, int *rank_out);
/* Let the kernels that wait give up. Any thread may call this; it never blocks. */
void kolo_p2p_path_abort(struct kolo_p2p_path *path);

#endif
