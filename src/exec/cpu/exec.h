// SPDX-License-Identifier: Apache-2.0
/* The host executor runs a bound program step by step, or a whole exchange at once. */
#ifndef KOLO_EXEC_CPU_EXEC_H
#define KOLO_EXEC_CPU_EXEC_H

#include "exec/reduce/reduce.h"

#include <kolo/plugin.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kolo_bound;
struct kolo_entry;
struct kolo_exchange;
struct kolo_prog;
struct kolo_exec_env;

struct kolo_lane_state {
    uint32_t iter, slot, pc; /* pipeline iteration, stage counted from the last, op */
    uint32_t tile;           /* tiles finished */
    bool begun;              /* the current stage's tile has its credit */
    bool finished;
};

struct kolo_exec {
    struct kolo_exec_env *env;
    const struct kolo_bound *bound;
    const char *in;
    char *out;
    kolo_reduce_fn *reduce; /* NULL for movement */
    unsigned divisor;       /* AVG: ranks; else 0 */
    size_t elem;
    uint32_t float_bytes;       /* of kolo_req */
    uint64_t signature;         /* of the call; if it differs between ranks, their calls differ */
    uint64_t chain;             /* of this call and all before it: kolo_chain() */
    struct kolo_call_sign call; /* for messages; its chain is of `chain` */
    double began_us; /* where this rank times the call, to choose the store kind; else 0 */
    bool past;       /* store past the caches into memory that peers read */
    bool block;      /* wait inside; else return INPROGRESS */
    bool entered;
    bool moved;     /* the last step moved messages */
    unsigned moves; /* counts stages that lanes have run, and moved messages */
    uint32_t begun; /* tiles that at least one lane has begun */
    struct kolo_lane_state lane[KOLO_LANES];
};

/* Publish this rank's entry line, once a call.
 *
 * In a call with entries every rank waits for all lines before it goes on, and counts
 * env->entries up at the end. So no rank is more than one call with entries ahead. A rank may
 * write its line again two of these calls later, and entry lines need no credit. */
void kolo_entry_publish(struct kolo_exec_env *env, const struct kolo_entry *mine);
/* OK when rank q's entry line of this call is there. */
kolo_status kolo_entry_wait(struct kolo_exec_env *env, int q, bool block);

/* Start `x`. The caller has set env, bound, in, out, reduce, divisor, elem, signature, call and
 * block. */
void kolo_exec_start(struct kolo_exec *x);
/* The first part of the first step: resolve the entry lines that the program needs, once they are
 * there. */
kolo_status kolo_exec_enter(struct kolo_exec *x);
/* Advance every lane until it must wait. OK: the program is done, and the communicator's epoch has
 * moved on. INPROGRESS (never with x->block): call again. Errors end the communicator. */
kolo_status kolo_exec_step(struct kolo_exec *x);
/* Whether `prog` is plain: one lane, no messages. kolo_exec_now() runs only plain programs. */
bool kolo_exec_is_plain(const struct kolo_prog *prog);
/* Run a whole plain program, blocking. The entry lines that it needs are already resolved. The
 * function reads only the fields of `x` that the caller of kolo_exec_start() sets, and `chain`. */
kolo_status kolo_exec_now(struct kolo_exec *x);

/* Run a whole call that is an exchange (bound->exchange), blocking. */
struct kolo_exchange_how {
    kolo_reduce_fn *reduce;
    unsigned divisor;
    uint64_t signature;
};
kolo_status kolo_exchange(struct kolo_exec_env *env, const struct kolo_exchange *e, const void *in,
                          void *out, const struct kolo_exchange_how *how, uint64_t chain);

#endif
