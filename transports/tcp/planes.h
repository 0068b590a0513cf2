// SPDX-License-Identifier: Apache-2.0
/* Floats without loss in fewer bytes: the exponents of a block are Huffman coded, as trained weights
 * and gradients use few of the 256; signs and mantissas, which hold no pattern, stay.
 *
 * A coded block:
 *
 *   kind      1 byte, enum kolo_planes_kind
 * RAW: the bytes as they are. CODED:
 *   lengths   128 bytes: of the code of each exponent, 4 bits, 0 to KOLO_PLANES_DEPTH
 *   ends      3 x 4 bytes: the bytes of the first three streams; the last one has the rest
 *   rest      sign and mantissa: of bfloat16 a plane of bytes, of float32 three of them, and the bytes
 *             behind the last whole float
 *   streams   4, each with a quarter of the exponents: bits from the lowest to the highest, codes
 *             canonical, their first bit lowest
 *
 * Four streams, since the place of a code is known only when the one before it is read: four chains
 * run beside each other. A look-up in the table of the decoder gives up to four exponents.
 *
 * Source: Huffman 1952, doi:10.1109/JRPROC.1952.273898; interleaved streams as in zstd, RFC 8878. */
#ifndef KOLO_TCP_PLANES_H
#define KOLO_TCP_PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kolo_planes_kind { KOLO_PLANES_RAW = 0, KOLO_PLANES_CODED = 1 };
enum {
    KOLO_PLANES_BLOCK = 128 << 10, /* most bytes of a block */
    KOLO_PLANES_HEAD = 1,          /* what coding adds to bytes that it cannot shorten */
    KOLO_PLANES_DEPTH = 11,        /* bits of the longest code */
    KOLO_PLANES_STREAMS = 4,
    KOLO_PLANES_SLACK = 4 /* a step of the decoder writes beyond the exponents that it tells */
};

struct kolo_planes_room { /* what coding and decoding work in: much for a program's stack */
    uint8_t exponent[KOLO_PLANES_BLOCK / 2 + KOLO_PLANES_SLACK];
};

/* Code `bytes`, at most KOLO_PLANES_BLOCK, of floats of 2 (bfloat16) or 4 bytes (float32), aligned to
 * them, into dst[bytes + KOLO_PLANES_HEAD]. Returns how many bytes were written. */
size_t kolo_planes_encode(unsigned float_bytes, const void *src, size_t bytes, void *dst,
                          struct kolo_planes_room *room);
/* Decode src[coded] into dst[bytes], which is aligned to floats. False: these are not the bytes of such a block, and dst holds
 * anything. Nothing beyond src and dst is read or written. */
bool kolo_planes_decode(unsigned float_bytes, const void *src, size_t coded, void *dst,
                        size_t bytes, struct kolo_planes_room *room);

#endif
