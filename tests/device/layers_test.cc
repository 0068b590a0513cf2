// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/hier
// Communicators of threads on several GPUs, several on each, over the driver of fake_cuda.cc with
// four GPUs: calls inside groups and between them.
#include "gpu_threads.h"
#include "layer_calls.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

namespace
{

using namespace layer_calls;

size_t Copied()
{
    return Find<size_t()>("FakeCudaCopied")();
}

using Layered = GpuThreads;

struct Buffers { // of all ranks on their GPUs
    Buffers(const Call &c, const Layered &layered, const std::vector<Bytes> &inputs, bool in_place)
        : call(c), host(inputs)
    {
        const size_t bytes = host[0].size();
        for (size_t r = 0; r < host.size(); r++) {
            in.emplace_back(bytes, layered.Gpus()[r]);
            out.emplace_back(bytes, layered.Gpus()[r]);
            shift.push_back(in_place ? InPlaceShift(c, static_cast<int>(r)) : Shift());
            in[r].Put(host[r].data(), bytes);
            out[r].Put(Bytes(bytes, 0x5a).data(), bytes);
        }
        one = in_place;
    }
    kolo_status Make(int r, kolo_comm *comm, void *stream) const
    {
        const auto at = static_cast<size_t>(r);
        const Memory &to = one ? in[at] : out[at];
        return calls::Make(call, in[at].Get(shift[at].in), to.Get(shift[at].out), comm, stream);
    }
    void Check(int r) const
    {
        const auto at = static_cast<size_t>(r);
        const Memory &to = one ? in[at] : out[at];
        const Bytes expected = Expected(call, Given(), r);
        EXPECT_EQ(expected, to.Take(expected.size(), shift[at].out))
            << Name(call) << (one ? ", in place" : "") << ", rank " << r << " of " << host.size();
    }
    // All ranks' inputs, from where they give them.
    std::vector<Bytes> Given() const
    {
        std::vector<Bytes> given;
        for (size_t r = 0; r < host.size(); r++) {
            given.emplace_back(host[r].begin() + static_cast<long>(shift[r].in), host[r].end());
        }
        return given;
    }
    Call call;
    std::vector<Bytes> host;
    std::vector<Memory> in, out;
    std::vector<Shift> shift;
    bool one;
};

void CheckBuffers(Layered &layered, const std::vector<std::unique_ptr<Buffers>> &all)
{
    layered.Threads([&](int r) { // all of them queued before any is looked at
        for (const auto &buffers : all) {
            EXPECT_EQ(KOLO_OK, buffers->Make(r, layered.Comm(r), layered.At(r).Get()))
                << kolo_error_text();
        }
        layered.At(r).Sync();
        for (const auto &buffers : all) {
            buffers->Check(r);
        }
    });
}

// Out of place and in place.
void CheckCalls(Layered &layered, const std::vector<Call> &calls, bool exact = true)
{
    std::vector<std::unique_ptr<Buffers>> all;
    for (size_t i = 0; i < calls.size(); i++) {
        for (const bool in_place : {false, true}) {
            std::vector<Bytes> inputs;
            for (size_t r = 0; r < layered.Gpus().size(); r++) {
                const size_t count = calls[i].count * Blocks(calls[i].coll, layered.Ranks());
                inputs.push_back(exact ? Exact(calls[i].type, count, 100 * i + r)
                                       : Fill(calls[i].type, count, 100 * i + r));
            }
            if (!in_place || CanBeInPlace(calls[i].coll)) {
                all.push_back(std::make_unique<Buffers>(calls[i], layered, inputs, in_place));
            }
        }
    }
    CheckBuffers(layered, all);
}

class Layers : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
        setenv("KOLO_CUDA_HIER_BYTES", "0", 1);
    }
    void TearDown() override
    {
        Peers("work");
        unsetenv("KOLO_CUDA_HIER");
        unsetenv("KOLO_CUDA_HIER_BYTES");
    }
    static kolo_failure EndOf(kolo_comm *comm)
    {
        const auto begin = std::chrono::steady_clock::now();
        while (kolo_comm_error(comm) == KOLO_OK &&
               std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
            std::this_thread::yield();
        }
        kolo_failure failure = {};
        failure.size = sizeof failure;
        EXPECT_EQ(KOLO_OK, kolo_comm_failure(comm, &failure));
        return failure;
    }
    static const std::vector<std::vector<int>> &Places()
    {
        static const std::vector<std::vector<int>> places = {
            {0, 0, 1, 1}, {0, 1, 0, 1}, {2, 2, 2, 2, 1, 1, 1, 1}, {3, 0, 1, 2, 2, 1, 0, 3}};
        return places;
    }
    static std::vector<Call> Lengths(size_t count)
    {
        std::vector<Call> calls;
        for (const Coll coll : {kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter}) {
            for (const kolo_type type : {KOLO_INT8, KOLO_INT32, KOLO_FLOAT16, KOLO_INT64_INT64}) {
                const kolo_op op = type == KOLO_INT64_INT64 ? KOLO_MAXLOC : KOLO_SUM;
                calls.push_back({coll, type, op, count, 1});
            }
        }
        return calls;
    }
};

// The first test: what a process has found to work it does not try again.
TEST_F(Layers, CallsThatGoThroughTheHostBetweenGpusAreRightAndMoveFewerBytesByTheGroupsSize)
{
    Peers("none");
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1 << 17, 0};
    size_t bytes[2];
    for (const bool layers : {false, true}) {
        setenv("KOLO_CUDA_HIER", layers ? "1" : "0", 1);
        Layered layered({0, 0, 0, 0, 1, 1, 1, 1});
        ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
        for (const Coll coll : {kAllReduce, kBroadcast, kAllGather, kReduceScatter}) {
            Call one = call;
            one.coll = coll;
            one.count = coll == kAllReduce || coll == kBroadcast ? call.count : call.count / 8;
            std::vector<Bytes> inputs;
            for (size_t r = 0; r < 8; r++) {
                inputs.push_back(Fill(one.type, one.count * Blocks(coll, 8), r));
            }
            std::vector<std::unique_ptr<Buffers>> all;
            all.push_back(std::make_unique<Buffers>(one, layered, inputs, false));
            const size_t before = Copied();
            layered.Threads([&](int r) {
                EXPECT_EQ(KOLO_OK, all[0]->Make(r, layered.Comm(r), layered.At(r).Get()));
                layered.At(r).Sync();
            });
            bytes[layers] = Copied() - before;
            for (int r = 0; r < 8; r++) {
                all[0]->Check(r);
            }
            const size_t whole = call.count * 4;
            if (coll == kAllReduce) { // each byte there and back, of each rank
                EXPECT_EQ(whole * 8 * 2 / (layers ? 4 : 1), bytes[layers]);
            } else if (coll == kBroadcast) { // the root's once, to each other host or rank
                EXPECT_EQ(whole * (layers ? 1 + 2 : 1 + 8), bytes[layers]);
            } else { // a block of each rank one way, all blocks the other
                EXPECT_EQ(whole + whole * 8 / (layers ? 4 : 1), bytes[layers]);
            }
        }
    }
}

TEST_F(Layers, EveryCallTypeAndOperationGivesTheReferencesBitsWhereTheyDoNotDependOnTheOrder)
{
    for (const auto &place : Places()) {
        Layered layered(place);
        ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
        CheckCalls(layered, EveryCall(77, layered.Ranks() - 1));
    }
}

TEST_F(Layers, DeterministicCommunicatorsGiveTheBitsOfRankOrder)
{
    Layered layered({0, 0, 1, 1}, true);
    ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
    CheckCalls(layered, EveryCall(77, 2), false);
}

TEST_F(Layers, CallsOfAnyLengthAreRight)
{
    for (const auto &place : Places()) {
        Layered layered(place);
        ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
        for (const size_t count : {0, 1, 3, 7, 8, 31, 32, 33, 1000, 4097}) {
            CheckCalls(layered, Lengths(count));
        }
        CheckCalls(layered, {{kAllReduce, KOLO_FLOAT16, KOLO_SUM, 300001, 0},
                             {kBroadcast, KOLO_INT8, KOLO_SUM, 300001, 1}});
    }
}

TEST_F(Layers, CallsThatTheScratchDoesNotHoldGoInTiles)
{
    for (const auto &place : {Places()[0], Places()[1]}) {
        Layered layered(place);
        ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
        CheckCalls(layered, {{kReduce, KOLO_INT32, KOLO_SUM, (4 << 20) + 5, 3}});
        CheckCalls(layered, {{kReduceScatter, KOLO_INT32, KOLO_SUM, (5 << 18) + 3, 0}});
    }
}

TEST_F(Layers, SumsOfFloatsAreNearTheReference)
{
    Layered layered({0, 0, 0, 1, 1, 1});
    ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
    constexpr size_t kCount = 5003;
    for (const kolo_op op : {KOLO_SUM, KOLO_AVG}) {
        const Call call = {kAllReduce, KOLO_FLOAT32, op, kCount, 0};
        std::vector<Bytes> inputs;
        for (uint64_t r = 0; r < 6; r++) {
            reduce_reference::Random random(r + 1);
            Bytes bytes(kCount * 6 * 4);
            for (size_t i = 0; i < kCount * 6; i++) {
                const auto x = static_cast<float>(random.Next() % 1000003) / 1000.0f;
                reduce_reference::Put(&bytes[4 * i], x);
            }
            inputs.push_back(bytes);
        }
        const Buffers buffers(call, layered, inputs, false);
        layered.Threads([&](int r) {
            EXPECT_EQ(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()));
            layered.At(r).Sync();
        });
        const Bytes expected = Expected(call, inputs, 0), first = buffers.out[0].Take(kCount * 4);
        for (size_t i = 0; i < kCount; i++) {
            const auto want = reduce_reference::Get<float>(&expected[4 * i]);
            ASSERT_NEAR(want, reduce_reference::Get<float>(&first[4 * i]), 6e-7f * want);
        }
        for (size_t r = 1; r < 6; r++) {
            EXPECT_EQ(first, buffers.out[r].Take(kCount * 4)) << "the same bits on rank " << r;
        }
    }
}

TEST_F(Layers, FactorsAreAppliedOnce)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    const std::vector<Bytes> inputs(4, Exact(KOLO_INT32, 4000, 1));
    const Buffers buffers(call, layered, inputs, false);
    layered.Threads([&](int r) {
        const int32_t factor = 3;
        kolo_op op = 0;
        ASSERT_EQ(KOLO_OK, kolo_op_create_premulsum(&factor, KOLO_INT32, layered.Comm(r), &op));
        Buffers scaled(call, layered, inputs, false);
        scaled.call.op = op;
        EXPECT_EQ(KOLO_OK, scaled.Make(r, layered.Comm(r), layered.At(r).Get()));
        kolo_op_destroy(op, layered.Comm(r));
        layered.At(r).Sync();
        const auto at = static_cast<size_t>(r);
        for (size_t i = 0; i < 1000; i++) {
            const auto x = reduce_reference::Get<uint32_t>(&inputs[0][4 * i]);
            ASSERT_EQ(12 * x, scaled.out[at].At<uint32_t>(i));
        }
    });
}

TEST_F(Layers, ShortCallsGoInOne)
{
    setenv("KOLO_CUDA_HIER_BYTES", "4k", 1);
    Peers("none");
    Layered layered({2, 2, 3, 3});
    ASSERT_TRUE(layered.IsUp()) << kolo_error_text();
    for (const size_t count : {1023, 1024}) {
        const size_t launches = Launches();
        CheckCalls(layered, {{kAllReduce, KOLO_INT32, KOLO_SUM, count, 0}});
        EXPECT_EQ(count == 1024, Launches() > launches);
    }
}

TEST_F(Layers, CallsTakeEffectInTheirOrderWhateverTheirStreamsAndWays)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    const Call sum = {kAllReduce, KOLO_INT32, KOLO_SUM, 2000, 0};
    const Call all = {kAllToAll, KOLO_INT32, KOLO_SUM, 500, 0};
    const std::vector<Bytes> inputs(4, Exact(KOLO_INT32, 8000, 5));
    const Buffers buffers(sum, layered, inputs, true);
    layered.Threads([&](int r) { // in place, so that each call works on what the last one left
        const Stream more(layered.Gpus()[static_cast<size_t>(r)]);
        void *at = buffers.in[static_cast<size_t>(r)].Get();
        for (int i = 0; i < 6; i++) {
            void *stream = i % 2 == 0 ? layered.At(r).Get() : more.Get();
            EXPECT_EQ(KOLO_OK, Make(sum, at, at, layered.Comm(r), stream));
            EXPECT_EQ(KOLO_OK, Make(all, at, at, layered.Comm(r), more.Get()));
        }
        more.Sync();
    });
    // The first exchange leaves rank r with its block four times, after which all are the sum.
    uint32_t blocks = 0;
    for (size_t q = 0; q < 4; q++) {
        blocks += reduce_reference::Get<uint32_t>(&inputs[0][4 * (500 * q + 7)]);
    }
    for (size_t r = 0; r < 4; r++) {
        EXPECT_EQ(1024 * blocks, buffers.in[r].At<uint32_t>(1500 + 7));
    }
}

TEST_F(Layers, GraphsGiveNewResultsEachTimeTheyAreLaunched)
{
    for (const char *word : {"none", "work"}) {
        Peers(word);
        Layered layered({0, 0, 1, 1});
        ASSERT_TRUE(layered.IsUp());
        const Call sum = {kAllReduce, KOLO_INT32, KOLO_SUM, 3003, 0};
        const Call part = {kReduceScatter, KOLO_INT32, KOLO_SUM, 501, 0};
        const std::vector<Bytes> inputs(4, Exact(KOLO_INT32, 12012, 5));
        const Buffers whole(sum, layered, inputs, false), parts(part, layered, inputs, false);
        layered.Threads([&](int r) {
            const auto rank = static_cast<size_t>(r);
            void *stream = layered.At(r).Get(), *captured, *graph;
            const Context context(layered.Gpus()[rank]);
            Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
            EXPECT_EQ(KOLO_OK, whole.Make(r, layered.Comm(r), stream)) << kolo_error_text();
            EXPECT_EQ(KOLO_OK, parts.Make(r, layered.Comm(r), stream)) << kolo_error_text();
            EXPECT_EQ(KOLO_OK, kolo_barrier(layered.Comm(r), stream)) << kolo_error_text();
            Do("cuStreamEndCapture", stream, &captured);
            Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
            for (uint32_t round = 1; round <= 10; round++) {
                const uint32_t value = round * (static_cast<uint32_t>(r) + 1);
                whole.in[rank].Put(&value, 4, 3002 * 4);
                parts.in[rank].Put(&value, 4, (501 * rank + 500) * 4);
                Do("cuGraphLaunch", graph, stream);
                layered.At(r).Sync();
                EXPECT_EQ(round * 10, whole.out[rank].At<uint32_t>(3002));
                const auto x = reduce_reference::Get<uint32_t>(&inputs[0][(501 * rank + 500) * 4]);
                EXPECT_EQ(value + 3 * x, parts.out[rank].At<uint32_t>(500));
            }
            EXPECT_EQ(KOLO_OK, whole.Make(r, layered.Comm(r), stream));
            layered.At(r).Sync();
            EXPECT_EQ(100u, whole.out[rank].At<uint32_t>(3002));
            Do("cuGraphExecDestroy", graph);
            Do("cuGraphDestroy", captured);
        });
    }
}

TEST_F(Layers, OneThreadMakesTheCallsOfAllRanksInAGroup)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    const Call call = {kReduceScatter, KOLO_FLOAT16, KOLO_SUM, 333, 0};
    std::vector<Bytes> inputs;
    for (uint64_t r = 0; r < 4; r++) {
        inputs.push_back(Exact(call.type, 4 * 333, r));
    }
    const Buffers buffers(call, layered, inputs, false);
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int r = 0; r < 4; r++) {
        EXPECT_EQ(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    for (int r = 0; r < 4; r++) {
        layered.At(r).Sync();
        buffers.Check(r);
    }
}

TEST_F(Layers, PartsOfACommunicatorHaveLayersOfTheirOwn)
{
    Layered layered({0, 0, 1, 1, 2, 2, 3, 3});
    ASSERT_TRUE(layered.IsUp());
    const size_t launches = Launches();
    layered.Threads([&](int r) {
        kolo_comm *part = nullptr;
        const int gpu = layered.Gpus()[static_cast<size_t>(r)];
        ASSERT_EQ(KOLO_OK, kolo_comm_split(layered.Comm(r), r / 4, r, nullptr, &part))
            << kolo_error_text();
        const Memory at(4000, gpu);
        const std::vector<int32_t> mine(1000, r);
        at.Put(mine.data(), 4000);
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(at.Get(), at.Get(), 1000, KOLO_INT32, KOLO_SUM, part,
                                           layered.At(r).Get()));
        layered.At(r).Sync();
        EXPECT_EQ(r < 4 ? 6 : 22, at.At<int32_t>(999));
        kolo_comm_destroy(part);
    });
    EXPECT_LE(launches + 4 * 2, Launches()) << "of four groups, each in and out";
}

TEST_F(Layers, RanksThatNeverComeEndTheCommunicatorByTheirOwnNumbers)
{
    Layered layered({0, 0, 1, 1}, false, 300);
    ASSERT_TRUE(layered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    const Buffers buffers(call, layered, std::vector<Bytes>(4, Exact(KOLO_INT32, 4000, 1)), false);
    layered.Threads([&](int r) { // between GPUs they wait for ranks 2 and 3
        if (r < 2) {
            EXPECT_EQ(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()));
        }
    });
    for (int r = 0; r < 4; r++) {
        const kolo_failure failure = EndOf(layered.Comm(r));
        EXPECT_EQ(KOLO_ERR_TIMEOUT, failure.status) << failure.text;
        EXPECT_TRUE(failure.rank == 2 || failure.rank == 3) << failure.rank;
        EXPECT_NE(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()));
        layered.At(r).Sync();
    }
}

TEST_F(Layers, ARankThatNeverComesEndsTheCallsOfItsGroup)
{
    Layered layered({0, 0, 1, 1}, false, 300);
    ASSERT_TRUE(layered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    const Buffers buffers(call, layered, std::vector<Bytes>(4, Exact(KOLO_INT32, 4000, 1)), false);
    layered.Threads([&](int r) {
        if (r != 3) { // rank 2 waits for it
            (void)buffers.Make(r, layered.Comm(r), layered.At(r).Get());
            const kolo_failure failure = EndOf(layered.Comm(r));
            EXPECT_EQ(KOLO_ERR_TIMEOUT, failure.status) << failure.text;
            layered.At(r).Sync();
        }
    });
    const std::string text = EndOf(layered.Comm(2)).text;
    EXPECT_NE(std::string::npos, text.find("rank 0 is rank 2 and rank 1 is rank 3 here: rank 0 "
                                           "waited 300 ms for rank 1"))
        << text;
}

TEST_F(Layers, StreamsAndThreadsThatWaitGoOnWhenTheCommunicatorIsAborted)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    const Buffers buffers(call, layered, std::vector<Bytes>(4, Exact(KOLO_INT32, 4000, 1)), false);
    std::atomic<int> came = 0;
    layered.Threads([&](int r) {
        if (r == 3) { // behind the calls of ranks 0 and 1, whose streams wait for the other GPU
            while (came < 2) {
                std::this_thread::yield();
            }
            kolo_comm_abort(layered.Comm(3));
            return;
        }
        const kolo_status st = buffers.Make(r, layered.Comm(r), layered.At(r).Get());
        EXPECT_EQ(r == 2 ? KOLO_ERR_ABORTED : KOLO_OK, st) << "rank 2 waits for rank 3's call";
        came++;
        layered.At(r).Sync();
        const kolo_failure failure = EndOf(layered.Comm(r));
        EXPECT_EQ(KOLO_ERR_ABORTED, failure.status);
        EXPECT_EQ(3, failure.rank);
    });
}

// Whoever takes the driver's lock waits for what is queued: nothing may wait for the thread's call.
TEST_F(Layers, AThreadMayFreeMemoryAndMakeStreamsWhileTheOthersOfItsGpuWaitForItsSteps)
{
    Layered layered({0, 0, 0, 1, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    std::vector<Bytes> inputs;
    for (uint64_t r = 0; r < 6; r++) {
        inputs.push_back(Exact(KOLO_INT32, 6 * 1000, r));
    }
    for (const Coll coll : {kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter}) {
        const Buffers buffers({coll, KOLO_INT32, KOLO_SUM, 1000, 1}, layered, inputs, false);
        layered.Threads([&](int r) {
            if (r % 3 == 1) { // the others are there
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                const Context context(layered.Gpu(r));
                unsigned long long memory;
                Do("cuMemAlloc_v2", &memory, size_t{64});
                Do("cuMemFree_v2", memory);
                const Stream stream(layered.Gpu(r));
            }
            EXPECT_EQ(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()))
                << kolo_error_text();
            layered.At(r).Sync();
            buffers.Check(r);
        });
    }
}

// Each thread has the ranks of both GPUs in an order of its own.
TEST_F(Layers, SeveralThreadsMakeTheCallsOfSeveralRanksInGroups)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    for (const Coll coll : {kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter}) {
        std::vector<Bytes> inputs;
        for (uint64_t r = 0; r < 4; r++) {
            inputs.push_back(Exact(KOLO_INT32, 4 * 333, r));
        }
        const Buffers buffers({coll, KOLO_INT32, KOLO_SUM, 333, 2}, layered, inputs, false);
        const std::vector<std::vector<int>> of = {{0, 2}, {3, 1}};
        std::vector<std::thread> threads;
        for (const std::vector<int> &ranks : of) {
            threads.emplace_back([&] {
                EXPECT_EQ(KOLO_OK, kolo_group_begin());
                for (const int r : ranks) {
                    EXPECT_EQ(KOLO_OK, buffers.Make(r, layered.Comm(r), layered.At(r).Get()));
                }
                EXPECT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (int r = 0; r < 4; r++) {
            layered.At(r).Sync();
            buffers.Check(r);
        }
    }
}

TEST_F(Layers, DifferentCallsEndTheCommunicator)
{
    Layered layered({0, 0, 1, 1});
    ASSERT_TRUE(layered.IsUp());
    const Call call[] = {{kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0},
                         {kAllReduce, KOLO_INT32, KOLO_SUM, 1001, 0}};
    const std::vector<Bytes> inputs(4, Exact(KOLO_INT32, 4004, 1));
    const Buffers buffers[] = {Buffers(call[0], layered, inputs, false),
                               Buffers(call[1], layered, inputs, false)};
    layered.Threads([&](int r) {
        (void)buffers[r == 3].Make(r, layered.Comm(r), layered.At(r).Get());
        layered.At(r).Sync();
        EXPECT_EQ(KOLO_ERR_MISMATCH, EndOf(layered.Comm(r)).status);
    });
}

// Ranks 0 to 3 make a call, with the nth call of the driver from where they meet on failing.
void CallWithFailure(long nth, bool *failed_out, int *right_out)
{
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 9, 0};
    const Memory in[] = {Memory(36, 0), Memory(36, 0), Memory(36, 1), Memory(36, 1)};
    const Bytes mine = Exact(KOLO_INT32, 9, 1);
    for (const Memory &memory : in) {
        memory.Put(mine.data(), 36);
    }
    Layered layered({0, 0, 1, 1}, false, 10000, nth);
    if (!layered.IsUp()) {
        Find<void(long)>("FakeCudaFailNth")(0);
        *failed_out = true;
        return;
    }
    layered.Threads([&](int r) {
        void *at = in[r].Get();
        if (Make(call, at, at, layered.Comm(r), layered.At(r).Get()) != KOLO_OK) {
            kolo_comm_abort(layered.Comm(r)); // as a program does that cannot go on
        }
    });
    Find<void()>("FakeCudaDrain")();
    *failed_out = Find<bool()>("FakeCudaHasFailed")();
    Find<void(long)>("FakeCudaFailNth")(0);
    for (int r = 0; r < 4; r++) {
        const bool good = Expected(call, std::vector<Bytes>(4, mine), r) == in[r].Take(36);
        EXPECT_TRUE(good || kolo_comm_error(layered.Comm(r)) != KOLO_OK) << nth;
        *right_out += good;
    }
}

TEST_F(Layers, AllComesBackWhicheverCallOfTheDriverFails)
{
    const bool whole = getenv("KOLO_TEST_WHOLE") != nullptr;
    for (const char *word : {"work", "none"}) {
        Peers(word);
        bool failed = false;
        int right = 0, rounds = 0;
        CallWithFailure(0, &failed, &right); // what stays: peer access, once enabled
        ASSERT_EQ(4, right);
        const size_t live = Find<size_t()>("FakeCudaLive")();
        failed = true;
        for (long nth = 1; failed; nth += whole ? 3 : 37, rounds++) {
            CallWithFailure(nth, &failed, &right);
            ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
            ASSERT_LT(rounds, 20000);
        }
        printf("%d rounds, %d right\n", rounds, right);
        EXPECT_GT(right, rounds / 2) << "what fails while layers come up leaves one layer";
    }
}

TEST_F(Layers, ACommunicatorThatComesUpInsideAGroupMakesItsOwnCallsAtOnce)
{
    constexpr int kRanks = 4;
    kolo_id id;
    std::vector<std::thread> threads;
    std::vector<kolo_comm *> comm(kRanks);
    std::vector<kolo_status> made(kRanks), ended(kRanks);
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    for (int r = 0; r < kRanks; r++) {
        threads.emplace_back([&, r, at = static_cast<size_t>(r)] {
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = r / 2; // two on each GPU: a layer inside it, and one between both
            config.timeout_ms = 10000;
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            made[at] = kolo_comm_create(&id, kRanks, r, &config, &comm[at]);
            ended[at] = kolo_group_end();
            kolo_comm_destroy(comm[at]);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(std::vector<kolo_status>(kRanks, KOLO_OK), made);
    EXPECT_EQ(std::vector<kolo_status>(kRanks, KOLO_OK), ended);
}

} // namespace
