// SPDX-License-Identifier: Apache-2.0
// What the tests of lowered programs share: plans and all ranks' programs of them.
#ifndef KOLO_TESTS_PROGRAMS_H
#define KOLO_TESTS_PROGRAMS_H

#include "../groupings.h"
#include "../layouts.h"
#include "crew.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "exec/proof/progverify.h"
}

inline bool FullRun()
{
    return std::getenv("KOLO_TEST_FULL") != nullptr || std::getenv("KOLO_TEST_WHOLE") != nullptr;
}
// Under a sanitizer, which looks at the same code at any number of ranks.
inline bool ShortRun()
{
    return std::getenv("KOLO_TEST_SHORT") != nullptr;
}
// Whole products, not parts of them: tests/soak --whole.
inline bool WholeRun()
{
    return std::getenv("KOLO_TEST_WHOLE") != nullptr;
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
    ApplyLayout(&shape, order);
    (groups != nullptr ? *groups : UsualGroups(n)).Apply(&shape);
    kolo_plan *plan = nullptr;
    if (algo->supports != nullptr && !algo->supports(&shape)) {
        return nullptr;
    }
    const kolo_status st = kolo_plan_build(algo, &shape, only, &plan);
    EXPECT_EQ(KOLO_OK, st) << kolo_error_text();
    return Plan(plan);
}

// How far ranks may be ahead of their readers: the executor's, or less, to see the same in fewer
// tiles.
struct Depths {
    uint32_t lines = KOLO_DEPTH, longs = KOLO_LONG_DEPTH;
};
constexpr Depths kReal, kSmall[] = {{4, 2}, {4, 4}};

inline void SetDepths(kolo_prog *prog, Depths depths)
{
    prog->depth = static_cast<int>(depths.lines);
    prog->long_depth = static_cast<int>(depths.longs);
}

inline std::vector<Prog> LowerAll(const kolo_plan *plan, crew_links links, unsigned seed,
                                  Depths depths = kReal)
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
        SetDepths(prog, depths);
        all.emplace_back(prog);
    }
    return all;
}

enum class Slots { kShort, kLong };

// Calls in a row, for kolo_verify_programs().
struct Calls {
    std::vector<const kolo_plan *> plan;
    std::vector<const kolo_prog *> prog;
    std::vector<uint32_t> tiles;
    std::deque<bool> in_long;
    bool uneven = false;
    Depths depths = kReal;

    void Add(const kolo_plan *p, const std::vector<Prog> &progs, uint32_t ntiles,
             Slots slots = Slots::kLong)
    {
        plan.push_back(p);
        in_long.push_back(slots == Slots::kLong);
        tiles.push_back(p->shape.coll == KOLO_COLL_BARRIER ? 1 : ntiles); // nothing to cut
        for (const Prog &one : progs) {
            prog.push_back(one.get());
        }
    }
    kolo_status Verify() const
    {
        std::array<bool, 8> longs = {};
        std::copy(in_long.begin(), in_long.end(), longs.begin());
        kolo_program_set set = {};
        set.ncalls = static_cast<int>(plan.size());
        set.plan = plan.data();
        set.prog = prog.data();
        set.tiles = tiles.data();
        set.in_long = longs.data();
        set.uneven = uneven;
        set.depth = depths.lines;
        set.long_depth = depths.longs;
        return kolo_verify_programs(&set);
    }
};

#endif
