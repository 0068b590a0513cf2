// SPDX-License-Identifier: Apache-2.0
/* Copies of host memory: one for lines that another core holds, and one past the caches. */
#include "exec/reduce/reduce.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

void kolo_copy_long(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__)
    if (bytes >= 512) {
        __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

void kolo_copy_past(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
#if defined(__x86_64__)
    const size_t head = -(uintptr_t)to % 64;
    if (bytes >= head + 64) {
        memcpy(to, from, head);
        to += head;
        from += head;
        bytes -= head;
        for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
            __m128i *line = (__m128i *)(void *)to;
            const __m128i *in = (const __m128i *)(const void *)from;
            const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
            const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
            _mm_stream_si128(line, a);
            _mm_stream_si128(line + 1, b);
            _mm_stream_si128(line + 2, c);
            _mm_stream_si128(line + 3, d);
        }
    }
#endif
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

void kolo_copy_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
