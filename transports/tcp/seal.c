// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/seal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- keys ---- */

/* One block of HKDF-Expand: the first, with `what` as info. */
static bool expand(const unsigned char key[KOLO_SECRET_BYTES], const char what[8],
                   unsigned char out[KOLO_SECRET_BYTES])
{
    unsigned char text[9];
    memcpy(text, what, 8);
    text[8] = 1;
    return kolo_prove(key, text, sizeof text, out);
}

static bool turn_key(struct kolo_seal_way *way)
{
    unsigned char key[KOLO_SECRET_BYTES], iv[KOLO_SECRET_BYTES], next[KOLO_SECRET_BYTES];
    const bool made =
        expand(way->chain, "kolo key", key) && expand(way->chain, "kolo iv ", iv) &&
        expand(way->chain, "kolonext", next) &&
        EVP_CipherInit_ex(way->cipher, EVP_aes_256_gcm(), NULL, key, NULL, way->opens ? 0 : 1) == 1;
    memcpy(way->iv, iv, sizeof way->iv);
    memcpy(way->chain, next, sizeof way->chain);
    way->number = 0;
    explicit_bzero(key, sizeof key);
    explicit_bzero(iv, sizeof iv);
    explicit_bzero(next, sizeof next);
    return made;
}

static bool open_way(struct kolo_seal_way *way, const unsigned char extracted[KOLO_SECRET_BYTES],
                     bool of_maker, bool opens)
{
    way->opens = opens;
    way->period = KOLO_SEAL_PERIOD;
    way->cipher = EVP_CIPHER_CTX_new();
    return way->cipher != NULL &&
           expand(extracted, of_maker ? "by maker" : "listener", way->chain) && turn_key(way);
}

struct kolo_seal *kolo_seal_open(const unsigned char secret[KOLO_SECRET_BYTES], const void *text,
                                 size_t bytes, bool maker)
{
    unsigned char salt[KOLO_DIGEST_BYTES], extracted[KOLO_SECRET_BYTES];
    struct kolo_seal *seal = calloc(1, sizeof *seal);
    kolo_crypto_start();
    const bool made = seal != NULL && kolo_digest(text, bytes, salt) &&
                      kolo_prove(salt, secret, KOLO_SECRET_BYTES, extracted) &&
                      open_way(&seal->out, extracted, maker, false) &&
                      open_way(&seal->in, extracted, !maker, true);
    explicit_bzero(extracted, sizeof extracted);
    if (!made) {
        kolo_seal_close(seal);
        return NULL;
    }
    return seal;
}

void kolo_seal_close(struct kolo_seal *seal)
{
    if (seal != NULL) {
        EVP_CIPHER_CTX_free(seal->out.cipher); /* which clears its key */
        EVP_CIPHER_CTX_free(seal->in.cipher);
        explicit_bzero(seal, offsetof(struct kolo_seal, sent)); /* no secret is behind it */
        free(seal);
    }
}

/* ---- records ---- */

/* Begin the next record of the direction, whose header is `head`. */
static bool begin_record(struct kolo_seal_way *way, const unsigned char head[KOLO_SEAL_HEAD])
{
    unsigned char nonce[KOLO_SEAL_IV];
    int len = 0;
    if (way->number == way->period && !turn_key(way)) {
        return false;
    }
    memcpy(nonce, way->iv, sizeof nonce);
    for (int i = 0; i < 8; i++) {
        nonce[KOLO_SEAL_IV - 1 - i] ^= (unsigned char)(way->number >> (8 * i));
    }
    way->number++;
    return EVP_CipherInit_ex(way->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(way->cipher, NULL, &len, head, KOLO_SEAL_HEAD) == 1;
}

/* Seal one record of `plain` bytes of the parts, from byte `skip` on, behind what waits. */
static bool seal_record(struct kolo_seal *seal, const struct iovec *part, size_t nparts,
                        size_t skip, size_t plain)
{
    unsigned char *head = seal->sent + seal->out_len;
    unsigned char *at = head + KOLO_SEAL_HEAD;
    const uint32_t word = (uint32_t)plain;
    size_t left = plain;
    int len = 0;
    memcpy(head, &word, sizeof word);
    if (!begin_record(&seal->out, head)) {
        return false;
    }
    for (size_t i = 0; i < nparts && left > 0; i++) {
        const size_t from = kolo_min(skip, part[i].iov_len);
        const size_t run = kolo_min(part[i].iov_len - from, left);
        skip -= from;
        if (run > 0 &&
            EVP_CipherUpdate(seal->out.cipher, at, &len,
                             (const unsigned char *)part[i].iov_base + from, (int)run) != 1) {
            return false;
        }
        at += run;
        left -= run;
    }
    if (EVP_CipherFinal_ex(seal->out.cipher, at, &len) != 1 ||
        EVP_CIPHER_CTX_ctrl(seal->out.cipher, EVP_CTRL_GCM_GET_TAG, KOLO_SEAL_TAG, at) != 1) {
        return false;
    }
    seal->out_len += KOLO_SEAL_HEAD + plain + KOLO_SEAL_TAG;
    return true;
}

/* The plain bytes of the record that comes next. */
static uint32_t coming(const struct kolo_seal *seal)
{
    uint32_t plain = 0;
    memcpy(&plain, seal->came + seal->in_at, sizeof plain);
    return plain;
}

/* Open the next record, which has come, into `into`. */
static bool open_record(struct kolo_seal *seal, unsigned char *into)
{
    const uint32_t plain = coming(seal);
    unsigned char *head = seal->came + seal->in_at;
    unsigned char *cipher = head + KOLO_SEAL_HEAD;
    int len = 0;
    seal->in_at += KOLO_SEAL_HEAD + plain + KOLO_SEAL_TAG;
    seal->in_len -= KOLO_SEAL_HEAD + plain + KOLO_SEAL_TAG;
    return begin_record(&seal->in, head) &&
           EVP_CipherUpdate(seal->in.cipher, into, &len, cipher, (int)plain) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->in.cipher, EVP_CTRL_GCM_SET_TAG, KOLO_SEAL_TAG,
                               cipher + plain) == 1 &&
           EVP_CipherFinal_ex(seal->in.cipher, into + len, &len) == 1;
}

/* ---- the socket ---- */

/* Send what waits. False, with errno: some of it waits still (EAGAIN), or the socket failed. */
static bool flush(struct kolo_seal *seal, int fd)
{
    while (seal->out_at < seal->out_len) {
        const ssize_t n = send(fd, seal->sent + seal->out_at, seal->out_len - seal->out_at,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        seal->out_at += n > 0 ? (size_t)n : 0;
    }
    seal->out_at = seal->out_len = 0;
    return true;
}

/* Seal plain bytes from `skip` on, as many as may wait. */
static bool seal_batch(struct kolo_seal *seal, const struct iovec *part, size_t nparts, size_t skip,
                       size_t bytes)
{
    for (int i = 0; i < KOLO_SEAL_BATCH && skip + seal->held < bytes; i++) {
        const size_t at = skip + seal->held;
        const size_t plain = kolo_min(bytes - at, KOLO_SEAL_PLAIN);
        if (!seal_record(seal, part, nparts, at, plain)) {
            seal->out.broken =
                true; /* a half made record must not go, nor another with its number */
            seal->out_len = seal->held = 0;
            return false;
        }
        seal->held += plain;
    }
    return true;
}

ssize_t kolo_seal_send(struct kolo_seal *seal, int fd, const struct iovec *part, size_t nparts)
{
    size_t bytes = 0;
    if (seal->out.broken) {
        errno = EPROTO;
        return -1;
    }
    if (!flush(seal, fd)) {
        return -1;
    }
    for (size_t i = 0; i < nparts; i++) {
        bytes += part[i].iov_len;
    }
    size_t sent = seal->held;
    seal->held = 0;
    if (!seal_batch(seal, part, nparts, sent, bytes)) {
        errno = EPROTO;
        return -1;
    }
    if (flush(seal, fd)) {
        sent += seal->held;
        seal->held = 0;
    } else if (errno != EAGAIN || sent == 0) {
        return -1;
    }
    return (ssize_t)sent;
}

static ssize_t refuse(struct kolo_seal *seal)
{
    seal->in.broken = true;
    errno = EBADMSG;
    return -1;
}

/* Room behind the bytes in `came`, for as much as can be there. */
static size_t make_room(struct kolo_seal *seal)
{
    if (seal->in_len == 0 || seal->in_at + KOLO_SEAL_RECORD > sizeof seal->came) {
        memmove(seal->came, seal->came + seal->in_at, seal->in_len);
        seal->in_at = 0;
    }
    return sizeof seal->came - seal->in_at - seal->in_len;
}

/* Receive until the next record has come as a whole. As kolo_seal_recv(); 1: it is there. */
static ssize_t receive_record(struct kolo_seal *seal, int fd)
{
    for (;;) {
        if (seal->in_len >= KOLO_SEAL_HEAD) {
            const uint32_t plain = coming(seal);
            if (plain == 0 || plain > KOLO_SEAL_PLAIN) {
                return refuse(seal);
            }
            if (seal->in_len >= KOLO_SEAL_HEAD + plain + KOLO_SEAL_TAG) {
                return 1;
            }
        }
        const size_t room = make_room(seal);
        const ssize_t n = recv(fd, seal->came + seal->in_at + seal->in_len, room, MSG_DONTWAIT);
        if (n == 0 && seal->in_len > 0) { /* a cut, as by the death of the peer */
            errno = ECONNRESET;
            return -1;
        }
        if (n <= 0) {
            return n;
        }
        seal->in_len += (size_t)n;
    }
}

ssize_t kolo_seal_recv(struct kolo_seal *seal, int fd, void *into, size_t room)
{
    if (seal->plain_len == 0) {
        const ssize_t n = seal->in.broken ? refuse(seal) : receive_record(seal, fd);
        if (n <= 0) {
            return n;
        }
        const uint32_t plain = coming(seal);
        const bool fits = plain <= room;
        if (!open_record(seal, fits ? into : seal->plain)) {
            return refuse(seal);
        }
        if (fits) {
            return (ssize_t)plain;
        }
        seal->plain_at = 0;
        seal->plain_len = plain;
    }
    const size_t bytes = kolo_min(room, seal->plain_len);
    memcpy(into, seal->plain + seal->plain_at, bytes);
    seal->plain_at += bytes;
    seal->plain_len -= bytes;
    return (ssize_t)bytes;
}
