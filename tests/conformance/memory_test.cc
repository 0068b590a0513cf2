// SPDX-License-Identifier: Apache-2.0
// covers: transports src/memory
/* Memory that peers attach: what every transport with KOLO_CAP_MAP promises. */
#include "memory/segment.h"
#include "processes.h"
#include "util/util.h"

#include <atomic>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace
{

std::string NameOf(const testing::TestParamInfo<const kolo_transport *> &info)
{
    return info.param->base.name;
}

class Memory : public testing::TestWithParam<const kolo_transport *>
{
  protected:
    void SetUp() override
    {
        if ((GetParam()->caps & KOLO_CAP_MAP) == 0) {
            GTEST_SKIP() << GetParam()->base.name << " maps no memory";
        }
    }
};

/* Rank 1's address of what rank 0 mapped. */
unsigned char *Attach(World &world, const kolo_mem &mem, size_t *len)
{
    void *there = nullptr;
    EXPECT_EQ(KOLO_OK, world.Transport()->attach(world.Link(1, 0), mem.handle, &there, len))
        << kolo_error_text();
    return (unsigned char *)there;
}

TEST_P(Memory, OfMapIsZeroAndAlignedToAPage)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 10000, &mem));
    EXPECT_EQ(10000u, mem.len);
    EXPECT_EQ(0u, (uintptr_t)mem.ptr % 4096);
    const auto *bytes = (const unsigned char *)mem.ptr;
    EXPECT_EQ(std::vector<unsigned char>(10000, 0),
              std::vector<unsigned char>(bytes, bytes + 10000));
    GetParam()->unmap(world.Endpoint(0), &mem);
}

/* Its owner reserves the part that it is about to use. */
TEST_P(Memory, OfMapTakesNoPagesBeforeItsUse)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    uint32_t id = 0;
    uint64_t offset = 0;
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 1 << 20, &mem));
    if (kolo_segment_find(mem.ptr, 1, &id, &offset)) { /* else it is no segment */
        struct stat info {
        };
        uint64_t len = 0;
        const int fd = kolo_segment_descriptor(id, &len);
        EXPECT_EQ(0, fstat(fd, &info));
        EXPECT_EQ(0, info.st_blocks);
        close(fd);
    }
    GetParam()->unmap(world.Endpoint(0), &mem);
}

TEST_P(Memory, ThatIsAttachedShowsStoresOfBothSides)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    size_t len = 0;
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 100000, &mem));
    unsigned char *there = Attach(world, mem, &len);
    ASSERT_NE(nullptr, there);
    EXPECT_EQ(100000u, len);
    ((unsigned char *)mem.ptr)[99999] = 7;
    EXPECT_EQ(7, there[99999]);
    there[0] = 9;
    EXPECT_EQ(9, ((unsigned char *)mem.ptr)[0]);
    GetParam()->unmap(world.Endpoint(0), &mem);
}

TEST_P(Memory, AttachedTwiceIsTheSame)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    size_t len = 0;
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 4096, &mem));
    unsigned char *there = Attach(world, mem, &len);
    EXPECT_EQ(there, Attach(world, mem, &len));
    GetParam()->unmap(world.Endpoint(0), &mem);
}

TEST_P(Memory, OfTheAllocatorIsMappedFromAnyOffset)
{
    World world(GetParam(), 2);
    for (size_t bytes : {size_t{5000}, size_t{3} << 20}) {
        void *buffer = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_segment_alloc(bytes, &buffer));
        auto *inner = (unsigned char *)buffer + 123;
        kolo_mem mem{};
        size_t len = 0;
        ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), inner, bytes - 123, &mem));
        unsigned char *there = Attach(world, mem, &len);
        ASSERT_NE(nullptr, there);
        EXPECT_EQ(bytes - 123, len);
        inner[10] = 77;
        EXPECT_EQ(77, there[10]);
        GetParam()->unmap(world.Endpoint(0), &mem);
        kolo_segment_free(buffer);
    }
}

TEST_P(Memory, ThatIsPrivateIsMappedForThreadsOrRefusedWithAReason)
{
    World world(GetParam(), 2);
    std::vector<unsigned char> mine(1000);
    kolo_mem mem{};
    const kolo_status status = GetParam()->map(world.Endpoint(0), mine.data(), mine.size(), &mem);
    if (status == KOLO_OK) {
        size_t len = 0;
        unsigned char *there = Attach(world, mem, &len);
        mine[5] = 3;
        EXPECT_EQ(3, there[5]);
        GetParam()->unmap(world.Endpoint(0), &mem);
    } else {
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, status);
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "private")) << kolo_error_text();
        EXPECT_EQ(nullptr, mem.ptr) << "out-arguments are written only on success";
    }
}

TEST_P(Memory, OfAnUnknownHandleIsRefused)
{
    World world(GetParam(), 2);
    unsigned char handle[KOLO_HANDLE_BYTES];
    void *there = nullptr;
    size_t len = 0;
    std::memset(handle, 0x5a, sizeof handle);
    EXPECT_EQ(KOLO_ERR_INVALID, GetParam()->attach(world.Link(1, 0), handle, &there, &len));
    EXPECT_EQ(nullptr, there);
}

TEST_P(Memory, StaysReadableForAPeerWhenItsOwnerLeaves)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    size_t len = 0;
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 8192, &mem));
    unsigned char *there = Attach(world, mem, &len);
    there[8191] = 1;
    GetParam()->unmap(world.Endpoint(0), &mem);
    world.CloseRank(0);
    EXPECT_EQ(1, there[8191]) << "mapped until disconnect";
}

TEST_P(Memory, WakesAThreadThatSleepsOnAWord)
{
    World world(GetParam(), 2);
    kolo_mem mem{};
    size_t len = 0;
    ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 4096, &mem));
    auto *word = (uint32_t *)mem.ptr;
    auto *there = (uint32_t *)(void *)Attach(world, mem, &len);
    std::atomic<bool> awake{false};
    std::thread sleeper([&] {
        while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0) {
            syscall(SYS_futex, word, FUTEX_WAIT, 0, nullptr, nullptr, 0);
        }
        awake = true;
    });
    __atomic_store_n(there, 1, __ATOMIC_RELEASE);
    EXPECT_TRUE(WaitFor([&] {
        GetParam()->wake(world.Link(1, 0), there);
        return awake.load();
    }));
    sleeper.join();
    GetParam()->unmap(world.Endpoint(0), &mem);
}

INSTANTIATE_TEST_SUITE_P(Transport, Memory, testing::ValuesIn(HostTransports()), NameOf);

/* ---- what holds for every transport ---- */

class Transport : public testing::TestWithParam<const kolo_transport *>
{
};

TEST_P(Transport, HasANameAndTheAbiAndSizeOfThisHeader)
{
    EXPECT_EQ(KOLO_PLUGIN_ABI, GetParam()->base.abi);
    EXPECT_EQ(sizeof(kolo_transport), GetParam()->base.size);
    EXPECT_STRNE("", GetParam()->base.name);
}

TEST_P(Transport, ClaimsNoAbilityBeyondItsTable)
{
    World world(GetParam(), 2);
    kolo_reach reach{};
    reach.size = sizeof reach;
    ASSERT_EQ(KOLO_OK, GetParam()->probe(world.Endpoint(0), &world.At(0).peers[1], &reach));
    EXPECT_EQ(0u, reach.caps & ~GetParam()->caps);
    EXPECT_NE(0u, reach.caps & (KOLO_CAP_MAP | KOLO_CAP_MESSAGE));
    EXPECT_GT(reach.latency_us, 0);
    EXPECT_GT(reach.bandwidth_gbs, 0);
    EXPECT_STRNE("", reach.via);
}

TEST_P(Transport, DoesNotReachAnotherHostByHostMeansAlone)
{
    World world(GetParam(), 2);
    kolo_peer far = world.At(0).peers[1];
    kolo_reach reach{};
    far.host += 1;
    far.process += 1;
    reach.size = sizeof reach;
    ASSERT_EQ(KOLO_OK, GetParam()->probe(world.Endpoint(0), &far, &reach));
    EXPECT_EQ(0u, reach.caps & KOLO_CAP_MAP) << "memory of another host cannot be loaded from";
}

TEST_P(Transport, GivesAnAddressOfAtMost256Bytes)
{
    World world(GetParam(), 1);
    EXPECT_LE(world.At(0).address.size(), 256u);
}

TEST_P(Transport, LeavesNoMappingDescriptorOrThread)
{
    { /* what is made once a process */
        World world(GetParam(), 2);
    }
    const Holdings before = Count();
    for (int round = 0; round < 3; round++) {
        World world(GetParam(), 3);
        std::vector<unsigned char> bytes(300000);
        kolo_mem mem{};
        if ((GetParam()->caps & KOLO_CAP_MESSAGE) != 0) {
            kolo_req send;
            kolo_req recv;
            ASSERT_EQ(KOLO_OK, world.Send(0, 2, 1, Flat(bytes.data(), 100000), send));
            ASSERT_EQ(KOLO_OK, world.Recv(2, 0, 1, Flat(bytes.data() + 100000, 100000), recv));
            ASSERT_TRUE(world.Finish({&send, &recv}));
        }
        if ((GetParam()->caps & KOLO_CAP_MAP) != 0) {
            size_t len = 0;
            ASSERT_EQ(KOLO_OK, GetParam()->map(world.Endpoint(0), nullptr, 1 << 20, &mem));
            ASSERT_NE(nullptr, Attach(world, mem, &len));
            GetParam()->unmap(world.Endpoint(0), &mem);
        }
    }
    const Holdings after = Count();
    EXPECT_EQ(before.descriptors, after.descriptors);
    EXPECT_EQ(before.mappings, after.mappings);
    EXPECT_EQ(before.threads, after.threads);
}

TEST_P(Transport, KeepsCommunicatorsApart)
{
    World first(GetParam(), 2);
    World second(GetParam(), 2);
    if ((GetParam()->caps & KOLO_CAP_MESSAGE) == 0) {
        GTEST_SKIP() << "no messages";
    }
    int sent[2] = {1, 2};
    int came[2] = {0, 0};
    kolo_req reqs[4];
    ASSERT_EQ(KOLO_OK, first.Send(0, 1, 0, Flat(&sent[0], 4), reqs[0]));
    ASSERT_EQ(KOLO_OK, second.Send(0, 1, 0, Flat(&sent[1], 4), reqs[1]));
    ASSERT_EQ(KOLO_OK, second.Recv(1, 0, 0, Flat(&came[1], 4), reqs[3]));
    ASSERT_EQ(KOLO_OK, first.Recv(1, 0, 0, Flat(&came[0], 4), reqs[2]));
    ASSERT_TRUE(first.Finish({&reqs[0], &reqs[2]}));
    ASSERT_TRUE(second.Finish({&reqs[1], &reqs[3]}));
    EXPECT_EQ(1, came[0]);
    EXPECT_EQ(2, came[1]);
}

INSTANTIATE_TEST_SUITE_P(All, Transport, testing::ValuesIn(HostTransports()), NameOf);

} // namespace
