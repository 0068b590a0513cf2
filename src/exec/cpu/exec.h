// SPDX-License-Identifier: Apache-2.0
/* The host executor: runs a bound program step by step, or a whole exchange at once. */
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
struct kolo_wires;

struct kolo_lane_state {
    uint32_t iter, slot, pc; /* pipeline iteration, stage counted from the last, op */
    uint32_t tile;           /* tiles finished */
    bool begun;              /* the current stage's tile has its credit */
    bool finished;
};

struct kolo_exec {
    struct kolo_wires *wires;
    const struct kolo_bound *bound;
    const char *in;
    char *out;
    kolo_reduce_fn *reduce; /* NULL for movement */
    unsigned divisor;       /* AVG: ranks; else 0 */
    size_t elem;
    uint64_t signature; /* of the call: equal on all ranks, or they called different things */
    bool block;         /* wait inside; else return INPROGRESS */
    bool entered;
    bool moved;     /* the last step moved messages */
    uint32_t begun; /* of several lanes: tiles that one of them has begun */
    struct kolo_lane_state lane[KOLO_LANES];
};

/* Publish this rank's entry line (once a call). In a call with entries every rank waits for all
 * lines before it goes on, and counts wires->entries up at its end. So nobody is more than one such
 * call ahead, and a line may be written again two of them later: no credit is needed. */
void kolo_entry_publish(struct kolo_wires *w, const struct kolo_entry *mine);
/* Rank q's entry line of this call: OK when it is there. */
kolo_status kolo_entry_wait(struct kolo_wires *w, int q, bool block);

/* Start `x` (wires, bound, in, out, reduce, divisor, elem, block set by the caller). */
void kolo_exec_start(struct kolo_exec *x);
/* The first part of the first step: resolve the entry lines it needs, once they are there. */
kolo_status kolo_exec_enter(struct kolo_exec *x);
/* Advance every lane as far as it goes. OK: done, the communicator's epoch has moved on.
 * INPROGRESS (never with x->block): call again. Errors end the communicator. */
kolo_status kolo_exec_step(struct kolo_exec *x);
/* Whether kolo_exec_now() can run it: one lane, no messages. */
bool kolo_exec_is_plain(const struct kolo_prog *prog);
/* Run all of a plain program in one go, blocking, the entry lines it needs being resolved already.
 * Of `x` only what kolo_exec_start()'s caller sets is read. */
kolo_status kolo_exec_now(struct kolo_exec *x);

/* A whole call that is an exchange (bound->exchange), blocking. */
struct kolo_exchange_how {
    kolo_reduce_fn *reduce;
    unsigned divisor;
    uint64_t signature;
};
kolo_status kolo_exchange(struct kolo_wires *w, const struct kolo_exchange *e, const void *in,
                          void *out, const struct kolo_exchange_how *how);

#endif
