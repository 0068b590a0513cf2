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
    return c->programs.memo != NULL && c->programs.shared_memo != NULL;
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
}

static void learn_shared(struct kolo_call *call, uint64_t key)
{
    struct kolo_comm *c = call->base.comm;
    struct kolo_shared_memo *m = &c->programs.shared_memo[kolo_shared_memo_place(
        key, call->args.count, call->args.in, call->args.out)];
    m->key = key;
    m->count = call->args.count;
    m->in = call->args.in;
    m->out = call->args.out;
    m->frees = kolo_mem_frees();
    kolo_call_make_entry(call, &m->entry);
    learn_peers(call, m);
}

void kolo_memo_learn(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const uint64_t key = kolo_memo_key(&call->args);
    if (!can_be_kept(call)) {
        return;
    }
    const bool reduces = call->extent.reduces;
    c->programs.memo[kolo_memo_place(key, call->args.count)] = (struct kolo_memo){
        .key = key,
        .count = call->args.count,
        .bound = call->bound,
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
    struct kolo_memo *m = &c->programs.memo[kolo_memo_place(key, call->args.count)];
    const bool simple = !m->entries && !m->asks && !m->steps && !c->options.logs_calls &&
                        c->options.cuda_ordinal == KOLO_HOST;
    m->simple_key = simple ? key : KOLO_NOT_SIMPLE;
    if (call->uses_entries && !m->steps) {
        learn_shared(call, key);
    }
}

void kolo_memo_forget(struct kolo_comm *c, const struct kolo_bound *bound)
{
    for (int i = 0; i < KOLO_MEMOS; i++) {
        if (bound == NULL || c->programs.memo[i].bound == bound) {
            c->programs.memo[i].bound = NULL;
            c->programs.memo[i].exchange = NULL;
            c->programs.memo[i].simple_key = KOLO_NOT_SIMPLE;
        }
        if (bound == NULL || c->programs.shared_memo[i].bound == bound) {
            c->programs.shared_memo[i].bound = NULL;
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
    const uint64_t key = kolo_memo_key(&call->args);
    const struct kolo_memo *m = &c->programs.memo[kolo_memo_place(key, call->args.count)];
    if (m->bound == NULL || m->key != key || m->count != call->args.count || m->entries ||
        (m->asks && kolo_comm_must_ask(c))) {
        return false;
    }
    call->algo = m->bound->prog->plan->algo;
    call->prog = m->bound->prog;
    call->bound = m->bound;
    call->run_elem = m->elem;
    call->signature = m->how.signature;
    return true;
}
