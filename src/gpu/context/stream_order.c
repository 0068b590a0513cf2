// SPDX-License-Identifier: Apache-2.0
/* The order of a rank's calls, by one CUDA event: a call records it behind itself, and the next
 * call in another stream waits for it. Inside a graph capture neither happens. */
#include "gpu/context/stream_order.h"

kolo_status kolo_gpu_order_open(const struct kolo_gpu *gpu, struct kolo_gpu_order *order)
{
    return KOLO_CUDA(gpu, "cuEventCreate", event_create(&order->event, KOLO_CUDA_DISABLE_TIMING));
}

void kolo_gpu_order_close(const struct kolo_gpu *gpu, struct kolo_gpu_order *order)
{
    if (order->event != NULL) {
        (void)gpu->cuda->event_destroy(order->event);
        order->event = NULL;
    }
}

kolo_status kolo_gpu_is_capturing(const struct kolo_gpu *gpu, kolo_stream stream, bool *out)
{
    int status = 0;
    const kolo_status st = KOLO_CUDA(gpu, "cuStreamIsCapturing",
                                     stream_is_capturing((kolo_cuda_stream)stream, &status));
    *out = status != 0;
    return st;
}

/* The driver's number of a stream; 0: it has none. A handle tells less: a new stream may have that
 * of a destroyed one, whose work goes on, and 2 (cudaStreamPerThread) is another stream in each
 * thread. */
static uint64_t number_of(const struct kolo_gpu *gpu, kolo_stream stream)
{
    unsigned long long id = 0;
    return gpu->cuda->stream_get_id != NULL &&
                   gpu->cuda->stream_get_id((kolo_cuda_stream)stream, &id) == KOLO_CUDA_OK
               ? id + 1
               : 0;
}

kolo_status kolo_gpu_order_follow(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order,
                                  kolo_stream stream, bool captured)
{
    if (!order->recorded || captured) { /* asking for the number of a stream spoils its capture */
        return KOLO_OK;
    }
    return order->number != 0 && order->number == number_of(gpu, stream)
               ? KOLO_OK
               : KOLO_CUDA(gpu, "cuStreamWaitEvent",
                           stream_wait_event((kolo_cuda_stream)stream, order->last, 0));
}

void kolo_gpu_order_share(const struct kolo_gpu *gpu, struct kolo_gpu_order *order,
                          kolo_stream stream, kolo_cuda_event event)
{
    order->number = number_of(gpu, stream);
    order->last = event;
    order->recorded = true;
}

kolo_status kolo_gpu_order_note(const struct kolo_gpu *gpu, struct kolo_gpu_order *order,
                                kolo_stream stream, bool captured)
{
    if (captured) {
        return KOLO_OK;
    }
    kolo_gpu_order_share(gpu, order, stream, order->event);
    return KOLO_CUDA(gpu, "cuEventRecord", event_record(order->event, (kolo_cuda_stream)stream));
}

kolo_status kolo_gpu_order_apart(const struct kolo_gpu *gpu, pthread_mutex_t *lock,
                                 struct kolo_gpu_order *order, kolo_stream stream, bool behind)
{
    bool captured = false;
    KOLO_TRY(kolo_gpu_enter(gpu));
    pthread_mutex_lock(lock);
    kolo_status st = kolo_gpu_is_capturing(gpu, stream, &captured);
    if (st == KOLO_OK) {
        st = behind ? kolo_gpu_order_note(gpu, order, stream, captured)
                    : kolo_gpu_order_follow(gpu, order, stream, captured);
    }
    pthread_mutex_unlock(lock);
    kolo_gpu_leave(gpu);
    return st;
}

bool kolo_gpu_order_is_over(const struct kolo_gpu *gpu, const struct kolo_gpu_order *order)
{
    return !order->recorded || gpu->cuda->event_query(order->last) != KOLO_CUDA_NOT_READY;
}
