// SPDX-License-Identifier: Apache-2.0
/* The fast path: a blocking call like an earlier one, without choosing, lowering, binding or a
 * queue.
 *
 * The call cache (memo.h) holds the program of the call. In a call with entry lines, a peer may
 * bring other buffers than last time. Its line shows that, and the call goes on the long way. */
#ifndef KOLO_CORE_CALL_FAST_PATH_H
#define KOLO_CORE_CALL_FAST_PATH_H

#include "core/call/memo.h"

/* The number of groups that the calling thread has open. */
extern _Thread_local int kolo_group_depth;

/* Run `bound`: the memo's, or the bound program of the same call with entries. */
kolo_status kolo_fast_path_bound(struct kolo_comm *c, const struct kolo_memo *m,
                                 const struct kolo_bound *bound, const void *in, void *out);
/* Run a call by any memo, and release comm->busy. Returns as kolo_fast_path(). */
bool kolo_fast_path_run(struct kolo_comm *c, const struct kolo_coll_args *args, kolo_status *out);

/* A copy of a regular call's arguments, for the slow branches. A copy of the whole struct there
 * would make the fast branch store parts that it never reads. */
static inline __attribute__((always_inline)) struct kolo_coll_args
kolo_coll_args_again(const struct kolo_coll_args *a)
{
    return (struct kolo_coll_args){.coll = a->coll,
                                   .type = a->type,
                                   .op = a->op,
                                   .root = a->root,
                                   .codec = a->codec,
                                   .in = a->in,
                                   .out = a->out,
                                   .count = a->count};
}

/* Run a blocking call that is like an earlier one. False: nothing was done, and the call must take
 * the long way. */
static inline __attribute__((always_inline)) bool
kolo_fast_path(const struct kolo_coll_args *a, struct kolo_comm *c, kolo_status *out)
{
    if (KOLO_UNLIKELY(c == NULL || kolo_group_depth > 0 || (unsigned)a->op >= KOLO_OPS ||
                      (unsigned)a->type >= KOLO_TYPES || (unsigned)a->codec >= KOLO_CODECS ||
                      atomic_exchange_explicit(&c->queue.busy, 1, memory_order_acquire) != 0)) {
        return false;
    }
    const uint64_t key = kolo_memo_key(a);
    const struct kolo_memo *m = &c->programs.memo[kolo_memo_place(key, a->count)];
    if (KOLO_UNLIKELY(m->simple_key != key || !kolo_memo_serves(m, a) ||
                      atomic_load_explicit(&c->queue.head, memory_order_acquire) != NULL ||
                      !kolo_comm_is_usable(c))) {
        const struct kolo_coll_args args = kolo_coll_args_again(a);
        return kolo_fast_path_run(c, &args, out);
    }
    struct kolo_record *record = kolo_record_begin(c->health.slot, key, a->count);
    kolo_status st = m->exchange != NULL
                         ? kolo_exchange(&c->links.exec_env, m->exchange, a->in, a->out, &m->how,
                                         kolo_chain(&c->links.exec_env, m->how.signature,
                                                    (uint32_t)kolo_comm_calls(c)))
                         : kolo_fast_path_bound(c, m, m->bound, a->in, a->out);
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        st = kolo_comm_fail(c, st);
    } else {
        kolo_record_end(record);
    }
    atomic_store_explicit(&c->queue.busy, 0, memory_order_release);
    *out = st;
    return true;
}

#endif
