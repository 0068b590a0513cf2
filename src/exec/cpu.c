// SPDX-License-Identifier: Apache-2.0
/* The host executor: an interpreter of bound programs.
 *
 * A lane runs its stages as a pipeline: in iteration i, stage s works on tile i-s, the last stage
 * first, so that a tile's first sends leave before its predecessor's answers are awaited, and a
 * slot is written late. kolo_exec_step() stops where a wait is not satisfied (x->block unset) and
 * goes on from there; a lane's state is {iteration, stage, op}.
 */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

enum kind { K_FIXED, K_IN, K_OUT, K_PRIVATE, K_SLOT, K_LINE, K_PEER_IN, K_PEER_OUT, KINDS };
enum { BLOCK_BYTES = 32 * 1024, MAX_OPERANDS = 64 };

struct tile { /* one tile of one lane */
    uintptr_t shift[KINDS];
    uint32_t t, epoch;
    bool last;
};

static inline kolo_status wait_for(struct kolo_exec *x, _Atomic uint32_t *word, uint32_t want,
                                   int peer)
{
    if (KOLO_LIKELY(kolo_reached(word, want))) {
        return KOLO_OK;
    }
    return x->block ? kolo_wait(x->wires, word, want, peer) : KOLO_INPROGRESS;
}

/* ---- credits: may the lines and slots of tile `epoch` be written again? ---- */

static kolo_status credit(struct kolo_wires *w, uint32_t epoch, int depth, bool block)
{
    const uint32_t need = epoch + 1 - (uint32_t)depth;
    const int *list = w->readers[epoch % KOLO_DEPTH].list;
    for (int i = 0; i < w->readers[epoch % KOLO_DEPTH].count; i++) {
        const int q = list[i];
        if (KOLO_LIKELY((int32_t)(w->seen_done[q] - need) >= 0)) {
            continue;
        }
        _Atomic uint32_t *done = &w->region[q]->head.done;
        if (!kolo_reached(done, need)) {
            if (!block) {
                return KOLO_INPROGRESS;
            }
            KOLO_TRY(kolo_wait(w, done, need, q));
        }
        w->seen_done[q] = atomic_load_explicit(done, memory_order_acquire);
    }
    return KOLO_OK;
}

static inline void saw_done(struct kolo_wires *w, int q, uint32_t done)
{
    if ((int32_t)(done - w->seen_done[q]) > 0) {
        w->seen_done[q] = done;
    }
}

/* ---- operations ---- */

static inline char *address(const struct kolo_exec *x, const struct tile *tile,
                            const struct kolo_bound_at *at)
{
    const uintptr_t here = at->at + tile->shift[at->kind];
    if (at->kind < K_PEER_IN) {
        return (char *)here;
    }
    const struct kolo_wires *w = x->wires;
    const void *base = at->kind == K_PEER_IN ? w->peer_in[at->rank] : w->peer_out[at->rank];
    return (char *)((uintptr_t)base + here);
}

/* k sources, in order, into m destinations. Reduced a block at a time into the first destination
 * and copied on from there: storing to two streams from registers costs twice (measured). */
static void move_bytes(const struct kolo_exec *x, const struct kolo_bound_op *op, char *const *at,
                       size_t bytes)
{
    const unsigned k = op->nsrc, m = op->ndst;
    const unsigned divisor = op->last ? x->divisor : 0;
    const bool folds = k > 1 || divisor > 1;
    if (m == 1 && !folds) {
        if (at[k] !=
            at[0]) { /* in place a copy may be onto itself, and peers may be reading there */
            kolo_copy(at[k], at[0], bytes);
        }
        return;
    }
    if (m == 1) {
        x->reduce(at[k], (const void *const *)at, k, bytes / x->elem, divisor);
        return;
    }
    const size_t block = BLOCK_BYTES / x->elem * x->elem;
    for (size_t done = 0; done < bytes; done += block) {
        const size_t len = kolo_min(block, bytes - done);
        const char *from = at[0] + done;
        if (folds) {
            const void *src[MAX_OPERANDS];
            for (unsigned i = 0; i < k; i++) {
                src[i] = at[i] + done;
            }
            x->reduce(at[k] + done, src, k, len / x->elem, divisor);
            from = at[k] + done;
        }
        for (unsigned i = folds ? 1 : 0; i < m; i++) {
            if (at[k + i] + done != from) {
                kolo_copy(at[k + i] + done, from, len);
            }
        }
    }
}

/* Chunk by chunk: pieces that do not follow one another, or of several lengths. */
static void move_odd(const struct kolo_exec *x, const struct kolo_bound_op *op,
                     const struct tile *tile, char **at, char *const *base)
{
    const struct kolo_bound *b = x->bound;
    const struct kolo_uop *uop = &b->prog->op[op->uop];
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    for (uint32_t j = 0; j < uop->count; j++) {
        for (unsigned i = 0; i < n; i++) {
            const struct kolo_at *a = &b->prog->at[op->first + i];
            const bool in = a->space == KOLO_AT_IN || a->space == KOLO_AT_PEER_IN;
            const bool out = a->space == KOLO_AT_OUT || a->space == KOLO_AT_PEER_OUT;
            const size_t *off = in ? b->extents.in_off : b->extents.out_off;
            at[i] = base[i] + (in || out ? off[a->index + j] - off[a->index] : j * b->piece);
        }
        const size_t len = kolo_bound_piece_bytes(b, op, j, tile->t);
        if (len > 0) {
            move_bytes(x, op, at, len);
        }
    }
}

/* An op with very many sources (only plans of hundreds of ranks have them). */
static __attribute__((noinline)) bool
move_many(const struct kolo_exec *x, const struct kolo_bound_op *op, const struct tile *tile)
{
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    char **at = malloc(2 * n * sizeof *at);
    if (at == NULL) {
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        at[n + i] = address(x, tile, &x->bound->at[op->first + i]);
    }
    const size_t bytes = kolo_bound_piece_bytes(x->bound, op, 0, tile->t);
    if (op->odd || op->ndst == 1 || op->nsrc <= MAX_OPERANDS) {
        move_odd(x, op, tile, at, at + n);
    } else if (bytes > 0) { /* fold into the first, then copy */
        struct kolo_bound_op first = *op;
        first.ndst = 1;
        move_bytes(x, &first, at + n, bytes);
        for (unsigned i = 1; i < op->ndst; i++) {
            kolo_copy(at[n + op->nsrc + i], at[n + op->nsrc], bytes);
        }
    }
    free(at);
    return true;
}

static kolo_status do_move(struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    const unsigned n = (unsigned)op->nsrc + op->ndst;
    char *at[MAX_OPERANDS];
    if (KOLO_UNLIKELY(x->wires->jitter != NULL)) {
        x->wires->jitter(x->wires->jitter_arg);
    }
    if (KOLO_UNLIKELY(n > MAX_OPERANDS)) {
        return move_many(x, op, tile) ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    }
    const struct kolo_bound_at *operand = &x->bound->at[op->first];
    for (unsigned i = 0; i < n; i++) {
        at[i] = address(x, tile, &operand[i]);
    }
    if (KOLO_UNLIKELY(op->odd)) {
        char *each[MAX_OPERANDS];
        move_odd(x, op, tile, each, at);
        return KOLO_OK;
    }
    const size_t len = tile->last ? op->last_len : op->len;
    if (len > 0) {
        move_bytes(x, op, at, len);
    }
    return KOLO_OK;
}

static __attribute__((noinline, cold)) kolo_status mismatch(const struct kolo_wires *w, int q)
{
    return kolo_fail(KOLO_ERR_MISMATCH,
                     "ranks %d and %d are in different calls (collective, size, type, operation, "
                     "root or algorithm) in tile %u",
                     w->me, q, w->epoch);
}

static kolo_status do_wait(struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    const struct kolo_bound_at *at = &x->bound->at[op->first];
    for (unsigned i = 0; i < op->nsrc; i++) {
        struct kolo_line *line = (struct kolo_line *)(at[i].at + tile->shift[K_LINE]);
        const kolo_status st = wait_for(x, &line->epoch, tile->epoch + 1, (int)at[i].rank);
        if (st != KOLO_OK) {
            return st;
        }
        if (KOLO_UNLIKELY(line->signature != x->signature)) {
            return mismatch(x->wires, (int)at[i].rank);
        }
        saw_done(x->wires, (int)at[i].rank, line->done);
    }
    return KOLO_OK;
}

static void do_signal(struct kolo_exec *x, const struct kolo_bound_op *op, const struct tile *tile)
{
    struct kolo_wires *w = x->wires;
    struct kolo_line *line = (struct kolo_line *)(x->bound->at[op->first].at + tile->shift[K_LINE]);
    if (KOLO_UNLIKELY(w->jitter != NULL)) {
        w->jitter(w->jitter_arg);
    }
    line->signature = x->signature;
    line->done = atomic_load_explicit(&w->region[w->me]->head.done, memory_order_relaxed);
    atomic_store_explicit(&line->epoch, tile->epoch + 1, memory_order_release);
    kolo_wake(w, x->bound->prog->readers, x->bound->prog->nreaders);
}

static inline struct kolo_req *request(const struct kolo_exec *x, const struct tile *tile, size_t i)
{
    return &x->req[tile->t % KOLO_DEPTH * x->bound->prog->nreqs + i];
}

static kolo_status do_message(struct kolo_exec *x, const struct kolo_bound_op *op,
                              const struct tile *tile)
{
    const struct kolo_uop *uop = &x->bound->prog->op[op->uop];
    struct kolo_wires *w = x->wires;
    struct kolo_req *req = request(x, tile, op->index);
    const size_t bytes = uop->count == 1 ? kolo_bound_piece_bytes(x->bound, op, 0, tile->t)
                                         : uop->count * x->bound->piece;
    const struct kolo_bytes data = {.at = address(x, tile, &x->bound->at[op->first]),
                                    .bytes = bytes,
                                    .count = 1,
                                    .stride = bytes};
    *req = (struct kolo_req){.channel = uop->channel, .status = KOLO_INPROGRESS};
    if (KOLO_UNLIKELY(w->jitter != NULL)) {
        w->jitter(w->jitter_arg);
    }
    const kolo_status st = op->code == KOLO_DO_SEND
                               ? w->transport[op->peer]->send(w->link[op->peer], &data, req)
                               : w->transport[op->peer]->recv(w->link[op->peer], &data, req);
    return st < 0 ? st : KOLO_OK;
}

static kolo_status all_taken(const struct kolo_exec *x, const struct kolo_bound_op *op,
                             const struct tile *tile)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const kolo_status st = request(x, tile, x->bound->at[op->first + i].at)->status;
        if (st != KOLO_OK) {
            return st;
        }
    }
    return KOLO_OK;
}

static kolo_status all_sent(const struct kolo_exec *x, const struct tile *tile, uint32_t lane)
{
    const struct kolo_prog *p = x->bound->prog;
    for (uint32_t i = p->lane[lane].begin; p->nreqs > 0 && i < p->lane[lane].end; i++) {
        if (p->op[i].code != KOLO_DO_SEND) {
            continue;
        }
        const kolo_status st = request(x, tile, p->op[i].index)->status;
        if (st != KOLO_OK) {
            return st;
        }
    }
    return KOLO_OK;
}

/* This lane will read nothing more of this tile. The rank has finished it when all lanes have. */
static kolo_status do_done(struct kolo_exec *x, const struct tile *tile, uint32_t lane)
{
    struct kolo_wires *w = x->wires;
    uint32_t least = tile->t + 1;
    const kolo_status st = all_sent(x, tile, lane);
    if (st != KOLO_OK) {
        return st;
    }
    for (uint32_t i = 0; i < (uint32_t)x->bound->prog->nlanes; i++) {
        least = i != lane && x->lane[i].tile < least ? x->lane[i].tile : least;
    }
    x->lane[lane].tile = tile->t + 1;
    atomic_store_explicit(&w->region[w->me]->head.done, w->epoch + least, memory_order_release);
    kolo_wake(w, x->bound->prog->sources, x->bound->prog->nsources);
    return KOLO_OK;
}

static kolo_status do_left(struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const int q = (int)x->bound->at[op->first + i].rank;
        const kolo_status st = wait_for(x, &x->wires->region[q]->head.done, tile->epoch + 1, q);
        if (st != KOLO_OK) {
            return st;
        }
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
        return do_move(x, op, tile);
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
    const uint32_t epoch = x->wires->epoch + t;
    const uint32_t parity = epoch & ((uint32_t)b->prog->depth - 1);
    *out = (struct tile){.t = t, .epoch = epoch, .last = t + 1 == b->tiles};
    out->shift[K_IN] = (uintptr_t)x->in + walked;
    out->shift[K_OUT] = (uintptr_t)x->out + walked;
    out->shift[K_PRIVATE] =
        (uintptr_t)b->private_mem + (b->tiles > 1 ? t % KOLO_DEPTH * b->private_bytes : 0);
    out->shift[K_SLOT] = parity * x->wires->slot_bytes;
    out->shift[K_LINE] = parity * sizeof(struct kolo_line);
    out->shift[K_PEER_IN] = out->shift[K_PEER_OUT] = walked;
}

/* A tile may begin when its lines and slots are free, and no lane is two tiles behind. */
static kolo_status begin_tile(struct kolo_exec *x, uint32_t t)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_prog *p = x->bound->prog;
    const uint32_t epoch = w->epoch + t;
    for (int i = 0; i < p->nlanes; i++) {
        if (p->nlanes > 1 && x->lane[i].tile + 1 < t) {
            return KOLO_INPROGRESS;
        }
    }
    const kolo_status st = credit(w, epoch, KOLO_DEPTH, x->block);
    if (st == KOLO_OK) {
        w->readers[epoch % KOLO_DEPTH].list = p->readers;
        w->readers[epoch % KOLO_DEPTH].count = p->nreaders;
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
            const uint32_t t = s->iter - stage; /* wraps where the pipeline is not full */
            if (t >= tiles) {
                continue;
            }
            if (!s->begun) {
                kolo_status st = stage == 0 ? begin_tile(x, t) : KOLO_OK;
                if (st != KOLO_OK) {
                    return st;
                }
                s->begun = true;
                s->pc = ops->stage[stage];
            }
            const kolo_status st = run_stage(x, lane, t, ops->stage[stage + 1]);
            if (st != KOLO_OK) {
                return st;
            }
            s->pc = ops->begin; /* before the next tile begins, AFTER must not see this one's */
        }
    }
    s->finished = true;
    return KOLO_OK;
}

/* ---- entry ---- */

kolo_status kolo_entry_publish(struct kolo_wires *w, const struct kolo_entry *mine, bool block)
{
    struct kolo_entry *line = &w->region[w->me]->entry[w->epoch % KOLO_DEPTH];
    const kolo_status st = credit(w, w->epoch, KOLO_DEPTH, block);
    if (st != KOLO_OK) {
        return st;
    }
    memcpy(line->in, mine->in, sizeof line->in);
    memcpy(line->out, mine->out, sizeof line->out);
    line->in_at = mine->in_at;
    line->out_at = mine->out_at;
    line->in_shared = mine->in_shared;
    line->out_shared = mine->out_shared;
    line->signature = mine->signature;
    atomic_store_explicit(&line->epoch, w->epoch + 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    for (int q = 0; q < w->nranks; q++) {
        if (q != w->me && w->region[q] != NULL) {
            kolo_wake(w, &q, 1);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_entry_wait(struct kolo_wires *w, int q, bool block)
{
    _Atomic uint32_t *word = &w->region[q]->entry[w->epoch % KOLO_DEPTH].epoch;
    if (kolo_reached(word, w->epoch + 1)) {
        return KOLO_OK;
    }
    return block ? kolo_wait(w, word, w->epoch + 1, q) : KOLO_INPROGRESS;
}

/* ---- exchange: a call of up to 48 bytes as one operation ---- */

static inline void copy_small(char *dst, const char *src, size_t bytes)
{
    if (bytes == 8) {
        memcpy(dst, src, 8);
    } else if (bytes == 4) {
        memcpy(dst, src, 4);
    } else {
        memcpy(dst, src, bytes);
    }
}

/* What the five ops of the program do (bind.c: is_exchange), in their order. */
static kolo_status exchange(struct kolo_exec *x)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_bound *b = x->bound;
    const struct kolo_prog *p = b->prog;
    const struct kolo_bound_op *wait = &b->op[2], *move = &b->op[3];
    struct kolo_head *head = &w->region[w->me]->head;
    struct tile tile;
    char *at[MAX_OPERANDS];
    KOLO_TRY(begin_tile(x, 0));
    set_tile(x, 0, &tile);
    struct kolo_line *mine = (struct kolo_line *)(b->at[b->op[1].first].at + tile.shift[K_LINE]);
    copy_small(address(x, &tile, &b->at[b->op[0].first + 1]),
               address(x, &tile, &b->at[b->op[0].first]), b->op[0].last_len);
    mine->signature = x->signature;
    mine->done = tile.epoch;
    atomic_store_explicit(&mine->epoch, tile.epoch + 1, memory_order_release);
    kolo_wake(w, p->readers, p->nreaders);
    KOLO_TRY(do_wait(x, wait, &tile));
    for (unsigned i = 0; i < (unsigned)move->nsrc + 1; i++) {
        at[i] = address(x, &tile, &b->at[move->first + i]);
    }
    x->reduce(at[move->nsrc], (const void *const *)at, move->nsrc, move->last_len / x->elem,
              move->last ? x->divisor : 0);
    w->epoch++;
    atomic_store_explicit(&head->done, w->epoch, memory_order_release);
    kolo_wake(w, p->sources, p->nsources);
    return KOLO_OK;
}

/* ---- the execution ---- */

kolo_status kolo_exec_start(struct kolo_exec *x)
{
    const struct kolo_prog *p = x->bound->prog;
    memset(x->lane, 0, sizeof x->lane);
    x->entered = p->nentries == 0;
    x->req = NULL;
    if (p->nreqs > 0) {
        x->req = calloc((size_t)KOLO_DEPTH * p->nreqs, sizeof *x->req);
        if (x->req == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %u messages", p->nreqs);
        }
    }
    if (p->nreqs > 0 || p->nlanes > 1) {
        x->block = false; /* several things to wait for at once: the caller steps */
    }
    return KOLO_OK;
}

static kolo_status enter(struct kolo_exec *x)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_prog *p = x->bound->prog;
    for (int i = 0; i < p->nentries; i++) {
        const int q = p->entries[i];
        const kolo_status st = kolo_entry_wait(w, q, x->block);
        if (st != KOLO_OK) {
            return st;
        }
        const struct kolo_entry *entry = &w->region[q]->entry[w->epoch % KOLO_DEPTH];
        if (entry->signature != x->signature) {
            return mismatch(w, q);
        }
        KOLO_TRY(w->resolve(w, q, entry));
    }
    x->entered = true;
    return KOLO_OK;
}

static kolo_status progress_messages(struct kolo_exec *x)
{
    struct kolo_wires *w = x->wires;
    const struct kolo_device *before = NULL;
    for (int q = 0; x->bound->prog->nreqs > 0 && q < w->nranks; q++) {
        if (q == w->me || w->device == NULL || w->device[q] == NULL || w->device[q] == before) {
            continue;
        }
        before = w->device[q];
        const int moved = w->transport[q]->progress(w->device[q], 64);
        if (moved < 0) {
            return (kolo_status)moved;
        }
    }
    return KOLO_OK;
}

void kolo_exec_stop(struct kolo_exec *x)
{
    free(x->req);
    x->req = NULL;
}

kolo_status kolo_exec_step(struct kolo_exec *x)
{
    const uint32_t nlanes = (uint32_t)x->bound->prog->nlanes;
    uint32_t finished = 0;
    if (!x->entered) {
        const kolo_status st = enter(x);
        if (st != KOLO_OK) {
            return st;
        }
    }
    if (x->bound->exchange && x->block && x->bound->prog->op[3].nsrc < MAX_OPERANDS &&
        x->wires->jitter == NULL) {
        return exchange(x);
    }
    KOLO_TRY(progress_messages(x));
    for (uint32_t lane = 0; lane < nlanes; lane++) {
        const kolo_status st = x->lane[lane].finished ? KOLO_OK : advance_lane(x, lane);
        KOLO_TRY(st);
        finished += x->lane[lane].finished;
    }
    if (finished < nlanes) {
        return KOLO_INPROGRESS;
    }
    x->wires->epoch += x->bound->tiles;
    kolo_exec_stop(x);
    return KOLO_OK;
}
