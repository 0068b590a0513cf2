// SPDX-License-Identifier: Apache-2.0
// covers: src/nccl
// NCCL's names as a program sees them: ranks as threads, and all ranks in one thread's groups.
#include "place.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace
{

using place::Buffer;
using place::OnDevice;
using place::Place;

// ncclSuccess, or what went wrong.
testing::AssertionResult Good(ncclResult_t result)
{
    return result == ncclSuccess ? testing::AssertionSuccess()
                                 : testing::AssertionFailure() << ncclGetErrorString(result) << ": "
                                                               << ncclGetLastError(nullptr);
}

// The result, and a word of the sentence that goes with it. The sentence is the process's last one:
// only for calls beside which no other rank fails.
testing::AssertionResult Fails(ncclResult_t result, ncclResult_t expected, const char *word)
{
    const std::string text = ncclGetLastError(nullptr);
    if (result == expected && text.find(word) != std::string::npos) {
        return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "result " << result << ": " << text;
}

struct Rank {
    ncclComm_t comm;
    int rank, ranks;
    const Place &place;
};

ncclUniqueId NewId()
{
    ncclUniqueId id;
    EXPECT_TRUE(Good(ncclGetUniqueId(&id)));
    return id;
}

// A thread a rank, each with its place.
void Threads(int ranks, const std::function<void(int rank, const Place &place)> &body)
{
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; r++) {
        threads.emplace_back([&, r] {
            const Place place;
            body(r, place);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    place::FreeLeft();
}

// The same with a communicator of all, which the body may destroy: then it sets `comm` to null.
void Ranks(int ranks, const std::function<void(Rank &)> &body)
{
    const ncclUniqueId id = NewId();
    Threads(ranks, [&](int r, const Place &place) {
        Rank rank = {nullptr, r, ranks, place};
        ASSERT_TRUE(Good(ncclCommInitRank(&rank.comm, ranks, id, r)));
        body(rank);
        EXPECT_TRUE(Good(ncclCommDestroy(rank.comm)));
    });
}

// All ranks of this thread; `devices`: how many of them the ranks are spread over.
class Crew
{
  public:
    explicit Crew(int ranks, int devices = 1) : comms(static_cast<size_t>(ranks))
    {
        std::vector<int> list;
        for (int r = 0; r < ranks; r++) {
            list.push_back(r % devices);
            places.push_back(std::make_unique<Place>(r % devices));
        }
        EXPECT_TRUE(Good(ncclCommInitAll(comms.data(), ranks, list.data())));
    }
    ~Crew()
    {
        for (ncclComm_t comm : comms) {
            EXPECT_TRUE(Good(ncclCommDestroy(comm)));
        }
        while (!places.empty()) { // contexts are popped in the order they came
            places.pop_back();
        }
    }
    size_t Size() const
    {
        return comms.size();
    }
    // A call of each rank, in one group.
    testing::AssertionResult All(const std::function<ncclResult_t(size_t rank)> &call) const
    {
        EXPECT_TRUE(Good(ncclGroupStart()));
        for (size_t r = 0; r < comms.size(); r++) {
            EXPECT_TRUE(Good(call(r)));
        }
        const testing::AssertionResult result = Good(ncclGroupEnd());
        for (const auto &place : places) {
            place->Sync();
        }
        return result;
    }

    std::vector<ncclComm_t> comms;
    std::vector<std::unique_ptr<Place>> places;
};

int SumOf(const Rank &rank, int value)
{
    const Buffer buffer(sizeof value);
    buffer.Put(std::vector<int>{value});
    EXPECT_TRUE(Good(ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclInt, ncclSum, rank.comm,
                                   rank.place.Stream())));
    rank.place.Sync();
    return buffer.Take<int>()[0];
}

// ---- numbers -----------------------------------------------------------------------------------

struct Type {
    ncclDataType_t type;
    size_t bytes;
    uint64_t coded[7]; // 0 to 6
};
constexpr uint64_t kF32[] = {0,          0x3f800000, 0x40000000, 0x40400000,
                             0x40800000, 0x40a00000, 0x40c00000};
const Type kTypes[] = {
    {ncclInt8, 1, {0, 1, 2, 3, 4, 5, 6}},
    {ncclUint8, 1, {0, 1, 2, 3, 4, 5, 6}},
    {ncclInt32, 4, {0, 1, 2, 3, 4, 5, 6}},
    {ncclUint32, 4, {0, 1, 2, 3, 4, 5, 6}},
    {ncclInt64, 8, {0, 1, 2, 3, 4, 5, 6}},
    {ncclUint64, 8, {0, 1, 2, 3, 4, 5, 6}},
    {ncclFloat16, 2, {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600}},
    {ncclFloat32, 4, {kF32[0], kF32[1], kF32[2], kF32[3], kF32[4], kF32[5], kF32[6]}},
    {ncclFloat64,
     8,
     {0, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000, 0x4010000000000000,
      0x4014000000000000, 0x4018000000000000}},
    {ncclBfloat16,
     2,
     {0, kF32[1] >> 16, kF32[2] >> 16, kF32[3] >> 16, kF32[4] >> 16, kF32[5] >> 16, kF32[6] >> 16}},
    {ncclFloat8e4m3, 1, {0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c}},
    {ncclFloat8e5m2, 1, {0, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46}},
};

std::vector<uint8_t> Code(const Type &type, const std::vector<int> &values)
{
    std::vector<uint8_t> bytes(values.size() * type.bytes);
    for (size_t i = 0; i < values.size(); i++) {
        memcpy(&bytes[i * type.bytes], &type.coded[values[i]], type.bytes);
    }
    return bytes;
}

int Result(ncclRedOp_t op, int a, int b)
{
    switch (op) {
    case ncclSum:
        return a + b;
    case ncclProd:
        return a * b;
    case ncclMax:
        return std::max(a, b);
    case ncclMin:
        return std::min(a, b);
    default:
        return (a + b) / 2;
    }
}

TEST(Nccl, AllTypesAndOperationsReduceToTheRightNumbers)
{
    Ranks(2, [](Rank &rank) {
        constexpr size_t kCount = 37;
        for (const Type &type : kTypes) {
            for (int op = ncclSum; op < ncclNumOps; op++) {
                SCOPED_TRACE(testing::Message() << "type " << type.type << " op " << op);
                const int other = op == ncclAvg ? 3 : 2;
                std::vector<int> mine, want;
                for (size_t i = 0; i < kCount; i++) {
                    const bool odd = (i + static_cast<size_t>(rank.rank)) % 2 != 0;
                    mine.push_back(odd ? 1 : other);
                    want.push_back(Result(static_cast<ncclRedOp_t>(op), 1, other));
                }
                const Buffer in(kCount * type.bytes), out(kCount * type.bytes);
                in.Put(Code(type, mine));
                ASSERT_TRUE(Good(ncclAllReduce(in.Get(), out.Get(), kCount, type.type,
                                               static_cast<ncclRedOp_t>(op), rank.comm,
                                               rank.place.Stream())));
                rank.place.Sync();
                EXPECT_EQ(Code(type, want), out.Take<uint8_t>());
            }
        }
    });
}

// ---- every call --------------------------------------------------------------------------------

// Block q of rank r's input is 10 r + q, in every element.
struct Moves {
    explicit Moves(const Rank &rank)
        : n(static_cast<size_t>(rank.ranks)), in(n * kCount * 4), out(n * kCount * 4)
    {
        std::vector<int> values;
        for (size_t q = 0; q < n; q++) {
            values.insert(values.end(), kCount, 10 * rank.rank + static_cast<int>(q));
        }
        in.Put(values);
        out.Put(std::vector<int>(n * kCount, -1));
    }
    void Expect(const std::vector<int> &blocks) const
    {
        std::vector<int> want;
        for (int value : blocks) {
            want.insert(want.end(), kCount, value);
        }
        want.resize(n * kCount, -1);
        EXPECT_EQ(want, out.Take<int>());
    }
    static constexpr size_t kCount = 5;
    size_t n;
    Buffer in, out;
};

TEST(Nccl, EveryCollectiveMovesWhatItShould)
{
    Ranks(3, [](Rank &rank) {
        const int r = rank.rank, root = 2;
        const ncclComm_t comm = rank.comm;
        const cudaStream_t stream = rank.place.Stream();
        const auto check = [&](const char *name, std::vector<int> blocks, auto call) {
            SCOPED_TRACE(name);
            const Moves moves(rank);
            EXPECT_TRUE(Good(call(moves.in.Get(), moves.out.Get())));
            rank.place.Sync();
            moves.Expect(blocks);
        };
        constexpr size_t kCount = Moves::kCount;
        using Blocks = std::vector<int>;
        check("ncclAllReduce", {30}, [&](void *in, void *out) {
            return ncclAllReduce(in, out, kCount, ncclInt, ncclSum, comm, stream);
        });
        check("ncclReduce", r == root ? Blocks{30} : Blocks{}, [&](void *in, void *out) {
            return ncclReduce(in, r == root ? out : nullptr, kCount, ncclInt, ncclSum, root, comm,
                              stream);
        });
        check("ncclBroadcast", {20}, [&](void *in, void *out) {
            return ncclBroadcast(in, out, kCount, ncclInt, root, comm, stream);
        });
        check("ncclReduceScatter", {30 + 3 * r}, [&](void *in, void *out) {
            return ncclReduceScatter(in, out, kCount, ncclInt, ncclSum, comm, stream);
        });
        check("ncclAllGather", {0, 10, 20}, [&](void *in, void *out) {
            return ncclAllGather(in, out, kCount, ncclInt, comm, stream);
        });
        check("ncclAlltoAll", {r, 10 + r, 20 + r}, [&](void *in, void *out) {
            return ncclAlltoAll(in, out, kCount, ncclInt, comm, stream);
        });
        check("ncclGather", r == root ? Blocks{0, 10, 20} : Blocks{}, [&](void *in, void *out) {
            return ncclGather(in, r == root ? out : nullptr, kCount, ncclInt, root, comm, stream);
        });
        check("ncclScatter", {20 + r}, [&](void *in, void *out) {
            return ncclScatter(r == root ? in : nullptr, out, kCount, ncclInt, root, comm, stream);
        });
        const Buffer same(4);
        same.Put(std::vector<int>{r});
        EXPECT_TRUE(Good(ncclBcast(same.Get(), 1, ncclInt, root, comm, stream)));
        rank.place.Sync();
        EXPECT_EQ(std::vector<int>{root}, same.Take<int>());
    });
}

TEST(Nccl, SendsAndReceivesOfAGroupMeet)
{
    Ranks(2, [](Rank &rank) {
        const Buffer out(4), in(4);
        const int peer = 1 - rank.rank;
        out.Put(std::vector<int>{rank.rank + 7});
        EXPECT_TRUE(Good(ncclGroupStart()));
        EXPECT_TRUE(Good(ncclSend(out.Get(), 1, ncclInt, peer, rank.comm, rank.place.Stream())));
        EXPECT_TRUE(Good(ncclRecv(in.Get(), 1, ncclInt, peer, rank.comm, rank.place.Stream())));
        EXPECT_TRUE(Good(ncclGroupEnd()));
        rank.place.Sync();
        EXPECT_EQ(std::vector<int>{peer + 7}, in.Take<int>());
    });
}

// ---- one thread --------------------------------------------------------------------------------

TEST(NcclGroup, OneThreadBringsTheCallsOfAllRanks)
{
    const Crew crew(3);
    std::vector<std::unique_ptr<Buffer>> in, out;
    for (int r = 0; r < 3; r++) {
        in.push_back(std::make_unique<Buffer>(8));
        out.push_back(std::make_unique<Buffer>(24));
        in.back()->Put(std::vector<int>{r, 1});
    }
    EXPECT_TRUE(crew.All([&](size_t r) { // groups nest
        EXPECT_TRUE(Good(ncclGroupStart()));
        EXPECT_TRUE(Good(ncclAllGather(in[r]->Get(), out[r]->Get(), 2, ncclInt, crew.comms[r],
                                       crew.places[r]->Stream())));
        return ncclGroupEnd();
    }));
    EXPECT_TRUE(crew.All([&](size_t r) {
        return ncclAllReduce(in[r]->Get(), in[r]->Get(), 2, ncclInt, ncclSum, crew.comms[r],
                             crew.places[r]->Stream());
    }));
    for (size_t r = 0; r < crew.Size(); r++) {
        EXPECT_EQ((std::vector<int>{0, 1, 1, 1, 2, 1}), out[r]->Take<int>());
        EXPECT_EQ((std::vector<int>{3, 3}), in[r]->Take<int>());
        int rank = -1, count = -1, device = -1;
        EXPECT_TRUE(Good(ncclCommUserRank(crew.comms[r], &rank)));
        EXPECT_TRUE(Good(ncclCommCount(crew.comms[r], &count)));
        EXPECT_TRUE(Good(ncclCommCuDevice(crew.comms[r], &device)));
        EXPECT_EQ(static_cast<int>(r), rank);
        EXPECT_EQ(3, count);
        EXPECT_EQ(0, device);
    }
}

TEST(NcclGroup, RanksOfOneThreadOnTwoDevicesSendToEachOther)
{
    const Crew crew(2, 2);
    std::vector<std::unique_ptr<Buffer>> in, out;
    for (int r = 0; r < 2; r++) {
        const Place place(r);
        in.push_back(std::make_unique<Buffer>(4));
        out.push_back(std::make_unique<Buffer>(4));
        out.back()->Put(std::vector<int>{r + 7});
        int device = -1;
        EXPECT_TRUE(Good(ncclCommCuDevice(crew.comms[static_cast<size_t>(r)], &device)));
        EXPECT_EQ(r, device);
    }
    EXPECT_TRUE(crew.All([&](size_t r) {
        const int peer = 1 - static_cast<int>(r);
        const cudaStream_t stream = crew.places[r]->Stream();
        EXPECT_TRUE(Good(ncclSend(out[r]->Get(), 1, ncclInt, peer, crew.comms[r], stream)));
        return ncclRecv(in[r]->Get(), 1, ncclInt, peer, crew.comms[r], stream);
    }));
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(std::vector<int>{8 - r}, in[static_cast<size_t>(r)]->Take<int>());
    }
}

TEST(NcclGroup, OneThreadBringsUpAllRanksAndSplitsThem)
{
    constexpr int kRanks = 4;
    const Place place;
    const ncclUniqueId id = NewId();
    ncclComm_t comms[kRanks], halves[kRanks];
    EXPECT_TRUE(Good(ncclGroupStart()));
    for (int r = 0; r < kRanks; r++) {
        EXPECT_TRUE(Good(ncclCommInitRank(&comms[r], kRanks, id, r)));
    }
    ASSERT_TRUE(Good(ncclGroupEnd()));
    EXPECT_TRUE(Good(ncclGroupStart()));
    for (int r = 0; r < kRanks; r++) {
        const int color = r == 3 ? NCCL_SPLIT_NOCOLOR : r % 2;
        EXPECT_TRUE(Good(ncclCommSplit(comms[r], color, -r, &halves[r], nullptr)));
    }
    ASSERT_TRUE(Good(ncclGroupEnd()));
    EXPECT_EQ(nullptr, halves[3]);
    const int counts[] = {2, 1, 2}, ranks[] = {1, 0, 0};
    for (int r = 0; r < 3; r++) {
        int rank = -1, count = -1;
        EXPECT_TRUE(Good(ncclCommUserRank(halves[r], &rank)));
        EXPECT_TRUE(Good(ncclCommCount(halves[r], &count)));
        EXPECT_EQ(counts[r], count);
        EXPECT_EQ(ranks[r], rank);
        EXPECT_TRUE(Good(ncclCommDestroy(halves[r])));
    }
    for (ncclComm_t comm : comms) {
        EXPECT_TRUE(Good(ncclCommDestroy(comm)));
    }
}

TEST(NcclGroup, EndsWithTheFirstErrorOfItsCalls)
{
    const Crew crew(1);
    const Buffer buffer(8);
    EXPECT_TRUE(Good(ncclGroupStart()));
    EXPECT_TRUE(Fails(ncclAllReduce(buffer.Get(), buffer.Get(), 1, static_cast<ncclDataType_t>(99),
                                    ncclSum, crew.comms[0], crew.places[0]->Stream()),
                      ncclInvalidArgument, "99"));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_TRUE(Fails(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupStart"));
    const ncclUniqueId id = NewId(); // whose rank 1 does not come: rank 0 must not wait for it
    ncclComm_t comms[2] = {nullptr, nullptr};
    EXPECT_TRUE(Good(ncclGroupStart()));
    EXPECT_TRUE(Good(ncclCommInitRank(&comms[0], 2, id, 0)));
    EXPECT_TRUE(Fails(ncclCommInitRank(&comms[1], 2, id, 2), ncclInvalidArgument, "rank 2"));
    EXPECT_EQ(ncclInvalidArgument, ncclGroupEnd());
    EXPECT_EQ(nullptr, comms[0]);
    EXPECT_TRUE(Good(ncclGroupStart()));
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    EXPECT_TRUE(Fails(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "ncclGroupSimulateEnd"));
    EXPECT_TRUE(Good(ncclGroupEnd()));
}

// ---- operations --------------------------------------------------------------------------------

TEST(NcclOp, ScalesEachInputByItsRanksScalar)
{
    Ranks(2, [](Rank &rank) {
        for (const ncclScalarResidence_t residence : {ncclScalarHostImmediate, ncclScalarDevice}) {
            for (const bool grouped : {false, true}) {
                SCOPED_TRACE(testing::Message() << residence << grouped);
                const Buffer scalar(4), buffer(8);
                float host = rank.rank == 0 ? 1.0F : 2.0F;
                ncclRedOp_t op;
                scalar.Put(std::vector<float>{host});
                buffer.Put(std::vector<float>{1, 10});
                ASSERT_TRUE(Good(ncclRedOpCreatePreMulSum(
                    &op, residence == ncclScalarDevice ? scalar.Get() : &host, ncclFloat, residence,
                    rank.comm)));
                host = 0;
                if (grouped) {
                    EXPECT_TRUE(Good(ncclGroupStart()));
                }
                EXPECT_TRUE(Good(ncclAllReduce(buffer.Get(), buffer.Get(), 2, ncclFloat, op,
                                               rank.comm, rank.place.Stream())));
                EXPECT_TRUE(Good(ncclRedOpDestroy(op, rank.comm)));
                if (grouped) {
                    EXPECT_TRUE(Good(ncclGroupEnd()));
                }
                rank.place.Sync();
                EXPECT_EQ((std::vector<float>{3, 30}), buffer.Take<float>());
                EXPECT_TRUE(Fails(ncclAllReduce(buffer.Get(), buffer.Get(), 2, ncclFloat, op,
                                                rank.comm, rank.place.Stream()),
                                  ncclInvalidArgument, "created on comm"));
            }
        }
    });
}

TEST(NcclOp, OfADeviceIsReadAnewByEachCall)
{
    const Crew crew(1);
    const Buffer scalar(4), buffer(4);
    ncclRedOp_t op;
    ASSERT_TRUE(Good(
        ncclRedOpCreatePreMulSum(&op, scalar.Get(), ncclInt, ncclScalarDevice, crew.comms[0])));
    for (int factor = 2; factor < 4; factor++) {
        scalar.Put(std::vector<int>{factor});
        buffer.Put(std::vector<int>{5});
        EXPECT_TRUE(Good(ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclInt, op, crew.comms[0],
                                       crew.places[0]->Stream())));
        crew.places[0]->Sync();
        EXPECT_EQ(std::vector<int>{5 * factor}, buffer.Take<int>());
    }
    EXPECT_TRUE(Fails(ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclFloat, op, crew.comms[0],
                                    crew.places[0]->Stream()),
                      ncclInvalidArgument, "int32"));
}

// ---- communicators -----------------------------------------------------------------------------

// Wait until a communicator that does not block is up or down.
ncclResult_t Settled(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress && ncclCommGetAsyncError(comm, &state) == ncclSuccess) {
        std::this_thread::yield();
    }
    return state;
}

TEST(NcclComm, ThatDoesNotBlockComesUpSplitsAndGoesDownInTheBackground)
{
    const ncclUniqueId id = NewId();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = "background";
    std::atomic<int> begun{0};
    Threads(2, [&](int r, const Place &place) {
        Rank rank = {nullptr, r, 2, place};
        int count = 0;
        while (r == 1 && begun == 0) { // so that rank 0 is seen to wait
            std::this_thread::yield();
        }
        ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&rank.comm, 2, id, r, &config));
        if (r == 0) {
            EXPECT_TRUE(Fails(ncclCommCount(rank.comm, &count), ncclInvalidArgument, "progress"));
            begun = 1;
        }
        ASSERT_EQ(ncclSuccess, Settled(rank.comm));
        EXPECT_EQ(3, SumOf(rank, r + 1));
        ncclComm_t alone = nullptr;
        ASSERT_EQ(ncclInProgress, ncclCommSplit(rank.comm, r, 0, &alone, nullptr));
        ASSERT_EQ(ncclSuccess, Settled(alone));
        EXPECT_TRUE(Good(ncclCommCount(alone, &count)));
        EXPECT_EQ(1, count);
        ASSERT_EQ(ncclSuccess, Settled(rank.comm));
        EXPECT_EQ(ncclInProgress, ncclCommFinalize(rank.comm));
        EXPECT_EQ(ncclSuccess, Settled(rank.comm));
        EXPECT_TRUE(Good(ncclCommDestroy(rank.comm)));
        EXPECT_TRUE(Good(ncclCommDestroy(alone)));
    });
}

TEST(NcclComm, OfOneThreadThatDoNotBlockComeUpAfterTheirGroup)
{
    const Place place;
    const ncclUniqueId ids[] = {NewId(), NewId()};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comms[2][2];
    config.blocking = 0;
    EXPECT_TRUE(Good(ncclGroupStart()));
    for (int i = 0; i < 2; i++) { // two communicators, in another order by each rank
        for (int r = 0; r < 2; r++) {
            ncclComm_t *comm = &comms[r == 0 ? i : 1 - i][r];
            const ncclUniqueId id = ids[r == 0 ? i : 1 - i];
            const ncclResult_t begun = ncclCommInitRankConfig(comm, 2, id, r, &config);
            EXPECT_TRUE(begun == ncclSuccess || begun == ncclInProgress) << begun;
        }
    }
    EXPECT_EQ(ncclInProgress, ncclGroupEnd());
    for (const auto &comm : comms) {
        for (int r = 0; r < 2; r++) {
            int rank = -1;
            ASSERT_EQ(ncclSuccess, Settled(comm[r]));
            EXPECT_TRUE(Good(ncclCommUserRank(comm[r], &rank)));
            EXPECT_EQ(r, rank);
        }
        for (int r = 0; r < 2; r++) {
            EXPECT_TRUE(Good(ncclCommDestroy(comm[r])));
        }
    }
}

TEST(NcclComm, IsAbortedWhileItWaitsForRanksThatDoNotCome)
{
    const Place place;
    const ncclUniqueId id = NewId();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = nullptr;
    config.blocking = 0;
    ASSERT_EQ(ncclInProgress, ncclCommInitRankConfig(&comm, 2, id, 0, &config));
    EXPECT_TRUE(Good(ncclCommAbort(comm)));
}

// The layouts of other versions, byte for byte.
TEST(NcclComm, TakesConfigurationsOfOtherVersions)
{
    struct Head {
        size_t size;
        unsigned magic, version;
        int blocking;
    };
    const Place place;
    for (const auto &[size, version] : {std::pair<size_t, unsigned>{24, 21400},
                                        {40, 21700},
                                        {48, 21800},
                                        {48, 22600},
                                        {sizeof(ncclConfig_t), 22809},
                                        {256, 23007}}) {
        SCOPED_TRACE(version);
        std::vector<char> bytes(256, '\xff');
        const Head head = {size, 0xcafebeef, version, INT_MIN};
        memcpy(bytes.data(), &head, sizeof head);
        if (version >= 22700) {
            std::fill_n(bytes.begin() + offsetof(ncclConfig_t, commName), sizeof(char *), '\0');
        }
        auto *config = reinterpret_cast<ncclConfig_t *>(bytes.data());
        ncclComm_t comm = nullptr;
        EXPECT_TRUE(Good(ncclCommInitRankConfig(&comm, 1, NewId(), 0, config)));
        EXPECT_TRUE(Good(ncclCommDestroy(comm)));
        config->blocking = 2;
        EXPECT_TRUE(Fails(ncclCommInitRankConfig(&comm, 1, NewId(), 0, config), ncclInvalidArgument,
                          "blocking is 2"));
        config->magic = 0;
        EXPECT_TRUE(Fails(ncclCommInitRankConfig(&comm, 1, NewId(), 0, config), ncclInvalidArgument,
                          "NCCL_CONFIG_INITIALIZER"));
    }
}

TEST(NcclComm, OfSeveralIdsMeetsAtTheFirst)
{
    ncclUniqueId ids[] = {NewId(), NewId()};
    Threads(2, [&](int r, const Place &place) {
        Rank rank = {nullptr, r, 2, place};
        ASSERT_TRUE(Good(ncclCommInitRankScalable(&rank.comm, 2, r, 2, ids, nullptr)));
        EXPECT_EQ(3, SumOf(rank, r + 1));
        EXPECT_TRUE(Good(ncclCommDestroy(rank.comm)));
    });
}

TEST(NcclComm, ShrinksToTheRanksThatAreLeft)
{
    for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
        Ranks(3, [&](Rank &rank) {
            int excluded[] = {1};
            Rank part = {nullptr, 0, 2, rank.place};
            EXPECT_EQ(3, SumOf(rank, 1));
            if (rank.rank == 1) {
                return;
            }
            ASSERT_TRUE(Good(ncclCommShrink(rank.comm, excluded, 1, &part.comm, nullptr, flags)));
            EXPECT_EQ(20, SumOf(part, 10 * rank.rank));
            EXPECT_TRUE(Good(ncclCommDestroy(part.comm)));
        });
    }
}

TEST(NcclComm, ThatIsAbortedReleasesTheRanksThatWait)
{
    const ncclUniqueId id = NewId();
    Threads(2, [&](int r, const Place &place) {
        Rank rank = {nullptr, r, 2, place};
        const Buffer buffer(4);
        ncclResult_t state = ncclSuccess;
        ASSERT_TRUE(Good(ncclCommInitRank(&rank.comm, 2, id, r)));
        EXPECT_EQ(2, SumOf(rank, 1));
        if (r == 0) {
            EXPECT_TRUE(Good(ncclCommAbort(rank.comm)));
            return;
        }
        const ncclResult_t result = ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclInt, ncclSum,
                                                  rank.comm, place.Stream());
        EXPECT_TRUE(result == ncclRemoteError || (OnDevice() && result == ncclSuccess)) << result;
        place.Sync();
        while (state == ncclSuccess) {
            ASSERT_TRUE(Good(ncclCommGetAsyncError(rank.comm, &state)));
        }
        EXPECT_EQ(ncclRemoteError, state);
        EXPECT_STRNE("", ncclGetLastError(rank.comm));
        EXPECT_TRUE(Good(ncclCommDestroy(rank.comm)));
    });
}

// On the host such a call is inside kolo when its communicator goes.
TEST(NcclComm, IsAbortedByAThreadWhileAnotherIsInside)
{
    const ncclUniqueId id = NewId();
    Threads(2, [&](int r, const Place &place) {
        Rank rank = {nullptr, r, 2, place};
        const Buffer buffer(4);
        ASSERT_TRUE(Good(ncclCommInitRank(&rank.comm, 2, id, r)));
        EXPECT_EQ(2, SumOf(rank, 1));
        if (r == 1) { // never comes; destroyed at once, it would be dead to rank 0
            ncclResult_t state = ncclSuccess;
            while (state == ncclSuccess) {
                ASSERT_TRUE(Good(ncclCommGetAsyncError(rank.comm, &state)));
            }
            EXPECT_TRUE(Good(ncclCommAbort(rank.comm)));
            return;
        }
        std::atomic<bool> calls{false};
        std::thread watchdog([&] {
            while (!calls) {
                std::this_thread::yield();
            }
            EXPECT_TRUE(Good(ncclCommAbort(rank.comm)));
        });
        calls = true;
        const ncclResult_t result = ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclInt, ncclSum,
                                                  rank.comm, place.Stream());
        watchdog.join();
        EXPECT_TRUE(result == ncclRemoteError || result == ncclInvalidUsage ||
                    (OnDevice() && result == ncclSuccess))
            << result << ": " << ncclGetLastError(nullptr);
        place.Sync();
    });
}

TEST(NcclComm, ThatIsRevokedCanOnlyShrinkAndGo)
{
    Ranks(2, [](Rank &rank) {
        const Buffer buffer(4);
        ncclComm_t part = nullptr;
        ncclResult_t state = ncclInternalError;
        EXPECT_EQ(2, SumOf(rank, 1));
        EXPECT_EQ(ncclInvalidArgument, ncclCommRevoke(rank.comm, 1));
        EXPECT_TRUE(Good(ncclCommRevoke(rank.comm, NCCL_REVOKE_DEFAULT)));
        EXPECT_TRUE(Good(ncclCommGetAsyncError(rank.comm, &state)));
        EXPECT_EQ(ncclSuccess, state);
        EXPECT_EQ(ncclInvalidUsage, ncclAllReduce(buffer.Get(), buffer.Get(), 1, ncclInt, ncclSum,
                                                  rank.comm, rank.place.Stream()));
        EXPECT_EQ(ncclInvalidUsage, ncclCommFinalize(rank.comm));
        ASSERT_TRUE(
            Good(ncclCommShrink(rank.comm, nullptr, 0, &part, nullptr, NCCL_SHRINK_DEFAULT)));
        EXPECT_EQ(2, SumOf({part, rank.rank, 2, rank.place}, 1));
        EXPECT_TRUE(Good(ncclCommDestroy(part)));
    });
}

// ---- memory ------------------------------------------------------------------------------------

TEST(NcclMemory, RegistersAndMakesWindowsWithoutAWord)
{
    Ranks(2, [](Rank &rank) {
        const Buffer buffer(4096);
        void *handle = nullptr;
        ncclWindow_t window = nullptr;
        ASSERT_TRUE(Good(ncclCommRegister(rank.comm, buffer.Get(), 4096, &handle)));
        ASSERT_TRUE(Good(ncclCommWindowRegister(rank.comm, buffer.Get(), 4096, &window,
                                                NCCL_WIN_COLL_SYMMETRIC)));
        EXPECT_EQ(3, SumOf(rank, rank.rank + 1));
        EXPECT_TRUE(Good(ncclCommWindowDeregister(rank.comm, window)));
        EXPECT_TRUE(Good(ncclCommDeregister(rank.comm, handle)));
        if (rank.rank == 0) { /* the last error is the process's: one thread reads it */
            EXPECT_TRUE(Fails(ncclCommWindowRegister(rank.comm, buffer.Get(), 1, &window, 64),
                              ncclInvalidArgument, "winFlags is 64"));
            EXPECT_TRUE(Fails(ncclCommRegister(rank.comm, nullptr, 1, &handle), ncclInvalidArgument,
                              "ncclCommRegister"));
        }
        void *none = &none;
        EXPECT_TRUE(Good(ncclMemAlloc(&none, 0)));
        EXPECT_EQ(nullptr, none);
        EXPECT_TRUE(Good(ncclMemFree(nullptr)));
    });
}

// ---- what is wrong, and what is not there ------------------------------------------------------

TEST(NcclErrors, NameWhatIsWrong)
{
    const Crew crew(2);
    const Buffer buffer(8);
    void *at = buffer.Get();
    const ncclComm_t comm = crew.comms[0];
    const cudaStream_t stream = crew.places[0]->Stream();
    ncclUniqueId id;
    ncclComm_t out = nullptr;
    int value = 0;
    memset(&id, 0, sizeof id);
    EXPECT_TRUE(Fails(ncclAllReduce(at, at, 1, ncclInt, ncclSum, nullptr, stream),
                      ncclInvalidArgument, "comm"));
    EXPECT_TRUE(Fails(ncclAllReduce(at, at, 1, ncclInt, static_cast<ncclRedOp_t>(7), comm, stream),
                      ncclInvalidArgument, "op is 7"));
    EXPECT_TRUE(Fails(ncclBroadcast(at, at, 1, ncclInt, 2, comm, stream), ncclInvalidArgument,
                      "root is 2"));
    EXPECT_TRUE(Fails(ncclSend(at, 1, ncclInt, 5, comm, stream), ncclInvalidArgument, "peer is 5"));
    EXPECT_TRUE(Fails(ncclCommInitRank(&out, 2, id, 0), ncclInvalidArgument, "id"));
    EXPECT_EQ(nullptr, out);
    EXPECT_TRUE(Fails(ncclCommInitRank(&out, 2, id, 2), ncclInvalidArgument, "rank 2"));
    EXPECT_TRUE(Fails(ncclCommInitAll(&out, 0, nullptr), ncclInvalidArgument, "ndev 0"));
    EXPECT_TRUE(Fails(ncclCommCount(comm, nullptr), ncclInvalidArgument, "ncclCommCount"));
    EXPECT_TRUE(Fails(ncclCommCount(nullptr, &value), ncclInvalidArgument, "ncclCommCount"));
    EXPECT_TRUE(Fails(ncclGetUniqueId(nullptr), ncclInvalidArgument, "uniqueId"));
    EXPECT_TRUE(Fails(ncclCommSplit(comm, -2, 0, &out, nullptr), ncclInvalidArgument, "-2"));
    EXPECT_TRUE(Fails(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, "op is 0"));
    EXPECT_TRUE(Fails(ncclCommRevoke(comm, 1), ncclInvalidArgument, "revokeFlags"));
    EXPECT_TRUE(Good(ncclCommDestroy(nullptr)));
    EXPECT_TRUE(Good(ncclCommAbort(nullptr)));
}

TEST(NcclErrors, HaveAnotherTextEach)
{
    std::vector<std::string> texts;
    for (int result = 0; result <= ncclNumResults; result++) {
        const std::string text = ncclGetErrorString(static_cast<ncclResult_t>(result));
        EXPECT_EQ(0, std::count(texts.begin(), texts.end(), text)) << text;
        texts.push_back(text);
    }
}

TEST(NcclNames, OfWhatKoloLacksSaySo)
{
    for (const char *name :
         {"ncclCommGrow", "pncclDevCommCreate", "ncclPutSignal", "ncclAllReduceConfig"}) {
        void *found = dlsym(RTLD_DEFAULT, name);
        ASSERT_NE(nullptr, found) << name;
        ncclResult_t (*call)(void *, void *);
        memcpy(&call, &found, sizeof call);
        EXPECT_TRUE(Fails(call(nullptr, nullptr), ncclInvalidUsage, name + (name[0] == 'p')));
    }
}

TEST(NcclNames, TellTheVersionThatTheHeaderHas)
{
    int version = 0;
    EXPECT_TRUE(Good(ncclGetVersion(&version)));
    EXPECT_EQ(NCCL_VERSION_CODE, version);
    EXPECT_EQ(22809, version);
    EXPECT_TRUE(Fails(ncclGetVersion(nullptr), ncclInvalidArgument, "version"));
}

} // namespace
