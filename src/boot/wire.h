// SPDX-License-Identifier: Apache-2.0
/* The protocol between rank.c (a rank) and hub.c (the hub), and its sockets.
 *
 *   rank                                    hub
 *   HELLO  rank, nranks, version, nonce ->
 *                                       <-  CHALLENGE  nonce
 *   PROVE                               ->
 *                                       <-  JOINED     (this rank), later WELCOME (all are here)
 *   GATHER seq, bytes, payload          ->
 *                                       <-  ALL        seq, bytes, payloads in rank order (long
 *                                                      ones in shared memory: share.c)
 *   BYE                                 ->
 *                                       <-  BYE        (no output is pending any more)
 * and at any time ERROR from the hub: a status and a sentence.
 *
 * Every frame carries a message authentication code (MAC) of its header, and the header has a
 * digest of the bytes that follow. No field is used before its MAC or digest has been checked. So a
 * byte that changed on the way ends the connection and does nothing else. The MAC is HMAC-SHA-256
 * over direction, number of the frame and header. Its key is made of the secret and the meeting's
 * name; HELLO and CHALLENGE, with their fresh nonces, each make the next key. So the MAC of
 * CHALLENGE proves the secret to the rank, the MAC of PROVE proves it to the hub, and no frame fits
 * another connection or another place. Only HELLO is answered whatever its MAC is: a rank with
 * another secret must learn of that.
 *
 * With KOLO_ENCRYPT, the bytes behind the headers are encrypted between hosts, except those of
 * HELLO and CHALLENGE, which make the keys. Digest and MAC are of the encrypted bytes.
 *
 * Integers are little-endian; there are no pointers and no padding. The header, HELLO, CHALLENGE,
 * PROVE, JOINED and ERROR keep their layout in all versions, so that a version mismatch can be
 * reported. */
#ifndef KOLO_BOOT_WIRE_H
#define KOLO_BOOT_WIRE_H

#include "boot/bootstrap.h"
#include "util/secret.h"

#include <assert.h>
#include <sys/types.h>

#define KOLO_BOOT_MAGIC 0x4f4c4f4bu /* "KOLO" */

enum { KOLO_BOOT_WIRE = 4, KOLO_BOOT_MASKED = 1 << 15 };
/* From so many bytes on, ranks of the hub's host get an answer as memory. */
enum { KOLO_BOOT_SHARE_BYTES = 32 << 10 };
enum { KOLO_BOOT_TEXT = 704, KOLO_BOOT_NONCE = 32, KOLO_BOOT_MAC = 16 };

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
    uint16_t wire; /* KOLO_BOOT_WIRE of the sender; with KOLO_BOOT_MASKED if it encrypts */
    uint16_t type; /* enum kolo_boot_type */
    /* Of GATHER, SPREAD and ALL: their number, from 0. Of ERROR: 1 + the rank that has ended, 0 if
     * it is not known. Otherwise 0. */
    uint32_t seq;
    uint32_t len;                     /* bytes that follow */
    unsigned char sum[KOLO_BOOT_MAC]; /* the first bytes of their SHA-256 digest */
    unsigned char mac[KOLO_BOOT_MAC]; /* of all above */
};
static_assert(sizeof(struct kolo_boot_header) == 48, "wire format");

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
};
static_assert(sizeof(struct kolo_boot_challenge) == 40, "wire format");

struct kolo_boot_error {
    int32_t status; /* kolo_status */
    char text[KOLO_BOOT_TEXT];
};
static_assert(sizeof(struct kolo_boot_error) == 708, "wire format");

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are sent as they lie in memory");

/* One end of a connection. It seals the frames that this end sends, and checks the frames that
 * come. */
struct kolo_boot_guard {
    unsigned char key[KOLO_SECRET_BYTES];
    uint32_t sent, taken; /* frames */
    bool is_hub;
    bool masks; /* this end encrypts bodies */
};

/* Check the arguments of kolo_boot_open(). Errors: INVALID. */
KOLO_CHECK kolo_status kolo_boot_check(const struct kolo_meet *meet, int nranks, int rank,
                                       int timeout_ms);
/* Errors of a rank: SYSTEM, INVALID, TIMEOUT. `host_rank`: whose process runs the hub; -1: unknown. */
KOLO_CHECK kolo_status kolo_boot_no_crypto(void);
KOLO_CHECK kolo_status kolo_boot_other_secret(const struct kolo_meet *meet, int rank);
KOLO_CHECK kolo_status kolo_boot_no_answer(const struct kolo_meet *meet, int host_rank, int rank,
                                           int timeout_ms);
KOLO_CHECK kolo_status kolo_boot_nobody(const struct kolo_meet *meet, int rank, int timeout_ms);
uint32_t kolo_boot_name_hash(const struct kolo_meet *meet);
struct kolo_boot_header kolo_boot_header_make(enum kolo_boot_type type, uint32_t seq, size_t len);

/* The guard of a fresh connection, which does not encrypt yet. False, here and below: libcrypto
 * failed. */
bool kolo_boot_guard_begin(struct kolo_boot_guard *guard, const struct kolo_meet *meet,
                           bool is_hub);
/* HELLO or CHALLENGE was sent or taken: from the next frame on both ends have another key. */
bool kolo_boot_guard_turn(struct kolo_boot_guard *guard, const void *body, size_t len);
/* The digest of the bytes that follow a header. */
bool kolo_boot_sum(const void *body, size_t len, unsigned char out[KOLO_BOOT_MAC]);
/* Make the body of the next frame that this end sends, as it travels: encrypted, or a copy. */
bool kolo_boot_mask(const struct kolo_boot_guard *guard, enum kolo_boot_type type, const void *body,
                    size_t len, void *out);
/* Decrypt the body of the frame whose header was checked last, if its sender encrypts. */
bool kolo_boot_unmask(const struct kolo_boot_guard *guard, const struct kolo_boot_header *header,
                      void *body);
/* Set the MAC of a header whose other fields are complete. If libcrypto fails, no receiver takes
 * the frame. */
void kolo_boot_seal(struct kolo_boot_guard *guard, struct kolo_boot_header *header);
/* Whether the other end sent this header, as its next frame. */
bool kolo_boot_is_sealed(struct kolo_boot_guard *guard, const struct kolo_boot_header *header);
/* Whether the other end sent these bytes behind the header. */
bool kolo_boot_is_whole(const struct kolo_boot_header *header, const void *body);

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
/* Whether the connection leads to another host, or might: it is no local one. */
bool kolo_boot_is_net(int fd);
/* Accept one connection; -1 with errno. */
int kolo_boot_accept(int listener);

/* Sealed memory with these bytes; -1: there is none. */
int kolo_boot_share(void *bytes, size_t len);
/* Copy all bytes of such memory, and close the descriptor: *shared becomes -1. False: they are not
 * `len`, or cannot be read. */
bool kolo_boot_take_shared(int *shared, void *out, size_t len);
/* Send a header, with the memory of its body beside it. As sendmsg(). */
ssize_t kolo_boot_send_shared(int socket, const struct kolo_boot_header *header, int shared);
/* As recv(); a descriptor that lies beside the bytes replaces the one in *shared. -1 with EMFILE:
 * there was no free one for it. */
ssize_t kolo_boot_receive(int socket, void *out, size_t len, int *shared);

/* Start the hub on listener[0], and by TCP on listener[1] unless that is -1. The hub owns both from
 * then on, also on failure. `nranks`: of meet->absent, if there is one. `host_rank`: the rank of
 * this process, or -1. */
KOLO_CHECK kolo_status kolo_boot_hub_start(const struct kolo_meet *meet, const int listener[2],
                                           int nranks, int host_rank);
/* Listen and start the hub, in the process of `rank`. INPROGRESS: another process has one. */
KOLO_CHECK kolo_status kolo_boot_host(const struct kolo_meet *meet, int nranks, int rank);

#endif
