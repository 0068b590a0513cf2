// SPDX-License-Identifier: Apache-2.0
/* The types that the files of the verbs transport share: rails, lanes, links, messages.
 *
 *   wire.h        the structs on the wire
 *   library.c     libibverbs
 *   rails.c       devices and ports: which ones, how fast, which ports they reach
 *   address.c     the address of a rank, and the pairs of rails that follow from two addresses
 *   control.c     a TCP connection each way beside the data: liveness, offers of queue pairs
 *   link.c        the state of a link that all its parts change
 *   entry.c       entries as they are on the wire
 *   queue_pair.c  the states of a queue pair
 *   lane.c        a lane: its life and its end, work requests of its queue pair, credits
 *   lanes.c       how lanes come up, fail, and come back
 *   memory.c      registration
 *   message.c     sends and receives: how they begin and end, where arriving entries belong
 *   pump.c        which entry a lane carries next
 *   completion.c  completions, and the entries that came
 *   words.c       what the words of the control connections mean, and the last words
 *   verbs.c       the endpoint, its links, progress
 *
 * A rail is a port of a device. A link has one lane or more over each rail that reaches the peer. A
 * lane is a reliable queue pair and a ring of KOLO_VERBS_SLOTS slots at the other end.
 *
 * Each slot takes an entry: its heads and at most KOLO_VERBS_PIECE bytes. RDMA writes it with an
 * immediate value, so that the receiver finds it in its completion queue. The value has the number
 * of entries taken from the other direction: the credits. If no entry goes back, an immediate value
 * goes alone. So a receiver is always ready, and never overrun. The value also has the number of
 * entries sent before: a device that repeats or skips one is found out.
 *
 *   DATA    bytes [offset, offset + len) of a message of `total` bytes, and `zeros` bytes of 0
 *   READY   the receive of a long message is posted; the place to write to follows
 *   PLACED  `offset` bytes of the message were written there, by this lane, before this entry
 *   TAKEN   no payload; like every entry it has the count of messages taken from its channel
 *
 * Messages below KOLO_VERBS_LONG go through slots as soon as the window of carrier.h allows it,
 * whether or not the receive is posted. Longer messages wait for READY. They go from user memory to
 * user memory, in chunks that the lanes pull. Every entry names its message, so it may take any
 * lane.
 *
 * A queue pair keeps the order, so PLACED comes after its bytes. Lanes have no order among them. */
#ifndef KOLO_VERBS_VERBS_H
#define KOLO_VERBS_VERBS_H

#include "transports/acceptor.h"
#include "transports/carrier.h"
#include "transports/doubt.h"
#include "transports/verbs/entry.h"
#include "transports/verbs/library.h"
#include "util/secret.h"

enum {
    KOLO_VERBS_SLOTS = 32,      /* of a lane, each way */
    KOLO_VERBS_LONG = 64 << 10, /* bytes of the shortest message that is written in place */
    KOLO_VERBS_CHUNK = 1 << 20,
    KOLO_VERBS_RUN = 4 << 10, /* the shortest run of bytes that is worth a work request */
    KOLO_VERBS_SENDS = 128,   /* work requests in a send queue */
    KOLO_VERBS_NOTES = 4,     /* values alone that may arrive before the receiver polls */
    KOLO_VERBS_BATCH = 8,     /* fewer missing receives are not posted yet */
    KOLO_VERBS_RECVS = KOLO_VERBS_SLOTS + 2 * KOLO_VERBS_NOTES + KOLO_VERBS_BATCH,
    KOLO_VERBS_CREDITS_DUE = KOLO_VERBS_SLOTS / 4, /* entries taken, and not told yet */
    KOLO_VERBS_CHAIN = 32,                         /* work requests posted together */
    KOLO_VERBS_AGAIN = 64                          /* chunks of a message to write again */
};
#define KOLO_VERBS_RECEIVE (UINT32_C(1) << 31) /* in the upper half of wr_id: a receive */

/* ---- messages ---- */

struct kolo_verbs_hold;   /* a registration; memory.c */
struct kolo_verbs_keeper; /* the kept registrations; memory.c */

struct kolo_verbs_piece { /* bytes of a message */
    size_t at, len;
};

struct kolo_verbs_message {
    struct kolo_carrier_message base;
    bool of_gpu;                   /* its bytes are in GPU memory */
    struct kolo_verbs_place place; /* of the receive, at both ends */
    struct kolo_verbs_hold *hold;
    int nagain;
    struct kolo_verbs_piece again[KOLO_VERBS_AGAIN]; /* chunks whose lane has failed */
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
    int cq_size, cq_used; /* entries; entries that lanes may need */
    bool armed;           /* the next completion makes `channel` readable */
    bool down;            /* the port is not active */
    double asked_us;      /* when the port was queried last; 0: query it now */
    struct kolo_verbs_port self;
    int gid_index;
    uint16_t pkey_index;
    uint32_t max_message, max_inline;
    int node; /* NUMA node; -1: not known */
};

enum kolo_verbs_state {
    KOLO_VERBS_LANE_NONE,    /* no queue pair */
    KOLO_VERBS_LANE_OFFERED, /* the peer has our offer; its own offer must come */
    KOLO_VERBS_LANE_READY,   /* our queue pair receives */
    KOLO_VERBS_LANE_TRIED,   /* the peer's receives, too; a value alone tests the path */
    KOLO_VERBS_LANE_LIVE,    /* the path works: entries may go */
    KOLO_VERBS_LANE_BROKEN,  /* it has failed; earlier completions are still handled */
    KOLO_VERBS_LANE_DOWN     /* no more completions come from it */
};

struct kolo_verbs_flight { /* a chunk in flight */
    struct kolo_carrier_message *message;
    uint32_t posted; /* work requests up to its entry */
    uint32_t entry;  /* the number of its PLACED entry */
    size_t at, len;
};

struct kolo_verbs_lane {
    struct kolo_link *link;
    struct kolo_verbs_rail *rail;
    int index, peer_rail;
    uint32_t id; /* a part of wr_id */
    enum kolo_verbs_state state;
    bool peer_up, offered, peer_down; /* UP, OFFER, DOWN of this epoch have come */
    bool ended;                       /* SENT has come */
    uint32_t epoch, peer_taken;       /* peer_taken: the value of DOWN */
    uint32_t last;                    /* the value of SENT */
    double since_us;                  /* when it entered its state */
    struct kolo_verbs_word offer;     /* the peer's OFFER */
    struct ibv_qp *qp;
    uint32_t psn, max_inline;
    char *in, *out; /* [SLOTS][SLOT] each: the peer writes to `in`; `out` is sent from */
    struct ibv_mr *ring;
    int cq_entries; /* its part of the rail's cq_used */
    /* Out: counts that only grow. */
    uint32_t posted, retired; /* work requests */
    uint32_t signaled;        /* the last work request that reports its completion */
    uint32_t sent, credited;  /* entries; entries that the peer has taken */
    uint32_t slot_posted[KOLO_VERBS_SLOTS];
    size_t flying_bytes;
    struct kolo_verbs_flight flight[KOLO_VERBS_SENDS];
    uint32_t first_flight, next_flight;
    struct ibv_send_wr wr[KOLO_VERBS_CHAIN]; /* made, but not posted yet */
    struct ibv_sge sge[KOLO_VERBS_CHAIN];
    int nchain;
    /* In. */
    uint32_t taken, told; /* entries taken; the count that the peer knows */
    int recvs;            /* work requests in the receive queue */
};

/* ---- links ---- */

struct kolo_verbs_stream { /* a control connection */
    int fd;                /* -1: none */
    size_t got;            /* bytes of the next word, or of the answer */
    bool up;               /* it is proved */
    double since_us;
    unsigned tries;
    double again_us; /* when to connect again; 0: not */
    union {
        struct kolo_verbs_answer answer;
        struct kolo_verbs_word word;
        unsigned char bytes[sizeof(struct kolo_verbs_word)];
    };
};

struct kolo_verbs_again { /* an entry of a failed lane that the peer did not get */
    struct kolo_verbs_again *next;
    uint32_t len;
    unsigned char bytes[];
};

struct kolo_link {
    struct kolo_carrier base;
    struct kolo_endpoint *ep;
    struct kolo_verbs_address address;
    bool connecting; /* no lane has been live yet */
    bool ripe;       /* there may be bytes to read */
    int nlanes, nlive;
    struct kolo_verbs_lane *lane; /* [nlanes] */
    struct kolo_verbs_again *again, *again_last;
    struct kolo_verbs_stream out, in;
    struct kolo_verbs_hello hello; /* ours, on `out` */
    struct kolo_verbs_word *word;  /* the queued words */
    int words, word_cap;
    size_t word_at;          /* bytes of the first word that are written */
    struct kolo_doubt doubt; /* the peer's words have ended, and it is not known why */
    bool complains;          /* it failed at this end, and the peer is not told yet */
    double lost_us;          /* when the last live lane failed; 0: a lane is live */
    char lost[200];          /* the last lane that failed, and the cause */
};

struct kolo_endpoint {
    struct kolo_env env;
    const struct kolo_verbs_library *lib;
    int pid; /* a forked child leaves the queue pairs alone */
    uint8_t timeout, retries, service_level, traffic_class; /* of queue pairs */
    uint16_t lanes;                                         /* over each rail */
    unsigned char secret[KOLO_SECRET_BYTES];
    unsigned char nonce[12];
    struct kolo_interface interface; /* the listening address */
    struct kolo_acceptor acceptor;
    int epoll;
    struct kolo_verbs_rail rail[KOLO_VERBS_RAILS];
    int nrails;
    struct kolo_verbs_lane **lane; /* by index, of all links */
    uint32_t *lane_use;            /* how often each index was assigned */
    int nlane, lane_cap;
    struct kolo_carriers all; /* links */
    int nconnecting;
    unsigned turns, quiet; /* progress() calls; calls in a row without completions */
    char via[KOLO_VERBS_RAILS][80];
    const char *(*vias)[KOLO_VERBS_RAILS]; /* [nranks]: the `via` of each rail to a peer */
    struct kolo_verbs_keeper *keeper;
    bool warned; /* of a failed registration */
};

/* ---- link.c ---- */

/* The link has its first live lane, or will never have one. */
void kolo_verbs_connected(struct kolo_link *link);
/* Whether this process opened the endpoint, and the program has left its descriptors alone. A forked
 * child must leave its parent's queue pairs alone. Where descriptors are lost, that of the device
 * probably is, too, and its number may be of a file of the program. */
bool kolo_verbs_is_ours(const struct kolo_endpoint *ep);
/* Fail the link: its requests end with LINK and this text. `error`: errno or 0. `gone`: the peer's
 * process is gone, too. */
void kolo_verbs_fail(struct kolo_link *link, const char *what, int error, bool gone);

/* ---- rails.c ---- */

/* Open the rails that this rank uses. Errors: UNSUPPORTED (there is none; the text says why),
 * INVALID (a variable), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_rails_open(struct kolo_endpoint *ep);
void kolo_verbs_rails_close(struct kolo_endpoint *ep);
/* Choose the pairs of rails of the lanes between two ranks. `low` is the address of the lower rank.
 * Fills pair[lane][0 for low, 1 for high], and returns the number of lanes. Both ends compute the
 * same pairs. */
int kolo_verbs_rails_pair(const struct kolo_verbs_address *low,
                          const struct kolo_verbs_address *high, int pair[KOLO_VERBS_LANES][2]);
/* Ask the device whether the port carries data now. */
bool kolo_verbs_rail_is_active(struct kolo_verbs_rail *rail);
/* Read the devices' events. */
void kolo_verbs_rails_hear(struct kolo_endpoint *ep);

/* ---- control.c ---- */

void kolo_verbs_control_begin(struct kolo_link *link);
/* The next word that came. False: none is here. If the peer's connection has ended without BYE, the
 * link is in doubt. */
bool kolo_verbs_control_read(struct kolo_link *link, struct kolo_verbs_word *out);
/* Connect and write, without blocking. */
void kolo_verbs_control_step(struct kolo_link *link);
/* How connections that peers make prove themselves, and reach their links. */
extern const struct kolo_acceptor_ops kolo_verbs_control_guests;
/* Take the connection that this link's peer made before the link existed. */
void kolo_verbs_control_adopt(struct kolo_link *link);
void kolo_verbs_control_say(struct kolo_link *link, const struct kolo_verbs_word *word);
/* Write the queued words. False: some are left. */
bool kolo_verbs_control_flush(struct kolo_link *link);
void kolo_verbs_control_end(struct kolo_link *link);

/* ---- lanes.c ---- */

/* Make the link's lanes over pairs of rails (ours, the peer's), and send OFFER for each. Errors:
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

/* ---- queue_pair.c ---- */

/* Create the lane's queue pair, with as much inline as the device gives, in INIT. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_verbs_queue_pair_create(struct kolo_verbs_lane *lane);
/* Move it to RTS, connected to the queue pair that the peer has offered. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_queue_pair_connect(struct kolo_verbs_lane *lane);
/* Flush its work requests: the device stops reading and writing. A lane without a queue pair is
 * accepted. */
void kolo_verbs_queue_pair_stop(struct kolo_verbs_lane *lane);

/* ---- lane.c ---- */

/* The path works: entries may go. */
void kolo_verbs_lane_live(struct kolo_verbs_lane *lane);
/* End a lane. `what` is the cause for the log. NULL: the peer ended it. */
void kolo_verbs_lane_break(struct kolo_verbs_lane *lane, const char *what);
/* Fill the receive queue. False: the device refuses. */
bool kolo_verbs_lane_fill(struct kolo_verbs_lane *lane);
/* The live lane with room that will be free first, or NULL. */
struct kolo_verbs_lane *kolo_verbs_lane_choose(struct kolo_link *link, uint32_t more);
/* The slot of the next entry. kolo_verbs_lane_send() sends it, of `bytes`, at the next flush.
 * `tells`: its completion is reported, because a message waits for it. */
char *kolo_verbs_lane_slot(const struct kolo_verbs_lane *lane);
void kolo_verbs_lane_send(struct kolo_verbs_lane *lane, uint32_t bytes, bool tells);
/* Write [from, from + len) to the peer's memory before the next entry. */
void kolo_verbs_lane_write(struct kolo_verbs_lane *lane, const void *from, uint32_t len,
                           uint32_t lkey, uint64_t to, uint32_t rkey);
/* Send an immediate value alone. Its arrival makes the lane live. */
void kolo_verbs_lane_try(struct kolo_verbs_lane *lane);
/* Post the work requests that were made, and credits and receives that are due. */
void kolo_verbs_lane_flush(struct kolo_verbs_lane *lane);
/* Whether a flush has anything to do. A turn that finds nothing costs only this. */
static inline bool kolo_verbs_lane_is_due(const struct kolo_verbs_lane *lane)
{
    return lane->nchain > 0 || lane->taken - lane->told >= KOLO_VERBS_CREDITS_DUE ||
           lane->recvs <= KOLO_VERBS_RECVS - KOLO_VERBS_BATCH;
}
/* Request a completion report for all posted work. True: all of it has completed. */
bool kolo_verbs_lane_is_quiet(struct kolo_verbs_lane *lane);

/* ---- memory.c ---- */

/* Make the keeper of registrations. Errors: INVALID (KOLO_IB_PINNED), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_memory_open(struct kolo_endpoint *ep);
/* close() releases the kept registrations. free() frees the keeper, also in a forked child. */
void kolo_verbs_memory_close(struct kolo_endpoint *ep);
void kolo_verbs_memory_free(struct kolo_endpoint *ep);
/* Register [at, at + len) at all rails. `written`: the peer may write to it. NULL: the registration
 * failed, and the log says why. */
struct kolo_verbs_hold *kolo_verbs_memory_hold(struct kolo_endpoint *ep, void *at, size_t len,
                                               bool written);
void kolo_verbs_memory_drop(struct kolo_endpoint *ep, struct kolo_verbs_hold *hold);
uint32_t kolo_verbs_memory_lkey(const struct kolo_verbs_hold *hold, const struct kolo_endpoint *ep,
                                const struct kolo_verbs_rail *rail);
uint32_t kolo_verbs_memory_rkey(const struct kolo_verbs_hold *hold, int rail);
/* map() and unmap() of the transport: they register memory of a GPU, which hold() then finds.
 * Errors: UNSUPPORTED (the text says by which part, and why), SYSTEM. */
KOLO_CHECK kolo_status kolo_verbs_memory_map(struct kolo_endpoint *ep, void *ptr, size_t len,
                                             struct kolo_mem *out);
void kolo_verbs_memory_unmap(struct kolo_endpoint *ep, struct kolo_mem *mem);
bool kolo_verbs_memory_is_gpu(const struct kolo_endpoint *ep, const void *at, size_t len);
/* ibv_reg_mr() failed with `error`. The text names the limit to raise, if one was reached. */
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

/* Bytes of a message that a receiver may have to keep. */
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
/* Copy bytes of a message in GPU memory that goes through slots. Its memory is contiguous. */
void kolo_verbs_message_copy_gpu(struct kolo_link *link, void *to, const void *from, size_t len,
                                 bool to_gpu);
/* End the request of a send that has gone completely, or has failed. */
void kolo_verbs_message_end_send(struct kolo_link *link, struct kolo_carrier_message *m);
/* A chunk was written. */
void kolo_verbs_message_flown(struct kolo_link *link, const struct kolo_verbs_flight *flight);
/* A chunk has to be written again. */
void kolo_verbs_message_again(struct kolo_link *link, const struct kolo_verbs_flight *flight);
/* Release a record that is no longer used; see drop() of kolo_carriers. */
void kolo_verbs_message_drop(struct kolo_link *link, struct kolo_carrier_message *m);
/* End all pending requests with `why`. */
void kolo_verbs_message_end(struct kolo_link *link, kolo_status why);

/* ---- pump.c ---- */

/* Make and post the entries and chunks that can go now. True: there were some. */
bool kolo_verbs_pump(struct kolo_link *link);

/* ---- completion.c ---- */

/* Handle the completions of all rails. Returns their number. */
int kolo_verbs_lanes_poll(struct kolo_endpoint *ep);
/* Take the completion event of the rail's queue, if there is one: the queue is no longer armed. */
void kolo_verbs_lanes_wake(struct kolo_verbs_rail *rail);

/* ---- words.c ---- */

/* Handle the words that came; connect and write, without blocking. */
void kolo_verbs_words_step(struct kolo_link *link);
/* End the link with `why`. Send ABORT with the reason if the communicator has failed; else BYE,
 * behind all posted work. */
void kolo_verbs_give_up(struct kolo_link *link, kolo_status why);
/* Tell the peer why the link failed at this end. */
void kolo_verbs_complain(struct kolo_link *link);

/* ---- address.c ---- */

void kolo_verbs_address_make(const struct kolo_endpoint *ep, struct kolo_verbs_address *out);
/* False: the bytes are no address. */
bool kolo_verbs_address_read(const void *bytes, size_t len, struct kolo_verbs_address *out);
/* The pairs of rails to a peer with this address, our rail first. Returns their number. */
int kolo_verbs_address_pair(const struct kolo_endpoint *ep, int rank,
                            const struct kolo_verbs_address *address,
                            int pair[KOLO_VERBS_LANES][2]);
/* probe() of the transport. */
kolo_status kolo_verbs_address_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                     struct kolo_reach *out);

#endif
