// SPDX-License-Identifier: Apache-2.0
// covers: tools/log/check.c tools/log/line.c tools/log/print.c tools/log/read.c tools/log/ring.c
/* Logs of many versions and launchers are read into the same lists. */
extern "C" {
#include "tools/log/log.h"
}

#include <gtest/gtest.h>
#include <string>

namespace
{

struct Log {
    struct kolo_log log = {};
    explicit Log(const std::string &text)
    {
        EXPECT_EQ(KOLO_OK, kolo_log_read(&log, "log", text.data(), text.size()));
        EXPECT_EQ(KOLO_OK, kolo_log_finish(&log));
    }
    Log(const Log &) = delete;
    ~Log()
    {
        kolo_log_free(&log);
    }
    const struct kolo_log_comm &comm() const
    {
        static const struct kolo_log_comm none = {};
        const struct kolo_log_comm *shown = kolo_log_shown(&log);
        EXPECT_NE(nullptr, shown);
        return shown != nullptr ? *shown : none;
    }
    const struct kolo_job &job() const
    {
        return comm().job;
    }
    bool issue(const char *part) const
    {
        return log.issues.chars != nullptr && strstr(log.issues.chars, part) != nullptr;
    }
};

void ExpectTree(const struct kolo_job &job, int rank, int up, int down)
{
    const struct kolo_job_branch *b = kolo_job_find_branch(&job, 0, rank);
    ASSERT_NE(nullptr, b);
    EXPECT_EQ(up, b->up);
    EXPECT_EQ(down, b->down[0]);
}

TEST(Log, TheThreeWaysToWriteATreeMeanTheSame)
{
    const char *const forms[] = {
        "h:1:2 [0] NCCL INFO Trees [0] 0->1->2/-1/-1 [1] 2->1->0/-1/-1\n",
        "h:1:2 [0] NCCL INFO Trees [0] 2/-1/-1->1->0|0->1->2/-1/-1 [1] "
        "0/-1/-1->1->2|2->1->0/-1/-1\n",
        "h:1:2 [0] NCCL INFO Trees [0] 2/-1/-1->1->0 [1] 0/-1/-1->1->2\n",
    };
    for (const char *form : forms) {
        SCOPED_TRACE(form);
        const Log log(form);
        EXPECT_EQ(2, kolo_job_trees(&log.job()));
        ExpectTree(log.job(), 1, 0, 2);
        const struct kolo_job_branch *b = kolo_job_find_branch(&log.job(), 1, 1);
        ASSERT_NE(nullptr, b);
        EXPECT_EQ(2, b->up);
    }
}

TEST(Log, WhatLaunchersAndClocksPutBeforeALineIsPassedOver)
{
    for (const char *before : {"", "[1,3]<stdout>:", "[default0]:", "[2024-05-01 10:11:12] ",
                               "2024-05-01T10:11:12.123456Z stdout F ", "0: ", "worker-1 | "}) {
        SCOPED_TRACE(before);
        const std::string b = before;
        const Log log(
            b +
            "node-7.x:12:34 [5] NCCL INFO comm 0x1 rank 3 nranks 4 cudaDev 5 busId 4b000 - "
            "Init COMPLETE\nforeign line: 3[1] -> 4[2] via nothing\n" +
            b + "node-7.x:12:34 [5] NCCL INFO Channel 01/02 :    0   2   1   3\n");
        EXPECT_EQ(4, log.job().nranks);
        ASSERT_EQ(1, log.job().nhosts);
        EXPECT_STREQ("node-7.x", log.job().host[0]);
        EXPECT_EQ(0, kolo_job_host_of(&log.job(), 3));
        const struct kolo_job_ring *ring = kolo_job_find_ring(&log.job(), 1);
        ASSERT_NE(nullptr, ring);
        EXPECT_EQ(4, ring->count);
        EXPECT_EQ(2, ring->rank[1]);
        EXPECT_EQ(2, log.job().nchannels);
    }
}

TEST(Log, ConnectionsOfEveryVersionAreRead)
{
    const Log log(
        "h:1:2 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via P2P/IPC\n"
        "h:1:2 [0] NCCL INFO Channel 01 : 3[8a000] -> 0[1a000] via direct shared memory\n"
        "h:1:2 [0] NCCL INFO Channel 02/0 : 2[1c000] -> 3[8a000] [send] via NET/AWS "
        "Libfabric/1/GDRDMA\n"
        "h:1:2 [0] NCCL INFO Channel 03/0 : 2[0] -> 3[1] [receive] via "
        "NET/IB/0(7)/GDRDMA(PCI)/Shared\n"
        "h:1:2 [0] NCCL INFO Channel 04/1 : 2[0] -> 3[1] via P2P/CUMEM/read\n"
        "h:1:2 [0] RCCL INFO Channel 05/0 : 2[0] -> 3[1] via P2P/IPC comm 0x7f nRanks 04\n"
        "h:1:2 [0] KOLO INFO Channel 06/0 : 2[0] -> 3[1] via SHM/direct\n");
    const struct kolo_job &job = log.job();
    ASSERT_EQ(7, job.nedges);
    const struct {
        int channel, from, to;
        const char *via;
    } expected[] = {{0, 0, 1, "P2P/IPC"},
                    {1, 3, 0, "direct shared memory"},
                    {2, 2, 3, "NET/AWS Libfabric/N/GDRDMA"},
                    {3, 2, 3, "NET/IB/N/GDRDMA(PCI)/Shared"},
                    {4, 2, 3, "P2P/CUMEM/read"},
                    {5, 2, 3, "P2P/IPC"},
                    {6, 2, 3, "SHM/direct"}};
    for (const auto &e : expected) {
        const int via = kolo_job_via_of(&job, e.channel, e.from, e.to);
        ASSERT_GE(via, 0) << e.via;
        EXPECT_STREQ(e.via, job.via[via]);
    }
    for (int i = 0; i < job.nedges; i++) {
        EXPECT_EQ(job.edge[i].channel != 4, job.edge[i].collective);
    }
}

/* Ring line cut to two ranks; four ranks on two hosts. */
std::string CutRing(bool lines)
{
    std::string text = "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 - Init COMPLETE\n"
                       "b:1:1 [0] NCCL INFO comm 0x1 rank 2 nranks 4 - Init COMPLETE\n"
                       "a:1:1 [0] NCCL INFO Channel 00/01 :    0   1\n";
    const int next[] = {1, 2, 3, 0};
    for (int r = 0; r < 4; r++) {
        const std::string host = r < 2 ? "a:1:1 [0] NCCL INFO " : "b:1:1 [0] NCCL INFO ";
        const std::string me = std::to_string(r), to = std::to_string(next[r]);
        text += lines ? host + "Ring 00 : " + std::to_string((r + 3) % 4) + " -> " + me + " -> " +
                            to + "\n"
                      : host + "Channel 00 : " + me + "[1] -> " + to + "[2] via P2P/IPC\n";
    }
    return text + "a:1:1 [0] NCCL INFO Channel 00 : 1[1] -> 0[2] via P2P/IPC\n";
}

TEST(Log, ACutRingIsRebuiltFromItsLinesOrFromConnections)
{
    for (const bool lines : {true, false}) {
        const Log log(CutRing(lines));
        const struct kolo_job_ring *ring = kolo_job_find_ring(&log.job(), 0);
        ASSERT_NE(nullptr, ring);
        EXPECT_EQ(KOLO_RING_REBUILT, ring->from);
        ASSERT_EQ(4, ring->count);
        for (int i = 0; i < 4; i++) {
            EXPECT_EQ(i, ring->rank[i]);
        }
        EXPECT_TRUE(log.issue("cut or missing: rebuilt"));
    }
}

TEST(Log, ACutRingThatNothingCompletesIsSaidToBeCut)
{
    const Log log("a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 40 - Init COMPLETE\n"
                  "a:1:1 [0] NCCL INFO Channel 00/01 :  0  1  2 ...\n");
    EXPECT_EQ(KOLO_RING_CUT, kolo_job_find_ring(&log.job(), 0)->from);
    EXPECT_EQ(3, kolo_job_find_ring(&log.job(), 0)->count);
    EXPECT_TRUE(log.issue("do not tell the rest"));
}

TEST(Log, WhatMakesAJobSlowIsNoted)
{
    const Log log("a:1:1 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1\n"
                  "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 4 - Init COMPLETE\n"
                  "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0\n"
                  "a:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[0] [send] via NET/IB/0\n"
                  "a:1:1 [0] NCCL INFO Channel 02/0 : 0[0] -> 2[0] [send] via NET/IB/1\n"
                  "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
                  "a:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 3[3] via SHM/direct/direct\n"
                  "a:1:1 [0] NCCL WARN something\n");
    EXPECT_TRUE(log.issue("only 1 of 4 ranks"));
    EXPECT_TRUE(log.issue("without GPUDirect"));
    EXPECT_TRUE(log.issue("through shared memory, such as 0 -> 3"));
    EXPECT_TRUE(log.issue("NICs are used unequally"));
    EXPECT_TRUE(log.issue("1 line is a warning"));
}

TEST(Log, CommunicatorsOfEqualSizeAreKeptApart)
{
    std::string text;
    for (const char *id : {"0x11", "0x22"}) {
        for (int r = 0; r < 2; r++) {
            const std::string rank = std::to_string(r), up = std::to_string(r - 1);
            const std::string host = "h:10" + rank + ":20" + rank + " [0] NCCL INFO ";
            text += host + "comm " + id + rank + " rank " + rank + " nranks 2 commId " + id +
                    " - Init START\n" + host + "Trees [0] " + (r == 0 ? "1" : "-1") + "/-1/-1->" +
                    rank + "->" + up + "\n" + host + "comm " + id + rank + " rank " + rank +
                    " nranks 2 commId " + id + " - Init COMPLETE\n";
        }
    }
    const Log log(text);
    ASSERT_EQ(2, log.log.ncomms);
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(2, log.log.comm[i].job.nranks);
        EXPECT_EQ(2, log.log.comm[i].job.nbranches);
        EXPECT_EQ(2, log.log.comm[i].complete);
    }
}

TEST(Log, TheGpusOfConnectionsPartCommunicatorsWithoutAnId)
{
    std::string text;
    for (int r = 0; r < 2; r++) {     /* of both communicators */
        for (int g = 0; g < 2; g++) { /* each spans two hosts with one GPU a host */
            const std::string gpu = g == 0 ? "1a000" : "8a000", rank = std::to_string(r);
            const std::string host =
                "h" + rank + ":" + std::to_string(50 + g) + ":7 [0] NCCL INFO ";
            text += host + "Channel 00 : " + rank + "[" + gpu + "] -> " + std::to_string(1 - r) +
                    "[" + gpu + "] [send] via NET/IB/" + std::to_string(g) + "\n" + host +
                    "comm 0x1 rank " + rank + " nranks 2 - Init COMPLETE\n";
        }
    }
    const Log log(text);
    ASSERT_EQ(2, log.log.ncomms);
    for (int i = 0; i < 2; i++) {
        const struct kolo_job &job = log.log.comm[i].job;
        ASSERT_EQ(2, job.nedges);
        EXPECT_EQ(job.edge[0].net, job.edge[1].net);
    }
}

TEST(Log, WhatIsNotKnownIsAtLeast)
{
    const Log log("h:1:2 [0] NCCL INFO Trees [0] 36/-1/-1->37->35 [1] 35/28/44->37->36\n");
    EXPECT_EQ(45, log.job().nranks);
    EXPECT_FALSE(log.comm().nranks_exact);
    EXPECT_FALSE(log.comm().hosts_exact);
    EXPECT_EQ(2, log.job().nchannels);
    EXPECT_FALSE(log.comm().channels_exact);
}

TEST(Log, ARotatedRingIsTheSameRing)
{
    const Log log("h:1:2 [0] NCCL INFO Channel 00/03 : 0 1 2\n"
                  "h:1:2 [0] NCCL INFO Channel 01/03 : 1 2 0\n"
                  "h:1:2 [0] NCCL INFO Channel 02/03 : 2 1 0\n");
    const struct kolo_job &job = log.job();
    ASSERT_EQ(3, job.nrings);
    EXPECT_TRUE(kolo_ring_same(&job.ring[0], &job.ring[1]));
    EXPECT_FALSE(kolo_ring_same(&job.ring[0], &job.ring[2]));
}

TEST(Log, HostsStandInTheOrderOfTheirRanks)
{
    const Log log("z:1:2 [0] NCCL INFO comm 0x1 rank 1 nranks 2 - Init COMPLETE\n"
                  "y:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n");
    ASSERT_EQ(2, log.job().nhosts);
    EXPECT_STREQ("y", log.job().host[0]);
    EXPECT_EQ(1, kolo_job_host_of(&log.job(), 1));
}

TEST(Log, ARankThatDoesNotComeThroughTheStartIsNamed)
{
    std::string text;
    for (int r = 0; r < 3; r++) {
        const std::string host = "h:1" + std::to_string(r) + ":2 [0] NCCL INFO ";
        const std::string comm = "comm 0x1 rank " + std::to_string(r) + " nranks 3 commId 0x9 - ";
        text += host + comm + "Init START\n" + (r == 1 ? "" : host + comm + "Init COMPLETE\n");
    }
    EXPECT_TRUE(Log(text).issue("rank 1 (h:11) did not say Init COMPLETE"));
}

TEST(Log, AFileWithoutALineOfOursSaysSo)
{
    const Log log("hello\nNCCL version 2.30.7+cuda12.9\n");
    EXPECT_EQ(nullptr, kolo_log_shown(&log.log));
    EXPECT_TRUE(log.issue("no line of NCCL"));
    EXPECT_STREQ("2.30.7+cuda12.9", log.log.version);
}

TEST(Log, ClaimsOfManyRanksTakeNoMemoryForThem)
{
    const Log log("a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 16000000 - Init COMPLETE\n"
                  "a:1:1 [0] NCCL INFO Channel 00/4000 :  0  1  2 ...\n");
    EXPECT_EQ(16000000, log.job().nranks);
    EXPECT_LT(log.job().bytes, 4096u);
}

} // namespace
