// SPDX-License-Identifier: Apache-2.0
/* Buffers with a guard zone before and after the part in use: [guard][used][guard][unused]. The
 * guard zones hold poison. A call that writes next to its buffer changes the poison. */
#include "perf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xA5 };

void perf_poison(const struct perf_buffer *buffer, size_t used_bytes)
{
    assert(used_bytes <= buffer->capacity);
    memset(buffer->bytes - PERF_GUARD_BYTES, POISON, used_bytes + 2 * (size_t)PERF_GUARD_BYTES);
}

int64_t perf_guard_check(const struct perf_buffer *buffer, size_t used_bytes)
{
    int64_t changed = 0;
    for (size_t b = 0; b < PERF_GUARD_BYTES; b++) {
        changed += buffer->bytes[(ptrdiff_t)b - PERF_GUARD_BYTES] != POISON;
        changed += buffer->bytes[used_bytes + b] != POISON;
    }
    return changed;
}

bool perf_buffer_create(size_t capacity, bool shared, struct perf_buffer *out)
{
    const size_t bytes =
        (capacity + 3 * (size_t)PERF_GUARD_BYTES - 1) / PERF_GUARD_BYTES * PERF_GUARD_BYTES;
    void *base = NULL;
    if (shared) {
        if (kolo_mem_alloc(bytes, &base) < 0) {
            fprintf(stderr, "kolo_mem_alloc: %s\n", kolo_error_text());
            return false;
        }
    } else if (posix_memalign(&base, PERF_GUARD_BYTES, bytes) != 0) {
        fprintf(stderr, "no memory for a buffer of %zu bytes\n", bytes);
        return false;
    }
    *out = (struct perf_buffer){.bytes = (unsigned char *)base + PERF_GUARD_BYTES,
                                .capacity = capacity,
                                .base = base,
                                .shared = shared};
    return true;
}

bool perf_buffer_register(struct perf_buffer *buffer)
{
    const kolo_status status = buffer->capacity > 0
                                   ? kolo_mem_register(buffer->bytes, buffer->capacity)
                                   : KOLO_ERR_UNSUPPORTED;
    if (status < 0 && status != KOLO_ERR_UNSUPPORTED) {
        fprintf(stderr, "kolo_mem_register: %s\n", kolo_error_text());
        return false;
    }
    buffer->registered = status < 0 ? NULL : buffer->bytes;
    return true;
}

void perf_buffer_destroy(struct perf_buffer *buffer)
{
    if (buffer->registered != NULL && kolo_mem_unregister(buffer->registered) < 0) {
        fprintf(stderr, "kolo_mem_unregister: %s\n", kolo_error_text());
    }
    if (buffer->shared) {
        kolo_mem_free(buffer->base);
    } else {
        free(buffer->base);
    }
    *buffer = (struct perf_buffer){.bytes = NULL};
}
