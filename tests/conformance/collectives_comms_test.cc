// SPDX-License-Identifier: Apache-2.0
// covers: src/core src/core/call src/core/setup src/core/failure src/core/link
/* Several communicators, streams, groups, and ends that are not happy: split, shrink, abort,
 * deadlines, forks, and what is left behind. */
#include "collectives_team.h"

#include <atomic>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace collectives
{

static int Sum(kolo_comm *comm, int mine)
{
    int all = 0;
    const kolo_status st = kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_SUM, comm, nullptr);
    return st == KOLO_OK ? all : -1000 + st;
}

/* After a first call the ranks have reached each other: an abort is heard by all of them. */
static void Meet(Team &team)
{
    Report report;
    team.Run([&](kolo_comm *comm, int) {
        report.Add(Sum(comm, 1) == kolo_comm_size(comm) ? "" : "wrong sum");
    });
    ASSERT_EQ("", report.Text());
}

/* ---- parts ---- */

TEST(Split, GivesRowsAndColumnsThatWorkAtTheSameTime)
{
    Team team(6); /* two rows of three */
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_comm *row = nullptr, *column = nullptr;
        if (kolo_comm_split(comm, rank / 3, rank, nullptr, &row) != KOLO_OK ||
            kolo_comm_split(comm, rank % 3, rank, nullptr, &column) != KOLO_OK) {
            report.Add(kolo_error_text());
            return;
        }
        if (kolo_comm_size(row) != 3 || kolo_comm_rank(row) != rank % 3 ||
            kolo_comm_size(column) != 2 || kolo_comm_rank(column) != rank / 3) {
            report.Add("wrong rank or size");
        }
        std::thread other([&] { /* both at once, from two threads */
                                Player player(column, Memory::kPrivate);
                                for (size_t i = 0; i < 50; i++) {
                                    report.Add(player.Play(
                                        {Coll::kAllReduce, KOLO_INT32, KOLO_SUM, 0, 1 + 97 * i}));
                                }
        });
        Player player(row, Memory::kPrivate);
        for (size_t i = 0; i < 50; i++) {
            report.Add(player.Play({Coll::kAllGather, KOLO_INT64, kMove, 0, 1 + 61 * i}));
        }
        other.join();
        kolo_comm_destroy(row);
        kolo_comm_destroy(column);
    });
    EXPECT_EQ("", report.Text());
}

TEST(Split, LeavesOutWhoHasNoColorAndOrdersByKey)
{
    Team team(5);
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_comm *part = nullptr;
        const int color = rank == 1 ? KOLO_NO_COLOR : 7;
        if (kolo_comm_split(comm, color, -rank, nullptr, &part) != KOLO_OK) {
            report.Add(kolo_error_text());
        } else if (rank == 1) {
            report.Add(part == nullptr ? "" : "no color, but a communicator");
        } else {
            const int place = rank == 0 ? 3 : 4 - rank; /* reversed, without rank 1 */
            report.Add(kolo_comm_rank(part) == place ? "" : "the order of keys is not kept");
            report.Add(Sum(part, 10 + rank) == 40 + 9 ? "" : "wrong sum");
        }
        kolo_comm_destroy(part);
        report.Add(Sum(comm, 1) == 5 ? "" : "the parent does not work any more");
    });
    EXPECT_EQ("", report.Text());
}

TEST(Split, OrdersEqualKeysByRankAndTakesAConfigOfItsOwn)
{
    Team team(4);
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_comm *part = nullptr;
        kolo_config config = KOLO_CONFIG_INIT;
        config.algo = "allreduce:ring";
        config.timeout_ms = 20000;
        if (kolo_comm_split(comm, 0, 3, &config, &part) != KOLO_OK) {
            report.Add(kolo_error_text());
            return;
        }
        report.Add(kolo_comm_rank(part) == rank ? "" : "equal keys are not ordered by rank");
        report.Add(Sum(part, rank) == 6 ? "" : "wrong sum");
        kolo_comm_destroy(part);
    });
    EXPECT_EQ("", report.Text());
}

TEST(CreateGroup, IsCalledByTheMembersOnlyWhichAreNumberedAsListed)
{
    Team team(4);
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        const int members[] = {3, 0, 2};
        const int place[] = {1, -1, 2, 0};
        if (rank == 1) {
            return; /* makes no call */
        }
        for (const char *tag : {"first", "second"}) {
            kolo_comm *made = nullptr;
            if (kolo_comm_create_group(comm, members, 3, tag, nullptr, &made) != KOLO_OK) {
                report.Add(kolo_error_text());
                return;
            }
            report.Add(kolo_comm_rank(made) == place[rank] ? "" : "wrong rank");
            report.Add(Sum(made, 10 + rank) == 30 + 5 ? "" : "wrong sum");
            kolo_comm_destroy(made);
        }
    });
    EXPECT_EQ("", report.Text());
}

TEST(CreateGroup, MakesOverlappingGroupsAtOnceInAnyOrder)
{
    Team team(3);
    Report report;
    const int members[3][2] = {{0, 1}, {1, 2}, {2, 0}};
    team.Run([&](kolo_comm *comm, int rank) {
        const auto join = [&](int group) {
            kolo_comm *made = nullptr;
            if (kolo_comm_create_group(comm, members[group], 2, "", nullptr, &made) != KOLO_OK) {
                report.Add(kolo_error_text());
                return;
            }
            report.Add(Sum(made, 1) == 2 ? "" : "wrong sum");
            kolo_comm_destroy(made);
        };
        std::thread other(join, rank); /* each rank is first in one group, second in another */
        join((rank + 2) % 3);
        other.join();
    });
    EXPECT_EQ("", report.Text());
}

TEST(CreateGroup, RefusesListsThatAreNone)
{
    Team team(2);
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_comm *made = nullptr;
        const int twice[] = {rank, rank}, strange[] = {rank, 2}, without[] = {1 - rank};
        const auto refused = [&](const int *members, int n, const char *tag, const char *word) {
            const kolo_status st = kolo_comm_create_group(comm, members, n, tag, nullptr, &made);
            report.Add(st == KOLO_ERR_INVALID && strstr(kolo_error_text(), word) != nullptr ? ""
                                                                                            : word);
        };
        refused(twice, 2, "", "each once");
        refused(strange, 2, "", "members[1] is 2");
        refused(without, 1, "", "which calls");
        refused(twice, 3, "", "nranks is 3");
        refused(nullptr, 1, "", "members is NULL");
        refused(twice, 1, nullptr, "tag is NULL");
        report.Add(Sum(comm, 1) == 2 ? "" : "the parent does not work any more");
    });
    EXPECT_EQ("", report.Text());
}

TEST(Shrink, IsCalledByTheSurvivorsOnlyEvenAfterAnError)
{
    Team team(4, "", 0, 3000);
    Report report;
    std::atomic<int> done{0};
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_comm *rest = nullptr;
        const int gone[] = {3, 1};
        report.Add(Sum(comm, 1) == 4 ? "" : "wrong sum");
        for (done++; done < 4;) { /* an abort ends calls that others are still in */
            std::this_thread::yield();
        }
        if (rank == 1 || rank == 3) {
            kolo_comm_abort(comm);
            return;
        }
        report.Add(Sum(comm, 1) < 0 ? "" : "a call succeeded without two ranks");
        if (kolo_comm_shrink(comm, gone, 2, nullptr, &rest) != KOLO_OK) {
            report.Add(kolo_error_text());
            return;
        }
        report.Add(kolo_comm_rank(rest) == rank / 2 && kolo_comm_size(rest) == 2
                       ? ""
                       : "wrong rank or size");
        report.Add(Sum(rest, rank) == 2 ? "" : "wrong sum");
        kolo_comm_destroy(rest);
    });
    EXPECT_EQ("", report.Text());
}

/* ---- ends ---- */

TEST(Abort, FromAnotherThreadEndsAWaitingCall)
{
    Team team(2);
    Meet(team);
    std::atomic<bool> started{false};
    kolo_status st = KOLO_OK;
    std::string text;
    std::thread waiter([&] {
        int x = 1;
        started = true;
        st = kolo_all_reduce(&x, &x, 1, KOLO_INT32, KOLO_SUM, team.comm(0), nullptr);
        text = kolo_error_text();
    });
    while (!started) {
        std::this_thread::yield();
    }
    kolo_comm_abort(team.comm(0));
    waiter.join();
    EXPECT_EQ(KOLO_ERR_ABORTED, st);
    EXPECT_NE(std::string::npos, text.find("abort")) << text;
    EXPECT_EQ(KOLO_ERR_ABORTED, kolo_comm_error(team.comm(0)));
    int x = 1; /* it stays ended, and the other rank hears of it */
    EXPECT_EQ(KOLO_ERR_ABORTED,
              kolo_all_reduce(&x, &x, 1, KOLO_INT32, KOLO_SUM, team.comm(0), nullptr));
    kolo_status heard = kolo_all_reduce(&x, &x, 1, KOLO_INT32, KOLO_SUM, team.comm(1), nullptr);
    if (heard == KOLO_OK) { /* what the other had sent before may be enough for one call */
        heard = kolo_all_reduce(&x, &x, 1, KOLO_INT32, KOLO_SUM, team.comm(1), nullptr);
    }
    EXPECT_EQ(KOLO_ERR_ABORTED, heard);
    EXPECT_STRNE("", kolo_error_text());
}

TEST(Timeout, NamesWhoWaitsForWhomToAll)
{
    for (const size_t count : {size_t{1}, size_t{100000}}) {
        Team team(3, "", 0, 200);
        Report report;
        team.Run([&](kolo_comm *comm, int rank) {
            std::vector<float> x(count, 1.0f), y(count);
            if (rank == 2) {
                return; /* it never calls */
            }
            const kolo_status st =
                kolo_all_reduce(x.data(), y.data(), count, KOLO_FLOAT32, KOLO_SUM, comm, nullptr);
            const std::string text = kolo_error_text();
            kolo_failure failure = {};
            failure.size = sizeof failure;
            const bool saw = text.find("waited 200 ms in call 1, allreduce") != std::string::npos;
            if (st != KOLO_ERR_TIMEOUT || text.find("rank 2 (pid ") == std::string::npos ||
                (!saw && text.find("ended this communicator") == std::string::npos)) {
                report.Add(std::string(kolo_status_name(st)) + ": " + text);
            }
            if (kolo_comm_failure(comm, &failure) != KOLO_OK || failure.status != st ||
                failure.rank != 2 || failure.seen_by < 0 || failure.seen_by > 1 ||
                failure.call != 1 || failure.text != text) {
                report.Add("the failure is told otherwise: " + std::string(failure.text));
            }
        });
        EXPECT_EQ("", report.Text());
        for (int rank = 0; rank < 2; rank++) { /* the third may have no connection yet */
            EXPECT_EQ(KOLO_ERR_TIMEOUT, kolo_comm_error(team.comm(rank)));
        }
    }
}

TEST(Fork, GivesTheChildAnErrorAndLeavesTheParentWhole)
{
    Team team(2);
    Report report;
    team.Run([&](kolo_comm *comm, int) { report.Add(Sum(comm, 2) == 4 ? "" : "wrong sum"); });
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        int x = 1;
        const kolo_status st =
            kolo_all_reduce(&x, &x, 1, KOLO_INT32, KOLO_SUM, team.comm(0), nullptr);
        const kolo_status shrunk = kolo_comm_shrink(team.comm(0), nullptr, 0, nullptr, nullptr);
        kolo_comm_abort(team.comm(0));
        kolo_comm_destroy(team.comm(0));
        _exit(st == KOLO_ERR_FORKED && shrunk < 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    team.Run([&](kolo_comm *comm, int) { report.Add(Sum(comm, 3) == 6 ? "" : "wrong sum"); });
    EXPECT_EQ("", report.Text());
}

TEST(Destroy, TakesNull)
{
    kolo_comm_destroy(nullptr);
    kolo_comm_abort(nullptr);
    kolo_stream_destroy(nullptr);
    kolo_mem_free(nullptr);
    kolo_op_destroy(KOLO_SUM, nullptr);
    EXPECT_EQ(-1, kolo_comm_rank(nullptr));
    EXPECT_EQ(-1, kolo_comm_size(nullptr));
}

/* Rank 0 is through long before the others begin to receive. */
TEST(Destroy, RightAfterABroadcastWaitsForSlowReceivers)
{
    for (const size_t count : {size_t{4}, size_t{3000}, size_t{500000}}) {
        Team team(3);
        Report report;
        std::atomic<bool> sent{false};
        team.Run([&](kolo_comm *comm, int rank) {
            Player player(comm, Memory::kPrivate);
            for (int i = 0; rank != 0 && i < 2000 && !sent; i++) {
                std::this_thread::yield(); /* large ones cannot be sent before we take them */
            }
            report.Add(player.Play({Coll::kBroadcast, KOLO_INT32, kMove, 0, count}));
            sent = true;
            kolo_comm_destroy(comm);
            team.Forget(rank);
        });
        EXPECT_EQ("", report.Text()) << count;
    }
}

static size_t CountIn(const char *folder)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    while (dir != nullptr && readdir(dir) != nullptr) {
        count++;
    }
    closedir(dir);
    return count;
}

static size_t CountSharedMappings()
{
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("memfd:") != std::string::npos;
    }
    return count;
}

static void UseOnce()
{
    Team team(3);
    Report report;
    team.Run([&](kolo_comm *comm, int rank) {
        kolo_stream stream = nullptr;
        kolo_comm *part = nullptr;
        Player player(comm, rank == 0 ? Memory::kShared : Memory::kPrivate);
        report.Add(player.Play({Coll::kAllReduce, KOLO_FLOAT32, KOLO_SUM, 0, 5000}));
        report.Add(kolo_comm_split(comm, rank % 2, 0, nullptr, &part) == KOLO_OK ? "" : "no part");
        report.Add(kolo_stream_create(&stream) == KOLO_OK ? "" : "no stream");
        report.Add(player.Begin({Coll::kAllToAll, KOLO_INT8, kMove, 0, 500}, stream));
        report.Add(kolo_stream_sync(stream) == KOLO_OK ? player.Finish() : kolo_error_text());
        kolo_stream_destroy(stream);
        kolo_comm_destroy(part);
    });
    EXPECT_EQ("", report.Text());
}

TEST(Destroy, FiftyTimesLeavesNoDescriptorMappingOrThread)
{
    UseOnce(); /* what a process sets up once may stay */
    const size_t files = CountIn("/proc/self/fd"), threads = CountIn("/proc/self/task");
    const size_t mappings = CountSharedMappings();
    for (int i = 0; i < 50; i++) {
        UseOnce();
    }
    EXPECT_EQ(files, CountIn("/proc/self/fd"));
    EXPECT_EQ(threads, CountIn("/proc/self/task"));
    EXPECT_EQ(mappings, CountSharedMappings());
}

/* ---- streams ---- */

TEST(Streams, RunWhatIsQueuedInOrderBesideBlockingCalls)
{
    Team team(3);
    Report report;
    team.Run([&](kolo_comm *comm, int) {
        kolo_stream streams[2] = {};
        std::vector<std::unique_ptr<Player>> players;
        for (kolo_stream &stream : streams) {
            report.Add(kolo_stream_create(&stream) == KOLO_OK ? "" : kolo_error_text());
        }
        Player blocking(comm, Memory::kPrivate);
        for (size_t i = 0; i < 20; i++) {
            players.push_back(std::make_unique<Player>(comm, Memory::kPrivate));
            report.Add(players.back()->Begin(
                {i % 3 == 0 ? Coll::kAllGather : Coll::kAllReduce, KOLO_INT32,
                 i % 3 == 0 ? kMove : static_cast<kolo_op>(KOLO_SUM), 0, 1 + 700 * i},
                streams[i % 2]));
            if (i % 4 == 3) {
                report.Add(blocking.Play({Coll::kAllToAll, KOLO_INT16, kMove, 0, 30 * i}));
            }
        }
        for (kolo_stream stream : streams) {
            report.Add(kolo_stream_sync(stream) == KOLO_OK ? "" : kolo_error_text());
            report.Add(kolo_stream_query(stream) == KOLO_OK ? "" : "not idle after a sync");
        }
        for (const std::unique_ptr<Player> &player : players) {
            report.Add(player->Finish());
        }
        for (kolo_stream stream : streams) {
            kolo_stream_destroy(stream);
        }
    });
    EXPECT_EQ("", report.Text());
}

TEST(Streams, SayInProgressUntilTheOthersCame)
{
    Team team(2);
    kolo_stream stream = nullptr;
    int x = 1, y = 0, z = 1;
    ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
    ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, team.comm(0), stream));
    EXPECT_EQ(KOLO_INPROGRESS, kolo_stream_query(stream));
    std::thread other([&] {
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(&x, &z, 1, KOLO_INT32, KOLO_SUM, team.comm(1), nullptr));
    });
    EXPECT_EQ(KOLO_OK, kolo_stream_sync(stream));
    other.join();
    EXPECT_EQ(2, y);
    EXPECT_EQ(2, z);
    kolo_stream_destroy(stream);
}

/* The message belongs to the parent, and so does the socket that a look for it would read. */
TEST(Streams, AreLeftAloneByAForkedChild)
{
    Team team(2);
    kolo_stream stream = nullptr;
    int x = 1, y = 0, status = -1;
    const auto receive = [&] { return kolo_recv(&y, 1, KOLO_INT32, 1, team.comm(0), stream); };
    const auto send = [&] { return kolo_send(&x, 1, KOLO_INT32, 0, team.comm(1), nullptr); };
    ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
    ASSERT_EQ(KOLO_OK, receive());
    ASSERT_EQ(KOLO_OK, send());
    ASSERT_EQ(KOLO_OK, kolo_stream_sync(stream));
    ASSERT_EQ(KOLO_OK, receive()); /* a query tries it, because the peer is connected now */
    x = 2;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        bool alone = true;
        for (int i = 0; i < 200 && alone; i++) {
            alone = kolo_stream_query(stream) == KOLO_INPROGRESS;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        _exit(alone ? 0 : 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20)); /* the child looks first */
    EXPECT_EQ(KOLO_OK, send());
    EXPECT_EQ(KOLO_OK, kolo_stream_sync(stream));
    EXPECT_EQ(2, y);
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    kolo_stream_destroy(stream);
}

TEST(Streams, GiveTheirFirstErrorAtTheNextSyncOnly)
{
    Team team(2);
    kolo_stream stream = nullptr;
    int x = 1, y = 0;
    ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
    ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, team.comm(0), stream));
    kolo_comm_abort(team.comm(0));
    EXPECT_EQ(KOLO_ERR_ABORTED, kolo_stream_sync(stream));
    EXPECT_STRNE("", kolo_error_text());
    EXPECT_EQ(KOLO_OK, kolo_stream_sync(stream));
    kolo_stream_destroy(stream);
}

TEST(Streams, CallHostFunctionsInTheirTurn)
{
    Team team(2);
    kolo_stream stream = nullptr;
    int x = 1, y = 0, z = 0;
    struct Seen {
        int *result;
        std::atomic<int> before{0}, after{0};
    } seen;
    seen.result = &y;
    const auto look = [](void *arg) {
        Seen *s = static_cast<Seen *>(arg);
        (s->before == 0 ? s->before : s->after) = 100 + *s->result;
    };
    ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
    ASSERT_EQ(KOLO_OK, kolo_stream_host_func(stream, look, &seen));
    ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, team.comm(0), stream));
    ASSERT_EQ(KOLO_OK, kolo_stream_host_func(stream, look, &seen));
    std::thread other([&] {
        while (seen.before == 0) {
            std::this_thread::yield();
        }
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(&x, &z, 1, KOLO_INT32, KOLO_SUM, team.comm(1), nullptr));
    });
    EXPECT_EQ(KOLO_OK, kolo_stream_sync(stream));
    other.join();
    EXPECT_EQ(100, seen.before);
    EXPECT_EQ(102, seen.after);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_stream_host_func(stream, nullptr, nullptr));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_stream_host_func(nullptr, look, &seen));
    kolo_stream_destroy(stream);
}

TEST(Streams, EndWhatTookLongerThanTheirTimeout)
{
    Team team(2);
    kolo_stream stream = nullptr;
    int x = 1, y = 0;
    ASSERT_EQ(KOLO_OK, kolo_stream_create(&stream));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_stream_set_timeout(stream, -1));
    ASSERT_EQ(KOLO_OK, kolo_stream_set_timeout(stream, 50));
    ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &y, 1, KOLO_INT32, KOLO_SUM, team.comm(0), stream));
    EXPECT_EQ(KOLO_ERR_TIMEOUT, kolo_stream_sync(stream));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "50 ms")) << kolo_error_text();
    kolo_stream_destroy(stream);
}

TEST(Streams, AreAllServedByWhoeverWaitsForOne)
{
    Team team(2), later(2);
    int x = 1, y[2] = {}, z[2] = {};
    std::thread ranks[2];
    for (int r = 0; r < 2; r++) {
        ranks[r] =
            std::thread([&, r] { /* each waits first for what the other waits for last */
                                 Team &first = r == 0 ? team : later,
                                      &second = r == 0 ? later : team;
                                 kolo_stream a = nullptr, b = nullptr;
                                 ASSERT_EQ(KOLO_OK, kolo_stream_create(&a));
                                 ASSERT_EQ(KOLO_OK, kolo_stream_create(&b));
                                 ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &y[r], 1, KOLO_INT32,
                                                                    KOLO_SUM, first.comm(r), a));
                                 ASSERT_EQ(KOLO_OK, kolo_all_reduce(&x, &z[r], 1, KOLO_INT32,
                                                                    KOLO_SUM, second.comm(r), b));
                                 EXPECT_EQ(KOLO_OK, kolo_stream_sync(a));
                                 EXPECT_EQ(KOLO_OK, kolo_stream_sync(b));
                                 kolo_stream_destroy(a);
                                 kolo_stream_destroy(b);
            });
    }
    for (std::thread &rank : ranks) {
        rank.join();
    }
    EXPECT_EQ(8, y[0] + y[1] + z[0] + z[1]);
}

/* ---- groups ---- */

TEST(Groups, LetOneThreadDriveAllRanks)
{
    for (const size_t count : {size_t{1}, size_t{5000}, size_t{300000}}) {
        Team team(4);
        std::vector<std::unique_ptr<Player>> players;
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < team.size(); r++) {
            players.push_back(std::make_unique<Player>(team.comm(r), Memory::kPrivate));
            EXPECT_EQ("", players.back()->Begin(
                              {Coll::kAllReduce, KOLO_FLOAT32, KOLO_SUM, 0, count}, nullptr));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        for (const std::unique_ptr<Player> &player : players) {
            EXPECT_EQ("", player->Finish());
        }
    }
}

TEST(Groups, NestAndStartAtTheOutermostEnd)
{
    Team team(2);
    int x = 1, sums[2][2] = {};
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int call = 0; call < 2; call++) {
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < 2; r++) {
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&x, &sums[call][r], 1, KOLO_INT32, KOLO_SUM,
                                               team.comm(r), nullptr));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end());
        EXPECT_EQ(0, sums[call][0]) << "it ran before the end";
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end());
    for (const auto &call : sums) {
        EXPECT_EQ(2, call[0]);
        EXPECT_EQ(2, call[1]);
    }
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_group_end());
}

TEST(Groups, KeepTheFactorOfAnOperationThatIsGoneAtTheirEnd)
{
    Team team(2);
    const float x = 5, factors[] = {2, 3};
    float sums[2] = {};
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int r = 0; r < 2; r++) {
        kolo_op op = 0;
        ASSERT_EQ(KOLO_OK, kolo_op_create_premulsum(&factors[r], KOLO_FLOAT32, team.comm(r), &op));
        EXPECT_EQ(KOLO_OK,
                  kolo_all_reduce(&x, &sums[r], 1, KOLO_FLOAT32, op, team.comm(r), nullptr));
        kolo_op_destroy(op, team.comm(r));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    EXPECT_EQ(25, sums[0]);
    EXPECT_EQ(25, sums[1]);
}

TEST(Groups, ReturnTheFirstError)
{
    Team broken(2), whole(2);
    int x = 1, y[4] = {};
    Meet(broken);
    kolo_comm_abort(broken.comm(0));
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int r = 0; r < 2; r++) {
        const kolo_status st =
            kolo_all_reduce(&x, &y[r], 1, KOLO_INT32, KOLO_SUM, broken.comm(r), nullptr);
        EXPECT_TRUE(st == KOLO_OK || st == KOLO_ERR_ABORTED);
        EXPECT_EQ(KOLO_OK,
                  kolo_all_reduce(&x, &y[2 + r], 1, KOLO_INT32, KOLO_SUM, whole.comm(r), nullptr));
    }
    const kolo_status st = kolo_group_end();
    EXPECT_TRUE(st == KOLO_OK || st == KOLO_ERR_ABORTED); /* OK where each was refused at once */
    EXPECT_EQ(KOLO_ERR_ABORTED, kolo_comm_error(broken.comm(0)));
    EXPECT_EQ(2, y[2]) << "what can run, runs";
    EXPECT_EQ(2, y[3]);
}

} // namespace collectives
