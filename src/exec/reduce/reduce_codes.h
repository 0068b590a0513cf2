// SPDX-License-Identifier: Apache-2.0
/* Codecs INT8 and INT4 (codec.h). A unit has 60 bytes of codes and a scale. As many numbers as bytes
 * are a half of 64 lanes: the last 4 stand for the scale, and the arithmetic computes on them as if
 * they were codes and then drops them. A unit of INT8 is one half. One of INT4 is two, in the low and
 * the high bits of the same bytes. `halves`, which is a constant wherever it is passed, tells the two
 * codecs apart. Included by reduce_body.h alone. */

enum {
    HALF_NUMBERS = KOLO_INT8_UNIT_NUMBERS,
    HALF_VECTORS = KOLO_UNIT_BYTES / FLOAT_LANES,
    MAGNITUDE = 0x7fffffff
};
_Static_assert(KOLO_INT4_UNIT_NUMBERS == 2 * HALF_NUMBERS, "both codecs have the same bytes");

struct half {
    vec_float x[HALF_VECTORS];
};
struct unit {
    struct half half[2];
};

ALWAYS_INLINE int largest_code(unsigned halves)
{
    return halves == 1 ? 127 : 7;
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

/* The lanes of the scale get numbers without a meaning. */
ALWAYS_INLINE struct unit decoded_unit(unsigned halves, const uint8_t *unit)
{
    struct unit u;
    const vec_float scale = (vec_float){0} + scale_of(unit);
    const int bits = halves == 1 ? 8 : 4;
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        vec_byte raw;
        memcpy(&raw, unit + i * FLOAT_LANES, sizeof raw);
        const vec_int word = (vec_int)words_of_halves(halves_of_bytes(raw));
        for (unsigned h = 0; h < halves; h++) {
            const vec_int code = word << (32 - bits - (int)h * bits) >> (32 - bits);
            u.half[h].x[i] = __builtin_convertvector(code, vec_float) * scale;
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
ALWAYS_INLINE void encode_numbers(unsigned halves, uint8_t *dst, const struct unit *u, float factor)
{
    const vec_float by = (vec_float){0} + factor;
#pragma GCC unroll 16
    for (size_t i = 0; i < HALF_VECTORS; i++) {
        vec_word word = (vec_word)(u->half[0].x[i] * by + 0x1.8p23f);
        if (halves == 2) {
            word = (word & 0xf) | (vec_word)(u->half[1].x[i] * by + 0x1.8p23f) << 4;
        }
        const vec_byte code = bytes_of_words(word & 0xff);
        memcpy(dst + i * FLOAT_LANES, &code, sizeof code);
    }
}

/* The lanes behind the numbers are zero. */
ALWAYS_INLINE void encode_unit(unsigned halves, uint8_t *dst, const struct unit *u)
{
    const int32_t bits = largest_magnitude(halves, u);
    const float largest = of_float32((uint32_t)bits), most = (float)largest_code(halves);
    const bool finite = bits < FLOAT_INFINITY, zero = largest < KOLO_CODEC_FLOOR;
    const float scale = !finite ? of_float32(FLOAT_INFINITY | FLOAT_QUIET)
                        : zero  ? 0
                                : largest / most;
    if (!finite || zero) {
        memset(dst, 0, HALF_NUMBERS);
    } else {
        encode_numbers(halves, dst, u, most / largest);
    }
    memcpy(dst + HALF_NUMBERS, &scale, sizeof scale);
}

ALWAYS_INLINE void encode_units(unsigned halves, void *dst, const float *src, size_t count)
{
    const size_t numbers = halves * (size_t)HALF_NUMBERS;
    uint8_t *to = dst;
    size_t i = 0;
    for (; i + numbers <= count; i += numbers, to += KOLO_UNIT_BYTES) {
        const struct unit u = unit_of_floats(halves, src + i, numbers);
        encode_unit(halves, to, &u);
    }
    if (i < count) {
        const struct unit u = unit_of_floats(halves, src + i, count - i);
        encode_unit(halves, to, &u);
    }
}

ALWAYS_INLINE void decode_units(unsigned halves, float *dst, const void *src, size_t count)
{
    const size_t numbers = halves * (size_t)HALF_NUMBERS;
    const uint8_t *from = src;
    size_t i = 0;
    for (; i + numbers <= count; i += numbers, from += KOLO_UNIT_BYTES) {
        const struct unit u = decoded_unit(halves, from);
        unit_to_floats(halves, dst + i, &u, numbers);
    }
    if (i < count) {
        const struct unit u = decoded_unit(halves, from);
        unit_to_floats(halves, dst + i, &u, count - i);
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

ALWAYS_INLINE void sum_of_unit(unsigned halves, uint8_t *dst, const void *const *src, unsigned k,
                               size_t at, unsigned divisor)
{
    struct unit sum = decoded_unit(halves, (const uint8_t *)src[0] + at);
    for (unsigned q = 1; q < k; q++) {
        const struct unit next = decoded_unit(halves, (const uint8_t *)src[q] + at);
        for (unsigned h = 0; h < halves; h++) {
            add_half(&sum.half[h], &next.half[h]);
        }
    }
    for (unsigned h = 0; h < halves; h++) {
        if (divisor > 1) {
            divide_half(&sum.half[h], divisor);
        }
        clear_scale_lanes(&sum.half[h]);
    }
    encode_unit(halves, dst + at, &sum);
}

ALWAYS_INLINE void sum_units(unsigned halves, void *dst, const void *const *src, unsigned k,
                             size_t count, unsigned divisor)
{
    const size_t bytes = count * KOLO_UNIT_BYTES;
    if (k == 1 && divisor <= 1) {
        memmove(dst, src[0], bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += KOLO_UNIT_BYTES) {
        sum_of_unit(halves, dst, src, k, at, divisor);
    }
}

/* ---- the kernels of the two ---- */

#define CODEC(name, halves)                                                                        \
    static void encode_##name(void *dst, const float *src, size_t count)                           \
    {                                                                                              \
        encode_units(halves, dst, src, count);                                                     \
    }                                                                                              \
    static void decode_##name(float *dst, const void *src, size_t count)                           \
    {                                                                                              \
        decode_units(halves, dst, src, count);                                                     \
    }                                                                                              \
    static void sum_##name##_units(void *dst, const void *const *src, unsigned k, size_t count,    \
                                   unsigned divisor)                                               \
    {                                                                                              \
        sum_units(halves, dst, src, k, count, divisor);                                            \
    }
CODEC(int8, 1)
CODEC(int4, 2)
