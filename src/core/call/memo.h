// SPDX-License-Identifier: Apache-2.0
/* The call cache: a call like an earlier one finds its program here.
 *
 * The key of a memo is the call's numbers: collective, type, operation, codec, root, count. A call with
 * entry lines has its buffers in the key, too. Its memo holds the line that describes them, and the
 * addresses of the peers' buffers. Only the holder of comm->busy reads and writes memos.
 *
 * A memo has two places: its own, where the newest is, and the neighbour of its own, to which a newer
 * one moves it. With one place, two calls that a program makes by turns, and that share it, would both
 * be bound anew each time. */
#ifndef KOLO_CORE_CALL_MEMO_H
#define KOLO_CORE_CALL_MEMO_H

#include "core/call/call.h"

#define KOLO_NOT_SIMPLE UINT64_MAX /* equals no call's `what` */

struct kolo_memo {                    /* bound NULL: empty */
    _Alignas(64) uint64_t simple_key; /* `what` if it can go the fast path; else KOLO_NOT_SIMPLE */
    uint64_t key;
    size_t count;
    const struct kolo_exchange *exchange; /* not NULL: the call is this one exchange */
    struct kolo_exchange_how how;
    size_t in_bytes, out_bytes; /* 0: this rank has no such buffer */
    uintptr_t in_place;         /* recv - send of an allowed in-place call */
    struct kolo_bound *bound;
    struct kolo_cached_bound *cached; /* whose it is */
    size_t elem;
    bool entries;
    bool asks;  /* its size may have entries later */
    bool steps; /* it waits for messages, so it cannot run in one go */
};

struct kolo_peer_buffers {
    uint64_t hash;
    const void *in;
    void *out;
};

struct kolo_shared_memo { /* bound NULL: empty */
    uint64_t key;
    size_t count;
    const void *in;
    void *out;
    unsigned frees; /* kolo_mem_frees() then: after a free, an address may be other memory */
    struct kolo_bound *bound;
    struct kolo_cached_bound *cached;
    struct kolo_entry entry;
    struct kolo_peer_buffers *peer; /* [nranks] */
};

/* The numbers do not overlap if op < KOLO_OPS and type < KOLO_TYPES. Other calls are neither kept
 * nor looked up. */
static inline uint64_t kolo_memo_key(const struct kolo_coll_args *a)
{
    return (uint64_t)(uint32_t)a->root << 32 | (uint64_t)a->codec << 24 | (uint64_t)a->op << 16 |
           (uint64_t)a->type << 8 | (uint64_t)a->coll;
}

static inline size_t kolo_memo_place(uint64_t key, size_t count)
{
    return ((key ^ count) * UINT64_C(0x9E3779B97F4A7C15)) >> 57;
}
static_assert(KOLO_MEMOS == 128, "kolo_memo_place() gives 7 bits");
static inline size_t kolo_memo_neighbour(size_t place)
{
    return place ^ 1;
}

/* Whether a call with the memo's `what` has its count, too, and buffers that kolo_call_check()
 * accepts. */
static inline bool kolo_memo_serves(const struct kolo_memo *m, const struct kolo_coll_args *a)
{
    const uintptr_t in = (uintptr_t)a->in, out = (uintptr_t)a->out;
    if (m->count != a->count || (in == 0 && m->in_bytes > 0) || (out == 0 && m->out_bytes > 0)) {
        return false;
    }
    return out - in == m->in_place || in >= out + m->out_bytes || out >= in + m->in_bytes;
}

static inline size_t kolo_shared_memo_place(uint64_t key, size_t count, const void *in,
                                            const void *out)
{
    return kolo_memo_place(key + (uintptr_t)in * 5 + (uintptr_t)out * 3, count);
}

/* False: out of memory. */
bool kolo_memo_create(struct kolo_comm *c);
/* The memo of calls with these numbers, or NULL. */
const struct kolo_memo *kolo_memo_find(const struct kolo_comm *c, uint64_t key, size_t count);
/* The memo of this call's buffers, or NULL. */
const struct kolo_shared_memo *kolo_memo_find_shared(const struct kolo_comm *c,
                                                     const struct kolo_coll_args *a, uint64_t key);
/* Take algorithm, program and binding from an earlier call like this one, if it had no entries. */
bool kolo_memo_recall(struct kolo_call *call);
/* Store `call`, which is bound and about to run. */
void kolo_memo_learn(struct kolo_call *call);
/* Forget the memos of a bound program. NULL: forget all memos. */
void kolo_memo_forget(struct kolo_comm *c, struct kolo_cached_bound *cached);
void kolo_memo_destroy(struct kolo_comm *c);

#endif
