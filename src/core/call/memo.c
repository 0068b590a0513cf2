// SPDX-License-Identifier: Apache-2.0
/* Learning calls into the call cache, and recalling them. */
#include "core/call/memo.h"

#include "core/call/parts.h"

#include <stdlib.h>
#include <string.h>

static uint64_t what_of(const struct kolo_call *call)
{
    const struct kolo_args args = {
        .coll = call->coll, .type = call->type, .op = call->op, .root = call->root};
    return kolo_memo_what(&args);
}

static bool can_be_kept(const struct kolo_call *call)
{
    return !call->wide && call->v.all == NULL && call->op < KOLO_OPS;
}

static ptrdiff_t in_place_of(const struct kolo_call *call)
{
    const ptrdiff_t bytes = (ptrdiff_t)(call->count * kolo_type_bytes(call->type));
    switch (call->coll) {
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return -call->base.comm->rank * bytes;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return call->base.comm->rank * bytes;
    default:
        return 0;
    }
}

bool kolo_memo_create(struct kolo_comm *c)
{
    c->memo = aligned_alloc(64, KOLO_MEMOS * sizeof *c->memo);
    c->shared_memo = calloc(KOLO_MEMOS, sizeof *c->shared_memo);
    for (int i = 0; c->memo != NULL && i < KOLO_MEMOS; i++) {
        c->memo[i] = (struct kolo_memo){.quick = KOLO_NOT_SIMPLE};
    }
    return c->memo != NULL && c->shared_memo != NULL;
}

/* Where the peers' buffers are that the program uses. Failures leave the memo empty. */
static void learn_peers(struct kolo_call *call, struct kolo_shared_memo *m)
{
    struct kolo_comm *c = call->base.comm;
    struct kolo_wires *w = &c->wires;
    if (m->peer == NULL) {
        m->peer = calloc((size_t)c->nranks, sizeof *m->peer);
    }
    m->bound = NULL;
    if (m->peer == NULL) {
        return;
    }
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_entry *entry =
            w->region[q] != NULL ? &w->region[q]->entry[w->entries % KOLO_ENTRY_LINES] : NULL;
        m->peer[q] = (struct kolo_peer_buffers){.hash = entry != NULL ? entry->buffers : 0};
    }
    for (int i = 0; i < call->prog->nentries; i++) {
        const int q = call->prog->entries[i];
        if (kolo_call_resolve(w, q, &w->region[q]->entry[w->entries % KOLO_ENTRY_LINES]) !=
            KOLO_OK) {
            return;
        }
        m->peer[q].in = w->peer_in[q];
        m->peer[q].out = w->peer_out[q];
    }
    m->bound = call->bound;
}

static void learn_shared(struct kolo_call *call, uint64_t what)
{
    struct kolo_comm *c = call->base.comm;
    struct kolo_shared_memo *m =
        &c->shared_memo[kolo_shared_memo_place(what, call->count, call->in, call->out)];
    m->what = what;
    m->count = call->count;
    m->in = call->in;
    m->out = call->out;
    m->frees = kolo_mem_frees();
    kolo_call_make_entry(call, &m->entry);
    learn_peers(call, m);
}

void kolo_memo_learn(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const uint64_t what = what_of(call);
    if (!can_be_kept(call)) {
        return;
    }
    const size_t elem = kolo_type_bytes(call->type);
    const bool reduces = kolo_call_reduces(call), moves = call->coll != KOLO_COLL_BARRIER;
    c->memo[kolo_memo_place(what, call->count)] = (struct kolo_memo){
        .what = what,
        .count = call->count,
        .bound = call->bound,
        .exchange = call->uses_entries ? NULL : call->bound->exchange,
        .how = {.reduce = reduces ? kolo_reduce_kernel(call->type, call->op) : NULL,
                .divisor = reduces && call->op == KOLO_AVG ? (unsigned)c->nranks : 0,
                .signature = call->signature},
        .in_bytes = moves && kolo_call_has_in(call) ? kolo_call_span(call, true) * elem : 0,
        .out_bytes = moves && kolo_call_has_out(call) ? kolo_call_span(call, false) * elem : 0,
        .in_place = (uintptr_t)in_place_of(call),
        .elem = call->run_elem,
        .entries = call->uses_entries,
        .asks = !c->sharing && kolo_call_may_have_entries(call),
        .steps = !kolo_exec_is_plain(call->prog)};
    struct kolo_memo *m = &c->memo[kolo_memo_place(what, call->count)];
    const bool simple =
        !m->entries && !m->asks && !m->steps && !c->logs_calls && c->device == KOLO_HOST;
    m->quick = simple ? what : KOLO_NOT_SIMPLE;
    if (call->uses_entries && !m->steps) {
        learn_shared(call, what);
    }
}

void kolo_memo_forget(struct kolo_comm *c, const struct kolo_bound *bound)
{
    for (int i = 0; i < KOLO_MEMOS; i++) {
        if (bound == NULL || c->memo[i].bound == bound) {
            c->memo[i].bound = NULL;
            c->memo[i].exchange = NULL;
            c->memo[i].quick = KOLO_NOT_SIMPLE;
        }
        if (bound == NULL || c->shared_memo[i].bound == bound) {
            c->shared_memo[i].bound = NULL;
        }
    }
}

void kolo_memo_destroy(struct kolo_comm *c)
{
    for (int i = 0; c->shared_memo != NULL && i < KOLO_MEMOS; i++) {
        free(c->shared_memo[i].peer);
    }
    free(c->shared_memo);
    free(c->memo);
    c->shared_memo = NULL;
    c->memo = NULL;
}

bool kolo_memo_recall(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    if (call->op >= KOLO_OPS || call->v.all != NULL) {
        return false;
    }
    const uint64_t what = what_of(call);
    const struct kolo_memo *m = &c->memo[kolo_memo_place(what, call->count)];
    if (m->bound == NULL || m->what != what || m->count != call->count || m->entries ||
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
