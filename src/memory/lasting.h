// SPDX-License-Identifier: Apache-2.0
/* Lasting memory: ranges of kolo_mem_alloc(), and ranges that the application registered.
 *
 * A lasting range stays mapped until kolo is told of its end. So a transport may cache facts about
 * it under its name. For other memory it must cache nothing: the application may unmap that memory,
 * and map other memory at the same address, without notice. Any thread may call. */
#ifndef KOLO_MEMORY_LASTING_H
#define KOLO_MEMORY_LASTING_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_lasting {
    uint64_t name; /* no other range has it, before or after */
    void *at;
    size_t len;
};

/* [at, at + len) lasts from now on. If there is no memory to record it, it does not. */
void kolo_lasting_add(void *at, size_t len);
/* The range that begins at `at` no longer lasts; of several ranges, the newest. Call this before
 * the memory is given back. */
void kolo_lasting_remove(const void *at);
/* Every range that overlaps [at, at + len) no longer lasts. */
void kolo_lasting_forget(const void *at, size_t len);
/* Find the range that contains [at, at + len). */
bool kolo_lasting_find(const void *at, size_t len, struct kolo_lasting *out);
/* Whether the range of this name still lasts. */
bool kolo_lasting_is(uint64_t name);
/* The number of ranges that have ended. If it has not changed, no range has ended since. */
uint64_t kolo_lasting_gone(void);
/* Count the transports that cache facts: +1 at a start, -1 at a stop. Returns the count. */
int kolo_lasting_keepers(int change);

#ifdef __cplusplus
}
#endif
#endif
