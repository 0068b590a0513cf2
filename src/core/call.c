// SPDX-License-Identifier: Apache-2.0
/* The state machine of a collective call.
 *
 *   CHOOSE   algorithm by size; large calls publish an entry line that says what memory is shared
 *   ENTRIES  wait for everybody's, so that both ends of a link lower alike
 *   LOWER    plan, program for these links, bound to these bytes; all from caches where possible
 *   SLOTS    outboxes of those I read from
 *   RUN      the executor; then what is left to do to the result
 */
#include "core/call.h"

#include "plan/verify.h"
#include "transports/shm/segment.h"

#include <stdlib.h>
#include <string.h>

/* ---- plans and programs, cached ---- */

static kolo_status find_plan(struct kolo_comm *c, const struct kolo_algo *algo, int root,
                             const struct kolo_plan **out)
{
    struct kolo_cached_plan *found = c->plans;
    while (found != NULL && (found->algo != algo || found->root != root)) {
        found = found->next;
    }
    if (found == NULL) {
        const struct kolo_shape shape = {.size = sizeof shape,
                                         .coll = algo->coll,
                                         .nranks = c->nranks,
                                         .root = root,
                                         .order = c->order};
        struct kolo_plan *plan = NULL;
        KOLO_TRY(kolo_plan_build(algo, &shape, c->nranks <= KOLO_WHOLE_PLAN_RANKS ? -1 : c->rank,
                                 &plan));
        kolo_status st =
            kolo_env("KOLO_VERIFY") != NULL && plan->only < 0 ? kolo_verify_plan(plan) : KOLO_OK;
        found = malloc(sizeof *found);
        if (st == KOLO_OK && found == NULL) {
            st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a plan");
        }
        if (st != KOLO_OK) {
            free(found);
            kolo_plan_destroy(plan);
            return st;
        }
        *found = (struct kolo_cached_plan){c->plans, algo, root, plan};
        c->plans = found;
    }
    *out = found->plan;
    return KOLO_OK;
}

/* What rank q and I can reach of each other's memory in this call; both ends compute the same. */
static uint8_t link_bits(const struct kolo_call *call, int q)
{
    const struct kolo_comm *c = call->comm;
    const struct kolo_member *m = &c->member[q];
    uint8_t bits = 0;
    if (!m->maps) {
        return 0;
    }
    bits = KOLO_LINK_MAP;
    if (!call->uses_entries) {
        return bits;
    }
    const uint32_t at = c->wires.epoch % KOLO_DEPTH;
    const struct kolo_entry *mine = &c->wires.region[c->rank]->entry[at];
    const struct kolo_entry *theirs = &c->wires.region[q]->entry[at];
    const bool threads = m->peer.process == c->member[c->rank].peer.process;
    bits |= threads || theirs->in_shared ? KOLO_LINK_PEER_IN : 0;
    bits |= threads || theirs->out_shared ? KOLO_LINK_PEER_OUT : 0;
    bits |= threads || mine->in_shared ? KOLO_LINK_MY_IN : 0;
    bits |= threads || mine->out_shared ? KOLO_LINK_MY_OUT : 0;
    return bits;
}

/* v-forms that not all ranks know run as messages, so that each edge has its own length. */
static bool by_messages(const struct kolo_call *call)
{
    return call->v.all != NULL &&
           (call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_SCATTER ||
            call->coll == KOLO_COLL_ALL_TO_ALL);
}

static kolo_status make_prog(struct kolo_comm *c, const struct kolo_plan *plan, const uint8_t *bits,
                             uint64_t hash, const struct kolo_prog **out)
{
    struct kolo_cached_prog *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a program");
    }
    kolo_status st = kolo_lower(plan, c->rank, bits, &made->prog);
    if (st != KOLO_OK) {
        free(made);
        return st;
    }
    const struct kolo_rank_plan *mine = &plan->rank[c->rank];
    pthread_mutex_lock(&c->device_lock);
    for (int i = 0; i < mine->count && st == KOLO_OK; i++) {
        st = mine->step[i].peer >= 0 ? kolo_comm_reach(c, mine->step[i].peer) : KOLO_OK;
    }
    pthread_mutex_unlock(&c->device_lock);
    if (st != KOLO_OK) {
        kolo_prog_destroy(made->prog);
        free(made);
        return st;
    }
    made->plan = plan;
    made->links = hash;
    made->next = c->progs;
    c->progs = made;
    *out = made->prog;
    return KOLO_OK;
}

static kolo_status find_prog(struct kolo_call *call, const struct kolo_plan *plan)
{
    struct kolo_comm *c = call->comm;
    uint8_t few[KOLO_WHOLE_PLAN_RANKS];
    uint8_t *bits = c->nranks <= KOLO_WHOLE_PLAN_RANKS ? few : malloc((size_t)c->nranks);
    kolo_status st = KOLO_OK;
    if (bits == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d links", c->nranks);
    }
    for (int q = 0; q < c->nranks; q++) {
        bits[q] = q == c->rank || by_messages(call) ? 0 : link_bits(call, q);
    }
    const uint64_t hash = kolo_hash(0, bits, (size_t)c->nranks);
    const struct kolo_cached_prog *found = c->progs;
    while (found != NULL && (found->plan != plan || found->links != hash)) {
        found = found->next;
    }
    if (found != NULL) {
        call->prog = found->prog;
    } else {
        st = make_prog(c, plan, bits, hash, &call->prog);
    }
    if (bits != few) {
        free(bits);
    }
    return st;
}

static struct kolo_sizes sizes_of(const struct kolo_call *call)
{
    const size_t n = (size_t)call->comm->nranks;
    const size_t *all = call->v.all;
    struct kolo_sizes sizes = {.count = call->count, .elem = call->run_elem};
    if (all != NULL) {
        sizes.counts = all;
        sizes.displs = all + n;
        sizes.out_counts = all + 2 * n;
        sizes.out_displs = all + 3 * n;
    }
    return sizes;
}

void kolo_call_forget(struct kolo_comm *c)
{
    for (int i = 0; i < KOLO_BOUND_CACHE; i++) {
        kolo_bound_destroy(c->bounds[i].bound);
    }
    while (c->progs != NULL) {
        struct kolo_cached_prog *next = c->progs->next;
        kolo_prog_destroy(c->progs->prog);
        free(c->progs);
        c->progs = next;
    }
    while (c->plans != NULL) {
        struct kolo_cached_plan *next = c->plans->next;
        kolo_plan_destroy(c->plans->plan);
        free(c->plans);
        c->plans = next;
    }
    while (c->premulsums != NULL) {
        struct kolo_premulsum *next = c->premulsums->next;
        free(c->premulsums);
        c->premulsums = next;
    }
}

/* ---- bytes of IN and OUT ---- */

static bool has_in(const struct kolo_call *call)
{
    const bool root = call->comm->rank == call->root;
    return call->coll == KOLO_COLL_BROADCAST || call->coll == KOLO_COLL_SCATTER
               ? root
               : call->coll != KOLO_COLL_BARRIER;
}

static bool has_out(const struct kolo_call *call)
{
    const bool root = call->comm->rank == call->root;
    return call->coll == KOLO_COLL_REDUCE || call->coll == KOLO_COLL_GATHER
               ? root
               : call->coll != KOLO_COLL_BARRIER;
}

static size_t blocks_end(const size_t *counts, const size_t *displs, int n)
{
    size_t end = 0;
    for (int r = 0; r < n; r++) {
        end = counts[r] > 0 ? kolo_max(end, displs[r] + counts[r]) : end;
    }
    return end;
}

/* Elements that a buffer spans, from its start. */
static size_t span_of(const struct kolo_call *call, bool in)
{
    const int n = call->comm->nranks;
    const size_t *all = call->v.all;
    const bool one = in ? call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_ALL_GATHER
                        : call->coll == KOLO_COLL_SCATTER || call->coll == KOLO_COLL_REDUCE_SCATTER;
    if (kolo_coll_flat(call->coll)) {
        return call->count;
    }
    if (all == NULL) {
        return one ? call->count : call->count * (size_t)n;
    }
    if (one) {
        return all[call->comm->rank];
    }
    const bool second = call->coll == KOLO_COLL_ALL_TO_ALL && !in;
    return blocks_end(all + (second ? 2 * n : 0), all + (second ? 3 * n : n), n);
}

/* ---- preparing: choice, factors, accumulator type ---- */

const struct kolo_premulsum *kolo_premulsum_find(struct kolo_comm *comm, kolo_op op)
{
    const struct kolo_premulsum *p = comm->premulsums;
    while (p != NULL && p->op != op) {
        p = p->next;
    }
    return p;
}

static size_t bytes_per_rank(const struct kolo_call *call)
{
    return (call->v.all != NULL ? call->v.full : call->count) * kolo_type_bytes(call->type);
}

static void log_choice(const struct kolo_call *call)
{
    struct kolo_text text = {0};
    if (call->comm->rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_TUNE)) {
        kolo_choice_line(call->comm->chooser, call->coll, call->root, bytes_per_rank(call), &text);
        KOLO_LOG(INFO, TUNE, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
}

/* v-forms use the plan that needs no scratch: blocks differ in length. */
static const char *v_algorithm(enum kolo_coll coll)
{
    switch (coll) {
    case KOLO_COLL_GATHER:
        return "gather_direct";
    case KOLO_COLL_SCATTER:
        return "scatter_direct";
    case KOLO_COLL_ALL_GATHER:
        return "allgather_direct";
    case KOLO_COLL_REDUCE_SCATTER:
        return "reducescatter_direct";
    default:
        return "alltoall_direct";
    }
}

static const struct kolo_algo *builtin(const char *name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (strcmp(kolo_algos[i]->base.name, name) == 0) {
            return kolo_algos[i];
        }
    }
    return NULL;
}

static kolo_status choose(struct kolo_call *call)
{
    struct kolo_pick pick;
    if (call->v.all != NULL) {
        call->algo = builtin(v_algorithm(call->coll));
        return call->algo != NULL ? KOLO_OK : KOLO_ERR_INTERNAL;
    }
    KOLO_TRY(kolo_choose(call->comm->chooser, call->coll, call->root, bytes_per_rank(call),
                         call->type, &pick));
    call->algo = pick.algo;
    call->wide = pick.wide;
    if (pick.fresh) {
        log_choice(call);
    }
    return KOLO_OK;
}

/* PREMULSUM: the factor is applied to the input once, rounded in its type; what follows is a sum.
 */
static kolo_status scale_input(struct kolo_call *call)
{
    const size_t count = span_of(call, true);
    const struct kolo_premulsum *p = kolo_premulsum_find(call->comm, call->op);
    call->scaled = malloc(count * kolo_type_bytes(call->type) + 1);
    if (call->scaled == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu scaled elements", count);
    }
    kolo_scale(call->type, call->scaled, call->in, count, p->factor);
    call->in = call->scaled;
    return KOLO_OK;
}

/* Partial sums travel: run in float32 throughout and round once, at the end. */
static kolo_status widen_input(struct kolo_call *call)
{
    const size_t nin = span_of(call, true), nout = span_of(call, false);
    call->wide_in = malloc(nin * sizeof(float) + 1);
    call->wide_out = malloc(nout * sizeof(float) + 1);
    if (call->wide_in == NULL || call->wide_out == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu float32 elements", nin + nout);
    }
    kolo_widen(call->type, call->wide_in, call->in, nin);
    call->run_elem = sizeof(float);
    return KOLO_OK;
}

static bool reduces(const struct kolo_call *call)
{
    return kolo_coll_reduces(call->coll);
}

static const void *run_in(const struct kolo_call *call)
{
    return call->wide_in != NULL ? call->wide_in : call->in;
}

static void *run_out(const struct kolo_call *call)
{
    return call->wide_out != NULL ? call->wide_out : call->out;
}

/* ---- entries ---- */

/* What all ranks must agree on. Lengths of v-forms that not all ranks know stay out of it, and so
 * does the type where bytes are only moved. */
static uint64_t signature(const struct kolo_call *call)
{
    const uint64_t words[] = {call->coll,
                              (uint64_t)call->root,
                              by_messages(call) ? 0 : bytes_per_rank(call),
                              reduces(call) ? call->type : 0,
                              !reduces(call)         ? 0
                              : call->op >= KOLO_OPS ? KOLO_OPS
                                                     : call->op, /* handles are local */
                              call->wide};
    uint64_t hash = kolo_hash(0, call->algo->base.name, strlen(call->algo->base.name));
    for (size_t i = 0; i < KOLO_LENGTH(words); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash;
}

static uint32_t share(const struct kolo_comm *c, const void *at, size_t bytes,
                      unsigned char handle[32])
{
    struct kolo_mem mem = {0};
    uint32_t id = 0;
    uint64_t offset = 0;
    void *ptr = (void *)(uintptr_t)at;
    if (at == NULL || bytes == 0 || !kolo_segment_find(ptr, bytes, &id, &offset) ||
        c->mapper->transport->map(c->mapper->device, ptr, bytes, &mem) != KOLO_OK) {
        return 0;
    }
    memcpy(handle, mem.handle, 32);
    return 1;
}

static kolo_status publish_entry(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    struct kolo_entry mine = {.in_at = (uintptr_t)run_in(call),
                              .out_at = (uintptr_t)run_out(call),
                              .signature = signature(call)};
    if (has_in(call)) {
        mine.in_shared = share(c, run_in(call), span_of(call, true) * call->run_elem, mine.in);
    }
    if (has_out(call)) {
        mine.out_shared = share(c, run_out(call), span_of(call, false) * call->run_elem, mine.out);
    }
    return kolo_entry_publish(&c->wires, &mine, block);
}

static kolo_status wait_entries(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    for (; call->next < c->nranks; call->next++) {
        const int q = call->next;
        if (q == c->rank || !c->member[q].maps) {
            continue;
        }
        pthread_mutex_lock(&c->device_lock);
        kolo_status st = kolo_comm_reach(c, q);
        pthread_mutex_unlock(&c->device_lock);
        KOLO_TRY(st);
        st = kolo_entry_wait(&c->wires, q, block);
        if (st != KOLO_OK) {
            return st;
        }
    }
    call->next = 0;
    return KOLO_OK;
}

static kolo_status resolve_one(struct kolo_comm *c, int q, uint32_t shared,
                               const unsigned char handle[32], void **out)
{
    unsigned char whole[KOLO_HANDLE_BYTES] = {0};
    size_t len = 0;
    if (!shared) {
        *out = NULL;
        return KOLO_OK;
    }
    memcpy(whole, handle, 32);
    pthread_mutex_lock(&c->device_lock);
    const kolo_status st = c->member[q].transport->attach(c->member[q].link, whole, out, &len);
    pthread_mutex_unlock(&c->device_lock);
    return st;
}

kolo_status kolo_call_resolve(struct kolo_wires *w, int q, const struct kolo_entry *entry)
{
    struct kolo_comm *c = w->owner;
    void *in = (void *)(uintptr_t)entry->in_at, *out = (void *)(uintptr_t)entry->out_at;
    if (c->member[q].peer.process != c->member[c->rank].peer.process) {
        KOLO_TRY(resolve_one(c, q, entry->in_shared, entry->in, &in));
        KOLO_TRY(resolve_one(c, q, entry->out_shared, entry->out, &out));
    }
    w->peer_in[q] = in;
    w->peer_out[q] = out;
    return KOLO_OK;
}

/* ---- the memo: a call like one before skips choosing, lowering and binding ---- */

static struct kolo_memo *memo_of(const struct kolo_call *call)
{
    const size_t key = call->count * 31 + (size_t)call->coll * 7 + (size_t)call->type +
                       call->op * 3 + (size_t)call->root;
    return &call->comm->memo[key % KOLO_MEMOS];
}

static bool memo_knows(struct kolo_call *call)
{
    const struct kolo_memo *m = memo_of(call);
    if (m->bound == NULL || m->count != call->count || m->coll != call->coll ||
        m->type != call->type || m->op != call->op || m->root != call->root ||
        call->v.all != NULL) {
        return false;
    }
    call->algo = m->bound->prog->plan->algo;
    call->prog = m->bound->prog;
    call->bound = m->bound;
    call->run_elem = m->bound->extents.elem;
    call->signature = m->signature;
    return true;
}

/* Not for calls that look at what memory is shared, or that need a buffer of their own. */
static void memo_learn(const struct kolo_call *call)
{
    if (!call->uses_entries && !call->wide && call->v.all == NULL && call->op < KOLO_OPS) {
        *memo_of(call) = (struct kolo_memo){call->bound, call->count, call->coll,     call->type,
                                            call->op,    call->root,  call->signature};
    }
}

/* ---- states ---- */

static kolo_status do_choose(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    if (!call->started) {
        call->run_elem = call->coll == KOLO_COLL_BARRIER ? 1 : kolo_type_bytes(call->type);
        KOLO_TRY(choose(call));
        if (reduces(call) && call->op >= KOLO_OPS) {
            KOLO_TRY(scale_input(call));
        }
        if (call->wide) {
            KOLO_TRY(widen_input(call));
        }
        call->uses_entries = c->nranks <= KOLO_WHOLE_PLAN_RANKS && !by_messages(call) &&
                             bytes_per_rank(call) >= KOLO_ENTRY_BYTES && c->mapper != NULL;
        call->started = true;
    }
    if (call->uses_entries) {
        const kolo_status st = publish_entry(call, block);
        if (st != KOLO_OK) {
            return st;
        }
    }
    call->state = call->uses_entries ? KOLO_CALL_ENTRIES : KOLO_CALL_LOWER;
    return KOLO_OK;
}

static kolo_status do_lower(struct kolo_call *call)
{
    const struct kolo_plan *plan = NULL;
    KOLO_TRY(find_plan(call->comm, call->algo, call->root, &plan));
    KOLO_TRY(find_prog(call, plan));
    call->state = KOLO_CALL_SLOTS;
    return KOLO_OK;
}

/* A rank whose messages I pull from user memory may have no outbox at all: do not wait for it. */
static bool reads_outbox_of(const struct kolo_prog *prog, int q)
{
    bool reads = false;
    for (uint32_t i = 0; i < prog->nats && !reads; i++) {
        const struct kolo_at *at = &prog->at[i];
        reads = at->space == KOLO_AT_OUTBOX && at->rank == q && at->count > 0;
    }
    return reads;
}

/* My outbox, and those of the ranks I read from, before the first program that uses them is bound.
 */
static kolo_status map_outboxes(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    pthread_mutex_lock(&c->device_lock);
    kolo_status st = kolo_comm_make_slots(c);
    pthread_mutex_unlock(&c->device_lock);
    for (; st == KOLO_OK && call->next < call->prog->nsources; call->next += st == KOLO_OK) {
        const int q = call->prog->sources[call->next];
        if (c->member[q].in_slots || !reads_outbox_of(call->prog, q)) {
            continue;
        }
        if (block) {
            KOLO_TRY(kolo_wait(&c->wires, &c->wires.region[q]->head.slots_ready, 1, q));
        }
        pthread_mutex_lock(&c->device_lock);
        st = kolo_comm_map_slots(c, q);
        pthread_mutex_unlock(&c->device_lock);
    }
    return st;
}

static kolo_status bind_call(struct kolo_call *call, bool block, struct kolo_bound **out)
{
    struct kolo_comm *c = call->comm;
    const struct kolo_plan *plan = call->prog->plan;
    const struct kolo_sizes sizes = sizes_of(call);
    struct kolo_extents extents;
    size_t *arrays = NULL, piece = 0;
    uint32_t tiles = 0;
    bool inlined = false;
    KOLO_TRY(kolo_extents_make(plan, c->rank, &sizes, &extents, &arrays));
    extents.one_tile = by_messages(call);
    kolo_tile(plan, &extents, c->wires.slot_bytes, &piece, &tiles, &inlined);
    kolo_status st = call->prog->uses_outbox && !inlined ? map_outboxes(call, block) : KOLO_OK;
    st = st == KOLO_OK ? kolo_bind(call->prog, &extents, &c->wires, out) : st;
    free(arrays);
    return st;
}

static void memo_forget(struct kolo_comm *c, const struct kolo_bound *bound)
{
    for (int i = 0; i < KOLO_MEMOS; i++) {
        if (c->memo[i].bound == bound) {
            c->memo[i].bound = NULL;
        }
    }
}

/* The bound program: the least recently used one of the cache makes room. */
static kolo_status find_bound(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    struct kolo_cached_bound *oldest = &c->bounds[0];
    if (call->v.all != NULL) {
        const kolo_status st = bind_call(call, block, &call->own_bound);
        call->bound = call->own_bound;
        return st;
    }
    for (int i = 0; i < KOLO_BOUND_CACHE; i++) {
        struct kolo_cached_bound *b = &c->bounds[i];
        if (b->prog == call->prog && b->count == call->count && b->elem == call->run_elem) {
            b->used = ++c->uses;
            call->bound = b->bound;
            return KOLO_OK;
        }
        oldest = b->used < oldest->used ? b : oldest;
    }
    struct kolo_bound *bound = NULL;
    const kolo_status st = bind_call(call, block, &bound);
    if (st == KOLO_OK) {
        memo_forget(c, oldest->bound);
        kolo_bound_destroy(oldest->bound);
        *oldest =
            (struct kolo_cached_bound){call->prog, call->count, call->run_elem, ++c->uses, bound};
        call->bound = bound;
    }
    return st;
}

static kolo_status start_exec(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->comm;
    call->exec = (struct kolo_exec){.wires = &c->wires,
                                    .bound = call->bound,
                                    .in = run_in(call),
                                    .out = run_out(call),
                                    .elem = call->run_elem,
                                    .signature = call->signature,
                                    .block = block};
    if (reduces(call)) {
        call->exec.reduce = kolo_reduce_kernel(call->wide ? KOLO_FLOAT32 : call->type, call->op);
        call->exec.divisor = call->op == KOLO_AVG ? (unsigned)c->nranks : 0;
    }
    KOLO_TRY(kolo_exec_start(&call->exec));
    call->state = KOLO_CALL_RUN;
    return KOLO_OK;
}

static kolo_status do_slots(struct kolo_call *call, bool block)
{
    const kolo_status st = find_bound(call, block);
    if (st != KOLO_OK) {
        return st;
    }
    call->signature = signature(call);
    memo_learn(call);
    return start_exec(call, block);
}

static kolo_status do_run(struct kolo_call *call)
{
    struct kolo_comm *c = call->comm;
    const bool messages = call->prog->nreqs > 0;
    if (messages) {
        pthread_mutex_lock(&c->device_lock);
    }
    const kolo_status st = kolo_exec_step(&call->exec);
    if (messages) {
        pthread_mutex_unlock(&c->device_lock);
    }
    if (st == KOLO_OK && call->wide_out != NULL && has_out(call)) {
        kolo_narrow(call->type, call->out, call->wide_out, span_of(call, false));
    }
    return st;
}

/* One rank: the result is its own input, through the operation (which makes truth values 0 or 1).
 */
static kolo_status run_alone(struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->type);
    const size_t *all = call->v.all;
    const char *in = call->in;
    char *out = call->out;
    size_t count = call->count;
    if (call->coll == KOLO_COLL_BARRIER) {
        return KOLO_OK;
    }
    if (reduces(call) && call->op >= KOLO_OPS) {
        KOLO_TRY(scale_input(call));
        in = call->in;
    }
    if (all != NULL) {
        const bool in_one = call->coll == KOLO_COLL_GATHER || call->coll == KOLO_COLL_ALL_GATHER;
        const bool out_one =
            call->coll == KOLO_COLL_SCATTER || call->coll == KOLO_COLL_REDUCE_SCATTER;
        count = all[0];
        in += in_one ? 0 : all[1] * elem;
        out += (out_one ? 0 : call->coll == KOLO_COLL_ALL_TO_ALL ? all[3] : all[1]) * elem;
    }
    if (reduces(call)) {
        const void *src[1] = {in};
        kolo_reduce_kernel(call->type, call->op)(out, src, 1, count, 0);
    } else if (in != out && count > 0) {
        memcpy(out, in, count * elem);
    }
    return KOLO_OK;
}

kolo_status kolo_call_step(struct kolo_call *call, bool block)
{
    kolo_status st = KOLO_OK;
    if (call->comm->nranks == 1) {
        return run_alone(call);
    }
    if (call->state == KOLO_CALL_CHOOSE && memo_knows(call)) {
        st = start_exec(call, block);
    }
    while (st == KOLO_OK) {
        switch (call->state) {
        case KOLO_CALL_CHOOSE:
            st = do_choose(call, block);
            break;
        case KOLO_CALL_ENTRIES:
            st = wait_entries(call, block);
            call->state = st == KOLO_OK ? KOLO_CALL_LOWER : call->state;
            break;
        case KOLO_CALL_LOWER:
            st = do_lower(call);
            break;
        case KOLO_CALL_SLOTS:
            st = do_slots(call, block);
            break;
        case KOLO_CALL_RUN:
            st = do_run(call);
            if (st == KOLO_OK) {
                return KOLO_OK;
            }
            if (st == KOLO_INPROGRESS &&
                block) { /* lanes or messages: several things to wait for */
                st = kolo_pause(&call->comm->wires, &call->spins, &call->deadline);
            }
            break;
        }
    }
    return st;
}

/* After an error messages may still be in flight: links were aborted, progress ends the requests.
 * What a transport does not give back is left to it. */
static void end_messages(struct kolo_call *call)
{
    struct kolo_comm *c = call->comm;
    const size_t n = call->exec.req != NULL ? (size_t)KOLO_DEPTH * call->prog->nreqs : 0;
    bool pending = n > 0;
    for (int tries = 0; pending && tries < 100; tries++) {
        pthread_mutex_lock(&c->device_lock);
        for (int i = 0; i < c->nopened; i++) {
            (void)c->opened[i].transport->progress(c->opened[i].device, 64);
        }
        pthread_mutex_unlock(&c->device_lock);
        pending = false;
        for (size_t i = 0; i < n; i++) {
            const struct kolo_req *req = &call->exec.req[i];
            pending =
                pending || (req->bytes + req->data.bytes > 0 && req->status == KOLO_INPROGRESS);
        }
    }
    if (pending) {
        call->exec.req = NULL;
    }
}

void kolo_call_close(struct kolo_call *call)
{
    end_messages(call);
    kolo_exec_stop(&call->exec);
    kolo_bound_destroy(call->own_bound);
    free(call->message);
    free(call->v.all);
    free(call->scaled);
    free(call->wide_in);
    free(call->wide_out);
    call->own_bound = NULL;
    call->message = NULL;
    call->v.all = NULL;
    call->scaled = call->wide_in = call->wide_out = NULL;
}

/* ---- checks ---- */

static bool overlap(const void *a, size_t na, const void *b, size_t nb)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return na > 0 && nb > 0 && x < y + nb && y < x + na;
}

/* The place where one buffer may lie in the other, in elements; see kolo.h. */
static bool in_place(const struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->type), r = (size_t)call->comm->rank;
    const size_t off =
        (call->v.all != NULL ? call->v.all[(size_t)call->comm->nranks + r] : r * call->count) *
        elem;
    const char *in = call->in, *out = call->out;
    switch (call->coll) {
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return in == out + off;
    case KOLO_COLL_SCATTER:
    case KOLO_COLL_REDUCE_SCATTER:
        return out == in + off;
    case KOLO_COLL_ALL_TO_ALL:
        return in == out && call->v.all == NULL;
    default:
        return in == out;
    }
}

static kolo_status check_buffers(const struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->type);
    const size_t nin = span_of(call, true) * elem, nout = span_of(call, false) * elem;
    if (has_in(call) && call->in == NULL && nin > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "send is NULL; %zu bytes are to be read from it", nin);
    }
    if (has_out(call) && call->out == NULL && nout > 0) {
        return kolo_fail(KOLO_ERR_INVALID, "recv is NULL; %zu bytes are to be written to it", nout);
    }
    if (has_in(call) && has_out(call) && overlap(call->in, nin, call->out, nout) &&
        !in_place(call)) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "send (%p, %zu bytes) and recv (%p, %zu bytes) overlap partly; they must be apart "
            "or in place as kolo.h says",
            call->in, nin, call->out, nout);
    }
    return KOLO_OK;
}

static kolo_status check_op(const struct kolo_call *call)
{
    if (call->op >= KOLO_OPS) {
        const struct kolo_premulsum *p = kolo_premulsum_find(call->comm, call->op);
        if (p == NULL) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "op is %u, which is no operation of this communicator", call->op);
        }
        if (p->type != call->type) {
            return kolo_fail(KOLO_ERR_INVALID, "op is a premulsum of %s, type is %s",
                             kolo_type_name(p->type), kolo_type_name(call->type));
        }
        return KOLO_OK;
    }
    if (!kolo_op_valid(call->type, call->op)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "op %s makes no sense on type %s; kolo.h lists the pairs at kolo_op",
                         kolo_op_name(call->op), kolo_type_name(call->type));
    }
    return KOLO_OK;
}

kolo_status kolo_call_check(const struct kolo_call *call)
{
    KOLO_TRY(kolo_comm_usable(call->comm));
    if (call->coll == KOLO_COLL_BARRIER) {
        return KOLO_OK;
    }
    const size_t elem = kolo_type_bytes(call->type);
    if (elem == 0) {
        return kolo_fail(KOLO_ERR_INVALID, "type is %d; it must be 0 to %d", (int)call->type,
                         KOLO_TYPES - 1);
    }
    const size_t most = (size_t)PTRDIFF_MAX / elem / (size_t)call->comm->nranks;
    if (call->count > most) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "count is %zu; %d blocks of so many %s overflow (at most %zu)",
                         call->count, call->comm->nranks, kolo_type_name(call->type), most);
    }
    if (call->root < 0 || call->root >= call->comm->nranks) {
        return kolo_fail(KOLO_ERR_INVALID, "root is %d; it must be 0 to %d", call->root,
                         call->comm->nranks - 1);
    }
    if (reduces(call)) {
        KOLO_TRY(check_op(call));
    }
    return check_buffers(call);
}
