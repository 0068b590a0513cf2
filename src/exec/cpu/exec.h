// SPDX-License-Identifier: Apache-2.0
/* The host executor: binds a lowered program to a call's bytes and runs it, step by step. */
#ifndef KOLO_EXEC_CPU_EXEC_H
#define KOLO_EXEC_CPU_EXEC_H

#include "exec/lower/extents.h"
#include "exec/lower/program.h"
#include "exec/reduce/reduce.h"

#include <stdatomic.h>

/* ---- memory that peers map; one writer a field but for doorbell, asleep and abort ---- */

struct kolo_line { /* a signal */
    _Alignas(KOLO_LINE_BYTES) char data[KOLO_INLINE_BYTES];
    uint64_t signature;
    uint32_t done;          /* tiles its writer had finished when it signalled */
    _Atomic uint32_t epoch; /* 1 + epoch of the newest tile that signalled */
};
static_assert(sizeof(struct kolo_line) == KOLO_LINE_BYTES, "one line a signal");

struct kolo_entry {                                 /* what a rank brings to a call */
    _Alignas(KOLO_LINE_BYTES) unsigned char in[32]; /* handles, where shared */
    unsigned char out[32];
    uint64_t in_at, out_at;         /* addresses in the rank's process */
    uint32_t in_shared, out_shared; /* the handles are valid */
    uint64_t buffers;               /* a hash of the above: equal buffers, equal hash */
    uint64_t signature;
    _Atomic uint32_t number; /* 1 + how many calls with entries were before */
};
static_assert(sizeof(struct kolo_entry) == KOLO_LINE_BYTES, "one line an entry");

struct kolo_head {
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t doorbell; /* what they sleep on */
    _Atomic uint32_t asleep; /* how many sleep until this rank stores something */
    _Atomic int32_t abort;   /* a status once aborted */
    _Atomic uint32_t shares; /* 1 + tiles met when entries begin, or 0 */
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t done; /* tiles finished */
    _Alignas(KOLO_LINE_BYTES) _Atomic uint32_t slots_ready;
    unsigned char slots[KOLO_HANDLE_BYTES]; /* handle of the outbox slots */
};

struct kolo_region {
    struct kolo_head head;
    struct kolo_entry entry[KOLO_ENTRY_LINES];
    struct kolo_line line[]; /* [phase][KOLO_DEPTH] */
};

static inline size_t kolo_region_bytes(int phases)
{
    return sizeof(struct kolo_region) + (size_t)phases * KOLO_DEPTH * sizeof(struct kolo_line);
}

/* Short slots lie apart, so that they do not compete for the same sets of a cache. */
enum { KOLO_SLOT_SKEW = 128 };
static inline size_t kolo_outbox_bytes(size_t slot_bytes, size_t short_slot_bytes)
{
    return KOLO_LONG_DEPTH * slot_bytes + KOLO_DEPTH * (short_slot_bytes + KOLO_SLOT_SKEW);
}

/* ---- what an executor knows of its communicator ---- */

struct kolo_readers { /* who read what a tile wrote */
    const int *list;
    int count;
};

struct kolo_wires {
    int me, nranks;
    struct kolo_region **region; /* [nranks], mapped here; NULL where not reached */
    char **slots;                /* [nranks] outbox slots of each rank, mapped here, or NULL */
    size_t slot_bytes;           /* of a long slot: the most that a tile may take */
    size_t short_slot_bytes;     /* tiles of no more go into short slots */
    int phases;                  /* lines a region has */
    const void **peer_in;        /* [nranks] of the running call */
    void **peer_out;
    struct kolo_link **link;                 /* [nranks] for messages */
    const struct kolo_transport **transport; /* [nranks] */
    struct kolo_endpoint **device; /* [nranks], of that transport; NULL without messages */
    uint32_t epoch;                /* tiles run so far */
    uint32_t met;                  /* those of them in which no messages went */
    uint32_t entries;              /* calls with entry lines so far */
    uint32_t *seen_done;           /* [nranks] tiles each rank is known to have finished */
    uint32_t all_done;             /* tiles that all ranks are known to have finished */
    struct kolo_readers readers[KOLO_DEPTH]; /* of the tile of this parity */
    struct {
        struct kolo_readers readers;
        uint32_t epoch;
    } long_slot[KOLO_LONG_DEPTH]; /* the last tile that this rank put into it */
    size_t cache_bytes;           /* this rank's part of its L3; 0: unknown */
    bool crowded;                 /* more ranks than cores: yield early */
    bool core_is_shared;          /* the last wait that had to yield ended then */
    bool membarrier;              /* the asymmetric fence is to be had */
    double timeout_us;
    _Atomic int *aborted; /* the communicator's error, or 0 */
    /* Addresses of rank q's buffers of this call, from its entry line. */
    kolo_status (*resolve)(struct kolo_wires *w, int q, const struct kolo_entry *entry);
    /* Asked about every 100 ms by a wait for rank `peer` (-1: not known) that lasts; an error ends
     * it. Past timeout_us it must give one. NULL: nobody. */
    kolo_status (*stalled)(struct kolo_wires *w, int peer, double waited_us);
    _Atomic int32_t *waits_for; /* where this rank says for whom it waits: rank + 1; or NULL */
    int stuck_at;               /* rank of the last wait that was not met, -1: not known */
    _Atomic int blamed;         /* rank that the last error is about, -1: none */
    double asked_us;            /* when `stalled` was last asked by a wait for several things */
    void *owner;
    void (*jitter)(void *arg); /* tests: called before every move and signal */
    void *jitter_arg;
};

/* ---- binding: a program and the bytes of a call ---- */

struct kolo_bound_at {
    uintptr_t at; /* address = at + shift[kind] (+ base of `rank` for user memory of peers) */
    uint32_t kind, rank;
};
enum kolo_past { KOLO_PAST_OUT_OF_PLACE = 1, KOLO_PAST = 2 };
struct kolo_bound_op {
    uint8_t code, last;
    uint8_t odd;  /* chunk by chunk, lengths computed */
    uint8_t past; /* user memory is stored past the caches: enum kolo_past */
    uint16_t nsrc, ndst;
    uint32_t first, len, last_len; /* bytes of a full tile and of the last one */
    int32_t peer;
    uint32_t index, uop;
};

/* A call of up to 48 bytes: write my line, read all lines, reduce them into OUT. */
struct kolo_exchange {
    struct kolo_line *mine; /* these lines are of parity 0 */
    uintptr_t in_off, out_off;
    uint32_t bytes, count; /* count: elements */
    unsigned npeers, nsrc;
    const int *readers;           /* of the program: the peers */
    struct kolo_head *head;       /* mine */
    const void **src[KOLO_DEPTH]; /* [nsrc] by parity, in order: lines, and my IN */
    unsigned own;                 /* which is my IN ... */
    uintptr_t own_off;            /* ... and where in it */
    struct kolo_exchange_peer {
        struct kolo_line *line;
        int rank;
    } peer[];
};

struct kolo_bound {
    const struct kolo_prog *prog;
    struct kolo_bound_op *op;
    struct kolo_bound_at *at;
    size_t piece; /* bytes of a chunk that one tile takes */
    uint32_t tiles;
    bool inlined;                   /* the outbox is in the lines */
    bool once;                      /* one tile, and the copies that the executor has */
    bool in_long;                   /* its tiles go into long slots */
    uint32_t slot_mask;             /* tile e has slot e & slot_mask ... */
    size_t slot_stride;             /* ... so many bytes apart */
    struct kolo_exchange *exchange; /* not NULL: all of it is that */
    struct kolo_extents extents;    /* its arrays are owned */
    size_t *arrays;
    char *private_mem;    /* scratch and stage, KOLO_TILE_COPIES times where there are tiles ... */
    struct kolo_req *req; /* ... and so are the requests of messages: no two calls run at once */
    size_t private_bytes;
    size_t stage_off;
};

/* Copies the arrays of `extents`. Errors: SYSTEM. */
kolo_status kolo_bind(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_wires *wires, struct kolo_bound **out);
void kolo_bound_destroy(struct kolo_bound *bound);
/* Bytes of the op's j-th chunk: by user memory it names, else by the plan step it came from. */
size_t kolo_uop_bytes(const struct kolo_prog *prog, const struct kolo_extents *extents,
                      const struct kolo_uop *op, uint32_t j);
/* Offset and length of piece `tile` of the op's `j`-th chunk of operand `i`; for tests and odd ops.
 */
size_t kolo_bound_piece_bytes(const struct kolo_bound *bound, const struct kolo_bound_op *op,
                              uint32_t j, uint32_t tile);

/* ---- execution ---- */

struct kolo_lane_state {
    uint32_t iter, slot, pc; /* pipeline iteration, stage counted from the last, op */
    uint32_t tile;           /* tiles finished */
    bool begun;              /* the current stage's tile has its credit */
    bool finished;
};

struct kolo_exec {
    struct kolo_wires *wires;
    const struct kolo_bound *bound;
    const char *in;
    char *out;
    kolo_reduce_fn *reduce; /* NULL for movement */
    unsigned divisor;       /* AVG: ranks; else 0 */
    size_t elem;
    uint64_t signature; /* of the call: equal on all ranks, or they called different things */
    bool block;         /* wait inside; else return INPROGRESS */
    bool entered;
    bool moved;     /* the last step moved messages */
    uint32_t begun; /* of several lanes: tiles that one of them has begun */
    struct kolo_lane_state lane[KOLO_LANES];
};

/* Publish this rank's entry line (once a call). In a call with entries every rank waits for all
 * lines before it goes on, and counts wires->entries up at its end. So nobody is more than one such
 * call ahead, and a line may be written again two of them later: no credit is needed. */
void kolo_entry_publish(struct kolo_wires *w, const struct kolo_entry *mine);
/* Rank q's entry line of this call: OK when it is there. */
kolo_status kolo_entry_wait(struct kolo_wires *w, int q, bool block);

/* Start `x` (wires, bound, in, out, reduce, divisor, elem, block set by the caller). */
void kolo_exec_start(struct kolo_exec *x);
/* The first part of the first step: resolve the entry lines it needs, once they are there. */
kolo_status kolo_exec_enter(struct kolo_exec *x);
/* Advance every lane as far as it goes. OK: done, the communicator's epoch has moved on.
 * INPROGRESS (never with x->block): call again. Errors end the communicator. */
kolo_status kolo_exec_step(struct kolo_exec *x);
/* Whether kolo_exec_now() can run it: one lane, no messages. */
bool kolo_exec_is_plain(const struct kolo_prog *prog);
/* Run all of a plain program in one go, blocking, the entry lines it needs being resolved already.
 * Of `x` only what kolo_exec_start()'s caller sets is read. */
kolo_status kolo_exec_now(struct kolo_exec *x);

/* A whole call that is an exchange (bound->exchange), blocking. */
struct kolo_exchange_how {
    kolo_reduce_fn *reduce;
    unsigned divisor;
    uint64_t signature;
};
kolo_status kolo_exchange(struct kolo_wires *w, const struct kolo_exchange *e, const void *in,
                          void *out, const struct kolo_exchange_how *how);

/* ---- waiting ---- */

/* Wait until *word >= want (as a distance), which rank `peer` writes: spin, yield, sleep on its
 * doorbell. */
kolo_status kolo_wait(struct kolo_wires *w, _Atomic uint32_t *word, uint32_t want, int peer);
/* One pause of a loop that polls several things: spin, then yield, then sleep; *spins counts. */
kolo_status kolo_pause(struct kolo_wires *w, unsigned *spins, double *deadline);
/* The same where messages are waited for, whose transports have descriptors that tell of news: it
 * sleeps for these, and unless they are `alone` also for the lines of shared memory, which tell
 * nothing. */
enum { KOLO_NEWS_MAX = 8 };
struct kolo_news {
    int fd[KOLO_NEWS_MAX];
    int count;
    bool alone;
};
kolo_status kolo_pause_for_news(struct kolo_wires *w, unsigned *spins, double *deadline,
                                const struct kolo_news *news);
/* The loop is over. */
void kolo_paused(struct kolo_wires *w);
/* Wake all who sleep on this doorbell. */
void kolo_ring(struct kolo_head *head);
/* Wake those who sleep until this rank stores something. Call after that store. */
static inline void kolo_wake(struct kolo_head *own)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (KOLO_UNLIKELY(atomic_load_explicit(&own->asleep, memory_order_relaxed) != 0)) {
        kolo_ring(own);
    }
}
/* Make membarrier available to this process; false where the system denies it. */
bool kolo_membarrier_register(void);

static inline bool kolo_reached(const _Atomic uint32_t *word, uint32_t want)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - want) >= 0;
}

#endif
