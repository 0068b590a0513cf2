// SPDX-License-Identifier: Apache-2.0
/* Compressed collectives: float32 travels in fewer bytes, and the error has a bound that is known
 * before the call.
 *
 * kolo/kolo.h includes this file.
 *
 * A compressed call encodes its input, moves the codes by a plan, and decodes the result. In a
 * reduction one rank decodes the inputs of an element, adds them in float32, and encodes the result
 * once; all ranks decode these same codes. So a number is encoded once in an all-gather and twice in
 * a reduction, whatever the number of ranks is. Only plans of which this is proved run compressed.
 *
 * Encoding pays where links are slow. A call for which it does not pay goes uncompressed, by the
 * predicted times of both. KOLO_CODEC=always or never takes precedence; KOLO_DEBUG=INFO logs the
 * choice. The bound holds either way. A communicator of one rank never compresses.
 *
 * The codec is one of the facts in which ranks must agree: see MISMATCH in kolo.h. */
#ifndef KOLO_CODEC_H
#define KOLO_CODEC_H

#include "kolo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How float32 travels. A block is numbered from the first element of the buffer, or, if the buffer
 * has a part for each rank, from the first element of the part; the last one may be short.
 *
 *   INT8   8-bit integers of one scale in blocks of 60 elements, 64 bytes each. An infinity or NaN
 *          makes its block NaN, so that it is never hidden; so does a sum that overflows
 *   BF16   bfloat16; blocks of 1 element. Infinities and NaNs stay
 *
 * Values are never renumbered. */
enum kolo_codec { KOLO_CODEC_NONE = 0, KOLO_CODEC_INT8 = 1, KOLO_CODEC_BF16 = 2, KOLO_CODECS = 3 };

/* The bound on the error of an element of a result. Let A be the largest magnitude in the element's
 * block of a rank's input. With `total` the sum of A over all ranks (all-gather: A of the rank that
 * gave the element):
 *
 *   |result - exact| <= factor * total + floor     (AVG: divided by the number of ranks)
 *
 * It holds where all inputs of the block are finite and `total` is below 2^126. */
struct kolo_codec_bound {
    uint32_t size;     /* set to sizeof(struct kolo_codec_bound) by the caller */
    int block;         /* elements of a block */
    int quantisations; /* how often an element is encoded on its way */
    double factor, floor;
};

/* The name of a codec: "int8" and so on; "none", or "unknown" for an unknown codec. */
KOLO_EXPORT
const char *kolo_codec_name(enum kolo_codec codec);

#ifdef __cplusplus
}
#endif
#endif
