// SPDX-License-Identifier: Apache-2.0
/* The types that the files of the tcp transport share: sockets, links, messages, frames.
 *
 *   socket.c   the states of a socket, and the failure of its link
 *   greet.c    how two ranks prove to each other who they are
 *   stream.c   bytes of frames into and out of sockets
 *   lossless.c payloads of floats in fewer bytes
 *   price.c    whether that pays
 *   payload.c  where payloads are, and their sums
 *   message.c  sends and receives: which frame goes next, and where arriving bytes belong
 *   farewell.c how a link ends: its last frame, and the delivery of the written bytes
 *   tcp.c      the endpoint, its links, progress
 *
 * A link has several sockets. Every frame names its message (channel, number) and its part of the
 * message, so that any socket may carry it. The first socket that is ready takes the next frame.
 *
 *   DATA   bytes [offset, offset + len) of a message of `total` bytes
 *   CODED  as DATA, its payload coded (lossless.c)
 *   READY  the receive of a long message is posted: the rest may be sent
 *   TAKEN  no payload; like every frame it has the count of messages taken from its channel
 *   BYE    the last frame of a link
 *   ABORT  the last frame of a link that failed; `number` is the reason
 *   TEXT   part `number` of the text of the reason, before ABORT: KOLO_TCP_TEXT_PART
 *   WORD   `total` is the word that notify() was given
 *
 * A frame with the first bytes of a message, READY and WORD carry the call that their sender is in,
 * so that ranks that make different calls see it.
 *
 * The first bytes of a message, kolo_tcp_eager(), go as soon as the window of carrier.h allows it,
 * whether or not the receive is posted. The rest waits for READY, and goes from user memory to user
 * memory. So the bytes that a receiver has to keep are bounded, and no channel delays another.
 *
 * A payload whose receive is not posted stays in its socket for a few turns. Most receives are
 * posted by then, and the bytes are read straight to their place. */
#ifndef KOLO_TCP_TCP_H
#define KOLO_TCP_TCP_H

#include "transports/acceptor.h"
#include "transports/carrier.h"
#include "transports/doubt.h"
#include "transports/tcp/planes.h"
#include "transports/tcp/seal.h"
#include "util/secret.h"

#include <assert.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    KOLO_TCP_SOCKETS_MAX = 8,
    KOLO_TCP_EAGER = 1 << 20,          /* of a message, if the link has one socket */
    KOLO_TCP_EAGER_SHARED = 256 << 10, /* if several sockets share the rest of a message */
    KOLO_TCP_CHUNK = 512 << 10,        /* of a long message, by one socket of several at a time */
    KOLO_TCP_FRAME_MOST = KOLO_TCP_EAGER, /* bytes of a frame's payload */
    KOLO_TCP_QUEUE = 8,                   /* frames that wait in one socket */
    KOLO_TCP_PATIENCE = 8,                /* turns that an early payload waits for its receive */
    KOLO_TCP_STAGING = 8 << 10            /* buffer for headers and short messages */
};

/* ---- on the wire: little-endian, no padding, no pointers ---- */

#define KOLO_TCP_MAGIC UINT32_C(0x6b746370)

struct kolo_tcp_address { /* the address of a rank */
    uint32_t magic;
    uint16_t sockets; /* it would use */
    uint16_t flags;   /* enum kolo_tcp_flag */
    struct kolo_inet place;
};
static_assert(sizeof(struct kolo_tcp_address) == 28, "wire format");

enum kolo_tcp_flag {
    KOLO_TCP_SUMS = 1,  /* KOLO_CRC: frames carry sums; one side is enough */
    KOLO_TCP_SEALS = 2, /* KOLO_ENCRYPT: of both sides, or of none */
    KOLO_TCP_CODES = 4  /* KOLO_LOSSLESS: it may send CODED */
};

enum kolo_tcp_kind {
    KOLO_TCP_DATA = 1,
    KOLO_TCP_READY = 2,
    KOLO_TCP_TAKEN = 3,
    KOLO_TCP_BYE = 4,
    KOLO_TCP_ABORT = 5,
    KOLO_TCP_WORD = 6,
    KOLO_TCP_TEXT = 7,
    KOLO_TCP_CODED = 8
};

struct kolo_tcp_frame {
    uint32_t len; /* payload bytes that follow */
    uint8_t kind; /* enum kolo_tcp_kind */
    uint8_t channel;
    uint16_t magic;  /* KOLO_TCP_FRAME_MAGIC */
    uint32_t number; /* of the message in its channel, from 0 */
    uint32_t taken;  /* messages of this channel that the sender of the frame has taken */
    uint64_t offset, total;
    struct kolo_call_sign call; /* the sender's */
    uint16_t taken_blocks;      /* of the messages taken (window.h) */
    unsigned char unused[46];
    /* Only if the link has sums. CRC-32C of the payload, and of all members above. */
    uint32_t payload_sum, sum;
};
/* Bytes of a frame's header on the wire. Whole cache lines, because the kernel copies payloads
 * behind it: aligned buffers then never lie at the distance that is slow (src/util/copy.c). */
enum { KOLO_TCP_HEAD = 128 };
static_assert(sizeof(struct kolo_tcp_frame) == KOLO_TCP_HEAD, "wire format");
#define KOLO_TCP_FRAME_MAGIC 0x6b33

/* TEXT: the part of the text lies where other frames have `offset` and all up to their sums. */
enum { KOLO_TCP_TEXT_PART = 100 };
static_assert(KOLO_REASON_TEXT % KOLO_TCP_TEXT_PART == 0, "no part ends beyond the text");
static_assert(offsetof(struct kolo_tcp_frame, payload_sum) -
                      offsetof(struct kolo_tcp_frame, offset) >=
                  KOLO_TCP_TEXT_PART,
              "room for a part of the text");

struct kolo_tcp_hello { /* the first bytes of a connection, from its maker */
    uint32_t magic, version;
    uint64_t comm;
    int32_t from, to;
    uint32_t index, sockets; /* which of how many */
    unsigned char nonce[32];
};
static_assert(sizeof(struct kolo_tcp_hello) == 64, "wire format");

struct kolo_tcp_challenge {
    unsigned char nonce[32];
    unsigned char proof[KOLO_PROOF_BYTES];
};
static_assert(sizeof(struct kolo_tcp_challenge) == 64, "wire format");

/* The answer to the proof. REFUSED: the listener's own connection is preferred. */
enum { KOLO_TCP_REFUSED = 0, KOLO_TCP_ACCEPTED = 1 };

/* ---- sockets ---- */

struct kolo_tcp_out { /* a frame that is being written */
    struct kolo_tcp_frame frame;
    struct kolo_carrier_message *message; /* NULL: no payload */
    uint32_t bytes;                       /* of the message, before coding */
    const char *coded;                    /* the payload; NULL: it is in the message */
    size_t at;                            /* bytes of frame and payload written */
};

enum kolo_tcp_state {
    KOLO_TCP_NONE,       /* not begun, or refused: the peer makes its own */
    KOLO_TCP_CONNECTING, /* the kernel is connecting it */
    KOLO_TCP_GREETING,   /* our hello is sent: a challenge must come */
    KOLO_TCP_PROVING,    /* our proof is sent: an answer must come */
    KOLO_TCP_UP,
    KOLO_TCP_ENDED /* the peer has closed it */
};

struct kolo_tcp_socket {
    struct kolo_link *link;
    int fd; /* -1: none */
    int index;
    enum kolo_tcp_state state;
    bool full;       /* the kernel took no more bytes */
    bool ripe;       /* there may be bytes to read */
    bool over;       /* the kernel has told that no bytes follow those that it has: once */
    double since_us; /* when it entered its state */
    double again_us; /* when to try again; 0: not */
    unsigned tries;
    struct kolo_tcp_hello hello;
    struct kolo_tcp_challenge challenge;
    unsigned char proof[KOLO_PROOF_BYTES];
    size_t got;             /* bytes of the next part of the greeting */
    struct kolo_seal *seal; /* NULL: bytes travel as they are */
    struct kolo_tcp_out out[KOLO_TCP_QUEUE];
    int first, count; /* in the ring out[] */
    /* Reading: bytes [head, tail) of staging; of the frame at hand `left` payload bytes. */
    struct kolo_tcp_frame frame;
    struct kolo_carrier_message *into;
    size_t left, at;   /* at: where in the message */
    unsigned patience; /* turns that the payload may still wait for its receive */
    uint32_t sum;      /* of the payload bytes that came, if the link has sums */
    size_t head, tail;
    char *staging; /* [KOLO_TCP_STAGING] */
    bool decodes;  /* the payload goes to `coded` first, and `at` is there */
    char *coded;   /* [KOLO_TCP_CODED_IN], or NULL as long as no CODED came */
    char *coding;  /* [KOLO_TCP_CODED_OUT], or NULL: the payload of the last frame of out[] */
    /* Only by price: bytes a microsecond, and when the kernel was asked. 0: not known. */
    double rate, looked_us;
};

/* KOLO_LOSSLESS */
enum kolo_tcp_codes { KOLO_TCP_CODES_NEVER, KOLO_TCP_CODES_ALWAYS, KOLO_TCP_CODES_BY_PRICE };

struct kolo_tcp_price { /* of coding floats of one length for one peer */
    double kept;        /* bytes that coding leaves of one; 0: not known */
    size_t left;        /* bytes until the next decision */
    unsigned decisions;
    uint64_t bytes, coded; /* of all frames that were coded, before and after */
    bool codes, told;      /* the last decision */
};

struct kolo_link {
    struct kolo_carrier base;
    struct kolo_endpoint *ep;
    struct kolo_tcp_address address;
    bool sums;
    bool decodes;                   /* the peer may send CODED */
    struct kolo_tcp_price price[2]; /* of bfloat16 and float32 */
    bool spread;                    /* the further sockets are begun */
    bool has_long;                  /* a message long enough for further sockets was posted */
    int nsockets;
    struct kolo_tcp_socket socket[KOLO_TCP_SOCKETS_MAX];
    struct kolo_carrier_message
        *expected;           /* the receive that the next frame is probably for, or NULL */
    struct kolo_doubt doubt; /* the connection has ended, and it is not known why */
    bool bad;                /* the peer sent an invalid frame, and does not know it yet */
    bool words; /* words of notify() moved in this turn, which is no progress of messages */
};

struct kolo_endpoint {
    struct kolo_env env;
    unsigned char secret[KOLO_SECRET_BYTES];
    struct kolo_interface interface; /* the listening address */
    struct kolo_acceptor acceptor;
    int epoll;
    int nsockets;
    double gbs;                   /* to other hosts */
    bool sums;                    /* KOLO_CRC */
    bool seals;                   /* KOLO_ENCRYPT */
    enum kolo_tcp_codes codes;    /* KOLO_LOSSLESS */
    struct kolo_tcp_coder *coder; /* NULL: no link codes */
    struct kolo_carriers all;     /* links */
    unsigned turns;
    int quiet;       /* turns since something moved, or a sleeper asked, at most QUIET_TURNS */
    int nconnecting; /* sockets between CONNECTING and UP */
    int *closing;    /* descriptors with unsent bytes */
    int nclosing, closing_cap;
};

/* Bytes of a message of `total` bytes that go before its receive is posted. */
static inline size_t kolo_tcp_eager(const struct kolo_link *link, size_t total)
{
    return kolo_min(total, link->nsockets > 1 ? KOLO_TCP_EAGER_SHARED : KOLO_TCP_EAGER);
}

/* ---- speed.c ---- */

/* GB/s of the network interface each way; 0: not known. */
double kolo_tcp_interface_gbs(const char *name);

/* ---- socket.c ---- */

/* Have epoll report the descriptor's events with data.ptr `s`. `how`: EPOLL_CTL_ADD or _MOD. */
void kolo_tcp_socket_watch(struct kolo_tcp_socket *s, int how, int fd);
/* Whether its connection is being made or proved. */
bool kolo_tcp_is_greeting(enum kolo_tcp_state state);
void kolo_tcp_socket_enter(struct kolo_tcp_socket *s, enum kolo_tcp_state state);
/* Close a socket's descriptor, and enter `state`. */
void kolo_tcp_socket_reset(struct kolo_tcp_socket *s, enum kolo_tcp_state state);
/* The socket is up: data may flow. Its hello and challenge are known. */
void kolo_tcp_socket_up(struct kolo_tcp_socket *s, int fd);
/* Fail the link: its requests end with LINK and this text. `error`: errno; as for struct
 * kolo_env. */
void kolo_tcp_fail(struct kolo_link *link, const char *what, int error);
/* The socket has ended. After BYE that is no error. */
void kolo_tcp_ended(struct kolo_tcp_socket *s, int error);
/* The connection has ended without a reason (`met`), or could not be made because the peer refused:
 * find out whether the peer lives, and then fail the link. */
void kolo_tcp_doubt(struct kolo_link *link, bool met);
/* Look whether the doubt is settled. */
void kolo_tcp_settle_doubt(struct kolo_link *link);
/* Close all sockets of the link. */
void kolo_tcp_hang_up(struct kolo_link *link);

/* ---- greet.c ---- */

/* Begin to connect socket `index`. */
void kolo_tcp_greet_begin(struct kolo_link *link, int index);
/* Advance the greeting of a socket that is not up. */
void kolo_tcp_greet_step(struct kolo_tcp_socket *s);
/* How connections that peers make prove themselves, and reach their links. */
extern const struct kolo_acceptor_ops kolo_tcp_greet_guests;
/* Take the connections that this link's peer made before the link existed. */
void kolo_tcp_greet_adopt(struct kolo_link *link);

/* ---- stream.c ---- */

/* Write frames until the socket is full; whether bytes moved. */
bool kolo_tcp_stream_write(struct kolo_tcp_socket *s);
bool kolo_tcp_stream_read(struct kolo_tcp_socket *s);
/* Whether a frame is written in part. */
bool kolo_tcp_stream_is_within(const struct kolo_tcp_socket *s);
/* Write the rest of a half written frame. False: the socket is full. */
bool kolo_tcp_stream_finish(struct kolo_tcp_socket *s);
/* Drop the queued frames and write BYE or ABORT, unless a frame is half written. False: the socket
 * is full. */
bool kolo_tcp_stream_last(struct kolo_tcp_socket *s, enum kolo_tcp_kind kind, uint32_t number);

/* ---- lossless.c ---- */

/* The payload of CODED: its head, then blocks of KOLO_PLANES_BLOCK bytes (the last one has the rest),
 * coded as planes.h says, before each its coded length in 4 bytes. */
struct kolo_tcp_coded_head {
    uint32_t bytes;       /* decoded: at most KOLO_TCP_FRAME_MOST */
    uint32_t float_bytes; /* 2 or 4 */
};
static_assert(sizeof(struct kolo_tcp_coded_head) == 8, "wire format");
enum {
    KOLO_TCP_CODED_IN = KOLO_TCP_FRAME_MOST, /* a payload that is not shorter goes as it is */
    KOLO_TCP_CODED_OUT = KOLO_TCP_FRAME_MOST + 8 + KOLO_TCP_FRAME_MOST / KOLO_PLANES_BLOCK * 5
};

struct kolo_tcp_coder {
    struct kolo_planes_room room;
    double us_per_byte[2]; /* to encode and decode bfloat16 and float32; 0: not known */
    _Alignas(8) char block[KOLO_PLANES_BLOCK];
};

/* Have the endpoint's coder. Errors: SYSTEM (memory). */
KOLO_CHECK kolo_status kolo_tcp_lossless_prepare(struct kolo_endpoint *ep);
/* Make a frame of DATA one of CODED, if it is long, of floats, and gets shorter. */
void kolo_tcp_lossless_encode(struct kolo_tcp_socket *s, struct kolo_tcp_out *out);
/* The header of CODED came: its payload goes to s->coded. False: the frame is invalid. */
bool kolo_tcp_lossless_begin(struct kolo_tcp_socket *s);
/* The payload is in s->coded: the message gets what is in it. False: the frame is invalid. */
bool kolo_tcp_lossless_deliver(struct kolo_tcp_socket *s);

/* ---- price.c ---- */

/* Whether a frame with these floats is to be coded. s->coding has room. */
bool kolo_tcp_price_pays(struct kolo_tcp_socket *s, unsigned float_bytes, const char *from,
                         size_t bytes);
/* A frame of `bytes` was coded to `coded` bytes, and goes so if they are fewer. */
void kolo_tcp_price_note(struct kolo_link *link, unsigned float_bytes, size_t bytes, size_t coded);
/* Tell in the log what was coded. */
void kolo_tcp_price_end(const struct kolo_link *link);

/* ---- payload.c ---- */

/* The place of byte `at` of an outgoing frame's payload. *run: how many follow it there. */
char *kolo_tcp_payload_at(const struct kolo_tcp_out *out, size_t at, size_t *run);
/* The sum of a header: all members before `sum`. */
uint32_t kolo_tcp_head_sum(const struct kolo_tcp_frame *frame);
void kolo_tcp_fill_sums(struct kolo_tcp_out *out);
/* The header in s->frame came. False: its sum is wrong, and the link has failed. */
bool kolo_tcp_head_is_right(struct kolo_tcp_socket *s);
/* Whether payload of the frame at hand is missing. */
bool kolo_tcp_is_within_payload(const struct kolo_tcp_socket *s);
/* The place of arriving payload bytes, `done` bytes behind those that have come: as
 * kolo_tcp_message_room(). */
int kolo_tcp_payload_room(const struct kolo_tcp_socket *s, size_t done, size_t left,
                          struct iovec *out, int count);
/* Check the sum of `len` more payload bytes, which are in place; `whole`: they are the last ones.
 * The bytes of a message whose receive has another length are not in place. */
bool kolo_tcp_payload_is_right(struct kolo_tcp_socket *s, size_t len, bool whole);

/* ---- message.c ---- */

/* Whether a request waits for incoming frames. */
bool kolo_tcp_message_listens(const struct kolo_link *link);
/* Whether the next payload of the socket may wait for its receive. */
bool kolo_tcp_message_is_early(const struct kolo_tcp_socket *s);
/* The next frame for a socket with room; false: none. */
bool kolo_tcp_message_pull(struct kolo_link *link, struct kolo_tcp_out *out);
/* The whole frame was written. */
void kolo_tcp_message_sent(struct kolo_link *link, const struct kolo_tcp_out *out);
/* The probable place of the next payload. False: unknown. */
bool kolo_tcp_message_expects(const struct kolo_link *link, struct iovec *out);
/* Whether this is the frame that was expected. */
bool kolo_tcp_message_is_expected(const struct kolo_link *link, const struct kolo_tcp_frame *frame);
/* A frame's header came. Its payload goes into *into, from frame->offset on; NULL: it has no
 * payload. False: the frame is invalid. */
bool kolo_tcp_message_arrives(struct kolo_link *link, const struct kolo_tcp_frame *frame,
                              struct kolo_carrier_message **into);
/* The place of payload bytes, from byte `at` of the message on: at most `count` runs with at most
 * `left` bytes. 0: the bytes are dropped. */
int kolo_tcp_message_room(const struct kolo_carrier_message *into, size_t at, size_t left,
                          struct iovec *out, int count);
/* `len` bytes of the payload are in place; `whole`: they are the last ones. */
void kolo_tcp_message_came(struct kolo_link *link, const struct kolo_tcp_frame *frame,
                           struct kolo_carrier_message *into, size_t len, bool whole);
/* Queue a frame without payload. */
void kolo_tcp_message_note(struct kolo_link *link, const struct kolo_carrier_note *note);
kolo_status kolo_tcp_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                  struct kolo_req *req);
kolo_status kolo_tcp_message_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                                  struct kolo_req *req);
/* End all pending requests with `why`. */
void kolo_tcp_message_end(struct kolo_link *link, kolo_status why);

/* ---- farewell.c ---- */

/* abort() was called: send ABORT or BYE, and let the written bytes arrive. */
void kolo_tcp_farewell_give_up(struct kolo_link *link, kolo_status why);
/* The peer sent an invalid frame, but it lives. Send it the reason why this side leaves, so that it
 * does not take this rank for dead. */
void kolo_tcp_farewell_complain(struct kolo_link *link);
/* Wait until the sockets kept aside have delivered their bytes, and close them. */
void kolo_tcp_farewell_finish(struct kolo_endpoint *ep);

#endif
