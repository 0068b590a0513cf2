// SPDX-License-Identifier: Apache-2.0
// covers: src/core/p2p
/* Sends and receives through the public interface, over every transport of one process.
 *
 * A rank is a thread, and several threads where the test says so. Payloads are patterns that differ
 * by sender, tag and length, so a message in the wrong place cannot look right. */
#include "p2p_raw.h"
#include "world.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <sched.h>
#include <string>
#include <thread>

namespace
{

using Bytes = std::vector<unsigned char>;

/* n ranks of this process; destroyed together, since destroying waits for the other side. */
class Team
{
  public:
    Team(const char *transport, int nranks) : comms_((size_t)nranks, nullptr)
    {
        struct kolo_config config = KOLO_CONFIG_INIT;
        config.transport = transport;
        config.timeout_ms = 20000;
        status_ = kolo_comm_create_local(nranks, &config, comms_.data());
        EXPECT_EQ(KOLO_OK, status_) << kolo_error_text();
    }
    ~Team()
    {
        Run([](kolo_comm *comm) { kolo_comm_destroy(comm); });
    }
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    /* `work` on every rank, each in a thread. */
    void Run(const std::function<void(kolo_comm *)> &work)
    {
        std::vector<std::thread> threads;
        for (kolo_comm *comm : comms_) {
            threads.emplace_back([&work, comm] { work(comm); });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    kolo_comm *At(int rank)
    {
        return comms_[(size_t)rank];
    }
    /* The test destroys that rank's itself. */
    kolo_comm *Take(int rank)
    {
        return std::exchange(comms_[(size_t)rank], nullptr);
    }

  private:
    std::vector<kolo_comm *> comms_;
    kolo_status status_ = KOLO_ERR_INTERNAL;
};

kolo_status Send(kolo_comm *comm, const Bytes &bytes, int peer, int tag)
{
    return kolo_send_tag(bytes.data(), bytes.size(), KOLO_UINT8, peer, tag, comm, nullptr);
}

kolo_status Recv(kolo_comm *comm, Bytes &bytes, int peer, int tag, kolo_recv_info *info = nullptr)
{
    return kolo_recv_tag(bytes.data(), bytes.size(), KOLO_UINT8, peer, tag, info, comm, nullptr);
}

kolo_recv_info Info()
{
    return {sizeof(kolo_recv_info), -7, -7, 777};
}

void WaitUntil(const std::atomic<bool> &flag)
{
    while (!flag) {
        sched_yield();
    }
}

class P2p : public testing::TestWithParam<const char *>
{
};

TEST_P(P2p, EveryLengthArrivesAsItWasSent)
{
    Team team(GetParam(), 2);
    const std::vector<size_t> lengths = {0,    1,    95,   96,    97,      4096,
                                         8191, 8192, 8193, 65536, 1 << 20, (1 << 20) + 3};
    team.Run([&](kolo_comm *comm) {
        for (size_t length : lengths) {
            const Bytes pattern = Pattern(length, (unsigned)length);
            if (kolo_comm_rank(comm) == 0) {
                ASSERT_EQ(KOLO_OK, Send(comm, pattern, 1, 5)) << kolo_error_text();
                continue;
            }
            Bytes got(length);
            kolo_recv_info info = Info();
            ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 5, &info)) << kolo_error_text();
            EXPECT_EQ(pattern, got);
            EXPECT_EQ(0, info.source);
            EXPECT_EQ(5, info.tag);
            EXPECT_EQ(length, info.bytes);
        }
    });
}

TEST_P(P2p, MessagesOfOneSenderArriveInTheOrderSent)
{
    Team team(GetParam(), 2);
    constexpr int kMessages = 300;
    team.Run([&](kolo_comm *comm) {
        std::minstd_rand random(7);
        for (int i = 0; i < kMessages; i++) {
            const size_t length = random() % 3 == 0 ? random() % 40000 : random() % 40;
            const Bytes pattern = Pattern(length, (unsigned)i);
            if (kolo_comm_rank(comm) == 0) {
                ASSERT_EQ(KOLO_OK, Send(comm, pattern, 1, 0));
                continue;
            }
            Bytes got(40000);
            kolo_recv_info info = Info();
            ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 0, &info));
            got.resize(info.bytes);
            EXPECT_EQ(pattern, got) << "message " << i;
        }
    });
}

TEST_P(P2p, ATagIsFoundBehindMessagesWithOtherTags)
{
    Team team(GetParam(), 2);
    constexpr int kTags = 24;
    team.Run([&](kolo_comm *comm) {
        std::vector<Bytes> buffers;
        for (int tag = 0; tag < kTags; tag++) {
            buffers.push_back(Pattern((size_t)tag * 900, (unsigned)tag));
        }
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            for (int tag = 0; tag < kTags; tag++) {
                ASSERT_EQ(KOLO_OK, Send(comm, buffers[(size_t)tag], 1, tag));
            }
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            return;
        }
        for (int tag = kTags - 1; tag >= 0; tag--) {
            Bytes got((size_t)tag * 900);
            ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, tag)) << kolo_error_text();
            EXPECT_EQ(buffers[(size_t)tag], got);
        }
    });
}

TEST_P(P2p, AReceiveFromAnySourceHearsRanksItNeverTalkedTo)
{
    constexpr int kRanks = 5;
    Team team(GetParam(), kRanks);
    team.Run([&](kolo_comm *comm) {
        const int rank = kolo_comm_rank(comm);
        if (rank != 2) {
            ASSERT_EQ(KOLO_OK, Send(comm, Pattern((size_t)rank * 5000, (unsigned)rank), 2, rank));
            return;
        }
        std::map<int, int> seen;
        for (int i = 0; i < kRanks - 1; i++) {
            Bytes got(20000);
            kolo_recv_info info = Info();
            ASSERT_EQ(KOLO_OK, Recv(comm, got, KOLO_ANY_SOURCE, KOLO_ANY_TAG, &info));
            got.resize(info.bytes);
            EXPECT_EQ(info.source, info.tag);
            EXPECT_EQ(Pattern((size_t)info.source * 5000, (unsigned)info.source), got);
            seen[info.source]++;
        }
        EXPECT_EQ((std::map<int, int>{{0, 1}, {1, 1}, {3, 1}, {4, 1}}), seen);
    });
}

TEST_P(P2p, AnySourceTakesTheMessageThatArrivedFirst)
{
    Team team(GetParam(), 3);
    std::atomic<bool> second{false};
    team.Run([&](kolo_comm *comm) {
        const int rank = kolo_comm_rank(comm);
        Bytes one(1);
        if (rank != 0) {
            if (rank == 1) {
                WaitUntil(second);
            }
            ASSERT_EQ(KOLO_OK, Send(comm, one, 0, 1));
            ASSERT_EQ(KOLO_OK, Send(comm, one, 0, 9)); /* here means that the other is kept */
            return;
        }
        ASSERT_EQ(KOLO_OK, Recv(comm, one, 2, 9));
        second = true;
        ASSERT_EQ(KOLO_OK, Recv(comm, one, 1, 9));
        for (int source : {2, 1}) {
            kolo_recv_info info = Info();
            ASSERT_EQ(KOLO_OK, Recv(comm, one, KOLO_ANY_SOURCE, 1, &info));
            EXPECT_EQ(source, info.source);
        }
    });
}

TEST_P(P2p, ReceivesAreMatchedInTheOrderPosted)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        Bytes a = Pattern(100, 1), b = Pattern(9000, 2), c = Pattern(10, 3);
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, Send(comm, a, 1, 4));
            ASSERT_EQ(KOLO_OK, Send(comm, b, 1, 4));
            ASSERT_EQ(KOLO_OK, Send(comm, c, 1, 4));
            return;
        }
        std::vector<Bytes> got(3, Bytes(9000));
        std::vector<kolo_recv_info> info(3, Info());
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        ASSERT_EQ(KOLO_OK, Recv(comm, got[0], KOLO_ANY_SOURCE, 4, &info[0]));
        ASSERT_EQ(KOLO_OK, Recv(comm, got[1], 0, KOLO_ANY_TAG, &info[1]));
        ASSERT_EQ(KOLO_OK, Recv(comm, got[2], KOLO_ANY_SOURCE, KOLO_ANY_TAG, &info[2]));
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        for (size_t i = 0; i < 3; i++) {
            got[i].resize(info[i].bytes);
        }
        EXPECT_EQ(a, got[0]);
        EXPECT_EQ(b, got[1]);
        EXPECT_EQ(c, got[2]);
    });
}

TEST_P(P2p, UntaggedMessagesAreMatchedApartFromTaggedOnes)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        int plain = 11, tagged = 22, got_plain = 0, got_tagged = 0;
        kolo_recv_info info = Info();
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, kolo_send(&plain, 1, KOLO_INT32, 1, comm, nullptr));
            ASSERT_EQ(KOLO_OK, kolo_send_tag(&tagged, 1, KOLO_INT32, 1, 0, comm, nullptr));
        } else {
            ASSERT_EQ(KOLO_OK, kolo_recv_tag(&got_tagged, 1, KOLO_INT32, KOLO_ANY_SOURCE,
                                             KOLO_ANY_TAG, &info, comm, nullptr));
            ASSERT_EQ(KOLO_OK, kolo_recv(&got_plain, 1, KOLO_INT32, 0, comm, nullptr));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        if (kolo_comm_rank(comm) == 1) {
            EXPECT_EQ(22, got_tagged);
            EXPECT_EQ(11, got_plain);
            EXPECT_EQ(0, info.tag);
        }
    });
}

TEST_P(P2p, ARankSendsToItself)
{
    for (int nranks = 1; nranks <= 2; nranks++) {
        Team team(GetParam(), nranks);
        team.Run([&](kolo_comm *comm) {
            const int rank = kolo_comm_rank(comm);
            for (size_t length : {(size_t)0, (size_t)17, (size_t)8192, (size_t)300000}) {
                const Bytes pattern = Pattern(length, (unsigned)length + (unsigned)rank);
                Bytes before(length), after(length);
                ASSERT_EQ(KOLO_OK, kolo_group_begin());
                ASSERT_EQ(KOLO_OK, Recv(comm, before, rank, 3));
                ASSERT_EQ(KOLO_OK, Send(comm, pattern, rank, 3));
                ASSERT_EQ(KOLO_OK, Send(comm, pattern, rank, 4));
                ASSERT_EQ(KOLO_OK, Recv(comm, after, KOLO_ANY_SOURCE, 4));
                ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
                EXPECT_EQ(pattern, before);
                EXPECT_EQ(pattern, after);
            }
        });
    }
}

TEST_P(P2p, AShortMessageToItselfDoesNotWaitForItsReceive)
{
    Team team(GetParam(), 1);
    const Bytes pattern = Pattern(4000, 9);
    Bytes got(4000);
    ASSERT_EQ(KOLO_OK, Send(team.At(0), pattern, 0, 1));
    ASSERT_EQ(KOLO_OK, Recv(team.At(0), got, 0, 1));
    EXPECT_EQ(pattern, got);
}

TEST_P(P2p, AGroupMayHaveThousandsOfMessages)
{
    constexpr int kRanks = 3, kMessages = 1500, kShort = 700;
    Team team(GetParam(), kRanks);
    team.Run([&](kolo_comm *comm) {
        const int rank = kolo_comm_rank(comm), left = (rank + kRanks - 1) % kRanks;
        std::vector<Bytes> sent, got;
        for (int i = 0; i < kMessages; i++) {
            sent.push_back(Pattern((size_t)i % 90, (unsigned)(rank * kMessages + i)));
            got.emplace_back(i == kShort ? 1 : 90);
        }
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int i = 0; i < kMessages; i++) {
            ASSERT_EQ(KOLO_OK, Send(comm, sent[(size_t)i], (rank + 1) % kRanks, 1));
            ASSERT_EQ(KOLO_OK, Recv(comm, got[(size_t)i], left, 1));
        }
        EXPECT_EQ(KOLO_ERR_INVALID,
                  kolo_group_end()); /* one receive is too short: only that fails */
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("70 bytes"))
            << kolo_error_text();
        for (int i = 0; i < kMessages; i++) {
            got[(size_t)i].resize((size_t)i % 90);
            if (i != kShort) {
                ASSERT_EQ(Pattern((size_t)i % 90, (unsigned)(left * kMessages + i)),
                          got[(size_t)i]);
            }
        }
    });
}

TEST_P(P2p, ATooLongMessageFailsItsReceiveAndNothingElse)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        const int rank = kolo_comm_rank(comm);
        for (size_t length : {(size_t)20, (size_t)5000, (size_t)100000}) {
            const Bytes pattern = Pattern(length, 1), next = Pattern(length, 2);
            if (rank == 0) {
                ASSERT_EQ(KOLO_OK, Send(comm, pattern, 1, 0)) << kolo_error_text();
                ASSERT_EQ(KOLO_OK, Send(comm, next, 1, 0)) << kolo_error_text();
                continue;
            }
            Bytes small(10, 0xee), got(length);
            kolo_recv_info info = Info();
            ASSERT_EQ(KOLO_ERR_INVALID, Recv(comm, small, 0, 0, &info));
            const std::string text = kolo_error_text();
            EXPECT_NE(std::string::npos, text.find(std::to_string(length) + " bytes")) << text;
            EXPECT_NE(std::string::npos, text.find("room for 10")) << text;
            EXPECT_EQ(777u, info.bytes) << "out-arguments are written only on success";
            EXPECT_EQ(Bytes(10, 0xee), small);
            ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 0));
            EXPECT_EQ(next, got);
        }
    });
}

TEST_P(P2p, ATooLongMessageThatWasKeptFailsItsReceiveOnly)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        const Bytes eager = Pattern(5000, 1), late = Pattern(50000, 2), mark = Pattern(1, 3);
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            ASSERT_EQ(KOLO_OK, Send(comm, eager, 1, 0));
            ASSERT_EQ(KOLO_OK, Send(comm, late, 1, 0));
            ASSERT_EQ(KOLO_OK, Send(comm, mark, 1, 1));
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            return;
        }
        Bytes got(1), small(100);
        ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 1)); /* so the others are kept by now */
        EXPECT_EQ(mark, got);
        EXPECT_EQ(KOLO_ERR_INVALID, Recv(comm, small, 0, 0));
        EXPECT_EQ(KOLO_ERR_INVALID, Recv(comm, small, 0, KOLO_ANY_TAG));
        EXPECT_EQ(KOLO_OK, kolo_comm_error(comm));
    });
}

/* Both messages are short and there already, so each receive ends inside its call. */
TEST_P(P2p, AReceiveThatEndsInItsCallTellsItsStreamAnError)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        const Bytes first = Pattern(50, 1), second = Pattern(10, 2), mark = Pattern(1, 3);
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, Send(comm, first, 1, 0));
            ASSERT_EQ(KOLO_OK, Send(comm, second, 1, 0));
            ASSERT_EQ(KOLO_OK, Send(comm, mark, 1, 1));
            return;
        }
        kolo_stream stream = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
        Bytes got(1), small(10, 0xee);
        ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 1)); /* so the others are kept by now */
        kolo_recv_info info = Info();
        const auto receive = [&] {
            return kolo_recv_tag(small.data(), small.size(), KOLO_UINT8, 0, 0, &info, comm, stream);
        };
        ASSERT_EQ(KOLO_OK, receive());
        EXPECT_EQ(777u, info.bytes) << "out-arguments are written only on success";
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_stream_query(stream));
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("room for 10"));
        ASSERT_EQ(KOLO_OK, receive());
        EXPECT_EQ(KOLO_OK, kolo_stream_query(stream));
        EXPECT_EQ(second, small);
        EXPECT_EQ(10u, info.bytes);
        kolo_stream_destroy(stream);
    });
}

TEST_P(P2p, InARingAllMaySendFirst)
{
    constexpr int kRanks = 5;
    Team team(GetParam(), kRanks);
    team.Run([&](kolo_comm *comm) {
        const int rank = kolo_comm_rank(comm);
        const int right = (rank + 1) % kRanks, left = (rank + kRanks - 1) % kRanks;
        for (size_t length : {(size_t)8, (size_t)8000, (size_t)500000}) {
            const Bytes mine = Pattern(length, (unsigned)rank);
            Bytes got(length);
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            ASSERT_EQ(KOLO_OK, kolo_send(mine.data(), length, KOLO_UINT8, right, comm, nullptr));
            ASSERT_EQ(KOLO_OK, kolo_recv(got.data(), length, KOLO_UINT8, left, comm, nullptr));
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            EXPECT_EQ(Pattern(length, (unsigned)left), got);
        }
    });
}

TEST_P(P2p, OneThreadDrivesAllRanksAndDestroysThemOneByOne)
{
    constexpr int kRanks = 3;
    Team team(GetParam(), kRanks);
    std::vector<Bytes> sent, got;
    for (int rank = 0; rank < kRanks; rank++) {
        sent.push_back(Pattern(3000, (unsigned)rank));
        got.push_back(Bytes(3000));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int rank = 0; rank < kRanks; rank++) {
        const int right = (rank + 1) % kRanks, left = (rank + kRanks - 1) % kRanks;
        ASSERT_EQ(KOLO_OK, Send(team.At(rank), sent[(size_t)rank], right, 0));
        ASSERT_EQ(KOLO_OK, Recv(team.At(rank), got[(size_t)rank], left, 0));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    for (int rank = 0; rank < kRanks; rank++) {
        EXPECT_EQ(sent[(size_t)((rank + kRanks - 1) % kRanks)], got[(size_t)rank]);
        kolo_comm_destroy(team.Take(rank));
    }
}

TEST_P(P2p, MoreMessagesThanAReceiverKeepsDoNotBlockALaterOne)
{
    Team team(GetParam(), 2);
    constexpr int kMessages = 2500; /* 20 MB; a receiver keeps 1 MiB of one sender */
    team.Run([&](kolo_comm *comm) {
        const Bytes last = Pattern(100, 1);
        std::vector<Bytes> all;
        for (int i = 0; i < kMessages; i++) {
            all.push_back(Pattern(8192, (unsigned)i + 10));
        }
        if (kolo_comm_rank(comm) == 0) {
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            for (const Bytes &one : all) {
                ASSERT_EQ(KOLO_OK, Send(comm, one, 1, 1));
            }
            ASSERT_EQ(KOLO_OK, Send(comm, last, 1, 2));
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            return;
        }
        Bytes got(8192), got_last(100);
        ASSERT_EQ(KOLO_OK, Recv(comm, got_last, 0, 2));
        EXPECT_EQ(last, got_last);
        const size_t kept = RawKeptBytes(comm, 0);
        EXPECT_GT(kept, (size_t)900 << 10);
        EXPECT_LE(kept, (size_t)1 << 20);
        for (const Bytes &one : all) {
            ASSERT_EQ(KOLO_OK, Recv(comm, got, 0, 1)) << kolo_error_text();
            ASSERT_EQ(one, got);
        }
        EXPECT_EQ(0u, RawKeptBytes(comm, 0));
    });
}

TEST_P(P2p, DestroyingWaitsUntilTheMessageIsTaken)
{
    Team team(GetParam(), 2);
    std::atomic<bool> leaving{false};
    const Bytes pattern = Pattern(6000, 4);
    std::thread sender([&, comm = team.Take(0)] {
        leaving = true;
        EXPECT_EQ(KOLO_OK, Send(comm, pattern, 1, 0)) << kolo_error_text();
        kolo_comm_destroy(comm);
    });
    WaitUntil(leaving);
    for (int i = 0; i < 1000; i++) {
        sched_yield();
    }
    Bytes got(6000);
    EXPECT_EQ(KOLO_OK, Recv(team.At(1), got, KOLO_ANY_SOURCE, 0)) << kolo_error_text();
    EXPECT_EQ(pattern, got);
    sender.join();
}

TEST_P(P2p, AnAbortEndsReceivesThatWait)
{
    Team team(GetParam(), 2);
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([&, i] {
            Bytes got(100000);
            const Bytes long_one(100000);
            waiting++;
            const kolo_status status = i == 0   ? Recv(team.At(0), got, 1, 0)
                                       : i == 1 ? Recv(team.At(0), got, KOLO_ANY_SOURCE, 1)
                                                : Send(team.At(0), long_one, 1, 2);
            EXPECT_EQ(KOLO_ERR_ABORTED, status) << i;
        });
    }
    while (waiting < 3) {
        sched_yield();
    }
    kolo_comm_abort(team.At(0));
    for (std::thread &thread : threads) {
        thread.join();
    }
    Bytes got(1);
    EXPECT_EQ(KOLO_ERR_ABORTED, Recv(team.At(0), got, 1, 0));
    kolo_comm_abort(team.At(1));
}

/* Random traffic: thread t of each rank talks to thread t of the others, in an order both know. */
void Chat(kolo_comm *comm, int nranks, int thread, int rounds, std::atomic<long> &wrong)
{
    const int rank = kolo_comm_rank(comm);
    std::minstd_rand random((unsigned)thread * 977u + 5u); /* the same on all ranks */
    for (int round = 0; round < rounds; round++) {
        const int shift = 1 + (int)(random() % (unsigned)(nranks - 1));
        const unsigned kind = (unsigned)(random() % 10);
        const size_t length = kind < 6 ? random() % 200 : random() % (kind == 9 ? 100000 : 12000);
        const int to = (rank + shift) % nranks, from = (rank + nranks - shift) % nranks;
        const unsigned seed = (unsigned)(round * 64 + thread);
        const Bytes mine = Pattern(length, seed + (unsigned)rank * 100003u);
        Bytes got(length);
        kolo_recv_info info = Info();
        bool good = kolo_group_begin() == KOLO_OK;
        good = good && Send(comm, mine, to, thread) == KOLO_OK;
        good = good && Recv(comm, got, from, thread, &info) == KOLO_OK;
        good = kolo_group_end() == KOLO_OK && good && info.bytes == length &&
               got == Pattern(length, seed + (unsigned)from * 100003u);
        wrong += good ? 0 : 1;
    }
}

TEST_P(P2p, EightThreadsOfARankTalkAtOnce)
{
    constexpr int kRanks = 3, kThreads = 8, kRounds = 60;
    Team team(GetParam(), kRanks);
    std::atomic<long> wrong{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; rank++) {
        for (int thread = 0; thread < kThreads; thread++) {
            threads.emplace_back(
                [&, rank, thread] { Chat(team.At(rank), kRanks, thread, kRounds, wrong); });
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(0, wrong);
}

TEST_P(P2p, MessagesAndCollectivesDoNotDisturbEachOther)
{
    constexpr int kRanks = 3;
    Team team(GetParam(), kRanks);
    std::atomic<long> wrong{0};
    team.Run([&](kolo_comm *comm) {
        std::thread talker([&] { Chat(comm, kRanks, 1, 60, wrong); });
        for (int i = 0; i < 100; i++) {
            int64_t sum = 0;
            const int64_t mine = i * 10 + kolo_comm_rank(comm);
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&mine, &sum, 1, KOLO_INT64, KOLO_SUM, comm, nullptr))
                << kolo_error_text();
            EXPECT_EQ(i * 10 * kRanks + 3, sum);
        }
        talker.join();
    });
    EXPECT_EQ(0, wrong);
}

/* Rank 0 sends, then receives, on streams; rank 1 takes and gives one after the other. */
TEST_P(P2p, MessagesOnSeveralStreamsMatchInTheOrderOfTheirCalls)
{
    constexpr int kMessages = 9, kRounds = 50;
    Team team(GetParam(), 2);
    team.Run([](kolo_comm *comm) {
        std::vector<int> there(kMessages), back(kMessages), want(kMessages);
        std::vector<kolo_stream> streams(kMessages);
        for (kolo_stream &stream : streams) {
            ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
        }
        const auto each = [&](bool send, std::vector<int> &numbers) {
            for (int i = 0; i < kMessages; i++) {
                kolo_stream stream = kolo_comm_rank(comm) == 0 ? streams[(size_t)i] : nullptr;
                EXPECT_EQ(KOLO_OK, send ? kolo_send(&numbers[(size_t)i], 1, KOLO_INT32,
                                                    1 - kolo_comm_rank(comm), comm, stream)
                                        : kolo_recv(&numbers[(size_t)i], 1, KOLO_INT32,
                                                    1 - kolo_comm_rank(comm), comm, stream));
            }
            for (kolo_stream stream : streams) {
                EXPECT_EQ(KOLO_OK, kolo_stream_sync(stream)) << kolo_error_text();
            }
        };
        for (int round = 0; round < kRounds; round++) {
            std::iota(want.begin(), want.end(), round);
            there = kolo_comm_rank(comm) == 0 ? want : std::vector<int>(kMessages);
            each(kolo_comm_rank(comm) == 0, there);
            back = kolo_comm_rank(comm) == 1 ? want : std::vector<int>(kMessages);
            each(kolo_comm_rank(comm) == 1, back);
            EXPECT_EQ(want, there);
            EXPECT_EQ(want, back);
        }
        for (kolo_stream stream : streams) {
            kolo_stream_destroy(stream);
        }
    });
}

/* Loop tells the ends of a link when the other one closes; shm finds nobody to connect to. */
TEST_P(P2p, TalkingToARankThatLeftIsAnErrorAndNotAWait)
{
    const bool talked = std::string(GetParam()) == "loop";
    for (const bool sends : {true, false}) {
        Team team(GetParam(), 3);
        Bytes bytes(10), got(10);
        std::thread other([&] {
            EXPECT_EQ(KOLO_OK, talked ? Recv(team.At(1), got, 0, 0) : KOLO_OK);
            kolo_comm_destroy(team.Take(1));
        });
        EXPECT_EQ(KOLO_OK, talked ? Send(team.At(0), bytes, 1, 0) : KOLO_OK);
        other.join();
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        EXPECT_EQ(KOLO_OK, sends ? Send(team.At(0), bytes, 1, 0) : Recv(team.At(0), bytes, 1, 0));
        EXPECT_EQ(KOLO_ERR_LINK, kolo_group_end());
        EXPECT_EQ(KOLO_ERR_LINK, kolo_comm_error(team.At(0)));
        EXPECT_EQ(KOLO_ERR_LINK, Recv(team.At(0), got, 2, 0));
        kolo_comm_abort(team.At(2));
    }
}

TEST_P(P2p, WhatWasReceivedMakesRoomForShortMessagesAgain)
{
    Team team(GetParam(), 2);
    team.Run([&](kolo_comm *comm) {
        Bytes bytes(8192);
        for (int round = 0; round < 10; round++) { /* 4 MB in one direction; the window is 1 MiB */
            for (int i = 0; i < 50; i++) {
                ASSERT_EQ(KOLO_OK, kolo_comm_rank(comm) == 0 ? Send(comm, bytes, 1, 0)
                                                             : Recv(comm, bytes, 0, 0));
            }
            ASSERT_EQ(KOLO_OK, kolo_barrier(comm, nullptr));
        }
    });
    EXPECT_EQ(0u, RawAnnounced(team.At(0), 1));
}

TEST_P(P2p, WrongArgumentsChangeNothing)
{
    Team team(GetParam(), 2);
    Bytes one(1);
    EXPECT_EQ(KOLO_ERR_INVALID, Send(team.At(0), one, 2, 0));
    EXPECT_EQ(KOLO_ERR_INVALID, Send(team.At(0), one, KOLO_ANY_SOURCE, 0));
    EXPECT_EQ(KOLO_ERR_INVALID, Send(team.At(0), one, 1, KOLO_ANY_TAG));
    EXPECT_EQ(KOLO_ERR_INVALID, Recv(team.At(0), one, -2, 0));
    EXPECT_EQ(KOLO_ERR_INVALID, Recv(team.At(0), one, 1, -3));
    EXPECT_EQ(KOLO_OK, kolo_comm_error(team.At(0)));
}

/* What a header that no kolo sends does to its receiver. */
TEST_P(P2p, ADamagedHeaderEndsTheCommunicatorWithItsReason)
{
    const struct {
        RawHeader header;
        const char *says;
    } cases[] = {
        {{0x12345678, 1, 0, 0, 4, 0}, "magic"},
        {{kRawMagic, 99, 0, 0, 4, 0}, "unknown kind"},
        {{kRawMagic, 1, 0, 0, 1 << 20, 0}, "too long to be eager"},
        {{kRawMagic, 3, 0, 0, 4, 17}, "answer to nothing"},
        {{kRawMagic, 4, 0, 0, 4, 17}, "answer to nothing"},
        {{kRawMagic, 5, 0, 400, 0, 0}, "freed"},
    };
    for (const auto &one : cases) {
        SCOPED_TRACE(one.says);
        Team team(GetParam(), 2);
        std::thread sender([&] { RawSend(team.At(0), 1, &one.header); });
        Bytes got(10);
        EXPECT_EQ(KOLO_ERR_LINK, Recv(team.At(1), got, 0, 0));
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(one.says))
            << kolo_error_text();
        sender.join();
        kolo_comm_abort(team.At(0));
    }
}

std::string Name(const testing::TestParamInfo<const char *> &info)
{
    return info.param;
}

INSTANTIATE_TEST_SUITE_P(Transports, P2p, testing::Values("loop", "shm"), Name);

} // namespace
