// SPDX-License-Identifier: Apache-2.0
/* The transports of a communicator, and the memory that peers map. */
#ifndef KOLO_CORE_LINK_STATE_H
#define KOLO_CORE_LINK_STATE_H

#include "exec/cpu/env.h"
#include "exec/cpu/region.h"

#include <errno.h>
#include <pthread.h>

enum { KOLO_TRANSPORTS_MAX = 4 };

/* Whether some thread holds the mutex; for assertions. */
#define KOLO_IS_HELD(mutex) (pthread_mutex_trylock(mutex) == EBUSY)

struct kolo_opened { /* a transport's endpoint of this communicator */
    const struct kolo_transport *transport;
    struct kolo_endpoint *endpoint;
};

struct kolo_device_memory;

struct kolo_links {
    pthread_mutex_t lock; /* every call into an endpoint but from open and close */
    struct kolo_opened opened[KOLO_TRANSPORTS_MAX];
    int nopened;
    struct kolo_opened *mapper; /* whose map() gave the region */
    struct kolo_env env;
    unsigned char *addresses; /* of all peers */
    char unused[224];         /* which transport cannot be used, and why */
    struct kolo_mem region, slots;
    size_t reserved_bytes; /* of the region, from its begin: whose pages are sure to be there */
    bool reserved_long;    /* and those of the long slots */
    struct kolo_exec_env exec_env;
    struct kolo_head *own;                 /* the head of this rank's region */
    bool by_messages;                      /* no rank maps another's memory */
    const struct kolo_device_memory *lent; /* links.h; lock */
};

#endif
