// SPDX-License-Identifier: Apache-2.0
/* The proxy: a host thread that runs calls on GPU memory, for ranks that no kernel can serve alone.
 * They are in several processes, on several GPUs or on several hosts.
 *
 * A call only enqueues, also into a graph: first a host function, which hands the call to the
 * thread when the stream has come to it, then the rounds in which the call's data goes to the host
 * and back, each behind a wait for the word `done`, which the thread sets (rounds.h). So nothing on
 * a GPU waits for a kernel of another rank, which might not be resident.
 *
 * The thread runs the call on a second communicator of the same ranks, for host memory. There are
 * two cases:
 * - All ranks share one GPU: rank 0 has opened the buffers of the other ranks before, lets one
 *   fused kernel go over all of them, which is in its stream already, and tells the other ranks
 *   (shared_gpu.h).
 * - Otherwise, or if some memory cannot be opened: tiles go through pinned memory and the
 *   collectives of the second communicator (staging.h). */
#ifndef KOLO_GPU_PROXY_PROXY_H
#define KOLO_GPU_PROXY_PROXY_H

#include "core/call/call.h"
#include "core/path.h"
#include "gpu/context/gpu.h"

struct kolo_proxy;

/* Open the proxy. It takes `host` and `desk` in any case, and *gpu, which is open, if it succeeds.
 * `desk` is another communicator like `host` if all ranks are on this GPU, and rank 0 has kernels;
 * else NULL. Errors: SYSTEM. */
kolo_status kolo_proxy_open(const struct kolo_path_env *env, struct kolo_comm *host,
                            struct kolo_comm *desk, const struct kolo_gpu *gpu,
                            struct kolo_proxy **out);
/* Wait at most `timeout_ms` until this rank's calls are over, and close the proxy. */
void kolo_proxy_close(struct kolo_proxy *proxy, int timeout_ms);
/* Whether long messages with rank q use GPUDirect RDMA. */
bool kolo_proxy_uses_gdr(const struct kolo_proxy *proxy, int q);
const struct kolo_gpu *kolo_proxy_gpu(const struct kolo_proxy *proxy);

/* Enqueue a call, and take v->all in any case. Errors: ABORTED, SYSTEM. */
kolo_status kolo_proxy_enqueue(struct kolo_proxy *proxy, const struct kolo_gpu_call *call,
                               struct kolo_counts *v);
/* Enqueue n sends and receives together. The array is copied. */
kolo_status kolo_proxy_enqueue_messages(struct kolo_proxy *proxy, const struct kolo_message *m,
                                        int n, kolo_stream stream);
/* Follow before, and note behind, everything else that is enqueued for the communicator. So it
 * takes effect in the order of the calls, whatever their streams. Errors: SYSTEM. */
kolo_status kolo_proxy_follow(struct kolo_proxy *proxy, kolo_stream stream);
kolo_status kolo_proxy_note(struct kolo_proxy *proxy, kolo_stream stream);
/* Wait until all of that is over. After `timeout_ms` another thread calls expire(arg), which shall
 * end it without the driver. False: it was not over `grace_ms` after that. */
bool kolo_proxy_drain(struct kolo_proxy *proxy, int timeout_ms, int grace_ms,
                      void (*expire)(void *arg), void *arg);
/* From now on a failure of its communicator may name `ranks` more ranks, behind its own. */
void kolo_proxy_widen(struct kolo_proxy *proxy, int ranks);
/* Let the streams that wait go on. Their results are undefined. Never blocks. */
void kolo_proxy_abort(struct kolo_proxy *proxy);

#endif
