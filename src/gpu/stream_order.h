// SPDX-License-Identifier: Apache-2.0
/* Calls of one rank take effect in their order, whatever their streams: each waits for an event
 * that the one before recorded behind itself. What a graph holds is ordered by where it is
 * launched. The context is entered, and the owner's lock is held. */
#ifndef KOLO_GPU_STREAM_ORDER_H
#define KOLO_GPU_STREAM_ORDER_H

#include "gpu/gpu.h"

#include <pthread.h>

struct kolo_gpu_order {
    kolo_cuda_event event;
    kolo_stream stream; /* of the last call outside graphs */
    bool recorded;
};

/* Errors of all: SYSTEM. */
kolo_status kolo_gpu_order_open(const struct kolo_gpu *gpu, struct kolo_gpu_order *order);
/* Also one that was never opened, if it is zero. */
void kolo_gpu_order_close(const struct kolo_gpu *gpu, struct kolo_gpu_order *order);

kolo_status kolo_gpu_is_capturing(const struct kolo_gpu *gpu, kolo_stream stream, bool *out);
/* Before a call in `stream`; and behind it. */
kolo_status kolo_gpu_order_follow(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order,
                                  kolo_stream stream, bool captured);
kolo_status kolo_gpu_order_note(const struct kolo_gpu *gpu, struct kolo_gpu_order *order,
                                kolo_stream stream, bool captured);
/* One of both for calls that others make: enters the context, and takes the owner's lock. */
kolo_status kolo_gpu_order_apart(const struct kolo_gpu *gpu, pthread_mutex_t *lock,
                                 struct kolo_gpu_order *order, kolo_stream stream, bool behind);
/* Whether the last call has taken effect. */
bool kolo_gpu_order_is_over(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order);

#endif
