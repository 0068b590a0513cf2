// SPDX-License-Identifier: Apache-2.0
/* Random bytes, digests, and proofs that a secret is known: SHA-256 and HMAC-SHA-256 (RFC 2104) by
 * libcrypto. */
#ifndef KOLO_SECRET_H
#define KOLO_SECRET_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_SECRET_BYTES = 32, KOLO_PROOF_BYTES = 32, KOLO_DIGEST_BYTES = 32 };

/* Fill `out` with random bytes from the kernel. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_random(void *out, size_t bytes);
/* The proof over text[bytes]; false if libcrypto fails. */
bool kolo_prove(const unsigned char secret[KOLO_SECRET_BYTES], const void *text, size_t bytes,
                unsigned char out[KOLO_PROOF_BYTES]);
/* The SHA-256 digest of text[bytes]; false if libcrypto fails. */
bool kolo_digest(const void *text, size_t bytes, unsigned char out[KOLO_DIGEST_BYTES]);
/* Call this before any cipher of libcrypto. A thread may still serve while the process exits, so
 * libcrypto must not clean up then. */
void kolo_crypto_start(void);
/* Encrypt or decrypt text[bytes] into `out`, which may be the same memory, by AES-256-CTR. A key and
 * a start are used for one text only. False if libcrypto fails. */
enum { KOLO_MASK_START = 16 };
bool kolo_mask(const unsigned char key[KOLO_SECRET_BYTES],
               const unsigned char start[KOLO_MASK_START], const void *text, size_t bytes,
               void *out);
/* Compare proofs in a time that does not depend on the place where they differ. */
bool kolo_same_bytes(const unsigned char *a, const unsigned char *b, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
