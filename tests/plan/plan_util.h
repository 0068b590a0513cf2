// SPDX-License-Identifier: Apache-2.0
// What the tests of plans share: building, copying and enumerating them.
#ifndef KOLO_TESTS_PLAN_UTIL_H
#define KOLO_TESTS_PLAN_UTIL_H

#include "../groupings.h"
#include "../layouts.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "plan/plan.h"
#include "plan/verify/verify.h"
}

struct PlanDeleter {
    void operator()(kolo_plan *plan) const
    {
        kolo_plan_destroy(plan);
    }
};
using Plan = std::unique_ptr<kolo_plan, PlanDeleter>;

inline kolo_shape Shape(kolo_coll coll, int nranks, int root = 0, const int *order = nullptr)
{
    kolo_shape shape = {};
    shape.size = sizeof shape;
    shape.coll = coll;
    shape.nranks = nranks;
    shape.root = root;
    ApplyLayout(&shape, order);
    UsualGroups(nranks).Apply(&shape);
    return shape;
}

// An algorithm of a test's own.
inline kolo_algo Algo(const char *name, kolo_coll coll,
                      void (*build)(const kolo_shape *, kolo_builder *))
{
    kolo_algo algo = {};
    algo.base = {KOLO_PLUGIN_ABI, sizeof algo, name};
    algo.coll = coll;
    algo.source = "tests";
    algo.build = build;
    return algo;
}

// The plan, or NULL where the algorithm does not do this shape.
inline Plan Build(const kolo_algo *algo, const kolo_shape &shape)
{
    kolo_plan *plan = nullptr;
    const kolo_status status = kolo_plan_build(algo, &shape, -1, &plan);
    if (status != KOLO_OK) {
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, status) << kolo_error_text();
        return nullptr;
    }
    return Plan(plan);
}

// An algorithm that the prover refuses, with a text that has all the parts.
inline void ExpectRefused(kolo_coll coll, int n, void (*build)(const kolo_shape *, kolo_builder *),
                          const std::vector<std::string> &parts)
{
    const kolo_algo algo = Algo("broken", coll, build);
    const Plan plan = Build(&algo, Shape(coll, n));
    ASSERT_NE(nullptr, plan);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_verify_plan(plan.get()));
    const std::string text = kolo_error_text();
    for (const std::string &part : parts) {
        EXPECT_NE(std::string::npos, text.find(part)) << "'" << part << "' is not in: " << text;
    }
}

// The built-in algorithm of that name.
inline const kolo_algo *Named(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    ADD_FAILURE() << "no algorithm " << name;
    return nullptr;
}

inline std::vector<const kolo_algo *> AllAlgos()
{
    std::vector<const kolo_algo *> all;
    for (int i = 0; i < kolo_algos_count; i++) {
        all.push_back(kolo_algos[i]);
    }
    return all;
}

// Those that climb groups.
inline std::vector<const kolo_algo *> Hierarchies()
{
    std::vector<const kolo_algo *> all;
    for (const kolo_algo *algo : AllAlgos()) {
        if (std::string(algo->base.name).find("_hier") != std::string::npos) {
            all.push_back(algo);
        }
    }
    return all;
}

inline std::string AlgoName(const testing::TestParamInfo<const kolo_algo *> &info)
{
    return info.param->base.name;
}

// The roots that differ in kind; one where the collective has none.
inline std::set<int> Roots(kolo_coll coll, int nranks)
{
    if (!kolo_coll_rooted(coll)) {
        return {0};
    }
    return {0, nranks > 1 ? 1 : 0, nranks / 2, nranks - 1};
}

// Sanitizers are slow: they see the small sizes, unless KOLO_TEST_FULL is set.
inline int MaxRanks()
{
#ifdef __SANITIZE_ADDRESS__
    return getenv("KOLO_TEST_FULL") != nullptr ? 64 : 16;
#else
    return 64;
#endif
}

#endif
