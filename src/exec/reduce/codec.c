// SPDX-License-Identifier: Apache-2.0
/* Codecs by kind: INT8 has kernels of its own, BF16 has those of the type bfloat16. */
#include "exec/reduce/codec.h"

#include "exec/reduce/reduce_isa.h"

size_t kolo_codec_numbers(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8 ? KOLO_INT8_UNIT_NUMBERS : 1;
}

size_t kolo_codec_bytes(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8   ? KOLO_INT8_UNIT_BYTES
           : codec == KOLO_CODEC_BF16 ? kolo_type_bytes(KOLO_BFLOAT16)
                                      : kolo_type_bytes(KOLO_FLOAT32);
}

void kolo_encode(enum kolo_codec codec, void *dst, const float *src, size_t count)
{
    if (codec == KOLO_CODEC_INT8) {
        kolo_kernels_here()->encode_int8(dst, src, count);
    } else {
        kolo_narrow(KOLO_BFLOAT16, dst, src, count);
    }
}

void kolo_decode(enum kolo_codec codec, float *dst, const void *src, size_t count)
{
    if (codec == KOLO_CODEC_INT8) {
        kolo_kernels_here()->decode_int8(dst, src, count);
    } else {
        kolo_widen(KOLO_BFLOAT16, dst, src, count);
    }
}

kolo_reduce_fn *kolo_codec_sum(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8 ? kolo_kernels_here()->sum_int8
                                    : kolo_reduce_kernel(KOLO_BFLOAT16, KOLO_SUM);
}

/* The most that encoding once and decoding changes a number, as a part of the largest magnitude of
 * its unit; KOLO_CODEC_FLOOR comes to it.
 *
 * INT8: 127 x / A has two roundings of float32 (u = 2^-24 each), so that the code is within
 * 1/2 + 127 * 2u of it. The scale and its product with the code have one each. Together: 1/254, and
 * less than 8u. BF16: half of the last of 8 bits. */
static double loss_of(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8 ? 1.0 / 254 + 0x1p-21 : codec == KOLO_CODEC_BF16 ? 0x1p-8 : 0;
}

void kolo_codec_bound_of(enum kolo_codec codec, int encodings, int nranks,
                         struct kolo_codec_bound *out)
{
    double grown = 1;
    for (int i = 0; i < encodings; i++) {
        grown *= 1 + loss_of(codec);
    }
    out->block = (int)kolo_codec_numbers(codec);
    out->encodings = encodings;
    out->factor = grown - 1 + (nranks + 4) * 0x1p-23;
    out->floor = (nranks + 1) * (double)KOLO_CODEC_FLOOR;
}
