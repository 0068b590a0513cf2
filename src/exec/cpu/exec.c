// SPDX-License-Identifier: Apache-2.0
/* The host executor: an interpreter of bound programs.
 *
 * A lane runs its stages as a pipeline. In iteration i, stage s works on tile i-s, the last stage
 * first. So a tile's first sends leave before the lane waits for the answers to the tile before,
 * and the lane writes a slot late.
 *
 * Without x->block, kolo_exec_step() stops at a wait that is not satisfied. The next call goes on
 * from there. A lane's state is {iteration, stage, op}.
 */
#include "exec/cpu/parts.h"
#include "exec/cpu/signal.h"

#include <stdlib.h>
#include <string.h>

/* ---- operations ---- */

static kolo_status do_wait(struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    const struct kolo_bound_at *at = &x->bound->at[op->first];
    for (unsigned i = 0; i < op->nsrc; i++) {
        struct kolo_line *line = (struct kolo_line *)(at[i].at + tile->shift[K_LINE]);
        KOLO_AWAIT(wait_for(x, &line->epoch, tile->epoch + 1, (int)at[i].rank));
        if (KOLO_UNLIKELY(line->chain != x->chain)) {
            return kolo_mismatch(x->env, (int)at[i].rank);
        }
        saw_done(x->env, (int)at[i].rank, line->done);
    }
    return KOLO_OK;
}

static void do_signal(struct kolo_exec *x, const struct kolo_bound_op *op, const struct tile *tile)
{
    struct kolo_exec_env *env = x->env;
    struct kolo_line *line = (struct kolo_line *)(x->bound->at[op->first].at + tile->shift[K_LINE]);
    if (KOLO_UNLIKELY(env->jitter != NULL)) {
        env->jitter(env->jitter_arg);
    }
    struct kolo_head *own = &env->region[env->me]->head;
    const uint32_t done = atomic_load_explicit(&own->done, memory_order_relaxed);
    kolo_line_publish(line, x->chain, done, tile->epoch, own);
}

static inline struct kolo_req *request(const struct kolo_exec *x, const struct tile *tile, size_t i)
{
    return &x->bound->req[tile->t % KOLO_TILE_COPIES * x->bound->prog->nreqs + i];
}

static kolo_status do_message(struct kolo_exec *x, const struct kolo_bound_op *op,
                              const struct tile *tile)
{
    const struct kolo_uop *uop = &x->bound->prog->op[op->uop];
    struct kolo_exec_env *env = x->env;
    struct kolo_req *req = request(x, tile, op->index);
    const size_t bytes = uop->count == 1 ? kolo_bound_piece_bytes(x->bound, op, 0, tile->t)
                                         : uop->count * x->bound->piece;
    const struct kolo_bytes data = {.at = address(x, tile, &x->bound->at[op->first]),
                                    .bytes = bytes,
                                    .count = 1,
                                    .stride = bytes};
    *req = (struct kolo_req){.channel = uop->channel,
                             .status = KOLO_INPROGRESS,
                             .exclusive = uop->lent,
                             .float_bytes = x->float_bytes,
                             .call = x->call};
    if (KOLO_UNLIKELY(env->jitter != NULL)) {
        env->jitter(env->jitter_arg);
    }
    const kolo_status st = op->code == KOLO_DO_SEND
                               ? env->transport[op->peer]->send(env->link[op->peer], &data, req)
                               : env->transport[op->peer]->recv(env->link[op->peer], &data, req);
    if (st < 0) {
        req->status = st; /* the message is not in flight */
        return st;
    }
    return KOLO_OK;
}

/* How the message for or from rank `q` stands. MISMATCH also if its sender is in another call. */
static kolo_status check_message(const struct kolo_exec *x, const struct kolo_req *req, int q)
{
    struct kolo_exec_env *env = x->env;
    const bool differs = req->status == KOLO_OK && req->call.chain != 0 && /* 0: it does not say */
                         req->call.chain != x->call.chain;
    if (KOLO_LIKELY(req->status == KOLO_OK && !differs)) {
        return KOLO_OK;
    }
    env->stuck_at = q;
    if (differs || req->status == KOLO_ERR_MISMATCH) {
        env->came = req->call;
        return kolo_mismatch(env, q);
    }
    env->blamed = req->status < 0 ? q : env->blamed;
    return req->status;
}

static kolo_status all_taken(const struct kolo_exec *x, const struct kolo_bound_op *op,
                             const struct tile *tile)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const struct kolo_bound_at *at = &x->bound->at[op->first + i];
        KOLO_AWAIT(check_message(x, request(x, tile, at->at), (int)at->rank));
    }
    return KOLO_OK;
}

static kolo_status all_sent(const struct kolo_exec *x, const struct tile *tile, uint32_t lane)
{
    const struct kolo_prog *p = x->bound->prog;
    if (KOLO_LIKELY(p->nreqs == 0)) {
        return KOLO_OK;
    }
    for (uint32_t i = p->lane[lane].begin; i < p->lane[lane].end; i++) {
        if (p->op[i].code != KOLO_DO_SEND) {
            continue;
        }
        KOLO_AWAIT(check_message(x, request(x, tile, p->op[i].index), p->op[i].peer));
    }
    return KOLO_OK;
}

/* This lane reads nothing more of this tile. The rank has finished the tile when all its lanes
 * have. */
static kolo_status do_done(struct kolo_exec *x, const struct tile *tile, uint32_t lane)
{
    struct kolo_exec_env *env = x->env;
    const uint32_t nlanes = (uint32_t)x->bound->prog->nlanes;
    uint32_t least = tile->t + 1;
    KOLO_AWAIT(all_sent(x, tile, lane));
    for (uint32_t i = 0; KOLO_UNLIKELY(nlanes > 1) && i < nlanes; i++) {
        least = i != lane && x->lane[i].tile < least ? x->lane[i].tile : least;
    }
    x->lane[lane].tile = tile->t + 1;
    atomic_store_explicit(&env->region[env->me]->head.done, env->epoch + least,
                          memory_order_release);
    kolo_wake(&env->region[env->me]->head);
    return KOLO_OK;
}

static kolo_status do_left(struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const int q = (int)x->bound->at[op->first + i].rank;
        KOLO_AWAIT(wait_for(x, &x->env->region[q]->head.done, tile->epoch + 1, q));
    }
    return KOLO_OK;
}

static bool is_after(const struct kolo_exec *x, const struct kolo_bound_op *op, uint32_t t)
{
    const struct kolo_lane_state *other = &x->lane[op->peer];
    return other->tile > t || (other->tile == t && other->pc >= op->index);
}

static inline kolo_status do_op(struct kolo_exec *x, const struct kolo_bound_op *op,
                                const struct tile *tile, uint32_t lane)
{
    switch ((enum kolo_code)op->code) {
    case KOLO_DO_WAIT:
        return do_wait(x, op, tile);
    case KOLO_DO_MOVE:
        return kolo_exec_move(x, op, tile);
    case KOLO_DO_SIGNAL:
        do_signal(x, op, tile);
        return KOLO_OK;
    case KOLO_DO_SEND:
    case KOLO_DO_RECV:
        return do_message(x, op, tile);
    case KOLO_DO_TAKEN:
        return all_taken(x, op, tile);
    case KOLO_DO_AFTER:
        return is_after(x, op, tile->t) ? KOLO_OK : KOLO_INPROGRESS;
    case KOLO_DO_DONE:
        return do_done(x, tile, lane);
    case KOLO_DO_LEFT:
        return do_left(x, op, tile);
    }
    return KOLO_ERR_INTERNAL;
}

/* ---- lanes ---- */

static inline void set_tile(const struct kolo_exec *x, uint32_t t, struct tile *out)
{
    const struct kolo_bound *b = x->bound;
    const uintptr_t walked = (uintptr_t)t * b->piece;
    const uint32_t epoch = x->env->epoch + t;
    const uint32_t parity = epoch & ((uint32_t)b->prog->depth - 1);
    *out = (struct tile){.t = t, .epoch = epoch, .last = t + 1 == b->tiles};
    out->shift[K_IN] = (uintptr_t)x->in + walked;
    out->shift[K_OUT] = (uintptr_t)x->out + walked;
    out->shift[K_PRIVATE] =
        (uintptr_t)b->private_mem + (b->tiles > 1 ? t % KOLO_TILE_COPIES * b->private_bytes : 0);
    out->shift[K_SLOT] = kolo_slot_shift(b, epoch);
    out->shift[K_LINE] = parity * sizeof(struct kolo_line);
    out->shift[K_PEER_IN] = out->shift[K_PEER_OUT] = walked;
}

/* A tile may begin when its lines and slots are free, and no lane is two tiles behind. */
static kolo_status begin_tile(struct kolo_exec *x, uint32_t t)
{
    struct kolo_exec_env *env = x->env;
    const struct kolo_prog *p = x->bound->prog;
    const uint32_t epoch = env->epoch + t;
    for (int i = 0; i < p->nlanes; i++) {
        if (p->nlanes > 1 && x->lane[i].tile + 1 < t) {
            return KOLO_INPROGRESS;
        }
    }
    if (p->nlanes > 1 && t < x->begun) { /* the first lane already took the lines and slots */
        return KOLO_OK;
    }
    kolo_status st = kolo_credit(env, epoch, x->block);
    if (st == KOLO_OK && x->bound->in_long && p->fills_outbox) {
        st = kolo_take_long_slot(env, p, epoch, x->block);
    }
    if (st == KOLO_OK) {
        env->readers[epoch % KOLO_DEPTH] = (struct kolo_readers){p->readers, p->nreaders};
        x->begun = t + 1;
    }
    return st;
}

/* Run ops until the stage ends or one must wait. */
static inline kolo_status run_stage(struct kolo_exec *x, uint32_t lane, uint32_t t, uint32_t end)
{
    struct kolo_lane_state *s = &x->lane[lane];
    struct tile tile;
    set_tile(x, t, &tile);
    while (s->pc < end) {
        const kolo_status st = do_op(x, &x->bound->op[s->pc], &tile, lane);
        if (KOLO_UNLIKELY(st != KOLO_OK)) {
            return st;
        }
        s->pc++;
    }
    return KOLO_OK;
}

static kolo_status advance_lane(struct kolo_exec *x, uint32_t lane)
{
    const struct kolo_lane_ops *ops = &x->bound->prog->lane[lane];
    struct kolo_lane_state *s = &x->lane[lane];
    const uint32_t stages = (uint32_t)ops->nstages, tiles = x->bound->tiles;
    for (; s->iter < tiles + stages - 1; s->iter++, s->slot = 0) {
        for (; s->slot < stages; s->slot++, s->begun = false) {
            const uint32_t stage = stages - 1 - s->slot;
            const uint32_t t = s->iter - stage; /* wraps while the pipeline fills */
            if (t >= tiles) {
                continue;
            }
            if (!s->begun) {
                if (stage == 0) {
                    KOLO_AWAIT(begin_tile(x, t));
                }
                s->begun = true;
                s->pc = ops->stage[stage];
            }
            KOLO_AWAIT(run_stage(x, lane, t, ops->stage[stage + 1]));
            x->moves++;
            s->pc = ops->begin; /* AFTER must not take this tile's pc for the next tile's */
        }
    }
    s->finished = true;
    return KOLO_OK;
}

/* ---- the execution ---- */

static inline void count_tiles(struct kolo_exec *x)
{
    x->env->epoch += x->bound->tiles;
    x->env->met += x->bound->prog->nreqs == 0 ? x->bound->tiles : 0;
}

static void begin_stores(struct kolo_exec *x)
{
    const struct kolo_store_use *use = &x->bound->stores;
    x->began_us = use->leads && kolo_store_times(x->env, use) ? kolo_now_us() : 0;
    x->past = x->bound->chooses && kolo_store_is_past(x->env, use);
}

static void end_stores(struct kolo_exec *x)
{
    if (x->began_us > 0) {
        kolo_store_learn(x->env, x->bound, x->began_us, kolo_now_us());
    }
}

bool kolo_exec_is_plain(const struct kolo_prog *prog)
{
    return prog->nlanes == 1 && prog->nreqs == 0;
}

/* A function of its own, so that the path of short calls saves no registers for it. */
static __attribute__((noinline)) kolo_status run_with_stores(struct kolo_exec *x)
{
    begin_stores(x);
    if (x->bound->once && x->env->jitter == NULL) {
        KOLO_TRY(kolo_exec_once(x));
    } else {
        x->lane[0] = (struct kolo_lane_state){0};
        KOLO_TRY(advance_lane(x, 0));
        count_tiles(x);
    }
    end_stores(x);
    return KOLO_OK;
}

kolo_status kolo_exec_now(struct kolo_exec *x)
{
    const struct kolo_bound *b = x->bound;
    if (KOLO_LIKELY(b->at_once && x->env->jitter == NULL)) {
        const struct kolo_exchange_how how = {x->reduce, x->divisor, x->signature};
        return b->exchange != NULL
                   ? kolo_exchange(x->env, b->exchange, x->in, x->out, &how, x->chain)
                   : kolo_exec_once(x);
    }
    return run_with_stores(x);
}

void kolo_exec_start(struct kolo_exec *x)
{
    const struct kolo_prog *p = x->bound->prog;
    memset(x->lane, 0, (size_t)p->nlanes * sizeof x->lane[0]);
    x->entered = p->nentries == 0;
    begin_stores(x);
    x->begun = 0;
    x->chain = kolo_chain(x->env, x->signature, x->call.number);
    x->call.chain = (uint32_t)(x->chain ^ x->chain >> 32) | 1;
    if (p->nreqs > 0 || p->nlanes > 1) {
        x->block = false; /* there are several waits at a time, so the caller steps */
    }
}

kolo_status kolo_exec_enter(struct kolo_exec *x)
{
    struct kolo_exec_env *env = x->env;
    const struct kolo_prog *p = x->bound->prog;
    for (int i = 0; !x->entered && i < p->nentries; i++) {
        const int q = p->entries[i];
        KOLO_AWAIT(kolo_entry_wait(env, q, x->block));
        const struct kolo_entry *entry = &env->region[q]->entry[env->entries % KOLO_ENTRY_LINES];
        if (entry->signature != x->signature) {
            return kolo_mismatch(env, q);
        }
        KOLO_TRY(env->resolve(env, q, entry));
    }
    x->entered = true;
    return KOLO_OK;
}

static kolo_status progress_messages(struct kolo_exec *x)
{
    struct kolo_exec_env *env = x->env;
    const struct kolo_endpoint *before = NULL;
    for (int q = 0; q < env->nranks; q++) {
        if (q == env->me || env->endpoint == NULL || env->endpoint[q] == NULL ||
            env->endpoint[q] == before) {
            continue;
        }
        before = env->endpoint[q];
        const int moved = env->transport[q]->progress(env->endpoint[q], 64);
        if (moved < 0) {
            return (kolo_status)moved;
        }
        x->moved = x->moved || moved > 0;
        x->moves += (unsigned)moved;
    }
    return KOLO_OK;
}

/* OK: all lanes have finished. */
static kolo_status advance(struct kolo_exec *x)
{
    const uint32_t nlanes = (uint32_t)x->bound->prog->nlanes;
    uint32_t finished = 0;
    for (uint32_t lane = 0; lane < nlanes; lane++) {
        const kolo_status st = x->lane[lane].finished ? KOLO_OK : advance_lane(x, lane);
        KOLO_TRY(st);
        finished += x->lane[lane].finished;
    }
    return finished == nlanes ? KOLO_OK : KOLO_INPROGRESS;
}

kolo_status kolo_exec_step(struct kolo_exec *x)
{
    if (!x->entered) {
        KOLO_AWAIT(kolo_exec_enter(x));
    }
    if (x->block && kolo_exec_is_plain(x->bound->prog) && x->bound->tiles == 1) {
        return kolo_exec_now(x);
    }
    x->moved = false;
    kolo_status st = advance(x);
    if (st == KOLO_INPROGRESS && x->bound->prog->nreqs > 0) { /* new posts need progress, too */
        KOLO_TRY(progress_messages(x));
        st = advance(x);
    }
    if (st == KOLO_OK) {
        count_tiles(x);
        end_stores(x);
    }
    return st;
}
