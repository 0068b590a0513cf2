// SPDX-License-Identifier: Apache-2.0
/* Small floats to float32 and back, in integer arithmetic that compilers turn into vectors: every
 * case is computed and the right one picked by masks, as GCC makes branches of some conditional
 * expressions, and a loop with branches stays scalar. Included by reduce_body.h alone.
 *
 * Formats: IEEE 754 binary16; bfloat16, the upper half of float32; OCP 8-bit floating point
 * specification 1.0 (E5M2 like IEEE; E4M3 has no infinity, S.1111.111 is its only NaN). Subnormals
 * use that adding a power of two aligns a float's last bit to the one wanted, so the addition
 * rounds; only normal float32 numbers occur in it, so flushing of subnormals does no harm. */
#ifndef KOLO_EXEC_REDUCE_CONVERT_H
#define KOLO_EXEC_REDUCE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { FLOAT_INFINITY = 0x7f800000, FLOAT_QUIET = 0x00400000, FLOAT_NAN = 0x7fc00000 };

ALWAYS_INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ALWAYS_INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

ALWAYS_INLINE uint32_t pick(bool condition, uint32_t yes, uint32_t no)
{
    return no ^ ((yes ^ no) & -(uint32_t)condition);
}

struct format {
    uint32_t sign;     /* its bit */
    uint32_t largest;  /* code of the largest finite number; the next one is infinity or NaN */
    uint32_t nan;      /* code of the NaN that results are */
    uint32_t infinity; /* 1 where the format has one */
    uint32_t shift;    /* mantissa bits fewer than float32's 23 */
    uint32_t rebias;   /* 127 less the exponent's bias, in float32's exponent field */
};
static const struct format float8_e4m3 = {0x80, 0x7e, 0x7f, 0, 20, (127u - 7u) << 23};
static const struct format float8_e5m2 = {0x80, 0x7b, 0x7e, 1, 21, (127u - 15u) << 23};

ALWAYS_INLINE float widen(const struct format f, uint32_t code)
{
    const uint32_t magnitude = code & (f.sign - 1);
    const uint32_t field = magnitude << f.shift;
    const uint32_t least_normal = f.rebias + (1u << 23);
    const float subnormal = float_of(field | least_normal) - float_of(least_normal);
    const uint32_t quiet = pick(magnitude > f.largest + f.infinity, FLOAT_QUIET, 0);
    uint32_t bits = field + f.rebias;
    bits = pick(field < 1u << 23, bits_of(subnormal), bits);
    bits = pick(magnitude > f.largest, field | FLOAT_INFINITY | quiet, bits);
    return float_of(bits | pick(code & f.sign, 0x80000000u, 0));
}

ALWAYS_INLINE uint32_t narrow(const struct format f, float x)
{
    const uint32_t bits = bits_of(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t aligner = f.rebias + ((f.shift + 1) << 23);
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(aligner)) - aligner;
    const uint32_t half = (1u << (f.shift - 1)) - 1 + (magnitude >> f.shift & 1);
    uint32_t code = (magnitude + half - f.rebias) >> f.shift;
    code = pick(magnitude < f.rebias + (1u << 23), subnormal, code);
    code = pick((magnitude >= FLOAT_INFINITY) | (code > f.largest), f.largest + 1, code);
    code |= pick(bits >> 31, f.sign, 0);
    return pick(magnitude > FLOAT_INFINITY, f.nan, code);
}

ALWAYS_INLINE float canonical_float32(float x)
{
    return float_of(pick(x != x, FLOAT_NAN, bits_of(x)));
}

ALWAYS_INLINE float widen_bfloat16(uint16_t code)
{
    return float_of((uint32_t)code << 16);
}

/* Any NaN but the canonical one might round to infinity or to another NaN. */
ALWAYS_INLINE uint16_t round_bfloat16(float x)
{
    const uint32_t bits = bits_of(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- arrays: kolo_widen_fn and kolo_narrow_fn ------------------------------------------------ */

#if defined(__F16C__)
/* The hardware's conversions agree with widen() and narrow(), but keep a NaN's payload when
 * narrowing. Vectors are as wide as those of the loops that load the result right afterwards: a
 * load that spans two stores waits for both to reach the cache. */
enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };

#if defined(__AVX512F__)
enum { LANES = 16 };

ALWAYS_INLINE void widen_lanes(float *dst, const uint16_t *src)
{
    _mm512_storeu_ps(dst, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)src)));
}

ALWAYS_INLINE void narrow_lanes(uint16_t *dst, const float *src)
{
    const __m512 x = _mm512_loadu_ps(src);
    const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(FLOAT_NAN));
    const __m512 safe = _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
    _mm256_storeu_si256((__m256i *)(void *)dst, _mm512_cvtps_ph(safe, NEAREST));
}
#else
enum { LANES = 8 };

ALWAYS_INLINE void widen_lanes(float *dst, const uint16_t *src)
{
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src)));
}

ALWAYS_INLINE void narrow_lanes(uint16_t *dst, const float *src)
{
    const __m256 x = _mm256_loadu_ps(src);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(FLOAT_NAN));
    const __m256 safe = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i *)(void *)dst, _mm256_cvtps_ph(safe, NEAREST));
}
#endif

static void widen_all_float16(float *dst, const void *src, size_t count)
{
    const uint16_t *code = src;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        widen_lanes(dst + i, code + i);
    }
    for (; i < count; i++) {
        dst[i] = _cvtsh_ss(code[i]);
    }
}

static void narrow_all_float16(void *dst, const float *src, size_t count)
{
    uint16_t *code = dst;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        narrow_lanes(code + i, src + i);
    }
    for (; i < count; i++) {
        code[i] = _cvtss_sh(canonical_float32(src[i]), NEAREST);
    }
}
#else
static const struct format float16 = {0x8000, 0x7bff, 0x7e00, 1, 13, (127u - 15u) << 23};

static void widen_all_float16(float *dst, const void *src, size_t count)
{
    const uint16_t *code = src;
    for (size_t i = 0; i < count; i++) {
        dst[i] = widen(float16, code[i]);
    }
}

static void narrow_all_float16(void *dst, const float *src, size_t count)
{
    uint16_t *code = dst;
    for (size_t i = 0; i < count; i++) {
        code[i] = (uint16_t)narrow(float16, src[i]);
    }
}
#endif

static void widen_all_bfloat16(float *dst, const void *src, size_t count)
{
    const uint16_t *code = src;
    for (size_t i = 0; i < count; i++) {
        dst[i] = widen_bfloat16(code[i]);
    }
}

static void narrow_all_bfloat16(void *dst, const float *src, size_t count)
{
    uint16_t *code = dst;
    for (size_t i = 0; i < count; i++) {
        code[i] = round_bfloat16(canonical_float32(src[i]));
    }
}

static void widen_all_float8_e4m3(float *dst, const void *src, size_t count)
{
    const uint8_t *restrict code = src;
    for (size_t i = 0; i < count; i++) {
        dst[i] = widen(float8_e4m3, code[i]);
    }
}

static void narrow_all_float8_e4m3(void *dst, const float *src, size_t count)
{
    uint8_t *restrict code = dst;
    for (size_t i = 0; i < count; i++) {
        code[i] = (uint8_t)narrow(float8_e4m3, src[i]);
    }
}

static void widen_all_float8_e5m2(float *dst, const void *src, size_t count)
{
    const uint8_t *restrict code = src;
    for (size_t i = 0; i < count; i++) {
        dst[i] = widen(float8_e5m2, code[i]);
    }
}

static void narrow_all_float8_e5m2(void *dst, const float *src, size_t count)
{
    uint8_t *restrict code = dst;
    for (size_t i = 0; i < count; i++) {
        code[i] = (uint8_t)narrow(float8_e5m2, src[i]);
    }
}

#endif
