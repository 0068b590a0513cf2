// SPDX-License-Identifier: Apache-2.0
// Lowered programs as the peer kernels run them, on the host: every block of every rank is a
// thread, memory of several GPUs is the host's. Without any driver.
#include "emulator.h"
#include "peer_slabs.h"

#include <algorithm>
#include <set>
#include <thread>

namespace
{

using namespace calls;
using namespace peer_calls;
using peer_calls::Call;
using reduce_reference::Bytes;
using reduce_reference::Fill;
using reduce_reference::kBytes;

class Ranks : public Slabs
{
  public:
    explicit Ranks(int n, uint32_t slot_bytes = 4096) : Slabs(n, slot_bytes) {}
    bool Bind(const Call &c, std::vector<kolo_peer_launch> *out)
    {
        if (!peer_calls::Bind(c, n_, room_, out)) {
            return false;
        }
        for (kolo_peer_launch &launch : *out) {
            SetEnds(static_cast<int>(launch.me), &launch.ends);
        }
        return true;
    }
    void Launch(const Call &c, const std::vector<kolo_peer_launch> &launches)
    {
        char name[KOLO_PEER_NAME];
        kolo_peer_name(c.algo->coll, c.type, c.op, name);
        std::vector<std::thread> ranks;
        for (const kolo_peer_launch &launch : launches) {
            ranks.emplace_back(
                [&] { EXPECT_TRUE(emulator::Run(name, launch, c.slices, 5)) << name; });
        }
        for (std::thread &rank : ranks) {
            rank.join();
        }
    }
    // Whether it could be run; then its results are right. Others do not reach rank `apart`'s
    // buffers.
    bool Check(const Call &c, int apart = -1)
    {
        std::vector<kolo_peer_launch> launches;
        if (!Bind(c, &launches)) {
            return false;
        }
        const auto n = static_cast<size_t>(n_);
        const size_t elem = kBytes[c.type], shift = c.shift * elem;
        std::vector<Bytes> host, scaled;
        std::vector<Buffer> in, out;
        for (size_t r = 0; r < n; r++) {
            const Bytes factor = Fill(c.type, 1, 900 + r);
            host.push_back(Fill(c.type, c.count * n, 10 * c.count + r));
            scaled.push_back(host.back());
            if (c.op == KOLO_OPS) {
                kolo_scale(c.type, scaled[r].data(), host[r].data(), c.count * n, factor.data());
            }
            in.emplace_back(c.count * n * elem, shift);
            out.emplace_back(c.count * n * elem, shift);
            std::copy(host[r].begin(), host[r].end(), in[r].At());
            launches[r].ends.in = reinterpret_cast<uintptr_t>(in[r].At());
            launches[r].ends.out = reinterpret_cast<uintptr_t>((c.in_place ? in : out)[r].At());
            memcpy(&launches[r].ends.factor, factor.data(), std::min<size_t>(elem, 8));
        }
        if (apart >= 0) {
            launches[static_cast<size_t>(apart)].reached = 0;
        }
        Launch(c, launches);
        const calls::Call what = {CollOf(c.algo->coll), c.type,
                                  c.op == KOLO_OPS ? kolo_op{KOLO_SUM} : c.op, c.count, c.root};
        for (int r = 0; r < n_; r++) {
            EXPECT_EQ(0u, Control(r)->record[0].status);
            const auto at = static_cast<size_t>(r);
            const Bytes expected = what.coll == kColls ? Bytes() : Expected(what, scaled, r);
            const uint8_t *got = (c.in_place ? in : out)[at].At();
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got))
                << c.algo->base.name << " of " << c.count << " " << kolo_type_name(c.type) << ", "
                << (c.op < KOLO_OPS ? kolo_op_name(c.op) : "premulsum") << ", root " << c.root
                << ", " << c.slices << " slices, rank " << r << " of " << n
                << (c.in_place ? " in place" : "");
            EXPECT_EQ(0xa5, out[at].At()[c.count * n * elem]) << "written past the end";
        }
        return true;
    }
};

bool CanBeInPlace(kolo_coll coll)
{
    return coll == KOLO_COLL_ALL_REDUCE || coll == KOLO_COLL_REDUCE ||
           coll == KOLO_COLL_BROADCAST || coll == KOLO_COLL_ALL_TO_ALL;
}

TEST(PeerPrograms, OfEveryAlgorithmGiveTheResultsOfTheirCollective)
{
    std::set<kolo_coll> colls;
    for (const int n : RankCounts()) {
        Ranks ranks(n);
        int run = 0, held = 0;
        for (int i = 0; i < kolo_algos_count; i++) {
            const kolo_algo *algo = kolo_algos[i];
            const bool barrier = algo->coll == KOLO_COLL_BARRIER;
            for (const size_t count : {size_t{1}, size_t{37}, size_t{5003}}) {
                Call call = {algo, KOLO_INT32, KOLO_SUM, barrier ? 0 : count, n - 1};
                call.slices = count == 37 ? 1 : 3;
                const bool did = ranks.Check(call);
                call.in_place = true;
                held += did && (!CanBeInPlace(algo->coll) || ranks.Check(call));
                run++;
                if (did) {
                    colls.insert(algo->coll);
                }
            }
        }
        EXPECT_GT(held, run * 3 / 4) << n; // the others have lanes, or are not for so many ranks
    }
    EXPECT_EQ(9u, colls.size());
}

TEST(PeerPrograms, InRankOrderGiveTheReferencesBitsForEveryTypeAndOperation)
{
    for (const char *name :
         {"allreduce_direct", "allreduce_oneshot", "reduce_direct", "reducescatter_direct"}) {
        for (const int n : RankCounts()) {
            Ranks ranks(n);
            for (int type = 0; type < KOLO_TYPES; type++) {
                for (kolo_op op = 0; op <= KOLO_OPS; op++) {
                    const auto t = static_cast<kolo_type>(type);
                    if (kolo_op_valid(t, op == KOLO_OPS ? kolo_op{KOLO_AVG} : op)) {
                        EXPECT_TRUE(ranks.Check(
                            {Algorithm(name), t, op, 333, n / 2, 2, op % 2 == 0, op % 3}));
                    }
                }
            }
        }
    }
}

TEST(PeerPrograms, MoveElementsOfEverySizeFromAnyAddress)
{
    Ranks ranks(3);
    for (const char *name : {"broadcast_direct", "gather_direct", "scatter_direct",
                             "allgather_direct", "alltoall_direct"}) {
        for (int type = 0; type < KOLO_TYPES; type++) {
            for (const size_t shift : {0, 1, 3}) {
                EXPECT_TRUE(ranks.Check({Algorithm(name), static_cast<kolo_type>(type), KOLO_SUM,
                                         1001, 1, 3, false, shift}));
            }
        }
    }
}

TEST(PeerPrograms, GoOnWhereEpochsWrap)
{
    Ranks ranks(3, 1024);
    ranks.Begin(0xfffffff0u);
    for (int i = 0; i < 8; i++) { // of about 10 tiles each, then 1
        EXPECT_TRUE(
            ranks.Check({Algorithm("allreduce_direct"), KOLO_FLOAT32, KOLO_SUM, 5000, 0, 2}));
        EXPECT_TRUE(ranks.Check({Algorithm("broadcast_direct"), KOLO_INT8, KOLO_SUM, 9, i % 3, 1}));
    }
}

TEST(PeerPrograms, OfTheOneLaunchThatGraphsKeepRunAgainAndAgain)
{
    constexpr int kRanks = 2;
    const Call call = {Algorithm("allreduce_oneshot"), KOLO_INT32, KOLO_SUM, 2000, 0, 2};
    Ranks ranks(kRanks);
    std::vector<kolo_peer_launch> launches;
    ASSERT_TRUE(ranks.Bind(call, &launches));
    std::vector<std::vector<int32_t>> data(2 * kRanks, std::vector<int32_t>(call.count));
    for (size_t r = 0; r < kRanks; r++) {
        launches[r].ends.in = reinterpret_cast<uintptr_t>(data[r].data());
        launches[r].ends.out = reinterpret_cast<uintptr_t>(data[kRanks + r].data());
    }
    for (int32_t round = 1; round <= 20; round++) {
        for (int32_t r = 0; r < kRanks; r++) {
            std::fill(data[static_cast<size_t>(r)].begin(), data[static_cast<size_t>(r)].end(),
                      round * (r + 1));
        }
        ranks.Launch(call, launches);
        EXPECT_EQ(std::vector<int32_t>(call.count, 3 * round), data[kRanks]);
        EXPECT_EQ(std::vector<int32_t>(call.count, 3 * round), data[kRanks + 1]);
    }
}

// ---- straight from buffer to buffer
// ---------------------------------------------------------------

Call Direct(const char *algo, kolo_type type, kolo_op op, size_t count, unsigned slices)
{
    Call call = {Algorithm(algo), type, op, count, 0, slices};
    call.direct = true;
    return call;
}

TEST(DirectPeers, GiveTheReferencesBitsForEveryTypeAndOperation)
{
    for (const char *name : {"allreduce_direct", "reducescatter_direct"}) {
        for (const int n : RankCounts()) {
            Ranks ranks(n);
            for (int type = 0; type < KOLO_TYPES; type++) {
                for (kolo_op op = 0; op <= KOLO_OPS; op++) {
                    const auto t = static_cast<kolo_type>(type);
                    if (kolo_op_valid(t, op == KOLO_OPS ? kolo_op{KOLO_AVG} : op)) {
                        Call call = Direct(name, t, op, 333, 2);
                        call.in_place = op % 2 == 0 && CanBeInPlace(call.algo->coll);
                        call.shift = op % 3;
                        EXPECT_TRUE(ranks.Check(call));
                    }
                }
            }
            EXPECT_EQ(0u, ranks.Slice(n - 1, 1)->epoch) << "no tile went through slots";
            EXPECT_LT(0u, ranks.Slice(n - 1, 1)->met);
        }
    }
}

TEST(DirectPeers, TakeCallsOfEveryLengthAndMoveElementsOfEverySize)
{
    for (const int n : RankCounts()) {
        Ranks ranks(n);
        for (const size_t count : {1, 7, 63, 64, 65, 1000, 70001}) {
            EXPECT_TRUE(ranks.Check(
                Direct("allreduce_direct", KOLO_INT16, KOLO_SUM, count, 1 + count % 3)));
        }
        for (int type = 0; type < KOLO_TYPES; type++) {
            Call call = Direct("allgather_direct", static_cast<kolo_type>(type), KOLO_SUM, 1001, 3);
            call.shift = static_cast<size_t>(type % 4);
            EXPECT_TRUE(ranks.Check(call));
        }
        EXPECT_EQ(0u, ranks.Slice(0, 0)->epoch);
    }
}

TEST(DirectPeers, RunTheProgramWhereOneRanksBuffersAreNotReached)
{
    Ranks ranks(3);
    uint32_t met = 0, tiles = 0;
    for (const int apart : {0, 1, 2, -1, 1, -1, -1, 0}) {
        EXPECT_TRUE(
            ranks.Check(Direct("allreduce_direct", KOLO_FLOAT32, KOLO_SUM, 2000, 2), apart));
        EXPECT_EQ(++met, ranks.Slice(1, 0)->met);
        EXPECT_EQ(apart >= 0, ranks.Slice(1, 0)->epoch > tiles);
        tiles = ranks.Slice(1, 0)->epoch;
    }
}

TEST(DirectPeers, GoOnWhereTheirCallsWrap)
{
    Ranks ranks(3, 1024);
    ranks.Begin(0xfffffffcu);
    for (int i = 0; i < 9; i++) {
        EXPECT_TRUE(ranks.Check(Direct(i % 2 == 0 ? "allreduce_direct" : "allgather_direct",
                                       KOLO_INT32, KOLO_SUM, 500, 2),
                                i % 4 == 3 ? 1 : -1));
    }
}

// Rank 1 is never through, so rank 0's buffers are not its user's again.
TEST(DirectPeers, WaitUntilNobodyUsesTheirBuffers)
{
    Ranks ranks(2);
    const Call call = Direct("allreduce_direct", KOLO_INT32, KOLO_SUM, 64, 1);
    std::vector<int32_t> data(64, 1), others(64, 2);
    std::vector<kolo_peer_launch> launches;
    ASSERT_TRUE(ranks.Bind(call, &launches));
    launches[0].ends.in = launches[0].ends.out = reinterpret_cast<uintptr_t>(data.data());
    launches[0].ends.timeout_ns = 50000000;
    kolo_peer_slice *slice = ranks.Slice(0, 0);
    const auto at = reinterpret_cast<uintptr_t>(others.data());
    slice->place[1] = {at, at, 0, 0};
    slice->word[1][KOLO_PEER_MET] = UINT64_C(77) << 32 | 1;
    ranks.Launch(call, {launches[0]});
    EXPECT_EQ(std::vector<int32_t>(32, 3),
              std::vector<int32_t>(others.begin(), others.begin() + 32));
    EXPECT_EQ(uint32_t{KOLO_PEER_TIMEOUT}, ranks.Control(0)->record[0].status);
    EXPECT_EQ(1u, ranks.Control(0)->record[0].rank);
    EXPECT_EQ(UINT64_C(77) << 32 | 1, ranks.Slice(1, 0)->word[0][KOLO_PEER_OVER]);
}

// ---- giving up ----------------------------------------------------------------------------------

class PeerWaits : public testing::Test
{
  protected:
    PeerWaits()
    {
        EXPECT_TRUE(ranks_.Bind(call_, &launches_));
        for (kolo_peer_launch &launch : launches_) {
            launch.ends.in = reinterpret_cast<uintptr_t>(in_);
            launch.ends.out = reinterpret_cast<uintptr_t>(out_[launch.me]);
        }
    }
    const kolo_peer_record &Record(int r, int slice = 0)
    {
        return ranks_.Control(r)->record[slice];
    }
    Ranks ranks_{2};
    Call call_ = {Algorithm("allreduce_oneshot"), KOLO_INT32, KOLO_SUM, 100, 0, 2};
    std::vector<kolo_peer_launch> launches_;
    int32_t in_[100] = {}, out_[2][100] = {};
};

TEST_F(PeerWaits, ForARankThatNeverComesEndInTimeWithARecordOfIt)
{
    launches_[1].ends.timeout_ns = 50000000;
    ranks_.Launch(call_, {launches_[1]});
    for (int slice = 0; slice < 2; slice++) {
        EXPECT_EQ(uint32_t{KOLO_PEER_TIMEOUT}, Record(1, slice).status);
        EXPECT_EQ(0u, Record(1, slice).rank);
        EXPECT_EQ(0u, Record(1, slice).epoch - 1) << "the first tile";
        EXPECT_EQ(0u, Record(1, slice).seen);
        EXPECT_EQ(UINT64_C(77) << 32 | 1, Record(1, slice).wanted);
    }
}

TEST_F(PeerWaits, EndWhenTheHostAborts)
{
    std::thread abort([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        __atomic_store_n(&ranks_.Control(0)->abort, 1, __ATOMIC_RELEASE);
    });
    ranks_.Launch(call_, {launches_[0]});
    abort.join();
    EXPECT_EQ(uint32_t{KOLO_PEER_ABORTED}, Record(0).status);
    ranks_.Launch(call_, {launches_[0]}); // what was queued behind it does nothing
}

TEST_F(PeerWaits, SeeThatAnotherRankIsInAnotherCall)
{
    launches_[0].ends.signature = 78;
    launches_[0].ends.timeout_ns = launches_[1].ends.timeout_ns = 5000000000u;
    ranks_.Launch(call_, launches_);
    EXPECT_EQ(uint32_t{KOLO_PEER_MISMATCH}, Record(0).status);
    EXPECT_EQ(uint32_t{KOLO_PEER_MISMATCH}, Record(1).status);
    EXPECT_EQ(1u, Record(0).rank);
    EXPECT_EQ(78u, Record(1).seen >> 32);
}

TEST(PeerKernels, ThereIsOneForEveryPairThatMakesSense)
{
    ExpectKernels(kolo_peer_name, sizeof(kolo_peer_launch));
}

} // namespace
