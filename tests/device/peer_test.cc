// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/gpu/program
// Lowered programs as the peer kernels run them, on the host: every block of every rank is a
// thread, memory of several GPUs is the host's. Without any driver.
#include "../exec/catalogue.h"
#include "emulator.h"
#include "peer_slabs.h"
extern "C" {
#include "exec/ref.h"
}

#include <algorithm>
#include <thread>

namespace
{

using namespace calls;
using namespace peer_calls;
using peer_calls::Call;
using reduce_reference::Bytes;
using reduce_reference::Fill;
using reduce_reference::kBytes;

// What rank r gets from the reference executor, which joins two sources at a time.
Bytes PlansBits(const Call &c, std::vector<Bytes> in, int r)
{
    const auto n = static_cast<unsigned>(in.size());
    const Plan plan = PlanOf(c, static_cast<int>(n));
    const size_t bytes = c.count * kBytes[c.type];
    std::vector<Bytes> out(n, Bytes(bytes));
    std::vector<const void *> from;
    std::vector<void *> to;
    for (unsigned q = 0; q < n; q++) {
        from.push_back(in[q].data());
        to.push_back(out[q].data());
    }
    struct Joining {
        const Call &call;
        unsigned ranks;
    } joining = {c, n};
    const auto join = [](void *arg, void *dst, const void *a, const void *b, size_t length,
                         bool last) {
        const auto *j = static_cast<Joining *>(arg);
        const size_t elem = kBytes[j->call.type];
        const reduce_reference::Job job = {
            j->call.op == KOLO_OPS ? kolo_op{KOLO_SUM} : j->call.op,
            {static_cast<const uint8_t *>(a), static_cast<const uint8_t *>(b)},
            length / elem,
            elem,
            last && j->call.op == KOLO_AVG ? j->ranks : 0};
        const Bytes joined = reduce_reference::Reference(j->call.type, job);
        memcpy(dst, joined.data(), joined.size());
    };
    EXPECT_EQ(KOLO_OK, kolo_ref_run(plan.get(), bytes / static_cast<size_t>(plan->chunks),
                                    from.data(), to.data(), join, &joining))
        << kolo_error_text();
    return out[static_cast<size_t>(r)];
}

class Ranks : public Slabs
{
  public:
    explicit Ranks(int n, uint32_t inbox_bytes = 4096, uint32_t slices = 3)
        : Slabs(n, inbox_bytes, slices)
    {
    }
    bool Bind(const Call &c, std::vector<kolo_program_launch> *out)
    {
        if (!peer_calls::Bind(c, n_, room_, out)) {
            return false;
        }
        for (kolo_program_launch &launch : *out) {
            SetEnds(static_cast<int>(launch.me), &launch.ends);
        }
        return true;
    }
    uint32_t LanesOf(const Call &c)
    {
        std::vector<kolo_program_launch> launches;
        return Bind(c, &launches) ? launches[0].lanes : 0;
    }
    void Launch(const Call &c, const std::vector<kolo_program_launch> &launches)
    {
        char name[KOLO_PROGRAM_NAME];
        kolo_program_name(c.algo->coll, c.type, c.op, name);
        std::vector<std::thread> ranks;
        for (const kolo_program_launch &launch : launches) {
            ranks.emplace_back([&] {
                const unsigned blocks = launch.lanes * launch.slices;
                EXPECT_TRUE(emulator::Run(name, launch, blocks, 5)) << name;
            });
        }
        for (std::thread &rank : ranks) {
            rank.join();
        }
    }
    // Whether it could be run; then its results are right. Others do not reach rank `apart`'s
    // buffers.
    bool Check(const Call &c, int apart = -1, bool plans_bits = false)
    {
        std::vector<kolo_program_launch> launches;
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
            const Bytes expected = what.coll == kColls ? Bytes()
                                   : plans_bits        ? PlansBits(c, scaled, r)
                                                       : Expected(what, scaled, r);
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

// Every collective, out of place and in place; how many could not be run.
int CheckAll(Ranks *ranks, const kolo_algo *algo, const Grouping *groups, int rings)
{
    const int n = ranks->Count();
    int refused = 0;
    for (const size_t count : {size_t{1}, size_t{37}, size_t{5003}}) {
        const bool barrier = algo->coll == KOLO_COLL_BARRIER;
        Call call = {algo, KOLO_INT32, KOLO_SUM, barrier ? 0 : count, n - 1};
        call.slices = count == 37 ? 1 : 3;
        call.pinned = count == 37;
        call.rings = rings;
        call.groups = groups;
        refused += !ranks->Check(call);
        call.in_place = CanBeInPlace(algo->coll);
        refused += call.in_place && !ranks->Check(call);
    }
    return refused;
}

TEST(PeerPrograms, OfEveryAlgorithmGiveTheResultsOfTheirCollective)
{
    for (const int n : RankCounts()) {
        Ranks ranks(n, 4096, 12);
        for (int i = 0; i < kolo_algos_count; i++) {
            const Call call = {kolo_algos[i], KOLO_INT32, KOLO_SUM, 1, n - 1};
            if (PlanOf(call, n) != nullptr) { // else the algorithm is not for so many ranks
                EXPECT_EQ(0, CheckAll(&ranks, kolo_algos[i], nullptr, 2))
                    << kolo_algos[i]->base.name << " of " << n << ": " << kolo_error_text();
            }
        }
    }
}

TEST(PeerPrograms, OfSeveralRingsAndTreesGoRoundAllOfThem)
{
    for (const int n : RankCounts()) {
        Ranks ranks(n, 4096, 12);
        for (const int rings : {1, 2, 4}) {
            for (const char *name :
                 {"allreduce_ring", "allreduce_rings", "allreduce_tree", "allgather_ring",
                  "reducescatter_ring", "broadcast_tree", "reduce_tree", "broadcast_chain"}) {
                if (rings > 1 || Algorithm(name) != Algorithm("allreduce_rings")) {
                    EXPECT_EQ(0, CheckAll(&ranks, Algorithm(name), nullptr, rings)) << name;
                }
            }
        }
        Call call = {Algorithm("allreduce_rings"), KOLO_INT8, KOLO_SUM, 9};
        call.rings = 4;
        EXPECT_EQ(4u, ranks.LanesOf(call));
    }
}

TEST(PeerPrograms, OfHierarchiesGiveTheirResultsOverGroupsOfEveryKind)
{
    for (const int n : RankCounts()) {
        Ranks ranks(n);
        for (const Grouping &groups : Groupings(n)) {
            for (const int i : Hierarchies()) {
                Call call = {kolo_algos[i], KOLO_INT32, KOLO_SUM, 1, n - 1};
                call.groups = &groups;
                if (PlanOf(call, n) != nullptr) {
                    call.count = 701;
                    call.slices = 2;
                    EXPECT_TRUE(kolo_algos[i]->coll == KOLO_COLL_BARRIER || ranks.Check(call))
                        << kolo_algos[i]->base.name << " of " << n << ", " << groups.name << ": "
                        << kolo_error_text();
                }
            }
        }
    }
}

TEST(PeerPrograms, OfRingsGiveTheirPlansBitsForEveryTypeAndOperation)
{
    for (const int n : {2, 3, 4}) {
        Ranks ranks(n, 1024, 8);
        for (int type = 0; type < KOLO_TYPES; type++) {
            for (kolo_op op = 0; op <= KOLO_OPS; op++) {
                const auto t = static_cast<kolo_type>(type);
                if (!kolo_op_valid(t, op == KOLO_OPS ? kolo_op{KOLO_AVG} : op)) {
                    continue;
                }
                for (const int rings : {2, 4}) { // chunks of a multiple of 64 bytes
                    Call call = {Algorithm("allreduce_rings"), t, op,
                                 64u * 4 * static_cast<size_t>(n)};
                    call.rings = rings;
                    call.slices = 2;
                    call.in_place = op % 2 == 0;
                    EXPECT_TRUE(ranks.Check(call, -1, true)) << kolo_error_text();
                }
            }
        }
    }
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

TEST(PeerPrograms, OfAsManyRanksAsThereMayBe)
{
    Ranks ranks(KOLO_PROGRAM_RANKS, 1024, 4);
    for (const char *name : {"allreduce_direct", "allreduce_rings", "allreduce_ring",
                             "allreduce_tree", "allgather_direct", "alltoall_direct"}) {
        Call call = {Algorithm(name), KOLO_INT32, KOLO_SUM, 700};
        call.rings = 4;
        EXPECT_TRUE(ranks.Check(call)) << name << ": " << kolo_error_text();
    }
}

// Lane 0 brings what lane 1 takes on: through scratch, so that neither may be far ahead.
void BuildJoined(const kolo_shape *shape, kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_scratch_chunks(b, 1);
    kolo_local(b, shape->root, kolo_in(0), kolo_scratch(0), KOLO_MOVE);
    for (int q = 0; q < n; q++) {
        if (q != shape->root) {
            kolo_transfer(b, shape->root, kolo_in(0), q, kolo_scratch(0), KOLO_MOVE);
        }
    }
    kolo_round(b);
    kolo_lane(b, 1);
    for (int q = 0; q < n; q++) {
        kolo_join(b, q, 0);
        kolo_local(b, q, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    }
}

TEST(PeerPrograms, OfLanesThatWaitForEachOtherDoSo)
{
    const kolo_algo joined = {{KOLO_PLUGIN_ABI, sizeof(kolo_algo), "broadcast_joined"},
                              KOLO_COLL_BROADCAST,
                              "made up",
                              nullptr,
                              BuildJoined};
    for (const int n : {2, 3}) {
        Ranks ranks(n, 1024, 6);
        ranks.Begin(0xffffff80u);
        for (int i = 0; i < 12; i++) { // of about 20 tiles each; between them lanes of one block
            Call call = {&joined, KOLO_INT32, KOLO_SUM, 12000, i % n, 2};
            EXPECT_EQ(2u, ranks.LanesOf(call));
            EXPECT_TRUE(ranks.Check(call)) << kolo_error_text();
            EXPECT_TRUE(ranks.Check(
                {Algorithm("allreduce_rings"), KOLO_INT32, KOLO_SUM, 3000, 0, 1u + i % 3u}));
        }
    }
}

// Of 2^31 tiles ago and more, which only look as if they were ahead.
TEST(PeerPrograms, DoNotTakeWordsOfLongAgoForNewOnes)
{
    Ranks ranks(2);
    ranks.Begin(0x90000000u);
    for (int r = 0; r < 2; r++) {
        for (uint32_t signal = 1; signal < KOLO_PROGRAM_SIGNALS; signal++) {
            ranks.Slice(r, 0)->word[1 - r][signal] = 5;
        }
    }
    for (int i = 0; i < 5; i++) {
        EXPECT_TRUE(ranks.Check({Algorithm("allreduce_ring"), KOLO_INT32, KOLO_SUM, 200}));
    }
}

TEST(PeerPrograms, GoOnWhereEpochsWrap)
{
    Ranks ranks(3, 1024, 12);
    ranks.Begin(0xfffffff0u);
    for (int i = 0; i < 8; i++) { // of about 10 tiles each, then 1
        EXPECT_TRUE(
            ranks.Check({Algorithm("allreduce_direct"), KOLO_FLOAT32, KOLO_SUM, 5000, 0, 2}));
        EXPECT_TRUE(ranks.Check({Algorithm("allreduce_rings"), KOLO_INT32, KOLO_SUM, 5000, 0, 3}));
        EXPECT_TRUE(ranks.Check({Algorithm("broadcast_direct"), KOLO_INT8, KOLO_SUM, 9, i % 3, 1}));
    }
}

TEST(PeerPrograms, OfTheOneLaunchThatGraphsKeepRunAgainAndAgain)
{
    constexpr int kRanks = 2;
    const Call call = {Algorithm("allreduce_oneshot"), KOLO_INT32, KOLO_SUM, 2000, 0, 2};
    Ranks ranks(kRanks);
    std::vector<kolo_program_launch> launches;
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
    std::vector<kolo_program_launch> launches;
    ASSERT_TRUE(ranks.Bind(call, &launches));
    launches[0].ends.in = launches[0].ends.out = reinterpret_cast<uintptr_t>(data.data());
    launches[0].ends.timeout_ns = 50000000;
    kolo_program_slice *slice = ranks.Slice(0, 0);
    const auto at = reinterpret_cast<uintptr_t>(others.data());
    slice->place[1] = {at, at, 0, 0};
    slice->word[1][KOLO_PROGRAM_MET] = UINT64_C(77) << 32 | 1;
    ranks.Launch(call, {launches[0]});
    EXPECT_EQ(std::vector<int32_t>(32, 3),
              std::vector<int32_t>(others.begin(), others.begin() + 32));
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_TIMEOUT}, ranks.Control(0)->record[0].status);
    EXPECT_EQ(1u, ranks.Control(0)->record[0].rank);
    EXPECT_EQ(UINT64_C(77) << 32 | 1, ranks.Slice(1, 0)->word[0][KOLO_PROGRAM_OVER]);
}

// ---- giving up ----------------------------------------------------------------------------------

class PeerWaits : public testing::Test
{
  protected:
    PeerWaits()
    {
        EXPECT_TRUE(ranks_.Bind(call_, &launches_));
        for (kolo_program_launch &launch : launches_) {
            launch.ends.in = reinterpret_cast<uintptr_t>(in_);
            launch.ends.out = reinterpret_cast<uintptr_t>(out_[launch.me]);
        }
    }
    const kolo_program_record &Record(int r, int slice = 0)
    {
        return ranks_.Control(r)->record[slice];
    }
    Ranks ranks_{2};
    Call call_ = {Algorithm("allreduce_oneshot"), KOLO_INT32, KOLO_SUM, 100, 0, 2};
    std::vector<kolo_program_launch> launches_;
    int32_t in_[100] = {}, out_[2][100] = {};
};

TEST_F(PeerWaits, ForARankThatNeverComesEndInTimeWithARecordOfIt)
{
    launches_[1].ends.timeout_ns = 50000000;
    ranks_.Launch(call_, {launches_[1]});
    for (int slice = 0; slice < 2; slice++) {
        EXPECT_EQ(uint32_t{KOLO_PROGRAM_TIMEOUT}, Record(1, slice).status);
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
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_ABORTED}, Record(0).status);
    ranks_.Launch(call_, {launches_[0]}); // what was queued behind it does nothing
}

TEST_F(PeerWaits, SeeThatAnotherRankIsInAnotherCall)
{
    launches_[0].ends.signature = 78;
    launches_[0].ends.timeout_ns = launches_[1].ends.timeout_ns = 5000000000u;
    ranks_.Launch(call_, launches_);
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_MISMATCH}, Record(0).status);
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_MISMATCH}, Record(1).status);
    EXPECT_EQ(1u, Record(0).rank);
    EXPECT_EQ(78u, Record(1).seen >> 32);
}

TEST(PeerKernels, ThereIsOneForEveryPairThatMakesSense)
{
    ExpectKernels(kolo_program_name, sizeof(kolo_program_launch));
}

} // namespace
