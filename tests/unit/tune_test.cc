// SPDX-License-Identifier: Apache-2.0
// covers: src/tune
/* Choosing algorithms: rules and their errors, costs, classes, the deterministic filter, tuners. */
extern "C" {
#include "plan/plan.h"
#include "topology/machine/host.h"
#include "topology/source.h"
#include "tune/tune.h"
}

#include <algorithm>
#include <atomic>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace
{

using Rules = std::unique_ptr<kolo_rules, decltype(&kolo_rules_destroy)>;
using Chooser = std::unique_ptr<kolo_chooser, decltype(&kolo_chooser_destroy)>;

Rules Parse(const std::string &text)
{
    kolo_rules *rules = nullptr;
    EXPECT_EQ(KOLO_OK, kolo_rules_parse(text.c_str(), &rules)) << kolo_error_text();
    return {rules, kolo_rules_destroy};
}

std::string Find(const Rules &rules, kolo_coll coll, size_t bytes)
{
    const kolo_algo *algo = kolo_rules_find(rules.get(), coll, bytes);
    return algo != nullptr ? algo->base.name : "none";
}

std::string Refusal(const std::string &text)
{
    kolo_rules *rules = nullptr;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_rules_parse(text.c_str(), &rules)) << text;
    EXPECT_EQ(nullptr, rules);
    kolo_rules_destroy(rules);
    return kolo_error_text();
}

int AlgoCount()
{
    return kolo_algos_count;
}

const kolo_algo *AlgoAt(int index)
{
    return kolo_algos[index];
}

const kolo_algo *Named(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    ADD_FAILURE() << "no algorithm " << name;
    return nullptr;
}

kolo_costs Costs(const char *text = "cores=64,latency_us=0.2,copy_gbs=20")
{
    kolo_costs costs = {};
    EXPECT_TRUE(kolo_costs_parse(text, &costs)) << text;
    return costs;
}

kolo_chooser_options Options(int nranks)
{
    kolo_chooser_options options = {};
    options.nranks = nranks;
    options.nhosts = 1;
    options.costs = Costs();
    options.algo_count = AlgoCount;
    options.algo_at = AlgoAt;
    options.max_phases = 256;
    return options;
}

Chooser Make(const kolo_chooser_options &options)
{
    kolo_chooser *chooser = nullptr;
    EXPECT_EQ(KOLO_OK, kolo_chooser_create(&options, &chooser)) << kolo_error_text();
    return {chooser, kolo_chooser_destroy};
}

kolo_pick Choose(const Chooser &chooser, kolo_coll coll, size_t bytes,
                 kolo_type type = KOLO_FLOAT32, int root = 0)
{
    kolo_pick pick = {};
    EXPECT_EQ(KOLO_OK, kolo_choose(chooser.get(), coll, root, bytes, type, &pick))
        << kolo_error_text();
    return pick;
}

std::string Name(const kolo_pick &pick)
{
    return pick.algo != nullptr ? pick.algo->base.name : "none";
}

std::string Line(const Chooser &chooser, kolo_coll coll, size_t bytes)
{
    kolo_text text = {};
    kolo_choice_line(chooser.get(), coll, 0, bytes, &text);
    std::string line = text.chars != nullptr ? text.chars : "";
    kolo_text_free(&text);
    return line;
}

bool Has(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

// ---- rankings that choosers of one process share

std::atomic<int> builds{0};

void BuildCounted(const kolo_shape *shape, kolo_builder *builder)
{
    builds++;
    Named("allreduce_ring")->build(shape, builder);
}

TEST(Shared, PricesOfEqualFactsAreFoundOnce)
{
    static kolo_algo counted = *Named("allreduce_ring");
    counted.build = BuildCounted;
    kolo_chooser_options options = Options(6);
    options.algo_count = [] { return 1; };
    options.algo_at = [](int) -> const kolo_algo * { return &counted; };
    const auto held = Make(options); // shared rankings last as long as any chooser
    const kolo_pick first = Choose(Make(options), KOLO_COLL_ALL_REDUCE, 4);
    const int once = builds;
    EXPECT_GT(once, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
        threads.emplace_back([&] {
            const kolo_pick again = Choose(Make(options), KOLO_COLL_ALL_REDUCE, 4);
            EXPECT_EQ(first.predicted_us, again.predicted_us);
            EXPECT_EQ(&counted, again.algo);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(once, builds);
    Choose(Make(options), KOLO_COLL_ALL_REDUCE, 1024);
    EXPECT_GT(builds, once) << "another size";
    const int before = builds;
    options.costs = Costs("cores=64,latency_us=0.3,copy_gbs=20");
    const kolo_pick dearer = Choose(Make(options), KOLO_COLL_ALL_REDUCE, 4);
    EXPECT_GT(builds, before) << "other costs";
    EXPECT_GT(dearer.predicted_us, first.predicted_us);
}

// ---- rules

TEST(Rules, ARangeHoldsItsLowEndAndNotItsHighEnd)
{
    const Rules rules = Parse("allreduce:0-4k:direct,4k-:ring;broadcast:chain");
    EXPECT_EQ("allreduce_direct", Find(rules, KOLO_COLL_ALL_REDUCE, 0));
    EXPECT_EQ("allreduce_direct", Find(rules, KOLO_COLL_ALL_REDUCE, 4095));
    EXPECT_EQ("allreduce_ring", Find(rules, KOLO_COLL_ALL_REDUCE, 4096));
    EXPECT_EQ("allreduce_ring", Find(rules, KOLO_COLL_ALL_REDUCE, SIZE_MAX));
    EXPECT_EQ("broadcast_chain", Find(rules, KOLO_COLL_BROADCAST, 0));
    EXPECT_EQ("none", Find(rules, KOLO_COLL_REDUCE, 0));
}

TEST(Rules, SizesOutsideAllRangesHaveNoRule)
{
    const Rules rules = Parse("reduce:1k-2k:chain,1M-2M:direct");
    EXPECT_EQ("none", Find(rules, KOLO_COLL_REDUCE, 1023));
    EXPECT_EQ("reduce_chain", Find(rules, KOLO_COLL_REDUCE, 1024));
    EXPECT_EQ("none", Find(rules, KOLO_COLL_REDUCE, 2048));
    EXPECT_EQ("reduce_direct", Find(rules, KOLO_COLL_REDUCE, (2 << 20) - 1));
    EXPECT_EQ("none", Find(rules, KOLO_COLL_REDUCE, 2 << 20));
}

TEST(Rules, EveryAlgorithmCanBeNamedByItsWord)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo = kolo_algos[i];
        SCOPED_TRACE(algo->base.name);
        const Rules rules =
            Parse(std::string(kolo_coll_name(algo->coll)) + ":" + kolo_algo_word(algo));
        EXPECT_EQ(algo, kolo_rules_find(rules.get(), algo->coll, 77));
    }
}

TEST(Rules, ACollectiveMayBeSpeltAsItsCallIs)
{
    const Rules rules = Parse("all_reduce:ring;reduce_scatter:direct");
    EXPECT_EQ("allreduce_ring", Find(rules, KOLO_COLL_ALL_REDUCE, 1));
    EXPECT_EQ("reducescatter_direct", Find(rules, KOLO_COLL_REDUCE_SCATTER, 1));
}

TEST(Rules, NoTextIsNoRules)
{
    const Rules rules = Parse("");
    EXPECT_EQ("none", Find(rules, KOLO_COLL_ALL_REDUCE, 1));
    EXPECT_EQ(nullptr, kolo_rules_find(nullptr, KOLO_COLL_ALL_REDUCE, 1));
}

TEST(Rules, ARefusalNamesTheWordItsPlaceAndWhatIsAllowed)
{
    struct Case {
        const char *text;
        std::vector<std::string> said;
    };
    const std::vector<Case> cases = {
        {"allredcue:ring", {"\"allredcue\" at 1 ", "no collective", "allreduce", "barrier"}},
        {"broadcast:chain;alreduce:ring", {"\"alreduce\" at 17 ", "no collective"}},
        {"allreduce:rign", {"\"rign\" at 11 ", "no algorithm of allreduce", "ring", "direct"}},
        {"allreduce:allreduce_ring", {"\"allreduce_ring\" at 11 ", "no algorithm"}},
        {"allreduce:0-4q:ring", {"\"4q\" at 13 ", "no number of bytes"}},
        {"allreduce:-4k:ring", {"\"\" at 11 ", "no number of bytes"}},
        {"allreduce:4k:ring", {"\"4k\" at 11 ", "no range"}},
        {"allreduce:4k-4k:ring", {"\"4k-4k\" at 11 ", "empty"}},
        {"allreduce:8k-4k:ring", {"\"8k-4k\" at 11 ", "empty"}},
        {"allreduce:0-4k:ring,2k-:direct",
         {"\"2k-:direct\" at 21 ", "overlaps \"0-4k:ring\" at 11"}},
        {"allreduce:ring,direct", {"\"direct\" at 16 ", "overlaps \"ring\" at 11"}},
        {"allreduce:ring;allreduce:0-1:direct", {"at 26 ", "overlaps \"ring\" at 11"}},
        {"allreduce", {"\"allreduce\" at 1 ", "followed by ':'"}},
        {"allreduce,ring", {"\"allreduce\" at 1 ", "followed by ':'"}},
        {"allreduce:", {"\"\" at 11 ", "no algorithm"}},
        {"allreduce:ring;", {"\"\" at 16 ", "no collective"}},
        {"allreduce:ring,", {"\"\" at 16 ", "no algorithm"}},
        {"allreduce: ring", {"\" ring\" at 11 ", "no algorithm"}},
        {"allreduce:0-4k:ring:x", {"\"ring\" at 16 ", "followed by"}},
        {"allreduce:99999999999999999999999k-:ring", {"at 11 ", "no number of bytes"}},
    };
    for (const Case &c : cases) {
        const std::string text = Refusal(c.text);
        for (const std::string &part : c.said) {
            EXPECT_TRUE(Has(text, part)) << c.text << ": " << text << ": misses " << part;
        }
    }
}

TEST(Rules, APluggedInAlgorithmCanBeNamed)
{
    static kolo_algo plugged = *Named("allreduce_ring");
    plugged.base.name = "allreduce_mine";
    kolo_rules *rules = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_rules_parse_among(
                           "allreduce:mine", [] { return 1; },
                           [](int) -> const kolo_algo * { return &plugged; }, &rules));
    EXPECT_EQ(&plugged, kolo_rules_find(rules, KOLO_COLL_ALL_REDUCE, 1));
    kolo_rules_destroy(rules);
    EXPECT_TRUE(Has(Refusal("allreduce:mine"), "no algorithm"));
}

// ---- costs

TEST(Costs, TextIsReadInEveryUnit)
{
    kolo_costs costs = {};
    ASSERT_TRUE(kolo_costs_parse(
        "latency_us=0.2,copy_gbs=10,reduce_gbs=2.5e1,step_us=4e-3,switch_us=2,cores=16", &costs));
    EXPECT_EQ(sizeof costs, costs.size);
    EXPECT_EQ(16, costs.cores);
    EXPECT_DOUBLE_EQ(0.2, costs.latency_us);
    EXPECT_DOUBLE_EQ(1e-4, costs.copy_us_per_byte);
    EXPECT_DOUBLE_EQ(4e-5, costs.reduce_us_per_byte);
    EXPECT_DOUBLE_EQ(4e-3, costs.step_us);
    EXPECT_DOUBLE_EQ(2, costs.switch_us);
    EXPECT_DOUBLE_EQ(0, costs.net_rendezvous_bytes);
    ASSERT_TRUE(kolo_costs_parse("net_latency_us=3,net_rendezvous_bytes=65536", &costs));
    EXPECT_DOUBLE_EQ(65536, costs.net_rendezvous_bytes);
}

TEST(Costs, WhatIsNotNamedHasItsDefault)
{
    const kolo_costs costs = Costs("latency_us=7");
    EXPECT_EQ(7, costs.latency_us);
    EXPECT_GT(costs.copy_us_per_byte, 0);
    EXPECT_GT(costs.switch_us, 0);
    EXPECT_EQ(1, costs.cores);
}

TEST(Costs, OtherTextIsRefusedAndChangesNothing)
{
    kolo_costs costs = {};
    costs.latency_us = 42;
    for (const char *text : {"",
                             ",",
                             "latency_us",
                             "latency_us=",
                             "latency_us=x",
                             "latency_us=1x",
                             "latency_us=-1",
                             "latency_us=0",
                             "latency_us=1,",
                             ",latency_us=1",
                             "latency=1",
                             "cores=1.5",
                             "cores=0",
                             "latency_us=1,latency_us=2",
                             "latency_us=1.2.3",
                             "latency_us=1e",
                             "latency_us=nan",
                             "latency_us=inf",
                             "latency_us=1e99",
                             "copy_gbs =1",
                             "cores=1,cores=2"}) {
        EXPECT_FALSE(kolo_costs_parse(text, &costs)) << text;
        EXPECT_EQ(42, costs.latency_us) << text;
    }
}

bool IsTwoDigits(double x)
{
    char text[32];
    std::snprintf(text, sizeof text, "%.1e", x);
    const double rounded = std::strtod(text, nullptr);
    return x > rounded * (1 - 1e-12) && x < rounded * (1 + 1e-12);
}

TEST(Costs, MeasuringIsQuickAndSane)
{
    kolo_host *host = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_host_discover(&host)) << kolo_error_text();
    for (const int cores : {1, 2}) {
        SCOPED_TRACE(cores);
        double best_us = 1e9;
        kolo_costs costs = {};
        for (int i = 0; i < 40; i++) { /* other programs may have disturbed one */
            const double begin_us = kolo_now_us();
            kolo_costs_measure(cores, i % 2 == 0 ? host : nullptr, &costs);
            best_us = std::min(best_us, kolo_now_us() - begin_us);
            if (i >= 3 && best_us < 50e3 && costs.latency_us <= 5 && costs.switch_us <= 20 &&
                std::max(costs.copy_us_per_byte, costs.reduce_us_per_byte) <= 1e-3) {
                break;
            }
        }
        EXPECT_LT(best_us, 50e3);
        EXPECT_EQ(sizeof costs, costs.size);
        EXPECT_EQ(cores, costs.cores);
        EXPECT_GT(costs.latency_us, 1e-3);
        EXPECT_LE(costs.latency_us, 5);
        EXPECT_GT(costs.switch_us, 1e-2);
        EXPECT_LE(costs.switch_us, 20);
        for (const double us : {costs.copy_us_per_byte, costs.reduce_us_per_byte}) {
            EXPECT_GT(us, 1e-6); /* a terabyte a second */
            EXPECT_LE(us, 1e-3);
        }
        for (const double us : {costs.latency_us, costs.copy_us_per_byte, costs.switch_us}) {
            EXPECT_TRUE(IsTwoDigits(us)) << us;
        }
        kolo_far near = {costs.latency_us, costs.copy_us_per_byte};
        for (const kolo_far &far : costs.far) { /* measured or not, farther is not faster */
            EXPECT_GE(far.latency_us, near.latency_us);
            EXPECT_GE(far.copy_us_per_byte, near.copy_us_per_byte);
            near = far;
        }
        EXPECT_GE(costs.unbound, 0);
        EXPECT_LE(costs.unbound, 3);
    }
    kolo_host_destroy(host);
}

// ---- choosing

TEST(Choosing, FollowsTheRulesUpToTheirBorders)
{
    const Rules rules = Parse("allreduce:0-5000:chain,5000-9000:ring");
    kolo_chooser_options options = Options(4);
    options.rules = rules.get();
    const Chooser chooser = Make(options);
    EXPECT_EQ("allreduce_chain", Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, 4999)));
    EXPECT_STREQ("rules", Choose(chooser, KOLO_COLL_ALL_REDUCE, 4999).source);
    EXPECT_EQ("allreduce_ring", Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, 5000)));
    EXPECT_STREQ("rules", Choose(chooser, KOLO_COLL_ALL_REDUCE, 8999).source);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_ALL_REDUCE, 9000).source);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_BROADCAST, 8).source);
}

TEST(Choosing, ARuleThatCannotRunIsAnErrorThatNamesIt)
{
    const Rules rules = Parse("allgather:0-4k:doubling");
    kolo_chooser_options options = Options(6); /* doubling needs a power of two */
    options.rules = rules.get();
    const Chooser chooser = Make(options);
    kolo_pick pick = {};
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_choose(chooser.get(), KOLO_COLL_ALL_GATHER, 0, 100, KOLO_INT8, &pick));
    const std::string text = kolo_error_text();
    for (const char *part :
         {"allgather:0-4k:doubling", "cannot run", "6 ranks", "allowed: ", "direct", "ring"}) {
        EXPECT_TRUE(Has(text, part)) << text;
    }
    EXPECT_EQ(nullptr, pick.algo);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_ALL_GATHER, 4096).source);
}

TEST(Choosing, ARuleWithMoreSignalsThanThereAreLinesIsAnError)
{
    const Rules rules = Parse("allreduce:ring");
    kolo_chooser_options options = Options(16);
    options.rules = rules.get();
    options.max_phases = 20; /* ring has 30 rounds */
    const Chooser chooser = Make(options);
    kolo_pick pick = {};
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_choose(chooser.get(), KOLO_COLL_ALL_REDUCE, 0, 1, KOLO_INT8, &pick));
    EXPECT_TRUE(Has(kolo_error_text(), "too many rounds")) << kolo_error_text();
}

TEST(Choosing, PlansWithTooManySignalsAreNoCandidates)
{
    kolo_chooser_options options = Options(16);
    for (const int phases : {2, 8, 256}) {
        options.max_phases = phases;
        const Chooser chooser = Make(options);
        Choose(chooser, KOLO_COLL_ALL_REDUCE, 1 << 20);
        const std::string line = Line(chooser, KOLO_COLL_ALL_REDUCE, 1 << 20);
        EXPECT_TRUE(Has(line, " direct ")) << line;
        EXPECT_EQ(phases >= 8, Has(line, " doubling ")) << line;
        EXPECT_EQ(phases >= 30, Has(line, " ring ")) << line;
    }
}

TEST(Choosing, SizesOfOneClassShareTheirAlgorithm)
{
    for (const int n : {2, 4, 7}) {
        const Chooser chooser = Make(Options(n));
        for (int k = 0; k < 24; k++) {
            const size_t low = size_t{1} << k;
            const std::string name = Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, low));
            for (const size_t bytes : {low + low / 2, 2 * low - 1}) {
                const kolo_pick pick = Choose(chooser, KOLO_COLL_ALL_REDUCE, bytes);
                EXPECT_EQ(name, Name(pick)) << bytes;
                EXPECT_FALSE(pick.fresh && bytes != low) << bytes;
            }
        }
    }
}

TEST(Choosing, MoreBytesAreNeverPredictedToBeFaster)
{
    for (int coll = 0; coll < KOLO_COLL_BARRIER; coll++) {
        const Chooser chooser = Make(Options(4));
        double before_us = 0;
        for (size_t bytes = 1; bytes <= 16 << 20; bytes *= 2) {
            const kolo_pick pick = Choose(chooser, static_cast<kolo_coll>(coll), bytes);
            EXPECT_GE(pick.predicted_us, before_us * 0.999) << coll << ": " << bytes;
            before_us = pick.predicted_us;
        }
    }
}

TEST(Choosing, OnlyTheFirstChoiceOfAClassIsFresh)
{
    const Chooser chooser = Make(Options(4));
    EXPECT_TRUE(Choose(chooser, KOLO_COLL_ALL_REDUCE, 1024).fresh);
    EXPECT_FALSE(Choose(chooser, KOLO_COLL_ALL_REDUCE, 1025).fresh);
    EXPECT_TRUE(Choose(chooser, KOLO_COLL_ALL_REDUCE, 2048).fresh);
    EXPECT_TRUE(Choose(chooser, KOLO_COLL_REDUCE, 1024).fresh);
}

TEST(Choosing, AllRanksChooseAlikeWhateverTheyAskedBefore)
{
    for (const int n : {1, 2, 3, 8, 13, 64}) {
        const Chooser a = Make(Options(n)), b = Make(Options(n));
        for (int coll = KOLO_COLLS - 1; coll >= 0; coll--) {
            Choose(b, static_cast<kolo_coll>(coll), 12345, KOLO_FLOAT32, n - 1);
        }
        for (int coll = 0; coll < KOLO_COLLS; coll++) {
            for (const size_t bytes : {0, 1, 8, 12345, 1 << 20}) {
                const auto c = static_cast<kolo_coll>(coll);
                const int root = kolo_coll_rooted(c) ? n / 2 : 0;
                const kolo_pick one = Choose(a, c, bytes, KOLO_FLOAT32, root);
                const kolo_pick other = Choose(b, c, bytes, KOLO_FLOAT32, root);
                EXPECT_EQ(one.algo, other.algo) << n << " " << coll << " " << bytes;
                EXPECT_EQ(one.predicted_us, other.predicted_us);
            }
        }
    }
}

TEST(Choosing, TheOrderOfTheRingIsCopied)
{
    std::vector<int> order = {2, 0, 3, 1};
    kolo_chooser_options options = Options(4);
    options.order = order.data();
    const Chooser chooser = Make(options);
    order.assign(4, -1);
    EXPECT_NE("none", Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, 1 << 20)));
}

TEST(Choosing, HundredsOfRanksArePricedQuickly)
{
    for (const int n : {100, 512}) {
        const Chooser chooser = Make(Options(n));
        for (int coll = 0; coll < KOLO_COLLS; coll++) {
            double best_us = 1e9;
            for (const size_t bytes : {8, 4096, 1 << 20}) {
                const double begin_us = kolo_now_us();
                EXPECT_TRUE(Choose(chooser, static_cast<kolo_coll>(coll), bytes).fresh);
                best_us = std::min(best_us, kolo_now_us() - begin_us);
            }
            RecordProperty(kolo_coll_name(static_cast<kolo_coll>(coll)), std::to_string(best_us));
            EXPECT_LT(best_us, 500e3) << n << " " << kolo_coll_name(static_cast<kolo_coll>(coll));
        }
    }
}

TEST(Choosing, FewRoundsWinForFewBytesAndLittleVolumeForMany)
{
    const Chooser chooser = Make(Options(16));
    const std::string small = Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, 8));
    const std::string large = Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, 16 << 20));
    EXPECT_TRUE(small != "allreduce_ring" && small != "allreduce_chain") << small;
    EXPECT_TRUE(large != "allreduce_oneshot" && large != "allreduce_doubling") << large;
}

// A message to another host keeps a core busy. So as many messages as there are hosts take longer than
// a few rounds.
TEST(Choosing, BetweenManyHostsFewMessagesWin)
{
    for (const char *net : {"net_latency_us=15,net_gbs=1.25", "net_latency_us=3,net_gbs=12"}) {
        for (const char *more : {"", ",net_message_us=1"}) {
            kolo_chooser_options options = Options(64);
            options.nhosts = 64;
            options.costs = Costs((std::string("cores=4,") + net + more).c_str());
            const Chooser chooser = Make(options);
            for (size_t bytes : {size_t{8}, size_t{2048}}) {
                EXPECT_EQ("allreduce_doubling", Name(Choose(chooser, KOLO_COLL_ALL_REDUCE, bytes)));
            }
            EXPECT_EQ("alltoall_bruck", Name(Choose(chooser, KOLO_COLL_ALL_TO_ALL, 8)));
            EXPECT_EQ("barrier_dissemination", Name(Choose(chooser, KOLO_COLL_BARRIER, 0)));
        }
    }
}

// Four hosts may be containers of one machine: then all messages take time from the same cores.
TEST(Choosing, HostsThatShareCoresSendFewMessages)
{
    kolo_chooser_options options = Options(4);
    options.nhosts = 4;
    options.costs = Costs("cores=2,switch_us=3,net_latency_us=6,net_gbs=1.25,net_message_us=4");
    EXPECT_EQ("barrier_direct", Name(Choose(Make(options), KOLO_COLL_BARRIER, 0)));
    options.npools = 1;
    EXPECT_EQ("barrier_dissemination", Name(Choose(Make(options), KOLO_COLL_BARRIER, 0)));
    options.nranks = options.nhosts = 8;
    EXPECT_EQ("barrier_central", Name(Choose(Make(options), KOLO_COLL_BARRIER, 0)));
    options.npools = 8;
    EXPECT_NE("barrier_central", Name(Choose(Make(options), KOLO_COLL_BARRIER, 0)));
}

TEST(Choosing, ACoresTimeForAMessageCounts)
{
    double us[2] = {};
    for (int i = 0; i < 2; i++) {
        kolo_chooser_options options = Options(2);
        options.nhosts = 2;
        options.costs = Costs(i == 0 ? "net_latency_us=20" : "net_latency_us=20,net_message_us=9");
        us[i] = Choose(Make(options), KOLO_COLL_BARRIER, 0).predicted_us;
    }
    EXPECT_NEAR(20, us[0], 1e-9) << "a quarter of the latency at either end is a part of it";
    EXPECT_NEAR(20 + 2 * 9, us[1], 1e-9);
}

// Between hosts a call alone counts: seven messages at once are there before three in turn.
TEST(Choosing, FewHostsReduceAndBroadcastWithoutRelays)
{
    kolo_chooser_options options = Options(8);
    options.nhosts = 8;
    options.costs = Costs("net_latency_us=1.5,net_gbs=24,net_message_us=0.3");
    const Chooser chooser = Make(options);
    EXPECT_EQ("reduce_direct", Name(Choose(chooser, KOLO_COLL_REDUCE, 128)));
    EXPECT_EQ("broadcast_direct", Name(Choose(chooser, KOLO_COLL_BROADCAST, 128)));
}

// ---- deterministic

std::vector<std::string> Admitted(kolo_coll coll, int n, int root, bool deterministic)
{
    std::vector<std::string> names;
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo = kolo_algos[i];
        if (algo->coll != coll) {
            continue;
        }
        const Rules rules = Parse(std::string(kolo_coll_name(coll)) + ":" + kolo_algo_word(algo));
        kolo_chooser_options options = Options(n);
        options.rules = rules.get();
        options.deterministic = deterministic;
        const Chooser chooser = Make(options);
        kolo_pick pick = {};
        if (kolo_choose(chooser.get(), coll, root, 4096, KOLO_FLOAT32, &pick) == KOLO_OK) {
            names.emplace_back(kolo_algo_word(algo));
        }
    }
    return names;
}

TEST(Deterministic, AdmitsOnlyAdditionInRankOrder)
{
    using Names = std::vector<std::string>;
    for (const int n : {4, 7, 64, 100, 128}) {
        SCOPED_TRACE(n);
        EXPECT_EQ((Names{"direct", "oneshot", "chain"}),
                  Admitted(KOLO_COLL_ALL_REDUCE, n, 0, true));
        EXPECT_EQ((Names{"direct"}), Admitted(KOLO_COLL_REDUCE_SCATTER, n, 0, true));
    }
}

TEST(Deterministic, ARuleForAnotherExpressionIsAnError)
{
    const Rules rules = Parse("allreduce:ring");
    kolo_chooser_options options = Options(5);
    options.rules = rules.get();
    options.deterministic = true;
    const Chooser chooser = Make(options);
    kolo_pick pick = {};
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_choose(chooser.get(), KOLO_COLL_ALL_REDUCE, 0, 8, KOLO_FLOAT32, &pick));
    const std::string text = kolo_error_text();
    EXPECT_TRUE(Has(text, "allreduce:ring") && Has(text, "rank order")) << text;
    EXPECT_TRUE(Has(text, "direct") && Has(text, "oneshot") && Has(text, "chain")) << text;
    EXPECT_FALSE(Has(text, "doubling")) << text;
}

TEST(Deterministic, WithoutItEveryExpressionWillDo)
{
    EXPECT_EQ(8u, Admitted(KOLO_COLL_ALL_REDUCE, 8, 0, false).size());
}

TEST(Deterministic, MovementIsNotConcerned)
{
    EXPECT_EQ(Admitted(KOLO_COLL_ALL_GATHER, 8, 0, false),
              Admitted(KOLO_COLL_ALL_GATHER, 8, 0, true));
    EXPECT_EQ(Admitted(KOLO_COLL_BROADCAST, 8, 3, false),
              Admitted(KOLO_COLL_BROADCAST, 8, 3, true));
}

TEST(Deterministic, TheRootDecidesTooWhatTheExpressionIs)
{
    for (int root = 0; root < 6; root++) {
        const std::vector<std::string> names = Admitted(KOLO_COLL_REDUCE, 6, root, true);
        EXPECT_EQ(1, std::count(names.begin(), names.end(), "direct")) << root;
        EXPECT_EQ(0, std::count(names.begin(), names.end(), "binomial")) << root;
    }
}

TEST(Deterministic, SumsThatTravelAreWideWhereTheTypeRounds)
{
    struct Case {
        const char *rule;
        bool wide;
    };
    for (const int n : {3, 64, 200}) {
        for (const Case &c : {Case{"allreduce:chain", true}, Case{"allreduce:direct", false},
                              Case{"allreduce:oneshot", false}}) {
            const Rules rules = Parse(c.rule);
            kolo_chooser_options options = Options(n);
            options.max_phases = 1 << 20;
            options.rules = rules.get();
            options.deterministic = true;
            const Chooser chooser = Make(options);
            for (int type = 0; type < KOLO_TYPES; type++) {
                const bool rounds = type == KOLO_FLOAT16 || type == KOLO_BFLOAT16 ||
                                    type == KOLO_FLOAT8_E4M3 || type == KOLO_FLOAT8_E5M2;
                EXPECT_EQ(
                    c.wide && rounds,
                    Choose(chooser, KOLO_COLL_ALL_REDUCE, 4096, static_cast<kolo_type>(type)).wide)
                    << c.rule << " " << n << " " << type;
            }
            options.deterministic = false;
            EXPECT_FALSE(Choose(Make(options), KOLO_COLL_ALL_REDUCE, 4096, KOLO_FLOAT16).wide);
        }
    }
}

TEST(Deterministic, TwoRanksAddOnceEvenInAChain)
{
    const Rules rules = Parse("allreduce:chain");
    kolo_chooser_options options = Options(2);
    options.rules = rules.get();
    options.deterministic = true;
    EXPECT_FALSE(Choose(Make(options), KOLO_COLL_ALL_REDUCE, 4096, KOLO_BFLOAT16).wide);
}

/* Everything is sent to rank 0, which adds in two passes: scratch, then the result. */
void BuildTwoPasses(const kolo_shape *shape, kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 1);
    kolo_local(b, 0, kolo_in(0), kolo_scratch(0), KOLO_MOVE);
    for (int r = 1; r < n - 1; r++) {
        kolo_transfer(b, r, kolo_in(0), 0, kolo_scratch(0), KOLO_ADD);
    }
    kolo_round(b);
    kolo_local(b, 0, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    kolo_transfer(b, n - 1, kolo_in(0), 0, kolo_out(0), KOLO_ADD | KOLO_LAST);
    kolo_round(b);
}

TEST(Deterministic, ASumThatIsStoredBetweenTwoPassesIsWideToo)
{
    static kolo_algo two_passes = *Named("reduce_direct");
    two_passes.base.name = "reduce_twopasses";
    two_passes.build = BuildTwoPasses;
    two_passes.supports = [](const kolo_shape *shape) { return shape->root == 0; };
    kolo_chooser_options options = Options(4);
    options.deterministic = true;
    options.algo_count = [] { return 1; };
    options.algo_at = [](int) -> const kolo_algo * { return &two_passes; };
    const kolo_pick pick = Choose(Make(options), KOLO_COLL_REDUCE, 4096, KOLO_FLOAT16);
    EXPECT_EQ(&two_passes, pick.algo);
    EXPECT_TRUE(pick.wide);
}

// ---- tuners

struct TunerState {
    std::string wish; /* a candidate's name, "" for no opinion */
    kolo_status status = KOLO_OK;
    int index = -1;
    kolo_query seen = {};
    std::vector<std::string> offered;
};

kolo_status Tune(const void *self, const kolo_query *query, kolo_choice *out)
{
    auto *state = static_cast<TunerState *>(const_cast<void *>(self));
    state->seen = *query;
    state->offered.assign(query->candidate, query->candidate + query->ncandidates);
    out->index = state->index;
    for (int i = 0; i < query->ncandidates; i++) {
        EXPECT_GT(query->predicted_us[i], 0);
        out->index = state->wish == query->candidate[i] ? i : out->index;
    }
    return state->status;
}

class Tuned : public testing::Test
{
  protected:
    Tuned()
    {
        tuner.base = {KOLO_PLUGIN_ABI, sizeof tuner, "test"};
        tuner.choose = Tune;
        options.tuner = &tuner;
        options.tuner_self = &state;
    }
    TunerState state;
    kolo_tuner tuner = {};
    kolo_chooser_options options = Options(6);
};

TEST_F(Tuned, TheTunersWishIsGranted)
{
    state.wish = "allreduce_chain";
    const kolo_pick pick = Choose(Make(options), KOLO_COLL_ALL_REDUCE, 5000, KOLO_FLOAT64);
    EXPECT_EQ("allreduce_chain", Name(pick));
    EXPECT_STREQ("tuner", pick.source);
    EXPECT_EQ(5000u, state.seen.bytes);
    EXPECT_EQ(KOLO_FLOAT64, state.seen.type);
    EXPECT_EQ(6, state.seen.nranks);
}

TEST_F(Tuned, WithoutAnOpinionThePriceDecides)
{
    EXPECT_STREQ("price", Choose(Make(options), KOLO_COLL_ALL_REDUCE, 5000).source);
    EXPECT_FALSE(state.offered.empty());
}

TEST_F(Tuned, RulesGoBeforeTheTuner)
{
    const Rules rules = Parse("allreduce:ring");
    options.rules = rules.get();
    state.wish = "allreduce_chain";
    EXPECT_EQ("allreduce_ring", Name(Choose(Make(options), KOLO_COLL_ALL_REDUCE, 5000)));
    EXPECT_TRUE(state.offered.empty());
}

TEST_F(Tuned, OnlyWhatCanRunIsOffered)
{
    options.deterministic = true;
    Choose(Make(options), KOLO_COLL_ALL_REDUCE, 5000);
    EXPECT_EQ(3u, state.offered.size());
    EXPECT_EQ(0, std::count(state.offered.begin(), state.offered.end(), "allreduce_ring"));
}

TEST_F(Tuned, AnAnswerThatIsNoCandidateIsAnError)
{
    const Chooser chooser = Make(options);
    kolo_pick pick = {};
    for (const int index : {99, -2}) {
        state.index = index;
        EXPECT_EQ(KOLO_ERR_INVALID,
                  kolo_choose(chooser.get(), KOLO_COLL_ALL_REDUCE, 0, 8, KOLO_INT8, &pick));
        EXPECT_TRUE(Has(kolo_error_text(), "tuner test")) << kolo_error_text();
    }
    state.status = KOLO_ERR_SYSTEM;
    EXPECT_EQ(KOLO_ERR_SYSTEM,
              kolo_choose(chooser.get(), KOLO_COLL_ALL_REDUCE, 0, 8, KOLO_INT8, &pick));
}

// ---- the log line

TEST(ChoiceLine, BeginsAsNcclsAndListsTheCheapestFirst)
{
    const Chooser chooser = Make(Options(4));
    EXPECT_EQ("", Line(chooser, KOLO_COLL_ALL_REDUCE, 1048576));
    const kolo_pick pick = Choose(chooser, KOLO_COLL_ALL_REDUCE, 1048576);
    const std::string word = kolo_algo_word(pick.algo);
    std::string upper = word;
    std::transform(upper.begin(), upper.end(), upper.begin(), ::toupper);
    const std::string line = Line(chooser, KOLO_COLL_ALL_REDUCE, 1048576);
    const std::string begin =
        "AllReduce: 1048576 Bytes -> Algo " + upper + " (price, tiles of 524288): " + word + " ";
    EXPECT_EQ(begin, line.substr(0, begin.size()));
    EXPECT_EQ(" us", line.substr(line.size() - 3));
    EXPECT_TRUE(Has(line, " ring ")) << line;
}

TEST(LogLine, WritesLongTimesWithoutAnExponent)
{
    const kolo_coded_call about = {
        KOLO_COLL_ALL_REDUCE, KOLO_CODEC_INT8, KOLO_CODEC_BY_PRICE, 1 << 26, 1 << 24, 1 << 26};
    kolo_coded_pick pick = {};
    pick.algo = kolo_algos[0];
    pick.pays = true;
    pick.coded_us = 183215.4;
    pick.plain_us = 99.96;
    kolo_text text = {};
    kolo_coded_line(&about, &pick, &text);
    EXPECT_TRUE(Has(text.chars, " 183215 us, uncompressed 100 us")) << text.chars;
    kolo_text_free(&text);
}

TEST(Digits, AreAtLeastThatManyAndEnoughForAWholeNumber)
{
    const struct {
        double value;
        const char *text;
    } cases[] = {{0, "0"},       {0.01234, "0.0123"}, {9.996, "10"},  {99.96, "100"},
                 {999.4, "999"}, {999.6, "999.6"},    {1000, "1000"}, {123456.7, "123457"}};
    for (const auto &one : cases) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.*g", kolo_digits(one.value, 3), one.value);
        EXPECT_STREQ(one.text, text);
    }
}

} // namespace
