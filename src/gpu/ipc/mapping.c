// SPDX-License-Identifier: Apache-2.0
/* The mappings of each pool. */
#include "gpu/ipc/mapping.h"

#include "gpu/context/pending.h"

#include <pthread.h>
#include <stdlib.h>

/* Of the mappings of all pools. Never held while the driver maps: another thread may have the
 * driver's lock until a call has ended that only looks for a mapping here. */
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;

static bool overlap(const struct kolo_ipc_mapped *m, uint64_t process,
                    const struct kolo_cuda_ipc_memory *memory)
{
    return m->process == process && m->base < memory->base + memory->bytes &&
           memory->base < m->base + m->bytes;
}

/* Hold the mapping of an allocation; NULL: there is none. A mapping of another allocation at the
 * same addresses is of memory that is gone. The caller has the lock. */
static struct kolo_ipc_mapped *hold(struct kolo_gpu_pool *pool, uint64_t process,
                                    const struct kolo_cuda_ipc_memory *memory)
{
    struct kolo_ipc_mapped *found = NULL;
    for (struct kolo_ipc_mapped *m = pool->mapped; m != NULL; m = m->next) {
        if (!overlap(m, process, memory)) {
            continue;
        }
        if (!m->gone && m->base == memory->base && m->bytes == memory->bytes &&
            m->id == memory->id) {
            found = m;
        } else {
            m->gone = true;
        }
    }
    if (found != NULL) {
        found->holders++;
    }
    return found;
}

/* Another thread may have mapped the same meanwhile: the driver then gave the same address. */
static struct kolo_ipc_mapped *add(struct kolo_gpu_pool *pool, uint64_t process,
                                   const struct kolo_cuda_ipc_memory *memory, kolo_cuda_address at)
{
    pthread_mutex_lock(&mappings_lock);
    struct kolo_ipc_mapped *m = hold(pool, process, memory);
    if (m == NULL) {
        m = calloc(1, sizeof *m);
        if (m != NULL) {
            *m = (struct kolo_ipc_mapped){.next = pool->mapped,
                                          .process = process,
                                          .base = memory->base,
                                          .bytes = memory->bytes,
                                          .id = memory->id,
                                          .at = at,
                                          .holders = 1};
            pool->mapped = m;
        }
    }
    if (m != NULL) {
        m->opens++;
    }
    pthread_mutex_unlock(&mappings_lock);
    return m;
}

struct kolo_ipc_mapped *kolo_ipc_map(struct kolo_gpu_pool *pool, uint64_t process,
                                     const struct kolo_cuda_ipc_memory *memory)
{
    pthread_mutex_lock(&mappings_lock);
    struct kolo_ipc_mapped *m = hold(pool, process, memory);
    pthread_mutex_unlock(&mappings_lock);
    if (m != NULL) {
        return m;
    }
    kolo_cuda_address at = kolo_cuda_ipc_open(pool->cuda, &memory->handle);
    if (at == 0) { /* where old memory is mapped, perhaps */
        kolo_ipc_mappings_try_close(pool);
        at = kolo_cuda_ipc_open(pool->cuda, &memory->handle);
    }
    m = at != 0 ? add(pool, process, memory, at) : NULL;
    if (at != 0 && m == NULL) {
        (void)pool->cuda->ipc_close_mem_handle(at);
    }
    return m;
}

void kolo_ipc_unmap(struct kolo_ipc_mapped *mapped)
{
    if (mapped != NULL) {
        pthread_mutex_lock(&mappings_lock);
        mapped->holders--;
        pthread_mutex_unlock(&mappings_lock);
    }
}

/* ---- closing ---- */

void kolo_ipc_mappings_close(struct kolo_gpu_pool *pool)
{
    pthread_mutex_lock(&mappings_lock);
    for (struct kolo_ipc_mapped **at = &pool->mapped; *at != NULL;) {
        struct kolo_ipc_mapped *m = *at;
        for (; m->opens > 0 && (m->holders == 0 || m->gone); m->opens--) {
            (void)pool->cuda->ipc_close_mem_handle(m->at);
        }
        m->at = m->opens > 0 ? m->at : 0;
        if (m->holders > 0) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        free(m);
    }
    pthread_mutex_unlock(&mappings_lock);
}

void kolo_ipc_mappings_try_close(struct kolo_gpu_pool *pool)
{
    if (kolo_pending_alone_begin()) {
        kolo_ipc_mappings_close(pool);
        kolo_pending_alone_end();
    }
}
