// SPDX-License-Identifier: Apache-2.0
/* The protocol between rank.c (a rank) and hub.c (the hub), and its sockets.
 *
 *   rank                                    hub
 *   HELLO  rank, nranks, version, nonce ->
 *                                       <-  CHALLENGE  nonce, proof over all so far
 *   PROOF  proof over all so far        ->
 *                                       <-  JOINED     (this rank), later WELCOME (all are here)
 *   GATHER seq, bytes, payload          ->
 *                                       <-  ALL        seq, bytes, payloads in rank order
 *   BYE                                 ->
 *                                       <-  BYE        (no output is pending any more)
 * and at any time ERROR from the hub: a status and a sentence. A proof is HMAC-SHA-256 under the
 * secret, over direction, meeting name, HELLO and CHALLENGE, so it fits no other connection. Both
 * nonces are fresh. Integers are little-endian; there are no pointers and no padding. HELLO,
 * CHALLENGE, PROOF, JOINED and ERROR keep their layout in all versions, so that a version mismatch
 * can be reported. */
#ifndef KOLO_BOOT_WIRE_H
#define KOLO_BOOT_WIRE_H

#include "boot/bootstrap.h"
#include "util/secret.h"

#include <assert.h>
#include <sys/types.h>

#define KOLO_BOOT_MAGIC 0x4f4c4f4bu /* "KOLO" */

enum { KOLO_BOOT_WIRE = 1, KOLO_BOOT_TEXT = 704, KOLO_BOOT_NONCE = 32, KOLO_BOOT_PROOF = 32 };

enum kolo_boot_type {
    KOLO_BOOT_HELLO = 1,
    KOLO_BOOT_CHALLENGE = 2,
    KOLO_BOOT_PROVE = 3,
    KOLO_BOOT_JOINED = 4,
    KOLO_BOOT_WELCOME = 5,
    KOLO_BOOT_GATHER = 6,
    KOLO_BOOT_ALL = 7,
    KOLO_BOOT_BYE = 8,
    KOLO_BOOT_ERROR = 9,
    KOLO_BOOT_SPREAD = 10 /* as GATHER, but only rank 0 has bytes */
};

struct kolo_boot_header {
    uint32_t magic;
    uint16_t wire; /* KOLO_BOOT_WIRE of the sender */
    uint16_t type; /* enum kolo_boot_type */
    uint32_t
        seq; /* of GATHER, SPREAD and ALL, from 0; of ERROR 1 + the rank that has ended; else 0 */
    uint32_t len; /* bytes that follow */
};
static_assert(sizeof(struct kolo_boot_header) == 16, "wire format");

struct kolo_boot_hello {
    uint32_t version; /* KOLO_VERSION */
    int32_t nranks;
    int32_t rank;
    int32_t timeout_ms; /* of each exchange */
    int32_t left_ms;    /* the time left to join */
    uint32_t name;      /* a hash of the meeting's name: another hub may have had this address */
    unsigned char nonce[KOLO_BOOT_NONCE];
};
static_assert(sizeof(struct kolo_boot_hello) == 56, "wire format");

struct kolo_boot_challenge {
    int32_t host_rank; /* the rank in whose process the hub runs; -1: not known */
    uint32_t version;  /* KOLO_VERSION */
    unsigned char nonce[KOLO_BOOT_NONCE];
    unsigned char proof[KOLO_BOOT_PROOF];
};
static_assert(sizeof(struct kolo_boot_challenge) == 72, "wire format");

struct kolo_boot_error {
    int32_t status; /* kolo_status */
    char text[KOLO_BOOT_TEXT];
};
static_assert(sizeof(struct kolo_boot_error) == 708, "wire format");

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are sent as they lie in memory");

enum { KOLO_BOOT_TO_RANK = 1, KOLO_BOOT_TO_HUB = 2 };

uint32_t kolo_boot_name_hash(const struct kolo_meet *meet);
struct kolo_boot_header kolo_boot_header_make(enum kolo_boot_type type, uint32_t seq, size_t len);

/* Make the proof for `direction`. It covers all of the challenge but the challenge's own proof.
 * False: libcrypto failed. */
bool kolo_boot_prove(const struct kolo_meet *meet, int direction,
                     const struct kolo_boot_hello *hello,
                     const struct kolo_boot_challenge *challenge,
                     unsigned char out[KOLO_BOOT_PROOF]);

/* Listen on the name of the meeting point. INPROGRESS: another process listens there already. */
KOLO_CHECK kolo_status kolo_boot_listen(const struct kolo_meet *meet, int *out);
/* Listen on meet->place, by TCP. INPROGRESS: another process listens there, for example an earlier
 * hub of the job. Errors: INVALID (no secret; an address of another host), SYSTEM. */
KOLO_CHECK kolo_status kolo_boot_listen_net(const struct kolo_meet *meet, int *out);
/* Try once to connect: first on this host, then by TCP if the meeting point has a place.
 * INPROGRESS: no hub listens, or it is busy. On this host the peer's user id was checked.
 */
KOLO_CHECK kolo_status kolo_boot_connect(const struct kolo_meet *meet, int timeout_ms, int *out);
/* The process at the other end. False: it has another user id, or the connection is TCP. */
bool kolo_boot_peer_is_us(int fd, pid_t *pid_out);
/* Accept one connection; -1 with errno. */
int kolo_boot_accept(int listener);

/* Start the hub on listener[0], and by TCP on listener[1] unless that is -1. The hub owns both from
 * then on, also on failure. `host_rank`: the rank of this process, or -1. */
KOLO_CHECK kolo_status kolo_boot_hub_start(const struct kolo_meet *meet, const int listener[2],
                                           int host_rank);

#endif
