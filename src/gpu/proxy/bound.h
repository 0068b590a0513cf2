// SPDX-License-Identifier: Apache-2.0
/* A bound on how many calls a rank may be ahead of the slowest rank. A stream of the driver has
 * room for about 1024 entries. A call of the driver that finds no room waits for some, and other
 * threads may not get past it to the driver meanwhile. A call of the proxy takes six entries at
 * most; with this bound it waits for its turn outside of the driver. */
#ifndef KOLO_GPU_PROXY_BOUND_H
#define KOLO_GPU_PROXY_BOUND_H

#include "util/util.h"

#include <pthread.h>

enum { KOLO_PROXY_AHEAD = 128 };

struct kolo_proxy_bound {
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    int calls; /* outside graphs that are enqueued and not over */
    bool ended;
};

void kolo_proxy_bound_open(struct kolo_proxy_bound *bound);
void kolo_proxy_bound_close(struct kolo_proxy_bound *bound);
/* Before a call of `rank`; leave when it is over. Errors: TIMEOUT. */
kolo_status kolo_proxy_bound_enter(struct kolo_proxy_bound *bound, int rank, int timeout_ms);
void kolo_proxy_bound_leave(struct kolo_proxy_bound *bound);
/* From now on nobody waits. */
void kolo_proxy_bound_end(struct kolo_proxy_bound *bound);

#endif
