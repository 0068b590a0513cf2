// SPDX-License-Identifier: Apache-2.0
// covers: transports/verbs
/* The verbs transport over a libibverbs in memory: what it does when parts of it fail. One thread
 * drives all ranks, so that a seed makes a run. */
#include "fake_verbs.h"
#include "tests/conformance/world.h"
#include "transports/transports.h"
#include "util/util.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <poll.h>
#include <random>
#include <sys/resource.h>

namespace
{

using Bytes = std::vector<unsigned char>;

const kolo_transport *Verbs()
{
    return kolo_transport_find("verbs");
}

class VerbsFaults : public testing::Test
{
  protected:
    void SetUp() override
    {
        setenv("KOLO_IB_TIMEOUT", "1", 1); /* so that lanes come back soon */
        setenv("KOLO_IB_QPS_PER_CONNECTION", "2", 1);
        World::timeout_ms = 0;
        fake_verbs_reset();
    }
    void TearDown() override
    {
        const fake_verbs_counts left = fake_verbs_count();
        EXPECT_EQ(0, left.contexts + left.pds + left.cqs + left.qps + left.mrs + left.channels);
        EXPECT_EQ(0u, left.registered);
    }
    static void Rule(const std::function<void(fake_verbs_rules &)> &change)
    {
        fake_verbs_rules rules = fake_verbs_rules_of();
        change(rules);
        fake_verbs_rule(&rules);
    }
};

struct Pending {
    Bytes sent, came, expected;
    kolo_req send{}, recv{};
};

/* A message of some length, whole or in runs, in each direction and on any channel. */
class Traffic
{
  public:
    Traffic(World &world, uint64_t seed) : world_(world), chance_(seed) {}
    void Post(int count)
    {
        for (int i = 0; i < count; i++) {
            all_.push_back(std::make_unique<Pending>());
            PostOne(*all_.back());
        }
    }
    /* Whether all have ended within the deadline. */
    bool Finish()
    {
        std::vector<kolo_req *> reqs;
        for (auto &one : all_) {
            reqs.push_back(&one->send);
            reqs.push_back(&one->recv);
        }
        return world_.Finish(reqs);
    }
    void ExpectArrived() const
    {
        for (const auto &one : all_) {
            ASSERT_EQ(KOLO_OK, one->send.status) << kolo_error_text();
            ASSERT_EQ(KOLO_OK, one->recv.status) << kolo_error_text();
            ASSERT_TRUE(one->expected == one->came) << one->send.bytes << " bytes";
        }
    }

  private:
    size_t Length()
    {
        static const size_t lengths[] = {0,    1,    8,     188,   189,   8159,
                                         8160, 8161, 65535, 65536, 70001, 300000};
        return chance_() % 3 == 0 ? chance_() % 100000 : lengths[chance_() % KOLO_LENGTH(lengths)];
    }
    void PostOne(Pending &one)
    {
        const int from = (int)(chance_() % (unsigned)world_.Size());
        const int to =
            (from + 1 + (int)(chance_() % (unsigned)(world_.Size() - 1))) % world_.Size();
        const auto channel = (uint32_t)(chance_() % 4);
        const size_t bytes = Length(),
                     runs = chance_() % 4 == 0 && bytes > 0 ? 1 + chance_() % 5 : 1;
        const size_t each = bytes / runs, gap = runs > 1 ? chance_() % 64 : 0;
        one.sent = Pattern(each * runs, (unsigned)chance_());
        one.came.assign((each + gap) * runs, 0xee);
        one.expected = one.came;
        for (size_t i = 0; i < runs; i++) {
            std::copy_n(one.sent.begin() + (long)(i * each), each,
                        one.expected.begin() + (long)(i * (each + gap)));
        }
        const kolo_bytes src = Flat(one.sent.data(), each * runs);
        const kolo_bytes dst = Runs(one.came.data(), each, runs, each + gap);
        if (chance_() % 2 == 0) {
            PostSend(one, from, to, channel, src);
            PostRecv(one, from, to, channel, dst);
        } else {
            PostRecv(one, from, to, channel, dst);
            PostSend(one, from, to, channel, src);
        }
    }
    void PostSend(Pending &one, int from, int to, uint32_t channel, const kolo_bytes &src)
    {
        const kolo_status status = world_.Send(from, to, channel, src, one.send);
        one.send.status = status < 0 ? status : one.send.status;
    }
    void PostRecv(Pending &one, int from, int to, uint32_t channel, const kolo_bytes &dst)
    {
        const kolo_status status = world_.Recv(to, from, channel, dst, one.recv);
        one.recv.status = status < 0 ? status : one.recv.status;
    }

    World &world_;
    std::mt19937_64 chance_;
    std::vector<std::unique_ptr<Pending>> all_;
};

void Exchange(World &world, uint64_t seed, int count)
{
    Traffic traffic(world, seed);
    traffic.Post(count);
    ASSERT_TRUE(traffic.Finish());
    traffic.ExpectArrived();
}

TEST_F(VerbsFaults, WritesInAnyOrderBetweenQueuePairsChangeNothing)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        SCOPED_TRACE(seed);
        Rule([&](auto &rules) {
            rules.seed = seed;
            rules.part = 300000;
            rules.not_ready = 50000;
        });
        World world(Verbs(), 3);
        Exchange(world, seed, 40);
    }
    EXPECT_GT(fake_verbs_count().parts, 0u);
    EXPECT_GT(fake_verbs_count().not_ready, 0u);
}

TEST_F(VerbsFaults, MessagesAreSplitAboveWhatTheDeviceTakes)
{
    Rule([](auto &rules) { rules.message_bytes = 10000; });
    World world(Verbs(), 2);
    Exchange(world, 5, 60);
}

TEST_F(VerbsFaults, ADeviceWithoutInlineDoes)
{
    Rule([](auto &rules) { rules.inline_bytes = 0; });
    World world(Verbs(), 2);
    Exchange(world, 6, 60);
}

TEST_F(VerbsFaults, WhatCannotBeRegisteredIsCopied)
{
    Rule([](auto &rules) { rules.locked = 5 << 20; });
    World world(Verbs(), 2);
    Traffic traffic(world, 7);
    Bytes sent = Pattern(3 << 20, 1), came(sent.size());
    kolo_req send, recv;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 9, Flat(sent.data(), sent.size()), send));
    ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 9, Flat(came.data(), came.size()), recv));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(KOLO_OK, recv.status);
    EXPECT_TRUE(sent == came);
    Exchange(world, 7, 30);
}

TEST_F(VerbsFaults, LittleLockedMemoryIsSaidWithWhatToSet)
{
    rlimit before{};
    Rank ranks[2];
    Rule([](auto &rules) { rules.locked = 100000; });
    getrlimit(RLIMIT_MEMLOCK, &before);
    const rlimit little = {64 << 10, before.rlim_max};
    ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &little));
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(KOLO_OK, World::Open(Verbs(), ranks[i], i, 2, 77));
    }
    ranks[0].peers = {ranks[0].self, ranks[1].self};
    EXPECT_EQ(KOLO_ERR_SYSTEM, World::Connect(Verbs(), ranks[0], false));
    const std::string text = kolo_error_text();
    EXPECT_NE(std::string::npos, text.find("fake0")) << text;
    EXPECT_NE(std::string::npos, text.find("64 KiB")) << text;
    EXPECT_NE(std::string::npos, text.find("ulimit -l unlimited")) << text;
    for (Rank &rank : ranks) {
        World::Disconnect(Verbs(), rank);
    }
    EXPECT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &before));
}

TEST_F(VerbsFaults, AQueuePairThatFailsIsMadeAgain)
{
    World world(Verbs(), 2);
    for (uint64_t round = 1; round <= 30; round++) {
        SCOPED_TRACE(round);
        Traffic traffic(world, round);
        traffic.Post(20);
        for (int i = 0; i < 5; i++) {
            for (int rank = 0; rank < 2; rank++) {
                Verbs()->progress(world.Endpoint(rank), 64);
            }
        }
        fake_verbs_break(round % 3 == 0 ? -1 : (int)(round % 2));
        ASSERT_TRUE(traffic.Finish());
        traffic.ExpectArrived();
    }
}

/* Much comes to rank 1, which does not look, and rank 0 knows that it came. */
void LookAtRank0(World &world, int times)
{
    for (int i = 0; i < times; i++) {
        Verbs()->progress(world.Endpoint(0), 64);
    }
}

TEST_F(VerbsFaults, ARankThatLooksTooLateAtWhatHadComeLosesNothing)
{
    Rule([](auto &rules) { rules.late_ms = 120; });
    World world(Verbs(), 2);
    for (uint64_t round = 1; round <= 20; round++) {
        SCOPED_TRACE(round);
        Traffic traffic(world, round);
        traffic.Post(20);
        for (uint64_t i = 0; i < 4 * round; i++) {
            Verbs()->progress(world.Endpoint((int)(i % 2)), 64);
        }
        LookAtRank0(world, 20);
        fake_verbs_break(-1);
        ASSERT_TRUE(traffic.Finish());
        traffic.ExpectArrived();
    }
}

/* An entry whose chunk had arrived goes again alone, behind chunks of another lane. That lane fails,
 * too. */
TEST_F(VerbsFaults, ALaneThatFailsWithWhatAnotherLeftItLosesNothing)
{
    for (uint64_t round = 1; round <= 16; round++) {
        SCOPED_TRACE(round);
        World world(Verbs(), 2);
        Traffic traffic(world, round);
        Rule([](auto &rules) { rules.late_ms = 120; });
        traffic.Post(15);
        const uint64_t upto = fake_verbs_count().writes + 4 + round % 8;
        ASSERT_TRUE(world.Until([&] { return fake_verbs_count().writes >= upto; }));
        Rule([](auto &rules) { rules.stuck = 2; });
        LookAtRank0(world, 200);
        fake_verbs_break(0);
        /* Soon both know what the other took. */
        const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(125);
        ASSERT_TRUE(world.Until([&] { return std::chrono::steady_clock::now() > soon; }));
        Rule([](auto &rules) { rules.late_ms = rules.stuck = 0; });
        fake_verbs_break(1);
        ASSERT_TRUE(traffic.Finish());
        traffic.ExpectArrived();
    }
}

/* Its peer, once told, writes the same bytes over other lanes: no write of before may come then. */
TEST_F(VerbsFaults, ALaneIsToldToBeDownWhenItsQueuePairIsGone)
{
    World world(Verbs(), 2);
    Exchange(world, 1, 5);
    const int before = fake_verbs_count().qps;
    fake_verbs_break(0);
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < soon) { /* rank 1 does not look */
        Verbs()->progress(world.Endpoint(0), 64);
    }
    EXPECT_EQ(before - 2, fake_verbs_count().qps) << "rank 0's of both lanes of the rail";
}

TEST_F(VerbsFaults, ADeviceThatTellsTwiceOfAWriteLosesItsLaneOnly)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        SCOPED_TRACE(seed);
        Rule([&](auto &rules) {
            rules.seed = seed;
            rules.twice = 10000;
        });
        World world(Verbs(), 2);
        Exchange(world, seed, 40);
    }
    EXPECT_GT(fake_verbs_count().twice, 10u);
}

TEST_F(VerbsFaults, ADeadRailLeavesItsTrafficToTheOthersAndComesBack)
{
    World world(Verbs(), 2);
    Exchange(world, 1, 20);
    fake_verbs_port(0, 0);
    Exchange(world, 2, 40);
    fake_verbs_port(0, 1);
    fake_verbs_port(1, 0);
    Exchange(world, 3, 40); /* on the one that was dead */
    fake_verbs_port(1, 1);
    Exchange(world, 4, 40);
}

/* Use the link, then take both of its rails away. */
void CutOff(World &world)
{
    Exchange(world, 1, 5);
    fake_verbs_port(0, 0);
    fake_verbs_port(1, 0);
}

TEST_F(VerbsFaults, ALinkThatNoRailCarriesEndsWithTheNamesOfRankDeviceAndPort)
{
    World::timeout_ms = 300;
    World world(Verbs(), 2);
    CutOff(world);
    char byte = 1;
    kolo_req send, recv;
    ASSERT_EQ(KOLO_OK, world.Recv(0, 1, 0, Flat(&byte, 1), recv));
    Bytes big(100000);
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(big.data(), big.size()), send));
    ASSERT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(KOLO_ERR_LINK, send.status);
    EXPECT_EQ(KOLO_ERR_LINK, recv.status);
    EXPECT_EQ(KOLO_ERR_LINK, world.Send(0, 1, 0, Flat(&byte, 1), send));
    const std::string text = kolo_error_text();
    EXPECT_NE(std::string::npos, text.find("rank 1")) << text;
    EXPECT_NE(std::string::npos, text.find("fake")) << text;
    EXPECT_NE(std::string::npos, text.find("port 1")) << text;
    EXPECT_NE(std::string::npos, text.find("transport retry counter exceeded")) << text;
}

TEST_F(VerbsFaults, ALinkThatEndsAtOneEndIsNoDeathAtTheOther)
{
    World::timeout_ms = 300;
    World world(Verbs(), 2);
    CutOff(world);
    Bytes big(100000);
    kolo_req send;
    ASSERT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(big.data(), big.size()), send));
    ASSERT_TRUE(world.Finish({&send}));
    kolo_req late[2];
    char byte = 1;
    for (int rank = 0; rank < 2; rank++) { /* each hears what the other has said last */
        const kolo_status st = world.Recv(rank, 1 - rank, 0, Flat(&byte, 1), late[rank]);
        EXPECT_TRUE(st != KOLO_OK || world.Finish({&late[rank]}));
        EXPECT_TRUE(world.At(rank).lost.empty()) << "rank " << rank << ": " << kolo_error_text();
    }
}

TEST_F(VerbsFaults, RailsThatAreApartAreNotMixed)
{
    Rule([](auto &rules) {
        rules.apart = 1;
        rules.devices = 3;
    });
    World world(Verbs(), 2);
    Exchange(world, 1, 60);
    fake_verbs_port(2, 0);
    Exchange(world, 2, 60);
}

TEST_F(VerbsFaults, RailsPairBySubnetWhateverTheirOrder)
{
    Rule([](auto &rules) {
        rules.apart = rules.crossed = 1;
        rules.devices = 3;
    });
    World world(Verbs(), 2);
    Exchange(world, 1, 60);
    fake_verbs_port(1, 0); /* the one of the same number at both ends */
    Exchange(world, 2, 60);
}

TEST_F(VerbsFaults, TheReachTellsWhichMessagesWaitForTheirReceive)
{
    World world(Verbs(), 2);
    kolo_reach reach{};
    ASSERT_EQ(KOLO_OK, Verbs()->probe(world.Endpoint(0), &world.At(1).self, &reach));
    for (const bool waits : {false, true}) {
        Bytes sent(reach.rendezvous_bytes - (waits ? 0 : 1));
        Bytes came(sent.size());
        kolo_req send{}, recv{};
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, 9, Flat(sent.data(), sent.size()), send));
        const int most = waits ? 1000 : 1000000;
        for (int turn = 0; turn < most && send.status == KOLO_INPROGRESS; turn++) {
            Verbs()->progress(world.Endpoint(0), 64);
            Verbs()->progress(world.Endpoint(1), 64);
        }
        EXPECT_EQ(waits ? KOLO_INPROGRESS : KOLO_OK, send.status);
        ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 9, Flat(came.data(), came.size()), recv));
        for (int turn = 0;
             turn < 1000000 && (recv.status == KOLO_INPROGRESS || send.status == KOLO_INPROGRESS);
             turn++) {
            Verbs()->progress(world.Endpoint(0), 64);
            Verbs()->progress(world.Endpoint(1), 64);
        }
        EXPECT_EQ(KOLO_OK, recv.status);
        EXPECT_EQ(KOLO_OK, send.status);
    }
}

TEST_F(VerbsFaults, TheLogsChannelsAreOfAllRailsThatReachAPeer)
{
    World world(Verbs(), 2);
    kolo_reach reach{};
    ASSERT_EQ(KOLO_OK, Verbs()->probe(world.Endpoint(0), &world.At(1).self, &reach));
    ASSERT_EQ(2, reach.nvias);
    EXPECT_STREQ("NET/IB/0", reach.vias[0]);
    EXPECT_STREQ("NET/IB/1", reach.vias[1]);
    EXPECT_STREQ("NET/IB/0", reach.via);
}

/* The descriptor that rank r is told to sleep on, after as many turns as that takes, or -1. */
int SleepsOn(World &world, int r)
{
    for (int turn = 0; turn < 1000; turn++) {
        const int fd = Verbs()->wait_fd(world.Endpoint(r));
        if (fd >= 0) {
            return fd;
        }
        Verbs()->progress(world.Endpoint(r), 64);
    }
    return -1;
}

TEST_F(VerbsFaults, NobodySleepsOnACompletionThatCameBeforeItsQueueWasArmed)
{
    constexpr size_t kMessages = 60, kBytes = 100;
    World world(Verbs(), 2);
    std::vector<Bytes> sent(kMessages), came(kMessages);
    std::vector<kolo_req> sends(kMessages), recvs(kMessages);
    std::vector<kolo_req *> all;
    Exchange(world, 1, 5);
    world.Settle(); /* nothing happens for long: rank 1 is about to sleep */
    for (size_t i = 0; i < kMessages; i++) {
        sent[i] = Pattern(kBytes, (unsigned)i);
        came[i].resize(kBytes);
        ASSERT_EQ(KOLO_OK, world.Send(0, 1, 7, Flat(sent[i].data(), kBytes), sends[i]));
        all.push_back(&sends[i]);
    }
    const auto let_rank_0_see_all = [&] {
        for (int i = 0; i < 1000; i++) {
            Verbs()->progress(world.Endpoint(0), 64);
        }
    };
    let_rank_0_see_all();
    EXPECT_GT(fake_verbs_count().unseen, 40) << "more than a turn looks at";
    pollfd news = {SleepsOn(world, 1), POLLIN, 0};
    ASSERT_GE(news.fd, 0);
    let_rank_0_see_all();
    EXPECT_TRUE(poll(&news, 1, 0) == 1 || fake_verbs_count().unseen == 0)
        << fake_verbs_count().unseen << " completions wake nobody";
    for (size_t i = 0; i < kMessages; i++) {
        ASSERT_EQ(KOLO_OK, world.Recv(1, 0, 7, Flat(came[i].data(), kBytes), recvs[i]));
        all.push_back(&recvs[i]);
    }
    ASSERT_TRUE(world.Finish(all));
    EXPECT_TRUE(sent == came);
}

TEST_F(VerbsFaults, ManyLinksGetALargerCompletionQueue)
{
    World world(Verbs(), 9);
    Exchange(world, 3, 100);
}

/* Send the bytes from rank 0 to rank 1 and say how many registrations there are then. */
int RegistrationsAfter(World &world, void *from, void *to, size_t bytes)
{
    kolo_req send, recv;
    EXPECT_EQ(KOLO_OK, world.Send(0, 1, 0, Flat(from, bytes), send));
    EXPECT_EQ(KOLO_OK, world.Recv(1, 0, 0, Flat(to, bytes), recv));
    EXPECT_TRUE(world.Finish({&send, &recv}));
    EXPECT_EQ(0, std::memcmp(from, to, bytes));
    return fake_verbs_count().mrs;
}

TEST_F(VerbsFaults, MemoryOfTheAllocatorStaysRegisteredUntilItIsFreed)
{
    constexpr size_t kBytes = 1 << 20;
    void *from = nullptr, *to = nullptr;
    Bytes other(kBytes);
    World world(Verbs(), 2);
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc(kBytes, &from));
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc(kBytes, &to));
    std::memset(from, 7, kBytes);
    std::fill(other.begin(), other.end(), 7);
    const int before = RegistrationsAfter(world, other.data(), to, 100); /* of rings alone */
    const int both = RegistrationsAfter(world, from, to, kBytes);
    EXPECT_EQ(before + 2 * 2, both) << "each of two ranks at each of two rails";
    EXPECT_EQ(both, RegistrationsAfter(world, (char *)from + 4096, (char *)to + 8, kBytes / 2));
    EXPECT_EQ(both, RegistrationsAfter(world, other.data(), to, kBytes)) << "and no other memory";
    kolo_mem_free(to);
    kolo_mem_free(from);
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc(kBytes, &from)); /* most likely where the other was */
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc(kBytes, &to));
    std::memset(from, 9, kBytes);
    EXPECT_EQ(both, RegistrationsAfter(world, from, to, kBytes))
        << "those of before are given back";
    kolo_mem_free(to);
    kolo_mem_free(from);
}

TEST_F(VerbsFaults, RegisteredMemoryStaysRegisteredAtTheDevicesUntilItIsNot)
{
    constexpr size_t kBytes = 200000;
    Bytes from = Pattern(kBytes, 1), to(kBytes);
    World world(Verbs(), 2);
    const int before = RegistrationsAfter(world, from.data(), to.data(), 8);
    ASSERT_EQ(KOLO_OK, kolo_mem_register(from.data(), kBytes));
    EXPECT_EQ(before + 2, RegistrationsAfter(world, from.data(), to.data(), kBytes));
    ASSERT_EQ(KOLO_OK, kolo_mem_unregister(from.data()));
    EXPECT_EQ(before, RegistrationsAfter(world, from.data(), to.data(), kBytes));
}

TEST_F(VerbsFaults, TheLeastLatelyUsedRegistrationMakesRoomForANewOne)
{
    constexpr size_t kBytes = 1 << 20;
    setenv("KOLO_IB_PINNED", "2M", 1);
    void *memory[4];
    {
        World world(Verbs(), 2);
        Bytes to(kBytes);
        int before = 0;
        for (void *&at : memory) {
            ASSERT_EQ(KOLO_OK, kolo_mem_alloc(kBytes, &at));
            std::memset(at, 3, kBytes);
        }
        before = RegistrationsAfter(world, memory[0], to.data(), 8);
        for (int i = 0; i < 4; i++) {
            const int more = i < 2 ? i + 1 : 2;
            EXPECT_EQ(before + 2 * more, RegistrationsAfter(world, memory[i], to.data(), kBytes));
        }
    }
    for (void *at : memory) {
        kolo_mem_free(at);
    }
    unsetenv("KOLO_IB_PINNED");
}

/* Faults by chance, several at once. */
void RuleByChance(std::mt19937_64 &chance, fake_verbs_rules &rules)
{
    rules.seed = chance();
    rules.devices = 1 + (int)(chance() % 3);
    rules.apart = (int)(chance() % 2);
    rules.inline_bytes = (uint32_t)(chance() % 3 * 110);
    rules.message_bytes = chance() % 3 == 0 ? 10000 : 1u << 30;
    rules.part = (uint32_t)(chance() % 2 * 200000);
    rules.not_ready = (uint32_t)(chance() % 2 * 100000);
    rules.broken = (uint32_t)(chance() % 3 * 1500);
    rules.lost = (uint32_t)(chance() % 3 * 5000);
    rules.flap = (uint32_t)(chance() % 3 * 500);
    rules.twice = (uint32_t)(chance() % 3 * 500);
}

TEST_F(VerbsFaults, ByChanceNeverGiveWrongBytesAndNeverHang)
{
    constexpr uint64_t kRounds = 10; /* in a world */
    const uint64_t all = std::getenv("KOLO_TEST_WHOLE") != nullptr ? 100000 : 1000;
    fake_verbs_counts seen{};
    for (uint64_t seed = 1; seed <= all / kRounds; seed++) {
        SCOPED_TRACE(seed);
        std::mt19937_64 chance(seed);
        fake_verbs_reset();
        Rule([&](auto &rules) { RuleByChance(chance, rules); });
        {
            World world(Verbs(), 2 + (int)(chance() % 2));
            for (uint64_t round = 0; round < kRounds; round++) {
                Exchange(world, chance(), 1 + (int)(chance() % 20));
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
        const fake_verbs_counts now = fake_verbs_count();
        seen.broken += now.broken;
        seen.lost += now.lost;
        seen.flaps += now.flaps;
        seen.twice += now.twice;
        seen.not_ready += now.not_ready;
    }
    EXPECT_GT(seen.broken, 0u);
    EXPECT_GT(seen.lost, 0u);
    EXPECT_GT(seen.flaps, 0u);
    EXPECT_GT(seen.twice, 0u);
    EXPECT_GT(seen.not_ready, 0u);
}

} // namespace
