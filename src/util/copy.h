// SPDX-License-Identifier: Apache-2.0
/* Copies of host memory that does not overlap. */
#ifndef KOLO_UTIL_COPY_H
#define KOLO_UTIL_COPY_H

#include <stddef.h>
#include <string.h>

/* Copy. On x86 copies from 512 bytes on use `rep movsb`, or `rep movsq` on processors without fast
 * short `rep movsb`. Both take the lines that they overwrite without reading them, which pays if
 * another core had read them. They are not used where they are slow: see copy.c. Empty copies may
 * have no memory. */
void kolo_copy_long(void *dst, const void *src, size_t bytes);
/* Copy at least 8 bytes by words. The last word may overlap the one before it. */
void kolo_copy_by_words(void *dst, const void *src, size_t bytes);
static inline void kolo_copy(void *dst, const void *src, size_t bytes)
{
    char *to = (char *)dst;
    const char *from = (const char *)src;
    if (bytes == 8) { /* most calls of a few bytes */
        memcpy(to, from, 8);
    } else if (bytes > 64) {
        kolo_copy_long(dst, src, bytes);
    } else if (bytes >= 32) { /* from both ends, overlapping in the middle */
        memcpy(to, from, 32);
        memcpy(to + bytes - 32, from + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes > 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else {
        for (size_t i = 0; i < bytes; i++) {
            to[i] = from[i];
        }
    }
}

/* Copy past the caches: whole lines of dst are neither read nor kept. Use it for bytes that no core
 * reads soon. These stores are not ordered with other stores. So call kolo_copy_fence() before you
 * signal that the bytes are there. */
void kolo_copy_past(void *dst, const void *src, size_t bytes);
void kolo_copy_fence(void);

#endif
