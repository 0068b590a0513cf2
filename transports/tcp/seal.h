// SPDX-License-Identifier: Apache-2.0
/* A stream in authenticated encryption: AES-256-GCM (NIST SP 800-38D) by libcrypto.
 *
 * Bytes travel in records:
 *
 *   length   4 bytes, little-endian: plain bytes in the record, 1 to KOLO_SEAL_PLAIN
 *   cipher   as many bytes
 *   tag      16 bytes, over length and cipher
 *
 * The nonce of a record is its number, from 0, xor an IV. It is not sent, so a record that was
 * dropped, repeated or moved does not open. Each direction has keys of its own, by HKDF-SHA-256
 * (RFC 5869) from the secret, the text of the greeting with the fresh nonces of both ends, and the
 * direction. After KOLO_SEAL_PERIOD records, below the limit of RFC 8446 section 5.5, both ends
 * take the next key of the direction.
 *
 * A stream that was cut opens up to its last whole record. The bytes of a record that is not whole
 * prove nothing, so a cut tells no more than that the connection ended: a peer that died while it
 * sent looks the same. The owner of the stream needs a last word of its own, and must not take an
 * end without it for a clean one. */
#ifndef KOLO_TCP_SEAL_H
#define KOLO_TCP_SEAL_H

#include "util/secret.h"

#include <openssl/evp.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    KOLO_SEAL_RECORD = 16 << 10, /* most bytes of a record */
    KOLO_SEAL_HEAD = 4,
    KOLO_SEAL_TAG = 16,
    KOLO_SEAL_PLAIN = KOLO_SEAL_RECORD - KOLO_SEAL_HEAD - KOLO_SEAL_TAG,
    KOLO_SEAL_BATCH = 8, /* records that wait at most for room in the socket, and come at once */
    KOLO_SEAL_PERIOD = 1 << 24,
    KOLO_SEAL_IV = 12
};

struct kolo_seal_way { /* one direction */
    EVP_CIPHER_CTX *cipher;
    unsigned char chain[KOLO_SECRET_BYTES]; /* the next key is made of it */
    unsigned char iv[KOLO_SEAL_IV];
    uint64_t number; /* of the next record of this key */
    uint64_t period;
    bool opens;  /* else it seals */
    bool broken; /* a record did not open or could not be made: no further one will */
};

struct kolo_seal {
    struct kolo_seal_way out, in;
    size_t out_at, out_len; /* bytes of `sent` that the socket has not taken */
    size_t held;            /* plain bytes in them, which no call has reported yet */
    size_t in_at, in_len;   /* bytes of `came` that are not opened, from in_at on */
    size_t plain_at, plain_len;
    unsigned char plain[KOLO_SEAL_PLAIN];
    unsigned char sent[KOLO_SEAL_BATCH * KOLO_SEAL_RECORD];
    unsigned char came[KOLO_SEAL_BATCH * KOLO_SEAL_RECORD];
};

/* The seal of a fresh connection. text[bytes]: the greeting, alike at both ends, with a fresh nonce
 * of each. `maker`: this end made the connection. NULL: out of memory, or libcrypto failed. */
struct kolo_seal *kolo_seal_open(const unsigned char secret[KOLO_SECRET_BYTES], const void *text,
                                 size_t bytes, bool maker);
/* NULL is allowed. */
void kolo_seal_close(struct kolo_seal *seal);
/* As sendmsg() that does not wait: how many plain bytes the socket took, or -1 with errno. Bytes may
 * be sealed already, but not sent; the next call gives them again, as its first ones, and reports
 * them when they are sent. It may give less, but nothing else. EPROTO: libcrypto failed. */
ssize_t kolo_seal_send(struct kolo_seal *seal, int fd, const struct iovec *part, size_t nparts);
/* Whether bytes are sealed and not sent. */
static inline bool kolo_seal_holds(const struct kolo_seal *seal)
{
    return seal != NULL && seal->held > 0;
}
/* As recv() that does not wait. EBADMSG, from then on: a record is not the next one that the other
 * end sealed. ECONNRESET, from then on: the stream ended within a record. Bytes are returned only
 * after their tag was checked; after an error `into` may have others. */
ssize_t kolo_seal_recv(struct kolo_seal *seal, int fd, void *into, size_t room);

#endif
