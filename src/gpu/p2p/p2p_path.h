// SPDX-License-Identifier: Apache-2.0
/* Ranks of one host on GPUs of their own that reach each other's memory, over NVLink or PCIe.
 *
 * A call enqueues one kernel of exec/gpu/program/program_kernel.h on each rank, which stores to the
 * others' slabs and waits for words in its own; nothing of it is on the host, and epochs are kept
 * on the GPUs, so that graphs can hold it. A slab is mapped by address in its process and by a
 * legacy IPC handle in others; users' buffers are mapped there as gpu/ipc/registry.h says.
 *
 * Blocks that wait must all be resident, or some wait for what cannot start: a ledger of the
 * process counts those of all its communicators on each GPU, one a multiprocessor at most. */
#ifndef KOLO_GPU_P2P_P2P_PATH_H
#define KOLO_GPU_P2P_P2P_PATH_H

#include "core/comm.h"
#include "gpu/context/gpu.h"

struct kolo_p2p_path;

/* Collective over host memory of `comm`, whose ranks are on one host, rank q on the GPU of
 * uuid[q]; those differ. Each pair of GPUs is tried with data first. Loads kernels into *gpu, which
 * is open. *out NULL: some rank cannot, which the log tells. Errors: SYSTEM, and those of
 * collectives. */
kolo_status kolo_p2p_path_open(struct kolo_comm *comm, struct kolo_gpu *gpu,
                               const unsigned char (*uuid)[16], struct kolo_p2p_path **out);
/* Waits until this rank's calls are over, `timeout_ms` at most. The GPU is still open. */
void kolo_p2p_path_close(struct kolo_p2p_path *path, int timeout_ms);

/* Enqueue this rank's kernel; not for v-forms that not all ranks know. Errors: ABORTED, SYSTEM. */
kolo_status kolo_p2p_path_enqueue(struct kolo_p2p_path *path, const struct kolo_gpu_call *call);
/* Around what else is enqueued for the communicator: it takes effect in the order of the calls,
 * whatever their streams. `path` may be NULL. Errors: SYSTEM. */
kolo_status kolo_p2p_path_follow(struct kolo_p2p_path *path, kolo_stream stream);
kolo_status kolo_p2p_path_note(struct kolo_p2p_path *path, kolo_stream stream);

/* Why a kernel gave up, once one has: TIMEOUT or MISMATCH with the rank it waited for; else OK. */
kolo_status kolo_p2p_path_learn(const struct kolo_p2p_path *path, int *rank_out);
/* Kernels that wait give up. From any thread; never blocks. */
void kolo_p2p_path_abort(struct kolo_p2p_path *path);

#endif
