// SPDX-License-Identifier: Apache-2.0
// covers: transports
/* Messages: what every transport with KOLO_CAP_MESSAGE promises. */
#include "transports/transports.h"
#include "world.h"

#include <gtest/gtest.h>
#include <thread>

namespace
{

class Messages : public testing::TestWithParam<const kolo_transport *>
{
  protected:
    void SetUp() override
    {
        if ((GetParam()->caps & KOLO_CAP_MESSAGE) == 0) {
            GTEST_SKIP() << GetParam()->base.name << " carries no messages";
        }
    }
};

using Bytes = std::vector<unsigned char>;

/* Send `bytes` from rank 0 to rank 1 and say what came. */
void ExpectArrives(World &world, size_t bytes, bool exclusive)
{
    Bytes sent = Pattern(bytes, (unsigned)bytes);
    Bytes came(bytes, 0);
    kolo_req send;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 3, Flat(came.data(), bytes), recv, exclusive));
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 3, Flat(sent.data(), bytes), send));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(KOLO_OK, send.status);
    EXPECT_EQ(KOLO_OK, recv.status);
    EXPECT_EQ(sent, came);
}

TEST_P(Messages, OfAnySizeArriveWhole)
{
    World world(GetParam(), 2);
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{48}, size_t{16383}, size_t{16384},
                         size_t{16385}, size_t{131072}, size_t{(1 << 20) + 3}}) {
        SCOPED_TRACE(bytes);
        ExpectArrives(world, bytes, true);
        ExpectArrives(world, bytes, false);
    }
}

/* Numbers of one scale, as gradients are: a transport may send them in fewer bytes. */
Bytes Floats(uint32_t float_bytes, size_t bytes)
{
    const Bytes noise = Pattern(bytes, 7);
    Bytes out(bytes, 0);
    for (size_t at = 0; at < bytes; at++) {
        const bool top = at % float_bytes == float_bytes - 1;
        out[at] = top ? (unsigned char)(0x3a | (noise[at] & 0x81)) : noise[at];
    }
    return out;
}

TEST_P(Messages, OfFloatsArriveWholeInAnyPlaces)
{
    World world(GetParam(), 2);
    for (uint32_t float_bytes : {uint32_t{2}, uint32_t{4}}) {
        for (size_t bytes : {size_t{65536}, size_t{(256 << 10) + 2}, size_t{(1 << 20) + 3}}) {
            for (int way = 0; way < 3; way++) {
                SCOPED_TRACE(testing::Message() << bytes << " " << way);
                const size_t run = way == 2 ? 1000 : bytes, gap = way == 2 ? 3 : 0;
                const size_t runs = (bytes + run - 1) / run;
                Bytes sent = Floats(float_bytes, runs * run);
                Bytes came(runs * (run + gap) + 1, 0), packed;
                kolo_req send{}, recv;
                send.channel = 3;
                send.float_bytes = float_bytes;
                const kolo_bytes to = {&came[1], run, runs, run + gap}; /* no float is aligned */
                const kolo_bytes from = Flat(sent.data(), sent.size());
                if (way == 1) { /* the first part comes before its receive */
                    ASSERT_EQ(KOLO_OK, world.SendAs(0, 1, from, send));
                    world.Settle();
                    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 3, to, recv));
                } else {
                    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 3, to, recv));
                    ASSERT_EQ(KOLO_OK, world.SendAs(0, 1, from, send));
                }
                ASSERT_TRUE(world.Finish({&send, &recv}));
                for (size_t i = 0; i < runs; i++) {
                    const auto begin = came.begin() + 1 + (ptrdiff_t)(i * (run + gap));
                    packed.insert(packed.end(), begin, begin + (ptrdiff_t)run);
                }
                EXPECT_EQ(sent, packed);
            }
        }
    }
}

TEST_P(Messages, AnEmptyOneIsNotReceivedBeforeItIsSent)
{
    World world(GetParam(), 2);
    kolo_req send;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(nullptr, 0), recv));
    world.Settle();
    EXPECT_EQ(KOLO_INPROGRESS, recv.status);
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(nullptr, 0), send));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(KOLO_OK, recv.status);
}

TEST_P(Messages, MemoryThatIsNotLentKeepsWhatItHasUntilItsOwnMessageComes)
{
    World world(GetParam(), 2);
    const Bytes before = Pattern(200000, 1);
    Bytes other = Pattern(200000, 2), sent = Pattern(200000, 3);
    for (uint32_t channel :
         {uint32_t{1}, uint32_t{3}}) { /* the other one's is looked at after, or first */
        Bytes place = before, came(other.size(), 0);
        kolo_req reqs[4];
        ASSERT_EQ(KOLO_OK,
                  world.Recv(1, 0, channel, Flat(place.data(), place.size()), reqs[0], false));
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, 2, Flat(other.data(), other.size()), reqs[1]));
        world.Settle();
        EXPECT_EQ(before, place);
        ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 2, Flat(came.data(), came.size()), reqs[2]));
        ASSERT_TRUE(world.Finish({&reqs[1], &reqs[2]}));
        EXPECT_EQ(before, place);
        EXPECT_EQ(other, came);
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, channel, Flat(sent.data(), sent.size()), reqs[3]));
        ASSERT_TRUE(world.Finish({&reqs[0], &reqs[3]}));
        EXPECT_EQ(sent, place);
    }
}

TEST_P(Messages, OfOneChannelArriveInTheOrderSent)
{
    constexpr int kCount = 500;
    World world(GetParam(), 2);
    std::vector<int> sent(kCount);
    std::vector<int> came(kCount, -1);
    std::vector<kolo_req> sends(kCount);
    std::vector<kolo_req> recvs(kCount);
    std::vector<kolo_req *> all;
    for (int i = 0; i < kCount; i++) {
        sent[(size_t)i] = i;
        ASSERT_EQ(KOLO_OK,
                  world.Send(0, 1, 7, Flat(&sent[(size_t)i], sizeof(int)), sends[(size_t)i]));
        all.push_back(&sends[(size_t)i]);
    }
    for (int i = 0; i < kCount; i++) {
        ASSERT_EQ(KOLO_OK,
                  world.Recv(1, 0, 7, Flat(&came[(size_t)i], sizeof(int)), recvs[(size_t)i]));
        all.push_back(&recvs[(size_t)i]);
    }
    ASSERT_TRUE(world.Finish(all));
    EXPECT_EQ(sent, came);
}

TEST_P(Messages, AStuckChannelDoesNotHoldUpAnother)
{
    World world(GetParam(), 2);
    Bytes stuck = Pattern(4 << 20, 1);
    Bytes came(stuck.size());
    kolo_req send_stuck;
    kolo_req recv_stuck;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(stuck.data(), stuck.size()), send_stuck));
    world.Settle();
    EXPECT_EQ(KOLO_INPROGRESS, send_stuck.status) << "nobody received it";
    ExpectArrives(world, 100000, true);
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(came.data(), came.size()), recv_stuck));
    ASSERT_TRUE(world.Finish({&send_stuck, &recv_stuck}));
    EXPECT_EQ(stuck, came);
}

TEST_P(Messages, TheFirstPartOfALongOneThatCameEarlyStaysAsItCame)
{
    World world(GetParam(), 2);
    Bytes early = Pattern(1 << 20, 1), other = Pattern(5000, 2);
    Bytes came(early.size()), came_other(other.size());
    kolo_req reqs[4];
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 5, Flat(early.data(), early.size()), reqs[0]));
    world.Settle();
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 1, Flat(came_other.data(), other.size()), reqs[1]));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 5, Flat(came.data(), came.size()), reqs[2]));
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 1, Flat(other.data(), other.size()), reqs[3]));
    ASSERT_TRUE(world.Finish({&reqs[0], &reqs[1], &reqs[2], &reqs[3]}));
    EXPECT_EQ(other, came_other);
    EXPECT_TRUE(early == came);
}

TEST_P(Messages, AllChannelsCarryTheirOwnBytes)
{
    World world(GetParam(), 2);
    std::vector<Bytes> sent(KOLO_CHANNELS);
    std::vector<Bytes> came(KOLO_CHANNELS, Bytes(5000));
    std::vector<kolo_req> reqs(2 * KOLO_CHANNELS);
    std::vector<kolo_req *> all;
    for (unsigned c = 0; c < KOLO_CHANNELS; c++) {
        sent[c] = Pattern(5000, c + 1);
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, c, Flat(sent[c].data(), 5000), reqs[c]));
        all.push_back(&reqs[c]);
    }
    for (unsigned c = KOLO_CHANNELS; c-- > 0;) { /* the other way round */
        ASSERT_EQ(KOLO_OK,
                  world.Recv(1, 0, c, Flat(came[c].data(), 5000), reqs[KOLO_CHANNELS + c]));
        all.push_back(&reqs[KOLO_CHANNELS + c]);
    }
    ASSERT_TRUE(world.Finish(all));
    EXPECT_EQ(sent, came);
}

TEST_P(Messages, AChannelThatIsNotThereIsRefused)
{
    World world(GetParam(), 2);
    char byte = 0;
    kolo_req req;
    EXPECT_EQ(KOLO_ERR_INVALID, world.Send(0, 1, KOLO_CHANNELS, Flat(&byte, 1), req));
    EXPECT_EQ(KOLO_ERR_INVALID, world.Recv(0, 1, 4000000000u, Flat(&byte, 1), req));
}

TEST_P(Messages, WithGapsAtBothEndsArriveInTheirPlaces)
{
    World world(GetParam(), 2);
    Bytes sent = Pattern(3000 * 40, 9);
    Bytes came(5000 * 30, 0xee);
    Bytes expected = came;
    for (size_t i = 0; i < 1000 * 30; i++) { /* 30 runs of 1000 out of 12 runs of 2500 */
        expected[i / 1000 * 5000 + i % 1000] = sent[i / 2500 * 3000 + i % 2500];
    }
    kolo_req send;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 1, Runs(sent.data(), 2500, 12, 3000), send));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 1, Runs(came.data(), 1000, 30, 5000), recv));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(expected, came);
}

TEST_P(Messages, CrossBothWaysAtOnce)
{
    World world(GetParam(), 2);
    const size_t bytes = (2 << 20) + 11;
    std::vector<Bytes> sent = {Pattern(bytes, 1), Pattern(bytes, 2)};
    std::vector<Bytes> came(2, Bytes(bytes));
    kolo_req reqs[4];
    for (int rank = 0; rank < 2; rank++) { /* both send before either receives */
        ASSERT_EQ(KOLO_OK, world.Send(rank, 1 - rank, 2, Flat(sent[(size_t)rank].data(), bytes),
                                      reqs[rank]));
    }
    for (int rank = 0; rank < 2; rank++) {
        ASSERT_EQ(KOLO_OK, world.Recv(rank, 1 - rank, 2, Flat(came[(size_t)rank].data(), bytes),
                                      reqs[2 + rank]));
    }
    ASSERT_TRUE(world.Finish({&reqs[0], &reqs[1], &reqs[2], &reqs[3]}));
    EXPECT_EQ(sent[0], came[1]);
    EXPECT_EQ(sent[1], came[0]);
}

TEST_P(Messages, OfThreeRanksDoNotMix)
{
    World world(GetParam(), 3);
    int sent[3][3];
    int came[3][3];
    std::vector<kolo_req> reqs(18);
    std::vector<kolo_req *> all;
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) { /* to itself too */
            sent[a][b] = 10 * a + b;
            came[b][a] = -1;
            const size_t i = (size_t)(2 * (3 * a + b));
            ASSERT_EQ(KOLO_OK, world.Send(a, b, 0, Flat(&sent[a][b], sizeof(int)), reqs[i]));
            ASSERT_EQ(KOLO_OK, world.Recv(b, a, 0, Flat(&came[b][a], sizeof(int)), reqs[i + 1]));
            all.push_back(&reqs[i]);
            all.push_back(&reqs[i + 1]);
        }
    }
    ASSERT_TRUE(world.Finish(all));
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            EXPECT_EQ(sent[a][b], came[b][a]) << a << " to " << b;
        }
    }
}

TEST_P(Messages, OfAnotherSizeThanExpectedAreAMismatch)
{
    World world(GetParam(), 2);
    char sent[8] = {};
    char came[16] = {};
    kolo_req send;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(sent, 8), send));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(came, 16), recv));
    ASSERT_TRUE(world.Finish({&recv}));
    EXPECT_EQ(KOLO_ERR_MISMATCH, recv.status);
}

/* The call of `from`, as its requests carry it. */
kolo_call_sign CallOf(int from, size_t bytes)
{
    return {UINT64_C(0x1122334455667700) + (unsigned)from,
            bytes,
            5,
            6,
            7u + (unsigned)from,
            0xabcdef01u};
}

/* Rank 0 sends `send_bytes` with its call in the request, before or after rank 1 posts the receive.
 * Returns the receive, with its status and the call that came. */
kolo_req Carried(World &world, size_t send_bytes, size_t bytes, bool early, kolo_req &send)
{
    Bytes sent(send_bytes), came(bytes);
    kolo_req recv{};
    send = recv;
    send.call = CallOf(0, send_bytes);
    recv.call = CallOf(1, bytes);
    if (early) {
        EXPECT_EQ(KOLO_OK, world.SendAs(0, 1, Flat(sent.data(), send_bytes), send));
        world.Settle();
        EXPECT_EQ(KOLO_OK, world.RecvAs(1, 0, Flat(came.data(), bytes), recv));
    } else {
        EXPECT_EQ(KOLO_OK, world.RecvAs(1, 0, Flat(came.data(), bytes), recv));
        world.Settle();
        EXPECT_EQ(KOLO_OK, world.SendAs(0, 1, Flat(sent.data(), send_bytes), send));
    }
    EXPECT_TRUE(world.Finish({&recv}));
    world.Settle();
    return recv;
}

void ExpectCall(const kolo_call_sign &expected, const kolo_call_sign &call, bool whole)
{
    EXPECT_EQ(expected.number, call.number);
    EXPECT_EQ(expected.chain, call.chain);
    if (whole) {
        EXPECT_EQ(expected.key, call.key);
        EXPECT_EQ(expected.count, call.count);
        EXPECT_EQ(expected.key_before, call.key_before);
        EXPECT_EQ(expected.count_before, call.count_before);
    }
}

/* A transport of a plug-in may carry messages without their calls: the receive keeps its own. */
static bool TellsNoCall(const kolo_transport *transport, const kolo_req &recv)
{
    const std::string name = transport->base.name;
    return name != "shm" && name != "loop" && name != "tcp" && name != "verbs" &&
           recv.call.number == CallOf(1, recv.bytes).number;
}

TEST_P(Messages, CarryTheCallOfTheirSender)
{
    const bool whole = GetParam()->base.name != std::string("shm"); /* the board has the rest */
    World world(GetParam(), 2);
    for (size_t bytes : {size_t{0}, size_t{8}, size_t{40000}, size_t{300000}, size_t{3 << 20}}) {
        for (bool early : {false, true}) {
            SCOPED_TRACE(testing::Message() << bytes << " bytes, early " << early);
            kolo_req send;
            const kolo_req recv = Carried(world, bytes, bytes, early, send);
            EXPECT_EQ(KOLO_OK, recv.status);
            if (TellsNoCall(GetParam(), recv)) {
                GTEST_SKIP() << GetParam()->base.name << " tells no call";
            }
            ExpectCall(CallOf(0, bytes), recv.call, whole);
            ExpectCall(CallOf(0, bytes), send.call, true);
        }
    }
}

TEST_P(Messages, OfAnotherSizeStillTellTheCallOfTheirSender)
{
    for (size_t bytes : {size_t{8}, size_t{16384}, size_t{2 << 20}}) {
        for (bool early : {false, true}) {
            SCOPED_TRACE(testing::Message() << bytes << " bytes, early " << early);
            World world(GetParam(), 2);
            kolo_req send;
            const kolo_req recv = Carried(world, 2 * bytes, bytes, early, send);
            EXPECT_EQ(KOLO_ERR_MISMATCH, recv.status);
            if (TellsNoCall(GetParam(), recv)) {
                GTEST_SKIP() << GetParam()->base.name << " tells no call";
            }
            ExpectCall(CallOf(0, 2 * bytes), recv.call,
                       GetParam()->base.name != std::string("shm"));
        }
    }
}

TEST_P(Messages, OfARankThatHasLeftAreStillReceived)
{
    Bytes sent = Pattern(100, 4);
    Bytes came(100);
    kolo_req sends[3];
    kolo_req recv;
    World world(GetParam(), 2);
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 2, Flat(nullptr, 0), sends[0]));
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 2, Flat(sent.data(), sent.size()), sends[1]));
    world.Settle();
    if (!AllDone({&sends[0], &sends[1]})) {
        GTEST_SKIP() << GetParam()->base.name << " sends when somebody receives";
    }
    world.CloseRank(0);
    (void)world.Send(1, 0, 2, Flat(sent.data(), 1), sends[2]); /* rank 1 notices */
    world.Settle();
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 2, Flat(nullptr, 0), recv));
    ASSERT_TRUE(world.Finish({&recv}));
    EXPECT_EQ(KOLO_OK, recv.status);
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 2, Flat(came.data(), came.size()), recv));
    ASSERT_TRUE(world.Finish({&recv}));
    EXPECT_EQ(KOLO_OK, recv.status);
    EXPECT_EQ(sent, came);
}

TEST_P(Messages, EndWithTheStatusOfAnAbort)
{
    World world(GetParam(), 2);
    Bytes big(4 << 20);
    kolo_req send;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(big.data(), big.size()), send));
    ASSERT_EQ(KOLO_OK, world.Recv(0, 1, 1, Flat(big.data(), 8), recv));
    GetParam()->abort(world.Link(0, 1), KOLO_ERR_PEER);
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(KOLO_ERR_PEER, send.status);
    EXPECT_EQ(KOLO_ERR_PEER, recv.status);
    EXPECT_EQ(KOLO_ERR_PEER, world.Send(0, 1, 0, Flat(big.data(), 8), send)) << "and stay ended";
}

TEST_P(Messages, OfRanksThatRunAtOnceArriveInOrder)
{
    constexpr int kRounds = 2000;
    World world(GetParam(), 3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; rank++) {
        threads.emplace_back(
            [&world,
             rank] { /* pass a growing vector round the ring */
                     for (int round = 0; round < kRounds; round++) {
                         std::vector<int> sent((size_t)(round % 64) * 97, round * 3 + rank);
                         std::vector<int> came(sent.size(), -1);
                         kolo_req reqs[2];
                         const size_t bytes = sent.size() * sizeof(int);
                         ASSERT_EQ(KOLO_OK, world.Send(rank, (rank + 1) % 3, 0,
                                                       Flat(sent.data(), bytes), reqs[0]));
                         ASSERT_EQ(KOLO_OK, world.Recv(rank, (rank + 2) % 3, 0,
                                                       Flat(came.data(), bytes), reqs[1]));
                         ASSERT_TRUE(world.FinishAt(rank, {&reqs[0], &reqs[1]}));
                         ASSERT_EQ(std::vector<int>(sent.size(), round * 3 + (rank + 2) % 3), came);
                     }
            });
    }
    for (auto &thread : threads) {
        thread.join();
    }
}

TEST_P(Messages, EndWhenAnotherThreadAborts)
{
    World world(GetParam(), 2);
    int value = 0;
    kolo_req recv;
    ASSERT_EQ(KOLO_OK, world.Recv(0, 1, 0, Flat(&value, sizeof value), recv));
    std::thread other([&] { GetParam()->abort(world.Link(0, 1), KOLO_ERR_ABORTED); });
    ASSERT_TRUE(world.FinishAt(0, {&recv}));
    EXPECT_EQ(KOLO_ERR_ABORTED, recv.status);
    other.join();
}

TEST_P(Messages, AreCountedByProgressAndNothingElseIs)
{
    World world(GetParam(), 2);
    int value = 5;
    kolo_req recv;
    EXPECT_EQ(0, GetParam()->progress(world.Endpoint(1), 16));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(&value, sizeof value), recv));
    world.Settle();
    EXPECT_EQ(0, GetParam()->progress(world.Endpoint(1), 16))
        << "a receive that waits moved nothing";
    GetParam()->abort(world.Link(1, 0), KOLO_ERR_ABORTED);
    ASSERT_TRUE(world.Finish({&recv}));
}

TEST(MessagesOfSharedMemory, RingAPeerThatSleepsOnceForAllOfThem)
{
    const kolo_transport *shm = &kolo_transport_shm;
    World world(shm, 2);
    kolo_doorbell *bell = shm->bell(world.Endpoint(1));
    ASSERT_NE(nullptr, bell);
    int values[3] = {};
    kolo_req sends[3], recvs[3];
    const auto send = [&](int i) {
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(&values[i], sizeof values[i]), sends[i]));
    };
    send(0);
    shm->ring(world.Endpoint(0));
    EXPECT_EQ(0u, bell->rings) << "nobody sleeps";
    bell->sleepers = 1;
    send(1);
    send(2);
    EXPECT_EQ(0u, bell->rings);
    shm->ring(world.Endpoint(0));
    EXPECT_EQ(1u, bell->rings);
    shm->ring(world.Endpoint(0));
    EXPECT_EQ(1u, bell->rings) << "there is no news";
    bell->sleepers = 0;
    for (int i = 0; i < 3; i++) {
        ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(&values[i], sizeof values[i]), recvs[i]));
    }
    ASSERT_TRUE(world.Finish({&sends[0], &sends[1], &sends[2], &recvs[0], &recvs[1], &recvs[2]}));
}

TEST(MessagesOfSharedMemory, RingTheirSenderWhenItMayHaveWaitedForRoom)
{
    const kolo_transport *shm = &kolo_transport_shm;
    World world(shm, 2);
    kolo_doorbell *bell = shm->bell(world.Endpoint(0));
    ASSERT_NE(nullptr, bell);
    int value = 5;
    Bytes big(4 << 20), out(4 << 20);
    kolo_req send, recv;
    bell->sleepers = 1;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(&value, sizeof value), send));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(&value, sizeof value), recv));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    shm->ring(world.Endpoint(1));
    EXPECT_EQ(0u, bell->rings) << "it never waited";
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(big.data(), big.size()), send));
    world.Settle();
    ASSERT_EQ(KOLO_INPROGRESS, send.status);
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(out.data(), out.size()), recv));
    shm->ring(world.Endpoint(1));
    EXPECT_EQ(1u, bell->rings);
    bell->sleepers = 0;
    ASSERT_TRUE(world.Finish({&send, &recv}));
}

TEST_P(Messages, AreOvertakenByTheNewestWordWhichIsNoProgressOfThem)
{
    if ((GetParam()->caps & KOLO_CAP_NOTIFY) == 0) {
        GTEST_SKIP() << GetParam()->base.name << " says no words";
    }
    using Words = std::vector<std::pair<int, uint64_t>>;
    World world(GetParam(), 2);
    Bytes big(4 << 20);
    kolo_req send;
    int moved = 0;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(big.data(), big.size()), send));
    world.Settle(); /* nobody receives it */
    GetParam()->notify(world.Link(0, 1), 7);
    GetParam()->notify(world.Link(0, 1), UINT64_MAX);
    ASSERT_TRUE(WaitFor([&] {
        moved += GetParam()->progress(world.Endpoint(0), 16);
        moved += GetParam()->progress(world.Endpoint(1), 16);
        return !world.At(1).notified.empty();
    }));
    EXPECT_EQ((Words{{0, UINT64_MAX}}), world.At(1).notified);
    EXPECT_EQ(Words{}, world.At(0).notified);
    EXPECT_EQ(0, moved);
    EXPECT_EQ(KOLO_INPROGRESS, send.status);
    GetParam()->abort(world.Link(0, 1), KOLO_ERR_ABORTED);
    ASSERT_TRUE(world.Finish({&send}));
}

INSTANTIATE_TEST_SUITE_P(Transport, Messages, testing::ValuesIn(HostTransports()),
                         [](const auto &info) { return std::string(info.param->base.name); });

} // namespace
