// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/cpu/stores.c
/* A leader's lessons, given durations of calls as two L3 caches or one would give them. */
#include "stores_leader.h"

#include <functional>
#include <gtest/gtest.h>

namespace
{

/* Microseconds of a call by its kind. */
using Costs = std::function<double(bool past)>;

class Stores : public testing::Test
{
  protected:
    Stores() : leader_(leader_create())
    {
        leader_bind(leader_, 77, false);
    }
    ~Stores() override
    {
        leader_destroy(leader_);
    }
    /* One call; whether it stored past the caches. */
    bool Call(const Costs &costs)
    {
        const bool past = leader_is_past(leader_);
        leader_call(leader_, costs(past));
        return past;
    }
    /* How many of the last 20 of so many calls stored past the caches. */
    int Settled(const Costs &costs, int calls)
    {
        int past = 0;
        for (int i = 0; i < calls; i++) {
            const bool was = Call(costs);
            past += was && i >= calls - 20;
        }
        return past;
    }

    leader *leader_;
};

double Far(bool past)
{
    return past ? 150 : 940;
}

double Near(bool past)
{
    return past ? 135 : 85;
}

TEST_F(Stores, FewCallsFindTheFasterKindFromEitherStart)
{
    uint64_t key = 1;
    for (const bool start : {false, true}) {
        for (const auto &costs : {Far, Near}) {
            leader_bind(leader_, ++key, start);
            EXPECT_EQ(costs(true) < costs(false) ? 20 : 0, Settled(costs, 400)) << start;
        }
    }
}

/* The kind that lost is tried again, so cores that move closer or apart are noticed. */
TEST_F(Stores, AChangeOfTheCostsIsSeenWithin200Milliseconds)
{
    Settled(Far, 5000);
    bool soon = false;
    for (int attempt = 0; attempt < 5 && !soon; attempt++) { /* others may have had the cores */
        soon = true;
        for (const auto &costs : {Near, Far}) {
            const bool faster = costs(true) < costs(false);
            const double changed_us = leader_clock_us(leader_);
            double seen_us = 0;
            int in_a_row = 0;
            while (in_a_row < 200 && leader_clock_us(leader_) < changed_us + 2e6) {
                in_a_row = Call(costs) == faster ? in_a_row + 1 : 0;
                seen_us = in_a_row == 1 ? leader_clock_us(leader_) : seen_us;
            }
            ASSERT_EQ(200, in_a_row);
            soon = soon && seen_us - changed_us < 200e3;
        }
    }
    EXPECT_TRUE(soon);
}

/* Noise of a twentieth does not make the choice flap, and a lost trial is not repeated at once. */
TEST_F(Stores, EqualKindsAreLeftAlone)
{
    unsigned random = 1;
    int changes = 0, calls = 0;
    bool before = false;
    const Costs noisy = [&random](bool) {
        random = random * 1664525u + 1013904223u;
        return 100.0 + random % 6;
    };
    const double end_us = leader_clock_us(leader_) + 300e3;
    for (; leader_clock_us(leader_) < end_us; calls++) {
        const bool past = Call(noisy);
        changes += past != before;
        before = past;
    }
    EXPECT_GT(calls, 1000);
    EXPECT_LE(changes, 2 * 7); /* six trials of 50 ms and the first: there and back */
    EXPECT_GE(changes, 2);
}

/* Calls that were slow before a trial, because of cold caches for example, and are fast in it, do
 * not make the other kind win. */
TEST_F(Stores, ATrialAfterSlowCallsDoesNotWin)
{
    int past = 0, calls = 0;
    const Costs thawing = [&calls](bool past) { return Near(past) + (calls <= 8 ? 100 : 0); };
    for (; calls < 5000; calls++) {
        past += Call(thawing) && calls > 100;
    }
    EXPECT_LE(past, 5000 / 50);
}

/* Ordinary stores are fast only when each place of the slots is in a cache again. */
TEST_F(Stores, ATrialOfOrdinaryStoresFillsThePlacesFirst)
{
    int ordinary = 0;
    const Costs refilling = [&ordinary](bool past) {
        ordinary = past ? 0 : ordinary + 1;
        return !past && ordinary < 120 ? 140.0 : Near(past);
    };
    leader_bind(leader_, 78, true);
    EXPECT_EQ(0, Settled(refilling, 400));
}

/* A call that another process interrupts in a trial, or one that waits for a late peer, does not put
 * off the next trial. */
TEST_F(Stores, AnInterruptedTrialIsRepeatedSoon)
{
    int calls = 0;
    const Costs interrupted = [&calls](bool past) { return calls++ == 12 ? 100e3 : Near(past); };
    leader_bind(leader_, 79, true);
    EXPECT_EQ(0, Settled(interrupted, 2000));
}

/* Bursts of calls with pauses between, in which other data displaces the slots. */
TEST_F(Stores, TheFirstCallsAfterAPauseAreNoSamples)
{
    constexpr int kBursts = 100, kCalls = 500;
    int past = 0;
    for (int burst = 0; burst < kBursts; burst++) {
        for (int i = 0; i < kCalls; i++) {
            past += Call([i](bool past) { return past ? 135.0 : i < 120 ? 170.0 : 85.0; });
        }
        leader_wait(leader_, 60e3);
    }
    EXPECT_LE(past, kBursts * kCalls / 25);
}

/* A program that calls rarely does not spend its calls on trials, however long it waits between. */
TEST_F(Stores, RareCallsAreNotTrials)
{
    constexpr int kCalls = 2000;
    int past = 0;
    Settled(Near, 60);
    for (int i = 0; i < kCalls; i++) {
        past += Call(Near);
        leader_wait(leader_, 20e3);
    }
    EXPECT_LE(past, kCalls / 50);
    EXPECT_GE(past, 1);
}

/* Trials that cost much are rare: a hundredth of the time. */
TEST_F(Stores, ADearTrialIsNotRepeatedSoon)
{
    const Costs dear = [](bool past) { return past ? 1000.0 : 30000.0; };
    leader_bind(leader_, 77, true);
    Settled(dear, 60);
    int ordinary = 0;
    const double end_us = leader_clock_us(leader_) + 300e3;
    while (leader_clock_us(leader_) < end_us) {
        ordinary += !Call(dear);
    }
    EXPECT_EQ(0, ordinary);
}

TEST_F(Stores, ARuleIsFollowed)
{
    EXPECT_TRUE(leader_rule(leader_, "past"));
    EXPECT_TRUE(leader_is_past(leader_));
    leader_bind(leader_, 77, true);
    EXPECT_TRUE(leader_rule(leader_, "ordinary"));
    EXPECT_FALSE(leader_is_past(leader_));
    EXPECT_TRUE(leader_rule(leader_, "measured"));
    EXPECT_TRUE(leader_is_past(leader_));
    for (const char *unknown : {"", "Past", "past ", "ordinar"}) {
        EXPECT_FALSE(leader_rule(leader_, unknown)) << unknown;
    }
}

/* A call whose place another call takes is learnt anew. */
TEST_F(Stores, CallsThatShareAPlaceDisplaceEachOther)
{
    EXPECT_EQ(20, Settled(Far, 60));
    leader_bind(leader_, 77 + leader_places(), false);
    EXPECT_EQ(0, Settled(Near, 60));
    leader_bind(leader_, 77, false);
    EXPECT_EQ(20, Settled(Far, 60));
}

} // namespace
