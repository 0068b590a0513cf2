// SPDX-License-Identifier: Apache-2.0
/* A call's plan, its program for the links of this call, and the program bound to its bytes. Each
 * comes from a cache of the communicator if an earlier call made it. */
#include "core/call/memo.h"
#include "core/call/parts.h"
#include "core/link/links.h"
#include "core/link/region.h"
#include "exec/cpu/bound.h"
#include "exec/cpu/region.h"
#include "exec/cpu/wait.h"
#include "plan/verify/verify.h"

#include <stdlib.h>

/* ---- plans and programs, cached ---- */

struct kolo_shape kolo_comm_shape(const struct kolo_comm *c, enum kolo_coll coll, int root)
{
    return (struct kolo_shape){.size = sizeof(struct kolo_shape),
                               .coll = coll,
                               .nranks = c->ranks.nranks,
                               .root = root,
                               .order = c->layout.order,
                               .nlevels = c->layout.groups.nlevels,
                               .group = c->layout.groups.group,
                               .nrings = c->layout.nrings,
                               .ntrees = c->layout.ntrees,
                               .tree = c->layout.tree};
}

kolo_status kolo_call_find_plan(struct kolo_comm *c, const struct kolo_algo *algo, int root,
                                const struct kolo_plan **out)
{
    struct kolo_cached_plan *found = c->programs.plans;
    while (found != NULL && (found->algo != algo || found->root != root)) {
        found = found->next;
    }
    if (found == NULL) {
        const struct kolo_shape shape = kolo_comm_shape(c, algo->coll, root);
        struct kolo_plan *plan = NULL;
        KOLO_TRY(kolo_plan_build(
            algo, &shape, c->ranks.nranks <= KOLO_WHOLE_PLAN_RANKS ? -1 : c->ranks.rank, &plan));
        const bool proved = c->options.verifies != 0 && plan->only < 0;
        kolo_status st = proved ? kolo_verify_plan(plan) : KOLO_OK;
        found = malloc(sizeof *found);
        if (st == KOLO_OK && found == NULL) {
            st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a plan");
        }
        if (st != KOLO_OK) {
            free(found);
            kolo_plan_destroy(plan);
            return st;
        }
        *found = (struct kolo_cached_plan){c->programs.plans, algo, root, plan};
        c->programs.plans = found;
    }
    *out = found->plan;
    return KOLO_OK;
}

/* The memory that rank q and this rank can reach of each other in this call. Both ends compute the
 * same bits. */
static uint8_t link_bits(const struct kolo_call *call, int q)
{
    const struct kolo_comm *c = call->base.comm;
    const struct kolo_member *m = &c->member[q];
    uint8_t bits = 0;
    if (!m->maps) {
        return 0;
    }
    bits = KOLO_LINK_MAP;
    if (!call->uses_entries) {
        return bits;
    }
    const uint32_t at = c->links.exec_env.entries % KOLO_ENTRY_LINES;
    const struct kolo_entry *mine = &c->links.exec_env.region[c->ranks.rank]->entry[at];
    const struct kolo_entry *theirs = &c->links.exec_env.region[q]->entry[at];
    const bool threads = m->peer.process == c->member[c->ranks.rank].peer.process;
    bits |= threads || theirs->in_shared ? KOLO_LINK_PEER_IN : 0;
    bits |= threads || theirs->out_shared ? KOLO_LINK_PEER_OUT : 0;
    bits |= threads || mine->in_shared ? KOLO_LINK_MY_IN : 0;
    bits |= threads || mine->out_shared ? KOLO_LINK_MY_OUT : 0;
    bits |= theirs->apart ? KOLO_LINK_PEER_APART : 0;
    bits |= mine->apart ? KOLO_LINK_MY_APART : 0;
    return bits;
}

static kolo_status make_prog(struct kolo_comm *c, const struct kolo_plan *plan, const uint8_t *bits,
                             uint64_t hash, const struct kolo_prog **out)
{
    struct kolo_cached_prog *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a program");
    }
    kolo_status st = kolo_lower(plan, c->ranks.rank, bits, &made->prog);
    if (st != KOLO_OK) {
        free(made);
        return st;
    }
    const struct kolo_rank_plan *mine = &plan->rank[c->ranks.rank];
    pthread_mutex_lock(&c->links.lock);
    st = kolo_region_reserve(c, mine->phases);
    for (int i = 0; i < mine->count && st == KOLO_OK; i++) {
        st = mine->step[i].peer >= 0 ? kolo_links_reach(c, mine->step[i].peer) : KOLO_OK;
    }
    pthread_mutex_unlock(&c->links.lock);
    if (st != KOLO_OK) {
        kolo_prog_destroy(made->prog);
        free(made);
        return st;
    }
    made->plan = plan;
    made->links = hash;
    made->next = c->programs.progs;
    c->programs.progs = made;
    *out = made->prog;
    return KOLO_OK;
}

kolo_status kolo_call_find_prog(struct kolo_call *call, const struct kolo_plan *plan)
{
    struct kolo_comm *c = call->base.comm;
    uint8_t few[KOLO_WHOLE_PLAN_RANKS];
    uint8_t *bits =
        c->ranks.nranks <= KOLO_WHOLE_PLAN_RANKS ? few : malloc((size_t)c->ranks.nranks);
    kolo_status st = KOLO_OK;
    if (bits == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d links", c->ranks.nranks);
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        bits[q] = q == c->ranks.rank || call->extent.by_messages ? 0 : link_bits(call, q);
    }
    const uint64_t hash = kolo_hash(0, bits, (size_t)c->ranks.nranks);
    const struct kolo_cached_prog *found = c->programs.progs;
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

void kolo_call_forget(struct kolo_comm *c)
{
    kolo_memo_destroy(c);
    for (int i = 0; c->programs.bounds != NULL && i < KOLO_BOUNDS; i++) {
        kolo_bound_destroy(c->programs.bounds[i].bound);
    }
    free(c->programs.bounds);
    c->programs.bounds = NULL;
    while (c->programs.progs != NULL) {
        struct kolo_cached_prog *next = c->programs.progs->next;
        kolo_prog_destroy(c->programs.progs->prog);
        free(c->programs.progs);
        c->programs.progs = next;
    }
    while (c->programs.plans != NULL) {
        struct kolo_cached_plan *next = c->programs.plans->next;
        kolo_plan_destroy(c->programs.plans->plan);
        free(c->programs.plans);
        c->programs.plans = next;
    }
    kolo_op_forget(c);
}

/* ---- binding ---- */

/* Whether the program reads rank q's outbox. A rank whose messages are pulled from user memory may
 * have no outbox at all: do not wait for it. */
static bool reads_outbox_of(const struct kolo_prog *prog, int q)
{
    bool reads = false;
    for (uint32_t i = 0; i < prog->nats && !reads; i++) {
        const struct kolo_at *at = &prog->at[i];
        reads = at->space == KOLO_AT_OUTBOX && at->rank == q && at->count > 0;
    }
    return reads;
}

/* Map this rank's outbox, and the outboxes that it reads from, before the first program that uses
 * them is bound. */
static kolo_status map_outboxes(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->base.comm;
    pthread_mutex_lock(&c->links.lock);
    kolo_status st = kolo_links_make_outbox(c);
    pthread_mutex_unlock(&c->links.lock);
    for (; st == KOLO_OK && call->next < call->prog->nsources; call->next += st == KOLO_OK) {
        const int q = call->prog->sources[call->next];
        if (c->member[q].in_slots || !reads_outbox_of(call->prog, q)) {
            continue;
        }
        if (block) {
            KOLO_TRY(kolo_wait(&c->links.exec_env, &c->links.exec_env.region[q]->head.slots_ready,
                               1, q));
        }
        pthread_mutex_lock(&c->links.lock);
        st = kolo_links_map_outbox(c, q);
        pthread_mutex_unlock(&c->links.lock);
    }
    return st;
}

static kolo_status bind_call(struct kolo_call *call, bool block, struct kolo_bound **out)
{
    struct kolo_comm *c = call->base.comm;
    const struct kolo_plan *plan = call->prog->plan;
    struct kolo_extents extents;
    size_t *arrays = NULL, piece = 0;
    uint32_t tiles = 0;
    bool inlined = false;
    struct kolo_coll_args args = call->args;
    args.count = kolo_call_run_elems(call, args.count);
    KOLO_TRY(kolo_extents_make(plan, c->ranks.rank, &args, call->run_elem, &extents, &arrays));
    extents.one_tile = call->extent.by_messages;
    extents.tile_bytes = call->tile_bytes;
    kolo_tile(plan, &extents, c->links.exec_env.slot_bytes, &piece, &tiles, &inlined);
    kolo_status st = call->prog->uses_outbox && !inlined ? map_outboxes(call, block) : KOLO_OK;
    st = st == KOLO_OK ? kolo_bind(call->prog, &extents, &c->links.exec_env, out) : st;
    free(arrays);
    if (st != KOLO_OK || !(*out)->in_long) {
        return st;
    }
    pthread_mutex_lock(&c->links.lock);
    st = kolo_links_reserve_long(c);
    pthread_mutex_unlock(&c->links.lock);
    if (st != KOLO_OK) {
        kolo_bound_destroy(*out);
        *out = NULL;
    }
    return st;
}

/* The first of the places where a bound program may be. */
static struct kolo_cached_bound *places_of(const struct kolo_call *call, size_t count)
{
    const uintptr_t prog = (uintptr_t)call->prog / sizeof(void *);
    const uint64_t hash = ((uint64_t)prog ^ (uint64_t)count * 64 ^ (uint64_t)call->run_elem ^
                           (uint64_t)call->tile_bytes << 20) *
                          UINT64_C(0x9E3779B97F4A7C15);
    const size_t set = (size_t)(hash >> 40) % (KOLO_BOUNDS / KOLO_BOUND_WAYS);
    return &call->base.comm->programs.bounds[set * KOLO_BOUND_WAYS];
}

/* The bound program: the least recently used one of its places makes room. */
kolo_status kolo_call_find_bound(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->base.comm;
    const size_t count = kolo_call_run_elems(call, call->args.count);
    if (call->args.v.all != NULL) {
        const kolo_status st = bind_call(call, block, &call->own_bound);
        call->bound = call->own_bound;
        return st;
    }
    struct kolo_cached_bound *place = places_of(call, count), *oldest = place;
    for (int i = 0; i < KOLO_BOUND_WAYS; i++) {
        struct kolo_cached_bound *b = &place[i];
        if (b->prog == call->prog && b->count == count && b->elem == call->run_elem &&
            b->tile_bytes == call->tile_bytes) {
            b->used = ++c->programs.uses;
            call->cached = b;
            call->bound = b->bound;
            return KOLO_OK;
        }
        oldest = b->used < oldest->used ? b : oldest;
    }
    struct kolo_bound *bound = NULL;
    const kolo_status st = bind_call(call, block, &bound);
    if (st == KOLO_OK) {
        kolo_memo_forget(c, oldest);
        kolo_bound_destroy(oldest->bound);
        *oldest = (struct kolo_cached_bound){.prog = call->prog,
                                             .count = count,
                                             .elem = call->run_elem,
                                             .tile_bytes = call->tile_bytes,
                                             .used = ++c->programs.uses,
                                             .bound = bound};
        call->cached = oldest;
        call->bound = bound;
    }
    return st;
}

void kolo_call_force(struct kolo_comm *comm, const struct kolo_algo *algo, size_t tile_bytes)
{
    kolo_memo_forget(comm, NULL);
    kolo_chooser_force(comm->selection.chooser, algo, tile_bytes);
}
