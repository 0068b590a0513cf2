// SPDX-License-Identifier: Apache-2.0
/* Learning what fast_path.h keeps of calls, and running those that are more than an exchange. */
#include "core/call/fast_path.h"

#include "core/call/parts.h"
#include "exec/cpu/bound.h"
#include "exec/cpu/region.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- learning ---- */

static inline size_t shared_place_of(uint64_t what, size_t count, const void *in, const void *out)
{
    return kolo_memo_place(what + (uintptr_t)in * 5 + (uintptr_t)out * 3, count);
}

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
        return -call->comm->rank * bytes;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return call->comm->rank * bytes;
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
    struct kolo_comm *c = call->comm;
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
    struct kolo_comm *c = call->comm;
    struct kolo_shared_memo *m =
        &c->shared_memo[shared_place_of(what, call->count, call->in, call->out)];
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
    struct kolo_comm *c = call->comm;
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
    struct kolo_comm *c = call->comm;
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

/* ---- running ---- */

kolo_status kolo_quick_bound(struct kolo_comm *c, const struct kolo_memo *m,
                             const struct kolo_bound *bound, const void *in, void *out)
{
    struct kolo_exec x;
    x.wires = &c->wires;
    x.bound = bound;
    x.in = in;
    x.out = out;
    x.reduce = m->how.reduce;
    x.divisor = m->how.divisor;
    x.elem = m->elem;
    x.signature = m->how.signature;
    x.block = true;
    return kolo_exec_now(&x);
}

/* The entry is published, and somebody's is another than last time. */
static __attribute__((noinline)) kolo_status
go_on_slowly(struct kolo_comm *c, const struct kolo_args *a, const struct kolo_memo *m)
{
    struct kolo_call call = {.comm = c,
                             .coll = a->coll,
                             .in = a->in,
                             .out = a->out,
                             .count = a->count,
                             .type = a->type,
                             .op = a->op,
                             .root = a->root,
                             .algo = m->bound->prog->plan->algo,
                             .run_elem = m->elem,
                             .tile_bytes = m->bound->extents.tile_bytes,
                             .signature = m->how.signature,
                             .started = true,
                             .uses_entries = true,
                             .state = KOLO_CALL_ENTRIES};
    const kolo_status st = kolo_call_step(&call, true);
    kolo_call_close(&call);
    return st;
}

static kolo_status run_shared(struct kolo_comm *c, const struct kolo_args *a,
                              const struct kolo_memo *m, const struct kolo_shared_memo *s)
{
    struct kolo_wires *w = &c->wires;
    bool same = true;
    kolo_entry_publish(w, &s->entry);
    for (int q = 0; q < c->nranks; q++) {
        if (q == c->rank || !c->member[q].maps) {
            continue;
        }
        KOLO_TRY(kolo_entry_wait(w, q, true));
        const struct kolo_entry *entry = &w->region[q]->entry[w->entries % KOLO_ENTRY_LINES];
        same = same && entry->buffers == s->peer[q].hash && entry->signature == m->how.signature;
        w->peer_in[q] = s->peer[q].in;
        w->peer_out[q] = s->peer[q].out;
    }
    if (KOLO_UNLIKELY(!same)) {
        return go_on_slowly(c, a, m);
    }
    const kolo_status st = kolo_quick_bound(c, m, s->bound, a->in, a->out);
    w->entries += st == KOLO_OK ? 1 : 0;
    return st;
}

/* The memo of this call's buffers, or NULL. */
static const struct kolo_shared_memo *find_shared(const struct kolo_comm *c,
                                                  const struct kolo_args *a, uint64_t what)
{
    const struct kolo_shared_memo *s =
        &c->shared_memo[shared_place_of(what, a->count, a->in, a->out)];
    return s->bound != NULL && s->what == what && s->count == a->count && s->in == a->in &&
                   s->out == a->out && s->frees == kolo_mem_frees()
               ? s
               : NULL;
}

static void end_if_well(struct kolo_record *record, kolo_status st)
{
    if (st == KOLO_OK) {
        kolo_record_end(record);
    }
}

/* By who holds comm->busy. False: not a call that is known. */
static bool run_known(struct kolo_comm *c, const struct kolo_args *a, kolo_status *out)
{
    const uint64_t what = kolo_memo_what(a);
    const struct kolo_memo *m = &c->memo[kolo_memo_place(what, a->count)];
    if (m->bound == NULL || m->steps || m->what != what || !kolo_memo_serves(m, a) ||
        !kolo_comm_is_usable(c)) {
        return false;
    }
    if (!m->entries) {
        if (m->asks && kolo_comm_must_ask(c)) {
            return false;
        }
        struct kolo_record *record = kolo_record_begin(c->post, what, a->count);
        *out = kolo_quick_bound(c, m, m->bound, a->in, a->out);
        end_if_well(record, *out);
        return true;
    }
    const struct kolo_shared_memo *s = find_shared(c, a, what);
    if (s == NULL) {
        return false;
    }
    struct kolo_record *record = kolo_record_begin(c->post, what, a->count);
    *out = run_shared(c, a, m, s);
    end_if_well(record, *out);
    return true;
}

bool kolo_quick_run(struct kolo_comm *c, const struct kolo_args *args, kolo_status *out)
{
    kolo_status st = KOLO_OK;
    const bool known =
        !c->logs_calls && c->device == KOLO_HOST && /* else its buffers are looked at */
        atomic_load_explicit(&c->head, memory_order_acquire) == NULL && run_known(c, args, &st);
    if (KOLO_UNLIKELY(st <= KOLO_ERR_MISMATCH)) {
        const uint64_t what = kolo_memo_what(args);
        st = kolo_comm_fail(c, st);
        kolo_mem_take_back(c, args->out, c->memo[kolo_memo_place(what, args->count)].out_bytes);
    }
    atomic_store_explicit(&c->busy, 0, memory_order_release);
    *out = st;
    return known;
}
