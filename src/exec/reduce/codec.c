// SPDX-License-Identifier: Apache-2.0
/* Codecs by kind: INT8, INT4 and FP8 have kernels of their own, BF16 has those of the type bfloat16. */
#include "exec/reduce/codec.h"

#include "exec/reduce/reduce_isa.h"

size_t kolo_codec_numbers(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_INT8   ? KOLO_INT8_UNIT_NUMBERS
           : codec == KOLO_CODEC_INT4 ? KOLO_INT4_UNIT_NUMBERS
           : codec == KOLO_CODEC_FP8  ? KOLO_FP8_UNIT_NUMBERS
                                      : 1;
}

size_t kolo_codec_bytes(enum kolo_codec codec)
{
    return codec == KOLO_CODEC_NONE   ? kolo_type_bytes(KOLO_FLOAT32)
           : codec == KOLO_CODEC_BF16 ? kolo_type_bytes(KOLO_BFLOAT16)
                                      : KOLO_UNIT_BYTES;
}

void kolo_encode(enum kolo_codec codec, void *dst, const float *src, size_t count)
{
    kolo_kernels_here()->codec[codec].encode(dst, src, count);
}

void kolo_decode(enum kolo_codec codec, float *dst, const void *src, size_t count)
{
    kolo_kernels_here()->codec[codec].decode(dst, src, count);
}

kolo_reduce_fn *kolo_codec_sum(enum kolo_codec codec)
{
    return kolo_kernels_here()->codec[codec].sum;
}

/* The most that encoding once and decoding changes a number, as a part of the largest magnitude of
 * its unit; the codec's floor comes to it.
 *
 * INT8: 127 x / A has two roundings of float32 (u = 2^-24 each), so that the code is within
 * 1/2 + 127 * 2u of it. The scale and its product with the code have one each. Together: 1/254, and
 * less than 8u. INT4: the same with 7. FP8: the same with 448, and codes of at least 256, which have
 * the coarsest step, are 32 apart: 16 / 448. BF16: half of the last of 8 bits. */
static double loss_of(enum kolo_codec codec)
{
    static const double loss[KOLO_CODECS] = {[KOLO_CODEC_INT8] = 1.0 / 254 + 0x1p-21,
                                             [KOLO_CODEC_BF16] = 0x1p-8,
                                             [KOLO_CODEC_INT4] = 1.0 / 14 + 0x1p-21,
                                             [KOLO_CODEC_FP8] = 1.0 / 28 + 0x1p-21};
    return loss[codec];
}

void kolo_codec_bound_of(enum kolo_codec codec, int encodings, int nranks,
                         struct kolo_codec_bound *out)
{
    const double floor = codec == KOLO_CODEC_FP8 ? KOLO_FP8_FLOOR : KOLO_CODEC_FLOOR;
    double grown = 1;
    for (int i = 0; i < encodings; i++) {
        grown *= 1 + loss_of(codec);
    }
    out->block = (int)kolo_codec_numbers(codec);
    out->encodings = encodings;
    out->factor = grown - 1 + (nranks + 4) * 0x1p-23;
    out->floor = (nranks + 1) * floor;
}
