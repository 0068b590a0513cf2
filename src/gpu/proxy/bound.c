// SPDX-License-Identifier: Apache-2.0
/* The bound on calls under way. */
#include "gpu/proxy/bound.h"

#include "gpu/context/deadline.h"

#include <time.h>

void kolo_proxy_bound_open(struct kolo_proxy_bound *b)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->fewer, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void kolo_proxy_bound_close(struct kolo_proxy_bound *b)
{
    pthread_cond_destroy(&b->fewer);
    pthread_mutex_destroy(&b->lock);
}

kolo_status kolo_proxy_bound_enter(struct kolo_proxy_bound *b, int rank, int timeout_ms)
{
    const struct timespec end = kolo_gpu_time_in(timeout_ms);
    bool late = false;
    pthread_mutex_lock(&b->lock);
    while (b->calls >= KOLO_PROXY_AHEAD && !b->ended && !late) {
        late = pthread_cond_timedwait(&b->fewer, &b->lock, &end) != 0;
    }
    late = b->calls >= KOLO_PROXY_AHEAD && !b->ended;
    b->calls += !late;
    pthread_mutex_unlock(&b->lock);
    return late ? kolo_fail(KOLO_ERR_TIMEOUT,
                            "rank %d has %d calls on GPU memory under way, and waited %d ms for "
                            "the first of them to end",
                            rank, KOLO_PROXY_AHEAD, timeout_ms)
                : KOLO_OK;
}

void kolo_proxy_bound_leave(struct kolo_proxy_bound *b)
{
    pthread_mutex_lock(&b->lock);
    b->calls--;
    pthread_cond_signal(&b->fewer);
    pthread_mutex_unlock(&b->lock);
}

void kolo_proxy_bound_end(struct kolo_proxy_bound *b)
{
    pthread_mutex_lock(&b->lock);
    b->ended = true;
    pthread_cond_broadcast(&b->fewer);
    pthread_mutex_unlock(&b->lock);
}
