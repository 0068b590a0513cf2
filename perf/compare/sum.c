// SPDX-License-Identifier: Apache-2.0
/* The loops. One body is for types that are added directly, another for types that are widened. Two
 * inputs, the usual number, have a loop of their own without an inner loop. */
#include "sum.h"

enum { VECTOR = 64 };

#ifdef __AVX512F__
static inline void stream(void *dst, const void *vector)
{
    _mm512_stream_si512(dst, _mm512_loadu_si512(vector));
}
#elif defined(__x86_64__)
static inline void stream(void *dst, const void *vector)
{
    const __m128i *from = vector;
    __m128i *to = dst;
    for (int i = 0; i < 4; i++) {
        _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    }
}
#endif

static inline bool can_stream(const void *dst, bool wanted)
{
#ifdef __x86_64__
    return wanted && (uintptr_t)dst % VECTOR == 0;
#else
    (void)dst;
    (void)wanted;
    return false;
#endif
}

static inline void finish_stream(bool streamed)
{
#ifdef __x86_64__
    if (streamed) {
        _mm_sfence();
    }
#else
    (void)streamed;
#endif
}

#ifdef __x86_64__
#define STORE(at, vector)                                                                          \
    do {                                                                                           \
        if (nt) {                                                                                  \
            stream(at, &(vector));                                                                 \
        } else {                                                                                   \
            memcpy(at, &(vector), sizeof(vector));                                                 \
        }                                                                                          \
    } while (0)
#else
#define STORE(at, vector) memcpy(at, &(vector), sizeof(vector))
#endif

/* The loop for two sources and the one for any number, with and without streaming stores. */
#define SUM_BY_BODY(name)                                                                          \
    static void name(void *dst, const void *const *src, int k, size_t bytes, bool streamed)        \
    {                                                                                              \
        const bool nt = can_stream(dst, streamed);                                                 \
        if (k == 2) {                                                                              \
            nt ? name##_body(dst, src, 2, bytes, true) : name##_body(dst, src, 2, bytes, false);   \
        } else {                                                                                   \
            nt ? name##_body(dst, src, k, bytes, true) : name##_body(dst, src, k, bytes, false);   \
        }                                                                                          \
        finish_stream(nt);                                                                         \
    }

/* Always inlined with constant k and nt, so that the compiler makes a loop of each. */
#define SUM_OF(name, elem)                                                                         \
    typedef elem name##_vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));        \
    static inline __attribute__((always_inline)) void name##_body(                                 \
        char *dst, const void *const *src, int k, size_t bytes, bool nt)                           \
    {                                                                                              \
        const char *first = src[0];                                                                \
        size_t i = 0;                                                                              \
        (void)nt;                                                                                  \
        for (; i + 2 * VECTOR <= bytes; i += 2 * VECTOR) {                                         \
            name##_vector a = *(const name##_vector *)(first + i);                                 \
            name##_vector b = *(const name##_vector *)(first + i + VECTOR);                        \
            for (int q = 1; q < k; q++) {                                                          \
                const char *other = (const char *)src[q] + i;                                      \
                a += *(const name##_vector *)other;                                                \
                b += *(const name##_vector *)(other + VECTOR);                                     \
            }                                                                                      \
            STORE(dst + i, a);                                                                     \
            STORE(dst + i + VECTOR, b);                                                            \
        }                                                                                          \
        if (i + VECTOR <= bytes) {                                                                 \
            name##_vector a = *(const name##_vector *)(first + i);                                 \
            for (int q = 1; q < k; q++) {                                                          \
                a += *(const name##_vector *)((const char *)src[q] + i);                           \
            }                                                                                      \
            STORE(dst + i, a);                                                                     \
            i += VECTOR;                                                                           \
        }                                                                                          \
        for (; i < bytes; i += sizeof(elem)) {                                                     \
            elem sum, term;                                                                        \
            memcpy(&sum, first + i, sizeof sum);                                                   \
            for (int q = 1; q < k; q++) {                                                          \
                memcpy(&term, (const char *)src[q] + i, sizeof term);                              \
                sum = (elem)(sum + term);                                                          \
            }                                                                                      \
            memcpy(dst + i, &sum, sizeof sum);                                                     \
        }                                                                                          \
    }                                                                                              \
    SUM_BY_BODY(name)

SUM_OF(sum_float32, float)
SUM_OF(sum_float64, double)
SUM_OF(sum_int8, int8_t)
SUM_OF(sum_int32, int32_t)
SUM_OF(sum_int64, int64_t)

/* ---- 16-bit floats: half a line at a time, as 16 floats ---- */

typedef float wide __attribute__((vector_size(VECTOR)));
typedef uint32_t wide_bits __attribute__((vector_size(VECTOR)));
typedef uint16_t narrow __attribute__((vector_size(VECTOR / 2)));

static inline wide widen_bfloat16(const char *at)
{
    narrow bits;
    memcpy(&bits, at, sizeof bits);
    return (wide)(__builtin_convertvector(bits, wide_bits) << 16);
}

static inline narrow narrow_bfloat16(wide value)
{
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    return (narrow)_mm512_cvtneps_pbh((__m512)value);
#else
    const wide_bits bits = (wide_bits)value;
    return __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, narrow);
#endif
}

#ifdef __AVX512F__
#define HAVE_FLOAT16 1
static inline wide widen_float16(const char *at)
{
    return (wide)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

static inline narrow narrow_float16(wide value)
{
    return (narrow)_mm512_cvtps_ph((__m512)value, _MM_FROUND_TO_NEAREST_INT);
}
#elif defined(__F16C__)
#define HAVE_FLOAT16 1
static inline wide widen_float16(const char *at)
{
    const __m256 half[2] = {_mm256_cvtph_ps(_mm_loadu_si128((const void *)at)),
                            _mm256_cvtph_ps(_mm_loadu_si128((const void *)(at + 16)))};
    wide out;
    memcpy(&out, half, sizeof out);
    return out;
}

static inline narrow narrow_float16(wide value)
{
    __m256 half[2];
    memcpy(half, &value, sizeof value);
    const __m128i out[2] = {_mm256_cvtps_ph(half[0], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(half[1], _MM_FROUND_TO_NEAREST_INT)};
    narrow joined;
    memcpy(&joined, out, sizeof joined);
    return joined;
}
#endif

#define SUM_WIDENED(name, widen, shorten)                                                          \
    static inline __attribute__((always_inline)) void name##_body(                                 \
        char *dst, const void *const *src, int k, size_t bytes, bool nt)                           \
    {                                                                                              \
        size_t i = 0;                                                                              \
        (void)nt;                                                                                  \
        for (; i + VECTOR <= bytes; i += VECTOR) {                                                 \
            wide a = widen((const char *)src[0] + i);                                              \
            wide b = widen((const char *)src[0] + i + VECTOR / 2);                                 \
            for (int q = 1; q < k; q++) {                                                          \
                a += widen((const char *)src[q] + i);                                              \
                b += widen((const char *)src[q] + i + VECTOR / 2);                                 \
            }                                                                                      \
            const narrow line[2] = {shorten(a), shorten(b)};                                       \
            STORE(dst + i, line);                                                                  \
        }                                                                                          \
        if (i < bytes) { /* a short line, padded: added zeroes change nothing */                   \
            char part[VECTOR] = {0};                                                               \
            wide sum[2] = {{0}, {0}};                                                              \
            for (int q = 0; q < k; q++) {                                                          \
                memcpy(part, (const char *)src[q] + i, bytes - i);                                 \
                sum[0] += widen(part);                                                             \
                sum[1] += widen(part + VECTOR / 2);                                                \
            }                                                                                      \
            const narrow line[2] = {shorten(sum[0]), shorten(sum[1])};                             \
            memcpy(dst + i, line, bytes - i);                                                      \
        }                                                                                          \
    }                                                                                              \
    SUM_BY_BODY(name)

SUM_WIDENED(sum_bfloat16, widen_bfloat16, narrow_bfloat16)
#ifdef HAVE_FLOAT16
SUM_WIDENED(sum_float16, widen_float16, narrow_float16)
#else
#define sum_float16 NULL
#endif

compare_sum_fn *compare_sum_of(enum compare_type type)
{
    static compare_sum_fn *const sums[COMPARE_TYPES] = {
        sum_float32, sum_float64, sum_float16, sum_bfloat16, sum_int8, sum_int32, sum_int64};
    return sums[type];
}
