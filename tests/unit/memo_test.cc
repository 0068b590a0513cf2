// SPDX-License-Identifier: Apache-2.0
// covers: src/core/call/memo.c
// The call cache (core/call/memo.h) knows calls that share a place.
extern "C" {
#include "memo_calls.h"
}

#include <gtest/gtest.h>
#include <vector>

namespace
{

struct Memos : testing::Test {
    ~Memos() override
    {
        calls_destroy(calls);
    }
    struct calls *calls = calls_create();
};

// The first counts from `least` on whose calls share the place of `least`.
std::vector<size_t> OfOnePlace(size_t least, size_t many)
{
    std::vector<size_t> counts;
    for (size_t count = least; counts.size() < many; count++) {
        if (calls_place(count) == calls_place(least)) {
            counts.push_back(count);
        }
    }
    return counts;
}

TEST_F(Memos, TwoCallsThatShareAPlaceAreBothKnown)
{
    for (size_t least = 1; least < 200; least++) {
        const std::vector<size_t> count = OfOnePlace(least, 2);
        EXPECT_FALSE(calls_know(calls, count[0]));
        calls_learn(calls, count[0], 0);
        calls_learn(calls, count[1], 0);
        EXPECT_TRUE(calls_know(calls, count[0])) << count[0];
        EXPECT_TRUE(calls_know(calls, count[1])) << count[1];
        calls_destroy(calls);
        calls = calls_create();
    }
}

TEST_F(Memos, TheOldestOfThreeIsForgotten)
{
    const std::vector<size_t> count = OfOnePlace(32, 3);
    for (size_t each : count) {
        calls_learn(calls, each, 0);
    }
    EXPECT_FALSE(calls_know(calls, count[0]));
    EXPECT_TRUE(calls_know(calls, count[1]));
    EXPECT_TRUE(calls_know(calls, count[2]));
}

TEST_F(Memos, ACallThatIsStoredAgainLeavesItsNeighbour)
{
    const std::vector<size_t> count = OfOnePlace(32, 2);
    calls_learn(calls, count[0], 0);
    calls_learn(calls, count[1], 0);
    for (int i = 0; i < 3; i++) {
        calls_learn(calls, count[1], 0);
        EXPECT_TRUE(calls_know(calls, count[0]));
    }
}

TEST_F(Memos, ThoseOfAProgramThatLeavesTheCacheAreForgottenWhereverTheyAre)
{
    const std::vector<size_t> shared = OfOnePlace(32, 2), other = OfOnePlace(33, 1);
    calls_learn(calls, shared[0], 1);
    calls_learn(calls, other[0], 1);
    calls_learn(calls, shared[1], 2); // moves the first one
    calls_unbind(calls, 1);
    EXPECT_FALSE(calls_know(calls, shared[0]));
    EXPECT_FALSE(calls_know(calls, other[0]));
    EXPECT_TRUE(calls_know(calls, shared[1]));
    calls_unbind(calls, 2);
    EXPECT_FALSE(calls_know(calls, shared[1]));
}

} // namespace
