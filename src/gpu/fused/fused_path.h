// SPDX-License-Identifier: Apache-2.0
/* One kernel for a collective of ranks that share one GPU in one process.
 *
 * There are two cases:
 * - The threads of the ranks meet on the host, and the last one enqueues for all; or one thread has
 *   the calls of all ranks in a group, and need not wait. Events join the streams before the kernel
 *   and fork them after it. So nothing on the GPU waits for a call of the driver that is still to
 *   come: that call might not get past a call that waits for the GPU, such as cuMemFree.
 * - In a graph each rank enqueues its own call, without meeting. Operations in the rank's stream
 *   write the addresses of its buffers and the flag `arrived` into a pinned table, and wait for the
 *   flag `done`. Rank 0's stream waits for `arrived` of all ranks, runs the kernel, and sets `done`
 *   of all ranks. One side sets a flag to 1 and the other side sets it back to 0. All values are
 *   constants, so a graph that captured the calls can be launched many times.
 *
 * Sends, receives, and v-forms whose counts not all ranks know are copies: see p2p.h.
 *
 * In the second case the GPU itself waits. So each rank needs a stream of its own, and not the
 * default stream, which waits for all other streams. The driver maps streams to a few hardware
 * queues (CUDA_DEVICE_MAX_CONNECTIONS: 8 by default, 32 at most). With more streams than queues, a
 * stream that waits can delay another stream behind it in the same queue. */
#ifndef KOLO_GPU_FUSED_FUSED_PATH_H
#define KOLO_GPU_FUSED_FUSED_PATH_H

#include "gpu/fused/p2p.h"

struct kolo_fused_path;

/* Join the path of communicator `comm` as `rank`. The first rank creates the path. Errors:
 * UNSUPPORTED (no driver, no kernels, ranks on different GPUs), INVALID (no such GPU), SYSTEM. */
kolo_status kolo_fused_path_join(uint64_t comm, int nranks, int rank, int ordinal,
                                 struct kolo_fused_path **out);
/* Wait at most `timeout_ms` until this rank's calls are over, and leave. The last rank frees the
 * path. */
void kolo_fused_path_leave(struct kolo_fused_path *path, int rank, int timeout_ms);

const struct kolo_gpu *kolo_fused_path_gpu(const struct kolo_fused_path *path);

/* Enqueue the calls of ranks, call[r] of rank r. NULL: another thread makes it. In that case wait
 * for it, at most `timeout_ms`. Errors: MISMATCH (another rank has a different call of the same
 * number), INVALID (stream; a call in a graph while another rank's is not), TIMEOUT, ABORTED,
 * SYSTEM. */
kolo_status kolo_fused_path_meet(struct kolo_fused_path *path,
                                 const struct kolo_gpu_call *const *call, int timeout_ms);
/* Enqueue this rank's part, and do not wait for the other ranks. Errors: INVALID (stream),
 * MISMATCH (another rank has a different call of the same number), ABORTED, SYSTEM. */
kolo_status kolo_fused_path_enqueue(struct kolo_fused_path *path, int rank,
                                    const struct kolo_gpu_call *call);
/* Enqueue the sends and receives of a group, and wait for their other ends. They are of one or more
 * ranks, and each rank has one stream: see p2p.h.
 * Errors: those of kolo_gpu_p2p_enqueue(), ABORTED. */
kolo_status kolo_fused_path_enqueue_messages(struct kolo_fused_path *path,
                                             struct kolo_gpu_message *message, size_t n,
                                             int timeout_ms);

/* Release all streams that wait for a rank, now and until the path is gone. Their results are
 * undefined, and nothing more can be enqueued. Any thread may call this; it does not block. */
void kolo_fused_path_abort(struct kolo_fused_path *path);

#endif
