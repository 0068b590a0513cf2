// SPDX-License-Identifier: Apache-2.0
// Single faults in a lowered program: each way to leave out, exchange or misdirect one thing of it.
// Indices stay within what the program and its peers have, so that running a mutant is wrong, not
// wild.
#ifndef KOLO_TESTS_MUTANTS_H
#define KOLO_TESTS_MUTANTS_H

#include "programs.h"

enum class Fault {
    kDropOp,
    kDropOperand,
    kWrongPeer,
    kWrongPhase,
    kWrongIndex,
    kWrongRequest,
    kSwapSources,
    kSwapNext,
    kSwapMeaning,
    kDepth,
    kFewerReaders,
    kFewerSources,
    kFewerEntries,
    kFlipLast,
    kMoveStage,
    kWrongFact, // of a message: STABLE or FRESH, believed by every rank's lowering; lent
    kCount
};
const char *FaultName(Fault fault);

struct Mutant {
    Fault fault;
    std::string what;
    Prog prog;
};

// All of one rank's program. `bits` are its links.
std::vector<Mutant> AllMutants(const kolo_plan *plan, const kolo_prog *prog,
                               const std::vector<uint8_t> &bits);

#endif
