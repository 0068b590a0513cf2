// SPDX-License-Identifier: Apache-2.0
// Another judge of plans: it runs them on numbers, in random orders, and looks at the result.
//
// It shares nothing with the walker: queues without bound, lanes picked at random, memory that
// begins as garbage, ranks that are in place or not at random. A value is a 64-bit sum, in which
// any lost, doubled or misplaced contribution shows, and a hash of the expression, in which any
// other order of additions shows. LAST scrambles the sum, so that it must come once and at the end.
#ifndef KOLO_TESTS_PLAN_ORACLE_H
#define KOLO_TESTS_PLAN_ORACLE_H

#include "plan_util.h"

#include <string>

// "" if the plan does what its collective promises in this run, else what went wrong. Seed 0 runs
// all ranks out of place, seed 1 all in place.
std::string RunOnNumbers(const kolo_plan *plan, unsigned seed);

// "" if no rank of the barrier can leave before any other has entered.
std::string RunBarrier(const kolo_plan *plan);

#endif
