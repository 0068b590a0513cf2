// SPDX-License-Identifier: Apache-2.0
/* Declarations that the files of the host executor share: kinds of operands, a tile, and the wait
 * inside an op. */
#ifndef KOLO_EXEC_CPU_PARTS_H
#define KOLO_EXEC_CPU_PARTS_H

#include "exec/cpu/bound.h"
#include "exec/cpu/env.h"
#include "exec/cpu/exec.h"
#include "exec/cpu/wait.h"

enum kind { K_FIXED, K_IN, K_OUT, K_PRIVATE, K_SLOT, K_LINE, K_PEER_IN, K_PEER_OUT, KINDS };
enum { MAX_OPERANDS = 64 };

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
    if (x->block) {
        return kolo_wait(x->env, word, want, peer);
    }
    x->env->stuck_at = peer;
    return KOLO_INPROGRESS;
}

static inline char *address(const struct kolo_exec *x, const struct tile *tile,
                            const struct kolo_bound_at *at)
{
    const uintptr_t here = at->at + tile->shift[at->kind];
    if (at->kind < K_PEER_IN) {
        return (char *)here;
    }
    const struct kolo_exec_env *env = x->env;
    const void *base = at->kind == K_PEER_IN ? env->peer_in[at->rank] : env->peer_out[at->rank];
    return (char *)((uintptr_t)base + here);
}

static inline void saw_done(struct kolo_exec_env *env, int q, uint32_t done)
{
    if ((int32_t)(done - env->seen_done[q]) > 0) {
        env->seen_done[q] = done;
    }
}

/* move.c: k sources, in order, into m destinations. Errors: SYSTEM (very many operands only). */
kolo_status kolo_exec_move(const struct kolo_exec *x, const struct kolo_bound_op *op,
                           const struct tile *tile);

/* The offset of tile `epoch` from the first slot of its kind. */
static inline size_t kolo_slot_shift(const struct kolo_bound *b, uint32_t epoch)
{
    return (epoch & b->slot_mask) * b->slot_stride +
           (epoch >> b->turn_shift & b->turn_mask) * b->turn_stride;
}

/* entry.c: OK when the lines and the short slot of tile `epoch` may be written again. Until then
 * the function waits if `block` is set, else it returns INPROGRESS. */
kolo_status kolo_credit(struct kolo_exec_env *env, uint32_t epoch, bool block);
/* The same for the long slot. After OK the slot belongs to this program. */
kolo_status kolo_take_long_slot(struct kolo_exec_env *env, const struct kolo_prog *prog,
                                uint32_t epoch, bool block);
/* exchange.c: if the bound program is an exchange, keep it as one operation in bound->exchange.
 * Errors: SYSTEM. */
kolo_status kolo_exchange_bind(struct kolo_bound *bound, const struct kolo_exec_env *env);

/* once.c: run a plain program of one tile, blocking. Not for programs with jitter or with the
 * reduced depths of tests. */
kolo_status kolo_exec_once(struct kolo_exec *x);

/* Fail with MISMATCH, because the line of peer `q` has another signature. */
kolo_status kolo_mismatch(struct kolo_exec_env *env, int q);

#endif
