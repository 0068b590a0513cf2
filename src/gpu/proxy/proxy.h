// SPDX-License-Identifier: Apache-2.0
/* GPU memory of ranks that one kernel cannot serve by itself: in several processes, on several GPUs
 * or hosts.
 *
 * A call only enqueues, also into a graph: a host function, which hands the call to a thread once
 * all before it in the stream is done, and a wait for `done`, a word that the thread sets. So
 * nothing on a GPU ever waits for another rank's kernel, which need not be resident there.
 *
 * The thread makes the call over a communicator of its own with the same ranks, on host memory.
 * Where all ranks are on one GPU, rank 0 opens the others' buffers (legacy IPC handles), runs one
 * fused kernel over all of them and tells the others. Else, and where some memory cannot be opened
 * (of cudaMallocAsync, of virtual memory management, managed), tiles go through pinned memory and
 * that communicator's collectives: see staging.h. */
#ifndef KOLO_GPU_PROXY_PROXY_H
#define KOLO_GPU_PROXY_PROXY_H

#include "core/call/call.h"
#include "gpu/gpu.h"

struct kolo_relay;

/* `host` becomes the relay's, also when this fails; `gpu`, which is open, when it succeeds. fuses:
 * all ranks are on this GPU, and rank 0 has its kernels; alike on all ranks. Errors: SYSTEM. */
kolo_status kolo_relay_open(struct kolo_comm *comm, struct kolo_comm *host,
                            const struct kolo_gpu *gpu, bool fuses, struct kolo_relay **out);
/* Waits until this rank's calls are over, `timeout_ms` at most. */
void kolo_relay_close(struct kolo_relay *relay, int timeout_ms);
/* Whether long messages with rank q go from and to memory of the GPU. */
bool kolo_relay_is_direct(const struct kolo_relay *relay, int q);
const struct kolo_gpu *kolo_relay_gpu(const struct kolo_relay *relay);

/* Enqueue; takes v->all in any case. Errors: ABORTED, SYSTEM. */
kolo_status kolo_relay_enqueue(struct kolo_relay *relay, const struct kolo_gpu_call *call,
                               struct kolo_counts *v);
/* The same for n sends and receives, which go together; their array is copied. */
kolo_status kolo_relay_enqueue_messages(struct kolo_relay *relay, const struct kolo_message *m,
                                        int n, kolo_stream stream);
/* Around what else is enqueued for the communicator: it takes effect in the order of the calls,
 * whatever their streams. Errors: SYSTEM. */
kolo_status kolo_relay_follow(struct kolo_relay *relay, kolo_stream stream);
kolo_status kolo_relay_note(struct kolo_relay *relay, kolo_stream stream);
/* Whether all of that is over, in `timeout_ms` at most. */
bool kolo_relay_wait(struct kolo_relay *relay, int timeout_ms);
/* Its communicator's failures may name so many ranks of another one behind its own. */
void kolo_relay_widen(struct kolo_relay *relay, int ranks);
/* Streams that wait go on; what they give then is not defined. Never blocks. */
void kolo_relay_abort(struct kolo_relay *relay);

#endif
