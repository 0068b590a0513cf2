// SPDX-License-Identifier: Apache-2.0
/* Most small calls: programs of one tile and one lane, without messages, blocking. They run the ops
 * of exec.c but never resume one, so a call of a few bytes costs little more than its flags. */
#include "exec/cpu/parts.h"
#include "exec/cpu/signal.h"
#include "util/copy.h"

#include <string.h>

static inline kolo_status move(const struct kolo_exec *x, const struct kolo_bound_op *op,
                               const struct tile *tile)
{
    const struct kolo_bound_at *at = &x->bound->at[op->first];
    const unsigned divisor = op->last ? x->divisor : 0;
    if (op->simple_count == 0 || (op->nsrc == 1 && divisor > 1)) {
        return kolo_exec_move(x, op, tile);
    }
    const char *const src = address(x, tile, &at[0]);
    if (op->nsrc == 2) {
        const void *both[2] = {src, address(x, tile, &at[1])};
        x->reduce(address(x, tile, &at[2]), both, 2, op->simple_count, divisor);
        return KOLO_OK;
    }
    char *const dst = address(x, tile, &at[1]);
    if (dst != src) { /* in place a move onto itself is skipped: peers may be reading */
        kolo_copy(dst, src, op->last_len);
    }
    return KOLO_OK;
}

static inline kolo_status wait_for_lines(struct kolo_exec *x, const struct kolo_bound_op *op,
                                         const struct tile *tile)
{
    const struct kolo_bound_at *at = &x->bound->at[op->first];
    for (unsigned i = 0; i < op->nsrc; i++) {
        struct kolo_line *line = (struct kolo_line *)(at[i].at + tile->shift[K_LINE]);
        const int q = (int)at[i].rank;
        if (!kolo_reached(&line->epoch, tile->epoch + 1)) {
            KOLO_TRY(kolo_wait(x->env, &line->epoch, tile->epoch + 1, q));
        }
        if (KOLO_UNLIKELY(line->chain != x->chain)) {
            return kolo_mismatch(x->env, q);
        }
        if (!op->meets_all) {
            saw_done(x->env, q, line->done);
        }
    }
    if (op->meets_all) { /* a rank that signals has finished all tiles before this one */
        x->env->all_done = tile->epoch;
    }
    return KOLO_OK;
}

static inline void signal_line(const struct kolo_exec *x, const struct kolo_bound_op *op,
                               const struct tile *tile, struct kolo_head *head)
{
    struct kolo_line *line = (struct kolo_line *)(x->bound->at[op->first].at + tile->shift[K_LINE]);
    kolo_line_publish(line, x->chain, tile->epoch, tile->epoch, head);
}

static kolo_status wait_for_leavers(struct kolo_exec *x, const struct kolo_bound_op *op,
                                    const struct tile *tile)
{
    for (unsigned i = 0; i < op->nsrc; i++) {
        const int q = (int)x->bound->at[op->first + i].rank;
        KOLO_TRY(kolo_wait(x->env, &x->env->region[q]->head.done, tile->epoch + 1, q));
    }
    return KOLO_OK;
}

static inline kolo_status run_op(struct kolo_exec *x, const struct kolo_bound_op *op,
                                 const struct tile *tile, struct kolo_head *head)
{
    switch (op->code) {
    case KOLO_DO_WAIT:
        return wait_for_lines(x, op, tile);
    case KOLO_DO_MOVE:
        return move(x, op, tile);
    case KOLO_DO_SIGNAL:
        signal_line(x, op, tile, head);
        return KOLO_OK;
    case KOLO_DO_DONE:
        atomic_store_explicit(&head->done, tile->epoch + 1, memory_order_release);
        kolo_wake(head);
        return KOLO_OK;
    case KOLO_DO_LEFT:
        return wait_for_leavers(x, op, tile);
    default:
        return KOLO_ERR_INTERNAL;
    }
}

kolo_status kolo_exec_once(struct kolo_exec *x)
{
    struct kolo_exec_env *env = x->env;
    const struct kolo_bound *b = x->bound;
    const struct kolo_bound_op *op = b->op, *end = op + b->prog->nops;
    const uint32_t epoch = env->epoch, parity = epoch & (KOLO_DEPTH - 1);
    struct kolo_head *head = &env->region[env->me]->head;
    struct tile tile = {.epoch = epoch, .last = true};
    tile.shift[K_IN] = (uintptr_t)x->in;
    tile.shift[K_OUT] = (uintptr_t)x->out;
    tile.shift[K_PRIVATE] = (uintptr_t)b->private_mem;
    tile.shift[K_LINE] = parity * sizeof(struct kolo_line);
    if (KOLO_UNLIKELY((int32_t)(env->all_done - (epoch + 1 - KOLO_DEPTH)) < 0)) {
        KOLO_TRY(kolo_credit(env, epoch, true));
    }
    if (KOLO_UNLIKELY(!b->inlined)) {
        tile.shift[K_SLOT] = kolo_slot_shift(b, epoch);
        if (b->in_long && b->prog->fills_outbox) {
            KOLO_TRY(kolo_take_long_slot(env, b->prog, epoch, true));
        }
    }
    env->readers[parity].list = b->prog->readers;
    env->readers[parity].count = b->prog->nreaders;
    for (; op < end; op++) {
        const kolo_status st = run_op(x, op, &tile, head);
        if (KOLO_UNLIKELY(st != KOLO_OK)) {
            return st;
        }
    }
    env->epoch = epoch + 1;
    env->met++;
    return KOLO_OK;
}
