// SPDX-License-Identifier: Apache-2.0
/* Where calls meet GPUs: which buffers are whose, and which calls are enqueued on a CUDA stream
 * instead of being run. A communicator of config.device takes both: memory of that GPU, by
 * gpu/fused/fused_path.h, gpu/p2p/p2p_path.h or gpu/proxy/proxy.h, and host memory, as other
 * communicators do. */
#ifndef KOLO_GPU_PATH_H
#define KOLO_GPU_PATH_H

#include "core/call/call.h"
#include "gpu/gpu.h"

/* Collective: join the ranks of a communicator that has a GPU, once host memory works on it.
 * Errors: UNSUPPORTED (some rank cannot use its GPU), INVALID (no such GPU), SYSTEM, and those of
 * collectives. */
kolo_status kolo_device_join(struct kolo_comm *c);
/* The same for ranks of one process and one GPU, which one thread joins one by one. Errors:
 * UNSUPPORTED (no kernels), INVALID, SYSTEM. */
kolo_status kolo_device_join_local(struct kolo_comm *c);
void kolo_device_leave(struct kolo_comm *c);
static inline bool kolo_device_is_up(const struct kolo_comm *c)
{
    return c->team != NULL || c->relay != NULL;
}
/* Streams that wait for other ranks go on. Never blocks. */
void kolo_device_abort(struct kolo_comm *c);

/* End the communicator if a kernel of its has given up; false if none has. From any thread. */
bool kolo_device_learn(struct kolo_comm *c);

/* False: the call is on host memory, and nothing was done. Else it was enqueued, or will be at the
 * end of the group, or failed: *out; what it owns is freed. `call` was checked. */
bool kolo_device_takes(struct kolo_call *call, kolo_stream stream, kolo_status *out);
/* The same for a send or a receive, which was checked. */
bool kolo_device_takes_message(struct kolo_comm *c, const struct kolo_message *m,
                               kolo_stream stream, kolo_status *out);
/* Enqueue a call on memory of the GPU, at once; takes v->all if it sets it to NULL. Errors: those
 * of what takes it. */
kolo_status kolo_device_enqueue(struct kolo_comm *c, const struct kolo_gpu_call *what,
                                struct kolo_counts *v);
/* Enqueue what this thread's group collected. */
kolo_status kolo_device_group_end(void);

#endif
