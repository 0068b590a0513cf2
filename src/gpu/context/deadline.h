// SPDX-License-Identifier: Apache-2.0
/* A deadline that needs no driver. A thread that asks the driver whether calls are over may come
 * out of the driver only when they are: another thread, which frees memory for instance, has the
 * lock of the context until then. So the time is watched in a thread of its own. */
#ifndef KOLO_GPU_DEADLINE_H
#define KOLO_GPU_DEADLINE_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

struct kolo_gpu_deadline {
    void (*expire)(void *arg);
    void *arg;
    double end_us; /* by kolo_now_us() */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over, watched;
    pthread_t thread;
};

/* The time in `ms` from now, by CLOCK_MONOTONIC. */
struct timespec kolo_gpu_time_in(int ms);

/* Call expire(arg) in another thread in `timeout_ms`, unless the deadline is stopped before. It
 * must call no driver. */
void kolo_gpu_deadline_start(struct kolo_gpu_deadline *d, int timeout_ms, void (*expire)(void *arg),
                             void *arg);
/* Stop it. expire() does not run when this returns. */
void kolo_gpu_deadline_stop(struct kolo_gpu_deadline *d);

#endif
