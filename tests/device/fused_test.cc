// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/gpu/fused
// What the fused kernels compute, and how calls are cut for them, without any driver.
#include "../unit/reduce_reference.h"
#include "emulator.h"
extern "C" {
#include "exec/reduce/reduce.h"
#include "plan/plan.h"
}

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>

namespace
{

using reduce_reference::Bytes;
using reduce_reference::Fill;
using reduce_reference::kBytes;

constexpr unsigned kSms = 4;

kolo_coll_args ArgsOf(kolo_coll coll, kolo_type type, kolo_op op, size_t count)
{
    kolo_coll_args args = {};
    args.coll = coll;
    args.type = type;
    args.op = op;
    args.count = count;
    return args;
}

std::string Name(kolo_coll coll, kolo_type type, kolo_op op)
{
    char name[KOLO_FUSED_NAME];
    kolo_fused_name(coll, type, op, name);
    return name;
}

TEST(FusedKernels, ThereIsOneForEveryPairThatMakesSense)
{
    std::set<std::string> names;
    for (int type = 0; type < KOLO_TYPES; type++) {
        const auto t = static_cast<kolo_type>(type);
        for (kolo_op op = 0; op < KOLO_OPS; op++) {
            const std::string name = Name(KOLO_COLL_ALL_REDUCE, t, op);
            if (kolo_op_valid(t, op)) {
                EXPECT_TRUE(emulator::Has(name.c_str())) << name;
                names.insert(name);
            }
        }
        for (const kolo_coll coll : {KOLO_COLL_BROADCAST, KOLO_COLL_ALL_TO_ALL}) {
            EXPECT_TRUE(emulator::Has(Name(coll, t, KOLO_SUM).c_str())) << Name(coll, t, KOLO_SUM);
        }
        if (kolo_op_valid(t, KOLO_AVG)) {
            EXPECT_TRUE(emulator::Has(Name(KOLO_COLL_REDUCE, t, KOLO_OPS).c_str()));
        }
    }
    EXPECT_GT(names.size(), 60u);
}

// Buffers of `ranks` ranks that begin `shift` elements after a boundary of 16 bytes.
struct Buffers {
    Buffers(int ranks, size_t bytes, size_t shift_bytes) : shift(shift_bytes)
    {
        for (int r = 0; r < ranks; r++) {
            store.emplace_back(bytes + shift + 32, static_cast<uint8_t>(0xa5));
        }
    }
    uint8_t *At(int r)
    {
        uint8_t *start = store[static_cast<size_t>(r)].data();
        return start + (16 - reinterpret_cast<uintptr_t>(start) % 16) % 16 + shift;
    }
    size_t shift;
    std::vector<Bytes> store;
};

struct Case {
    kolo_type type;
    kolo_op op;
    int ranks;
    size_t count;
    size_t in_shift, out_shift; // elements
    size_t askew = 0;           // bytes more
};

void CheckAllReduce(const Case &c)
{
    const size_t elem = kBytes[c.type], bytes = c.count * elem;
    Buffers in(c.ranks, bytes, c.in_shift * elem + c.askew);
    Buffers out(c.ranks, bytes, c.out_shift * elem + c.askew);
    reduce_reference::Job job = {c.op, {}, c.count, elem, 0};
    kolo_fused_launch launch = {};
    for (int r = 0; r < c.ranks; r++) {
        const Bytes data = Fill(c.type, c.count, 100 * c.count + static_cast<uint64_t>(r));
        std::copy(data.begin(), data.end(), in.At(r));
        job.src.push_back(in.At(r));
        launch.rank[r].in = reinterpret_cast<uint64_t>(in.At(r));
        launch.rank[r].out = reinterpret_cast<uint64_t>(out.At(r));
    }
    job.divisor = c.op == KOLO_AVG ? static_cast<unsigned>(c.ranks) : 0;
    const Bytes expected = reduce_reference::Reference(c.type, job);
    const kolo_coll_args args = ArgsOf(KOLO_COLL_ALL_REDUCE, c.type, c.op, c.count);
    kolo_fused_lower(&args, c.ranks, kSms, &launch.call);
    const std::string name = Name(KOLO_COLL_ALL_REDUCE, c.type, c.op);
    ASSERT_TRUE(emulator::Run(name.c_str(), launch, kolo_fused_blocks(&launch.call, kSms), 32));
    for (int r = 0; r < c.ranks; r++) {
        ASSERT_EQ(0, memcmp(out.At(r), expected.data(), bytes))
            << name << " of " << c.ranks << " ranks, " << c.count << " elements, rank " << r;
        ASSERT_EQ(0xa5, out.At(r)[bytes]) << "written past the end by " << name;
    }
}

TEST(FusedKernels, GiveTheBitsOfTheReferenceForEveryTypeAndOperation)
{
    for (int type = 0; type < KOLO_TYPES; type++) {
        for (kolo_op op = 0; op < KOLO_OPS; op++) {
            if (!kolo_op_valid(static_cast<kolo_type>(type), op)) {
                continue;
            }
            for (const int ranks : {1, 2, 3, 5}) {
                CheckAllReduce({static_cast<kolo_type>(type), op, ranks, 1027, 0, 0});
                CheckAllReduce({static_cast<kolo_type>(type), op, ranks, 37, 1, 1});
                CheckAllReduce({static_cast<kolo_type>(type), op, ranks, 101, 0, 1});
            }
        }
    }
}

// As in C, a pair is aligned to its members, not to its size.
constexpr kolo_type kPairs[] = {KOLO_INT32_INT32, KOLO_INT64_INT64, KOLO_FLOAT32_INT32,
                                KOLO_FLOAT64_INT32};

TEST(FusedKernels, ReducePairsThatAreAlignedToTheirMembers)
{
    for (const kolo_type type : kPairs) {
        CheckAllReduce({type, KOLO_MINLOC, 3, 1027, 0, 0, kBytes[type] / 2});
        CheckAllReduce({type, KOLO_MAXLOC, 2, 101, 0, 1, kBytes[type] / 2});
    }
}

// Buffers that lie differently by 8, 4, 2 and 1 bytes: the packs are as wide as that allows.
TEST(FusedKernels, GiveTheSameBitsHoweverTheBuffersLie)
{
    for (const kolo_type type : {KOLO_UINT8, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_INT64}) {
        for (const size_t apart : {size_t{8}, size_t{4}, size_t{2}, size_t{1}}) {
            const size_t elements = apart / kBytes[type];
            if (elements > 0) {
                for (const size_t in_shift : {size_t{0}, size_t{1}, size_t{3}}) {
                    CheckAllReduce({type, KOLO_SUM, 3, 5003, in_shift, in_shift + elements});
                    CheckAllReduce({type, KOLO_SUM, 3, 3, in_shift, in_shift + elements});
                }
            }
        }
    }
}

TEST(FusedKernels, TakeLongCallsInManyPieces)
{
    for (const kolo_type type : {KOLO_INT8, KOLO_BFLOAT16, KOLO_FLOAT32, KOLO_FLOAT64_INT32}) {
        const kolo_op op = type == KOLO_FLOAT64_INT32 ? KOLO_MINLOC : KOLO_SUM;
        CheckAllReduce({type, op, 3, 100001, 1, 1});
        CheckAllReduce({type, op, 2, 65536, 0, 0});
    }
}

TEST(FusedKernels, ScaleEachInputByItsRanksFactorRoundedInItsType)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        const auto type = static_cast<kolo_type>(t);
        if (!kolo_op_valid(type, KOLO_AVG)) {
            continue;
        }
        constexpr int kRanks = 3;
        const size_t count = 515, elem = kBytes[type], bytes = count * elem;
        Buffers in(kRanks, bytes, 0), out(kRanks, bytes, 0), scaled(kRanks, bytes, 0);
        reduce_reference::Job job = {KOLO_SUM, {}, count, elem, 0};
        kolo_fused_launch launch = {};
        for (int r = 0; r < kRanks; r++) {
            const Bytes data = Fill(type, count, static_cast<uint64_t>(7 + r));
            const Bytes factor = Fill(type, 1, static_cast<uint64_t>(70 + r));
            std::copy(data.begin(), data.end(), in.At(r));
            kolo_scale(type, scaled.At(r), in.At(r), count, factor.data()); // tested by itself
            job.src.push_back(scaled.At(r));
            launch.rank[r].in = reinterpret_cast<uint64_t>(in.At(r));
            launch.rank[r].out = reinterpret_cast<uint64_t>(out.At(r));
            memcpy(&launch.rank[r].factor, factor.data(), elem);
        }
        const Bytes expected = reduce_reference::Reference(type, job);
        const kolo_coll_args args = ArgsOf(KOLO_COLL_ALL_REDUCE, type, KOLO_OPS, count);
        kolo_fused_lower(&args, kRanks, kSms, &launch.call);
        ASSERT_TRUE(
            emulator::Run(Name(KOLO_COLL_ALL_REDUCE, type, KOLO_OPS).c_str(), launch, 2, 32));
        EXPECT_EQ(0, memcmp(out.At(1), expected.data(), bytes)) << kolo_type_name(type);
    }
}

// ---- movement: every byte of a buffer says whose it is and where it was
// --------------------------

uint8_t Mark(int rank, size_t at)
{
    return static_cast<uint8_t>(static_cast<size_t>(rank) * 37 + at * 11 + at / 251);
}

struct Movement {
    kolo_coll coll;
    int ranks, root;
    size_t count; // elements
    kolo_type type;
    bool in_place;
    size_t askew = 0; // bytes from a boundary of 16
    size_t apart = 0; // bytes more, of the outputs
};

size_t InBytes(const Movement &m)
{
    const bool many = m.coll == KOLO_COLL_SCATTER || m.coll == KOLO_COLL_ALL_TO_ALL;
    return m.count * kBytes[m.type] * (many ? static_cast<size_t>(m.ranks) : 1);
}

size_t OutBytes(const Movement &m)
{
    const bool many = m.coll == KOLO_COLL_GATHER || m.coll == KOLO_COLL_ALL_GATHER ||
                      m.coll == KOLO_COLL_ALL_TO_ALL;
    return m.count * kBytes[m.type] * (many ? static_cast<size_t>(m.ranks) : 1);
}

// What byte `at` of rank r's OUT must be.
uint8_t Expected(const Movement &m, int r, size_t at)
{
    const size_t block = m.count * kBytes[m.type], own = static_cast<size_t>(r) * block;
    const int from = static_cast<int>(at / block);
    switch (m.coll) {
    case KOLO_COLL_BROADCAST:
        return Mark(m.root, at);
    case KOLO_COLL_SCATTER:
        return Mark(m.root, own + at);
    case KOLO_COLL_ALL_TO_ALL:
        return Mark(from, own + at % block);
    default: // gather, all_gather
        return Mark(from, at % block);
    }
}

void CheckMovement(const Movement &m)
{
    const size_t block = m.count * kBytes[m.type];
    const size_t room = std::max(InBytes(m), OutBytes(m));
    Buffers first(m.ranks, room, m.askew), second(m.ranks, room, m.askew + m.apart);
    kolo_fused_launch launch = {};
    for (int r = 0; r < m.ranks; r++) {
        const size_t own = static_cast<size_t>(r) * block;
        const bool gathers = m.coll == KOLO_COLL_GATHER || m.coll == KOLO_COLL_ALL_GATHER;
        const bool here =
            !(m.coll == KOLO_COLL_GATHER || m.coll == KOLO_COLL_SCATTER) || r == m.root;
        uint8_t *in = first.At(r), *out = m.in_place && here ? first.At(r) : second.At(r);
        in += m.in_place && here && gathers ? own : 0;
        out += m.in_place && here && m.coll == KOLO_COLL_SCATTER ? own : 0;
        for (size_t at = 0; at < InBytes(m); at++) {
            in[at] = Mark(r, at);
        }
        launch.rank[r].in = reinterpret_cast<uint64_t>(in);
        launch.rank[r].out = reinterpret_cast<uint64_t>(out);
    }
    kolo_coll_args args = ArgsOf(m.coll, m.type, KOLO_SUM, m.count);
    args.root = m.root;
    kolo_fused_lower(&args, m.ranks, kSms, &launch.call);
    ASSERT_TRUE(emulator::Run(Name(m.coll, m.type, KOLO_SUM).c_str(), launch,
                              kolo_fused_blocks(&launch.call, kSms), 64));
    for (int r = 0; r < m.ranks; r++) {
        const auto *out = reinterpret_cast<const uint8_t *>(launch.rank[r].out);
        for (size_t at = 0; at < OutBytes(m) && (m.coll != KOLO_COLL_GATHER || r == m.root); at++) {
            ASSERT_EQ(Expected(m, r, at), out[at])
                << kolo_coll_name(m.coll) << " of " << m.ranks << " ranks, " << m.count << " "
                << kolo_type_name(m.type) << ", root " << m.root << ", rank " << r << ", byte "
                << at;
        }
    }
}

TEST(FusedKernels, MoveEveryByteToItsPlaceApartAndInPlace)
{
    for (const kolo_coll coll : {KOLO_COLL_BROADCAST, KOLO_COLL_GATHER, KOLO_COLL_SCATTER,
                                 KOLO_COLL_ALL_GATHER, KOLO_COLL_ALL_TO_ALL}) {
        for (const int ranks : {1, 2, 3, 8}) {
            for (const size_t count : {1, 7, 64, 9001}) {
                for (const kolo_type type :
                     {KOLO_UINT8, KOLO_FLOAT16, KOLO_FLOAT32, KOLO_INT64_INT64}) {
                    CheckMovement({coll, ranks, ranks - 1, count, type, false});
                    CheckMovement({coll, ranks, ranks / 2, count, type, true});
                }
            }
        }
    }
}

TEST(FusedKernels, MovePairsThatAreAlignedToTheirMembers)
{
    for (const kolo_coll coll : {KOLO_COLL_BROADCAST, KOLO_COLL_ALL_TO_ALL}) {
        for (const kolo_type type : kPairs) {
            CheckMovement({coll, 3, 0, 1027, type, false, kBytes[type] / 2});
        }
    }
}

TEST(FusedKernels, MoveBetweenBuffersThatLieDifferently)
{
    for (const kolo_coll coll : {KOLO_COLL_BROADCAST, KOLO_COLL_ALL_GATHER, KOLO_COLL_ALL_TO_ALL}) {
        for (const kolo_type type : {KOLO_UINT8, KOLO_FLOAT16, KOLO_FLOAT32, KOLO_INT64}) {
            for (const size_t apart : {size_t{8}, size_t{4}, size_t{2}, size_t{1}}) {
                if (apart >= kBytes[type]) {
                    CheckMovement({coll, 3, 1, 5003, type, false, kBytes[type], apart});
                    CheckMovement({coll, 3, 1, 3, type, false, 0, apart});
                }
            }
        }
    }
}

TEST(FusedKernels, GatherBlocksOfDifferentLengthsToWhereTheyBelong)
{
    constexpr int kRanks = 4;
    size_t all[2 * kRanks] = {5, 0, 12000, 33, 12100, 0, 50, 0};
    const size_t *counts = all, *displs = all + kRanks;
    Buffers in(kRanks, 4 * 12000, 0), out(kRanks, 4 * 12200, 0);
    kolo_fused_launch launch = {};
    for (int r = 0; r < kRanks; r++) {
        for (size_t at = 0; at < 4 * counts[r]; at++) {
            in.At(r)[at] = Mark(r, at);
        }
        launch.rank[r].in = reinterpret_cast<uint64_t>(in.At(r));
        launch.rank[r].out = reinterpret_cast<uint64_t>(out.At(r));
    }
    kolo_coll_args args = ArgsOf(KOLO_COLL_ALL_GATHER, KOLO_FLOAT32, KOLO_SUM, 0);
    args.v.all = all;
    kolo_fused_lower(&args, kRanks, kSms, &launch.call);
    ASSERT_TRUE(emulator::Run("kolo_fused_copy_4", launch, 3, 64));
    for (int r = 0; r < kRanks; r++) {
        for (int q = 0; q < kRanks; q++) {
            for (size_t at = 0; at < 4 * counts[q]; at++) {
                ASSERT_EQ(Mark(q, at), out.At(r)[4 * displs[q] + at]) << r << " " << q << " " << at;
            }
        }
        EXPECT_EQ(0xa5, out.At(r)[4 * 40]) << "a gap between blocks was written";
    }
}

TEST(FusedLowering, CutsEveryCallIntoPiecesThatCoverItOnce)
{
    for (int coll = 0; coll < KOLO_COLL_BARRIER; coll++) {
        for (const int ranks : {1, 2, 7, int{KOLO_FUSED_RANKS}}) {
            for (const size_t count : {size_t{1}, size_t{4096}, size_t{100003}, size_t{1} << 33}) {
                const kolo_coll_args args =
                    ArgsOf(static_cast<kolo_coll>(coll), KOLO_FLOAT16, KOLO_SUM, count);
                kolo_fused f;
                kolo_fused_lower(&args, ranks, 132, &f);
                const uint64_t whole = (count + f.piece - 1) / f.piece;
                ASSERT_EQ(0u, f.piece * 2 % 16) << "pieces after the first would lie askew";
                ASSERT_EQ(f.npieces, whole * f.nmoves);
                EXPECT_LE(kolo_fused_blocks(&f, 132), 264u);
                EXPECT_GE(kolo_fused_blocks(&f, 132), 1u);
            }
        }
    }
}

// Blocks that have one piece more than the others hold up the whole call.
TEST(FusedLowering, GivesAllBlocksAlmostTheSameWork)
{
    constexpr unsigned kManySms = 132;
    for (const kolo_coll coll :
         {KOLO_COLL_ALL_REDUCE, KOLO_COLL_ALL_GATHER, KOLO_COLL_ALL_TO_ALL}) {
        for (const int ranks : {1, 2, 7, 8}) {
            for (size_t mib = 3; mib < 100; mib++) { // of all moves
                const auto n = static_cast<size_t>(ranks);
                const size_t moves = coll == KOLO_COLL_ALL_REDUCE   ? 1
                                     : coll == KOLO_COLL_ALL_GATHER ? n
                                                                    : n * (n + 1) / 2;
                const size_t bytes = mib << 20, count = bytes / 4 / moves;
                const kolo_coll_args args = ArgsOf(coll, KOLO_FLOAT32, KOLO_SUM, count);
                kolo_fused f;
                kolo_fused_lower(&args, ranks, kManySms, &f);
                const unsigned blocks = kolo_fused_blocks(&f, kManySms);
                const size_t most = (f.npieces + blocks - 1) / blocks; // pieces of a block
                const double share = static_cast<double>(bytes) / (2 * kManySms);
                EXPECT_LT(static_cast<double>(most * f.piece * 4), 1.16 * share)
                    << coll << " of " << ranks << " ranks, " << mib << " MiB";
            }
        }
    }
}

} // namespace
