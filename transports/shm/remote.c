// SPDX-License-Identifier: Apache-2.0
/* The cache of mapped segments: a list under a mutex. No thread holds it while it asks a peer. */
#include "transports/shm/remote.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct kolo_remote {
    struct kolo_remote *next;
    unsigned char name[16]; /* of the process that owns it */
    uint32_t id;
    int holds;
    void *base;
    size_t len;
};

static struct {
    pthread_mutex_t lock;
    struct kolo_remote *first;
} cache = {PTHREAD_MUTEX_INITIALIZER, NULL};

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&cache.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&cache.lock);
}

/* The child keeps the mappings, because links of the parent point at them, and forgets the list. */
static void after_fork_child(void)
{
    cache.first = NULL;
    pthread_mutex_unlock(&cache.lock); /* the only thread of the child locked it */
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Under the lock. The entry, held once more, or NULL. */
static struct kolo_remote *find_and_hold(const unsigned char *name, uint32_t id)
{
    struct kolo_remote *remote = cache.first;
    while (remote != NULL &&
           (remote->id != id || memcmp(remote->name, name, sizeof remote->name) != 0)) {
        remote = remote->next;
    }
    if (remote != NULL) {
        remote->holds++;
    }
    return remote;
}

/* Fetch and map a segment. The entry is held once and not in the cache yet. */
static kolo_status make_remote(const struct kolo_shm_owner *owner, uint32_t id,
                               const struct kolo_own_fd *file, struct kolo_remote **out)
{
    int fd = -1;
    uint64_t len = 0;
    if (!kolo_service_open(owner, file, &fd, &len)) {
        KOLO_TRY(kolo_service_fetch(owner, id, &fd, &len));
    }
    struct kolo_remote *remote = calloc(1, sizeof *remote);
    void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int failed = base == MAP_FAILED ? errno : 0;
    close(fd); /* the mapping keeps the memory */
    if (remote == NULL || base == MAP_FAILED) {
        free(remote);
        if (base != MAP_FAILED) {
            munmap(base, len);
        }
        return kolo_fail(KOLO_ERR_SYSTEM, "mapping %zu bytes of rank %d (pid %d): %s", (size_t)len,
                         owner->rank, owner->pid, strerror(failed != 0 ? failed : ENOMEM));
    }
    memcpy(remote->name, owner->identity.name, sizeof remote->name);
    remote->id = id;
    remote->holds = 1;
    remote->base = base;
    remote->len = len;
    *out = remote;
    return KOLO_OK;
}

static void destroy_remote(struct kolo_remote *remote)
{
    munmap(remote->base, remote->len);
    free(remote);
}

kolo_status kolo_remote_hold(const struct kolo_shm_owner *owner, uint32_t id,
                             const struct kolo_own_fd *file, struct kolo_remote **out, void **base,
                             size_t *len)
{
    struct kolo_remote *fresh = NULL;
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&cache.lock);
    struct kolo_remote *remote = find_and_hold(owner->identity.name, id);
    pthread_mutex_unlock(&cache.lock);
    if (remote == NULL) {
        KOLO_TRY(make_remote(owner, id, file, &fresh));
        pthread_mutex_lock(&cache.lock);
        remote = find_and_hold(owner->identity.name, id); /* another thread may have been faster */
        if (remote == NULL) {
            fresh->next = cache.first;
            cache.first = remote = fresh;
            fresh = NULL;
        }
        pthread_mutex_unlock(&cache.lock);
    }
    if (fresh != NULL) {
        destroy_remote(fresh);
    }
    *out = remote;
    *base = remote->base;
    *len = remote->len;
    return KOLO_OK;
}

void kolo_remote_drop(struct kolo_remote *remote)
{
    pthread_mutex_lock(&cache.lock);
    struct kolo_remote **at = &cache.first;
    while (*at != NULL && *at != remote) {
        at = &(*at)->next;
    }
    /* In a forked child the cache does not know the parent's entries. */
    if (*at != NULL && --remote->holds == 0) {
        *at = remote->next;
        destroy_remote(remote);
    }
    pthread_mutex_unlock(&cache.lock);
}
