// SPDX-License-Identifier: Apache-2.0
/* The short way: a blocking call like one before, without choosing, lowering, binding or a queue.
 *
 * A memo holds what such a call needs. Calls without entries are known by their numbers (what,
 * count). Calls with entries also by their buffers: their memo holds the line that says so, and
 * where the peers' buffers were. If a peer comes with others this time, its line says so, and the
 * call goes on the long way from there. Memos are read and written by who holds comm->busy. */
#ifndef KOLO_CORE_CALL_FAST_PATH_H
#define KOLO_CORE_CALL_FAST_PATH_H

#include "core/call/call.h"

/* A call's arguments, as they are given. */
struct kolo_args {
    enum kolo_coll coll;
    enum kolo_type type;
    kolo_op op;
    int root;
    const void *in;
    void *out;
    size_t count;
};

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

/* Groups that the calling thread has open. */
extern _Thread_local int kolo_group_depth;

/* Run `bound`, the memo's or the one of the same call with entries. */
kolo_status kolo_quick_bound(struct kolo_comm *c, const struct kolo_memo *m,
                             const struct kolo_bound *bound, const void *in, void *out);
/* Run a call by whatever is kept, and give comm->busy back; as kolo_quick(). */
bool kolo_quick_run(struct kolo_comm *c, const struct kolo_args *args, kolo_status *out);

/* Each number has bits of its own only where op < KOLO_OPS and type < KOLO_TYPES: other calls are
 * neither kept nor looked up. */
static inline uint64_t kolo_memo_what(const struct kolo_args *a)
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
static inline bool kolo_memo_serves(const struct kolo_memo *m, const struct kolo_args *a)
{
    const uintptr_t in = (uintptr_t)a->in, out = (uintptr_t)a->out;
    if (m->count != a->count || (in == 0 && m->in_bytes > 0) || (out == 0 && m->out_bytes > 0)) {
        return false;
    }
    return out - in == m->in_place || in >= out + m->out_bytes || out >= in + m->in_bytes;
}

/* Blocking calls that are like one before run here and now. False: nothing was done, the call must
 * take the long way. */
static inline __attribute__((always_inline)) bool kolo_quick(const struct kolo_args *a,
                                                             struct kolo_comm *c, kolo_status *out)
{
    if (KOLO_UNLIKELY(c == NULL || kolo_group_depth > 0 || (unsigned)a->op >= KOLO_OPS ||
                      (unsigned)a->type >= KOLO_TYPES ||
                      atomic_exchange_explicit(&c->busy, 1, memory_order_acquire) != 0)) {
        return false;
    }
    const uint64_t what = kolo_memo_what(a);
    const struct kolo_memo *m = &c->memo[kolo_memo_place(what, a->count)];
    if (KOLO_UNLIKELY(m->quick != what || !kolo_memo_serves(m, a) ||
                      atomic_load_explicit(&c->head, memory_order_acquire) != NULL ||
                      !kolo_comm_is_usable(c))) {
        const struct kolo_args args = *a;
        return kolo_quick_run(c, &args, out);
    }
    struct kolo_record *record = kolo_record_begin(c->post, what, a->count);
    kolo_status st = m->exchange != NULL
                         ? kolo_exchange(&c->wires, m->exchange, a->in, a->out, &m->how)
                         : kolo_quick_bound(c, m, m->bound, a->in, a->out);
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        st = kolo_comm_fail(c, st);
    } else {
        kolo_record_end(record);
    }
    atomic_store_explicit(&c->busy, 0, memory_order_release);
    *out = st;
    return true;
}

#endif
