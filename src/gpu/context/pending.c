// SPDX-License-Identifier: Apache-2.0
/* The count of pending calls. */
#include "gpu/context/pending.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static _Atomic size_t pending;
static pthread_rwlock_t enqueuing = PTHREAD_RWLOCK_INITIALIZER;

void kolo_pending_enqueue_begin(void)
{
    pthread_rwlock_rdlock(&enqueuing);
    atomic_fetch_add(&pending, 1);
}

void kolo_pending_enqueue_end(void)
{
    pthread_rwlock_unlock(&enqueuing);
}

void kolo_pending_end(void)
{
    atomic_fetch_sub(&pending, 1);
}

bool kolo_pending_alone_begin(void)
{
    if (pthread_rwlock_trywrlock(&enqueuing) != 0) {
        return false;
    }
    if (atomic_load(&pending) > 0) {
        pthread_rwlock_unlock(&enqueuing);
        return false;
    }
    return true;
}

void kolo_pending_alone_end(void)
{
    pthread_rwlock_unlock(&enqueuing);
}
