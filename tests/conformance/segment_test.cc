// SPDX-License-Identifier: Apache-2.0
// covers: src/memory/segment.c
/* The store of shareable memory behind kolo_mem_alloc(). */
#include "memory/segment.h"
#include "util/util.h"
#include "world.h"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

TEST(Segment, OfNothingIsRefused)
{
    void *memory = nullptr;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_segment_alloc(0, &memory));
    EXPECT_EQ(nullptr, memory);
}

TEST(Segment, MoreThanTheHostHasIsAnErrorAndNoSignal)
{
    void *memory = nullptr;
    EXPECT_EQ(KOLO_ERR_SYSTEM, kolo_segment_alloc((size_t)1 << 46, &memory));
    EXPECT_EQ(nullptr, memory);
}

TEST(Segment, BeyondTheFileSizeLimitIsAnErrorAndNoSignal)
{
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit = {1 << 20, 1 << 20};
        void *memory = nullptr;
        setrlimit(RLIMIT_FSIZE, &limit);
        const bool ok = kolo_segment_alloc(8 << 20, &memory) == KOLO_ERR_SYSTEM &&
                        kolo_segment_alloc(100, &memory) == KOLO_ERR_SYSTEM && memory == nullptr;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
}

TEST(Segment, WithoutDescriptorsIsAnError)
{
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit = {3, 3};
        void *memory = nullptr;
        setrlimit(RLIMIT_NOFILE, &limit);
        _exit(kolo_segment_alloc(8 << 20, &memory) == KOLO_ERR_SYSTEM ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
}

TEST(Segment, MemoryIsZeroAgainAfterFreeAndAlloc)
{
    void *keeper = nullptr; /* so that the slab stays */
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(1, &keeper));
    for (int round = 0; round < 3; round++) {
        void *memory = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_segment_alloc(9000, &memory));
        EXPECT_EQ(0u, (uintptr_t)memory % 4096);
        for (size_t i = 0; i < 9000; i++) {
            ASSERT_EQ(0, ((unsigned char *)memory)[i]);
        }
        std::memset(memory, 0xff, 9000);
        kolo_segment_free(memory);
    }
    kolo_segment_free(keeper);
}

TEST(Segment, IsFoundWholeAndOnlyWhole)
{
    void *memory = nullptr;
    uint32_t id = 0;
    uint64_t offset = 0;
    int local = 0;
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(3 << 20, &memory));
    auto *bytes = (unsigned char *)memory;
    EXPECT_TRUE(kolo_segment_find(bytes + 5, (3 << 20) - 5, &id, &offset));
    EXPECT_EQ(5u, offset);
    EXPECT_FALSE(kolo_segment_find(bytes + 5, 3 << 20, &id, &offset)) << "ends outside";
    EXPECT_FALSE(kolo_segment_find(bytes + 5, SIZE_MAX, &id, &offset));
    EXPECT_FALSE(kolo_segment_find(&local, sizeof local, &id, &offset));
    kolo_segment_free(memory);
    EXPECT_FALSE(kolo_segment_find(bytes, 1, &id, &offset)) << "freed";
}

TEST(Segment, ThatIsEmptyIsUnmapped)
{
    const int before = kolo_segment_count();
    const Holdings held = Count();
    std::vector<void *> small(3000);
    void *big = nullptr;
    for (void *&memory : small) {
        ASSERT_EQ(KOLO_OK, kolo_segment_alloc(10000, &memory));
    }
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(2 << 20, &big));
    EXPECT_EQ(before + 4, kolo_segment_count()) << "3000 runs of 3 pages fill 3 slabs";
    for (void *memory : small) {
        kolo_segment_free(memory);
    }
    kolo_segment_free(big);
    EXPECT_EQ(before, kolo_segment_count());
    EXPECT_EQ(held.mappings, Count().mappings);
    EXPECT_EQ(held.descriptors, Count().descriptors);
}

TEST(Segment, FreeOfSomethingElseIsIgnored)
{
    int local = 0;
    void *memory = nullptr;
    kolo_segment_free(nullptr);
    kolo_segment_free(&local);
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(100, &memory));
    kolo_segment_free((char *)memory + 1);
    kolo_segment_free((char *)memory + 4096);
    std::memset(memory, 1, 100);
    EXPECT_EQ(1, ((char *)memory)[99]);
    kolo_segment_free(memory);
}

TEST(Segment, RunsNeverOverlapWhateverTheOrder)
{
    std::map<unsigned char *, size_t> live;
    uint32_t state = 12345;
    for (int i = 0; i < 4000; i++) {
        state = state * 1664525u + 1013904223u;
        if (live.size() > 60 || (state >> 30 == 0 && !live.empty())) {
            auto victim = live.begin();
            std::advance(victim, (state >> 8) % live.size());
            for (size_t at = 0; at < victim->second; at += 4096) {
                ASSERT_EQ((unsigned char)victim->second, victim->first[at]);
            }
            kolo_segment_free(victim->first);
            live.erase(victim);
        } else {
            const size_t bytes = (state >> 8) % 200000 + 1;
            void *memory = nullptr;
            ASSERT_EQ(KOLO_OK, kolo_segment_alloc(bytes, &memory));
            std::memset(memory, (int)(bytes & 0xff), bytes);
            live[(unsigned char *)memory] = bytes;
        }
    }
    for (auto &run : live) {
        kolo_segment_free(run.first);
    }
}

TEST(Segment, ServesThreadsAtOnce)
{
    std::vector<std::thread> threads;
    const int before = kolo_segment_count();
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            for (int i = 0; i < 300; i++) {
                void *memory = nullptr;
                uint32_t id = 0;
                uint64_t offset = 0;
                const size_t bytes = i % 50 == 0 ? (1 << 20) + 1 : 5000;
                ASSERT_EQ(KOLO_OK, kolo_segment_alloc(bytes, &memory));
                std::memset(memory, t, bytes);
                ASSERT_TRUE(kolo_segment_find(memory, bytes, &id, &offset));
                ASSERT_EQ(t, ((char *)memory)[bytes - 1]);
                kolo_segment_free(memory);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(before, kolo_segment_count());
}

TEST(Segment, OfAParentIsPrivateMemoryInAForkedChild)
{
    void *memory = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_segment_alloc(100, &memory));
    std::memset(memory, 3, 100);
    const pid_t child = fork();
    if (child == 0) {
        uint32_t id = 0;
        uint64_t offset = 0;
        void *own = nullptr;
        bool ok = ((char *)memory)[99] == 3 && !kolo_segment_find(memory, 100, &id, &offset);
        kolo_segment_free(memory); /* ignored: it is the parent's */
        ok = ok && kolo_segment_alloc(5000, &own) == KOLO_OK && own != memory;
        ok = ok && kolo_segment_find(own, 5000, &id, &offset);
        kolo_segment_free(own);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
    EXPECT_EQ(3, ((char *)memory)[99]);
    kolo_segment_free(memory);
}

TEST(Segment, IsFoundAmongMany)
{
    constexpr size_t kBytes = 1 << 20;
    std::vector<void *> many(64);
    std::set<uint32_t> ids;
    for (void *&memory : many) {
        ASSERT_EQ(KOLO_OK, kolo_segment_alloc(kBytes, &memory));
    }
    for (void *memory : many) {
        uint32_t id = 0, same = 0;
        uint64_t begin = 0, offset = 0;
        ASSERT_TRUE(kolo_segment_find(memory, kBytes, &id, &begin));
        ASSERT_TRUE(kolo_segment_find((char *)memory + kBytes - 1, 1, &same, &offset));
        EXPECT_EQ(id, same);
        EXPECT_EQ(begin + kBytes - 1, offset);
        ids.insert(id);
    }
    EXPECT_EQ(many.size(), ids.size());
    for (void *memory : many) {
        kolo_segment_free(memory);
    }
}

/* The bytes of memory that the segment takes. */
long long TakenBytes(uint32_t id)
{
    uint64_t len = 0;
    struct stat info = {};
    const int fd = kolo_segment_descriptor(id, &len);
    EXPECT_EQ(0, fstat(fd, &info));
    close(fd);
    return (long long)info.st_blocks * 512;
}

TEST(Segment, IsReservedPartByPart)
{
    kolo_segment *segment = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_segment_create(64 * 4096, &segment));
    char *base = (char *)kolo_segment_base(segment);
    const uint32_t id = kolo_segment_id(segment);
    EXPECT_EQ(0, TakenBytes(id));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(base + 5, 10));
    EXPECT_EQ(4096, TakenBytes(id));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(base + 4095, 2)) << "two pages";
    EXPECT_EQ(2 * 4096, TakenBytes(id));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(base + 32 * 4096, 32 * 4096));
    EXPECT_EQ(34 * 4096, TakenBytes(id));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(base + 32 * 4096, 33 * 4096)) << "no segment has it";
    EXPECT_EQ(34 * 4096, TakenBytes(id));
    char own = 0;
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(&own, 1)) << "private memory is there already";
    kolo_segment_drop(segment);
}

TEST(Segment, ALongPartIsReservedAlone)
{
    const size_t part = 2 * (size_t)KOLO_SEGMENT_BIG;
    kolo_segment *segment = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_segment_create(3 * part, &segment));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at((char *)kolo_segment_base(segment) + part, part));
    EXPECT_EQ((long long)part, TakenBytes(kolo_segment_id(segment)));
    kolo_segment_drop(segment);
}

TEST(Segment, ThatIsWholeIsReservedAtOnce)
{
    kolo_segment *segment = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_segment_create_whole(64 * 4096, &segment));
    EXPECT_EQ(64 * 4096, TakenBytes(kolo_segment_id(segment)));
    EXPECT_EQ(KOLO_OK, kolo_segment_reserve_at(kolo_segment_base(segment), 64 * 4096));
    EXPECT_EQ(64 * 4096, TakenBytes(kolo_segment_id(segment)));
    kolo_segment_drop(segment);
}

} // namespace
