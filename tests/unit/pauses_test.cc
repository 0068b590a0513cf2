// SPDX-License-Identifier: Apache-2.0
// covers: src/core/pauses.c
/* The pauses of a thread that waits for queued calls: it polls, and then naps for ever longer parts
 * of its wait, until there is news. */
extern "C" {
#include "core/pauses.h"
}

#include <gtest/gtest.h>

namespace
{

constexpr unsigned kPolls = 200;
constexpr long kShortestNs = 20 * 1000, kLongestNs = 4 * 1000 * 1000;

/* The next nap; polls and yields before it are passed over. */
long NextNap(kolo_pauses *pauses)
{
    long nap = 0;
    while (nap == 0) {
        nap = kolo_pauses_nap(pauses, kPolls);
    }
    return nap;
}

TEST(Pauses, PollBeforeTheyNap)
{
    kolo_pauses pauses = {};
    for (unsigned i = 0; i < kPolls; i++) {
        EXPECT_EQ(0, kolo_pauses_nap(&pauses, kPolls)) << "pause " << i;
    }
    EXPECT_EQ(kShortestNs, NextNap(&pauses));
}

TEST(Pauses, NapForAHundredthOfTheWait)
{
    kolo_pauses pauses = {};
    double waited_ns = 0;
    long nap = 0;
    for (int i = 0; i < 5000; i++) {
        const long next = NextNap(&pauses);
        EXPECT_GE(next, nap) << "nap " << i;
        EXPECT_LE(static_cast<double>(next), kShortestNs + waited_ns / 100)
            << "nap " << i << " of " << next << " ns after " << waited_ns << " ns";
        waited_ns += static_cast<double>(next);
        nap = next;
    }
    EXPECT_EQ(kLongestNs, nap);
}

TEST(Pauses, AreShortAgainAfterNews)
{
    kolo_pauses pauses = {};
    for (int i = 0; i < 5000; i++) {
        kolo_pauses_hear(&pauses, 7);
        (void)NextNap(&pauses);
    }
    kolo_pauses_hear(&pauses, 8);
    EXPECT_EQ(kShortestNs, NextNap(&pauses));
}

} // namespace
