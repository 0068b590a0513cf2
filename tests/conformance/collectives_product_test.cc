// SPDX-License-Identifier: Apache-2.0
// covers: algos src/exec/cpu
/* Every collective x type x operation x number of ranks x size gives what an independent reference
 * gives, in place and out of place, from every kind of root, and touches nothing else.
 *
 * All small sizes always; of the sizes beyond 4 MiB a sample (its seed is printed), all of them
 * with KOLO_TEST_WHOLE=1, a small part with KOLO_TEST_SHORT=1. */
#include "collectives_team.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace collectives
{

/* First, last, and one that is neither. */
static std::vector<int> RootsOf(Coll coll, int n)
{
    std::vector<int> roots = {0};
    if (IsRooted(coll) && n > 1) {
        roots.push_back(n - 1);
    }
    if (IsRooted(coll) && n > 2) {
        roots.push_back(n / 2);
    }
    return roots;
}

static bool HasPlaces(Coll coll)
{
    return coll != Coll::kBarrier && coll != Coll::kAllToAllv;
}

static std::vector<Case> CasesOf(Coll coll, int n, const std::vector<size_t> &counts)
{
    std::vector<Case> cases;
    for (const auto &[type, op] : PairsFor(coll)) {
        for (const size_t count : counts) {
            for (const int root : RootsOf(coll, n)) {
                for (int variant = 0; variant < (IsV(coll) ? kVariants : 1); variant++) {
                    cases.push_back({coll, type, op, root, count, false, variant});
                    if (HasPlaces(coll)) {
                        cases.push_back({coll, type, op, root, count, true, variant});
                    }
                }
            }
        }
    }
    return cases;
}

/* 4 MiB and three bytes' worth, and not a multiple of anything. */
static size_t LargeCount(kolo_type type)
{
    const size_t elem = kolo_type_bytes(type), bytes = 4 << 20;
    return std::max((bytes + 3) / elem, bytes / elem + 1);
}

static std::vector<Case> LargeCasesOf(Coll coll, int n)
{
    std::vector<Case> cases = CasesOf(coll, n, {0});
    for (Case &c : cases) {
        c.count = LargeCount(c.type);
    }
    return cases;
}

static std::vector<Case> SampleOf(std::vector<Case> cases, size_t most)
{
    std::mt19937_64 random(TestSeed());
    std::shuffle(cases.begin(), cases.end(), random);
    cases.resize(std::min(cases.size(), most));
    return cases;
}

class Product : public testing::TestWithParam<Coll>
{
};

TEST_P(Product, OfSmallSizesEqualsTheReference)
{
    for (const int n : RankCounts()) {
        std::vector<Case> cases = CasesOf(GetParam(), n, {0, 1, 3, 1023});
        if (TestEffort() == Effort::kShort) {
            cases = SampleOf(cases, 300);
        }
        Team team(n);
        EXPECT_EQ("", PlayAll(&team, cases)) << n << " ranks";
    }
}

TEST_P(Product, OfLargeSizesEqualsTheReference)
{
    if (GetParam() == Coll::kBarrier) {
        GTEST_SKIP() << "a barrier has no size";
    }
    const Effort effort = TestEffort();
    for (const int n : RankCounts()) {
        std::vector<Case> cases = LargeCasesOf(GetParam(), n);
        if (effort != Effort::kWhole) {
            cases = SampleOf(cases, effort == Effort::kShort ? 2 : 12);
        }
        Team team(n);
        EXPECT_EQ("", PlayAll(&team, cases)) << n << " ranks";
    }
}

static std::vector<Coll> AllColls()
{
    std::vector<Coll> colls;
    for (int i = 0; i < kColls; i++) {
        colls.push_back(static_cast<Coll>(i));
    }
    return colls;
}

INSTANTIATE_TEST_SUITE_P(All, Product, testing::ValuesIn(AllColls()),
                         [](const auto &tested) { return std::string(NameOf(tested.param)); });

} // namespace collectives
