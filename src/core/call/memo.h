// SPDX-License-Identifier: Apache-2.0
/* The call cache: what a call needs that is like an earlier one.
 *
 * A memo is known by the call's numbers (collective, type, operation, root, count). A call with
 * entry lines is also known by its buffers: its memo holds the line that describes them, and where
 * the peers' buffers were. Memos are read and written by who holds comm->busy. */
#ifndef KOLO_CORE_CALL_MEMO_H
#define KOLO_CORE_CALL_MEMO_H

#include "core/call/call.h"

#define KOLO_NOT_SIMPLE UINT64_MAX /* no call's */

struct kolo_memo {               /* bound NULL: empty */
    _Alignas(64) uint64_t quick; /* `what`, if the bound program is all; else KOLO_NOT_SIMPLE */
    uint64_t what;
    size_t count;
    const struct kolo_exchange *exchange; /* not NULL: that is all */
    struct kolo_exchange_how how;
    size_t in_bytes, out_bytes; /* 0 where this rank has none */
    uintptr_t in_place;         /* recv - send, where that is allowed to be an overlap */
    struct kolo_bound *bound;
    size_t elem;
    bool entries;
    bool asks;  /* of a size that may come to have entries */
    bool steps; /* it waits for messages: not to be run in one go */
};

struct kolo_peer_buffers {
    uint64_t hash;
    const void *in;
    void *out;
};

struct kolo_shared_memo { /* bound NULL: empty */
    uint64_t what;
    size_t count;
    const void *in;
    void *out;
    unsigned frees; /* memory that was freed since may be something else now */
    struct kolo_bound *bound;
    struct kolo_entry entry;
    struct kolo_peer_buffers *peer; /* [nranks] */
};

/* Each number has bits of its own only where op < KOLO_OPS and type < KOLO_TYPES: other calls are
 * neither kept nor looked up. */
static inline uint64_t kolo_memo_what(const struct kolo_coll_args *a)
{
    return (uint64_t)(uint32_t)a->root << 32 | (uint64_t)a->op << 16 | (uint64_t)a->type << 8 |
           (uint64_t)a->coll;
}

static inline size_t kolo_memo_place(uint64_t what, size_t count)
{
    return ((what ^ count) * UINT64_C(0x9E3779B97F4A7C15)) >> 58;
}
static_assert(KOLO_MEMOS == 64, "kolo_memo_place() gives 6 bits");

/* A call whose `what` is the memo's, with its count, and buffers as kolo_call_check() wants them.
 */
static inline bool kolo_memo_serves(const struct kolo_memo *m, const struct kolo_coll_args *a)
{
    const uintptr_t in = (uintptr_t)a->in, out = (uintptr_t)a->out;
    if (m->count != a->count || (in == 0 && m->in_bytes > 0) || (out == 0 && m->out_bytes > 0)) {
        return false;
    }
    return out - in == m->in_place || in >= out + m->out_bytes || out >= in + m->in_bytes;
}

static inline size_t kolo_shared_memo_place(uint64_t what, size_t count, const void *in,
                                            const void *out)
{
    return kolo_memo_place(what + (uintptr_t)in * 5 + (uintptr_t)out * 3, count);
}

/* Errors: false, no memory. */
bool kolo_memo_create(struct kolo_comm *c);
/* Take algorithm, program and binding from a call like this one that had no entries. */
bool kolo_memo_recall(struct kolo_call *call);
/* After binding: `call` is about to run. */
void kolo_memo_learn(struct kolo_call *call);
/* Nothing that uses `bound` may be kept; NULL: nothing at all. */
void kolo_memo_forget(struct kolo_comm *c, const struct kolo_bound *bound);
void kolo_memo_destroy(struct kolo_comm *c);

#endif
