// SPDX-License-Identifier: Apache-2.0
// covers: src/core/board/board.c src/core/board/board.h
/* The ring of a rank's last calls (core/board/board.h). */
extern "C" {
#include "record_slot.h"
#include "util/util.h"
}
#include <kolo/plugin.h>

#include <gtest/gtest.h>
#include <string>

namespace
{

uint64_t What(kolo_coll coll, kolo_type type, kolo_op op, int root = 0)
{
    return static_cast<uint64_t>(static_cast<uint32_t>(root)) << 32 |
           static_cast<uint64_t>(op) << 16 | static_cast<uint64_t>(type) << 8 |
           static_cast<uint64_t>(coll);
}

const uint64_t kSum = What(KOLO_COLL_ALL_REDUCE, KOLO_FLOAT32, KOLO_SUM);

struct Post {
    Post() = default;
    ~Post()
    {
        slot_destroy(slot);
    }
    Post(const Post &) = delete;
    void operator=(const Post &) = delete;
    void Call(uint64_t what, uint64_t count)
    {
        slot_begin(slot, what, count);
        slot_end(slot);
    }
    struct slot *slot = slot_create();
};

TEST(Record, KeepsTheLastCallsInOrderAndForgetsThoseBefore)
{
    Post p;
    for (uint64_t n = 1; n <= 1000; n++) {
        p.Call(kSum, n);
    }
    slot_call call{};
    double last_end = 0;
    for (uint64_t n = 1000 - SLOT_RECORDS + 2; n <= 1000; n++) {
        ASSERT_TRUE(slot_find(p.slot, n, &call)) << n;
        EXPECT_EQ(n, call.number);
        EXPECT_EQ(n, call.count);
        EXPECT_TRUE(call.over);
        EXPECT_LE(last_end, call.start_us + 1);
        EXPECT_LE(call.start_us, call.end_us);
        last_end = call.end_us;
    }
    EXPECT_FALSE(slot_find(p.slot, 1000 - SLOT_RECORDS + 1, &call));
    EXPECT_FALSE(slot_find(p.slot, 1001, &call));
    EXPECT_FALSE(slot_find(p.slot, 0, &call));
}

TEST(Record, ACallIsOverOnlyOnceItEndsAlsoWhereAnEarlierOneHadItsPlace)
{
    Post p;
    for (uint64_t n = 1; n <= SLOT_RECORDS; n++) {
        p.Call(kSum, n);
    }
    slot_call call{};
    slot_begin(p.slot, kSum, 7);
    ASSERT_TRUE(slot_find(p.slot, SLOT_RECORDS + 1, &call));
    EXPECT_FALSE(call.over);
    slot_end(p.slot);
    ASSERT_TRUE(slot_find(p.slot, SLOT_RECORDS + 1, &call));
    EXPECT_TRUE(call.over);
}

TEST(Record, TimesAreThoseOfTheClock)
{
    Post p;
    const double before = kolo_now_us();
    while (kolo_now_us() < before + 20000) {
    }
    const double begin = kolo_now_us();
    slot_begin(p.slot, kSum, 7);
    while (kolo_now_us() < begin + 5000) {
    }
    slot_end(p.slot);
    const double end = kolo_now_us();
    slot_call call{};
    ASSERT_TRUE(slot_find(p.slot, 1, &call));
    EXPECT_NEAR(begin, call.start_us, 1000);
    EXPECT_NEAR(end, call.end_us, 1000);
}

TEST(Record, TheFirstCallThatDiffersIsFoundFromEitherSide)
{
    Post a, b;
    for (uint64_t n = 1; n <= 600; n++) {
        const bool other = n == 500 || n == 550;
        a.Call(kSum, 4);
        b.Call(other ? What(KOLO_COLL_BROADCAST, KOLO_FLOAT32, 0, 1) : kSum, 4);
    }
    EXPECT_EQ(500u, slot_differ(a.slot, b.slot));
    EXPECT_EQ(500u, slot_differ(b.slot, a.slot));
    b.Call(kSum, 5); /* which the other has not made */
    EXPECT_EQ(500u, slot_differ(a.slot, b.slot));
}

TEST(Record, CallsAgreeInWhatRanksMustShare)
{
    const struct {
        uint64_t what, count;
        bool same;
    } others[] = {{kSum, 4, true},
                  {kSum, 5, false},
                  {What(KOLO_COLL_ALL_REDUCE, KOLO_FLOAT32, KOLO_MAX), 4, false},
                  {What(KOLO_COLL_ALL_REDUCE, KOLO_INT32, KOLO_SUM), 4, false},
                  {What(KOLO_COLL_BARRIER, KOLO_FLOAT32, KOLO_SUM), 4, false}};
    for (const auto &other : others) {
        Post a, b;
        a.Call(kSum, 4);
        b.Call(other.what, other.count);
        EXPECT_EQ(other.same ? 0u : 1u, slot_differ(a.slot, b.slot)) << other.what;
    }
    Post a, b; /* bytes are moved: of which type does not matter */
    a.Call(What(KOLO_COLL_BROADCAST, KOLO_FLOAT32, 0), 4);
    b.Call(What(KOLO_COLL_BROADCAST, KOLO_INT8, 0), 16);
    EXPECT_EQ(0u, slot_differ(a.slot, b.slot));
}

std::string PathOf(const char *pattern)
{
    char path[256];
    slot_path(pattern, path, sizeof path);
    return path;
}

TEST(Record, AFilesNameTellsRanksApart)
{
    EXPECT_EQ("/tmp/abc/3", PathOf("/tmp/%c/%r"));
    EXPECT_EQ("4711.json", PathOf("%p.json"));
    EXPECT_EQ("fr_3", PathOf("fr_"));
    EXPECT_EQ("50%%x%3", PathOf("50%%x%"));
    EXPECT_EQ(std::string(kolo_host_name()) + "-3", PathOf("%h-"));
}

} // namespace
