// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/gpu/ll
// The low-latency kernels on the host, as peer_test.cc has the others: every block of every rank is
// a thread.
#include "emulator.h"
#include "exec/gpu/ll/ll.h"
#include "peer_slabs.h"

#include <algorithm>
#include <thread>

namespace
{

using namespace calls;
using calls::Call;
using peer_calls::Buffer;
using peer_calls::RankCounts;
using peer_calls::Slabs;

constexpr kolo_coll kCollOf[] = {
    KOLO_COLL_ALL_REDUCE, KOLO_COLL_REDUCE,     KOLO_COLL_BROADCAST,      KOLO_COLL_GATHER,
    KOLO_COLL_SCATTER,    KOLO_COLL_ALL_GATHER, KOLO_COLL_REDUCE_SCATTER, KOLO_COLL_ALL_TO_ALL};
static_assert(kColls == sizeof kCollOf / sizeof *kCollOf, "the order of calls.h");

constexpr unsigned kThreads = 5;

struct Low {
    kolo_ll_launch launch;
    kolo_ll_grid grid;
};

struct How {
    bool in_place = false;
    size_t shift = 0; // of the buffers, in elements
};

class Ranks : public Slabs
{
  public:
    explicit Ranks(int n) : Slabs(n) {}
    bool Bind(const Call &c, int r, Low *out)
    {
        kolo_coll_args args = {};
        args.coll = kCollOf[c.coll];
        args.type = c.type;
        args.op = c.op;
        args.root = c.root;
        args.count = c.count;
        const bool held = kolo_ll_bind(&args, r, &room_, room_.slices, &out->launch, &out->grid);
        SetEnds(r, &out->launch.ends);
        return held;
    }
    void Launch(const Call &c, const std::vector<Low> &lows)
    {
        char name[KOLO_PROGRAM_NAME];
        kolo_ll_name(kCollOf[c.coll], c.type, c.op, name);
        std::vector<std::thread> ranks;
        for (const Low &low : lows) {
            ranks.emplace_back([&] {
                EXPECT_TRUE(emulator::Run(name, low.launch, low.grid.blocks, kThreads)) << name;
            });
        }
        for (std::thread &rank : ranks) {
            rank.join();
        }
    }
    void Check(const Call &c, How how = {})
    {
        const auto n = static_cast<size_t>(n_);
        const size_t elem = kBytes[c.type], bytes = c.count * n * elem;
        std::vector<Bytes> host, scaled;
        std::vector<Buffer> in, out;
        std::vector<Low> lows(n);
        for (size_t r = 0; r < n; r++) {
            const Bytes factor = Fill(c.type, 1, 900 + r);
            host.push_back(Fill(c.type, c.count * n, 10 * c.count + r));
            scaled.push_back(host.back());
            if (c.op == KOLO_OPS) {
                kolo_scale(c.type, scaled[r].data(), host[r].data(), c.count * n, factor.data());
            }
            in.emplace_back(bytes, how.shift * elem);
            out.emplace_back(bytes, how.shift * elem);
            std::copy(host[r].begin(), host[r].end(), in[r].At());
            ASSERT_TRUE(Bind(c, static_cast<int>(r), &lows[r]));
            kolo_program_ends *ends = &lows[r].launch.ends;
            ends->in = reinterpret_cast<uintptr_t>(in[r].At());
            ends->out = reinterpret_cast<uintptr_t>((how.in_place ? in : out)[r].At());
            memcpy(&ends->factor, factor.data(), std::min<size_t>(elem, 8));
        }
        Launch(c, lows);
        const Call what = {c.coll, c.type, c.op == KOLO_OPS ? kolo_op{KOLO_SUM} : c.op, c.count,
                           c.root};
        for (int r = 0; r < n_; r++) {
            EXPECT_EQ(0u, Control(r)->record[0].status);
            const auto at = static_cast<size_t>(r);
            const Bytes expected = Expected(what, scaled, r);
            const uint8_t *got = (how.in_place ? in : out)[at].At();
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got))
                << "collective " << c.coll << " of " << c.count << " " << kolo_type_name(c.type)
                << ", " << (c.op < KOLO_OPS ? kolo_op_name(c.op) : "premulsum") << ", root "
                << c.root << ", rank " << r << " of " << n_ << (how.in_place ? " in place" : "");
            for (size_t i = expected.size(); i < bytes && !how.in_place; i++) {
                EXPECT_EQ(0xa5, out[at].At()[i]) << "written past the end";
            }
            EXPECT_EQ(0xa5, out[at].At()[bytes]) << "written past the end";
        }
    }
};

TEST(LowLatencyKernels, GiveTheReferencesBitsForEveryTypeAndOperation)
{
    for (const int n : RankCounts()) {
        Ranks ranks(n);
        for (const Coll coll : {kAllReduce, kReduce, kReduceScatter}) {
            for (int type = 0; type < KOLO_TYPES; type++) {
                for (kolo_op op = 0; op <= KOLO_OPS; op++) {
                    const auto t = static_cast<kolo_type>(type);
                    if (kolo_op_valid(t, op == KOLO_OPS ? kolo_op{KOLO_AVG} : op)) {
                        ranks.Check({coll, t, op, 333, n / 2},
                                    {op % 2 == 0 && coll != kReduceScatter, op % 3});
                    }
                }
            }
        }
    }
}

TEST(LowLatencyKernels, MoveElementsOfEverySizeFromAnyAddress)
{
    for (const int n : {3, 9}) { // 9: more than are loaded at once, twice
        Ranks ranks(n);
        for (const Coll coll : {kBroadcast, kGather, kScatter, kAllGather, kAllToAll}) {
            for (int type = 0; type < KOLO_TYPES; type++) {
                for (const size_t shift : {0, 1, 3}) {
                    ranks.Check({coll, static_cast<kolo_type>(type), KOLO_SUM, 301, n - 1},
                                {false, shift});
                }
            }
        }
    }
}

TEST(LowLatencyKernels, TakeCallsOfEveryLengthThatTheirSlotsHold)
{
    Ranks ranks(2);
    for (size_t count : {1, 7, 16, 17, 127, 128, 129, 4096, 6145, 3 * KOLO_LL_BYTES}) {
        ranks.Check({kAllReduce, KOLO_INT8, KOLO_SUM, count, 0}, {count % 2 == 0, count % 5});
        ranks.Check({kAllToAll, KOLO_INT8, KOLO_SUM, count, 0}, {true, 0});
    }
    Low low;
    EXPECT_FALSE(ranks.Bind({kAllReduce, KOLO_INT8, KOLO_SUM, 3 * KOLO_LL_BYTES + 1, 0}, 0, &low));
}

// Without a word between them: a rank may be a call ahead of another, and lines of two calls lie
// beside each other.
TEST(LowLatencyKernels, OfManyCallsInARowKeepThemApart)
{
    constexpr int kRanks = 4, kCalls = 60;
    Ranks ranks(kRanks);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; r++) {
        threads.emplace_back([&ranks, r] {
            for (int i = 0; i < kCalls; i++) {
                // Broadcasts between: their root hears of the others, or would overtake them.
                const Call c = {i % 3 == 0 ? kAllReduce : kBroadcast, KOLO_INT32, KOLO_SUM,
                                static_cast<size_t>(1 + i * 7 % 100), i % kRanks};
                std::vector<int32_t> data(c.count, i + 1000 * (r + 1)), got(c.count);
                Low low;
                char name[KOLO_PROGRAM_NAME];
                EXPECT_TRUE(ranks.Bind(c, r, &low));
                kolo_ll_name(kCollOf[c.coll], c.type, c.op, name);
                low.launch.ends.in = reinterpret_cast<uintptr_t>(data.data());
                low.launch.ends.out = reinterpret_cast<uintptr_t>(got.data());
                EXPECT_TRUE(emulator::Run(name, low.launch, low.grid.blocks, kThreads));
                const int32_t sum = 10000 + 4 * i, root = i + 1000 * (c.root + 1);
                EXPECT_EQ(std::vector<int32_t>(c.count, c.coll == kAllReduce ? sum : root), got);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

TEST(LowLatencyKernels, GoOnWhereTheirCallsWrap)
{
    Ranks ranks(3);
    ranks.Begin(0xfffffffau);
    for (size_t i = 0; i < 12; i++) {
        ranks.Check({kAllReduce, KOLO_FLOAT32, KOLO_SUM, 1 + i % 3 * 700, 0});
    }
}

// Lines that a long call left 2^32 calls ago have the flag of one that comes soon.
TEST(LowLatencyKernels, WriteAllLinesAgainLongBeforeTheirFlagsComeAgain)
{
    constexpr uint32_t kCall = 3u * KOLO_LL_REFRESH, kOld = 0xdeadbeef;
    const kolo_program_room room = {3, 3, 3 * 4096, 2048};
    Ranks ranks(3);
    ranks.Begin(kCall);
    for (int r = 0; r < 3; r++) {
        std::fill(ranks.Slab(r) + kolo_program_ll_at(&room) / 8,
                  ranks.Slab(r) + kolo_program_slab_bytes(&room) / 8,
                  uint64_t{kCall + 9} << 32 | kOld);
    }
    for (int i = 0; i < 2; i++) { // of three blocks; not all ranks send anything
        ranks.Check({kBroadcast, KOLO_INT8, KOLO_SUM, 3 * 2048, 1});
    }
    for (int reader = 0; reader < 3; reader++) {
        for (uint32_t slot = 0; slot < 3 * KOLO_LL_TURNS * 3; slot++) {
            const uint64_t *at = ranks.Slab(reader) + kolo_program_ll_at(&room) / 8 +
                                 slot * (KOLO_LL_SLOT / 8) + KOLO_LL_HEAD / 8;
            const bool own = slot % 3 == static_cast<uint32_t>(reader);
            EXPECT_EQ(own ? KOLO_LL_BYTES / 4 : 0,
                      std::count(at, at + KOLO_LL_BYTES / 4, uint64_t{kCall + 9} << 32 | kOld));
        }
    }
}

// ---- a rank that the test plays -----------------------------------------------------------------

// Rank 1 of 2, of calls of one pack.
class Played : public testing::Test
{
  protected:
    // Where the writer's lines of call `flag` are at the reader; the head is line 0.
    uint64_t *Slot(int reader, uint32_t flag)
    {
        const kolo_program_room room = {2, 3, 2 * 4096, 2048};
        const size_t slot = (flag - 1) % KOLO_LL_TURNS * 2 + (reader == 0 ? 1 : 0);
        return ranks_.Slab(reader) + (kolo_program_ll_at(&room) + slot * KOLO_LL_SLOT) / 8;
    }
    static void Store(uint64_t *at, uint32_t flag, uint32_t data)
    {
        __atomic_store_n(at, uint64_t{flag} << 32 | data, __ATOMIC_RELAXED);
    }
    static uint64_t Load(const uint64_t *at)
    {
        return __atomic_load_n(at, __ATOMIC_RELAXED);
    }
    static void AwaitFlag(const uint64_t *at, uint32_t flag)
    {
        while (Load(at) >> 32 != flag) {
            std::this_thread::yield();
        }
    }
    // The words of call `flag` one by one, each after the other rank may have looked for it, in one
    // order and the other.
    void Send(uint32_t flag, uint32_t value)
    {
        uint64_t *head = Slot(0, flag), *line = head + KOLO_LL_HEAD / 8;
        Store(head, flag, 77);
        Store(head + 1, flag, 0);
        for (int i = 0; i < 4; i++) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));
            Store(line + (flag % 2 == 0 ? i : 3 - i), flag, value);
        }
    }
    Ranks ranks_{2};
};

TEST_F(Played, HearsOfCallsInLinesThatTheNextCallLeavesAlone)
{
    const Call c = {kAllReduce, KOLO_INT32, KOLO_SUM, 4, 0};
    std::vector<int32_t> in(4, 5), out(4);
    Low low;
    ASSERT_TRUE(ranks_.Bind(c, 0, &low));
    low.launch.ends.in = reinterpret_cast<uintptr_t>(in.data());
    low.launch.ends.out = reinterpret_cast<uintptr_t>(out.data());
    std::thread ahead([&] {
        for (int i = 1; i <= 7; i++) {
            EXPECT_TRUE(emulator::Run("kolo_ll_int32", low.launch, low.grid.blocks, kThreads));
            EXPECT_EQ(std::vector<int32_t>(4, 5 + 10 * i), out);
        }
    });
    for (uint32_t flag = 1; flag <= 7; flag++) {
        const uint64_t *last = Slot(1, flag - 1), *line = Slot(1, flag) + KOLO_LL_HEAD / 8;
        AwaitFlag(line + 3, flag);
        if (flag > 1) { // it is a call ahead: the last is not read yet
            EXPECT_EQ(flag - 1, Load(last) >> 32);
            EXPECT_EQ(flag - 1, Load(last + KOLO_LL_HEAD / 8) >> 32);
        }
        EXPECT_EQ(5u, static_cast<uint32_t>(Load(line)));
        Send(flag, 10 * flag);
    }
    ahead.join();
}

TEST_F(Played, IsWaitedForByTheRootOfABroadcast)
{
    const Call c = {kBroadcast, KOLO_INT32, KOLO_SUM, 4, 0};
    std::vector<int32_t> in(4, 5);
    Low low;
    ASSERT_TRUE(ranks_.Bind(c, 0, &low));
    low.launch.ends.in = low.launch.ends.out = reinterpret_cast<uintptr_t>(in.data());
    low.launch.ends.timeout_ns = 20000000;
    ranks_.Launch(c, {low});
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_TIMEOUT}, ranks_.Control(0)->record[0].status);
}

// ---- giving up ----------------------------------------------------------------------------------

class LowLatencyWaits : public testing::Test
{
  protected:
    LowLatencyWaits() : lows_(3)
    {
        for (int r = 0; r < 3; r++) {
            const auto at = static_cast<size_t>(r);
            EXPECT_TRUE(ranks_.Bind(call_, r, &lows_[at]));
            lows_[at].launch.ends.in = reinterpret_cast<uintptr_t>(in_);
            lows_[at].launch.ends.out = reinterpret_cast<uintptr_t>(out_[r]);
        }
    }
    const kolo_program_record &Record(int r, int slice = 0)
    {
        return ranks_.Control(r)->record[slice];
    }
    Ranks ranks_{3};
    Call call_ = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    std::vector<Low> lows_;
    int32_t in_[1000] = {}, out_[3][1000] = {};
};

TEST_F(LowLatencyWaits, ForARankThatNeverComesEndInTimeWithARecordOfIt)
{
    lows_[0].launch.ends.timeout_ns = lows_[1].launch.ends.timeout_ns = 50000000;
    ranks_.Launch(call_, {lows_[0], lows_[1]});
    ASSERT_EQ(2u, lows_[1].grid.blocks);
    for (int slice = 0; slice < 2; slice++) {
        EXPECT_EQ(uint32_t{KOLO_PROGRAM_TIMEOUT}, Record(1, slice).status);
        EXPECT_EQ(2u, Record(1, slice).rank) << "rank 0 has come";
        EXPECT_EQ(1u, Record(1, slice).epoch) << "the first call";
        EXPECT_EQ(0u, Record(1, slice).seen);
        EXPECT_EQ(UINT64_C(77) << 32 | 1, Record(1, slice).wanted);
    }
    // What was queued behind it does nothing, though all ranks come.
    std::fill(std::begin(in_), std::end(in_), 1);
    ranks_.Launch(call_, {lows_[0], lows_[1]});
    EXPECT_EQ(0, out_[1][0]);
}

TEST_F(LowLatencyWaits, EndWhenTheHostAborts)
{
    std::thread abort([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        __atomic_store_n(&ranks_.Control(0)->abort, 1, __ATOMIC_RELEASE);
    });
    ranks_.Launch(call_, {lows_[0]});
    abort.join();
    EXPECT_EQ(uint32_t{KOLO_PROGRAM_ABORTED}, Record(0).status);
}

TEST_F(LowLatencyWaits, SeeThatAnotherRankIsInAnotherCall)
{
    lows_[1].launch.ends.signature = 78;
    for (Low &low : lows_) {
        low.launch.ends.timeout_ns = 5000000000u;
    }
    ranks_.Launch(call_, lows_);
    for (int r = 0; r < 3; r++) {
        EXPECT_EQ(uint32_t{KOLO_PROGRAM_MISMATCH}, Record(r).status);
    }
    EXPECT_EQ(1u, Record(0).rank);
    EXPECT_EQ(78u, Record(2).seen >> 32);
}

TEST_F(LowLatencyWaits, SeeThatAnotherRankRunsAProgramOrHasCalledForBuffers)
{
    for (const int word : {1, int{KOLO_PROGRAM_MET}}) {
        Ranks ranks(3);
        const uint64_t told = UINT64_C(78) << 32 | 1;
        for (uint32_t slice = 0; slice < 2; slice++) {
            ranks.Slice(0, slice)->word[2][word] = told;
        }
        Low low;
        ASSERT_TRUE(ranks.Bind(call_, 0, &low));
        low.launch.ends.in = reinterpret_cast<uintptr_t>(in_);
        low.launch.ends.out = reinterpret_cast<uintptr_t>(out_[0]);
        ASSERT_TRUE(ranks.Bind(call_, 1, &lows_[1]));
        lows_[1].launch.ends.in = reinterpret_cast<uintptr_t>(in_);
        lows_[1].launch.ends.out = reinterpret_cast<uintptr_t>(out_[1]);
        lows_[1].launch.ends.timeout_ns = 50000000;
        ranks.Launch(call_, {low, lows_[1]});
        EXPECT_EQ(uint32_t{KOLO_PROGRAM_MISMATCH}, ranks.Control(0)->record[0].status);
        EXPECT_EQ(2u, ranks.Control(0)->record[0].rank);
        EXPECT_EQ(told, ranks.Control(0)->record[0].seen);
    }
}

TEST(LowLatencyKernels, AreThereForEveryPairThatMakesSense)
{
    peer_calls::ExpectKernels(kolo_ll_name, sizeof(kolo_ll_launch));
}

} // namespace
