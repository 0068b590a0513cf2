// SPDX-License-Identifier: Apache-2.0
/* Lasting ranges of memory: a list under a mutex, because programs have few of them. */
#include "memory/lasting.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct range {
    struct range *next;
    struct kolo_lasting it;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges; /* the newest first; under the lock, as is last_name */
static uint64_t last_name;
static _Atomic uint64_t gone;
static _Atomic int keepers;

void kolo_lasting_add(void *at, size_t len)
{
    struct range *r = malloc(sizeof *r);
    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    *r = (struct range){ranges, {++last_name, at, len}};
    ranges = r;
    pthread_mutex_unlock(&lock);
}

static void drop_range(struct range **at)
{
    struct range *r = *at;
    *at = r->next;
    free(r);
    atomic_fetch_add(&gone, 1);
}

void kolo_lasting_remove(const void *ptr)
{
    pthread_mutex_lock(&lock);
    struct range **at = &ranges;
    while (*at != NULL && (*at)->it.at != ptr) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        drop_range(at);
    }
    pthread_mutex_unlock(&lock);
}

void kolo_lasting_forget(const void *ptr, size_t len)
{
    const uintptr_t from = (uintptr_t)ptr;
    pthread_mutex_lock(&lock);
    for (struct range **at = &ranges; *at != NULL;) {
        const uintptr_t begin = (uintptr_t)(*at)->it.at;
        if (begin < from + len && from < begin + (*at)->it.len) {
            drop_range(at);
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool kolo_lasting_find(const void *ptr, size_t len, struct kolo_lasting *out)
{
    const uintptr_t from = (uintptr_t)ptr;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct range *r = ranges; r != NULL && !found; r = r->next) {
        const uintptr_t begin = (uintptr_t)r->it.at;
        found = from >= begin && len <= r->it.len && from - begin <= r->it.len - len;
        if (found) {
            *out = r->it;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool kolo_lasting_is(uint64_t name)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct range *r = ranges; r != NULL && !found; r = r->next) {
        found = r->it.name == name;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

uint64_t kolo_lasting_gone(void)
{
    return atomic_load(&gone);
}

int kolo_lasting_keepers(int change)
{
    return atomic_fetch_add(&keepers, change) + change;
}
