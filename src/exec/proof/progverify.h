// SPDX-License-Identifier: Apache-2.0
/* Proofs about the lowered programs of all ranks, for several calls in a row, as the host executor
 * runs them. plan/verify/verify.h proves the plan. This file proves that the lowering kept the
 * meaning of the plan. */
#ifndef KOLO_EXEC_PROOF_PROGVERIFY_H
#define KOLO_EXEC_PROOF_PROGVERIFY_H

#include "exec/lower/program.h"

struct kolo_program_set {
    int ncalls;
    const struct kolo_plan *const *plan; /* [ncalls], of all ranks */
    const struct kolo_prog *const *prog; /* [call * nranks + rank] */
    const uint32_t *tiles;               /* [ncalls] */
    const bool *in_long;                 /* [ncalls] tiles go into long slots */
    bool uneven;                         /* blocks differ in length (v-forms) */
    /* How many tiles a rank may be ahead of its readers: the executor's KOLO_DEPTH and
     * KOLO_LONG_DEPTH, or less. A fault takes about as many tiles to show as there are copies. */
    uint32_t depth, long_depth;
};

/* Prove, with every rank out of place, and with every rank in place whose peers do not rely on its
 * buffers being apart:
 * - Every rank finishes, even if a message leaves only when it is received.
 * - Every load finds the data of its own tile and call, and is ordered after the store.
 * - No store meets a reader or another writer.
 * - A peer's user memory is touched only between its entry and its return.
 * - The private memory of neighbouring tiles keeps apart.
 * - Each message meets a receive of its size, and its source stays until it has arrived.
 * - Each result is the plan's, and LAST is where the plan has it.
 * - A rank that may sleep is woken.
 * - The lines and slots of the last tiles are safe from any call that follows.
 *
 * Vector clocks over signals, `done`, entries and messages give the orderings. Time plays no part.
 * Cost: ops of all ranks and tiles, times ranks. Errors: INVALID, with rank, op, tile and call;
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_verify_programs(const struct kolo_program_set *set);

#endif
