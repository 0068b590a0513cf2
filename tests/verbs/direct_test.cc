// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/proxy transports/verbs/memory.c
/* GPUDirect over the tests' own drivers: a dma-buf of tests/device/fake_cuda.cc names the memory
 * that tests/verbs/fake_verbs.cc registers. What went from or to it is counted there, and what was
 * copied by the GPU's driver here. */
#include "fake_verbs.h"
#include "tests/device/calls.h"
#include "tests/temp_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

namespace
{

using namespace calls;

constexpr size_t kLong = 300000, kShort = 1000;

/* What kolo logs, from the first line on. */
const struct Log {
    Log()
    {
        setenv("KOLO_DEBUG", "INFO", 1);
        setenv("KOLO_DEBUG_FILE", file.path().c_str(), 1);
    }
    TempFile file;
} logged;

std::string Logged()
{
    std::stringstream all;
    all << std::ifstream(logged.file.path()).rdbuf();
    return all.str();
}

size_t CountOf(const std::string &text, const std::string &word)
{
    size_t count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        count++;
    }
    return count;
}

size_t Copied()
{
    return Find<size_t()>("FakeCudaCopied")();
}

size_t Descriptors()
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Two ranks in threads, each on a GPU of its own. */
class Pair
{
  public:
    explicit Pair(int timeout_ms = 20000)
    {
        kolo_id id;
        status_.fill(kolo_id_create(&id));
        Threads([&](int r) {
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = r;
            config.timeout_ms = timeout_ms;
            status_[(size_t)r] = kolo_comm_create(&id, 2, r, &config, &comm_[(size_t)r]);
        });
    }
    ~Pair()
    {
        Threads([&](int r) { kolo_comm_destroy(comm_[(size_t)r]); });
    }
    bool IsUp() const
    {
        return status_[0] == KOLO_OK && status_[1] == KOLO_OK;
    }
    kolo_comm *Comm(int r) const
    {
        return comm_[(size_t)r];
    }
    static void Threads(const std::function<void(int)> &body)
    {
        std::thread other(body, 1);
        body(0);
        other.join();
        gpu::FreeLeft();
    }

  private:
    std::array<kolo_comm *, 2> comm_{};
    std::array<kolo_status, 2> status_{};
};

/* Each rank sends to the other one, in a group; whether the bytes are right. managed: memory of no
 * dma-buf, of that rank's. */
struct Sides {
    bool managed[2] = {false, false};
};

bool Exchange(const Pair &pair, size_t bytes, const Sides &sides = {}, size_t room = 0)
{
    std::array<bool, 2> right{};
    Pair::Threads([&](int r) {
        const Memory out(bytes, r, sides.managed[r]), in(bytes + room, r, sides.managed[r]);
        const Stream stream(r);
        const Bytes mine = Fill(KOLO_UINT8, bytes, (uint64_t)(10 + r));
        const Bytes expected = Fill(KOLO_UINT8, bytes, (uint64_t)(10 + 1 - r));
        kolo_recv_info info = {sizeof info, -1, -1, 0};
        out.Put(mine.data(), bytes);
        kolo_status st = kolo_group_begin();
        st = st == KOLO_OK
                 ? kolo_send_tag(out.Get(), bytes, KOLO_UINT8, 1 - r, 5, pair.Comm(r), stream.Get())
                 : st;
        st = st == KOLO_OK ? kolo_recv_tag(in.Get(), bytes + room, KOLO_UINT8, KOLO_ANY_SOURCE, 5,
                                           &info, pair.Comm(r), stream.Get())
                           : st;
        const kolo_status ended = kolo_group_end();
        stream.Sync();
        right[(size_t)r] = st == KOLO_OK && ended == KOLO_OK && expected == in.Take(bytes) &&
                           info.bytes == bytes && info.source == 1 - r;
    });
    return right[0] && right[1];
}

class Direct : public testing::Test
{
  protected:
    static void SetUpTestSuite()
    {
        const Pair first; /* what a process keeps: the log, the libraries */
        ASSERT_TRUE(first.IsUp()) << kolo_error_text();
    }
    void SetUp() override
    {
        ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
        fake_verbs_reset();
        Find<void(const char *)>("FakeCudaDirect")("work");
        live_ = Find<size_t()>("FakeCudaLive")();
        descriptors_ = Descriptors();
        logged_ = Logged().size();
    }
    void TearDown() override
    {
        const fake_verbs_counts left = fake_verbs_count();
        EXPECT_EQ(0, left.contexts + left.pds + left.cqs + left.qps + left.mrs + left.channels);
        EXPECT_EQ(live_, Find<size_t()>("FakeCudaLive")());
        for (int ms = 0; ms < 2000 && Descriptors() != descriptors_; ms++) {
            usleep(1000); /* a thread that was ended may still close its own */
        }
        EXPECT_EQ(descriptors_, Descriptors());
    }
    static void Rule(const std::function<void(fake_verbs_rules &)> &change)
    {
        fake_verbs_rules rules = fake_verbs_rules_of();
        change(rules);
        fake_verbs_rule(&rules);
    }
    /* Since the test began. */
    std::string Log() const
    {
        return Logged().substr(logged_);
    }

  private:
    size_t live_ = 0, descriptors_ = 0, logged_ = 0;
};

TEST_F(Direct, LongMessagesGoFromGpuToGpuAndNotThroughTheHost)
{
    {
        const Pair pair;
        ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
        ASSERT_TRUE(Exchange(pair, kShort));
        EXPECT_EQ(0u, fake_verbs_count().direct) << "a short one is copied";
        const size_t before = Copied();
        ASSERT_TRUE(Exchange(pair, kLong));
        EXPECT_EQ(before, Copied());
        EXPECT_EQ(4 * kLong, fake_verbs_count().direct) << "at both ends of two messages";
        ASSERT_TRUE(Exchange(pair, kLong, {}, 1000)) << "into more room";
        ASSERT_TRUE(Exchange(pair, 5 << 20));
        EXPECT_EQ(before, Copied());
        ASSERT_TRUE(Exchange(pair, kShort, {}, kLong)) << "a short one into much room";
    }
    EXPECT_EQ(2u, CountOf(Log(), "GPU Direct RDMA (DMABUF) enabled for GPU")) << Log();
    EXPECT_NE(0u, CountOf(Log(), "0[0] -> 1[1] via NET/IB/0/GDRDMA")) << Log();
    EXPECT_EQ(0u, Find<size_t()>("FakeCudaFlushes")()) << "this GPU orders the writes";
}

TEST_F(Direct, WhatANicWroteIsFlushedWhereTheGpuDoesNotOrderIt)
{
    const size_t before = Find<size_t()>("FakeCudaFlushes")();
    Find<void(const char *)>("FakeCudaDirect")("unordered");
    const Pair pair;
    ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
    ASSERT_TRUE(Exchange(pair, kLong));
    EXPECT_EQ(4 * kLong, fake_verbs_count().direct);
    EXPECT_EQ(before + 2, Find<size_t()>("FakeCudaFlushes")());
    ASSERT_TRUE(Exchange(pair, kShort));
    EXPECT_EQ(before + 2, Find<size_t()>("FakeCudaFlushes")());
}

/* Messages are right all the same, and a line of each rank says why they are copied. */
void ExpectStaged(const std::function<std::string()> &log, const std::string &why)
{
    {
        const Pair pair;
        ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
        EXPECT_TRUE(Exchange(pair, kLong));
        EXPECT_TRUE(Exchange(pair, kLong));
    }
    EXPECT_EQ(0u, fake_verbs_count().direct);
    for (const char *gpu : {"0", "1"}) {
        const std::string line = "GPU Direct RDMA disabled for GPU " + std::string(gpu) + ": ";
        EXPECT_EQ(1u, CountOf(log(), line)) << log();
        EXPECT_EQ(1u, CountOf(log(), line + why)) << why << " is not in\n" << log();
    }
    EXPECT_EQ(0u, CountOf(log(), "/GDRDMA"));
}

TEST_F(Direct, AGpuWithoutDmaBufsIsStagedAndTheLogSaysWhy)
{
    Find<void(const char *)>("FakeCudaDirect")("no dma-bufs");
    ExpectStaged([&] { return Log(); }, "its driver exports no dma-bufs");
}

TEST_F(Direct, AGpuThatNeitherOrdersNorFlushesIsStagedAndTheLogSaysWhy)
{
    Find<void(const char *)>("FakeCudaDirect")("unflushed");
    ExpectStaged([&] { return Log(); },
                 "writes of a NIC to its memory are not ordered, and cannot be flushed");
}

TEST_F(Direct, ADriverThatRefusesADmaBufIsStagedAndTheLogSaysWhy)
{
    Find<void(const char *)>("FakeCudaDirect")("refuse");
    ExpectStaged([&] { return Log(); }, "cuMemGetHandleForAddressRange");
}

TEST_F(Direct, ADeviceThatRegistersNoDmaBufIsStagedAndTheLogSaysWhy)
{
    Rule([](auto &rules) { rules.refuse_dma_buf = EOPNOTSUPP; });
    ExpectStaged([&] { return Log(); }, "fake0 registers no dma-buf of 65536 bytes: ");
}

TEST_F(Direct, IsSwitchedOffByAVariable)
{
    setenv("KOLO_DMABUF_ENABLE", "0", 1);
    ExpectStaged([&] { return Log(); }, "KOLO_DMABUF_ENABLE is 0");
    unsetenv("KOLO_DMABUF_ENABLE");
}

TEST_F(Direct, MemoryThatHasNoDmaBufIsStagedAtItsEndOnly)
{
    {
        const Pair pair;
        ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
        const Sides sides = {{true, false}};
        ASSERT_TRUE(Exchange(pair, kLong, sides));
        ASSERT_TRUE(Exchange(pair, kLong, sides));
        EXPECT_EQ(4 * kLong, fake_verbs_count().direct) << "one end of four messages";
    }
    EXPECT_EQ(1u, CountOf(Log(), "300000 bytes of GPU 0 go through host memory: ")) << Log();
}

TEST_F(Direct, WhatTheOtherEndCannotRegisterIsCopiedFromAndToTheGpu)
{
    const Pair pair;
    ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
    ASSERT_TRUE(Exchange(pair, kShort)); /* rings are registered */
    Rule([](auto &rules) { rules.refuse_host = ENOMEM; });
    ASSERT_TRUE(Exchange(pair, kLong, {{true, false}}));
    EXPECT_EQ(0u, fake_verbs_count().direct);
    ASSERT_TRUE(Exchange(pair, kLong)) << "two GPUs need no host memory";
    EXPECT_EQ(4 * kLong, fake_verbs_count().direct);
}

TEST_F(Direct, QueuePairsThatFailChangeNothing)
{
    setenv("KOLO_IB_TIMEOUT", "1", 1); /* so that lanes come back soon */
    {
        const Pair pair;
        ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
        Rule([](auto &rules) {
            rules.broken = 2000;
            rules.lost = 5000;
            rules.part = 200000;
        });
        for (int i = 0; i < 20; i++) {
            ASSERT_TRUE(Exchange(pair, kLong + (size_t)i)) << i << kolo_error_text();
        }
        EXPECT_GT(fake_verbs_count().broken + fake_verbs_count().lost, 0u);
        Rule([](auto &rules) { rules.broken = rules.lost = 0; });
    }
    unsetenv("KOLO_IB_TIMEOUT");
}

TEST_F(Direct, WhicheverCallOfTheDriverFailsRanksEndAndNothingIsLeft)
{
    long nth = 1;
    for (bool failed = true; failed; nth++) {
        {
            Find<void(long)>("FakeCudaFailNth")(0);
            const Memory out[2] = {Memory(kLong, 0), Memory(kLong, 1)};
            const Memory in[2] = {Memory(kLong, 0), Memory(kLong, 1)};
            const Stream stream[2] = {Stream(0), Stream(1)};
            Find<void(long)>("FakeCudaFailNth")(nth);
            const Pair pair(500);
            bool good = pair.IsUp();
            for (int r = 0; r < 2 && good; r++) {
                EXPECT_EQ(KOLO_OK, kolo_group_begin());
                kolo_status st = kolo_send(out[r].Get(), kLong, KOLO_UINT8, 1 - r, pair.Comm(r),
                                           stream[r].Get());
                st = st == KOLO_OK ? kolo_recv(in[r].Get(), kLong, KOLO_UINT8, 1 - r, pair.Comm(r),
                                               stream[r].Get())
                                   : st;
                const kolo_status ended = kolo_group_end();
                good = st == KOLO_OK && ended == KOLO_OK;
            }
            for (int r = 0; r < 2 && !good; r++) { /* one may wait for one that did not come */
                if (pair.Comm(r) != nullptr) {
                    kolo_comm_abort(pair.Comm(r));
                }
            }
            Find<void()>("FakeCudaDrain")();
            failed = Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
        }
        ASSERT_EQ(0, fake_verbs_count().mrs) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(nth, 40);
}

/* In a process of its own, over a libibverbs that has not the call. */
TEST(DirectOld, ALibraryWithoutTheCallIsNamed)
{
    {
        const Pair pair;
        ASSERT_TRUE(pair.IsUp()) << kolo_error_text();
        EXPECT_TRUE(Exchange(pair, kLong));
    }
    EXPECT_EQ(1u, CountOf(Logged(), "for GPU 0: libibverbs has no ibv_reg_dmabuf_mr")) << Logged();
}

} // namespace
