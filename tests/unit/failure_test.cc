// SPDX-License-Identifier: Apache-2.0
// covers: src/core/failure/failure.c src/core/health/gone.c
/* What transports report of other ranks, in place of a transport. */
#include <kolo/kolo.h>

#include <cerrno>
#include <cstdint>
#include <gtest/gtest.h>
#include <unistd.h>

/* core/failure/failure.h, which is C. */
extern "C" {
void kolo_failure_peer_lost(void *comm, int rank, const char *what, int error);
void kolo_failure_peer_failed(void *comm, int rank, int32_t reason);
bool kolo_failure_learn(kolo_comm *comm);
kolo_status kolo_failure_end(kolo_comm *comm, kolo_status status, int rank);
int kolo_gone_find(const kolo_comm *comm, const int *ranks, int n);
void kolo_gone_note(kolo_comm *comm, int rank);
bool failure_note_fate(kolo_comm *comm, int rank); // failure_fate.c
}

namespace
{

constexpr int kRanks = 4;

class Failure : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(KOLO_OK, kolo_comm_create_local(kRanks, nullptr, comm)) << kolo_error_text();
    }
    void TearDown() override
    {
        for (kolo_comm *one : comm) {
            kolo_comm_abort(one); /* nobody waits for the others */
        }
        for (kolo_comm *one : comm) {
            kolo_comm_destroy(one);
        }
    }

    kolo_comm *comm[kRanks] = {};
};

/* The rank is in the upper bits of a reason, which comes over a connection. */
TEST(FailureReason, NamesNoRankIfItsRankIsOutOfRange)
{
    for (const int32_t rank : {-17, -1, 1, kRanks, INT32_MAX >> 8}) {
        kolo_comm *c = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_comm_create_local(1, nullptr, &c)) << kolo_error_text();
        const uint32_t reason = static_cast<uint32_t>(rank + 1) << 8 | -KOLO_ERR_LINK;
        kolo_failure failure = {};
        failure.size = sizeof failure;
        kolo_failure_peer_failed(c, 0, static_cast<int32_t>(reason));
        EXPECT_TRUE(kolo_failure_learn(c));
        EXPECT_EQ(KOLO_OK, kolo_comm_failure(c, &failure));
        EXPECT_EQ(KOLO_ERR_LINK, failure.status) << failure.text;
        EXPECT_EQ(-1, failure.rank) << failure.text;
        kolo_comm_destroy(c);
    }
}

/* Without a common board, the good-bye of its connection is all that tells of a rank. */
TEST_F(Failure, ListsARankWhoseConnectionSaidGoodBye)
{
    int ranks[kRanks] = {}, count = -1;
    kolo_failure_peer_lost(comm[0], 3, "left", ESHUTDOWN);
    EXPECT_EQ(KOLO_OK, kolo_comm_error(comm[0]));
    kolo_comm_abort(comm[0]);
    ASSERT_EQ(KOLO_OK, kolo_comm_failed_ranks(comm[0], ranks, kRanks, &count));
    ASSERT_EQ(1, count);
    EXPECT_EQ(3, ranks[0]);
}

/* A transport reports that only the connection has ended. The process has ended, too. */
TEST_F(Failure, NamesARankWhoseProcessHasEndedAsDead)
{
    kolo_failure failure = {};
    failure.size = sizeof failure;
    kolo_gone_note(comm[0], 2);
    kolo_failure_peer_lost(comm[0], 2, "lost its connection, and lives", ENOLINK);
    EXPECT_TRUE(kolo_failure_learn(comm[0]));
    EXPECT_EQ(KOLO_OK, kolo_comm_failure(comm[0], &failure));
    EXPECT_EQ(KOLO_ERR_PEER, failure.status) << failure.text;
    EXPECT_EQ(2, failure.rank) << failure.text;
}

/* Whoever watched the process may have died before it wrote a verdict. */
TEST_F(Failure, LearnsOfAProcessThatHasEndedFromTheBoard)
{
    kolo_failure failure = {};
    failure.size = sizeof failure;
    ASSERT_TRUE(failure_note_fate(comm[0], 2)) << "ranks of one host have a board";
    for (int ms = 0; ms < 10000 && kolo_comm_error(comm[1]) == KOLO_OK; ms++) {
        usleep(1000);
    }
    EXPECT_EQ(KOLO_OK, kolo_comm_failure(comm[1], &failure));
    EXPECT_EQ(KOLO_ERR_PEER, failure.status) << failure.text;
    EXPECT_EQ(2, failure.rank) << failure.text;
}

/* The others were told of the verdict, and name that rank. */
TEST_F(Failure, NamesOfSeveralRanksThatAreGoneTheOneOfTheVerdict)
{
    const int without_the_third[] = {2, 1, 0};
    for (const int rank : {1, 2, 3}) {
        kolo_gone_note(comm[0], rank);
    }
    EXPECT_EQ(1, kolo_gone_find(comm[0], nullptr, kRanks)) << "there is no verdict yet";
    EXPECT_EQ(KOLO_ERR_PEER, kolo_failure_end(comm[0], KOLO_ERR_PEER, 3));
    EXPECT_EQ(3, kolo_gone_find(comm[0], nullptr, kRanks));
    EXPECT_EQ(0, kolo_gone_find(comm[0], without_the_third, 3)) << "it is not asked for";
}

} // namespace
