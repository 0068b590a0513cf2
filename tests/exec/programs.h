// SPDX-License-Identifier: Apache-2.0
// What the tests of lowered programs share: plans and all ranks' programs of them.
#ifndef KOLO_TESTS_PROGRAMS_H
#define KOLO_TESTS_PROGRAMS_H

#include "../groupings.h"
#include "crew.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "exec/progverify.h"
}

inline bool FullRun()
{
    return std::getenv("KOLO_TEST_FULL") != nullptr;
}

struct PlanDeleter {
    void operator()(kolo_plan *plan) const
    {
        kolo_plan_destroy(plan);
    }
};
struct ProgDeleter {
    void operator()(kolo_prog *prog) const
    {
        kolo_prog_destroy(prog);
    }
};
using Plan = std::unique_ptr<kolo_plan, PlanDeleter>;
using Prog = std::unique_ptr<kolo_prog, ProgDeleter>;

// The plan of all ranks or of one, or NULL where the algorithm does not do this shape.
inline Plan BuildPlan(const kolo_algo *algo, int n, int root, int only = -1,
                      const int *order = nullptr, const Grouping *groups = nullptr)
{
    kolo_shape shape = {};
    shape.size = sizeof shape;
    shape.coll = algo->coll;
    shape.nranks = n;
    shape.root = root;
    shape.order = order;
    (groups != nullptr ? *groups : UsualGroups(n)).Apply(&shape);
    kolo_plan *plan = nullptr;
    if (algo->supports != nullptr && !algo->supports(&shape)) {
        return nullptr;
    }
    const kolo_status st = kolo_plan_build(algo, &shape, only, &plan);
    EXPECT_EQ(KOLO_OK, st) << kolo_error_text();
    return Plan(plan);
}

inline std::vector<Prog> LowerAll(const kolo_plan *plan, crew_links links, unsigned seed)
{
    std::vector<Prog> all;
    const int n = plan->shape.nranks;
    for (int r = 0; r < n; r++) {
        std::vector<uint8_t> bits(static_cast<size_t>(n));
        for (int q = 0; q < n; q++) {
            bits[static_cast<size_t>(q)] = q == r ? uint8_t{0} : crew_bits(links, seed, r, q);
        }
        kolo_prog *prog = nullptr;
        EXPECT_EQ(KOLO_OK, kolo_lower(plan, r, bits.data(), &prog)) << kolo_error_text();
        all.emplace_back(prog);
    }
    return all;
}

// Calls in a row, for kolo_verify_programs().
struct Calls {
    std::vector<const kolo_plan *> plan;
    std::vector<const kolo_prog *> prog;
    std::vector<uint32_t> tiles;
    bool uneven = false;

    void Add(const kolo_plan *p, const std::vector<Prog> &progs, uint32_t ntiles)
    {
        plan.push_back(p);
        tiles.push_back(p->shape.coll == KOLO_COLL_BARRIER ? 1 : ntiles); // nothing to cut
        for (const Prog &one : progs) {
            prog.push_back(one.get());
        }
    }
    kolo_status Verify() const
    {
        kolo_program_set set = {};
        set.ncalls = static_cast<int>(plan.size());
        set.plan = plan.data();
        set.prog = prog.data();
        set.tiles = tiles.data();
        set.uneven = uneven;
        return kolo_verify_programs(&set);
    }
};

#endif
