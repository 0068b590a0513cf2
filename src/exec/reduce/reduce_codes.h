// SPDX-License-Identifier: Apache-2.0
/* Codecs INT8, INT4 and FP8 (codec.h). A unit has 60 bytes of codes and a scale. As many numbers as
 * bytes are a half of 64 lanes: the last 4 stand for the scale, and the arithmetic computes on them
 * as if they were codes and then drops them. A unit of INT8 or FP8 is one half. One of INT4 is two, in
 * the low and the high bits of the same bytes. `codec` is a constant wherever it is passed. Included
 * by reduce_body.h alone. */

enum {
    HALF_NUMBERS = KOLO_INT8_UNIT_NUMBERS,
    HALF_VECTORS = KOLO_UNIT_BYTES / FLOAT_LANES,
    MAGNITUDE = 0x7fffffff
};
_Static_assert(KOLO_INT4_UNIT_NUMBERS == 2 * HALF_NUMBERS, "all codecs have the same bytes");
_Static_assert((int)KOLO_FP8_UNIT_NUMBERS == (int)HALF_NUMBERS, "all codecs have the same bytes");

struct half {
    vec_float x[HALF_VECTORS];
};
struct unit {
    struct half half[2];
};

ALWAYS_INLINE unsigned halves_of(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT4 ? 2 : 1;
}

ALWAYS_INLINE float largest_code(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8 ? 127.0f : codec == KOLO_CODEC_INT4 ? 7.0f : 448.0f;
}

ALWAYS_INLINE float floor_of(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_FP8 ? KOLO_FP8_FLOOR : KOLO_CODEC_FLOOR;
}

/* ---- between memory and registers ---- */

/* The numbers of half h among the `count` numbers of a unit. */
ALWAYS_INLINE size_t numbers_of_half(size_t count, unsigned h)
{
    const size_t before = h * (size_t)HALF_NUMBERS;
    return count < before ? 0 : count - before < HALF_NUMBERS ? count - before : HALF_NUMBERS;
}

/* The first `count` numbers; the others are zero. */
ALWAYS_INLINE struct half half_of_floats(const float *src, size_t count)
{
    struct half out = {0};
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        const size_t done = i * FLOAT_LANES;
        if (done + FLOAT_LANES <= count) {
            out.x[i] = take_float32(KOLO_SUM, src + done);
        } else if (done < count) {
            out.x[i] = take_some_float32(KOLO_SUM, src + done, count - done);
        }
    }
    return out;
}

ALWAYS_INLINE void half_to_floats(float *dst, const struct half *half, size_t count)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        const size_t done = i * FLOAT_LANES;
        if (done + FLOAT_LANES <= count) {
            memcpy(dst + done, &half->x[i], sizeof half->x[i]);
        } else if (done < count) {
            store_some(dst + done, &half->x[i], sizeof half->x[i], (count - done) * sizeof *dst);
        }
    }
}

ALWAYS_INLINE struct unit unit_of_floats(unsigned halves, const float *src, size_t count)
{
    struct unit u;
    for (unsigned h = 0; h < halves; h++) {
        u.half[h] = half_of_floats(src + h * (size_t)HALF_NUMBERS, numbers_of_half(count, h));
    }
    return u;
}

ALWAYS_INLINE void unit_to_floats(unsigned halves, float *dst, const struct unit *u, size_t count)
{
    for (unsigned h = 0; h < halves; h++) {
        half_to_floats(dst + h * (size_t)HALF_NUMBERS, &u->half[h], numbers_of_half(count, h));
    }
}

ALWAYS_INLINE float scale_of(const uint8_t *unit)
{
    float scale;
    memcpy(&scale, unit + HALF_NUMBERS, sizeof scale);
    return scale;
}

/* Half h of a vector of codes. */
ALWAYS_INLINE vec_float numbers_of_codes(enum kolo_codec codec, vec_byte raw, unsigned h)
{
    if (codec == KOLO_CODEC_FP8) {
        return widen_lanes_float8_e4m3(raw);
    }
    const int bits = codec == KOLO_CODEC_INT8 ? 8 : 4;
    const vec_int word = (vec_int)words_of_halves(halves_of_bytes(raw));
    const vec_int code = word << (32 - bits - (int)h * bits) >> (32 - bits);
    return __builtin_convertvector(code, vec_float);
}

/* The lanes of the scale get numbers without a meaning. */
ALWAYS_INLINE struct unit decoded_unit(enum kolo_codec codec, const uint8_t *unit)
{
    struct unit u;
    const vec_float scale = (vec_float){0} + scale_of(unit);
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        vec_byte raw;
        memcpy(&raw, unit + i * FLOAT_LANES, sizeof raw);
        for (unsigned h = 0; h < halves_of(codec); h++) {
            u.half[h].x[i] = numbers_of_codes(codec, raw, h) * scale;
        }
    }
    return u;
}

/* ---- encoding ---- */

ALWAYS_INLINE int32_t largest_magnitude(unsigned halves, const struct unit *u)
{
    vec_int most = {0};
    int32_t lane[FLOAT_LANES], largest = 0;
    for (unsigned h = 0; h < halves; h++) {
#pragma GCC unroll 16
        for (size_t i = 0; i < HALF_VECTORS; i++) {
            most = greater(most, (vec_int)u->half[h].x[i] & MAGNITUDE);
        }
    }
    memcpy(lane, &most, sizeof lane);
#pragma GCC unroll 16
    for (size_t i = 0; i < FLOAT_LANES; i++) {
        largest = lane[i] > largest ? lane[i] : largest;
    }
    return largest;
}

/* Adding 1.5 * 2^23 rounds to an integer, which then is the last bits of the sum. */
ALWAYS_INLINE vec_word integer_codes(vec_float x)
{
    return (vec_word)(x + 0x1.8p23f);
}

ALWAYS_INLINE void encode_numbers(enum kolo_codec codec, uint8_t *dst, const struct unit *u,
                                  float factor)
{
    const vec_float by = (vec_float){0} + factor;
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        const vec_float low = u->half[0].x[i] * by;
        vec_byte code;
        if (codec == KOLO_CODEC_FP8) {
            code = narrow_lanes_float8_e4m3(low);
        } else if (codec == KOLO_CODEC_INT8) {
            code = bytes_of_words(integer_codes(low) & 0xff);
        } else {
            const vec_word high = integer_codes(u->half[1].x[i] * by) << 4;
            code = bytes_of_words(((integer_codes(low) & 0xf) | high) & 0xff);
        }
        memcpy(dst + i * FLOAT_LANES, &code, sizeof code);
    }
}

/* The lanes behind the numbers are zero. */
ALWAYS_INLINE void encode_unit(enum kolo_codec codec, uint8_t *dst, const struct unit *u)
{
    const int32_t bits = largest_magnitude(halves_of(codec), u);
    const float largest = of_float32((uint32_t)bits), most = largest_code(codec);
    const bool finite = bits < FLOAT_INFINITY, zero = largest < floor_of(codec);
    const float scale = !finite ? of_float32(FLOAT_INFINITY | FLOAT_QUIET)
                        : zero  ? 0
                                : largest / most;
    if (!finite || zero) {
        memset(dst, 0, HALF_NUMBERS);
    } else {
        encode_numbers(codec, dst, u, most / largest);
    }
    memcpy(dst + HALF_NUMBERS, &scale, sizeof scale);
}

ALWAYS_INLINE void encode_units(enum kolo_codec codec, void *dst, const float *src, size_t count)
{
    const size_t numbers = halves_of(codec) * (size_t)HALF_NUMBERS;
    uint8_t *to = dst;
    size_t i = 0;
    for (; i + numbers <= count; i += numbers, to += KOLO_UNIT_BYTES) {
        const struct unit u = unit_of_floats(halves_of(codec), src + i, numbers);
        encode_unit(codec, to, &u);
    }
    if (i < count) {
        const struct unit u = unit_of_floats(halves_of(codec), src + i, count - i);
        encode_unit(codec, to, &u);
    }
}

ALWAYS_INLINE void decode_units(enum kolo_codec codec, float *dst, const void *src, size_t count)
{
    const size_t numbers = halves_of(codec) * (size_t)HALF_NUMBERS;
    const uint8_t *from = src;
    size_t i = 0;
    for (; i + numbers <= count; i += numbers, from += KOLO_UNIT_BYTES) {
        const struct unit u = decoded_unit(codec, from);
        unit_to_floats(halves_of(codec), dst + i, &u, numbers);
    }
    if (i < count) {
        const struct unit u = decoded_unit(codec, from);
        unit_to_floats(halves_of(codec), dst + i, &u, count - i);
    }
}

/* ---- sums ---- */

ALWAYS_INLINE void add_half(struct half *sum, const struct half *next)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        sum->x[i] += next->x[i];
    }
}

ALWAYS_INLINE void divide_half(struct half *half, unsigned divisor)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        half->x[i] /= (float)divisor;
    }
}

ALWAYS_INLINE void clear_scale_lanes(struct half *half)
{
    const size_t vector = HALF_VECTORS - 1;
    vec_word keep = {0};
    for (size_t i = 0; vector * FLOAT_LANES + i < HALF_NUMBERS; i++) {
        keep[i] = ~0u;
    }
    half->x[vector] = (vec_float)((vec_word)half->x[vector] & keep);
}

ALWAYS_INLINE void sum_of_unit(enum kolo_codec codec, uint8_t *dst, const void *const *src,
                               unsigned k, size_t at, unsigned divisor)
{
    struct unit sum = decoded_unit(codec, (const uint8_t *)src[0] + at);
    for (unsigned q = 1; q < k; q++) {
        const struct unit next = decoded_unit(codec, (const uint8_t *)src[q] + at);
        for (unsigned h = 0; h < halves_of(codec); h++) {
            add_half(&sum.half[h], &next.half[h]);
        }
    }
    for (unsigned h = 0; h < halves_of(codec); h++) {
        if (divisor > 1) {
            divide_half(&sum.half[h], divisor);
        }
        clear_scale_lanes(&sum.half[h]);
    }
    encode_unit(codec, dst + at, &sum);
}

ALWAYS_INLINE void sum_units(enum kolo_codec codec, void *dst, const void *const *src, unsigned k,
                             size_t count, unsigned divisor)
{
    const size_t bytes = count * KOLO_UNIT_BYTES;
    if (k == 1 && divisor <= 1) {
        memmove(dst, src[0], bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += KOLO_UNIT_BYTES) {
        sum_of_unit(codec, dst, src, k, at, divisor);
    }
}

/* ---- their kernels ---- */

#define CODEC(name, codec)                                                                         \
    static void encode_##name(void *dst, const float *src, size_t count)                           \
    {                                                                                              \
        encode_units(codec, dst, src, count);                                                      \
    }                                                                                              \
    static void decode_##name(float *dst, const void *src, size_t count)                           \
    {                                                                                              \
        decode_units(codec, dst, src, count);                                                      \
    }                                                                                              \
    static void sum_##name##_units(void *dst, const void *const *src, unsigned k, size_t count,    \
                                   unsigned divisor)                                               \
    {                                                                                              \
        sum_units(codec, dst, src, k, count, divisor);                                             \
    }
CODEC(int8, KOLO_CODEC_INT8)
CODEC(int4, KOLO_CODEC_INT4)
CODEC(fp8, KOLO_CODEC_FP8)
