// SPDX-License-Identifier: Apache-2.0
/* kolo plug-ins: how to add an algorithm, a transport or a tuner, in the tree or outside it.
 *
 * A plug-in is a shared object libkolo_<kind>_<name>.so that exports one symbol, kolo_<kind>_v1, a
 * const struct of that kind. Its first member carries KOLO_PLUGIN_ABI, its size and its name; the
 * loader refuses another ABI by number, and fills slots beyond `size` with defaults. KOLO_PLUGIN
 * lists plug-ins to load (absolute paths, separated by colons). Built-ins use the same structs.
 */
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

/* An algorithm is a pure function from a shape to a plan: for each rank, lanes of steps with five
 * meanings on chunks of symbolic buffers, never bytes or pointers. */

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

/* What a plan may depend on; equal on every rank. */
struct kolo_shape {
    uint32_t size; /* sizeof(struct kolo_shape) */
    enum kolo_coll coll;
    int nranks;
    int root;         /* 0 where the collective has none */
    const int *order; /* order[i]: the rank at place i of the ring (neighbours are near); NULL: i */
    /* Which ranks are near each other, level by level, the nearest first (those of an L3 cache, of
     * a NUMA node, a package, a host): rank r is in group group[l * nranks + r] of level l, and a
     * group is named by its smallest rank. A group lies within one of the next level; its ranks
     * need not follow one another, and groups may differ in size. nlevels 0: all are equally near,
     * or nothing is known. */
    int nlevels; /* 0 to KOLO_LEVELS */
    const int *group;
    /* Rings that the planner lays for this machine: ring k is order[k * nranks + i], the first the
     * one above. 0 or 1: there is that one. A shape of a smaller `size` has none. */
    int nrings;
    /* Trees that the planner lays for it, one a lane: the parent of rank r in tree t is
     * tree[t * nranks + r], -1 the root's. 0: none is laid. A shape of a smaller `size` has none.
     */
    int ntrees; /* 0 to KOLO_LANES */
    const int *tree;
};
#define KOLO_LEVELS 4

enum kolo_buf { KOLO_IN = 0, KOLO_OUT = 1, KOLO_SCRATCH = 2, KOLO_BUFS = 3 };

/* `count` chunks of a symbolic buffer, from chunk `first`.
 * Chunks of IN and OUT by collective (b: as the algorithm said by kolo_chunks(), n: ranks):
 *   all_reduce IN b OUT b; reduce IN b, OUT b at root; broadcast IN b at root, OUT b;
 *   gather IN 1, OUT n at root; scatter IN n at root, OUT 1; all_gather IN 1 OUT n;
 *   reduce_scatter IN n OUT 1; all_to_all IN n OUT n; barrier none.
 * A rank's IN and OUT may be the same memory (in place, see kolo.h); a plan must be right both
 * ways. IN is never written. */
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

/* How arriving data meets the destination; bits. */
enum kolo_how {
    KOLO_MOVE = 0, /* replace it */
    KOLO_ADD = 1,  /* dst = dst op src */
    KOLO_LEFT = 2, /* with ADD: dst = src op dst, for expressions in rank order */
    KOLO_LAST = 4  /* with ADD: the reduction is complete here (AVG divides now) */
};

struct kolo_builder;

/* The builder's errors stick: after one, calls do nothing, and the plan is refused with its text.
 */

/* Cut flat buffers into so many chunks: those of all_reduce, reduce and broadcast (default 1). */
KOLO_EXPORT
void kolo_chunks(struct kolo_builder *b, int chunks);
/* Give each rank a SCRATCH buffer of so many chunks (default 0). */
KOLO_EXPORT
void kolo_scratch_chunks(struct kolo_builder *b, int chunks);
#define KOLO_LANES 16
/* Choose the lane of the steps from now on: 0 to KOLO_LANES-1. Lanes run concurrently. */
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
/* End a round. In a round each lane of a rank first does its sends, then the rest, both in the
 * order emitted; rounds follow one another per lane. */
KOLO_EXPORT
void kolo_round(struct kolo_builder *b);
/* Make steps wait for another lane: the next ones of `rank` in the current lane for all its earlier
 * ones in `lane`. */
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

/* A transport joins pairs of ranks. It *reports* what it reaches; it never chooses. Two abilities:
 * KOLO_CAP_MAP a peer's memory can be mapped (map, attach, wake); KOLO_CAP_MESSAGE ordered messages
 * (send, recv, progress). At least one is there. All slots may be called by several threads, but
 * for one communicator's device only one at a time, except wake, abort and say. */

enum {
    KOLO_CAP_HOST = 1,    /* host memory */
    KOLO_CAP_CUDA = 2,    /* device memory: map() takes it, then messages may be of it */
    KOLO_CAP_MAP = 4,     /* attach works: loads, stores and atomics reach the peer's memory */
    KOLO_CAP_MESSAGE = 8, /* send and recv work */
    KOLO_CAP_SAY = 16     /* say works, and gone tells of every link's end */
};

struct kolo_device; /* one rank's end of a transport, in one communicator; the transport's own */
struct kolo_link;   /* to one peer; the transport's own */

/* A rank as its transports see it; exchanged at start. */
struct kolo_peer {
    uint32_t size;
    int rank;
    int pid;
    uint64_t host;       /* equal on one host: boot id and namespaces */
    uint64_t process;    /* equal in one process */
    const void *address; /* what that rank's address() gave */
    size_t address_len;
};

struct kolo_env {
    uint32_t size;
    int rank, nranks;
    uint64_t comm; /* equal on all ranks of the communicator, differs between them */
    const struct kolo_peer *self;
    /* Log a line in the library's form at INFO. */
    void (*log)(const char *text);
    /* Keep text for kolo_error_text(), return `status`. */
    kolo_status (*fail)(kolo_status status, const char *text);
    /* Nonzero once the communicator is aborted; a status. Poll in any wait. */
    const int *aborted;
    int nhosts;     /* that the ranks are on; 0: one */
    int timeout_ms; /* longest wait without progress; 0: not known */
    /* 32 bytes that the ranks of this communicator alone know; NULL: none. */
    const unsigned char *secret;
    /* A numeric address that all ranks' hosts reach; NULL: none is known. */
    const char *toward;
    /* Tell of evidence that `rank` is gone: what was seen, and its errno or 0. Called under what
     * the slots are called under; it may not call into the transport. May be NULL. */
    void (*gone)(void *owner, int rank, const char *what, int error);
    /* The reason for abort(), for the peers to be told; and what a peer told so. As gone(). */
    int32_t (*reason)(void *owner);
    void (*told)(void *owner, int rank, int32_t reason);
    void *owner; /* of gone(), reason(), told() and said() */
    /* What a peer gave to say(). As gone(), but say() may be called. */
    void (*said)(void *owner, int rank, uint64_t word);
    /* A dma-buf that holds [at, at + len) of this rank's GPU, from *offset on; who asked closes
     * *fd. Called by map(). UNSUPPORTED: there is no GPU, or none of its memory. May be NULL. */
    kolo_status (*dma_buf)(void *owner, const void *at, size_t len, int *fd, uint64_t *offset);
    /* Copy bytes to memory of this rank's GPU, or from it; they are there on return. As gone(). */
    kolo_status (*copy)(void *owner, void *to, const void *from, size_t len, bool to_gpu);
};

struct kolo_reach { /* probe() fills it */
    uint32_t size;
    uint64_t caps;        /* KOLO_CAP_*; 0: this peer is not reached */
    double latency_us;    /* one way */
    double bandwidth_gbs; /* 1e9 bytes a second, one way */
    int score;            /* higher is preferred among transports that reach a peer */
    const char *via;      /* for the log: "SHM/direct", "NET/Socket/0" */
    /* Where there are several ways at once: of channel c vias[c % nvias]; nvias 0: there is one. */
    const char *const *vias;
    int nvias;
};

#define KOLO_HANDLE_BYTES 64
struct kolo_mem { /* memory that peers may attach */
    void *ptr;
    size_t len;
    unsigned char handle[KOLO_HANDLE_BYTES]; /* names it to a peer; no pointers of this process */
    void *own;                               /* the transport's */
};

struct kolo_bytes { /* `count` runs of `bytes`, `stride` bytes apart */
    void *at;
    size_t bytes, count, stride;
};

/* Channels of a link: kolo_req.channel is below this. */
#define KOLO_CHANNELS 24

/* One message in flight. The caller owns it until done != 0. */
struct kolo_req {
    uint32_t channel;   /* messages match in order per (link, channel); equal sizes at both ends */
    kolo_status status; /* KOLO_INPROGRESS until it is done */
    size_t bytes;       /* set by send/recv */
    size_t moved;       /* bytes so far; the transport's */
    struct kolo_bytes data;
    struct kolo_req *next; /* the transport's */
    void *own;             /* the transport's */
    uint32_t lent;         /* recv: 1 while nobody else uses these bytes until it is done, so that
                              anything may be stored there; 0: what is there stays until the
                              message comes, for it may still be sent from there */
};

struct kolo_transport {
    struct kolo_plugin base;
    uint64_t caps;
    kolo_status (*open)(const struct kolo_env *env, struct kolo_device **out);
    void (*close)(struct kolo_device *dev);
    kolo_status (*probe)(struct kolo_device *dev, const struct kolo_peer *peer,
                         struct kolo_reach *out);
    /* This rank's address for its peers: *len is the room in, the length out (at most 256). */
    kolo_status (*address)(struct kolo_device *dev, void *buf, size_t *len);
    kolo_status (*connect)(struct kolo_device *dev, const struct kolo_peer *peer,
                           struct kolo_link **out);
    void (*disconnect)(struct kolo_link *link);
    /* ptr NULL: allocate len zeroed bytes that peers may attach. Else register [ptr, ptr+len);
     * with KOLO_CAP_CUDA that is memory of a GPU, which env.dma_buf() gives. */
    kolo_status (*map)(struct kolo_device *dev, void *ptr, size_t len, struct kolo_mem *out);
    void (*unmap)(struct kolo_device *dev, struct kolo_mem *mem);
    /* Start a message; the bytes are borrowed until req->status is not INPROGRESS. */
    kolo_status (*send)(struct kolo_link *link, const struct kolo_bytes *src, struct kolo_req *req);
    kolo_status (*recv)(struct kolo_link *link, const struct kolo_bytes *dst, struct kolo_req *req);
    /* Advance messages; returns how many moved (> 0), 0 if none, < 0 a status. Never blocks. */
    int (*progress)(struct kolo_device *dev, int budget);
    void (*abort)(struct kolo_link *link, kolo_status why);
    /* The address here of the memory that the peer's map() described by `handle`; mapped until
     * disconnect. *len gets its length. */
    kolo_status (*attach)(struct kolo_link *link, const void *handle, void **out, size_t *len);
    /* Wake the peer's threads that sleep on `word` (a futex word in attached memory). */
    void (*wake)(struct kolo_link *link, uint32_t *word);
    /* A descriptor that is readable when progress() has work, or -1: poll. */
    int (*wait_fd)(struct kolo_device *dev);
    /* Tell the peer a word (not 0), beside all messages, at the next progress(); a newer one takes
     * the place of one that has not gone. Any thread, at any time. */
    void (*say)(struct kolo_link *link, uint64_t word);
};

/* ---- tuners ---- */

/* A tuner has the word after the user's rules and before the measured table: it names one of the
 * candidates, or has no opinion. */

struct kolo_query {
    uint32_t size;
    enum kolo_coll coll;
    int nranks, nhosts;
    size_t bytes; /* per rank: all_reduce, reduce, broadcast: count * type; else of one block */
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
    /* Pure: all ranks must answer alike. */
    kolo_status (*choose)(const void *self, const struct kolo_query *query,
                          struct kolo_choice *out);
};

#ifdef __cplusplus
}
#endif
#endif
