// SPDX-License-Identifier: Apache-2.0
// covers: src/boot src/util/net.c src/util/secret.c
/* Ranks meet: all come, too many come, some never come, strangers come, some die. Ranks are threads
 * here but where a process has to die; tests/multirank starts real ones. */
extern "C" {
#include "boot/wire.h"
}

#include <atomic>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* ThreadSanitizer asks for its options here. Children of processes with threads start threads, too. */
extern "C" const char *__tsan_default_options();
extern "C" const char *__tsan_default_options()
{
    return "die_after_fork=0";
}

namespace
{

constexpr int kLongMs = 20000;
constexpr int kShortMs = 150;

/* A name that no other test of this or another process uses. */
kolo_meet FreshMeet(bool with_secret = true)
{
    static std::atomic<int> counter{0};
    kolo_meet meet = {};
    snprintf(meet.name, sizeof meet.name, "test-%d-%d", int(getpid()), counter++);
    if (with_secret) {
        EXPECT_EQ(KOLO_OK, kolo_random(meet.secret, sizeof meet.secret));
    }
    return meet;
}

struct Outcome {
    kolo_status status = KOLO_ERR_INTERNAL;
    std::string text;
};

Outcome Ended(kolo_status status)
{
    return {status, status < 0 ? kolo_error_text() : ""};
}

/* What one rank does; `timeout_ms` and `host` as kolo_boot_open takes them. */
struct Rank {
    int rank, nranks;
    int timeout_ms = kLongMs;
    std::function<kolo_status(kolo_boot *)> then = [](kolo_boot *) { return KOLO_OK; };
    size_t first = 0; /* numbers in a first exchange; 0: there is none */
};

Outcome Join(const kolo_meet &meet, const Rank &rank, bool host)
{
    kolo_boot *boot = nullptr;
    std::vector<int> mine(rank.first, rank.rank), all(rank.first * size_t(rank.nranks), -1);
    const kolo_boot_first first = {mine.data(), mine.size() * sizeof mine[0], all.data()};
    kolo_status status = kolo_boot_open(&meet, rank.nranks, rank.rank, host, rank.timeout_ms,
                                        rank.first > 0 ? &first : nullptr, &boot);
    for (size_t i = 0; status == KOLO_OK && i < all.size(); i++) {
        EXPECT_EQ(int(i / rank.first), all[i]);
    }
    if (status == KOLO_OK) {
        status = rank.then(boot);
    }
    const Outcome outcome = Ended(status);
    kolo_boot_close(boot);
    return outcome;
}

/* All at once, a thread for each; the first of rank 0 hosts. */
std::vector<Outcome> JoinAll(const kolo_meet &meet, const std::vector<Rank> &ranks)
{
    std::vector<Outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); i++) {
        threads.emplace_back([&, i] { outcomes[i] = Join(meet, ranks[i], ranks[i].rank == 0); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return outcomes;
}

std::vector<Rank> Ranks(int nranks, std::function<kolo_status(kolo_boot *, int)> then)
{
    std::vector<Rank> ranks;
    for (int rank = 0; rank < nranks; rank++) {
        ranks.push_back({rank, nranks, kLongMs, [=](kolo_boot *boot) { return then(boot, rank); }});
    }
    return ranks;
}

void ExpectAll(const std::vector<Outcome> &outcomes, kolo_status status, const std::string &text)
{
    for (size_t i = 0; i < outcomes.size(); i++) {
        SCOPED_TRACE("outcome " + std::to_string(i));
        EXPECT_STREQ(kolo_status_name(status), kolo_status_name(outcomes[i].status));
        EXPECT_NE(std::string::npos, outcomes[i].text.find(text)) << outcomes[i].text;
    }
}

/* Three rounds of different sizes, each checked. */
kolo_status ExchangeAndCheck(kolo_boot *boot, int nranks, int rank, size_t count)
{
    for (size_t round = 0; round < 3; round++) {
        std::vector<uint32_t> mine(count * round, uint32_t(1000 * rank + int(round)));
        std::vector<uint32_t> all(mine.size() * size_t(nranks));
        KOLO_TRY(kolo_boot_all_gather(boot, mine.data(), mine.size() * 4, all.data()));
        for (size_t i = 0; i < all.size(); i++) {
            if (all[i] != 1000 * (i / mine.size()) + round) {
                return kolo_fail(KOLO_ERR_INTERNAL, "element %zu is %u", i, all[i]);
            }
        }
    }
    return kolo_boot_barrier(boot);
}

/* A rank made by hand, to do what kolo_boot_open() would not. */
class RawRank
{
  public:
    explicit RawRank(const kolo_meet &meet) : meet_(meet)
    {
        kolo_status status;
        while ((status = kolo_boot_connect(&meet_, 1000, &fd_)) == KOLO_INPROGRESS) {
            std::this_thread::yield();
        }
        EXPECT_EQ(KOLO_OK, status);
    }
    ~RawRank()
    {
        Close();
    }
    RawRank(const RawRank &) = delete;
    RawRank &operator=(const RawRank &) = delete;

    void Close()
    {
        if (fd_ >= 0) {
            close(fd_);
        }
        fd_ = -1;
    }
    void Send(const void *bytes, size_t len)
    {
        EXPECT_EQ(ssize_t(len), send(fd_, bytes, len, MSG_NOSIGNAL));
    }
    void SendFrame(kolo_boot_type type, const void *body, size_t len)
    {
        kolo_boot_header header = kolo_boot_header_make(type, 0, len);
        EXPECT_TRUE(kolo_boot_sum(body, len, header.sum));
        kolo_boot_seal(&guard_, &header);
        Send(&header, sizeof header);
        Send(body, len);
    }
    /* Wait for len bytes; false at the end of the connection. */
    bool Receive(void *out, size_t len)
    {
        const int flags = fcntl(fd_, F_GETFL);
        fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK);
        return len == 0 || recv(fd_, out, len, MSG_WAITALL) == ssize_t(len);
    }
    kolo_boot_type ReceiveFrame(void *out, size_t len)
    {
        kolo_boot_header header = {};
        EXPECT_TRUE(Receive(&header, sizeof header));
        EXPECT_TRUE(kolo_boot_is_sealed(&guard_, &header));
        EXPECT_EQ(len, header.len);
        EXPECT_TRUE(Receive(out, len));
        EXPECT_TRUE(kolo_boot_is_whole(&header, out));
        return kolo_boot_type(header.type);
    }
    /* HELLO to PROVE, with the right secret. */
    void ShakeHands(int nranks, int rank, uint32_t version = KOLO_VERSION)
    {
        kolo_boot_hello hello = {
            version, nranks, rank, kLongMs, kLongMs, kolo_boot_name_hash(&meet_), {}};
        kolo_boot_challenge challenge = {};
        EXPECT_TRUE(kolo_boot_guard_begin(&guard_, &meet_, false));
        SendFrame(KOLO_BOOT_HELLO, &hello, sizeof hello);
        EXPECT_TRUE(kolo_boot_guard_turn(&guard_, &hello, sizeof hello));
        EXPECT_EQ(KOLO_BOOT_CHALLENGE, ReceiveFrame(&challenge, sizeof challenge));
        EXPECT_TRUE(kolo_boot_guard_turn(&guard_, &challenge, sizeof challenge));
        SendFrame(KOLO_BOOT_PROVE, nullptr, 0);
    }
    void ExpectJoined()
    {
        EXPECT_EQ(KOLO_BOOT_JOINED, ReceiveFrame(nullptr, 0));
    }
    /* The memory in which the answer to an exchange lies. */
    int ReceiveMemory(kolo_boot_header *header)
    {
        int shared = -1;
        EXPECT_EQ(ssize_t(sizeof *header), kolo_boot_receive(fd_, header, sizeof *header, &shared));
        EXPECT_TRUE(kolo_boot_is_sealed(&guard_, header));
        return shared;
    }

  private:
    kolo_meet meet_;
    kolo_boot_guard guard_ = {};
    int fd_ = -1;
};

int CountDescriptors()
{
    int count = 0;
    DIR *descriptors = opendir("/proc/self/fd");
    while (readdir(descriptors) != nullptr) {
        count++;
    }
    closedir(descriptors);
    return count;
}

/* ---- all is well ---- */

TEST(Boot, OneToSixteenRanksExchangeInRankOrder)
{
    for (int nranks = 1; nranks <= 16; nranks++) {
        SCOPED_TRACE(nranks);
        ExpectAll(JoinAll(FreshMeet(), Ranks(nranks,
                                             [=](kolo_boot *boot, int rank) {
                                                 return ExchangeAndCheck(boot, nranks, rank, 5);
                                             })),
                  KOLO_OK, "");
    }
}

TEST(Boot, AFirstExchangeComesWithTheRanks)
{
    for (int nranks = 1; nranks <= 9; nranks += 2) {
        SCOPED_TRACE(nranks);
        std::vector<Rank> ranks = Ranks(nranks, [=](kolo_boot *boot, int rank) {
            return ExchangeAndCheck(boot, nranks, rank, 5);
        });
        for (Rank &rank : ranks) {
            rank.first = 7;
        }
        ExpectAll(JoinAll(FreshMeet(), ranks), KOLO_OK, "");
    }
}

TEST(Boot, RanksMeetWithoutASecret)
{
    ExpectAll(JoinAll(FreshMeet(false),
                      Ranks(3, [](kolo_boot *boot,
                                  int rank) { return ExchangeAndCheck(boot, 3, rank, 5); })),
              KOLO_OK, "");
}

TEST(Boot, PayloadsLongerThanASocketBufferArriveWhole)
{
    ExpectAll(JoinAll(FreshMeet(),
                      Ranks(4, [](kolo_boot *boot,
                                  int rank) { return ExchangeAndCheck(boot, 4, rank, 300000); })),
              KOLO_OK, "");
}

TEST(Boot, ALongAnswerIsMemoryThatNobodyCanChange)
{
    constexpr size_t kBytes = 40000;
    const kolo_meet meet = FreshMeet();
    Outcome rank0;
    std::thread first([&] {
        rank0 = Join(meet,
                     {0, 2, kLongMs,
                      [](kolo_boot *boot) {
                          std::vector<char> mine(kBytes, 'a'), all(2 * kBytes);
                          KOLO_TRY(kolo_boot_all_gather(boot, mine.data(), kBytes, all.data()));
                          return all[0] == 'a' && all[kBytes] == 'b' ? KOLO_OK : KOLO_ERR_INTERNAL;
                      }},
                     true);
    });
    RawRank other(meet);
    int32_t host = -1;
    std::vector<char> mine(kBytes, 'b'), all(2 * kBytes);
    kolo_boot_header header = {};
    other.ShakeHands(2, 1);
    other.ExpectJoined();
    EXPECT_EQ(KOLO_BOOT_WELCOME, other.ReceiveFrame(&host, sizeof host));
    other.SendFrame(KOLO_BOOT_GATHER, mine.data(), kBytes);
    int shared = other.ReceiveMemory(&header);
    EXPECT_EQ(2 * kBytes, header.len);
    EXPECT_EQ(-1, pwrite(shared, "c", 1, 0));
    EXPECT_EQ(EPERM, errno);
    int again = dup(shared);
    EXPECT_FALSE(kolo_boot_take_shared(&again, all.data(), 2 * kBytes - 1)) << "another length";
    EXPECT_EQ(-1, again);
    EXPECT_TRUE(kolo_boot_take_shared(&shared, all.data(), 2 * kBytes));
    EXPECT_TRUE(kolo_boot_is_whole(&header, all.data()));
    EXPECT_EQ('a', all[kBytes - 1]);
    EXPECT_EQ('b', all[kBytes]);
    first.join();
    ExpectAll({rank0}, KOLO_OK, "");
}

TEST(Boot, TwoHundredFiftySixRanksExchange)
{
    const double begin_us = kolo_now_us();
    ExpectAll(JoinAll(FreshMeet(),
                      Ranks(256, [](kolo_boot *boot,
                                    int rank) { return ExchangeAndCheck(boot, 256, rank, 32); })),
              KOLO_OK, "");
    const int ms = int((kolo_now_us() - begin_us) / 1e3);
    std::cout << "256 ranks joined, exchanged 4 times and left in " << ms << " ms\n";
    RecordProperty("ms", ms);
}

TEST(Boot, NothingIsLeftBehind)
{
    const int descriptors = CountDescriptors();
    ExpectAll(
        JoinAll(FreshMeet(), Ranks(4, [](kolo_boot *boot,
                                         int rank) { return ExchangeAndCheck(boot, 4, rank, 5); })),
        KOLO_OK, "");
    const double deadline_us = kolo_now_us() + kLongMs * 1e3;
    while (CountDescriptors() > descriptors && kolo_now_us() < deadline_us) {
        std::this_thread::yield(); /* the hub ends on its own when the last rank has left */
    }
    EXPECT_LE(CountDescriptors(), descriptors);
}

TEST(Boot, AnIdJoinsRanksOfWhichNoneHosts)
{
    kolo_id id;
    kolo_meet meet;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    ASSERT_EQ(KOLO_OK, kolo_meet_from_id(&id, &meet));
    std::vector<Outcome> outcomes(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; rank++) {
        threads.emplace_back([&, rank] {
            outcomes[size_t(rank)] =
                Join(meet,
                     {rank, 3, kLongMs,
                      [=](kolo_boot *boot) { return ExchangeAndCheck(boot, 3, rank, 5); }},
                     false);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    ExpectAll(outcomes, KOLO_OK, "");
}

TEST(Boot, TwoIdsDiffer)
{
    kolo_id a;
    kolo_id b;
    kolo_meet meet_a;
    kolo_meet meet_b;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&a));
    ASSERT_EQ(KOLO_OK, kolo_id_create(&b));
    ASSERT_EQ(KOLO_OK, kolo_meet_from_id(&a, &meet_a));
    ASSERT_EQ(KOLO_OK, kolo_meet_from_id(&b, &meet_b));
    EXPECT_STRNE(meet_a.name, meet_b.name);
    EXPECT_NE(0, memcmp(meet_a.secret, meet_b.secret, sizeof meet_a.secret));
    /* Use them up, so that their hubs end. */
    EXPECT_EQ(KOLO_OK, Join(meet_a, {0, 1}, false).status);
    EXPECT_EQ(KOLO_OK, Join(meet_b, {0, 1}, false).status);
}

TEST(Boot, BytesThatAreNoIdAreInvalid)
{
    kolo_id id = {};
    kolo_meet meet;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_meet_from_id(&id, &meet));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_meet_from_id(nullptr, &meet));
    memset(id.bytes, 0xff, sizeof id.bytes);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_meet_from_id(&id, &meet));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_id_create(nullptr));
}

TEST(Boot, AnIdOfAnotherHostWithoutAnAddressIsUnsupported)
{
    kolo_id id;
    kolo_meet meet;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    ASSERT_EQ(KOLO_OK, kolo_meet_from_id(&id, &meet));
    EXPECT_EQ(KOLO_OK, Join(meet, {0, 1}, false).status);
    id.bytes[16] ^= 1;               /* the host */
    id.bytes[76] = id.bytes[77] = 0; /* the family of its address */
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_meet_from_id(&id, &meet));
}

TEST(Boot, AForkedChildIsOnTheSameHostButAnotherProcess)
{
    const uint64_t host = kolo_host_id();
    const uint64_t self = kolo_process_id();
    EXPECT_EQ(self, kolo_process_id());
    const pid_t child = fork();
    if (child == 0) {
        _exit(host == kolo_host_id() && self != kolo_process_id() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

/* ---- bad requests ---- */

TEST(Boot, ImpossibleArgumentsAreInvalidAndNamed)
{
    const kolo_meet meet = FreshMeet();
    kolo_boot *boot = nullptr;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_boot_open(&meet, 0, 0, true, 100, nullptr, &boot));
    EXPECT_STREQ("nranks is 0; it must be 1 to 65536", kolo_error_text());
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_boot_open(&meet, 2, 2, true, 100, nullptr, &boot));
    EXPECT_STREQ("rank is 2; it must be 0 to 1", kolo_error_text());
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_boot_open(&meet, 2, 0, true, 0, nullptr, &boot));
    EXPECT_STREQ("timeout_ms is 0; it must be positive", kolo_error_text());
    EXPECT_EQ(nullptr, boot);
}

TEST(Boot, EveryoneIsToldThatARankJoinedTwice)
{
    ExpectAll(JoinAll(FreshMeet(), {{0, 4}, {2, 4}, {2, 4}}), KOLO_ERR_INVALID,
              "rank 2 joined twice");
}

TEST(Boot, TwoRanksZeroOfWhichOneHostsAreToldSo)
{
    ExpectAll(JoinAll(FreshMeet(), {{0, 3}, {0, 3}}), KOLO_ERR_INVALID, "rank 0 joined twice");
}

TEST(Boot, ARankThatComesAfterTheFailureIsToldTheSame)
{
    const kolo_meet meet = FreshMeet();
    ExpectAll(JoinAll(meet, {{0, 3}, {0, 3}}), KOLO_ERR_INVALID, "rank 0 joined twice");
    ExpectAll({Join(meet, {1, 3}, false)}, KOLO_ERR_INVALID, "rank 0 joined twice");
}

TEST(Boot, ACompleteJobDoesNotNoticeASecondRankTwo)
{
    const kolo_meet meet = FreshMeet();
    Outcome second;
    ExpectAll(JoinAll(meet, Ranks(3,
                                  [&](kolo_boot *boot, int rank) {
                                      if (rank == 0) {
                                          second = Join(meet, {2, 3}, false);
                                      }
                                      return ExchangeAndCheck(boot, 3, rank, 5);
                                  })),
              KOLO_OK, "");
    ExpectAll({second}, KOLO_ERR_INVALID, "rank 2 joined twice");
}

TEST(Boot, EveryoneIsToldWhoSaysAnotherNumberOfRanks)
{
    const std::vector<Outcome> outcomes = JoinAll(FreshMeet(), {{0, 3}, {1, 4}});
    ExpectAll(outcomes, KOLO_ERR_INVALID, " ranks, rank ");
    EXPECT_TRUE(outcomes[0].text == "rank 1 says 4 ranks, rank 0 said 3" ||
                outcomes[0].text == "rank 0 says 3 ranks, rank 1 said 4")
        << outcomes[0].text;
}

TEST(Boot, EveryoneIsToldWhoUsesAnotherVersion)
{
    const kolo_meet meet = FreshMeet();
    Outcome outcome;
    std::thread rank0([&] { outcome = Join(meet, {0, 2}, true); });
    RawRank other(meet);
    kolo_boot_error error = {};
    other.ShakeHands(2, 1, KOLO_VERSION + 1);
    EXPECT_EQ(KOLO_BOOT_ERROR, other.ReceiveFrame(&error, sizeof error));
    EXPECT_EQ(KOLO_ERR_VERSION, error.status);
    rank0.join(); /* told at once, or on coming if the other was first */
    ExpectAll({outcome}, KOLO_ERR_VERSION, "rank 1 uses kolo version 101");
}

/* ---- some do not come ---- */

TEST(Boot, ATimeoutNamesTheRanksThatHaveNotCome)
{
    ExpectAll(JoinAll(FreshMeet(), {{0, 6, kShortMs}, {4, 6, kShortMs}}), KOLO_ERR_TIMEOUT,
              "ranks 1-3, 5 of 6 had not joined");
}

TEST(Boot, WithoutAHubTheTimeoutSaysSo)
{
    ExpectAll({Join(FreshMeet(), {1, 2, kShortMs}, false)}, KOLO_ERR_TIMEOUT, "nobody answered");
}

TEST(Boot, TheTimeoutOfARankOnAnotherHostNamesTheAddress)
{
    kolo_meet meet = FreshMeet();
    ASSERT_EQ(KOLO_OK, kolo_inet_find("127.0.0.1", 1, &meet.place)); /* nothing listens there */
    ExpectAll({Join(meet, {1, 2, kShortMs}, false)}, KOLO_ERR_TIMEOUT, "(127.0.0.1<1>) in 150 ms");
}

TEST(Boot, ARankWithAnotherSecretIsRefusedAndDoesNotDisturb)
{
    const kolo_meet meet = FreshMeet();
    kolo_meet wrong = meet;
    wrong.secret[31] ^= 1;
    Outcome refused;
    std::vector<Rank> ranks =
        Ranks(2, [](kolo_boot *boot, int rank) { return ExchangeAndCheck(boot, 2, rank, 5); });
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, ranks[0], true); });
    refused = Join(wrong, {1, 2}, false);
    const Outcome rank1 = Join(meet, ranks[1], false);
    first.join();
    ExpectAll({refused}, KOLO_ERR_INVALID, "do not have the same secret");
    ExpectAll({rank0, rank1}, KOLO_OK, "");
}

TEST(Boot, ATimeoutTellsOfConnectionsWithAnotherSecret)
{
    const kolo_meet meet = FreshMeet();
    kolo_meet wrong = meet;
    memset(wrong.secret, 0, sizeof wrong.secret);
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, {0, 2, kShortMs}, true); });
    ExpectAll({Join(wrong, {1, 2, kShortMs}, false)}, KOLO_ERR_INVALID, "same secret");
    first.join();
    ExpectAll({rank0}, KOLO_ERR_TIMEOUT, "did not prove the secret, the last as rank 1");
}

TEST(Boot, AnExchangeThatARankSkipsTimesOutNamingIt)
{
    std::atomic<bool> over{false};
    const std::vector<Outcome> outcomes = JoinAll(
        FreshMeet(), {{0, 3, kShortMs,
                       [&](kolo_boot *boot) {
                           const kolo_status status = kolo_boot_barrier(boot);
                           over = true;
                           return status;
                       }},
                      {1, 3, kLongMs, [](kolo_boot *boot) { return kolo_boot_barrier(boot); }},
                      {2, 3, kLongMs, [&](kolo_boot *) {
                           while (!over) {
                               std::this_thread::yield();
                           }
                           return KOLO_OK;
                       }}});
    ExpectAll({outcomes[0], outcomes[1]}, KOLO_ERR_TIMEOUT, "rank 2 had not come");
}

TEST(Boot, ARankWithoutItsPartOfTheFirstExchangeIsNamed)
{
    const auto then = [](kolo_boot *) { return KOLO_OK; };
    for (const bool joins : {false, true}) {
        const kolo_meet meet = FreshMeet();
        Outcome rank0;
        std::thread first([&] { rank0 = Join(meet, {0, 2, kShortMs, then, 4}, true); });
        std::unique_ptr<RawRank> silent;
        if (joins) {
            silent = std::make_unique<RawRank>(meet);
            silent->ShakeHands(2, 1);
        }
        first.join();
        ExpectAll({rank0}, KOLO_ERR_TIMEOUT, joins ? "rank 1 had not come" : "rank 1 of 2 had not");
    }
}

/* ---- strangers ---- */

TEST(Boot, GarbageDoesNotDisturb)
{
    const kolo_meet meet = FreshMeet();
    std::vector<Rank> ranks =
        Ranks(2, [](kolo_boot *boot, int rank) { return ExchangeAndCheck(boot, 2, rank, 5); });
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, ranks[0], true); });
    RawRank http(meet);
    RawRank half(meet);
    RawRank huge(meet);
    RawRank early(meet);
    RawRank silent(meet);
    kolo_boot_header header = kolo_boot_header_make(KOLO_BOOT_HELLO, 0, 0xffffffff);
    char end = 0;
    http.Send("GET / HTTP/1.1\r\nHost: kolo\r\n\r\n", 31);
    EXPECT_FALSE(http.Receive(&end, 1));
    huge.Send(&header, sizeof header);
    EXPECT_FALSE(huge.Receive(&end, 1));
    header = kolo_boot_header_make(KOLO_BOOT_GATHER, 0, 8);
    early.Send(&header, sizeof header);
    EXPECT_FALSE(early.Receive(&end, 1));
    half.Send(&header, 5);
    half.Close();
    const Outcome rank1 = Join(meet, ranks[1], false);
    first.join();
    ExpectAll({rank0, rank1}, KOLO_OK, "");
}

TEST(Boot, AThousandIdleConnectionsDoNotDelay)
{
    const kolo_meet meet = FreshMeet();
    std::vector<Rank> ranks =
        Ranks(2, [](kolo_boot *boot, int rank) { return ExchangeAndCheck(boot, 2, rank, 5); });
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, ranks[0], true); });
    std::vector<std::unique_ptr<RawRank>> idle;
    for (int i = 0; i < 1000; i++) {
        idle.push_back(std::make_unique<RawRank>(meet));
    }
    const double begin_us = kolo_now_us();
    const Outcome rank1 = Join(meet, ranks[1], false);
    first.join();
    ExpectAll({rank0, rank1}, KOLO_OK, "");
    EXPECT_LT(kolo_now_us() - begin_us, 4e6); /* well before they are 5 s old */
}

TEST(Boot, AnotherUsersConnectionIsTurnedAway)
{
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs root to become another user";
    }
    const kolo_meet meet = FreshMeet();
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, {0, 2}, true); });
    RawRank probe(meet); /* the hub listens from here on */
    const pid_t child = fork();
    if (child == 0) {
        kolo_meet same = meet;
        int fd = -1;
        /* The real user id makes the address, the effective one is what the hub sees. */
        const int raw = socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_storage address = {};
        char peer = 0;
        socklen_t len = sizeof address;
        if (kolo_boot_connect(&same, 1000, &fd) != KOLO_OK ||
            getpeername(fd, reinterpret_cast<sockaddr *>(&address), &len) != 0 ||
            seteuid(65534) != 0 || connect(raw, reinterpret_cast<sockaddr *>(&address), len) != 0) {
            _exit(2);
        }
        _exit(recv(raw, &peer, 1, 0) <= 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    EXPECT_EQ(KOLO_OK, Join(meet, {1, 2}, false).status);
    first.join();
    EXPECT_EQ(KOLO_OK, rank0.status);
}

/* ---- death ---- */

TEST(Boot, EveryoneIsToldWhoDiedBeforeAllHadJoined)
{
    const kolo_meet meet = FreshMeet();
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, {0, 3}, true); });
    RawRank dying(meet);
    dying.ShakeHands(3, 2);
    dying.ExpectJoined();
    dying.Close();
    first.join();
    ExpectAll({rank0}, KOLO_ERR_PEER, "rank 2 died before all 3 ranks had joined");
}

TEST(Boot, WhoDiesWithItsPartOfTheFirstExchangeGivenIsNamed)
{
    const kolo_meet meet = FreshMeet();
    const int part[4] = {};
    Outcome rank0;
    std::thread first([&] {
        rank0 = Join(meet, {0, 3, kLongMs, [](kolo_boot *) { return KOLO_OK; }, 4}, true);
    });
    RawRank dying(meet);
    dying.ShakeHands(3, 1);
    dying.ExpectJoined();
    dying.SendFrame(KOLO_BOOT_GATHER, part, sizeof part);
    dying.Close();
    first.join();
    ExpectAll({rank0}, KOLO_ERR_PEER, "rank 1 died before all 3 ranks had joined");
}

TEST(Boot, EveryoneIsToldWhoDiedDuringAnExchange)
{
    const kolo_meet meet = FreshMeet();
    Outcome rank0;
    std::thread first([&] {
        rank0 = Join(meet, {0, 2, kLongMs, [](kolo_boot *boot) { return kolo_boot_barrier(boot); }},
                     true);
    });
    RawRank dying(meet);
    int32_t host = -1;
    const kolo_boot_header header = kolo_boot_header_make(KOLO_BOOT_GATHER, 0, 8);
    dying.ShakeHands(2, 1);
    dying.ExpectJoined();
    EXPECT_EQ(KOLO_BOOT_WELCOME, dying.ReceiveFrame(&host, sizeof host));
    EXPECT_EQ(0, host);
    dying.Send(&header, sizeof header - 1); /* in the midst of a header */
    dying.Close();
    first.join();
    ExpectAll({rank0}, KOLO_ERR_PEER, "rank 1 ");
}

TEST(Boot, AnExchangeWithARankThatLeftFailsNamingIt)
{
    const std::vector<Outcome> outcomes =
        JoinAll(FreshMeet(), Ranks(3, [](kolo_boot *boot, int rank) {
                    return rank == 1 ? KOLO_OK : kolo_boot_barrier(boot);
                }));
    ExpectAll({outcomes[0], outcomes[2]}, KOLO_ERR_PEER, "rank 1 ");
}

TEST(Boot, DifferentSizesAreAMismatchOnEveryRank)
{
    const std::vector<Outcome> outcomes =
        JoinAll(FreshMeet(), Ranks(2, [](kolo_boot *boot, int rank) {
                    char mine[16] = {};
                    char all[32];
                    return kolo_boot_all_gather(boot, mine, rank == 0 ? 8 : 16, all);
                }));
    ExpectAll(outcomes, KOLO_ERR_MISMATCH, "exchange 0: rank ");
}

TEST(Boot, ARankThatSendsGarbageAfterJoiningIsNamed)
{
    const kolo_meet meet = FreshMeet();
    Outcome rank0;
    std::thread first([&] { rank0 = Join(meet, {0, 3}, true); });
    RawRank broken(meet);
    broken.ShakeHands(3, 1);
    broken.ExpectJoined();
    broken.Send("sixteen bytes of", 16);
    first.join();
    ExpectAll({rank0}, KOLO_ERR_LINK, "rank 1 sent an invalid message");
}

/* ---- a bit changes on the way ---- */

/* The bit to change among those that one end receives in a session; -1: none. */
struct Flip {
    std::atomic<int> hub_bit{-1}, rank_bit{-1};
    std::atomic<int> hub_bits{0}, rank_bits{0}; /* received so far */
};
Flip flip;
thread_local bool is_rank = false;

void Change(unsigned char *bytes, size_t len)
{
    const int first = (is_rank ? flip.rank_bits : flip.hub_bits).fetch_add(int(len) * 8);
    const int at = (is_rank ? flip.rank_bit : flip.hub_bit) - first;
    if (at >= 0 && at < int(len) * 8) {
        bytes[at / 8] ^= static_cast<unsigned char>(1 << at % 8);
    }
}

/* The outcome of a session of a single rank with a hub: OK and its own bytes, or an error. */
Outcome RunSession()
{
    kolo_meet meet = FreshMeet();
    kolo_boot *boot = nullptr;
    uint64_t mine = 0x123456789abcdef0, all = 0, spread = 0xfedcba9876543210;
    is_rank = true;
    kolo_status status = kolo_boot_serve(&meet, false);
    status = status == KOLO_OK ? kolo_boot_open(&meet, 1, 0, false, 1000, nullptr, &boot) : status;
    status = status == KOLO_OK ? kolo_boot_all_gather(boot, &mine, sizeof mine, &all) : status;
    status = status == KOLO_OK ? kolo_boot_spread(boot, &spread, sizeof spread) : status;
    status = status == KOLO_OK ? kolo_boot_barrier(boot) : status;
    if (status == KOLO_OK && (all != mine || spread != 0xfedcba9876543210)) {
        status = kolo_fail(KOLO_ERR_INTERNAL, "wrong bytes came, and nobody noticed");
    }
    const Outcome outcome = Ended(status);
    kolo_boot_close(boot);
    is_rank = false;
    return outcome;
}

/* A session with each bit of one direction changed in turn. Returns the number of bits. */
int FlipEach(std::atomic<int> &bit, std::atomic<int> &bits)
{
    const int step = getenv("KOLO_TEST_SHORT") != nullptr ? 17 : 1;
    flip.hub_bits = flip.rank_bits = 0;
    EXPECT_EQ(KOLO_OK, RunSession().status);
    const int count = bits;
    for (int i = 0; i < count && !testing::Test::HasFailure(); i += step) {
        flip.hub_bits = flip.rank_bits = 0;
        bit = i;
        const Outcome outcome = RunSession();
        EXPECT_TRUE(outcome.status == KOLO_OK || outcome.status == KOLO_ERR_LINK ||
                    outcome.status == KOLO_ERR_INVALID || outcome.status == KOLO_ERR_PEER)
            << "bit " << i % 8 << " of byte " << i / 8 << ": " << kolo_status_name(outcome.status)
            << ": " << outcome.text;
    }
    bit = -1;
    return count;
}

TEST(Boot, NoBitThatChangesOnItsWayToTheHubGoesUnnoticed)
{
    EXPECT_GT(FlipEach(flip.hub_bit, flip.hub_bits), 2000);
}

TEST(Boot, NoBitThatChangesOnItsWayToARankGoesUnnoticed)
{
    EXPECT_GT(FlipEach(flip.rank_bit, flip.rank_bits), 2000);
}

/* A process that runs the hub as rank 0 of 2, and has that signal once both have joined. */
pid_t HostUntil(int signal, const kolo_meet &meet)
{
    const pid_t child = fork();
    if (child == 0) {
        kolo_boot *boot = nullptr;
        if (kolo_boot_open(&meet, 2, 0, true, kLongMs, nullptr, &boot) == KOLO_OK) {
            raise(signal);
        }
        _exit(1);
    }
    return child;
}

TEST(Boot, TheDeathOfTheHostingProcessIsToldAtOnce)
{
    const kolo_meet meet = FreshMeet();
    const pid_t child = HostUntil(SIGKILL, meet);
    const double begin_us = kolo_now_us();
    const Outcome rank1 = Join(meet, {1, 2, kLongMs, kolo_boot_barrier}, false);
    int status = -1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFSIGNALED(status));
    ExpectAll({rank1}, KOLO_ERR_PEER, "rank 0 died");
    EXPECT_LT(kolo_now_us() - begin_us, kLongMs * 1e3 / 2);
}

TEST(Boot, ATimeoutNamesTheRankWhoseStoppedProcessRunsTheHub)
{
    const kolo_meet meet = FreshMeet();
    const pid_t child = HostUntil(SIGSTOP, meet);
    const Outcome rank1 = Join(meet, {1, 2, 10 * kShortMs, kolo_boot_barrier}, false);
    kill(child, SIGKILL);
    EXPECT_EQ(child, waitpid(child, nullptr, 0));
    ExpectAll({rank1}, KOLO_ERR_TIMEOUT, "rank 0 runs it, and is stopped");
}

TEST(Boot, AHostThatLeavesFirstStillDeliversToTheOthers)
{
    const kolo_meet meet = FreshMeet();
    constexpr size_t kCount = 500000; /* more than the sockets hold */
    const pid_t child = fork();
    const int rank = child == 0 ? 0 : 1;
    const Outcome outcome =
        Join(meet,
             {rank, 2, kLongMs,
              [=](kolo_boot *boot) {
                  std::vector<uint32_t> mine(kCount, uint32_t(rank));
                  std::vector<uint32_t> all(2 * kCount);
                  KOLO_TRY(kolo_boot_all_gather(boot, mine.data(), kCount * 4, all.data()));
                  return all[0] == 0 && all[2 * kCount - 1] == 1 ? KOLO_OK : KOLO_ERR_INTERNAL;
              }},
             rank == 0);
    if (child == 0) {
        _exit(outcome.status == KOLO_OK ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
    ExpectAll({outcome}, KOLO_OK, "");
}

} // namespace

/* The library's calls come here first. */
extern "C" ssize_t recv(int fd, void *out, size_t len, int flags)
{
    static const auto real =
        reinterpret_cast<ssize_t (*)(int, void *, size_t, int)>(dlsym(RTLD_NEXT, "recv"));
    const ssize_t n = real(fd, out, len, flags);
    if (n > 0) {
        Change(static_cast<unsigned char *>(out), size_t(n));
    }
    return n;
}

extern "C" ssize_t recvmsg(int fd, msghdr *message, int flags)
{
    static const auto real =
        reinterpret_cast<ssize_t (*)(int, msghdr *, int)>(dlsym(RTLD_NEXT, "recvmsg"));
    const ssize_t n = real(fd, message, flags);
    if (n > 0 && message->msg_iovlen == 1) {
        Change(static_cast<unsigned char *>(message->msg_iov->iov_base), size_t(n));
    }
    return n;
}
