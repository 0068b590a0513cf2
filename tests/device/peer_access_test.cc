// SPDX-License-Identifier: Apache-2.0
// covers: src/cuda/peer_access.c
// Peer-to-peer is tried with data, over the driver of fake_cuda.cc, whose copies go wrong in the
// ways of bridges and IOMMUs.
#include "cuda/peer_access.h"
#include "gpu.h"

#include <chrono>
#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace
{

using gpu::Find;

constexpr size_t kBytes = 64 << 10;

size_t Live()
{
    return Find<size_t()>("FakeCudaLive")();
}

class PeerAccess : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
        ASSERT_EQ(KOLO_OK, kolo_cuda_open(&cuda_)) << kolo_error_text();
        live_ = Live();
    }
    void TearDown() override
    {
        if (gpu::IsFake()) {
            Peers("work");
        }
    }
    static void Peers(const char *word)
    {
        Find<void(const char *)>("FakeCudaPeers")(word);
    }
    kolo_status Try(int timeout_ms = 20000)
    {
        const int pair[2] = {0, 1};
        gbs_ = 0;
        return kolo_peer_access_try(cuda_, pair, kBytes, timeout_ms, &gbs_);
    }
    // The pair fails so, with a sentence that has `words`, and all is given back.
    void Fails(const char *word, kolo_status status, const char *words)
    {
        Peers(word);
        EXPECT_EQ(status, Try()) << word;
        EXPECT_NE(nullptr, strstr(kolo_error_text(), words)) << kolo_error_text();
        EXPECT_EQ(0, gbs_) << word;
        EXPECT_EQ(live_, Live()) << word;
    }

    const kolo_cuda *cuda_ = nullptr;
    size_t live_ = 0;
    double gbs_ = 0;
};

TEST_F(PeerAccess, OfAPairThatWorksIsMeasuredAndGivenBack)
{
    ASSERT_EQ(KOLO_OK, Try()) << kolo_error_text();
    EXPECT_GT(gbs_, 0);
    EXPECT_EQ(live_, Live());
}

TEST_F(PeerAccess, StaysEnabledWhereItWasEnabled)
{
    kolo_cuda_context peer;
    const gpu::Context one(1);
    gpu::Do("cuDevicePrimaryCtxRetain", &peer, 0);
    gpu::Do("cuCtxEnablePeerAccess", peer, 0u);
    const size_t live = Live();
    EXPECT_EQ(KOLO_OK, Try()) << kolo_error_text();
    EXPECT_EQ(live, Live());
    gpu::Do("cuCtxDisablePeerAccess", peer);
    gpu::Do("cuDevicePrimaryCtxRelease_v2", 0);
}

TEST_F(PeerAccess, ThatIsNotClaimedIsNotTried)
{
    Fails("none", KOLO_ERR_UNSUPPORTED, "GPU 0 claims no access to memory of GPU 1");
}

TEST_F(PeerAccess, ThatIsRefusedSaysTheDriversName)
{
    Fails("refuse", KOLO_ERR_LINK,
          "GPU 0 is refused access to memory of GPU 1: CUDA_ERROR_PEER_ACCESS_UNSUPPORTED");
}

TEST_F(PeerAccess, ThatDeliversNothingIsSeen)
{
    Fails("lose", KOLO_ERR_LINK, "GPU 0 writes to GPU 1: ");
}

TEST_F(PeerAccess, IsTriedOnAllFourWaysAndWhatOneLeftDoesNotPassForTheNextOnes)
{
    Fails("lose reads of 1", KOLO_ERR_LINK, "GPU 1 reads from GPU 0: ");
}

TEST_F(PeerAccess, ThatChangesOneByteSaysWhich)
{
    Fails("spoil", KOLO_ERR_LINK,
          "GPU 0 writes to GPU 1: 1 of 65536 bytes arrive wrong, the first is byte 65535");
}

TEST_F(PeerAccess, ThatHangsEndsInTimeAndFreesNothingBeneathTheCopy)
{
    Peers("hang");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(KOLO_ERR_TIMEOUT, Try(200));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "GPU 0 writes to GPU 1: not done after 200 ms"))
        << kolo_error_text();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    // Two allocations, two streams, the host's, two contexts, two peers.
    EXPECT_EQ(live_ + 9, Live());
    Peers("work"); // the copies go on, into memory that is still there
    Find<void()>("FakeCudaDrain")();
}

TEST_F(PeerAccess, GivesAllBackWhicheverCallOfTheDriverFails)
{
    long nth = 1;
    for (bool failed = true; failed; nth++) {
        Find<void(long)>("FakeCudaFailNth")(nth);
        const kolo_status st = Try();
        failed = Find<bool()>("FakeCudaHasFailed")();
        Find<void(long)>("FakeCudaFailNth")(0);
        EXPECT_TRUE(st == KOLO_OK || st == KOLO_ERR_SYSTEM || st == KOLO_ERR_LINK) << nth;
        EXPECT_TRUE(st == KOLO_OK || strstr(kolo_error_text(), "OUT_OF_MEMORY") != nullptr)
            << kolo_error_text();
        EXPECT_TRUE(failed || st == KOLO_OK) << kolo_error_text();
        ASSERT_EQ(live_, Live()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 5000);
    }
    EXPECT_GT(nth, 60);
}

} // namespace
