// SPDX-License-Identifier: Apache-2.0
/* The types that the files of the verbs transport share: rails, lanes, links, messages.
 *
 *   wire.h        what goes over the wire
 *   library.c     libibverbs
 *   rails.c       devices and ports: which ones, how fast, which ports they reach
 *   address.c     what a peer knows of a rank, and the pairs of rails that follow
 *   control.c     a TCP connection each way beside the data: who is there, its queue pairs
 *   queue_pair.c  the states of a queue pair
 *   lane.c        what goes into a queue pair and comes out of it, and its credits
 *   lanes.c       how lanes come up, fail, and come back
 *   memory.c      registration
 *   message.c     sends and receives: how they begin and end, where arriving entries belong
 *   pump.c        which entry a lane carries next
 *   verbs.c       the endpoint, its links, progress
 *
 * A rail is a port of a device; a link has one lane or more over each rail that reaches the peer. A
 * lane is a reliable queue pair and a ring of KOLO_VERBS_SLOTS slots at the other end. Each slot
 * takes an entry: a head of 32 bytes and at most KOLO_VERBS_PIECE bytes. It is written by RDMA with
 * an immediate value, so that the receiver finds it in its completion queue; the value says how
 * many entries the other direction has taken, which are the credits. Where nothing goes the other
 * way, an immediate value goes alone. So no receiver is ever not ready, and none is overrun.
 *
 *   DATA    bytes [offset, offset + len) of a message of `total` bytes
 *   READY   the receive of a long message is posted; behind it, where it may be written to
 *   PLACED  `offset` bytes of the message were written there, by this lane, before this entry
 *   TAKEN   no payload; like every entry it has the count of messages taken from its channel
 *
 * Messages below KOLO_VERBS_LONG go through slots as soon as fewer than KOLO_CARRIER_DEPTH messages
 * of their channel, and KOLO_CARRIER_WINDOW bytes, are not taken, whether or not the receive is
 * posted. Longer ones wait for READY and go from user memory to user memory, in chunks that the
 * lanes pull. An entry says which message it is about, so entries may take any lane.
 *
 * Order: one queue pair keeps it, so PLACED comes after its bytes. Between lanes there is none. */
#ifndef KOLO_VERBS_VERBS_H
#define KOLO_VERBS_VERBS_H

#include "transports/acceptor.h"
#include "transports/carrier.h"
#include "transports/verbs/library.h"
#include "transports/verbs/wire.h"
#include "util/secret.h"

enum {
    KOLO_VERBS_SLOTS = 32,      /* of a lane, each way */
    KOLO_VERBS_LONG = 64 << 10, /* bytes of a message from which on it is written in place */
    KOLO_VERBS_CHUNK = 1 << 20,
    KOLO_VERBS_RUN = 4 << 10, /* the shortest run of bytes that is worth a work request */
    KOLO_VERBS_SENDS = 128,   /* work requests in a send queue */
    KOLO_VERBS_NOTES = 4,     /* values that may go alone while none is looked at */
    KOLO_VERBS_BATCH = 8,     /* receives are posted so many at a time */
    KOLO_VERBS_RECVS = KOLO_VERBS_SLOTS + 2 * KOLO_VERBS_NOTES + KOLO_VERBS_BATCH,
    KOLO_VERBS_CHAIN = 32, /* work requests posted together */
    KOLO_VERBS_AGAIN = 64  /* chunks of a message to be written again */
};

/* ---- messages ---- */

struct kolo_verbs_hold;   /* a registration; memory.c */
struct kolo_verbs_keeper; /* those that are kept */

struct kolo_verbs_piece { /* bytes of a message */
    size_t at, len;
};

struct kolo_verbs_message {
    struct kolo_carrier_message base;
    bool of_gpu;                   /* its bytes are */
    struct kolo_verbs_place place; /* send: of the receive */
    struct kolo_verbs_hold *hold;
    int nagain;
    struct kolo_verbs_piece again[KOLO_VERBS_AGAIN]; /* chunks whose lane has failed */
};

struct kolo_verbs_early { /* READY for a send that is not posted yet */
    uint32_t number;
    uint64_t total;
    struct kolo_verbs_place place;
};

struct kolo_verbs_earlies { /* those of a channel */
    struct kolo_verbs_early *at;
    int count, cap;
};

struct kolo_verbs_note { /* an entry that waits for its turn */
    uint8_t kind, channel;
    uint32_t number;
    uint64_t total;
    struct kolo_verbs_place place;
};

/* ---- rails and lanes ---- */

struct kolo_verbs_rail {
    char name[64]; /* of the device */
    uint8_t port;
    const struct kolo_verbs_library *lib;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int cq_size, cq_used; /* entries; those that lanes may need */
    bool armed;           /* the next completion makes `channel` readable */
    bool down;            /* the port is not active */
    double asked_us;      /* when the port was asked last */
    struct kolo_verbs_port self;
    int gid_index;
    uint16_t pkey_index;
    uint32_t max_message, max_inline;
    int node; /* NUMA; -1: not known */
};

enum kolo_verbs_state {
    KOLO_VERBS_LANE_NONE,    /* no queue pair */
    KOLO_VERBS_LANE_OFFERED, /* it takes what comes once the peer's is known */
    KOLO_VERBS_LANE_READY,   /* it takes what comes */
    KOLO_VERBS_LANE_TRIED, /* and the peer's, too: whether anything gets there is being found out */
    KOLO_VERBS_LANE_LIVE,  /* it does: entries may go */
    KOLO_VERBS_LANE_BROKEN, /* it has failed; what came before is still looked at */
    KOLO_VERBS_LANE_DOWN    /* nothing more comes from it */
};

struct kolo_verbs_flight {                /* a chunk that is being written */
    struct kolo_carrier_message *message; /* NULL: its request has ended */
    uint32_t posted;                      /* work requests up to its entry */
    uint32_t entry;                       /* which tells of it */
    size_t at, len;
};

struct kolo_verbs_lane {
    struct kolo_link *link;
    struct kolo_verbs_rail *rail;
    int index, peer_rail;
    uint32_t id; /* in wr_id */
    enum kolo_verbs_state state;
    bool peer_up, offered, peer_down; /* heard: UP, OFFER, DOWN of this epoch */
    bool ended;                       /* heard: SENT */
    uint32_t epoch, peer_taken;       /* peer_taken: DOWN's */
    uint32_t last;                    /* SENT's */
    double since_us;                  /* its state */
    struct kolo_verbs_word offer;     /* the peer's */
    struct ibv_qp *qp;
    uint32_t psn, max_inline;
    char *in, *out; /* [SLOTS][SLOT] each: what the peer writes to, and what is written there */
    struct ibv_mr *ring;
    int cq_entries; /* that it has of the rail's */
    /* Out: counts that go on for ever. */
    uint32_t posted, retired; /* work requests */
    uint32_t signaled;        /* of them the last that tells of its end */
    uint32_t sent, credited;  /* entries; those that the peer has taken */
    uint32_t slot_posted[KOLO_VERBS_SLOTS];
    size_t flying_bytes;
    struct kolo_verbs_flight flight[KOLO_VERBS_SENDS];
    uint32_t first_flight, next_flight;
    struct ibv_send_wr wr[KOLO_VERBS_CHAIN]; /* made and not posted */
    struct ibv_sge sge[KOLO_VERBS_CHAIN];
    int nchain;
    /* In. */
    uint32_t taken, told; /* entries; what the peer knows of that */
    int recvs;            /* work requests in the receive queue */
};

/* ---- links ---- */

struct kolo_verbs_stream { /* a control connection */
    int fd;                /* -1: none */
    size_t got;            /* bytes of the next word, or of the answer */
    bool up;               /* proved */
    double since_us;
    unsigned tries;
    double again_us; /* when to connect again; 0: not */
    union {
        struct kolo_verbs_answer answer;
        struct kolo_verbs_word word;
        unsigned char bytes[sizeof(struct kolo_verbs_word)];
    };
};

struct kolo_verbs_again { /* an entry of a lane that has failed, which the peer did not get */
    struct kolo_verbs_again *next;
    uint32_t len;
    unsigned char bytes[];
};

struct kolo_link {
    struct kolo_carrier base;
    struct kolo_endpoint *ep;
    struct kolo_verbs_address address;
    bool connecting; /* no lane has been live */
    bool ripe;       /* there may be something to read */
    int nlanes, nlive;
    struct kolo_verbs_lane *lane; /* [nlanes] */
    struct kolo_verbs_earlies early[KOLO_CHANNELS];
    struct kolo_verbs_again *again, *again_last;
    struct kolo_verbs_note *note;
    int notes, note_cap;
    struct kolo_verbs_stream out, in;
    struct kolo_verbs_hello hello; /* ours, on `out` */
    struct kolo_verbs_word *word;  /* to go out */
    int words, word_cap;
    size_t word_at; /* bytes of the first one that are out */
    double lost_us; /* since when no lane is live; 0: one is */
    char lost[200]; /* the last lane that failed, and why */
};

struct kolo_endpoint {
    struct kolo_env env;
    const struct kolo_verbs_library *lib;
    int pid; /* a forked child leaves the queue pairs alone */
    uint8_t timeout, retries, service_level, traffic_class; /* of queue pairs */
    uint16_t lanes;                                         /* over each rail */
    unsigned char secret[KOLO_SECRET_BYTES];
    unsigned char nonce[12];
    struct kolo_interface interface; /* where we listen */
    struct kolo_acceptor acceptor;
    int epoll;
    struct kolo_verbs_rail rail[KOLO_VERBS_RAILS];
    int nrails;
    struct kolo_verbs_lane **lane; /* by index, of all links */
    uint32_t *lane_use;            /* how often the index was given away */
    int nlane, lane_cap;
    struct kolo_carriers all; /* links */
    int nconnecting;
    unsigned turns, quiet; /* progress() calls; those in a row without any */
    char via[KOLO_VERBS_RAILS][80];
    const char *(*vias)[KOLO_VERBS_RAILS]; /* [nranks] those of the rails to a peer */
    struct kolo_verbs_keeper *keeper;
    bool warned; /* that memory could not be registered */
};

/* ---- rails.c ---- */

/* Open the rails that this rank uses. Errors: UNSUPPORTED (there is none, with why), INVALID (a
 * variable), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_rails_open(struct kolo_endpoint *ep);
void kolo_verbs_rails_close(struct kolo_endpoint *ep);
/* Over which pairs of rails two ranks have lanes, `low` the address of the lower rank: fills
 * pair[lane][0 for low, 1 for high], returns how many. Both ends find the same. */
int kolo_verbs_rails_pair(const struct kolo_verbs_address *low,
                          const struct kolo_verbs_address *high, int pair[KOLO_VERBS_LANES][2]);
/* Ask the device whether the port carries data now. */
bool kolo_verbs_rail_is_active(struct kolo_verbs_rail *rail);
/* Read the devices' events. */
void kolo_verbs_rails_hear(struct kolo_endpoint *ep);

/* ---- control.c ---- */

void kolo_verbs_control_begin(struct kolo_link *link);
/* Connect, read and write, without blocking. */
void kolo_verbs_control_step(struct kolo_link *link);
/* How connections that peers make prove themselves, and reach their links. */
extern const struct kolo_acceptor_ops kolo_verbs_control_guests;
/* Take the connection that this link's peer made before the link existed. */
void kolo_verbs_control_adopt(struct kolo_link *link);
void kolo_verbs_control_say(struct kolo_link *link, const struct kolo_verbs_word *word);
/* Write the queued words; false: some are left. */
bool kolo_verbs_control_flush(struct kolo_link *link);
void kolo_verbs_control_end(struct kolo_link *link);

/* ---- lanes.c ---- */

/* Make the link's lanes over pairs of rails (ours, the peer's), and offer them to the peer. Errors:
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_lanes_open(struct kolo_link *link, int pair[KOLO_VERBS_LANES][2],
                                             int count);
/* Stop the lanes: they neither read nor write any more. */
void kolo_verbs_lanes_stop(struct kolo_link *link);
void kolo_verbs_lanes_close(struct kolo_link *link);
/* Handle OFFER, UP, DOWN or SENT. False: the word is invalid. */
bool kolo_verbs_lane_hear(struct kolo_link *link, const struct kolo_verbs_word *word);
/* Advance the lanes that failed. */
void kolo_verbs_lanes_step(struct kolo_link *link);
/* End a lane: `what` went wrong; NULL: the peer ended it. */
void kolo_verbs_lane_break(struct kolo_verbs_lane *lane, const char *what);

/* ---- queue_pair.c ---- */

/* Create the lane's queue pair, with as much inline as the device gives, in INIT. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_verbs_queue_pair_create(struct kolo_verbs_lane *lane);
/* Take it to RTS, towards the queue pair that the peer has offered. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_queue_pair_connect(struct kolo_verbs_lane *lane);
/* Flush its work requests: nothing is read or written any more. A lane without one is accepted. */
void kolo_verbs_queue_pair_stop(struct kolo_verbs_lane *lane);

/* ---- lane.c ---- */

/* Fill the receive queue. False: the device refuses. */
bool kolo_verbs_lane_fill(struct kolo_verbs_lane *lane);
/* Whether an entry, and `more` further work requests, may go now. */
bool kolo_verbs_lane_has_room(const struct kolo_verbs_lane *lane, uint32_t more);
/* The live lane with room that will be free first, or NULL. */
struct kolo_verbs_lane *kolo_verbs_lane_choose(struct kolo_link *link, uint32_t more);
/* Where the next entry is made; then it goes with the next flush, with `len` bytes behind its head.
 */
struct kolo_verbs_entry *kolo_verbs_lane_entry(struct kolo_verbs_lane *lane);
void kolo_verbs_lane_send(struct kolo_verbs_lane *lane, uint32_t len);
/* Write [from, from + len) to the peer's memory before the next entry. */
void kolo_verbs_lane_write(struct kolo_verbs_lane *lane, const void *from, uint32_t len,
                           uint32_t lkey, uint64_t to, uint32_t rkey);
/* Send an immediate value alone; once it has arrived the lane is live. */
void kolo_verbs_lane_try(struct kolo_verbs_lane *lane);
void kolo_verbs_lane_live(struct kolo_verbs_lane *lane);
/* Post what was made, and credits that are due. */
void kolo_verbs_lane_flush(struct kolo_verbs_lane *lane);
/* Ask for the end of all that was posted; true: it is there. */
bool kolo_verbs_lane_is_quiet(struct kolo_verbs_lane *lane);
/* Look at the completions of all rails; how many there were. */
int kolo_verbs_lanes_poll(struct kolo_endpoint *ep);
/* The rail's queue has told of a completion, and has to be armed again; nothing where it has not.
 */
void kolo_verbs_lanes_wake(struct kolo_verbs_rail *rail);

/* ---- memory.c ---- */

/* Errors: INVALID (KOLO_IB_PINNED), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_memory_open(struct kolo_endpoint *ep);
/* Give back what is kept; free the rest, also in a forked child. */
void kolo_verbs_memory_close(struct kolo_endpoint *ep);
void kolo_verbs_memory_free(struct kolo_endpoint *ep);
/* Register [at, at + len) at all rails, for the peer to write to or not; NULL: it cannot be, and
 * the log says why. */
struct kolo_verbs_hold *kolo_verbs_memory_hold(struct kolo_endpoint *ep, void *at, size_t len,
                                               bool written);
void kolo_verbs_memory_drop(struct kolo_endpoint *ep, struct kolo_verbs_hold *hold);
uint32_t kolo_verbs_memory_lkey(const struct kolo_verbs_hold *hold, const struct kolo_endpoint *ep,
                                const struct kolo_verbs_rail *rail);
uint32_t kolo_verbs_memory_rkey(const struct kolo_verbs_hold *hold, int rail);
/* map() and unmap() of the transport: memory of a GPU, which hold() finds then. Errors: UNSUPPORTED
 * (by whom, and why), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_memory_map(struct kolo_endpoint *ep, void *ptr, size_t len,
                                             struct kolo_mem *out);
void kolo_verbs_memory_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem);
bool kolo_verbs_memory_is_gpu(const struct kolo_endpoint *ep, const void *at, size_t len);
/* ibv_reg_mr() failed with `error`: says so with what to set. */
kolo_status kolo_verbs_memory_refused(const struct kolo_verbs_rail *rail, size_t len, int error);

/* ---- message.c ---- */

static inline struct kolo_verbs_message *kolo_verbs_message_of(struct kolo_carrier_message *m)
{
    return (struct kolo_verbs_message *)m;
}

static inline bool kolo_verbs_is_long(size_t total)
{
    return total >= KOLO_VERBS_LONG;
}

/* Bytes of it that a receiver may have to keep. */
static inline size_t kolo_verbs_kept_bytes(size_t total)
{
    return kolo_verbs_is_long(total) ? 0 : total;
}

/* Handle an entry that came. False: the entry is invalid. */
bool kolo_verbs_message_arrives(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                                const char *payload);
kolo_status kolo_verbs_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                    struct kolo_req *req);
kolo_status kolo_verbs_message_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                                    struct kolo_req *req);
/* Copy bytes of a message in GPU memory, which is in one piece, where they do not go in place. */
void kolo_verbs_message_copy_gpu(struct kolo_link *link, void *to, const void *from, size_t len,
                                 bool to_gpu);
/* All of the send has gone, or it failed: its request ends. */
void kolo_verbs_message_end_send(struct kolo_link *link, struct kolo_carrier_message *m);
/* A record is used no more; see kolo_carriers. */
void kolo_verbs_message_drop(struct kolo_link *link, struct kolo_carrier_message *m);
/* End all that is pending with `why`. */
void kolo_verbs_message_end(struct kolo_link *link, kolo_status why);
void kolo_verbs_message_free(struct kolo_link *link);

/* ---- pump.c ---- */

/* Make and post the entries and chunks that can go now; whether there were any. */
bool kolo_verbs_pump(struct kolo_link *link);
/* A chunk was written. */
void kolo_verbs_pump_flown(struct kolo_link *link, const struct kolo_verbs_flight *flight);
/* A chunk has to be written again. */
void kolo_verbs_pump_again(struct kolo_link *link, const struct kolo_verbs_flight *flight);

/* ---- address.c ---- */

void kolo_verbs_address_make(const struct kolo_endpoint *ep, struct kolo_verbs_address *out);
/* False: the bytes are no address. */
bool kolo_verbs_address_read(const void *bytes, size_t len, struct kolo_verbs_address *out);
/* The pairs of rails to a peer with this address, ours first; returns how many. */
int kolo_verbs_address_pair(const struct kolo_endpoint *ep, int rank,
                            const struct kolo_verbs_address *address,
                            int pair[KOLO_VERBS_LANES][2]);
/* probe() of the transport. */
kolo_status kolo_verbs_address_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                     struct kolo_reach *out);

/* ---- verbs.c ---- */

/* The link has a live lane, or will never have one. */
void kolo_verbs_connected(struct kolo_link *link);
/* Fail the link: its requests end with LINK and this text. `error`: errno or 0. `gone`: the rank is
 * gone, too. */
void kolo_verbs_fail(struct kolo_link *link, const char *what, int error, bool gone);

#endif
