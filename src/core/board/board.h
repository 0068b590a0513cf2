// SPDX-License-Identifier: Apache-2.0
/* The board of a communicator: what its members on one host tell each other beside the data.
 *
 * One segment of shared memory, made by the lowest of them and mapped by all: who is here and who
 * has left, which calls each has made and when, for whom it waits, and what ended the communicator.
 * It lives as long as one of them, so what a dead rank last said can still be read, also by `kolo
 * ps`. A rank without peers to share it with writes to a slot of its own. */
#ifndef KOLO_CORE_BOARD_BOARD_H
#define KOLO_CORE_BOARD_BOARD_H

#include "core/board/ticks.h"
#include "exec/cpu/stores.h"
#include "plan/plan.h"
#include "tune/prices.h"
#include "util/util.h"

#include <stdatomic.h>

enum { KOLO_RECORDS = 256, KOLO_BOARD_VERSION = 11, KOLO_VERDICT_TEXT = 384 };
enum { KOLO_SLOT_MESSAGES = 8 };
#define KOLO_SLOT_BLOCKS UINT32_C(0x80000000)
#define KOLO_BOARD_MAGIC UINT64_C(0x6472616f626f6c6b) /* "kloboard" */

/* A v-form. If it has no root, a hash of its counts is in place of the root. */
enum { KOLO_KEY_V = 0x80 };

/* A collective of a rank. Calls are numbered from 1; number n is at place n % KOLO_RECORDS until
 * n + KOLO_RECORDS comes. It is over where `end` is not before `start`. */
struct kolo_record {
    _Atomic uint64_t key; /* kolo_call_key() */
    _Atomic uint64_t count;
    struct kolo_ticks start, end;
};

enum kolo_presence { KOLO_PRESENCE_ABSENT, KOLO_PRESENCE_HERE, KOLO_PRESENCE_LEFT };
/* What others have seen of a rank's process. CLOSED: it lives, but has closed its descriptors. */
enum kolo_fate { KOLO_FATE_NONE, KOLO_FATE_DIED, KOLO_FATE_CLOSED };

/* A rank's place on the board, without its records: so who looks at all ranks reads few pages. */
struct kolo_board_slot {
    _Alignas(128) _Atomic uint64_t begun; /* collectives so far */
    uint64_t records_at;                  /* the bytes from here to record[KOLO_RECORDS] */
    _Atomic int32_t waits_for;      /* a collective: rank + 1, once that takes long; 0: nobody */
    _Atomic int32_t waits_for_last; /* 1 + the end of the chain; 0: none; -1: not known */
    _Atomic uint64_t since_us;      /* kolo_now_us() when it began to wait */
    _Atomic uint64_t stuck;  /* the number of the call in which all threads of its process wait */
    _Atomic uint32_t beats;  /* grows while its process runs */
    _Atomic uint32_t ran_ms; /* kolo_now_us() / 1000 when it last grew */
    _Atomic int32_t rank, pid;
    _Atomic int32_t device, timeout_ms;
    /* From here on, a cache line of what others look for. */
    _Atomic uint32_t presence; /* enum kolo_presence */
    _Atomic uint32_t fate;     /* enum kolo_fate: written by whoever watches its process */
    _Atomic uint32_t left_out; /* 1: the others have agreed to go on without it */
    _Atomic uint32_t is_ready; /* 1: the rank has come up, and waits for the others alone */
    /* The last agreement that the rank has come to, and the word that it brought. See agreement.h. */
    _Atomic uint64_t came_to, brought;
    _Atomic uint64_t ticks, ticks_us; /* kolo_ticks_now() and kolo_now_us() of one moment */
    _Atomic uint32_t gathers;         /* the last time that it has come for: gathering.h */
    _Atomic uint64_t pid_space;       /* the PID namespace that `pid` belongs to; 0: not known */
    /* Sends and receives that last. The lower half is 2 + the peer's rank (1: any rank), and
     * KOLO_SLOT_BLOCKS if a thread waits. The upper half is the time of the rank's last look
     * (kolo_now_us() / 1000). A peer is at place rank % KOLO_SLOT_MESSAGES. */
    _Atomic uint64_t message[KOLO_SLOT_MESSAGES];
};

struct kolo_lone_slot { /* on no board */
    struct kolo_board_slot it;
    struct kolo_record record[KOLO_RECORDS];
};

enum kolo_end { KOLO_END_DIED, KOLO_END_LEFT, KOLO_END_GONE /* one of the two */ };

/* What ended the communicator first; written once. */
struct kolo_verdict {
    _Atomic uint32_t state; /* 0 none, 1 being written, 2 there */
    int32_t status;
    int32_t rank;    /* whom it is about, -1: not known */
    int32_t seen_by; /* who found it */
    int32_t end;     /* enum kolo_end: of that rank, where status is PEER */
    uint64_t call;   /* that rank's number of the call, 0: none */
    char text[KOLO_VERDICT_TEXT];
};

struct kolo_board {
    uint64_t magic;
    uint32_t version, nslots;
    int32_t nranks;
    uint64_t comm; /* its id */
    char name[32];
    struct kolo_verdict verdict;
    struct kolo_store_choices stores;
    struct kolo_prices prices;
    _Atomic uint32_t fates;    /* how many slots have one; grows after it */
    _Atomic uint32_t leaves;   /* how many members have left; grows after their presence */
    _Atomic uint32_t gathered; /* the last time for which all have come: gathering.h */
    _Atomic uint32_t standing; /* whether it came up, the same for all members: agreement.h */
    _Atomic uint64_t decided;  /* the last agreement, and whose proposal it took */
    struct kolo_board_slot slot[];
};

/* Of what a member proposes to an agreement; it has a byte for each slot. */
static inline size_t kolo_board_proposal_bytes(int nslots)
{
    return 2 * sizeof(uint64_t) + ((size_t)nslots + 7) / 8 * 8;
}
/* The records lie behind the slots, and the proposals behind the records. */
static inline size_t kolo_board_records_at(int nslots, int slot)
{
    return sizeof(struct kolo_board) + (size_t)nslots * sizeof(struct kolo_board_slot) +
           (size_t)slot * KOLO_RECORDS * sizeof(struct kolo_record);
}
static inline size_t kolo_board_proposal_at(int nslots, int slot)
{
    return kolo_board_records_at(nslots, nslots) + (size_t)slot * kolo_board_proposal_bytes(nslots);
}
static inline size_t kolo_board_bytes(int nslots)
{
    return kolo_board_proposal_at(nslots, nslots);
}

/* The place of call `number`. */
static inline struct kolo_record *kolo_record_at(const struct kolo_board_slot *slot,
                                                 uint64_t number)
{
    return (struct kolo_record *)((char *)slot + slot->records_at) + number % KOLO_RECORDS;
}

/* The next call is this. Its place, until KOLO_RECORDS calls later. */
static inline struct kolo_record *kolo_record_begin(struct kolo_board_slot *slot, uint64_t key,
                                                    uint64_t count)
{
    const uint64_t n = atomic_load_explicit(&slot->begun, memory_order_relaxed) + 1;
    struct kolo_record *r = kolo_record_at(slot, n);
    atomic_store_explicit(&r->key, key, memory_order_relaxed);
    atomic_store_explicit(&r->count, count, memory_order_relaxed);
    kolo_ticks_note(&r->start);
    atomic_store_explicit(&slot->begun, n, memory_order_release);
    return r;
}
static inline void kolo_record_end(struct kolo_record *r)
{
    kolo_ticks_note(&r->end);
}

/* A record, as it was read. */
struct kolo_recorded {
    uint64_t number, key, count;
    uint64_t start, end; /* ticks */
    bool over;
};

/* What ticks of a rank are in time, as of now. */
struct kolo_rate {
    uint64_t from;
    double from_us, tick_us;
};
struct kolo_rate kolo_board_slot_rate(const struct kolo_board_slot *slot);
/* kolo_now_us() at that moment. */
static inline double kolo_ticks_us(const struct kolo_rate *rate, uint64_t ticks)
{
    return rate->from_us + (double)(int64_t)(ticks - rate->from) * rate->tick_us;
}

/* What call `number` of that rank was; false if it is not known (any more). */
bool kolo_record_find(const struct kolo_board_slot *slot, uint64_t number,
                      struct kolo_recorded *out);
/* A call of that rank as messages tell it, with the call before it, if that is still known. */
struct kolo_call_sign kolo_record_sign(const struct kolo_board_slot *slot, uint64_t number,
                                       uint64_t key, uint64_t count);
/* Whether two calls with the same number on two ranks can be one collective. */
bool kolo_record_agree(const struct kolo_recorded *a, const struct kolo_recorded *b);
/* A call that two ranks number alike and that is not the same on both: its number, else 0. */
uint64_t kolo_record_differ(const struct kolo_board_slot *a, const struct kolo_board_slot *b);
/* "all_reduce of 1024 float32, sum"; `room` of 96 always suffices. */
void kolo_record_text(const struct kolo_recorded *call, char *out, size_t room);
static inline enum kolo_coll kolo_record_coll(const struct kolo_recorded *call)
{
    return (enum kolo_coll)(call->key & 0x7f);
}
static inline enum kolo_type kolo_record_type(const struct kolo_recorded *call)
{
    return (enum kolo_type)(call->key >> 8 & 0xff);
}
static inline kolo_op kolo_record_op(const struct kolo_recorded *call)
{
    return (kolo_op)(call->key >> 16 & 0xff);
}
static inline enum kolo_codec kolo_record_codec(const struct kolo_recorded *call)
{
    return (enum kolo_codec)(call->key >> 24 & 0xff);
}
static inline int kolo_record_root(const struct kolo_recorded *call)
{
    return (int)(call->key >> 32);
}

/* Note for all members what has become of the process of a slot. Only the first note counts. */
void kolo_fate_note(struct kolo_board *board, struct kolo_board_slot *slot, enum kolo_fate fate);

/* Write the verdict, unless there is one. */
bool kolo_verdict_write(struct kolo_board *board, const struct kolo_verdict *verdict);
bool kolo_verdict_read(const struct kolo_board *board, struct kolo_verdict *out);

#endif
