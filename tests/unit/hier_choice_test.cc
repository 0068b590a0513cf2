// SPDX-License-Identifier: Apache-2.0
// covers: src/tune/choose.c
/* What is chosen on recorded machines: hierarchies where ranks are far from each other, and nowhere
 * else. Costs are given, as these machines are not here. */
extern "C" {
#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "topology/layout/layout.h"
#include "topology/machine/host.h"
#include "topology/source.h"
#include "tune/model.h"
#include "tune/tune.h"
}

#include <dirent.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace
{

const kolo_asking *Asking(size_t bytes, int max_phases)
{
    static thread_local kolo_asking about;
    about = {bytes, false, max_phases, 0};
    return &about;
}

const std::string kSource = KOLO_SOURCE_ROOT;
const std::string kManyL3 = kSource + "/tests/data/hwloc-2pack-4l3-4core.xml";

int AlgoCount()
{
    return kolo_algos_count;
}

const kolo_algo *AlgoAt(int index)
{
    return kolo_algos[index];
}

bool Climbs(const kolo_algo *algo)
{
    return std::string(kolo_algo_word(algo)).find("hier") == 0;
}

/* n ranks, rank i on PU cpus(i) of a machine, and the chooser of their communicator. */
class Machine
{
  public:
    Machine(
        const std::string &file, int n, int (*cpu)(int) = [](int r) { return r; })
        : n_(n), place_(static_cast<size_t>(n)), order_(static_cast<size_t>(n))
    {
        kolo_host *host = nullptr;
        EXPECT_EQ(KOLO_OK, kolo_host_load(file.c_str(), &host)) << kolo_error_text();
        for (int r = 0; r < n; r++) {
            const int pu = kolo_host_pu_os(host, cpu(r) % kolo_host_pus(host));
            place_[static_cast<size_t>(r)] = kolo_host_place(host, pu);
        }
        kolo_host_destroy(host);
        EXPECT_EQ(KOLO_OK, kolo_groups_make(n, nullptr, place_.data(), &groups_));
        kolo_order_ranks(n, nullptr, place_.data(), order_.data());
        EXPECT_TRUE(kolo_costs_parse("cores=4096,latency_us=0.04,step_us=0.024", &costs_));
        kolo_model_init(&model_, &costs_, n, 1, 1, place_.data());
    }
    ~Machine()
    {
        kolo_groups_free(&groups_);
    }
    Machine(const Machine &) = delete;
    Machine &operator=(const Machine &) = delete;

    kolo_shape Shape(kolo_coll coll) const
    {
        kolo_shape shape = {};
        shape.size = sizeof shape;
        shape.coll = coll;
        shape.nranks = n_;
        shape.order = order_.data();
        shape.nlevels = groups_.nlevels;
        shape.group = groups_.group;
        return shape;
    }

    /* The least price of those that climb groups, or of the flat ones; 0: there are none. */
    double Best(kolo_coll coll, size_t bytes, bool climbs) const
    {
        double best_us = 0;
        for (int i = 0; i < kolo_algos_count; i++) {
            const kolo_shape shape = Shape(coll);
            kolo_forecast forecast = {};
            if (kolo_algos[i]->coll == coll && Climbs(kolo_algos[i]) == climbs &&
                kolo_model_price(&model_, kolo_algos[i], &shape, Asking(bytes, 1 << 16),
                                 &forecast) == KOLO_OK) {
                best_us = best_us > 0 && best_us < forecast.us ? best_us : forecast.us;
            }
        }
        return best_us;
    }

    const kolo_algo *Choice(kolo_coll coll, size_t bytes) const
    {
        kolo_chooser_options options = {};
        kolo_chooser *chooser = nullptr;
        kolo_pick pick = {};
        options.nranks = n_;
        options.nhosts = 1;
        options.order = order_.data();
        options.place = place_.data();
        options.nlevels = groups_.nlevels;
        options.group = groups_.group;
        options.costs = costs_;
        options.algo_count = AlgoCount;
        options.algo_at = AlgoAt;
        options.max_phases = 2 * n_ + 62;
        EXPECT_EQ(KOLO_OK, kolo_chooser_create(&options, &chooser));
        EXPECT_EQ(KOLO_OK, kolo_choose(chooser, coll, 0, bytes, KOLO_FLOAT32, &pick));
        kolo_chooser_destroy(chooser);
        return pick.algo;
    }

    int Levels() const
    {
        return groups_.nlevels;
    }

  private:
    int n_;
    std::vector<kolo_place> place_;
    std::vector<int> order_;
    kolo_groups groups_ = {};
    kolo_costs costs_ = {};
    kolo_model model_ = {};
};

TEST(Hierarchies, AreChosenForAllReduceOfAnySizeOnTwoPackagesOfManyCaches)
{
    const Machine machine(kManyL3, 32);
    for (size_t bytes = 8; bytes <= 64 << 20; bytes *= 8) {
        const kolo_algo *algo = machine.Choice(KOLO_COLL_ALL_REDUCE, bytes);
        EXPECT_TRUE(Climbs(algo)) << bytes << ": " << algo->base.name;
        EXPECT_LT(machine.Best(KOLO_COLL_ALL_REDUCE, bytes, true),
                  machine.Best(KOLO_COLL_ALL_REDUCE, bytes, false))
            << bytes;
    }
}

/* The flat ones know the order of the ring, so this is not for want of that. */
TEST(Hierarchies, TakeAFifthLessTimeForLongVectorsThere)
{
    for (const int n : {16, 24, 32}) {
        const Machine machine(kManyL3, n, [](int r) { return r % 2 * 16 + r / 2; });
        const double flat_us = machine.Best(KOLO_COLL_ALL_REDUCE, 4 << 20, false);
        EXPECT_LT(machine.Best(KOLO_COLL_ALL_REDUCE, 4 << 20, true), 0.81 * flat_us) << n;
    }
}

TEST(Hierarchies, AreChosenForBarriersAndShortBroadcastsThere)
{
    const Machine machine(kManyL3, 32);
    EXPECT_TRUE(Climbs(machine.Choice(KOLO_COLL_BARRIER, 0)));
    EXPECT_TRUE(Climbs(machine.Choice(KOLO_COLL_BROADCAST, 8)));
    EXPECT_TRUE(Climbs(machine.Choice(KOLO_COLL_REDUCE, 8)));
    EXPECT_TRUE(Climbs(machine.Choice(KOLO_COLL_REDUCE_SCATTER, 64 << 10)));
}

TEST(Hierarchies, AreNeverChosenWithinOneCacheOrByTwoRanks)
{
    const Machine one_cache(kManyL3, 4);
    const Machine two_packages(kManyL3, 2, [](int r) { return 16 * r; });
    for (const Machine *machine : {&one_cache, &two_packages}) {
        EXPECT_EQ(0, machine->Levels());
        for (int coll = 0; coll < KOLO_COLLS; coll++) {
            for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{1} << 20}) {
                const auto c = static_cast<kolo_coll>(coll);
                EXPECT_FALSE(Climbs(machine->Choice(c, bytes))) << coll << " " << bytes;
                EXPECT_EQ(0, machine->Best(c, bytes, true));
            }
        }
    }
}

/* Smaller communicators stand for them, which must not lie in one package. */
TEST(Hierarchies, AreChosenByHundredsOfRanksForLongVectors)
{
    for (const int n : {96, 128, 200}) {
        const Machine machine(kManyL3, n, [](int r) { return r / 7; });
        for (const size_t bytes : {size_t{64} << 10, size_t{4} << 20}) {
            const double climbs_us = machine.Best(KOLO_COLL_ALL_REDUCE, bytes, true);
            EXPECT_GT(climbs_us, 0);
            EXPECT_LT(climbs_us, machine.Best(KOLO_COLL_ALL_REDUCE, bytes, false))
                << n << " ranks, " << bytes << " bytes";
        }
    }
}

TEST(FarRanks, CostMoreThanNearOnes)
{
    const auto price = [](int (*cpu)(int), size_t bytes) {
        return Machine(kManyL3, 2, cpu).Best(KOLO_COLL_ALL_REDUCE, bytes, false);
    };
    for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{1} << 20}) {
        const double near_us = price([](int r) { return r; }, bytes);
        const double other_l3_us = price([](int r) { return 4 * r; }, bytes);
        const double other_package_us = price([](int r) { return 16 * r; }, bytes);
        EXPECT_GT(other_l3_us, 1.2 * near_us) << bytes;
        EXPECT_GT(other_package_us, 1.1 * other_l3_us) << bytes;
    }
}

TEST(FarRanks, OfUnknownPlaceAreAsFarAsTheMachineHasThem)
{
    kolo_costs costs = {};
    ASSERT_TRUE(kolo_costs_parse("cores=64,latency_us=0.04,host_latency_us=0.5", &costs));
    kolo_shape shape = {};
    shape.size = sizeof shape;
    shape.coll = KOLO_COLL_BARRIER;
    shape.nranks = 2;
    const kolo_algo *algo = nullptr;
    for (int i = 0; i < kolo_algos_count; i++) {
        algo = kolo_algos[i]->coll == KOLO_COLL_BARRIER && !Climbs(kolo_algos[i]) ? kolo_algos[i]
                                                                                  : algo;
    }
    const std::vector<kolo_place> anywhere(2, kolo_place_unknown());
    for (const kolo_place *place : {static_cast<const kolo_place *>(nullptr), anywhere.data()}) {
        kolo_model model;
        kolo_forecast near = {}, far = {};
        costs.unbound = 0;
        kolo_model_init(&model, &costs, 2, 1, 1, place);
        ASSERT_EQ(KOLO_OK, kolo_model_price(&model, algo, &shape, Asking(0, 100), &near));
        costs.unbound = 3;
        kolo_model_init(&model, &costs, 2, 1, 1, place);
        ASSERT_EQ(KOLO_OK, kolo_model_price(&model, algo, &shape, Asking(0, 100), &far));
        EXPECT_GT(far.us, near.us + 0.45);
    }
}

/* Real servers, where a collection of them lies beside the source. */
TEST(Hierarchies, AreCandidatesOnRecordedServers)
{
    const std::string folder = kSource + "/../shared/data/topologies/";
    DIR *dir = opendir(folder.c_str());
    if (dir == nullptr) {
        GTEST_SKIP() << "no collection of recorded machines beside the source folder";
    }
    while (const struct dirent *entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name.rfind("hwloc-", 0) == 0 && name.find("v3format") == std::string::npos) {
            SCOPED_TRACE(name);
            const Machine machine(folder + name, 4, [](int r) { return r; });
            const Machine apart(folder + name, 8, [](int r) { return r * 2; });
            EXPECT_GT(machine.Best(KOLO_COLL_ALL_REDUCE, 1 << 20, false), 0);
            EXPECT_EQ(apart.Levels() > 0, apart.Best(KOLO_COLL_ALL_REDUCE, 1 << 20, true) > 0);
        }
    }
    closedir(dir);
}

} // namespace
