// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/reduce src/core/call/buffers.c
/* Every rank has the same bits, whatever the algorithm; a deterministic communicator gives those of
 * ((x0+x1)+x2)+... and refuses algorithms that cannot. */
#include "collectives_bits.h"
#include "collectives_forced.h"
#include "collectives_team.h"

#include <gtest/gtest.h>
#include <set>

namespace collectives
{

static std::vector<int> SeveralRanks()
{
    return TestEffort() == Effort::kShort ? std::vector<int>{2, 3} : std::vector<int>{2, 3, 5, 8};
}

/* Bytes on both sides of 48, 8 KiB and a tile. */
static std::vector<size_t> SizesInBytes()
{
    std::vector<size_t> bytes = {8, 48, 56, 1000, 8184, 8192, 8200};
    if (TestEffort() != Effort::kShort) {
        bytes.insert(bytes.end(), {262144, 300000});
    }
    return bytes;
}

/* Every type with every size; operations and special values by turns, so that each meets each type
 * and each size. The whole product with KOLO_TEST_WHOLE=1. */
static std::vector<Bits> BitsOf(Coll coll, const std::vector<kolo_op> &ops, bool in_rank_order)
{
    const bool whole = TestEffort() == Effort::kWhole;
    std::vector<Bits> all;
    size_t turn = 0;
    for (const kolo_type type : FloatTypes()) {
        for (const size_t bytes : SizesInBytes()) {
            turn++;
            for (size_t i = 0; i < ops.size(); i++) {
                for (const bool special : {false, true}) {
                    if (!whole && i != (turn + (special ? 1 : 0)) % ops.size()) {
                        continue;
                    }
                    Bits b = {coll, type, ops[i], bytes / kolo_type_bytes(type)};
                    b.special = special;
                    b.in_rank_order = in_rank_order;
                    b.seed = TestSeed() + bytes;
                    all.push_back(b);
                }
            }
        }
    }
    return all;
}

static std::string PlayAllBits(Team *team, const std::vector<Bits> &all)
{
    Report report;
    if (!team->why().empty()) {
        return team->why();
    }
    team->Run([&](kolo_comm *comm, int) {
        for (size_t i = 0; i < all.size() && kolo_comm_error(comm) == KOLO_OK; i++) {
            const std::string wrong = PlayBits(comm, all[i]);
            if (!wrong.empty()) {
                report.Add(wrong);
            }
        }
    });
    return report.Text();
}

TEST(Bits, AreTheSameOnEveryRankWhateverTheAlgorithm)
{
    const std::vector<Bits> all =
        BitsOf(Coll::kAllReduce, {KOLO_SUM, KOLO_AVG, KOLO_PROD, KOLO_MIN}, false);
    for (const std::string &name : AlgorithmsOf(Coll::kAllReduce)) {
        for (const int n : SeveralRanks()) {
            const GroupsByHand groups(name);
            Team team(n, "allreduce:" + name);
            const std::string wrong = PlayAllBits(&team, all);
            if (wrong.find("cannot run with") == std::string::npos) {
                EXPECT_EQ("", wrong) << name << ", " << n << " ranks";
            }
        }
    }
}

class Deterministic : public testing::TestWithParam<Coll>
{
};

TEST_P(Deterministic, SumsAreInRankOrderUnlessTheAlgorithmIsRefused)
{
    const std::vector<Bits> all = BitsOf(GetParam(), {KOLO_SUM, KOLO_AVG}, true);
    std::set<std::string> admitted;
    for (const std::string &name : AlgorithmsOf(GetParam())) {
        for (const int n : SeveralRanks()) {
            const GroupsByHand groups(name);
            Team team(n, RuleWord(GetParam()) + ":" + name, 1);
            const std::string first = PlayAllBits(&team, {all[0]});
            if (first.empty()) {
                admitted.insert(name);
                EXPECT_EQ("", PlayAllBits(&team, all)) << name << ", " << n << " ranks";
            } else { /* and the communicator goes on: nothing happened */
                EXPECT_NE(std::string::npos, first.find("KOLO_ERR_INVALID: rule")) << first;
                EXPECT_NE(std::string::npos, first.find(RuleWord(GetParam()) + "_" + name))
                    << first;
                EXPECT_TRUE(first.find("does not add in rank order (deterministic)") !=
                                std::string::npos ||
                            first.find("cannot run") != std::string::npos)
                    << first;
                EXPECT_EQ(KOLO_OK, kolo_comm_error(team.comm(0)));
            }
        }
    }
    EXPECT_EQ(1u, admitted.count("direct"));
    if (GetParam() == Coll::kAllReduce) {
        EXPECT_EQ(1u, admitted.count("oneshot"));
    }
    if (GetParam() != Coll::kReduceScatter) {
        EXPECT_EQ(1u, admitted.count("chain"));
    }
}

INSTANTIATE_TEST_SUITE_P(All, Deterministic,
                         testing::Values(Coll::kAllReduce, Coll::kReduce, Coll::kReduceScatter),
                         [](const auto &tested) { return std::string(NameOf(tested.param)); });

TEST(Bits, OfDeterministicSumsDoNotDependOnHowTheDataIsSplit)
{
    for (const int n : SeveralRanks()) {
        for (const char *algo : {"", "allreduce:direct", "allreduce:oneshot", "allreduce:chain"}) {
            Team team(n, algo, 1);
            std::vector<Bits> all;
            for (const kolo_type type : FloatTypes()) {
                Bits b = {Coll::kAllReduce, type, KOLO_SUM, 40000};
                b.in_rank_order = true;
                b.calls = 7;
                all.push_back(b);
            }
            EXPECT_EQ("", PlayAllBits(&team, all)) << algo << ", " << n << " ranks";
        }
    }
}

TEST(Bits, OfProductsAreInRankOrderToo)
{
    for (const int n : SeveralRanks()) {
        Team team(n, "", 1);
        EXPECT_EQ("", PlayAllBits(&team, BitsOf(Coll::kAllReduce, {KOLO_PROD}, true))) << n;
    }
}

TEST(Bits, OfARingOfThreeAreNotInRankOrderAndSoItIsRefused)
{
    Team team(3, "allreduce:ring", 1);
    Report report;
    team.Run([&](kolo_comm *comm, int) {
        float x = 1;
        const kolo_status st = kolo_all_reduce(&x, &x, 1, KOLO_FLOAT32, KOLO_SUM, comm, nullptr);
        const std::string text = kolo_error_text();
        if (st != KOLO_ERR_INVALID || text.find("allreduce_ring") == std::string::npos ||
            text.find("allowed:") == std::string::npos ||
            text.find("direct") == std::string::npos || x != 1) {
            report.Add(std::string(kolo_status_name(st)) + ": " + text);
        }
    });
    EXPECT_EQ("", report.Text());
}

} // namespace collectives
