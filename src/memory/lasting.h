// SPDX-License-Identifier: Apache-2.0
/* Memory that stays what it is until somebody says otherwise: of kolo_mem_alloc(), and ranges that
 * were registered. What a transport found out about such a range, it may keep under its name; about
 * any other memory nothing can be kept, since it may be unmapped, and other memory mapped there,
 * without a word. Any thread may call. */
#ifndef KOLO_MEMORY_LASTING_H
#define KOLO_MEMORY_LASTING_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_lasting {
    uint64_t name; /* of no other range, before or after */
    void *at;
    size_t len;
};

/* [at, at + len) lasts from here on. Without memory to remember it, it does not. */
void kolo_lasting_add(void *at, size_t len);
/* What begins at `at` does not last any more; of several the newest. Call before it is given back.
 */
void kolo_lasting_remove(const void *at);
/* Nor does anything that touches [at, at + len). */
void kolo_lasting_forget(const void *at, size_t len);
/* The range that [at, at + len) lies in. */
bool kolo_lasting_find(const void *at, size_t len, struct kolo_lasting *out);
/* Whether the range of this name is still there. */
bool kolo_lasting_is(uint64_t name);
/* How many are gone by now: where it has not changed, none is. */
uint64_t kolo_lasting_gone(void);
/* Transports that keep something: +1 when one begins, -1 when it ends. Returns how many do. */
int kolo_lasting_keepers(int change);

#ifdef __cplusplus
}
#endif
#endif
