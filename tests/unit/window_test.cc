// SPDX-License-Identifier: Apache-2.0
// covers: transports/window.h transports/carrier.h
/* The window of early messages: a sender and a receiver whose reports arrive late and out of order. */
#include "transports/window.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace
{

constexpr uint32_t kDepth = KOLO_WINDOW_SHORT_DEPTH;
constexpr size_t kMost = (size_t)KOLO_WINDOW_MOST * KOLO_WINDOW_BLOCK;

/* How many messages of `bytes` go before a report. */
uint32_t GoWithoutAReport(size_t bytes)
{
    kolo_window w = {};
    while (!kolo_window_is_full(&w, bytes)) {
        kolo_window_add(&w.begun, bytes);
    }
    return w.begun.messages;
}

TEST(Window, LetsManyShortMessagesGoAndFewLongOnes)
{
    EXPECT_EQ(kDepth, GoWithoutAReport(0));
    EXPECT_EQ(kDepth, GoWithoutAReport(8));
    EXPECT_EQ(256u, GoWithoutAReport(1 << 10));
    EXPECT_EQ(64u, GoWithoutAReport(4 << 10));
    EXPECT_EQ(64u, GoWithoutAReport(32 << 10));
    EXPECT_EQ(32u, GoWithoutAReport(64 << 10));
    EXPECT_EQ(2u, GoWithoutAReport(1 << 20));
}

TEST(Window, SeldomReportsShortMessages)
{
    kolo_window w = {};
    int notes = 0;
    for (int i = 0; i < 10000; i++) {
        if (kolo_window_take(&w, 8)) {
            (void)kolo_window_tell(&w);
            notes++;
        }
    }
    EXPECT_EQ(10000 / (KOLO_WINDOW_SHORT_DEPTH / 2), notes);
}

TEST(Window, AnOlderReportOrOneOfTooManyMessagesSaysNothing)
{
    kolo_window w = {};
    for (int i = 0; i < 10; i++) {
        kolo_window_add(&w.begun, 100);
    }
    kolo_window_hear(&w, {5, 10});
    kolo_window_hear(&w, {3, 6});
    kolo_window_hear(&w, {11, 22});
    EXPECT_EQ(5u, w.peer_taken.messages);
    EXPECT_EQ(10u, w.peer_taken.blocks);
}

/* One message kind in `kinds` is drawn for each message, so that sizes come in every order. The
 * receiver takes the messages in any order. */
class Transfer
{
  public:
    Transfer(std::vector<size_t> kinds, unsigned seed) : kinds_(std::move(kinds)), rng_(seed)
    {
        next_ = Draw();
    }

    /* Send `count` messages. False: nothing moves any more. */
    bool Run(uint32_t count)
    {
        while (taken_ < count) {
            const bool full = sent_ == count || kolo_window_is_full(&sender_, next_);
            const bool stuck = full && held_.empty() && reports_.empty();
            if (stuck) {
                return false;
            }
            Step(full);
            EXPECT_LE(held_.size(), kDepth);
            EXPECT_LE(held_bytes_, kMost);
        }
        return true;
    }

  private:
    size_t Draw()
    {
        return kinds_[rng_() % kinds_.size()];
    }

    void Step(bool full)
    {
        const unsigned turn = rng_() % 8;
        if (!full && turn < 4) {
            kolo_window_add(&sender_.begun, next_);
            held_.push_back(next_);
            held_bytes_ += next_;
            sent_++;
            next_ = Draw();
        } else if (!held_.empty() && (turn < 7 || reports_.empty())) {
            std::swap(held_.front(), held_[rng_() % std::min<size_t>(held_.size(), 4)]);
            if (kolo_window_take(&receiver_, held_.front())) {
                reports_.push_back(kolo_window_tell(&receiver_));
            }
            held_bytes_ -= held_.front();
            held_.pop_front();
            taken_++;
        } else if (!reports_.empty()) {
            std::swap(reports_.front(), reports_[rng_() % reports_.size()]);
            kolo_window_hear(&sender_, reports_.front());
            reports_.pop_front();
        }
    }

    std::vector<size_t> kinds_;
    std::mt19937 rng_;
    kolo_window sender_ = {}, receiver_ = {};
    std::deque<size_t> held_;
    std::deque<kolo_window_count> reports_;
    size_t held_bytes_ = 0, next_ = 0;
    uint32_t sent_ = 0, taken_ = 0;
};

TEST(Window, ASenderThatWaitsIsAlwaysToldAndTheReceiverKeepsABoundedPart)
{
    const std::vector<std::vector<size_t>> kinds = {
        {0},
        {1},
        {64},
        {65},
        {1000},
        {4096},
        {4097},
        {1 << 20},
        {8, 1 << 20},
        {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 256 << 10},
        {0, 1, 100, 2000, 30000, 400000, 1 << 20},
        {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 << 20},
    };
    for (size_t i = 0; i < kinds.size(); i++) {
        for (unsigned seed = 0; seed < 20; seed++) {
            EXPECT_TRUE(Transfer(kinds[i], seed).Run(20000)) << "kinds " << i << ", seed " << seed;
        }
    }
}

/* The same with reports that are made and arrive only when the sender has to wait: then the receiver
 * must have something to report. */
TEST(Window, WhenAllIsTakenAReportIsOut)
{
    std::mt19937 rng(1);
    for (int round = 0; round < 2000; round++) {
        const size_t most = (size_t)1 << rng() % 21;
        kolo_window sender = {}, receiver = {};
        for (int wait = 0; wait < 5; wait++) {
            size_t bytes = rng() % (most + 1);
            bool told = false;
            while (!kolo_window_is_full(&sender, bytes)) {
                kolo_window_add(&sender.begun, bytes);
                told = kolo_window_take(&receiver, bytes) || told;
                bytes = rng() % 3 == 0 ? 0 : rng() % (most + 1);
            }
            ASSERT_TRUE(told) << "messages of up to " << most << " bytes";
            kolo_window_hear(&sender, kolo_window_tell(&receiver));
            ASSERT_FALSE(kolo_window_is_full(&sender, bytes));
        }
    }
}

} // namespace
