// SPDX-License-Identifier: Apache-2.0
/* Store calls in the call cache, and recall them. */
#include "core/call/memo.h"

#include "core/call/parts.h"
#include "exec/cpu/bound.h"

#include <stdlib.h>
#include <string.h>

static bool can_be_kept(const struct kolo_call *call)
{
    return !call->wide && call->codec == KOLO_CODEC_NONE && call->args.v.all == NULL &&
           call->args.op < KOLO_OPS;
}

bool kolo_memo_create(struct kolo_comm *c)
{
    c->programs.memo = aligned_alloc(64, KOLO_MEMOS * sizeof *c->programs.memo);
    c->programs.shared_memo = calloc(KOLO_MEMOS, sizeof *c->programs.shared_memo);
    for (int i = 0; c->programs.memo != NULL && i < KOLO_MEMOS; i++) {
        c->programs.memo[i] = (struct kolo_memo){.simple_key = KOLO_NOT_SIMPLE};
    }
    c->programs.bounds = calloc(KOLO_BOUNDS, sizeof *c->programs.bounds);
    return c->programs.memo != NULL && c->programs.shared_memo != NULL &&
           c->programs.bounds != NULL;
}

/* The places of a memo that has a bound program are noted there, so that few are looked at when it
 * goes. */
static void note(uint64_t *bits, size_t place)
{
    bits[place / 64] |= UINT64_C(1) << place % 64;
}

/* Note the addresses of the peers' buffers that the program uses. A failure leaves the memo empty.
 */
static void learn_peers(struct kolo_call *call, struct kolo_shared_memo *m)
{
    struct kolo_comm *c = call->base.comm;
    struct kolo_exec_env *env = &c->links.exec_env;
    if (m->peer == NULL) {
        m->peer = calloc((size_t)c->ranks.nranks, sizeof *m->peer);
    }
    m->bound = NULL;
    if (m->peer == NULL) {
        return;
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_entry *entry =
            env->region[q] != NULL ? &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES] : NULL;
        m->peer[q] = (struct kolo_peer_buffers){.hash = entry != NULL ? entry->buffers : 0};
    }
    for (int i = 0; i < call->prog->nentries; i++) {
        const int q = call->prog->entries[i];
        if (kolo_call_resolve(env, q, &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES]) !=
            KOLO_OK) {
            return;
        }
        m->peer[q].in = env->peer_in[q];
        m->peer[q].out = env->peer_out[q];
    }
    m->bound = call->bound;
    m->cached = call->cached;
    note(call->cached->shared_memos, (size_t)(m - c->programs.shared_memo));
}

static bool is_of_call(const struct kolo_shared_memo *m, const struct kolo_coll_args *a,
                       uint64_t key)
{
    return m->bound != NULL && m->key == key && m->count == a->count && m->in == a->in &&
           m->out == a->out;
}

const struct kolo_shared_memo *kolo_memo_find_shared(const struct kolo_comm *c,
                                                     const struct kolo_coll_args *a, uint64_t key)
{
    const size_t own = kolo_shared_memo_place(key, a->count, a->in, a->out);
    const struct kolo_shared_memo *m = &c->programs.shared_memo[own];
    if (!is_of_call(m, a, key)) {
        m = &c->programs.shared_memo[kolo_memo_neighbour(own)];
    }
    return is_of_call(m, a, key) && m->frees == kolo_mem_frees() ? m : NULL;
}

/* The memo to fill for a call of these buffers: its own place. Another call's memo moves. */
static struct kolo_shared_memo *make_shared_room(struct kolo_comm *c,
                                                 const struct kolo_coll_args *a, uint64_t key)
{
    const size_t own = kolo_shared_memo_place(key, a->count, a->in, a->out);
    struct kolo_shared_memo *m = &c->programs.shared_memo[own];
    if (m->bound != NULL && !is_of_call(m, a, key)) {
        struct kolo_shared_memo *neighbour = &c->programs.shared_memo[kolo_memo_neighbour(own)];
        const struct kolo_shared_memo moved = *m;
        *m = *neighbour; /* whose `peer` is used again */
        *neighbour = moved;
        note(moved.cached->shared_memos, kolo_memo_neighbour(own));
    }
    return m;
}

static void learn_shared(struct kolo_call *call, uint64_t key)
{
    struct kolo_comm *c = call->base.comm;
    struct kolo_shared_memo *m = make_shared_room(c, &call->args, key);
    m->key = key;
    m->count = call->args.count;
    m->in = call->args.in;
    m->out = call->args.out;
    m->frees = kolo_mem_frees();
    kolo_call_make_entry(call, &m->entry);
    learn_peers(call, m);
}

static bool has_numbers(const struct kolo_memo *m, uint64_t key, size_t count)
{
    return m->bound != NULL && m->key == key && m->count == count;
}

const struct kolo_memo *kolo_memo_find(const struct kolo_comm *c, uint64_t key, size_t count)
{
    const size_t own = kolo_memo_place(key, count);
    const struct kolo_memo *m = &c->programs.memo[own];
    if (!has_numbers(m, key, count)) {
        m = &c->programs.memo[kolo_memo_neighbour(own)];
    }
    return has_numbers(m, key, count) ? m : NULL;
}

/* As make_shared_room(). */
static struct kolo_memo *make_room(struct kolo_comm *c, uint64_t key, size_t count)
{
    const size_t own = kolo_memo_place(key, count);
    struct kolo_memo *m = &c->programs.memo[own];
    if (m->bound != NULL && !has_numbers(m, key, count)) {
        c->programs.memo[kolo_memo_neighbour(own)] = *m;
        note(m->cached->memos, kolo_memo_neighbour(own));
    }
    return m;
}

void kolo_memo_learn(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const uint64_t key = kolo_memo_key(&call->args);
    if (!can_be_kept(call)) {
        return;
    }
    const bool reduces = call->extent.reduces;
    struct kolo_memo *m = make_room(c, key, call->args.count);
    *m = (struct kolo_memo){
        .key = key,
        .count = call->args.count,
        .bound = call->bound,
        .cached = call->cached,
        .exchange = call->uses_entries ? NULL : call->bound->exchange,
        .how = {.reduce = reduces ? kolo_reduce_kernel(call->args.type, call->args.op) : NULL,
                .divisor = reduces && call->args.op == KOLO_AVG ? (unsigned)c->ranks.nranks : 0,
                .signature = call->signature},
        .in_bytes = kolo_coll_in_bytes(&call->args, &call->extent),
        .out_bytes = kolo_coll_out_bytes(&call->args, &call->extent),
        .in_place = (uintptr_t)kolo_coll_in_place(&call->args, c->ranks.rank, c->ranks.nranks),
        .elem = call->run_elem,
        .entries = call->uses_entries,
        .asks = !c->programs.sharing && kolo_call_may_have_entries(call),
        .steps = !kolo_exec_is_plain(call->prog)};
    note(call->cached->memos, (size_t)(m - c->programs.memo));
    const bool simple = !m->entries && !m->asks && !m->steps && !c->options.logs_calls &&
                        c->options.cuda_ordinal == KOLO_HOST;
    m->simple_key = simple ? key : KOLO_NOT_SIMPLE;
    if (call->uses_entries && !m->steps) {
        learn_shared(call, key);
    }
}

static void empty(struct kolo_memo *m)
{
    m->bound = NULL;
    m->exchange = NULL;
    m->simple_key = KOLO_NOT_SIMPLE;
}

static void forget_all(struct kolo_comm *c)
{
    for (int i = 0; i < KOLO_MEMOS; i++) {
        empty(&c->programs.memo[i]);
        c->programs.shared_memo[i].bound = NULL;
    }
}

void kolo_memo_forget(struct kolo_comm *c, struct kolo_cached_bound *cached)
{
    if (cached == NULL) {
        forget_all(c);
        return;
    }
    for (int word = 0; word < KOLO_MEMOS / 64; word++) {
        for (uint64_t left = cached->memos[word]; left != 0; left &= left - 1) {
            struct kolo_memo *m = &c->programs.memo[word * 64 + __builtin_ctzll(left)];
            if (m->cached == cached) {
                empty(m);
            }
        }
        for (uint64_t left = cached->shared_memos[word]; left != 0; left &= left - 1) {
            struct kolo_shared_memo *m =
                &c->programs.shared_memo[word * 64 + __builtin_ctzll(left)];
            m->bound = m->cached == cached ? NULL : m->bound;
        }
    }
}

void kolo_memo_destroy(struct kolo_comm *c)
{
    for (int i = 0; c->programs.shared_memo != NULL && i < KOLO_MEMOS; i++) {
        free(c->programs.shared_memo[i].peer);
    }
    free(c->programs.shared_memo);
    free(c->programs.memo);
    c->programs.shared_memo = NULL;
    c->programs.memo = NULL;
}

bool kolo_memo_recall(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    if (call->args.op >= KOLO_OPS || call->args.v.all != NULL) {
        return false;
    }
    const struct kolo_memo *m = kolo_memo_find(c, kolo_memo_key(&call->args), call->args.count);
    if (m == NULL || m->entries || (m->asks && kolo_comm_must_ask(c))) {
        return false;
    }
    call->algo = m->bound->prog->plan->algo;
    call->prog = m->bound->prog;
    call->bound = m->bound;
    call->cached = m->cached;
    call->run_elem = m->elem;
    call->signature = m->how.signature;
    return true;
}
