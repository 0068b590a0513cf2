// SPDX-License-Identifier: Apache-2.0
// covers: src/core/call src/core/health src/exec/cpu/wait.c
/* Threads and communicators that end while others need them. A thread that is cancelled in a call
 * ends after the call, when it holds no lock and no turn. So all ranks get their verdict by the
 * deadline, and all communicators can be destroyed. A communicator that is destroyed in a group ends
 * after the group's calls. */
#include <kolo/kolo.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <functional>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string>
#include <vector>

namespace
{

constexpr int kRanks = 3, kTimeoutMs = 500, kLimitS = 20;

using Call = std::function<kolo_status(kolo_comm *)>;

struct Thread {
    std::function<void()> body;
    pthread_t thread = {};

    void Start()
    {
        ASSERT_EQ(0, pthread_create(
                         &thread, nullptr,
                         [](void *self) -> void * {
                             static_cast<Thread *>(self)->body();
                             return nullptr;
                         },
                         this));
    }
    /* Wait for its end, at most the limit. Returns its result, such as PTHREAD_CANCELED. */
    void *End() const
    {
        timespec limit = {};
        void *end = nullptr;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += kLimitS;
        const bool ended = pthread_timedjoin_np(thread, &end, &limit) == 0;
        EXPECT_TRUE(ended) << "a thread hangs";
        if (!ended) {
            _exit(1); /* the thread uses the stack of this test */
        }
        return end;
    }
};

/* Ranks 0 and 1 make a call that waits for rank 2, which makes none. */
void CancelIn(const Call &call, const char *transport = nullptr)
{
    kolo_comm *comm[kRanks] = {};
    kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = kTimeoutMs;
    config.transport = transport;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(kRanks, &config, comm)) << kolo_error_text();
    std::atomic<int> status[2] = {{KOLO_INPROGRESS}, {KOLO_INPROGRESS}};
    std::atomic<bool> calls{false};
    Thread cancelled = {[&] {
        int before = 0; /* until here the test may not lose it */
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        calls = true;
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before);
        status[0] = call(comm[0]);
        while (true) {
            pthread_testcancel();
        }
    }};
    Thread other = {[&] { status[1] = call(comm[1]); }};
    cancelled.Start();
    while (!calls) {
        sched_yield();
    }
    ASSERT_EQ(0, pthread_cancel(cancelled.thread));
    other.Start();
    EXPECT_EQ(PTHREAD_CANCELED, cancelled.End());
    other.End();
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(KOLO_ERR_TIMEOUT, status[r]) << "rank " << r;
    }
    Thread down = {[&] {
        for (kolo_comm *one : comm) {
            kolo_comm_destroy(one);
        }
    }};
    down.Start();
    down.End();
}

kolo_status Sum(kolo_comm *comm)
{
    float one = 1;
    return kolo_all_reduce(&one, &one, 1, KOLO_FLOAT32, KOLO_SUM, comm, nullptr);
}

TEST(Cancel, InACollective)
{
    CancelIn(Sum);
}

TEST(Cancel, InACollectiveOverSockets)
{
    CancelIn(Sum, "tcp");
}

TEST(Cancel, InAGroup)
{
    CancelIn([](kolo_comm *comm) {
        float one = 1;
        (void)!kolo_group_begin();
        (void)!kolo_all_reduce(&one, &one, 1, KOLO_FLOAT32, KOLO_SUM, comm, nullptr);
        return kolo_group_end();
    });
}

TEST(Cancel, InAReceive)
{
    CancelIn([](kolo_comm *comm) {
        float one = 1;
        return kolo_recv(&one, 1, KOLO_FLOAT32, 2, comm, nullptr);
    });
}

TEST(Cancel, OnAStream)
{
    CancelIn([](kolo_comm *comm) {
        float one = 1;
        kolo_stream stream = nullptr;
        EXPECT_EQ(KOLO_OK, kolo_stream_create(&stream));
        (void)!kolo_all_reduce(&one, &one, 1, KOLO_FLOAT32, KOLO_SUM, comm, stream);
        const kolo_status status = kolo_stream_sync(stream);
        kolo_stream_destroy(stream);
        return status;
    });
}

/* ---- waits that cannot end ---- */

/* Each rank receives from peer[rank], which is -1 for a rank that makes no call. The texts of ranks
 * that call, and whom they blame. */
void WaitFor(const std::vector<int> &peer, std::vector<std::string> *text, int *blamed)
{
    const auto ranks = static_cast<int>(peer.size());
    std::vector<kolo_comm *> comm(peer.size());
    std::vector<Thread> threads(peer.size());
    kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = kTimeoutMs;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(ranks, &config, comm.data())) << kolo_error_text();
    text->resize(peer.size());
    for (size_t r = 0; r < peer.size(); r++) {
        if (peer[r] < 0) {
            continue;
        }
        threads[r].body = [&, r] {
            float one = 1;
            EXPECT_EQ(KOLO_ERR_TIMEOUT,
                      kolo_recv(&one, 1, KOLO_FLOAT32, peer[r], comm[r], nullptr));
            (*text)[r] = kolo_error_text();
        };
        threads[r].Start();
    }
    for (size_t r = 0; r < peer.size(); r++) {
        if (peer[r] >= 0) {
            threads[r].End();
        }
    }
    kolo_failure failure = {};
    failure.size = sizeof failure;
    EXPECT_EQ(KOLO_OK, kolo_comm_failure(comm[0], &failure));
    *blamed = failure.rank;
    Thread down = {[&] {
        for (kolo_comm *one : comm) {
            kolo_comm_destroy(one);
        }
    }};
    down.Start();
    down.End();
}

void ExpectCircle(const std::vector<int> &peer, const std::string &end)
{
    std::vector<std::string> text;
    int blamed = 0;
    WaitFor(peer, &text, &blamed);
    EXPECT_EQ(-1, blamed);
    for (size_t r = 0; r < peer.size(); r++) {
        const size_t at = text[r].rfind(end);
        EXPECT_TRUE(peer[r] < 0 || (at != std::string::npos && at + end.size() == text[r].size()))
            << "rank " << r << ": " << text[r];
    }
}

TEST(Circle, OfReceivesIsNamedThoughAnotherRankMakesNoCall)
{
    ExpectCircle({1, 2, 0, -1},
                 ": ranks 0, 1 and 2 wait for each other in a circle, each for the next one");
    ExpectCircle({2, 0, 1},
                 ": ranks 0, 2 and 1 wait for each other in a circle, each for the next one");
}

TEST(Circle, OfTwoIsNamedByTheRanksThatWaitForIt)
{
    ExpectCircle({1, 0, 0, 2}, ": ranks 0 and 1 wait for each other");
}

TEST(Circle, IsNotSaidOfAChainToARankThatMakesNoCall)
{
    std::vector<std::string> text;
    int blamed = -1;
    WaitFor({1, 2, -1}, &text, &blamed);
    EXPECT_EQ(2, blamed);
    for (size_t r = 0; r < 2; r++) {
        EXPECT_EQ(std::string::npos, text[r].find("each other")) << text[r];
        EXPECT_NE(std::string::npos, text[r].find("for rank 2")) << text[r];
    }
}

/* ---- what the others of a host say of the cause ---- */

bool Begins(const std::string &text, const std::string &begin)
{
    return text.compare(0, begin.size(), begin) == 0;
}

TEST(Cause, ThatBeginsWithItsFinderIsTheSameTextOnAllRanks)
{
    std::vector<std::string> text;
    int blamed = -1;
    WaitFor({2, 2, -1}, &text, &blamed);
    EXPECT_EQ(text[0], text[1]);
    EXPECT_TRUE(Begins(text[0], "rank 0 waited ") || Begins(text[0], "rank 1 waited ")) << text[0];
}

TEST(Cause, IsToldByTheOthersWithTheRankThatFoundIt)
{
    kolo_comm *comm[2] = {};
    std::string text[2];
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, nullptr, comm)) << kolo_error_text();
    for (int r = 0; r < 2; r++) {
        Thread caller = {[&] {
            if (r == 0) {
                kolo_comm_abort(comm[0]);
            }
            float one = 1;
            EXPECT_EQ(KOLO_ERR_ABORTED,
                      kolo_all_reduce(&one, &one, 1, KOLO_FLOAT32, KOLO_SUM, comm[r], nullptr));
            text[r] = kolo_error_text();
        }};
        caller.Start();
        caller.End();
    }
    EXPECT_EQ("this communicator has failed: kolo_comm_abort() was called", text[0]);
    EXPECT_EQ("this communicator has failed: rank 0 says: kolo_comm_abort() was called", text[1]);
    kolo_comm_destroy(comm[0]);
    kolo_comm_destroy(comm[1]);
}

/* ---- communicators in groups ---- */

TEST(Group, WhatIsDestroyedInItEndsAfterItsCalls)
{
    kolo_comm *comm[2][2] = {};
    int one = 1, sum[2][2] = {};
    for (auto &pair : comm) {
        ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, nullptr, pair)) << kolo_error_text();
    }
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int c = 0; c < 2; c++) {
        for (int r = 0; r < 2; r++) {
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&one, &sum[c][r], 1, KOLO_INT32, KOLO_SUM,
                                               comm[c][r], nullptr));
        }
    }
    kolo_comm_destroy(comm[0][0]);
    kolo_comm_destroy(comm[0][1]);
    kolo_comm_destroy(comm[1][0]);
    EXPECT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    for (const auto &pair : sum) {
        EXPECT_EQ(2, pair[0]);
        EXPECT_EQ(2, pair[1]);
    }
    kolo_comm_destroy(comm[1][1]);
}

TEST(Group, ItsErrorOutlivesWhatIsDestroyedInIt)
{
    kolo_comm *comm[2] = {};
    int one = 1, sum = 0;
    kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = kTimeoutMs;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, &config, comm)) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    EXPECT_EQ(KOLO_OK, kolo_all_reduce(&one, &sum, 1, KOLO_INT32, KOLO_SUM, comm[0], nullptr));
    kolo_comm_destroy(comm[0]);
    EXPECT_EQ(KOLO_ERR_TIMEOUT, kolo_group_end());
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 0 waited")) << kolo_error_text();
    kolo_comm_destroy(comm[1]);
}

} // namespace
