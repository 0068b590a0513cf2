// SPDX-License-Identifier: Apache-2.0
/* kolo plug-ins: how to add an algorithm, a transport or a tuner, in the tree or outside it.
 *
 * A plug-in is a shared object libkolo_<kind>_<name>.so. It exports one symbol, kolo_<kind>_v1: a
 * const struct of that kind. The first member of the struct holds KOLO_PLUGIN_ABI, the size of the
 * struct and the plug-in's name. The loader refuses a plug-in of another ABI, and gives slots
 * beyond `size` their defaults. KOLO_PLUGIN lists the plug-ins to load, as absolute paths separated
 * by colons. Built-ins use the same structs. */
#ifndef KOLO_PLUGIN_H
#define KOLO_PLUGIN_H

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KOLO_PLUGIN_ABI 1u

struct kolo_plugin { /* first member of every plug-in struct */
    uint32_t abi;    /* KOLO_PLUGIN_ABI */
    uint32_t size;   /* sizeof of the whole struct */
    const char *name;
};

/* ---- algorithms ---- */

/* An algorithm is a pure function from a shape to a plan. A plan has lanes of steps for each rank.
 * A step has one of five meanings, and works on chunks of symbolic buffers, never on bytes or
 * pointers. */

enum kolo_coll {
    KOLO_COLL_ALL_REDUCE = 0,
    KOLO_COLL_REDUCE = 1,
    KOLO_COLL_BROADCAST = 2,
    KOLO_COLL_GATHER = 3,
    KOLO_COLL_SCATTER = 4,
    KOLO_COLL_ALL_GATHER = 5,
    KOLO_COLL_REDUCE_SCATTER = 6,
    KOLO_COLL_ALL_TO_ALL = 7,
    KOLO_COLL_BARRIER = 8,
    KOLO_COLLS = 9
};

/* All that a plan may depend on. Every rank has the same shape. */
struct kolo_shape {
    uint32_t size; /* sizeof(struct kolo_shape) */
    enum kolo_coll coll;
    int nranks;
    int root;         /* 0 if the collective has no root */
    const int *order; /* order[i]: the rank at place i of the ring (neighbours are near); NULL: i */
    /* Groups of near ranks, level by level, the nearest first: the ranks of an L3 cache, of a NUMA
     * node, of a package, of a host. Rank r is in group group[l * nranks + r] of level l; a group
     * is named by its smallest rank. A group lies within one group of the next level. Its ranks
     * need not be consecutive, and groups may differ in size. nlevels 0: all ranks are equally
     * near, or nothing is known. */
    int nlevels; /* 0 to KOLO_LEVELS */
    const int *group;
    /* The rings that the planner lays for this machine. Ring k is order[k * nranks + i]; ring 0 is
     * the ring above. 0 or 1: that ring is the only one. A shape with a smaller `size` has no more
     * rings. */
    int nrings;
    /* The trees that the planner lays for this machine, one for each lane. The parent of rank r in
     * tree t is tree[t * nranks + r]; the root's parent is -1. 0: the planner lays no tree. A shape
     * with a smaller `size` has no trees. */
    int ntrees; /* 0 to KOLO_LANES */
    const int *tree;
};
#define KOLO_LEVELS 4

enum kolo_buf { KOLO_IN = 0, KOLO_OUT = 1, KOLO_SCRATCH = 2, KOLO_BUFS = 3 };

/* `count` chunks of a symbolic buffer, from chunk `first` on.
 *
 * Chunks of IN and OUT by collective (b: the number given to kolo_chunks(), n: ranks):
 *   all_reduce IN b OUT b; reduce IN b, OUT b at root; broadcast IN b at root, OUT b;
 *   gather IN 1, OUT n at root; scatter IN n at root, OUT 1; all_gather IN 1 OUT n;
 *   reduce_scatter IN n OUT 1; all_to_all IN n OUT n; barrier none.
 *
 * IN and OUT of a rank may be the same memory (in place, see kolo.h). A plan must be right in both
 * cases. A plan never writes IN. */
struct kolo_slice {
    uint16_t buf; /* enum kolo_buf */
    uint16_t count;
    uint32_t first;
};
static inline struct kolo_slice kolo_slice_make(enum kolo_buf buf, int first, int count)
{
    struct kolo_slice slice;
    slice.buf = (uint16_t)buf;
    slice.count = (uint16_t)count;
    slice.first = (uint32_t)first;
    return slice;
}
static inline struct kolo_slice kolo_in(int chunk)
{
    return kolo_slice_make(KOLO_IN, chunk, 1);
}
static inline struct kolo_slice kolo_out(int chunk)
{
    return kolo_slice_make(KOLO_OUT, chunk, 1);
}
static inline struct kolo_slice kolo_scratch(int chunk)
{
    return kolo_slice_make(KOLO_SCRATCH, chunk, 1);
}

/* How the source is combined with the destination; bits. */
enum kolo_how {
    KOLO_MOVE = 0, /* dst = src */
    KOLO_ADD = 1,  /* dst = dst op src */
    KOLO_LEFT = 2, /* with ADD: dst = src op dst, for expressions in rank order */
    KOLO_LAST = 4  /* with ADD: the reduction is complete here (AVG divides now) */
};

struct kolo_builder;

/* Errors of the builder stick. After an error all calls do nothing, and the plan is refused with
 * the text of the error. */

/* Cut the buffers of all_reduce, reduce and broadcast into `chunks` chunks. The default is 1. */
KOLO_EXPORT
void kolo_chunks(struct kolo_builder *b, int chunks);
/* Give each rank a SCRATCH buffer of `chunks` chunks. The default is 0. */
KOLO_EXPORT
void kolo_scratch_chunks(struct kolo_builder *b, int chunks);
#define KOLO_LANES 16
/* Choose the lane of the steps that follow: 0 to KOLO_LANES-1. Lanes run concurrently. */
KOLO_EXPORT
void kolo_lane(struct kolo_builder *b, int lane);
/* Emit a message: rank `from` sends src, rank `to` receives it into dst; `how` is a set of enum
 * kolo_how. */
KOLO_EXPORT
void kolo_transfer(struct kolo_builder *b, int from, struct kolo_slice src, int to,
                   struct kolo_slice dst, unsigned how);
/* Emit a copy or a reduction inside `rank`; `how` is a set of enum kolo_how. */
KOLO_EXPORT
void kolo_local(struct kolo_builder *b, int rank, struct kolo_slice src, struct kolo_slice dst,
                unsigned how);
/* End a round. In a round each lane of a rank first runs its sends, then its other steps, both in
 * the order in which they were emitted. Each lane runs its rounds one after another. */
KOLO_EXPORT
void kolo_round(struct kolo_builder *b);
/* Make steps wait for another lane. The next steps of `rank` in the current lane wait for all
 * earlier steps of `rank` in `lane`. */
KOLO_EXPORT
void kolo_join(struct kolo_builder *b, int rank, int lane);
/* Refuse the shape, with a sentence that says why. */
KOLO_EXPORT
void kolo_refuse(struct kolo_builder *b, const char *why);

struct kolo_algo {
    struct kolo_plugin base; /* name is "<collective>_<algorithm>", e.g. "allreduce_ring" */
    enum kolo_coll coll;
    const char *source; /* citation */
    /* Whether build() can do this shape (n >= 1, 0 <= root < n are given). NULL: all. */
    bool (*supports)(const struct kolo_shape *shape);
    /* Emit all ranks' steps; pure: no I/O, clock, environment or state. */
    void (*build)(const struct kolo_shape *shape, struct kolo_builder *b);
};

/* ---- transports ---- */

/* A transport joins pairs of ranks. It reports which ranks it reaches; it never chooses.
 *
 * A transport has at least one of two abilities. KOLO_CAP_MAP: a peer's memory can be mapped (map,
 * attach, wake). KOLO_CAP_MESSAGE: messages arrive in order (send, recv, progress).
 *
 * Several threads may call the slots. For the endpoint of one communicator, only one thread is in a
 * slot at a time, except for wake, abort and notify. */

enum {
    KOLO_CAP_HOST = 1,    /* host memory */
    KOLO_CAP_CUDA = 2,    /* GPU memory: once map() has taken it, messages may be in it */
    KOLO_CAP_MAP = 4,     /* attach works: loads, stores and atomics reach the peer's memory */
    KOLO_CAP_MESSAGE = 8, /* send and recv work */
    KOLO_CAP_NOTIFY = 16  /* notify works, and env.on_peer_lost() reports the end of every link */
};

struct kolo_endpoint; /* one rank's end of a transport in one communicator; the transport's own */
struct kolo_link;     /* a connection to one peer; the transport's own */

/* A rank as its transports see it. The ranks exchange this at start. */
struct kolo_peer {
    uint32_t size;
    int rank;
    int pid;
    uint64_t host;       /* equal on one host: boot id and namespaces */
    uint64_t process;    /* equal in one process */
    const void *address; /* the bytes that the rank's address() returned */
    size_t address_len;
};

/* A collective of a rank, as its messages tell it to their receivers. Only the library makes and
 * reads it. */
struct kolo_call_sign {
    uint64_t key, count;
    uint64_t key_before, count_before; /* of the call before it; both 0: not known */
    uint32_t number;                   /* of the call; 0: no call is told */
    uint32_t chain;                    /* hash of this call and all before it; 0: not known */
};

/* What the library gives a transport. */
struct kolo_env {
    uint32_t size;
    int rank, nranks;
    uint64_t comm; /* equal on all ranks of the communicator, differs between communicators */
    const struct kolo_peer *self;
    /* Log a line in the library's form at INFO. */
    void (*log)(const char *text);
    /* Keep `text` for kolo_error_text(), and return `status`. */
    kolo_status (*fail)(kolo_status status, const char *text);
    /* Nonzero, a status, once the communicator is aborted. Every wait must poll it. */
    const int *aborted;
    int nhosts;     /* hosts that the ranks are on; 0: one host */
    int timeout_ms; /* longest wait without progress; 0: not known */
    /* 32 bytes that only the ranks of this communicator know; NULL: none. */
    const unsigned char *secret;
    /* A numeric address that the hosts of all ranks reach; NULL: none is known. A transport listens
     * on the interface that has the route to it. */
    const char *route_hint;
    /* Report what became of `rank`: a description, and an errno. 0, ECONNRESET, EPIPE: its process
     * has ended. ECONNREFUSED: it has ended, or left. ESHUTDOWN: it left in order. ENOLINK: the
     * connection is lost, though the rank lives. EBADMSG: it lives, and sent an invalid message.
     * Any other: it cannot be reached any more. The transport calls it from a slot. It may not call
     * into the transport. May be NULL. */
    void (*on_peer_lost)(void *owner, int rank, const char *what, int error);
    /* The reason that abort() sends to the peers. Called like on_peer_lost(). */
    int32_t (*failure_reason)(void *owner);
    /* `rank` has ended the communicator, and sent this reason. Called like on_peer_lost(). */
    void (*on_peer_failed)(void *owner, int rank, int32_t reason);
    void *owner; /* of the callbacks */
    /* `rank` gave `word` to its notify(). Called like on_peer_lost(), but may call notify(). */
    void (*on_notify)(void *owner, int rank, uint64_t word);
    /* Get a dma-buf that holds [at, at + len) of this rank's GPU, from *offset on. The caller
     * closes *fd. Called by map(). UNSUPPORTED: the rank has no GPU, or this is not its memory. May
     * be NULL. */
    kolo_status (*dma_buf)(void *owner, const void *at, size_t len, int *fd, uint64_t *offset);
    /* Copy bytes to memory of this rank's GPU, or from it. The copy is complete on return. Called
     * like on_peer_lost(). */
    kolo_status (*copy)(void *owner, void *to, const void *from, size_t len, bool to_gpu);
    /* A slot, for example attach(), has waited for `rank` for `waited_us`. The transport calls
     * on_wait() every 20 ms or more often, and once with a negative number when the wait is over. A
     * status below 0 ends the wait; the slot returns it. May be NULL. */
    kolo_status (*on_wait)(void *owner, int rank, double waited_us);
    /* `rank` has connected to this rank, which has no link to it yet. A call of connect() follows
     * soon. Called like on_peer_lost(). May be NULL. */
    void (*on_contact)(void *owner, int rank);
    /* This rank's last call, which notify() sends beside the word. Called like on_peer_lost(). May
     * be NULL. */
    void (*last_call)(void *owner, struct kolo_call_sign *out);
    /* `rank` is in this call: a message of the call came before its receive was posted, or a
     * notify() told the call. Called like on_peer_lost(). May be NULL. */
    void (*on_call)(void *owner, int rank, const struct kolo_call_sign *call);
    /* The text of the failure for which failure_reason() has the number. abort() sends the text
     * before the number. It has at most KOLO_REASON_TEXT bytes, with its final 0. Called like
     * on_peer_lost(). May be NULL. */
    void (*failure_text)(void *owner, char *out, size_t room);
    /* The text of the failure that `rank` tells. on_peer_failed() follows. May be NULL. */
    void (*on_failure_text)(void *owner, int rank, const char *text);
};
enum { KOLO_REASON_TEXT = 400 };

struct kolo_reach { /* probe() fills it */
    uint32_t size;
    uint64_t caps;        /* KOLO_CAP_*; 0: the transport does not reach this peer */
    double latency_us;    /* one way; see message_us */
    double bandwidth_gbs; /* 1e9 bytes a second, one way */
    int score;            /* higher is preferred among transports that reach a peer */
    const char *via;      /* for the log: "SHM/direct", "NET/Socket/0" */
    /* Names for the log if there are several ways at once: channel c has vias[c % nvias]. nvias 0:
     * there is one way. */
    const char *const *vias;
    int nvias;
    /* A message of so many bytes or more is not sent before its receive is posted. 0: no message
     * waits. */
    size_t rendezvous_bytes;
    /* A core copies messages at so many 1e9 bytes a second, at either end. 0: no core does. */
    double core_gbs;
    /* A core's time for a message, at either end, beside latency_us. 0: a quarter of latency_us, which
     * has it. */
    double message_us;
};

#define KOLO_HANDLE_BYTES 64
struct kolo_mem { /* memory that peers may attach */
    void *ptr;
    size_t len;
    unsigned char handle[KOLO_HANDLE_BYTES]; /* names it to a peer; holds no pointer */
    void *own;                               /* the transport's */
};

struct kolo_bytes { /* `count` runs of `bytes`, `stride` bytes apart */
    void *at;
    size_t bytes, count, stride;
};

/* Channels of a link: kolo_req.channel is smaller. */
#define KOLO_CHANNELS 24

/* One message in flight. The caller owns it while status is not INPROGRESS. */
struct kolo_req {
    uint32_t channel;   /* messages match in order per (link, channel); equal sizes at both ends */
    kolo_status status; /* KOLO_INPROGRESS until the message is complete or has failed */
    size_t bytes;       /* set by send/recv */
    size_t moved;       /* bytes so far; the transport's */
    struct kolo_bytes data;
    struct kolo_req *next; /* the transport's */
    void *own;             /* the transport's */
    /* recv. 1: nobody else uses the buffer until the request ends, so the transport may store
     * anything there. 0: the buffer keeps its bytes until the message comes, because they may still
     * be sent from there. */
    uint32_t exclusive;
    /* send: 2 if the bytes are bfloat16, 4 if float32, else 0. A transport may use it to send them in
     * fewer bytes. */
    uint32_t float_bytes;
    /* The call that the message belongs to. A transport may send it with the message. Then it
     * stores the sender's call in the request of a receive before the request ends. If a send ends
     * with MISMATCH, it stores the receiver's call in the request of the send before that. */
    struct kolo_call_sign call;
};

/* What threads of a rank sleep on while they wait for messages, in memory that its peers map. A
 * thread adds itself to `sleepers`, runs a membarrier, makes progress once more, and sleeps on the
 * futex word `rings` unless that has changed. */
struct kolo_doorbell {
    uint32_t rings;
    uint32_t sleepers;
};

struct kolo_transport {
    struct kolo_plugin base;
    uint64_t caps;
    kolo_status (*open)(const struct kolo_env *env, struct kolo_endpoint **out);
    void (*close)(struct kolo_endpoint *endpoint);
    kolo_status (*probe)(struct kolo_endpoint *endpoint, const struct kolo_peer *peer,
                         struct kolo_reach *out);
    /* This rank's address for its peers. *len is the size of buf on entry, and the length of the
     * address on return (at most 256). */
    kolo_status (*address)(struct kolo_endpoint *endpoint, void *buf, size_t *len);
    kolo_status (*connect)(struct kolo_endpoint *endpoint, const struct kolo_peer *peer,
                           struct kolo_link **out);
    void (*disconnect)(struct kolo_link *link);
    /* ptr NULL: allocate len zeroed bytes that peers may attach. Otherwise register [ptr, ptr+len);
     * with KOLO_CAP_CUDA that is GPU memory, which env.dma_buf() exports. */
    kolo_status (*map)(struct kolo_endpoint *endpoint, void *ptr, size_t len, struct kolo_mem *out);
    void (*unmap)(struct kolo_endpoint *endpoint, struct kolo_mem *mem);
    /* Start a message. The transport borrows the bytes while req->status is INPROGRESS. */
    kolo_status (*send)(struct kolo_link *link, const struct kolo_bytes *src, struct kolo_req *req);
    kolo_status (*recv)(struct kolo_link *link, const struct kolo_bytes *dst, struct kolo_req *req);
    /* Advance messages. Returns how many moved (> 0), 0 if none moved, or a status (< 0). Never
     * blocks. */
    int (*progress)(struct kolo_endpoint *endpoint, int budget);
    void (*abort)(struct kolo_link *link, kolo_status why);
    /* Map the memory that the peer's map() described by `handle`: *out is its address in this
     * process, *len its length. It stays mapped until disconnect. */
    kolo_status (*attach)(struct kolo_link *link, const void *handle, void **out, size_t *len);
    /* Wake the peer's threads that sleep on `word`, a futex word in attached memory. */
    void (*wake)(struct kolo_link *link, uint32_t *word);
    /* A descriptor that is readable when progress() has work. It is asked for before each sleep. -1:
     * the caller must poll, at least once more. */
    int (*wait_fd)(struct kolo_endpoint *endpoint);
    /* Send the peer a word (not 0) at the next progress(), independently of all messages. A new
     * word replaces a word that has not gone yet. Any thread may call it at any time. */
    void (*notify)(struct kolo_link *link, uint64_t word);
    /* The endpoint's bell, which peers ring when progress() has work. It stays where it is until
     * close(). NULL: nobody rings, so the caller must poll. */
    struct kolo_doorbell *(*bell)(struct kolo_endpoint *endpoint);
    /* Ring the bells of the peers for which send(), recv() and progress() have moved something since
     * the last call, and that have sleepers. */
    void (*ring)(struct kolo_endpoint *endpoint);
};

/* ---- tuners ---- */

/* A tuner is asked after the user's rules and before the measured table. It names one of the
 * candidates, or has no opinion. */

struct kolo_query {
    uint32_t size;
    enum kolo_coll coll;
    int nranks, nhosts;
    size_t bytes; /* per rank: count * type of all_reduce, reduce, broadcast; else of one block */
    enum kolo_type type;
    int ncandidates;
    const char *const *candidate; /* names of the algorithms that can run here */
    const double *predicted_us;   /* by the built-in model */
};
struct kolo_choice {
    uint32_t size;
    int index; /* into candidate, or -1: no opinion */
};
struct kolo_tuner {
    struct kolo_plugin base;
    kolo_status (*open)(const struct kolo_env *env, void **out);
    void (*close)(void *self);
    /* Pure: all ranks must return the same answer. */
    kolo_status (*choose)(const void *self, const struct kolo_query *query,
                          struct kolo_choice *out);
};

#ifdef __cplusplus
}
#endif
#endif
