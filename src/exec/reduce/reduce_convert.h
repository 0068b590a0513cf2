// SPDX-License-Identifier: Apache-2.0
/* Small floats to float32 and back, a vector at a time: every case is computed and the right one
 * picked by masks. Included by reduce_body.h alone, after float32's functions.
 *
 * Formats: IEEE 754 binary16; bfloat16, the upper half of float32; OCP 8-bit floating point
 * specification 1.0 (E5M2 like IEEE; E4M3 has no infinity, S.1111.111 is its only NaN). Subnormals
 * use that adding a power of two aligns a float's last bit to the one wanted, so the addition
 * rounds; only normal float32 numbers occur in it, so flushing of subnormals does no harm. That is
 * also why bfloat16 is rounded as an integer: VCVTNEPS2BF16 takes subnormals for zero. */
#ifndef KOLO_EXEC_REDUCE_REDUCE_CONVERT_H
#define KOLO_EXEC_REDUCE_REDUCE_CONVERT_H

enum { FLOAT_INFINITY = 0x7f800000, FLOAT_QUIET = 0x00400000 };

/* FLOAT_LANES codes as they lie in memory. */
typedef vec_half raw_bfloat16, raw_float16;
typedef vec_byte raw_float8_e4m3, raw_float8_e5m2;

/* ---- bfloat16 ---- */

ALWAYS_INLINE vec_float widen_lanes_bfloat16(vec_half code)
{
    return (vec_float)(words_of_halves(code) << 16);
}

/* The result is the upper half. Any NaN but the canonical one might round to infinity or to another
 * NaN. */
ALWAYS_INLINE vec_word rounded_to_half(vec_float x)
{
    const vec_word bits = (vec_word)canonical_float32(x);
    return bits + 0x7fff + (bits >> 16 & 1);
}

ALWAYS_INLINE vec_half narrow_lanes_bfloat16(vec_float x)
{
    return halves_of_words(rounded_to_half(x) >> 16);
}

/* ---- by arithmetic ---- */

struct format {
    int32_t sign;     /* its bit */
    int32_t largest;  /* code of the largest finite number; the next one is infinity or NaN */
    int32_t nan;      /* code of the NaN that results are */
    int32_t infinity; /* 1 where the format has one */
    int32_t shift;    /* mantissa bits fewer than float32's 23 */
    int32_t rebias;   /* 127 less the exponent's bias, in float32's exponent field */
};
static const struct format e4m3 = {0x80, 0x7e, 0x7f, 0, 20, (127 - 7) << 23};
static const struct format e5m2 = {0x80, 0x7b, 0x7e, 1, 21, (127 - 15) << 23};

/* One addition rounds. It adds to x the power of two whose last bit has the value of the result's
 * last bit. The sum's mantissa then holds the result's mantissa with its leading one. The exponent,
 * less one for that leading one, is added to it.
 *
 * Below the smallest normal number the power stays, so subnormals come out alike. Beyond the
 * largest finite number x is cut to a value that rounds to the next code. */
ALWAYS_INLINE vec_int narrow_by(const struct format f, vec_float x)
{
    enum { EXPONENT = 0x7f800000 };
    const vec_int zero = {0}, bits = (vec_int)x, magnitude = bits & 0x7fffffff;
    const int32_t least_normal = f.rebias + (1 << 23);
    const vec_int cut = lesser(magnitude, zero + (((f.largest + 1) << f.shift) + f.rebias));
    const vec_int exponent = greater(cut, zero + least_normal) & EXPONENT;
    const vec_int power = exponent + ((f.shift) << 23);
    const vec_int mantissa = (vec_int)((vec_float)cut + (vec_float)power) - power;
    const vec_int code = mantissa + ((exponent - least_normal) >> f.shift);
    const vec_int sign = (bits >> 31) & f.sign;
    return PICK(magnitude > EXPONENT, zero + f.nan, code | sign);
}

#if !defined(__F16C__)
static const struct format binary16 = {0x8000, 0x7bff, 0x7e00, 1, 13, (127 - 15) << 23};

ALWAYS_INLINE vec_float widen_by(const struct format f, vec_int code)
{
    const vec_int zero = {0};
    const vec_int magnitude = code & (f.sign - 1), field = magnitude << f.shift;
    const vec_int least_normal = zero + (f.rebias + (1 << 23));
    const vec_float subnormal = (vec_float)(field | least_normal) - (vec_float)least_normal;
    const vec_int quiet = (magnitude > f.largest + f.infinity) & FLOAT_QUIET;
    vec_int bits = field + f.rebias;
    bits = PICK(field < 1 << 23, (vec_int)subnormal, bits);
    bits = PICK(magnitude > f.largest, field | FLOAT_INFINITY | quiet, bits);
    return (vec_float)(bits | ((code & f.sign) != 0) << 31);
}

ALWAYS_INLINE vec_float widen_lanes_float16(vec_half code)
{
    return widen_by(binary16, (vec_int)words_of_halves(code));
}

ALWAYS_INLINE vec_half narrow_lanes_float16(vec_float x)
{
    return halves_of_words((vec_word)narrow_by(binary16, x));
}

ALWAYS_INLINE vec_float widen_lanes_float8_e4m3(vec_byte code)
{
    return widen_by(e4m3, (vec_int)words_of_halves(halves_of_bytes(code)));
}

ALWAYS_INLINE vec_float widen_lanes_float8_e5m2(vec_byte code)
{
    return widen_by(e5m2, (vec_int)words_of_halves(halves_of_bytes(code)));
}
#else

/* ---- by the hardware's conversions of float16 ---- */

/* They agree with the arithmetic, but keep a NaN's payload when narrowing. */
ALWAYS_INLINE vec_float widen_lanes_float16(vec_half code)
{
#if defined(__AVX512F__)
    return (vec_float)_mm512_cvtph_ps((__m256i)code);
#else
    return (vec_float)_mm256_cvtph_ps((__m128i)code);
#endif
}

ALWAYS_INLINE vec_half narrow_lanes_float16(vec_float x)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    x = canonical_float32(x);
#if defined(__AVX512F__)
    return (vec_half)_mm512_cvtps_ph((__m512)x, NEAREST);
#else
    return (vec_half)_mm256_cvtps_ph((__m256)x, NEAREST);
#endif
}

/* The upper byte of a float16 is an E5M2; E4M3 has one bit less of exponent, so that its bits, read
 * as a float16, are 2^-8 of it, subnormals included. */
ALWAYS_INLINE vec_float widen_lanes_float8_e5m2(vec_byte code)
{
    return widen_lanes_float16(halves_of_bytes(code) << 8);
}

ALWAYS_INLINE vec_float widen_lanes_float8_e4m3(vec_byte code)
{
    /* Sign, sign, the seven other bits; the second sign is taken out. */
    const vec_half half = signed_halves_of_bytes(code) << 7 & 0xbf80;
    /* Only of the NaN, which has all seven bits, another one carries into the place left free. */
    return widen_lanes_float16(half | ((half + 0x80) & 0x4000)) * 256;
}
#endif

ALWAYS_INLINE vec_byte narrow_lanes_float8_e4m3(vec_float x)
{
    return bytes_of_words((vec_word)narrow_by(e4m3, x));
}

ALWAYS_INLINE vec_byte narrow_lanes_float8_e5m2(vec_float x)
{
    return bytes_of_words((vec_word)narrow_by(e5m2, x));
}

#endif
