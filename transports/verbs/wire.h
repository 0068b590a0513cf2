// SPDX-License-Identifier: Apache-2.0
/* The structs that the verbs transport sends: little-endian, without padding. Their only pointers
 * are the places that the receiver of the struct may write to by RDMA. */
#ifndef KOLO_VERBS_WIRE_H
#define KOLO_VERBS_WIRE_H

#include "util/net.h"
#include "util/secret.h"

#include <kolo/plugin.h>

#include <assert.h>
#include <stddef.h>

enum {
    KOLO_VERBS_RAILS = 4,
    KOLO_VERBS_LANES = 8,              /* of a link */
    KOLO_VERBS_SLOT = (8 << 10) + 256, /* bytes: see KOLO_VERBS_PIECE */
};

#define KOLO_VERBS_MAGIC UINT32_C(0x6b766274)

struct kolo_verbs_port { /* a rail, as its peers know it */
    unsigned char gid[16];
    uint64_t subnet; /* equal for rails that reach each other without a router */
    uint32_t speed_mbps;
    uint16_t lid;
    uint8_t mtu;      /* enum ibv_mtu */
    uint8_t ethernet; /* else InfiniBand */
};
static_assert(sizeof(struct kolo_verbs_port) == 32, "wire format");

struct kolo_verbs_address { /* the result of address(), cut behind its last port */
    uint32_t magic;
    uint16_t nrails, lanes; /* lanes: how many it wants over each rail */
    struct kolo_inet place; /* of its control connections */
    unsigned char nonce[12];
    struct kolo_verbs_port port[KOLO_VERBS_RAILS];
};
static_assert(sizeof(struct kolo_verbs_address) == 168, "wire format");

struct kolo_verbs_hello { /* the first bytes of a control connection, from its maker */
    uint32_t magic, version;
    uint64_t comm;
    int32_t from, to;
    unsigned char nonce[16];
    unsigned char proof[KOLO_PROOF_BYTES]; /* over all of the above, and the listener's nonce */
};
static_assert(sizeof(struct kolo_verbs_hello) == 72, "wire format");

struct kolo_verbs_answer { /* the listener's answer to the hello */
    unsigned char proof[KOLO_PROOF_BYTES];
};

enum kolo_verbs_kind {
    KOLO_VERBS_DATA = 1,
    KOLO_VERBS_READY = 2,
    KOLO_VERBS_PLACED = 3,
    KOLO_VERBS_TAKEN = 4
};

/* An entry begins with a head. Behind it are a part, if the head has KOLO_VERBS_PART, then the
 * sender's call, if it has KOLO_VERBS_CALL, then the payload. entry.c writes and reads them. */
struct kolo_verbs_head {
    uint16_t len; /* payload bytes */
    uint8_t kind; /* enum kolo_verbs_kind, KOLO_VERBS_PART and KOLO_VERBS_CALL */
    uint8_t channel;
    uint16_t zeros; /* bytes of a short message behind its payload: they are 0, and not sent */
    uint16_t taken_blocks; /* of the messages taken (window.h) */
    uint32_t number;       /* of the message in its channel, from 0 */
    uint32_t taken;        /* messages of this channel that the sender of the entry has taken */
};
static_assert(sizeof(struct kolo_verbs_head) == 16, "wire format");
enum { KOLO_VERBS_PART = 1 << 4, KOLO_VERBS_CALL = 1 << 5, KOLO_VERBS_KINDS = KOLO_VERBS_PART - 1 };

struct kolo_verbs_part { /* of a message. Without it offset is 0, and total is len + zeros */
    uint64_t offset, total;
};
static_assert(sizeof(struct kolo_call_sign) == 40, "wire format");

enum {
    KOLO_VERBS_HEADS = sizeof(struct kolo_verbs_head) + sizeof(struct kolo_verbs_part) +
                       sizeof(struct kolo_call_sign),
    /* The most payload bytes of an entry. It is more than KOLO_VERBS_FULL, so that the last piece of
     * a message can take the bytes that the heads of the others left no room for. Then 32 KiB take
     * four entries. */
    KOLO_VERBS_PIECE = KOLO_VERBS_SLOT - KOLO_VERBS_HEADS,
    /* Bytes of an entry that others of its message follow: whole packets of any MTU. */
    KOLO_VERBS_FULL = 8 << 10,
    KOLO_VERBS_BRIEF = 256 /* bytes of the longest message whose last zeros are not sent */
};
static_assert(KOLO_VERBS_SLOT <= UINT16_MAX, "len counts a slot's bytes");

/* An immediate value: the number of entries taken from the other direction, and from bit 15 on the
 * number of entries sent before it, both modulo 2^15. Its highest bit says that no entry comes with
 * it. */
#define KOLO_VERBS_ALONE   (UINT32_C(1) << 31)
#define KOLO_VERBS_COUNTED ((UINT32_C(1) << 15) - 1)
enum { KOLO_VERBS_BEFORE = 15 }; /* the first bit of the second number */

struct kolo_verbs_place {       /* behind READY: the place to write the message to */
    uint64_t at, bytes, stride; /* `count` runs of `bytes`, `stride` apart; 0 runs: nowhere */
    uint32_t count;
    uint32_t rkey[KOLO_VERBS_RAILS]; /* one for each of the receiver's rails */
    uint32_t pad;
};
static_assert(sizeof(struct kolo_verbs_place) == 48, "wire format");

enum kolo_verbs_word_kind {
    KOLO_VERBS_OFFER = 1,  /* the queue pair and the ring of a lane exist */
    KOLO_VERBS_UP = 2,     /* the lane receives */
    KOLO_VERBS_DOWN = 3,   /* the lane has failed, and `value` entries were taken from it */
    KOLO_VERBS_SENT = 4,   /* `value` entries were sent on the lane: no more will come */
    KOLO_VERBS_BYE = 5,    /* no more words or entries will come */
    KOLO_VERBS_ABORT = 6,  /* the same, and `reason` is the cause */
    KOLO_VERBS_NOTIFY = 7, /* `value` is the word that notify() was given; `call` is the sender's */
    KOLO_VERBS_TEXT = 8 /* part `epoch` of the text of the reason, before ABORT: from `value` on */
};

struct kolo_verbs_word { /* sent over a control connection after the hello */
    uint32_t magic;
    uint8_t kind, lane;
    uint8_t rail; /* the sender's */
    uint8_t mtu;
    uint32_t epoch; /* how often the lane has come up before */
    int32_t reason;
    uint64_t value;
    uint32_t qpn, psn;
    uint64_t ring;
    uint32_t rkey;
    uint32_t pad;
    struct kolo_call_sign call;
};
static_assert(sizeof(struct kolo_verbs_word) == 88, "wire format");
enum { KOLO_VERBS_TEXT_PART = 50 }; /* bytes of TEXT; the others are unused */
static_assert(KOLO_REASON_TEXT % KOLO_VERBS_TEXT_PART == 0, "no part ends beyond the text");
static_assert(sizeof(struct kolo_verbs_word) - offsetof(struct kolo_verbs_word, value) >=
                  KOLO_VERBS_TEXT_PART,
              "room for a part of the text");

#endif
