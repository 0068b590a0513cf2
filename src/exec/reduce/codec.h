// SPDX-License-Identifier: Apache-2.0
/* Codecs of float32: what travels in place of the numbers.
 *
 * A codec's unit is the smallest part that can be decoded alone. A call that is compressed runs its
 * plan on units, as on elements of any other type. So units lie where their numbers' indices say,
 * and no plan, tile or chunk cuts one.
 *
 * INT8: a unit is 64 bytes, 60 codes and behind them a float32 scale. A number is code * scale. With
 * A the largest magnitude of the unit, scale is A / 127, and a code is 127 x / A, to the nearest,
 * ties to even. All numbers of a unit are NaN if one of them is not finite. They are zero if A is
 * below KOLO_CODEC_FLOOR: no denormal float32 occurs in the arithmetic.
 * INT4: as INT8, with 120 codes of 4 bits in the 60 bytes, and 7 for 127. The low bits of byte i are
 * the code of number i, the high bits that of number i + 60.
 * FP8: as INT8, with floats of 8 bits (OCP 1.0, E4M3) for codes, 448 for 127, and zero below
 * KOLO_FP8_FLOOR: the least code is 2^-9 of the scale.
 * BF16: a unit is one bfloat16, to the nearest, ties to even. NaNs stay NaN, infinities stay. */
#ifndef KOLO_EXEC_REDUCE_CODEC_H
#define KOLO_EXEC_REDUCE_CODEC_H

#include "exec/reduce/reduce.h"

/* KOLO_UNIT_BYTES: of INT8, INT4 and FP8. */
enum {
    KOLO_UNIT_BYTES = 64,
    KOLO_INT8_UNIT_NUMBERS = 60,
    KOLO_INT4_UNIT_NUMBERS = 120,
    KOLO_FP8_UNIT_NUMBERS = 60
};
#define KOLO_CODEC_FLOOR 0x1p-118f
#define KOLO_FP8_FLOOR   0x1p-108f

/* Of a unit. */
size_t kolo_codec_numbers(enum kolo_codec codec);
size_t kolo_codec_bytes(enum kolo_codec codec);
/* The units of `count` numbers; the last one may be padded with zeros. */
static inline size_t kolo_codec_units(enum kolo_codec codec, size_t count)
{
    const size_t numbers = kolo_codec_numbers(codec);
    return count / numbers + (count % numbers != 0);
}

/* `src` and `dst` of the encoded side are whole units; of float32 there are `count`, at most what
 * is allocated. They do not overlap. */
void kolo_encode(enum kolo_codec codec, void *dst, const float *src, size_t count);
void kolo_decode(enum kolo_codec codec, float *dst, const void *src, size_t count);
/* Sums of units: decoded, added in float32 from left to right, divided, and encoded once. A single
 * source is copied as it is. `count` is units. */
kolo_reduce_fn *kolo_codec_sum(enum kolo_codec codec);

/* The bound of a call in which a number is encoded `encodings` times on its way, and `nranks` numbers
 * are added (1: none). An encoding adds its loss to what came before: (1 + loss)^encodings - 1. The
 * additions, the division of AVG and all second-order terms are below (nranks + 4) * 2u. Each of up
 * to nranks + 1 encodings may flush a unit to zero. */
void kolo_codec_bound_of(enum kolo_codec codec, int encodings, int nranks,
                         struct kolo_codec_bound *out);

#endif
