// SPDX-License-Identifier: Apache-2.0
/* Walking a kolo_bytes, `count` runs of `bytes` that lie `stride` apart, as one row of bytes. */
#ifndef KOLO_TRANSPORTS_BYTES_H
#define KOLO_TRANSPORTS_BYTES_H

#include "util/copy.h"

#include <kolo/plugin.h>

static inline size_t kolo_bytes_total(const struct kolo_bytes *view)
{
    return view->bytes * view->count;
}

/* The address of byte `at` of the row (at < total). *room gets the number of bytes from there on
 * without a gap. */
static inline char *kolo_bytes_at(const struct kolo_bytes *view, size_t at, size_t *room)
{
    if (view->count == 1 || view->stride == view->bytes) {
        *room = view->bytes * view->count - at;
        return (char *)view->at + at;
    }
    const size_t within = at % view->bytes;
    *room = view->bytes - within;
    return (char *)view->at + at / view->bytes * view->stride + within;
}

/* Copy `len` bytes from byte `at` of the row to `to`. */
static inline void kolo_bytes_read(const struct kolo_bytes *view, size_t at, char *to, size_t len)
{
    while (len > 0) {
        size_t room = 0;
        const char *from = kolo_bytes_at(view, at, &room);
        const size_t part = room < len ? room : len;
        kolo_copy(to, from, part);
        to += part;
        at += part;
        len -= part;
    }
}

/* Copy `len` bytes at `from` over the row, from its byte `at` on. */
static inline void kolo_bytes_write(const struct kolo_bytes *view, size_t at, const char *from,
                                    size_t len)
{
    while (len > 0) {
        size_t room = 0;
        char *to = kolo_bytes_at(view, at, &room);
        const size_t part = room < len ? room : len;
        kolo_copy(to, from, part);
        from += part;
        at += part;
        len -= part;
    }
}

/* Copy the row `from` over the row `to`, which has the same length. */
static inline void kolo_bytes_copy(const struct kolo_bytes *to, const struct kolo_bytes *from)
{
    const size_t total = kolo_bytes_total(from);
    for (size_t at = 0, room = 0; at < total; at += room) {
        const char *bytes = kolo_bytes_at(from, at, &room);
        kolo_bytes_write(to, at, bytes, room);
    }
}

#endif
