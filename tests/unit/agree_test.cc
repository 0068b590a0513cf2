// SPDX-License-Identifier: Apache-2.0
// covers: src/core/agree
// Agreements of ranks that are threads and share no memory, over the links that hosts use.
extern "C" {
#include "agree_ask.h"
}

#include <array>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace
{

constexpr int kRanks = 3;

class Agree : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        kolo_config config = KOLO_CONFIG_INIT;
        config.transport = "tcp";
        config.timeout_ms = 60000;
        ASSERT_EQ(kolo_comm_create_local(kRanks, &config, comm.data()), KOLO_OK)
            << kolo_error_text();
    }
    void TearDown() override
    {
        for (kolo_comm *one : comm) {
            kolo_comm_destroy(one);
        }
    }
    // Ranks below `count` agree; what they get.
    struct Result {
        kolo_status status;
        uint64_t word;
        std::vector<int> failed;
    };
    std::array<Result, kRanks> All(int count)
    {
        std::array<Result, kRanks> results;
        std::vector<std::thread> threads;
        for (int rank = 0; rank < count; rank++) {
            threads.emplace_back([&, rank] {
                Result &to = results[static_cast<size_t>(rank)];
                int failed[kRanks], n = 0;
                to.word = ~(uint64_t{1} << rank);
                to.status =
                    kolo_comm_agree(comm[static_cast<size_t>(rank)], &to.word, failed, kRanks, &n);
                to.failed.assign(failed, failed + n);
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        return results;
    }
    std::array<kolo_comm *, kRanks> comm{};
};

TEST_F(Agree, AllGetTheSameWordEachTime)
{
    for (int i = 0; i < 20; i++) {
        for (const Result &result : All(kRanks)) {
            EXPECT_EQ(result.status, KOLO_OK);
            EXPECT_EQ(result.word, ~uint64_t{7});
            EXPECT_TRUE(result.failed.empty());
        }
    }
}

TEST_F(Agree, ARankThatHasLeftIsNamed)
{
    kolo_comm_destroy(comm[2]);
    comm[2] = nullptr;
    const auto results = All(2);
    for (size_t rank = 0; rank < 2; rank++) {
        EXPECT_EQ(results[rank].status, KOLO_OK);
        EXPECT_EQ(results[rank].word, ~uint64_t{3});
        EXPECT_EQ(results[rank].failed, std::vector<int>{2});
    }
}

TEST_F(Agree, ThoseThatHaveHeardThatItStandsAnswerWhoHasNot)
{
    uint64_t word = 0;
    EXPECT_EQ(kolo_test_ask_standing(comm[1], &word), KOLO_OK);
    EXPECT_NE(word, 0U);
    for (const Result &result : All(kRanks)) { // and it goes on with the others
        EXPECT_EQ(result.status, KOLO_OK);
    }
}

} // namespace
