// SPDX-License-Identifier: Apache-2.0
/* The SHA256 functions of libcrypto need no start. EVP, which is newer, first makes tables of all
 * algorithms: 5.5 million instructions in each process, where hundreds start at once. */
#define OPENSSL_API_COMPAT 0x10100000L /* with functions that are deprecated since 3.0 */
#include "util/secret.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
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

bool kolo_digest(const void *text, size_t bytes, unsigned char out[KOLO_DIGEST_BYTES])
{
    SHA256_CTX sum;
    return SHA256_Init(&sum) == 1 && SHA256_Update(&sum, text, bytes) == 1 &&
           SHA256_Final(out, &sum) == 1;
}

/* One of the two digests of an HMAC: of a block, which is the secret and `pad`, and text[bytes]. */
static bool digest_keyed(const unsigned char secret[KOLO_SECRET_BYTES], unsigned char pad,
                         const void *text, size_t bytes, unsigned char out[KOLO_DIGEST_BYTES])
{
    unsigned char block[SHA256_CBLOCK];
    SHA256_CTX sum;
    memset(block, pad, sizeof(block));
    for (int i = 0; i < KOLO_SECRET_BYTES; i++) {
        block[i] ^= secret[i];
    }
    const bool made = SHA256_Init(&sum) == 1 && SHA256_Update(&sum, block, sizeof(block)) == 1 &&
                      SHA256_Update(&sum, text, bytes) == 1 && SHA256_Final(out, &sum) == 1;
    OPENSSL_cleanse(block, sizeof(block));
    OPENSSL_cleanse(&sum, sizeof(sum));
    return made;
}

bool kolo_prove(const unsigned char secret[KOLO_SECRET_BYTES], const void *text, size_t bytes,
                unsigned char out[KOLO_PROOF_BYTES])
{
    unsigned char inner[KOLO_DIGEST_BYTES];
    return digest_keyed(secret, 0x36, text, bytes, inner) &&
           digest_keyed(secret, 0x5c, inner, sizeof(inner), out);
}

void kolo_crypto_start(void)
{
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

bool kolo_mask(const unsigned char key[KOLO_SECRET_BYTES],
               const unsigned char start[KOLO_MASK_START], const void *text, size_t bytes,
               void *out)
{
    int len = 0;
    kolo_crypto_start();
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
