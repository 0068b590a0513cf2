// SPDX-License-Identifier: Apache-2.0
// covers: src/tune/shared.c src/tune/candidates.c
/* The prices that processes of a host share: who makes a price, and that all choose as one alone would. */
extern "C" {
#include "plan/plan.h"
#include "prices_ask.h"
#include "topology/machine/host.h"
#include "tune/tune.h"
}

#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

constexpr size_t kBytes = 1 << 16; // more than struct kolo_prices takes
constexpr int kRanks = 16;

int AlgoCount()
{
    return kolo_algos_count;
}

const kolo_algo *AlgoAt(int index)
{
    return kolo_algos[index];
}

/* Memory of zeros that forked processes share. */
class Prices
{
  public:
    Prices() : at_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
    {
        EXPECT_NE(MAP_FAILED, at_);
    }
    ~Prices()
    {
        munmap(at_, kBytes);
    }
    Prices(const Prices &) = delete;
    Prices &operator=(const Prices &) = delete;

    kolo_prices *Get() const
    {
        return static_cast<kolo_prices *>(at_);
    }

  private:
    void *at_;
};

/* "algorithm microseconds" of calls of three sizes, as a process chooses them that no other one was. */
std::string Choices(kolo_prices *prices)
{
    std::vector<kolo_place> place(kRanks);
    std::vector<int> order(kRanks);
    kolo_chooser_options options = {};
    kolo_chooser *chooser = nullptr;
    std::string said;
    for (int r = 0; r < kRanks; r++) {
        order[static_cast<size_t>(r)] = r;
    }
    options.nranks = kRanks;
    options.nhosts = 1;
    options.order = order.data();
    options.place = place.data();
    options.algo_count = AlgoCount;
    options.algo_at = AlgoAt;
    options.max_phases = 2 * kRanks + 62;
    options.prices = prices;
    if (!kolo_costs_parse("cores=2,latency_us=0.2,step_us=0.1", &options.costs) ||
        kolo_chooser_create(&options, &chooser) != KOLO_OK) {
        return "no chooser";
    }
    for (const size_t bytes : {size_t{4}, size_t{8} << 10, size_t{1} << 20}) {
        kolo_pick pick = {};
        const kolo_status st =
            kolo_choose(chooser, KOLO_COLL_ALL_REDUCE, 0, bytes, KOLO_FLOAT32, &pick);
        said += st == KOLO_OK ? std::string(pick.algo->base.name) + " " +
                                    std::to_string(pick.predicted_us) + "\n"
                              : "no choice\n";
    }
    kolo_chooser_destroy(chooser);
    return said;
}

/* What processes that run at the same time choose. */
std::vector<std::string> ChoicesOf(int processes, kolo_prices *prices)
{
    std::vector<int> from;
    std::vector<std::string> all;
    for (int i = 0; i < processes; i++) {
        int ends[2];
        EXPECT_EQ(0, pipe(ends));
        if (fork() == 0) {
            const std::string said = Choices(prices);
            _exit(write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size())
                      ? 0
                      : 1);
        }
        close(ends[1]);
        from.push_back(ends[0]);
    }
    for (const int fd : from) {
        char text[1024];
        std::string said;
        for (ssize_t n = 0; (n = read(fd, text, sizeof text)) > 0;) {
            said.append(text, static_cast<size_t>(n));
        }
        close(fd);
        all.push_back(said);
    }
    while (wait(nullptr) > 0) {
    }
    return all;
}

TEST(SharedPrices, TheFirstMakesAPriceAndTheOthersTakeIt)
{
    const Prices prices;
    kolo_test_price got = {};
    EXPECT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 7, &got));
    EXPECT_EQ(KOLO_TEST_PENDING, kolo_test_claim(prices.Get(), 7, &got));
    const kolo_test_price made = {KOLO_OK, 12.5, 3};
    kolo_test_tell(prices.Get(), 7, &made);
    EXPECT_EQ(KOLO_TEST_TAKEN, kolo_test_claim(prices.Get(), 7, &got));
    EXPECT_EQ(KOLO_OK, got.status);
    EXPECT_EQ(12.5, got.us);
    EXPECT_EQ(3, got.phases);
}

TEST(SharedPrices, ARefusedPlanIsRefusedForAllAndAFailureIsOnesOwn)
{
    const Prices prices;
    kolo_test_price got = {};
    const kolo_test_price refused = {KOLO_ERR_INVALID, 0, 0}, failed = {KOLO_ERR_SYSTEM, 0, 0};
    ASSERT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 1, &got));
    ASSERT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 2, &got));
    kolo_test_tell(prices.Get(), 1, &refused);
    kolo_test_tell(prices.Get(), 2, &failed);
    EXPECT_EQ(KOLO_TEST_TAKEN, kolo_test_claim(prices.Get(), 1, &got));
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, got.status);
    EXPECT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 2, &got));
}

TEST(SharedPrices, AKeyWhosePlaceIsTakenIsPricedByEachForItself)
{
    const Prices prices;
    kolo_test_price got = {};
    const kolo_test_price made = {KOLO_OK, 1, 1}, other = {KOLO_OK, 2, 2};
    ASSERT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 3, &got));
    kolo_test_tell(prices.Get(), 3, &made);
    const uint64_t same_place = 3 + (UINT64_C(1) << 40);
    EXPECT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), same_place, &got));
    kolo_test_tell(prices.Get(), same_place, &other);
    EXPECT_EQ(KOLO_TEST_TAKEN, kolo_test_claim(prices.Get(), 3, &got));
    EXPECT_EQ(1, got.us);
}

TEST(SharedPrices, NobodyWaitsForEverForAProcessThatDiedOverAPrice)
{
    const Prices prices;
    kolo_test_price got = {};
    ASSERT_EQ(KOLO_TEST_MINE, kolo_test_claim(prices.Get(), 9, &got));
    EXPECT_FALSE(kolo_test_await(prices.Get(), 9, 2e3));
}

TEST(SharedPrices, ProcessesThatShareChooseAsOneAlone)
{
    const Prices prices;
    const std::vector<std::string> alone = ChoicesOf(1, nullptr);
    ASSERT_NE(std::string::npos, alone[0].find("allreduce")) << alone[0];
    for (const std::string &said : ChoicesOf(4, prices.Get())) {
        EXPECT_EQ(alone[0], said);
    }
    EXPECT_EQ(alone[0], ChoicesOf(1, prices.Get())[0]) << "from prices that are all there";
}

} // namespace
