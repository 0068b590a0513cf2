// SPDX-License-Identifier: Apache-2.0
/* Proofs about lowered programs: all ranks', several calls in a row, as the host executor runs
 * them. plan/verify/verify.h proves what the plan says; this proves that the lowering kept it. */
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
    /* How far a rank may be ahead of its readers: the executor's KOLO_DEPTH and KOLO_LONG_DEPTH, or
     * less, as what is wrong with so many copies takes about as many tiles to show. */
    uint32_t depth, long_depth;
};

/* Prove, with every rank out of place and with every rank in place: everybody finishes, even if a
 * message leaves only when it is received; every load finds the data of its own tile and call,
 * ordered after the store; no store meets a reader or another writer; a peer's user memory is
 * touched only between its entry and its return; private memory of neighbouring tiles keeps apart;
 * each message meets one of its size, and its source stays until it has arrived; each result is the
 * plan's, LAST where the plan has it; a rank that may sleep is woken. Lines and slots that the last
 * tiles leave behind are safe from any call that follows.
 * Orderings are by vector clocks over signals, `done`, entries and messages; time plays no part.
 * Cost: ops of all ranks and tiles, times ranks. Errors: INVALID, with rank, op, tile and call;
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_verify_programs(const struct kolo_program_set *set);

#endif
