// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/planes.c
/* Coded floats: what a peer may send, and any bytes coded and decoded again.
 *
 * Input: a byte whose lowest bit says how long a float is, the length of the decoded bytes in two
 * bytes, lowest first, then the coded bytes. */
#include "transports/tcp/planes.h"

#include "target.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD = 3 };

static struct kolo_planes_room room;

/* In memory of its own, so that a sanitizer sees a step beyond. */
static void *copy_of(const void *from, size_t size)
{
    void *out = malloc(size + (size == 0));
    if (out == NULL) {
        abort();
    }
    memcpy(out, from, size);
    return out;
}

static void code_again(unsigned float_bytes, const uint8_t *data, size_t size)
{
    uint8_t *dst = malloc(size + KOLO_PLANES_HEAD), *back = malloc(size + (size == 0));
    if (dst == NULL || back == NULL) {
        abort();
    }
    const size_t coded = kolo_planes_encode(float_bytes, data, size, dst, &room);
    uint8_t *alone = copy_of(dst, coded);
    if (coded > size + KOLO_PLANES_HEAD ||
        !kolo_planes_decode(float_bytes, alone, coded, back, size, &room) ||
        memcmp(back, data, size) != 0) {
        abort();
    }
    free(alone);
    free(back);
    free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD || size > KOLO_PLANES_BLOCK) {
        return 0;
    }
    const unsigned float_bytes = data[0] & 1 ? 4 : 2;
    const size_t bytes = (size_t)data[1] | (size_t)data[2] << 8;
    uint8_t *coded = copy_of(data + HEAD, size - HEAD);
    uint8_t *decoded = malloc(bytes + (bytes == 0));
    if (decoded == NULL) {
        abort();
    }
    (void)!kolo_planes_decode(float_bytes, coded, size - HEAD, decoded, bytes, &room);
    code_again(float_bytes, coded, size - HEAD);
    free(decoded);
    free(coded);
    return 0;
}
