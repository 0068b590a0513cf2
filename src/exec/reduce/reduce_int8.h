// SPDX-License-Identifier: Apache-2.0
/* Codec INT8 (codec.h). A unit is 64 lanes: 60 codes, and 4 lanes that hold the scale, which the
 * arithmetic computes on as if they were codes and then drops. Included by reduce_body.h alone. */

enum {
    UNIT_NUMBERS = KOLO_INT8_UNIT_NUMBERS,
    UNIT_VECTORS = KOLO_INT8_UNIT_BYTES / FLOAT_LANES,
    WHOLE_VECTORS = UNIT_NUMBERS / FLOAT_LANES,
    REST_LANES = UNIT_NUMBERS % FLOAT_LANES,
    MAGNITUDE = 0x7fffffff
};

struct unit {
    vec_float x[UNIT_VECTORS];
};

/* ---- between memory and registers ---- */

/* The first `count` numbers; the others are zero. */
ALWAYS_INLINE struct unit unit_of_floats(const float *src, size_t count)
{
    struct unit u = {0};
#pragma GCC unroll 16
    for (size_t i = 0; i < UNIT_VECTORS; i++) {
        const size_t done = i * FLOAT_LANES;
        if (done + FLOAT_LANES <= count) {
            u.x[i] = take_float32(KOLO_SUM, src + done);
        } else if (done < count) {
            u.x[i] = take_some_float32(KOLO_SUM, src + done, count - done);
        }
    }
    return u;
}

ALWAYS_INLINE void unit_to_floats(float *dst, const struct unit *u, size_t count)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < UNIT_VECTORS; i++) {
        const size_t done = i * FLOAT_LANES;
        if (done + FLOAT_LANES <= count) {
            memcpy(dst + done, &u->x[i], sizeof u->x[i]);
        } else if (done < count) {
            store_some(dst + done, &u->x[i], sizeof u->x[i], (count - done) * sizeof *dst);
        }
    }
}

ALWAYS_INLINE float scale_of(const uint8_t *unit)
{
    float scale;
    memcpy(&scale, unit + UNIT_NUMBERS, sizeof scale);
    return scale;
}

/* The lanes of the scale get numbers without a meaning. */
ALWAYS_INLINE struct unit decoded_unit(const uint8_t *unit)
{
    struct unit u;
    const vec_float scale = (vec_float){0} + scale_of(unit);
#pragma GCC unroll 16
    for (size_t i = 0; i < UNIT_VECTORS; i++) {
        vec_byte raw;
        memcpy(&raw, unit + i * FLOAT_LANES, sizeof raw);
        const vec_int code = (vec_int)(words_of_halves(halves_of_bytes(raw)) << 24) >> 24;
        u.x[i] = __builtin_convertvector(code, vec_float) * scale;
    }
    return u;
}

/* ---- encoding ---- */

ALWAYS_INLINE int32_t largest_magnitude(const struct unit *u)
{
    vec_int most = {0};
    int32_t lane[FLOAT_LANES], largest = 0;
#pragma GCC unroll 16
    for (size_t i = 0; i < UNIT_VECTORS; i++) {
        most = greater(most, (vec_int)u->x[i] & MAGNITUDE);
    }
    memcpy(lane, &most, sizeof lane);
#pragma GCC unroll 16
    for (size_t i = 0; i < FLOAT_LANES; i++) {
        largest = lane[i] > largest ? lane[i] : largest;
    }
    return largest;
}

/* The lanes behind the numbers are zero. Adding 1.5 * 2^23 rounds to an integer, which then is the
 * last bits of the sum. */
ALWAYS_INLINE void encode_unit(uint8_t *dst, const struct unit *u)
{
    const int32_t bits = largest_magnitude(u);
    const float largest = of_float32((uint32_t)bits);
    const bool finite = bits < FLOAT_INFINITY, zero = largest < KOLO_CODEC_FLOOR;
    const float scale = !finite ? of_float32(FLOAT_INFINITY | FLOAT_QUIET)
                        : zero  ? 0
                                : largest / 127;
    if (!finite || zero) {
        memset(dst, 0, UNIT_NUMBERS);
    } else {
        const vec_float by = (vec_float){0} + 127 / largest;
#pragma GCC unroll 16
        for (size_t i = 0; i < UNIT_VECTORS; i++) {
            const vec_float rounded = u->x[i] * by + 0x1.8p23f;
            const vec_byte code = bytes_of_words((vec_word)rounded & 0xff);
            memcpy(dst + i * FLOAT_LANES, &code, sizeof code);
        }
    }
    memcpy(dst + UNIT_NUMBERS, &scale, sizeof scale);
}

static void encode_int8(void *dst, const float *src, size_t count)
{
    uint8_t *to = dst;
    size_t i = 0;
    for (; i + UNIT_NUMBERS <= count; i += UNIT_NUMBERS, to += KOLO_INT8_UNIT_BYTES) {
        const struct unit u = unit_of_floats(src + i, UNIT_NUMBERS);
        encode_unit(to, &u);
    }
    if (i < count) {
        const struct unit u = unit_of_floats(src + i, count - i);
        encode_unit(to, &u);
    }
}

static void decode_int8(float *dst, const void *src, size_t count)
{
    const uint8_t *from = src;
    size_t i = 0;
    for (; i + UNIT_NUMBERS <= count; i += UNIT_NUMBERS, from += KOLO_INT8_UNIT_BYTES) {
        const struct unit u = decoded_unit(from);
        unit_to_floats(dst + i, &u, UNIT_NUMBERS);
    }
    if (i < count) {
        const struct unit u = decoded_unit(from);
        unit_to_floats(dst + i, &u, count - i);
    }
}

/* ---- sums ---- */

ALWAYS_INLINE void clear_scale_lanes(struct unit *u)
{
    const size_t vector = UNIT_VECTORS - 1;
    vec_word keep = {0};
    for (size_t i = 0; vector * FLOAT_LANES + i < UNIT_NUMBERS; i++) {
        keep[i] = ~0u;
    }
    u->x[vector] = (vec_float)((vec_word)u->x[vector] & keep);
}

static void sum_int8_units(void *dst, const void *const *src, unsigned k, size_t count,
                           unsigned divisor)
{
    uint8_t *to = dst;
    for (size_t at = 0; at < count * KOLO_INT8_UNIT_BYTES; at += KOLO_INT8_UNIT_BYTES) {
        struct unit sum = decoded_unit((const uint8_t *)src[0] + at);
        for (unsigned q = 1; q < k; q++) {
            const struct unit next = decoded_unit((const uint8_t *)src[q] + at);
#pragma GCC unroll 16
            for (size_t i = 0; i < UNIT_VECTORS; i++) {
                sum.x[i] += next.x[i];
            }
        }
        if (divisor > 1) {
#pragma GCC unroll 16
            for (size_t i = 0; i < UNIT_VECTORS; i++) {
                sum.x[i] /= (float)divisor;
            }
        }
        clear_scale_lanes(&sum);
        encode_unit(to + at, &sum);
    }
}

static void sum_int8_codes(void *dst, const void *const *src, unsigned k, size_t count,
                           unsigned divisor)
{
    if (k == 1 && divisor <= 1) {
        memmove(dst, src[0], count * KOLO_INT8_UNIT_BYTES);
    } else {
        sum_int8_units(dst, src, k, count, divisor);
    }
}
