// SPDX-License-Identifier: Apache-2.0
#include "util/secret.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

kolo_status kolo_random(void *out, size_t bytes)
{
    unsigned char *at = out;
    while (bytes > 0) {
        const ssize_t n = getrandom(at, bytes, 0);
        if (n < 0 && errno != EINTR) {
            return kolo_fail(KOLO_ERR_SYSTEM, "getrandom: %s", strerror(errno));
        }
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        }
    }
    return KOLO_OK;
}

bool kolo_prove(const unsigned char secret[KOLO_SECRET_BYTES], const void *text, size_t bytes,
                unsigned char out[KOLO_PROOF_BYTES])
{
    unsigned len = 0;
    /* A thread may still serve while the process exits: libcrypto must not clean up under it. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    return HMAC(EVP_sha256(), secret, KOLO_SECRET_BYTES, text, bytes, out, &len) != NULL &&
           len == KOLO_PROOF_BYTES;
}

bool kolo_digest(const void *text, size_t bytes, unsigned char out[KOLO_DIGEST_BYTES])
{
    unsigned len = 0;
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    return EVP_Digest(text, bytes, out, &len, EVP_sha256(), NULL) == 1 && len == KOLO_DIGEST_BYTES;
}

bool kolo_mask(const unsigned char key[KOLO_SECRET_BYTES],
               const unsigned char start[KOLO_MASK_START], const void *text, size_t bytes,
               void *out)
{
    int len = 0;
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    const bool made = cipher != NULL && bytes <= INT_MAX &&
                      EVP_EncryptInit_ex(cipher, EVP_aes_256_ctr(), NULL, key, start) == 1 &&
                      EVP_EncryptUpdate(cipher, out, &len, text, (int)bytes) == 1;
    EVP_CIPHER_CTX_free(cipher);
    return made;
}

bool kolo_same_bytes(const unsigned char *a, const unsigned char *b, size_t bytes)
{
    return CRYPTO_memcmp(a, b, bytes) == 0;
}
