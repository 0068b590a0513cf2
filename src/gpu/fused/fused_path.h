// SPDX-License-Identifier: Apache-2.0
/* Ranks of one communicator that share one GPU in one process: collectives of them as one kernel.
 *
 * A call only enqueues. Where one thread brings the calls of all ranks (a group), events join their
 * streams before the kernel and fork them after it. Else each rank writes the addresses of its
 * buffers and `arrived` into a table on the GPU by operations of its own stream, then waits there
 * for `done`; rank 0's stream waits for all, runs the kernel and tells them. Each flag goes to 1 by
 * one side and back to 0 by the other, and all values are constants: so a graph that captured the
 * calls can be launched again and again.
 *
 * Sends and receives, and the v-forms whose blocks not all ranks know, are copies: see p2p.h.
 *
 * Who waits for whom is on the GPU, so streams of different ranks must differ then, and may not be
 * the default stream, which waits for the others. The driver maps streams to few hardware queues
 * (CUDA_DEVICE_MAX_CONNECTIONS, 8 unless set, 32 at most): with more streams than that, one that
 * waits can hold up another behind it in its queue. */
#ifndef KOLO_GPU_FUSED_FUSED_PATH_H
#define KOLO_GPU_FUSED_FUSED_PATH_H

#include "gpu/fused/p2p.h"

struct kolo_team;

/* Join as `rank` of the team of communicator `comm`, which the first to come makes. Errors:
 * UNSUPPORTED (no driver, no kernels, ranks on different GPUs), INVALID (no such GPU), SYSTEM. */
kolo_status kolo_team_join(uint64_t comm, int nranks, int rank, int ordinal,
                           struct kolo_team **out);
/* Waits until this rank's calls are over, `timeout_ms` at most; the last to leave frees all. */
void kolo_team_leave(struct kolo_team *team, int rank, int timeout_ms);

const struct kolo_gpu *kolo_team_gpu(const struct kolo_team *team);

/* Enqueue this rank's part. Errors: INVALID (stream), MISMATCH (another rank's call of the same
 * number is another one), ABORTED, SYSTEM. */
kolo_status kolo_team_enqueue(struct kolo_team *team, int rank, const struct kolo_gpu_call *call);
/* Enqueue the parts of all ranks, call[r] of rank r. */
kolo_status kolo_team_enqueue_all(struct kolo_team *team, const struct kolo_gpu_call *const *call);
/* Enqueue the sends and receives of a group, of one or more ranks, each on one stream: see p2p.h.
 * Errors: those of kolo_mail_enqueue(), ABORTED. */
kolo_status kolo_team_enqueue_letters(struct kolo_team *team, struct kolo_letter *letter, size_t n);

/* Release all streams that wait for a rank, now and until the team is gone: what they give then is
 * not defined, and no more can be enqueued. From any thread; does not block. */
void kolo_team_abort(struct kolo_team *team);

#endif
