// SPDX-License-Identifier: Apache-2.0
// covers: src/core/failure src/core/health src/core/setup src/core/call
/* What any thread may do at any time: while the ranks are in collectives, other threads ask for
 * errors and abort, and each rank destroys its communicator while the others may still be in calls.
 * The suite's value is highest under ThreadSanitizer. */
#include "collectives_team.h"

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <unistd.h>

namespace collectives
{

constexpr int kRanks = 3, kRounds = 12;

/* One of three collectives on `count` elements, the same on all ranks. */
static kolo_status Call(kolo_comm *comm, size_t count, int number, std::vector<int32_t> *buffer)
{
    int32_t *at = buffer->data();
    switch (number % 3) {
    case 0:
        return kolo_all_reduce(at, at, count, KOLO_INT32, KOLO_SUM, comm, nullptr);
    case 1:
        return kolo_broadcast(at, at, count, KOLO_INT32, number % kRanks, comm, nullptr);
    default:
        return kolo_reduce(at, at, count, KOLO_INT32, KOLO_MAX, number % kRanks, comm, nullptr);
    }
}

/* Ask for everything that any thread may ask for; what does not fit together. */
static std::string Ask(kolo_comm *comm, kolo_status *known)
{
    int ranks[kRanks] = {}, count = -1;
    kolo_failure failure = {};
    failure.size = sizeof failure;
    const kolo_status before = kolo_comm_error(comm);
    if (kolo_comm_failure(comm, &failure) != KOLO_OK ||
        kolo_comm_failed_ranks(comm, ranks, kRanks, &count) != KOLO_OK) {
        return std::string("asking failed: ") + kolo_error_text();
    }
    const kolo_status after = kolo_comm_error(comm);
    if ((*known != KOLO_OK && before != *known) || (before != KOLO_OK && after != before)) {
        return "the error changed";
    }
    *known = after;
    if (before != KOLO_OK && (failure.status != before || failure.text[0] == '\0')) {
        return std::string("error ") + kolo_status_name(before) + ", but the failure is " +
               kolo_status_name(failure.status) + ": " + failure.text;
    }
    return count >= 0 && count < kRanks && kolo_comm_size(comm) == kRanks ? "" : "a wrong number";
}

/* Each rank's thread calls until an error, and then destroys; `aborters` threads abort a rank each
 * after `delay_us`. */
static void Race(size_t count, int aborters, useconds_t delay_us, Report *report)
{
    Team team(kRanks, "", 0, 20000);
    ASSERT_EQ("", team.why());
    std::atomic<int> calls{0}, holders[kRanks] = {};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; rank++) {
        holders[rank] = 1 + (rank < aborters);
        threads.emplace_back([&, rank] { /* it asks */
                                         kolo_status known = KOLO_OK;
                                         for (int more = 3; more > 0; more -= known != KOLO_OK) {
                                             report->Add(Ask(team.comm(rank), &known));
                                             std::this_thread::yield();
                                         }
                                         holders[rank]--;
        });
        threads.emplace_back(
            [&, rank] { /* it calls */
                        std::vector<int32_t> buffer(count, 1);
                        kolo_status st = KOLO_OK;
                        for (int number = 0; st == KOLO_OK; number++, calls++) {
                            st = Call(team.comm(rank), count, number, &buffer);
                        }
                        report->Add(st == KOLO_ERR_ABORTED
                                        ? ""
                                        : std::string("a call: ") + kolo_error_text());
                        while (holders[rank] > 0) { /* nobody may use what is destroyed */
                            std::this_thread::yield();
                        }
                        kolo_comm_destroy(team.comm(rank));
                        team.Forget(rank);
            });
    }
    for (int rank = 0; rank < aborters; rank++) {
        threads.emplace_back([&, rank] {
            while (calls < 2 * kRanks) {
                std::this_thread::yield();
            }
            (void)usleep(delay_us);
            kolo_comm_abort(team.comm(rank));
            holders[rank]--;
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST(Races, OtherThreadsAskAndAbortWhileCollectivesRun)
{
    std::minstd_rand random(static_cast<unsigned>(TestSeed()));
    Report report;
    for (int round = 0; round < kRounds && report.Text().empty(); round++) {
        Race(round % 2 == 0 ? 2 : 100000, 1 + round / 2 % kRanks,
             static_cast<useconds_t>(random() % 3000), &report);
    }
    EXPECT_EQ("", report.Text());
}

} // namespace collectives
