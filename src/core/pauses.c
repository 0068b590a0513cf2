// SPDX-License-Identifier: Apache-2.0
/* Pauses of loops that drive queued calls. They are longer than those of an executor between two
 * lines (exec/cpu/wait.c), because a queued call also waits for other threads of this process. */
#include "core/pauses.h"

#include "util/util.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>

/* Give the core away. False: other threads kept it for long, now or shortly before. A thread that
 * yields gets the core back after their time slices. A thread that sleeps gets it back when it
 * wakes. So the caller should sleep then. */
static bool give_core(void)
{
    enum { LONG_US = 250, BELIEVED_US = 20 * 1000 };
    static __attribute__((tls_model("initial-exec"))) _Thread_local double wanted_us;
    const double before = kolo_now_us();
    if (before - wanted_us < BELIEVED_US) {
        return false;
    }
    sched_yield();
    const double after = kolo_now_us();
    const bool brief = after - before < LONG_US;
    wanted_us = brief ? wanted_us : after;
    return brief;
}

long kolo_pauses_nap(struct kolo_pauses *p, unsigned polls)
{
    enum { YIELDS = 1000, SHORTEST_NS = 20 * 1000, LONGEST_NS = 4000 * 1000, PART = 128 };
    const unsigned n = p->count += p->count < UINT_MAX;
    if (n <= polls || (n < polls + YIELDS && give_core())) {
        return 0;
    }
    const long longer = p->nap_ns + p->nap_ns / PART;
    p->nap_ns = longer < SHORTEST_NS ? SHORTEST_NS : longer > LONGEST_NS ? LONGEST_NS : longer;
    return p->nap_ns;
}

void kolo_pauses_make(struct kolo_pauses *p, unsigned polls)
{
    const struct timespec nap = {0, kolo_pauses_nap(p, polls)};
    if (nap.tv_nsec > 0) {
        nanosleep(&nap, NULL);
    }
}

void kolo_pauses_doze(pthread_cond_t *cond, pthread_mutex_t *lock, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(cond, lock, &until);
}
