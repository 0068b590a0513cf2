// SPDX-License-Identifier: Apache-2.0
// covers: src/core/doorbell.c
/* Threads that sleep on bells: who is woken, and who is left in the list. */
extern "C" {
#include "core/doorbell.h"
}

#include <gtest/gtest.h>
#include <thread>

namespace
{

const kolo_comm *Comm(int number)
{
    static const char places[2] = {};
    return reinterpret_cast<const kolo_comm *>(&places[number]);
}

TEST(Doorbell, WakesThoseOfOneCommunicatorAndThenAll)
{
    kolo_doorbell bells[2] = {};
    kolo_sleeper first = {Comm(0), &bells[0], nullptr}, second = {Comm(1), &bells[1], nullptr};
    kolo_sleeper *list = nullptr;
    EXPECT_FALSE(kolo_sleepers_wake(list, nullptr));
    kolo_sleeper_listen(&list, &first);
    EXPECT_FALSE(kolo_sleepers_wake(list, Comm(1)));
    kolo_sleeper_listen(&list, &second);
    EXPECT_TRUE(kolo_sleepers_wake(list, Comm(0)));
    EXPECT_EQ(1u, bells[0].rings);
    EXPECT_EQ(0u, bells[1].rings);
    EXPECT_TRUE(kolo_sleepers_wake(list, nullptr));
    EXPECT_EQ(2u, bells[0].rings);
    EXPECT_EQ(1u, bells[1].rings);
    kolo_sleeper_get_up(&list, &second); /* the newest, then the oldest */
    EXPECT_FALSE(kolo_sleepers_wake(list, Comm(1))) << "its bell may be gone";
    EXPECT_EQ(0u, bells[1].sleepers);
    kolo_sleeper_get_up(&list, &first);
    EXPECT_EQ(nullptr, list);
    EXPECT_EQ(0u, bells[0].sleepers);
}

TEST(Doorbell, EndsASleepThatBeganBeforeOrAfterTheRing)
{
    constexpr long kNs = 900 * 1000 * 1000;
    kolo_doorbell bell = {};
    kolo_sleeper self = {Comm(0), &bell, nullptr}, *list = nullptr;
    for (int i = 0; i < 100; i++) {
        const uint32_t heard = kolo_sleeper_listen(&list, &self);
        std::thread ringer([&list] { kolo_sleepers_wake(list, nullptr); });
        while (__atomic_load_n(&bell.rings, __ATOMIC_SEQ_CST) == heard) {
            kolo_sleeper_sleep(&self, heard, kNs);
        }
        ringer.join();
        kolo_sleeper_get_up(&list, &self);
    }
    EXPECT_EQ(100u, bell.rings);
}

} // namespace
