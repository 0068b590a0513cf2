// SPDX-License-Identifier: Apache-2.0
/* An all-reduce timed from C. overhead.py compares it with the same call from Python. */
#include <kolo/kolo.h>

#include <time.h>

KOLO_EXPORT
double timed_all_reduce(const void *send, void *recv, size_t count, struct kolo_comm *comm);

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Microseconds of one call on floats, after a barrier; -1: it failed. */
double timed_all_reduce(const void *send, void *recv, size_t count, struct kolo_comm *comm)
{
    if (kolo_barrier(comm, NULL) < 0) {
        return -1;
    }
    const double begin = now_us();
    if (kolo_all_reduce(send, recv, count, KOLO_FLOAT32, KOLO_SUM, comm, NULL) < 0) {
        return -1;
    }
    return now_us() - begin;
}
