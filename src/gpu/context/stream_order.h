// SPDX-License-Identifier: Apache-2.0
/* The calls of a rank take effect in their order, whatever their streams: each call waits for an
 * event that the call before it recorded. The launch of a graph orders the calls in it. The caller
 * has entered the context and holds the owner's lock. */
#ifndef KOLO_GPU_STREAM_ORDER_H
#define KOLO_GPU_STREAM_ORDER_H

#include "gpu/context/gpu.h"

#include <pthread.h>

struct kolo_gpu_order {
    kolo_cuda_event event;
    uint64_t number;      /* of the stream of the last call outside graphs; 0: unknown */
    kolo_cuda_event last; /* behind that call: `event`, or one of several ranks */
    bool recorded;
};

/* Errors of all: SYSTEM. */
kolo_status kolo_gpu_order_open(const struct kolo_gpu *gpu, struct kolo_gpu_order *order);
/* An order of all zeros, which was never opened, is allowed. */
void kolo_gpu_order_close(const struct kolo_gpu *gpu, struct kolo_gpu_order *order);

kolo_status kolo_gpu_is_capturing(const struct kolo_gpu *gpu, kolo_stream stream, bool *out);
/* Follow before a call in `stream`; note behind it. */
kolo_status kolo_gpu_order_follow(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order,
                                  kolo_stream stream, bool captured);
kolo_status kolo_gpu_order_note(const struct kolo_gpu *gpu, struct kolo_gpu_order *order,
                                kolo_stream stream, bool captured);
/* Note a call outside graphs behind which `event`, of several ranks, is recorded. It is recorded
 * again only behind a later call of all these ranks. */
void kolo_gpu_order_share(const struct kolo_gpu *gpu, struct kolo_gpu_order *order,
                          kolo_stream stream, kolo_cuda_event event);
/* Follow, or note if `behind`, for a call that another path makes. Enters the context and takes the
 * owner's lock. */
kolo_status kolo_gpu_order_apart(const struct kolo_gpu *gpu, pthread_mutex_t *lock,
                                 struct kolo_gpu_order *order, kolo_stream stream, bool behind);
/* Whether the last call has taken effect. */
bool kolo_gpu_order_is_over(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order);

#endif
