// SPDX-License-Identifier: Apache-2.0
// covers: algos src/core/call/program.c src/exec/lower src/exec/cpu/stores.c src/exec/cpu/move.c
/* Every algorithm, forced by config.algo, gives the result of the reference. Each root has some of the
 * sizes, by turns, and all of them under KOLO_TEST_WHOLE=1. The sizes lie on both sides of the three
 * that change how data travels: 48 bytes (within a flag's line), 8 KiB (from there on ranks
 * look at the memory that they share), 256 KiB (a tile). */
#include "collectives_forced.h"
#include "collectives_team.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

namespace collectives
{

static std::vector<size_t> ByteCounts()
{
    std::vector<size_t> bytes = {1, 4, 40, 48, 49, 52, 1000, 8188, 8192, 8196, 100000, 262144};
    const std::vector<size_t> large = {262148, 1000003, 2500004};
    if (TestEffort() != Effort::kShort) {
        bytes.insert(bytes.end(), large.begin(), large.end());
    }
    return bytes;
}

/* float32 sums and bytes, for all roots. */
static std::vector<Case> CasesOf(Coll coll, int n)
{
    constexpr int kRootsASize = 2;
    std::vector<Case> cases;
    int turn = 0;
    for (const size_t bytes : ByteCounts()) {
        const int roots = IsRooted(coll) ? n : 1;
        const int some = TestEffort() == Effort::kWhole ? roots : std::min(roots, kRootsASize);
        for (int i = 0; i < some; i++) {
            const int root = turn++ % roots;
            const bool in_place = (bytes + static_cast<size_t>(root)) % 2 != 0;
            if (coll == Coll::kBarrier) {
                cases.push_back({coll, KOLO_INT8});
            } else if (Reduces(coll)) {
                cases.push_back({coll, KOLO_FLOAT32, KOLO_SUM, root, bytes / 4, in_place});
                cases.push_back({coll, KOLO_INT16, KOLO_BXOR, root, bytes / 2, !in_place});
            } else {
                cases.push_back({coll, KOLO_UINT8, kMove, root, bytes, in_place});
                cases.push_back({coll, KOLO_FLOAT64_INT32, kMove, root, bytes / 16, !in_place});
            }
        }
    }
    return cases;
}

/* The right result; or, where that may be, a refusal that says so. */
static void ExpectRightResults(Coll coll, const std::string &name, int n, Memory memory)
{
    const GroupsByHand groups(name);
    Team team(n, RuleWord(coll) + ":" + name);
    const std::string wrong = PlayAll(&team, CasesOf(coll, n), memory, 3);
    if (MayRefuse(coll, name, n) && wrong.find("KOLO_ERR_INVALID: rule") != std::string::npos) {
        EXPECT_NE(std::string::npos, wrong.find("cannot run with " + std::to_string(n) + " ranks"))
            << wrong;
        return;
    }
    EXPECT_EQ("", wrong) << RuleWord(coll) << ":" << name << ", " << n << " ranks";
}

class Forced : public testing::TestWithParam<Coll>
{
};

TEST_P(Forced, AlgorithmsGiveTheResultOfTheReference)
{
    const std::vector<std::string> names = AlgorithmsOf(GetParam());
    ASSERT_FALSE(names.empty());
    for (const std::string &name : names) {
        for (const int n : RankCounts()) {
            if (n > 1) {
                ExpectRightResults(GetParam(), name, n, Memory::kPrivate);
            }
        }
    }
}

TEST_P(Forced, AlgorithmsTakeSharedMemoryAtOddOffsets)
{
    for (const std::string &name : AlgorithmsOf(GetParam())) {
        for (const int n : {2, 3}) {
            ExpectRightResults(GetParam(), name, n, Memory::kShared);
        }
    }
}

/* What earlier calls set up, a first large one must set up itself. */
TEST_P(Forced, AlgorithmsMayStartWithALargeCall)
{
    for (const std::string &name : AlgorithmsOf(GetParam())) {
        for (const size_t bytes : {8192, 1000000}) {
            for (const int n : {2, 3, 4}) {
                const GroupsByHand groups(name);
                Team team(n, RuleWord(GetParam()) + ":" + name);
                const kolo_op op = Reduces(GetParam()) ? static_cast<kolo_op>(KOLO_SUM) : kMove;
                const std::string wrong =
                    PlayAll(&team, {{GetParam(), KOLO_FLOAT32, op, n - 1, bytes / 4}});
                EXPECT_TRUE(wrong.empty() || (MayRefuse(GetParam(), name, n) &&
                                              wrong.find("cannot run with " + std::to_string(n)) !=
                                                  std::string::npos))
                    << name << ", " << n << " ranks: " << wrong;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Forced,
                         testing::Values(Coll::kAllReduce, Coll::kReduce, Coll::kBroadcast,
                                         Coll::kGather, Coll::kScatter, Coll::kAllGather,
                                         Coll::kReduceScatter, Coll::kAllToAll, Coll::kBarrier),
                         [](const auto &tested) { return std::string(NameOf(tested.param)); });

/* Each store kind in each collective, for sizes on both sides of the shortest move that it concerns
 * (2 KiB), of a short slot (4 KiB) and of a tile. */
class ForcedStores : public testing::TestWithParam<Coll>
{
  protected:
    ~ForcedStores() override
    {
        unsetenv("KOLO_STORES");
    }
};

static std::vector<Case> CasesOfStores(Coll coll, int n)
{
    std::vector<Case> cases;
    const kolo_type type = Reduces(coll) ? KOLO_BFLOAT16 : KOLO_UINT8;
    const kolo_op op = Reduces(coll) ? static_cast<kolo_op>(KOLO_AVG) : kMove;
    for (const size_t bytes : {2040, 2048, 2052, 4098, 9000, 300002, 1200002}) {
        const int root = IsRooted(coll) ? static_cast<int>(bytes) % n : 0;
        const bool in_place = !IsV(coll) && cases.size() % 2 != 0;
        const size_t count = type == KOLO_BFLOAT16 ? bytes / 2 : bytes;
        cases.push_back({coll, type, op, root, count, in_place});
    }
    return cases;
}

TEST_P(ForcedStores, GiveTheSameResult)
{
    for (const char *kind : {"ordinary", "past", "measured"}) {
        setenv("KOLO_STORES", kind, 1);
        for (const int n : {2, 4}) {
            for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
                Team team(n);
                EXPECT_EQ("", PlayAll(&team, CasesOfStores(GetParam(), n), memory, 1))
                    << kind << ", " << n << " ranks";
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, ForcedStores,
                         testing::Values(Coll::kAllReduce, Coll::kReduce, Coll::kBroadcast,
                                         Coll::kGather, Coll::kScatter, Coll::kAllGather,
                                         Coll::kReduceScatter, Coll::kAllToAll, Coll::kGatherv,
                                         Coll::kScatterv, Coll::kAllGatherv, Coll::kReduceScatterv,
                                         Coll::kAllToAllv),
                         [](const auto &tested) { return std::string(NameOf(tested.param)); });

TEST(ForcedStoreKinds, OfAnUnknownNameAreRefused)
{
    setenv("KOLO_STORES", "fast", 1);
    const Team team(2);
    unsetenv("KOLO_STORES");
    EXPECT_NE(std::string::npos, team.why().find("KOLO_STORES is \"fast\"")) << team.why();
}

} // namespace collectives
