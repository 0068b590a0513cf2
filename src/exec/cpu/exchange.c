// SPDX-License-Identifier: Apache-2.0
/* A call of up to 48 bytes as one operation. The rank puts its bytes and their epoch into its line,
 * reads every peer's line, and reduces all into OUT. This is the work of the program's five ops, in
 * their order, and little else: the call takes the time of its flags. */
#include "exec/cpu/parts.h"
#include "exec/cpu/signal.h"
#include "util/copy.h"

#include <stdlib.h>
#include <string.h>

/* ---- binding ---- */

/* Whether one source is my IN and the others are in lines. */
static bool has_one_of_mine(const struct kolo_bound *b)
{
    const struct kolo_bound_op *move = &b->op[3];
    unsigned mine = 0;
    for (unsigned i = 0; i < move->nsrc; i++) {
        const uint32_t kind = b->at[move->first + i].kind;
        mine += kind == K_IN ? 1 : kind == K_LINE ? 0 : 2;
    }
    return mine == 1;
}

/* Whether the ops are "my IN into my line, signal, wait for all lines, reduce into OUT", the shape
 * of a one-shot all-reduce. */
static bool is_exchange(const struct kolo_bound *b, int nranks)
{
    static const uint8_t shape[] = {KOLO_DO_MOVE, KOLO_DO_SIGNAL, KOLO_DO_WAIT, KOLO_DO_MOVE,
                                    KOLO_DO_DONE};
    const struct kolo_prog *p = b->prog;
    if (!b->inlined || p->nlanes != 1 || p->nops != KOLO_LENGTH(shape) || p->nentries > 0) {
        return false;
    }
    for (size_t i = 0; i < KOLO_LENGTH(shape); i++) {
        if (b->op[i].code != shape[i] || b->op[i].odd) {
            return false;
        }
    }
    const struct kolo_bound_op *put = &b->op[0], *move = &b->op[3];
    return put->nsrc == 1 && put->ndst == 1 && move->last && move->ndst == 1 && move->nsrc >= 2 &&
           move->nsrc <= MAX_OPERANDS && p->at[p->op[0].first].space == KOLO_AT_IN &&
           p->at[p->op[0].first + 1].space == KOLO_AT_OUTBOX && put->last_len > 0 &&
           put->last_len == move->last_len && b->op[2].nsrc == nranks - 1 && has_one_of_mine(b);
}

static void bind_sources(const struct kolo_bound *b, struct kolo_exchange *e, const void **room)
{
    const struct kolo_bound_at *at = &b->at[b->op[3].first];
    for (uintptr_t parity = 0; parity < KOLO_DEPTH; parity++) {
        e->src[parity] = room + parity * e->nsrc;
        for (unsigned i = 0; i < e->nsrc; i++) {
            e->src[parity][i] = (const void *)(at[i].at + parity * sizeof(struct kolo_line));
            e->own = at[i].kind == K_IN ? i : e->own;
        }
    }
    e->own_off = at[e->own].at;
}

kolo_status kolo_exchange_bind(struct kolo_bound *b, const struct kolo_exec_env *env)
{
    if (!is_exchange(b, env->nranks)) {
        return KOLO_OK;
    }
    const struct kolo_bound_op *wait = &b->op[2], *move = &b->op[3];
    const size_t peers = wait->nsrc * sizeof(struct kolo_exchange_peer);
    struct kolo_exchange *e =
        malloc(sizeof *e + peers + (size_t)KOLO_DEPTH * move->nsrc * sizeof(void *));
    if (e == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while binding a program");
    }
    *e = (struct kolo_exchange){.mine = (struct kolo_line *)b->at[b->op[1].first].at,
                                .in_off = b->at[b->op[0].first].at,
                                .out_off = b->at[move->first + move->nsrc].at,
                                .bytes = b->op[0].last_len,
                                .count = move->last_len / (uint32_t)b->extents.elem,
                                .npeers = wait->nsrc,
                                .nsrc = move->nsrc,
                                .readers = b->prog->readers,
                                .head = &env->region[env->me]->head};
    for (unsigned i = 0; i < e->npeers; i++) {
        const struct kolo_bound_at *at = &b->at[wait->first + i];
        e->peer[i] = (struct kolo_exchange_peer){(struct kolo_line *)at->at, (int)at->rank};
    }
    bind_sources(b, e, (const void **)((char *)(e + 1) + peers));
    b->exchange = e;
    return KOLO_OK;
}

/* ---- running ---- */

/* A rank that signals in the first tile of a call has finished all tiles before it. So all ranks
 * are known to have finished them. */
static inline kolo_status wait_for_lines(struct kolo_exec_env *env, const struct kolo_exchange *e,
                                         uintptr_t shift, uint64_t chain)
{
    const uint32_t want = env->epoch + 1;
    for (unsigned i = 0; i < e->npeers; i++) {
        struct kolo_line *line = (struct kolo_line *)((uintptr_t)e->peer[i].line + shift);
        if (!kolo_reached(&line->epoch, want)) {
            KOLO_TRY(kolo_wait(env, &line->epoch, want, e->peer[i].rank));
        }
        if (KOLO_UNLIKELY(line->chain != chain)) {
            return kolo_mismatch(env, e->peer[i].rank);
        }
    }
    env->all_done = env->epoch;
    return KOLO_OK;
}

kolo_status kolo_exchange(struct kolo_exec_env *env, const struct kolo_exchange *e, const void *in,
                          void *out, const struct kolo_exchange_how *how, uint64_t chain)
{
    const uint32_t epoch = env->epoch, parity = epoch & (KOLO_DEPTH - 1);
    const uintptr_t shift = parity * sizeof(struct kolo_line);
    struct kolo_line *mine = (struct kolo_line *)((uintptr_t)e->mine + shift);
    if (KOLO_UNLIKELY((int32_t)(env->all_done - (epoch + 1 - KOLO_DEPTH)) < 0)) {
        KOLO_TRY(kolo_credit(env, epoch, true));
    }
    env->readers[parity].list = e->readers;
    env->readers[parity].count = (int)e->npeers;
    kolo_copy(mine->data, (const char *)in + e->in_off, e->bytes);
    kolo_line_publish(mine, chain, epoch, epoch, e->head);
    e->src[parity][e->own] = (const char *)in + e->own_off;
    KOLO_TRY(wait_for_lines(env, e, shift, chain));
    how->reduce((char *)out + e->out_off, e->src[parity], e->nsrc, e->count, how->divisor);
    env->epoch = epoch + 1;
    env->met++;
    atomic_store_explicit(&e->head->done, epoch + 1, memory_order_release);
    kolo_wake(e->head);
    return KOLO_OK;
}
