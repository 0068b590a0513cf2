// SPDX-License-Identifier: Apache-2.0
/* Copies by whole lines of 64 bytes, through the caches and past them. */
#include "util/copy.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(__x86_64__)
/* Copy lines, one after the other. `to` is aligned to a line. */
static inline void copy_lines(char *to, const char *from, size_t lines, bool past)
{
    for (; lines > 0; lines--, to += 64, from += 64) {
        __m128i *line = (__m128i *)(void *)to;
        const __m128i *in = (const __m128i *)(const void *)from;
        const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
        const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
        if (past) {
            _mm_stream_si128(line, a);
            _mm_stream_si128(line + 1, b);
            _mm_stream_si128(line + 2, c);
            _mm_stream_si128(line + 3, d);
        } else {
            _mm_store_si128(line, a);
            _mm_store_si128(line + 1, b);
            _mm_store_si128(line + 2, c);
            _mm_store_si128(line + 3, d);
        }
    }
}

/* Copy at least SHORTEST bytes, so that dst has a whole line. The bytes before its first line and
 * behind its last one are copied as they are. */
#define SHORTEST 128
static inline void copy_by_lines(void *dst, const void *src, size_t bytes, bool past)
{
    char *to = dst;
    const char *from = src;
    const size_t head = -(uintptr_t)to % 64;
    const size_t lines = (bytes - head) / 64, tail = head + lines * 64;
    memcpy(to, from, head);
    copy_lines(to + head, from + head, lines, past);
    memcpy(to + tail, from + tail, bytes - tail);
}

/* Whether dst lies 1 to 63 bytes behind src, pages left out. Zen 3 then copies 2 to 3 GB/s by
 * `rep movsb`, and 30 to 50 GB/s by a loop (sourceware.org, bug 30994); Intel's processors are slow
 * if the distance is that short (GNU libc avoids it there). Memory from malloc() begins 16 bytes
 * behind a page, and memory that ranks share begins at one, so programs meet this often. */
static bool is_slow(const void *dst, const void *src)
{
    const uintptr_t behind = ((uintptr_t)dst - (uintptr_t)src) % 4096;
    return behind > 0 && behind < 64;
}

/* Whether the processor says that `rep movsb` is fast for every length (FSRM). Others copy by words.
 * QEMU's emulation moves one byte a turn by `rep movsb`, at a tenth of the speed of words. */
static bool has_fast_bytes(void)
{
    static _Atomic signed char known; /* 0: not yet; 1: yes; -1: no */
    signed char fast = atomic_load_explicit(&known, memory_order_relaxed);
    if (fast == 0) {
        const unsigned fsrm = 1U << 4;
        unsigned a = 0, b = 0, c = 0, d = 0;
        fast = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & fsrm) != 0 ? 1 : -1;
        atomic_store_explicit(&known, fast, memory_order_relaxed);
    }
    return fast > 0;
}
#endif

void kolo_copy_by_words(void *dst, const void *src, size_t bytes)
{
    assert(bytes >= 8);
    const size_t last = bytes - 8;
#if defined(__x86_64__)
    void *to = dst;
    const void *from = src;
    size_t words = bytes / 8;
    __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
#else
    memcpy(dst, src, last);
#endif
    memcpy((char *)dst + last, (const char *)src + last, 8);
}

void kolo_copy_long(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__)
    if (bytes >= 512) {
        if (is_slow(dst, src)) {
            copy_by_lines(dst, src, bytes, false);
        } else if (has_fast_bytes()) {
            __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
        } else {
            kolo_copy_by_words(dst, src, bytes);
        }
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

void kolo_copy_past(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__)
    if (bytes >= SHORTEST) {
        copy_by_lines(dst, src, bytes, true);
        return;
    }
#endif
    kolo_copy(dst, src, bytes);
}

void kolo_copy_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}
