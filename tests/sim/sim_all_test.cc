// SPDX-License-Identifier: Apache-2.0
// covers: src/sim
// All algorithms: folding changes nothing, the critical path is whole, and no time is below what the
// busiest core or NIC needs.
#include "sim_util.h"

extern "C" {
#include "sim/report.h"
}

namespace
{

class AllSims : public testing::TestWithParam<const kolo_algo *>
{
};

// Hosts of one, four and all ranks; every op costs something.
kolo_sim_machine Hosts(int ranks_per_host)
{
    kolo_sim_machine m;
    kolo_sim_machine_init(&m);
    m.ranks_per_host = ranks_per_host;
    m.costs.net = {kAlphaUs, kBeta};
    m.costs.net_message_us = 0.3;
    m.costs.net_copy_us_per_byte = 0.0001;
    return m;
}

template <typename F> void ForEach(const kolo_algo *algo, F &&body)
{
    int done = 0;
    for (int ranks_per_host : {1, 4, 0}) {
        if (ranks_per_host == 1 && getenv("KOLO_TEST_SHORT") != nullptr) {
            continue; // the flows of many hosts take long with a sanitizer
        }
        for (int n : {1, 16, 23, 68}) {
            for (size_t bytes : {size_t{64}, size_t{100000}}) {
                const kolo_sim_machine m = Hosts(ranks_per_host);
                kolo_sim_result r = {};
                const kolo_status st = Try(algo->base.name, n, bytes, m, true, &r, true);
                if (st == KOLO_ERR_UNSUPPORTED) {
                    continue;
                }
                ASSERT_EQ(KOLO_OK, st) << kolo_error_text();
                SCOPED_TRACE(std::to_string(n) + " ranks, " + std::to_string(ranks_per_host) +
                             " a host, " + std::to_string(bytes) + " bytes");
                body(m, n, bytes, r);
                kolo_sim_result_free(&r);
                done++;
            }
        }
    }
    if (done == 0) { // rings or trees that the planner lays for a machine with GPUs
        GTEST_SKIP() << kolo_error_text();
    }
}

} // namespace

TEST_P(AllSims, OneHostStandsForAllWithoutADifference)
{
    ForEach(GetParam(), [](const kolo_sim_machine &m, int n, size_t bytes, kolo_sim_result &r) {
        const kolo_sim_result every = Sim(GetParam()->base.name, n, bytes, m);
        EXPECT_EQ(n, every.simulated);
        EXPECT_NEAR(every.total_us, r.total_us, Near(every.total_us));
    });
}

TEST_P(AllSims, TheCriticalPathIsAsLongAsTheCall)
{
    ForEach(GetParam(), [](const kolo_sim_machine &, int, size_t, kolo_sim_result &r) {
        kolo_sim_path path;
        kolo_sim_path_find(&r, &path);
        double sum = 0;
        for (double us : path.us) {
            EXPECT_GE(us, -1e-9);
            sum += us;
        }
        EXPECT_NEAR(path.total_us, sum, Near(sum));
        if (r.walked == r.tiles) {
            EXPECT_NEAR(r.total_us, sum, Near(sum));
        }
    });
}

TEST_P(AllSims, NoCoreAndNoNicDoesMoreThanTimeAllows)
{
    ForEach(GetParam(), [](const kolo_sim_machine &, int, size_t, kolo_sim_result &r) {
        if (r.walked == r.tiles) {
            EXPECT_GE(r.total_us, r.busiest_us - Near(r.total_us));
            EXPECT_GE(r.total_us, r.wire_us - Near(r.total_us));
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllSims,
                         testing::ValuesIn(kolo_algos, kolo_algos + kolo_algos_count),
                         [](const testing::TestParamInfo<const kolo_algo *> &info) {
                             return std::string(info.param->base.name);
                         });

// With a host for each rank, all ranks of these do the same.
TEST(Fold, OneRankStandsForAllWhereAllAreAlike)
{
    for (const char *name : {"allreduce_ring", "allreduce_doubling", "allreduce_rabenseifner",
                             "alltoall_direct", "allgather_ring", "barrier_dissemination"}) {
        EXPECT_EQ(1, Sim(name, 128, 64 * 128, Hosts(1), true).simulated) << name;
    }
}

TEST(Fold, ATreeDoesNotFold)
{
    EXPECT_EQ(128, Sim("allreduce_tree", 128, 4096, Hosts(1), true).simulated);
}

TEST(Fold, NothingFoldsOnAMachineThatIsNotEven)
{
    kolo_sim_machine m = Hosts(1);
    m.slow_rank = 5;
    EXPECT_EQ(64, Sim("allreduce_ring", 64, 4096, m, true).simulated);
    m = Hosts(1);
    m.hosts_per_switch = 5;
    EXPECT_EQ(64, Sim("allreduce_ring", 64, 4096, m, true).simulated);
    m = Hosts(1);
    m.noise = 0.1;
    EXPECT_EQ(64, Sim("allreduce_ring", 64, 4096, m, true).simulated);
}

TEST(Fold, OneLeafStandsForAllLeaves)
{
    kolo_sim_machine m = Hosts(1);
    m.hosts_per_switch = 4;
    m.switch_latency_us = 3;
    m.uplink_us_per_byte = kBeta;
    for (const char *name : {"allreduce_ring", "allreduce_doubling", "alltoall_direct"}) {
        const kolo_sim_result one = Sim(name, 64, 64 * 64, m, true);
        const kolo_sim_result all = Sim(name, 64, 64 * 64, m, false);
        EXPECT_EQ(4, one.simulated) << name;
        EXPECT_NEAR(all.total_us, one.total_us, Near(all.total_us)) << name;
    }
}

// Before anything is built: a plan of so many ranks would take hours.
TEST(Size, APlanThatGrowsWithTheSquareOfTheRanksIsRefused)
{
    for (const char *name : {"allreduce_ring", "alltoall_direct"}) {
        kolo_sim_result r = {};
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, Try(name, 1 << 17, 1 << 20, Hosts(1), true, &r)) << name;
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("steps")) << name;
    }
}

TEST(Size, SixteenThousandRanksOfATreeAreSimulated)
{
    EXPECT_EQ(1 << 14, Sim("allreduce_tree", 1 << 14, 4096, Hosts(1), true).simulated);
}
