// SPDX-License-Identifier: Apache-2.0
/* Random bytes, and proofs that a secret is known: HMAC-SHA-256 (RFC 2104) by libcrypto. */
#ifndef KOLO_SECRET_H
#define KOLO_SECRET_H

#include "util/util.h"

enum { KOLO_SECRET_BYTES = 32, KOLO_PROOF_BYTES = 32 };

/* Fill `out` with random bytes from the kernel. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_random(void *out, size_t bytes);
/* The proof over text[bytes]; false if libcrypto fails. */
bool kolo_prove(const unsigned char secret[KOLO_SECRET_BYTES], const void *text, size_t bytes,
                unsigned char out[KOLO_PROOF_BYTES]);
/* Compare two proofs in constant time. */
bool kolo_same_proof(const unsigned char a[KOLO_PROOF_BYTES],
                     const unsigned char b[KOLO_PROOF_BYTES]);

#endif
