// SPDX-License-Identifier: Apache-2.0
/* The thread that watches a deadline. */
#include "gpu/context/deadline.h"

#include "util/util.h"

#include <time.h>

struct timespec kolo_gpu_time_in(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

static void *watch(void *arg)
{
    struct kolo_gpu_deadline *d = arg;
    pthread_mutex_lock(&d->lock);
    for (double left; !d->over && (left = d->end_us - kolo_now_us()) > 0;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        const double ns = (double)until.tv_nsec + left * 1e3;
        until.tv_sec += (time_t)(ns / 1e9);
        until.tv_nsec = (long)(ns - (double)(time_t)(ns / 1e9) * 1e9);
        pthread_cond_timedwait(&d->ended, &d->lock, &until);
    }
    const bool over = d->over;
    pthread_mutex_unlock(&d->lock);
    if (!over) {
        d->expire(d->arg);
    }
    return NULL;
}

void kolo_gpu_deadline_start(struct kolo_gpu_deadline *d, int timeout_ms, void (*expire)(void *arg),
                             void *arg)
{
    pthread_condattr_t monotonic;
    *d = (struct kolo_gpu_deadline){
        .expire = expire, .arg = arg, .end_us = kolo_now_us() + timeout_ms * 1e3};
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&d->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    d->watched = pthread_create(&d->thread, NULL, watch, d) == 0;
}

void kolo_gpu_deadline_stop(struct kolo_gpu_deadline *d)
{
    pthread_mutex_lock(&d->lock);
    d->over = true;
    pthread_cond_signal(&d->ended);
    pthread_mutex_unlock(&d->lock);
    if (d->watched) {
        pthread_join(d->thread, NULL);
    } else if (kolo_now_us() >= d->end_us) {
        d->expire(d->arg);
    }
    pthread_cond_destroy(&d->ended);
    pthread_mutex_destroy(&d->lock);
}
