// SPDX-License-Identifier: Apache-2.0
/* Vectors as wide as the instruction set's registers, in the compilers' vector extension:
 * arithmetic is written as on numbers, and a comparison gives all ones where it holds. Included by
 * reduce_body.h alone. */
#ifndef KOLO_EXEC_REDUCE_REDUCE_LANES_H
#define KOLO_EXEC_REDUCE_REDUCE_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* TWICE: each even lane's number, twice. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define TWICE_WORDS  0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14
#define TWICE_LONGS  0, 0, 2, 2, 4, 4, 6, 6
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define TWICE_WORDS  0, 0, 2, 2, 4, 4, 6, 6
#define TWICE_LONGS  0, 0, 2, 2
#else
#define VECTOR_BYTES 16
#define TWICE_WORDS  0, 0, 2, 2
#define TWICE_LONGS  0, 0
#endif
#define VECTOR(type) type __attribute__((vector_size(VECTOR_BYTES)))

typedef VECTOR(float) vec_float;
typedef VECTOR(double) vec_double;
typedef VECTOR(int32_t) vec_int;
typedef VECTOR(uint32_t) vec_word;
typedef VECTOR(int64_t) vec_long;
enum { FLOAT_LANES = VECTOR_BYTES / sizeof(float) };
/* As many short ones. */
typedef uint16_t vec_half __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint8_t vec_byte __attribute__((vector_size(VECTOR_BYTES / 4)));

/* By bits: `yes` where the mask is set, else `no`. All three of one type. */
#define PICK(mask, yes, no) ((no) ^ (((yes) ^ (no)) & (mask)))

/* ---- lengthening and cutting: __builtin_convertvector() is several instructions in GCC 12 ---- */

ALWAYS_INLINE vec_word words_of_halves(vec_half x)
{
#if defined(__AVX512F__)
    return (vec_word)_mm512_cvtepu16_epi32((__m256i)x);
#elif defined(__AVX2__)
    return (vec_word)_mm256_cvtepu16_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, vec_word);
#endif
}

ALWAYS_INLINE vec_half halves_of_bytes(vec_byte x)
{
#if defined(__AVX512F__)
    return (vec_half)_mm256_cvtepu8_epi16((__m128i)x);
#elif defined(__AVX2__)
    return (vec_half)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)&x));
#else
    return __builtin_convertvector(x, vec_half);
#endif
}

#if defined(__AVX2__)
ALWAYS_INLINE vec_half signed_halves_of_bytes(vec_byte x)
{
#if defined(__AVX512F__)
    return (vec_half)_mm256_cvtepi8_epi16((__m128i)x);
#else
    return (vec_half)_mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)&x));
#endif
}
#endif

/* Every lane of x fits. */
ALWAYS_INLINE vec_half halves_of_words(vec_word x)
{
#if defined(__AVX512F__)
    return (vec_half)_mm512_cvtepi32_epi16((__m512i)x);
#elif defined(__AVX2__)
    const __m128i low = _mm256_castsi256_si128((__m256i)x);
    return (vec_half)_mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)x, 1));
#else
    return __builtin_convertvector(x, vec_half);
#endif
}

ALWAYS_INLINE vec_byte bytes_of_words(vec_word x)
{
#if defined(__AVX512F__)
    return (vec_byte)_mm512_cvtepi32_epi8((__m512i)x);
#elif defined(__AVX2__)
    const __m128i halves = (__m128i)halves_of_words(x);
    return (vec_byte)_mm_cvtsi128_si64(_mm_packus_epi16(halves, halves));
#else
    return __builtin_convertvector(x, vec_byte);
#endif
}

/* ---- the lesser and the greater of two lanes, which compilers do not see in a PICK ---- */

ALWAYS_INLINE vec_int lesser(vec_int a, vec_int b)
{
#if defined(__AVX512F__)
    return (vec_int)_mm512_min_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vec_int)_mm256_min_epi32((__m256i)a, (__m256i)b);
#else
    return PICK(a < b, a, b);
#endif
}

ALWAYS_INLINE vec_int greater(vec_int a, vec_int b)
{
#if defined(__AVX512F__)
    return (vec_int)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vec_int)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    return PICK(a > b, a, b);
#endif
}

/* ---- memory ---- */

/* Part of a vector of `room` bytes, a power of two: the first `bytes`, at least one. Memory beyond
 * them is not touched; what is left of *vector is zero, or as before. */
ALWAYS_INLINE void load_some(void *vector, size_t room, const void *src, size_t bytes)
{
#if defined(__AVX512F__)
    const __m512i all = _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - bytes), src);
    memcpy(vector, &all, room);
#else
    char *to = vector;
    const char *from = src;
#pragma GCC unroll 8
    for (size_t part = VECTOR_BYTES; part > 0; part /= 2) {
        if (part <= room && (bytes & part)) {
            memcpy(to, from, part);
            to += part;
            from += part;
        }
    }
#endif
}

ALWAYS_INLINE void store_some(void *dst, const void *vector, size_t room, size_t bytes)
{
#if defined(__AVX512F__)
    __m512i all = _mm512_setzero_si512();
    memcpy(&all, vector, room);
    _mm512_mask_storeu_epi8(dst, ~(__mmask64)0 >> (64 - bytes), all);
#else
    char *to = dst;
    const char *from = vector;
#pragma GCC unroll 8
    for (size_t part = VECTOR_BYTES; part > 0; part /= 2) {
        if (part <= room && (bytes & part)) {
            memcpy(to, from, part);
            to += part;
            from += part;
        }
    }
#endif
}

#endif
