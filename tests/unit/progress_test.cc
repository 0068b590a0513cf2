// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/cpu/wait.c src/core/options.c
/* Waits that last. config.progress: a call that waits calls it, in its own thread, over lines and over
 * messages. Without it the wait sleeps. */
#include <kolo/kolo.h>

extern "C" {
#include "waits_env.h"
}

#include <atomic>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

thread_local int yields;
std::atomic<int> yield_us{0}, sleeps{0};

} // namespace

/* In the place of the C library's: it counts, and takes as long as if a program ran meanwhile that
 * does not wait. */
extern "C" int sched_yield(void) noexcept
{
    yields++;
    if (yield_us > 0) {
        usleep(static_cast<useconds_t>(yield_us));
    }
    return static_cast<int>(syscall(SYS_sched_yield));
}

extern "C" int ppoll(struct pollfd *fds, nfds_t count, const timespec *limit, const sigset_t *mask)
{
    timespec left = limit != nullptr ? *limit : timespec{}; /* the kernel writes it */
    sleeps++;
    return static_cast<int>(syscall(SYS_ppoll, fds, count, limit != nullptr ? &left : nullptr, mask,
                                    static_cast<size_t>(_NSIG / 8)));
}

namespace
{

constexpr int kTimes = 3;
constexpr auto kLimit = std::chrono::seconds(20);

/* What the progress function of both ranks saw. Of the threads only that of the first calls, while rank
 * 0 waits alone: later rank 1 may wait, too. */
struct Seen {
    std::atomic<int> times{0};
    std::atomic<std::thread::id> thread{};

    static void Call(void *arg)
    {
        auto *seen = static_cast<Seen *>(arg);
        if (seen->times < kTimes) {
            seen->thread = std::this_thread::get_id();
        }
        seen->times++;
    }
};

/* Rank 1 enters the collective when rank 0, which waits for it, has called its function. */
void ExpectCalls(kolo_comm *comm[2], Seen *seen)
{
    float in[2] = {1, 2}, out[2] = {};
    seen->times = 0;
    std::thread early([&] {
        EXPECT_EQ(KOLO_OK,
                  kolo_all_reduce(&in[0], &out[0], 1, KOLO_FLOAT32, KOLO_SUM, comm[0], nullptr));
        EXPECT_EQ(std::this_thread::get_id(), seen->thread.load());
    });
    const auto until = std::chrono::steady_clock::now() + kLimit;
    while (seen->times < kTimes && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
    EXPECT_LE(kTimes, seen->times);
    EXPECT_EQ(KOLO_OK,
              kolo_all_reduce(&in[1], &out[1], 1, KOLO_FLOAT32, KOLO_SUM, comm[1], nullptr));
    early.join();
    EXPECT_EQ(3, out[0]);
    EXPECT_EQ(3, out[1]);
}

class Progress : public ::testing::TestWithParam<const char *>
{
};

TEST_P(Progress, IsMadeByACallThatWaits)
{
    Seen seen;
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm[2] = {};
    config.transport = GetParam();
    config.progress = Seen::Call;
    config.progress_arg = &seen;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, &config, comm)) << kolo_error_text();
    ExpectCalls(comm, &seen); /* the first call takes the long way */
    ExpectCalls(comm, &seen);
    for (kolo_comm *one : comm) {
        kolo_comm_abort(one);
    }
    for (kolo_comm *one : comm) {
        kolo_comm_destroy(one);
    }
}

/* Of a process with membarrier: naps of hundreds of ranks would leave no processor to others. */
TEST(LongWait, SleepsUntilItIsWoken)
{
    kolo_comm *comm[2] = {};
    if (!kolo_test_has_membarrier()) {
        GTEST_SKIP() << "the system denies membarrier";
    }
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, nullptr, comm)) << kolo_error_text();
    EXPECT_TRUE(kolo_test_sleeps_until_woken(comm[0]));
    EXPECT_TRUE(kolo_test_sleeps_until_woken(comm[1]));
    for (kolo_comm *one : comm) {
        kolo_comm_abort(one);
    }
    for (kolo_comm *one : comm) {
        kolo_comm_destroy(one);
    }
}

/* Between hosts a wait takes longer than another process's turn on this core. */
TEST(WaitForMessages, LetsOthersHaveTheCoreBeforeItSleeps)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm[2] = {};
    config.transport = "tcp";
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, &config, comm)) << kolo_error_text();
    int yielded = 0;
    /* The first call makes its link. A few calls after a yield to a busy program do not yield. */
    for (int call = 0; call < 2 || (call < 40 && yielded == 0); call++) {
        float in[2] = {1, 2}, out[2] = {};
        std::thread early([&] {
            yields = 0;
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&in[0], &out[0], 1, KOLO_FLOAT32, KOLO_SUM, comm[0],
                                               nullptr));
            yielded = yields;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(KOLO_OK,
                  kolo_all_reduce(&in[1], &out[1], 1, KOLO_FLOAT32, KOLO_SUM, comm[1], nullptr));
        early.join();
        EXPECT_EQ(3, out[0]);
    }
    if (std::thread::hardware_concurrency() > 1) { /* ranks that crowd one core sleep at once */
        EXPECT_LE(1, yielded);
    }
    EXPECT_GE(1000, yielded); /* 50 ms have room for far more: it sleeps */
    for (kolo_comm *one : comm) {
        kolo_comm_abort(one);
    }
    for (kolo_comm *one : comm) {
        kolo_comm_destroy(one);
    }
}

/* With more ranks than cores, beside programs that do not wait: each wait sleeps. The bytes that came
 * before leave nothing behind that would end its sleep. */
TEST(WaitForMessages, SleepsWhileOthersHaveTheCore)
{
    constexpr int kCalls = 100, kRanks = 4, kRounds = 2;
    kolo_config config = KOLO_CONFIG_INIT;
    config.transport = "tcp";
    config.algo = "barrier:dissemination";
    kolo_comm *comm[kRanks] = {};
    std::vector<std::thread> ranks;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(kRanks, &config, comm)) << kolo_error_text();
    for (kolo_comm *one : comm) {
        kolo_test_crowd(one);
    }
    const auto run = [&] {
        ranks.clear();
        for (kolo_comm *one : comm) {
            ranks.emplace_back([one] {
                for (int i = 0; i < kCalls; i++) {
                    ASSERT_EQ(KOLO_OK, kolo_barrier(one, nullptr)) << kolo_error_text();
                }
            });
        }
        for (std::thread &one : ranks) {
            one.join();
        }
    };
    run(); /* makes the links */
    yield_us = 600;
    sleeps = 0;
    run();
    yield_us = 0;
    EXPECT_LT(0, sleeps);
    EXPECT_GE(8 * kRanks * kRounds * kCalls, sleeps) << "a few for each wait";
    for (kolo_comm *one : comm) {
        kolo_comm_abort(one);
    }
    for (kolo_comm *one : comm) {
        kolo_comm_destroy(one);
    }
}

INSTANTIATE_TEST_SUITE_P(OverLinesAndMessages, Progress, ::testing::Values("loop", "tcp"),
                         [](const auto &test) { return std::string(test.param); });

} // namespace
