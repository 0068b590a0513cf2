// SPDX-License-Identifier: Apache-2.0
// covers: src/core/codec.c
/* Compressed calls of ranks that are threads, which read each other's units where they lie, and of
 * ranks of one thread in a group. */
#include <kolo/kolo.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace
{

constexpr int kRanks = 4;
constexpr size_t kCount = 200003;

using Floats = std::vector<float>;

class CodecRanks : public testing::Test
{
  protected:
    void SetUp() override
    {
        setenv("KOLO_CODEC", "always", 1);
        ASSERT_EQ(kolo_comm_create_local(kRanks, nullptr, comm_), KOLO_OK) << kolo_error_text();
        for (int r = 0; r < kRanks; r++) {
            in_.push_back(Floats(kCount));
            out_.push_back(Floats(kCount));
            for (size_t i = 0; i < kCount; i++) {
                in_.back()[i] = std::sin(static_cast<float>(i * 7 + static_cast<size_t>(r)));
            }
        }
    }
    void TearDown() override
    {
        std::vector<std::thread> threads; /* a rank waits for what its peers still take */
        for (kolo_comm *comm : comm_) {
            threads.emplace_back([=] { kolo_comm_destroy(comm); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        unsetenv("KOLO_CODEC");
    }
    kolo_status Reduce(size_t r)
    {
        return kolo_all_reduce_codec(in_[r].data(), out_[r].data(), kCount, KOLO_FLOAT32, KOLO_SUM,
                                     KOLO_CODEC_INT8, comm_[r], nullptr);
    }
    void ExpectSums() const
    {
        kolo_codec_bound bound = {};
        bound.size = sizeof bound;
        ASSERT_EQ(kolo_comm_codec_bound(comm_[0], KOLO_CODEC_INT8, 1, &bound), KOLO_OK);
        float worst = 0;
        for (size_t i = 0; i < kCount; i++) {
            float exact = 0;
            for (int r = 0; r < kRanks; r++) {
                exact += in_[static_cast<size_t>(r)][i];
                ASSERT_EQ(out_[static_cast<size_t>(r)][i], out_[0][i]) << "rank " << r;
            }
            worst = std::max(worst, std::fabs(out_[0][i] - exact));
        }
        EXPECT_LE(worst, bound.factor * kRanks + bound.floor);
        EXPECT_GT(worst, 1e-3f) << "it was not compressed";
    }

    kolo_comm *comm_[kRanks] = {};
    std::vector<Floats> in_, out_;
};

TEST_F(CodecRanks, ThreadsGetTheSameBits)
{
    for (int round = 0; round < 5; round++) {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < kRanks; r++) {
            threads.emplace_back([this, r] { EXPECT_EQ(Reduce(r), KOLO_OK) << kolo_error_text(); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        ExpectSums();
    }
}

TEST_F(CodecRanks, OneThreadDrivesAllInAGroup)
{
    ASSERT_EQ(kolo_group_begin(), KOLO_OK);
    for (size_t r = 0; r < kRanks; r++) {
        EXPECT_EQ(Reduce(r), KOLO_OK);
    }
    ASSERT_EQ(kolo_group_end(), KOLO_OK) << kolo_error_text();
    ExpectSums();
}

} // namespace
