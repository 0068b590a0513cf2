// SPDX-License-Identifier: Apache-2.0
// covers: src/sim
// Simulated times against the formulas of the literature, on machines where those are exact.
#include "sim_util.h"

#include <algorithm>

namespace
{

constexpr size_t kChunk = 64 * 40;

double Log2(int n)
{
    return kolo_log2_ceil(n);
}

void Expect(double want, const std::string &name, int n, size_t bytes, const kolo_sim_machine &m)
{
    const kolo_sim_result r = Sim(name, n, bytes, m);
    EXPECT_EQ(1u, r.tiles) << "the formula is for one tile";
    EXPECT_NEAR(want, r.total_us, Near(want)) << name << ", " << n << " ranks";
}

} // namespace

// Patarasuk, Yuan 2009.
TEST(Sim, ARingIsTwiceNMinusOneStepsOfOneChunk)
{
    for (int n : {2, 3, 5, 8, 16, 33, 80}) {
        const double want = 2 * (n - 1) * (kAlphaUs + kChunk * kBeta) + (n - 1) * kChunk * kGamma;
        Expect(want, "allreduce_ring", n, kChunk * static_cast<size_t>(n), Flat());
        Expect((n - 1) * (kAlphaUs + kChunk * kBeta), "allgather_ring", n, kChunk, Flat());
        Expect((n - 1) * (kAlphaUs + kChunk * (kBeta + kGamma)), "reducescatter_ring", n, kChunk,
               Flat());
    }
}

// Thakur, Rabenseifner, Gropp 2005.
TEST(Sim, RecursiveDoublingIsLogNStepsOfTheWholeVector)
{
    for (int n : {2, 4, 16, 64, 128}) {
        Expect(Log2(n) * (kAlphaUs + kChunk * (kBeta + kGamma)), "allreduce_doubling", n, kChunk,
               Flat());
    }
}

TEST(Sim, RabenseifnerIsTwoLogNStepsOfAllBytesTwice)
{
    for (int n : {2, 4, 16, 64, 128}) {
        const size_t chunk = kChunk / 4;
        const double part = static_cast<double>(chunk) * (n - 1); // (n-1)/n of the vector
        Expect(2 * Log2(n) * kAlphaUs + part * (2 * kBeta + kGamma), "allreduce_rabenseifner", n,
               chunk * static_cast<size_t>(n), Flat());
    }
}

// A rank of a broadcast posts all its messages at once, and they share its NIC: the k of a rank that
// is k levels above the leaves take k times as long. In a reduce such a rank adds its k terms in one
// pass, when the last is there.
TEST(Sim, ABinomialTreeIsLogNSteps)
{
    for (int n : {2, 4, 16, 64, 128}) {
        const double steps = Log2(n), terms = steps * (steps + 1) / 2;
        Expect(steps * kAlphaUs + terms * kChunk * kBeta, "broadcast_binomial", n, kChunk, Flat());
        Expect(steps * (kAlphaUs + kChunk * kBeta) + terms * kChunk * kGamma, "reduce_binomial", n,
               kChunk, Flat());
    }
}

TEST(Sim, AnAllGatherByBruckOrDoublingIsLogNStepsOfAllBytes)
{
    for (int n : {2, 4, 16, 64, 128}) {
        const double want = Log2(n) * kAlphaUs + (n - 1) * static_cast<double>(kChunk / 4) * kBeta;
        Expect(want, "allgather_bruck", n, kChunk / 4, Flat());
        Expect(want, "allgather_doubling", n, kChunk / 4, Flat());
    }
}

TEST(Sim, ABarrierIsLogNLatencies)
{
    for (int n : {2, 3, 7, 64, 100}) {
        Expect(Log2(n) * kAlphaUs, "barrier_dissemination", n, 0, Flat());
    }
}

// Messages of one rank share its NIC; so do those to one rank.
TEST(Sim, DirectExchangesAreBoundByTheNics)
{
    for (int n : {2, 5, 16, 80}) {
        const double all = kAlphaUs + (n - 1) * static_cast<double>(kChunk) * kBeta;
        Expect(all, "scatter_direct", n, kChunk, Flat());
        Expect(all, "gather_direct", n, kChunk, Flat());
        Expect(all, "alltoall_direct", n, kChunk, Flat());
        Expect(all, "allgather_direct", n, kChunk, Flat());
    }
}

TEST(Sim, APairwiseExchangeIsNMinusOneSteps)
{
    for (int n : {2, 8, 64}) {
        Expect((n - 1) * (kAlphaUs + kChunk * kBeta), "alltoall_pairwise", n, kChunk, Flat());
    }
}

// The first tile passes n-1 links, and then one tile follows another.
TEST(Sim, AChainWithTilesIsAPipeline)
{
    const size_t tile = 256 << 10;
    for (int n : {2, 5, 9}) {
        for (int tiles : {1, 3, 7, 100, 1000}) {
            const double step = tile * kBeta;
            const double want = (n - 1) * (kAlphaUs + step) + (tiles - 1) * step;
            const kolo_sim_result r =
                Sim("broadcast_chain", n, tile * static_cast<size_t>(tiles), Flat());
            EXPECT_EQ(static_cast<uint32_t>(tiles), r.tiles);
            EXPECT_NEAR(want, r.total_us, Near(want)) << n << " ranks, " << tiles << " tiles";
        }
    }
}

// Both cores and the wire work on a message at the same time. The receiver takes its last 16 KiB when
// they are there.
TEST(Sim, AMessageTakesTheSlowestOfItsWireAndItsCores)
{
    const size_t bytes = 1 << 20, part = 16 << 10;
    for (double copy : {kBeta / 4, kBeta, 3 * kBeta}) {
        kolo_sim_machine m = Flat(0);
        m.tile_bytes = bytes;
        m.costs.net_message_us = 0.7;
        m.costs.net_copy_us_per_byte = copy;
        const double slowest = std::max(kBeta, copy);
        Expect(3 * (0.7 + bytes * slowest + kAlphaUs + 0.7 + part * copy), "broadcast_chain", 4,
               bytes, m);
    }
}

// A core that sends has no time to receive.
TEST(Sim, AnExchangeTakesTheTimeOfBothCopies)
{
    const size_t bytes = 1 << 20;
    kolo_sim_machine m = Flat(0);
    m.tile_bytes = 2 * bytes;
    m.costs.net_copy_us_per_byte = 3 * kBeta;
    Expect(2 * bytes * 3 * kBeta, "alltoall_direct", 2, bytes, m);
}

TEST(Sim, ANicKeepsItsGapBetweenMessages)
{
    kolo_sim_machine m = Flat(0);
    m.net_gap_us = 5;
    Expect(6 * 5 + kAlphaUs + 64 * kBeta, "scatter_direct", 8, 64, m);
}

TEST(Sim, ALongMessageHasItsRampAndAShorterOneItsPart)
{
    kolo_sim_machine m = Flat(0);
    m.net_ramp_us = 4;
    m.net_ramp_bytes = 4 * kChunk;
    for (size_t bytes : {kChunk, 4 * kChunk, 8 * kChunk}) {
        const double part = bytes < 4 * kChunk ? 0.25 : 1;
        Expect(3 * (kAlphaUs + part * 4 + bytes * kBeta), "allreduce_doubling", 8, bytes, m);
    }
}

// The sender is told that the receive is posted. A rank posts the receives of a tile before it waits.
TEST(Sim, ALongMessageWaitsForItsReceive)
{
    kolo_sim_machine m = Flat(0);
    m.costs.net_rendezvous_bytes = kChunk;
    Expect(kAlphaUs + (kChunk - 64) * kBeta, "allreduce_doubling", 2, kChunk - 64, m);
    Expect(2 * kAlphaUs + kChunk * kBeta, "allreduce_doubling", 2, kChunk, m);
    Expect(kAlphaUs + 7 * (kAlphaUs + kChunk * kBeta), "reducescatter_ring", 8, kChunk, m);
}

TEST(Sim, ACallGoesInTilesOfTheMachinesSize)
{
    kolo_sim_machine m = Flat(0);
    m.tile_bytes = 1 << 20;
    const double step = (1 << 20) * kBeta, pipeline = 2 * (kAlphaUs + step) + 63 * step;
    EXPECT_NEAR(pipeline, Sim("broadcast_chain", 3, 64 << 20, m).total_us, Near(pipeline));
    m.tile_bytes = 64 << 20;
    Expect(2 * (kAlphaUs + 64 * step), "broadcast_chain", 3, 64 << 20, m);
}

// Eight hosts on two leaves: half of each all-to-all block crosses the uplinks.
TEST(Sim, FlowsShareAnUplink)
{
    kolo_sim_machine m = Flat(0);
    m.hosts_per_switch = 4;
    m.uplink_us_per_byte = kBeta; // as fast as one NIC
    m.switch_latency_us = 2;
    const double want = kAlphaUs + 2 + 4.0 * 4 * kChunk * kBeta;
    Expect(want, "alltoall_direct", 8, kChunk, m);
}

TEST(Sim, LinesOfAHostCostLatencyAndAStepAtEachEnd)
{
    kolo_sim_machine m = Flat(0);
    m.ranks_per_host = 0;
    m.costs.latency_us = 0.2;
    m.costs.step_us = 0.05;
    for (int n : {2, 5, 16, 100}) {
        Expect(Log2(n) * (0.2 + 2 * 0.05), "barrier_dissemination", n, 0, m);
    }
}

// The root's copy into its outbox, and each receiver's copy out of it.
TEST(Sim, BytesOfAHostAreMovedByCores)
{
    kolo_sim_machine m = Flat(0);
    m.ranks_per_host = 0;
    m.costs.latency_us = 0.2;
    m.costs.copy_us_per_byte = 0.0001;
    m.local_us_per_byte = 0.00003;
    const double bytes = 64 << 10; // a long slot: stores there do not wait for its last readers
    Expect(bytes * 0.00003 + 0.2 + bytes * 0.0001, "broadcast_direct", 8, 64 << 10, m);
}

// A tile goes into a long slot when its reader has finished the tile four before it.
TEST(Sim, ASenderWaitsForAFreeSlot)
{
    kolo_sim_machine m = Flat(0);
    m.ranks_per_host = 0;
    m.costs.latency_us = 1000;
    for (int tiles : {1, 4, 5, 16, 400}) {
        const double want = 1000 + (tiles - 1) / 4 * 2000.0;
        const size_t bytes = static_cast<size_t>(tiles) << 18;
        const kolo_sim_result r = Sim("broadcast_direct", 2, bytes, m);
        EXPECT_NEAR(want, r.total_us, Near(want)) << tiles;
    }
}

TEST(Sim, ARankThatHasFinishedLeavesItsCoreToAnother)
{
    kolo_sim_machine m = Flat(0);
    m.ranks_per_host = 0;
    m.costs.latency_us = 0.5;
    m.costs.step_us = 1;
    m.costs.switch_us = 3;
    m.costs.cores = 1;
    Expect(1 + 0.5 + 3 + 1, "broadcast_direct", 2, 4, m);
}

TEST(Sim, RanksOfOneCoreTakeTurns)
{
    kolo_sim_machine m = Flat(0);
    m.ranks_per_host = 0;
    m.costs.latency_us = 0;
    m.costs.step_us = 1;
    const double spread = Sim("barrier_dissemination", 4, 0, m).total_us;
    m.costs.cores = 1;
    const double packed = Sim("barrier_dissemination", 4, 0, m).total_us;
    EXPECT_NEAR(4 * spread, packed, Near(packed)) << "nothing but steps costs here";
}

TEST(Sim, ASlowRankSlowsTheMessagesThroughIt)
{
    kolo_sim_machine m = Flat(0);
    m.costs.net_message_us = 1;
    m.slow_rank = 1;
    m.slow_factor = 3;
    Expect(1 + 3 + 3 + 1 + 2 * (kAlphaUs + kChunk * kBeta), "broadcast_chain", 3, kChunk, m);
}

TEST(Sim, NoiseDependsOnItsSeedAlone)
{
    kolo_sim_machine m = Flat();
    m.noise = 0.2;
    kolo_sim_options options = {};
    options.algo = Named("allreduce_tree");
    options.machine = &m;
    options.nranks = 70;
    options.bytes = 1 << 20;
    double us[3];
    for (int i = 0; i < 3; i++) {
        kolo_sim_result r = {};
        options.seed = i == 2 ? 8 : 7;
        ASSERT_EQ(KOLO_OK, kolo_sim_run(&options, &r));
        us[i] = r.total_us;
    }
    EXPECT_EQ(us[0], us[1]);
    EXPECT_NE(us[0], us[2]);
}

TEST(Sim, ACallTakesTimeBeforeItsFirstOp)
{
    kolo_sim_machine m = Flat(0);
    m.call_us = 7;
    Expect(7 + 2 * kAlphaUs, "barrier_dissemination", 4, 0, m);
}
