// SPDX-License-Identifier: Apache-2.0
// Communicators of a GPU through the public interface, over the driver of fake_cuda.cc: ranks as
// threads with streams of their own, or all calls in one thread's group.
#include "calls.h"
#include "exec/fused.h"

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace
{

using namespace calls;

// ---- communicators -----------------------------------------------------------------------------

struct Team {
    explicit Team(int ranks, int timeout_ms = 20000) : comm(static_cast<size_t>(ranks))
    {
        kolo_config config = KOLO_CONFIG_INIT;
        config.device = 0;
        config.timeout_ms = timeout_ms;
        status = kolo_comm_create_local(ranks, &config, comm.data());
        for (int r = 0; r < ranks; r++) {
            stream.push_back(std::make_unique<Stream>());
        }
    }
    ~Team()
    {
        for (kolo_comm *c : comm) {
            kolo_comm_destroy(c);
        }
    }
    // body(rank) in a thread for each rank.
    void Threads(const std::function<void(int)> &body)
    {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < comm.size(); r++) {
            threads.emplace_back(body, static_cast<int>(r));
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    kolo_comm *Comm(int r) const
    {
        return comm[static_cast<size_t>(r)];
    }
    const Stream &At(int r) const
    {
        return *stream[static_cast<size_t>(r)];
    }
    std::vector<std::unique_ptr<Stream>> stream; // before comm: what is queued ends first
    std::vector<kolo_comm *> comm;
    kolo_status status;
};

void SyncStream(void *stream)
{
    const Context context;
    Do("cuStreamSynchronize", stream);
}

// ---- results -----------------------------------------------------------------------------------

TEST(DeviceCollectives, OfThreadsWithAStreamEachGiveTheReferencesBits)
{
    for (const int ranks : {1, 2, 3}) {
        Team team(ranks);
        ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
        const std::vector<Call> calls = EveryCall(77, ranks - 1);
        std::vector<Data> data;
        for (size_t i = 0; i < calls.size(); i++) {
            data.emplace_back(calls[i], static_cast<size_t>(ranks), 1000 * i);
        }
        team.Threads([&](int r) { // all of them queued before any is looked at
            for (size_t i = 0; i < calls.size(); i++) {
                const auto at = static_cast<size_t>(r);
                EXPECT_EQ(KOLO_OK, Make(calls[i], data[i].in[at].Get(), data[i].out[at].Get(),
                                        team.Comm(r), team.At(r).Get()))
                    << kolo_error_text();
            }
            team.At(r).Sync();
            for (size_t i = 0; i < calls.size(); i++) {
                data[i].Check(calls[i], r);
            }
        });
    }
}

TEST(DeviceCollectives, OfOneThreadsGroupShareAStreamOrHaveTheirOwn)
{
    constexpr int kRanks = 4;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
    for (const int way : {0, 1, 2}) { // the default stream, one stream, a stream each
        for (const Call &call : {Call{kAllReduce, KOLO_FLOAT32, KOLO_SUM, 5000, 0},
                                 Call{kAllToAll, KOLO_INT16, KOLO_SUM, 300, 0},
                                 Call{kBroadcast, KOLO_FLOAT64, KOLO_SUM, 700, 2}}) {
            const Data data(call, kRanks, 17);
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            for (int r = 0; r < kRanks; r++) {
                void *stream = way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get();
                ASSERT_EQ(KOLO_OK,
                          Make(call, data.in[static_cast<size_t>(r)].Get(),
                               data.out[static_cast<size_t>(r)].Get(), team.Comm(r), stream));
            }
            const size_t before = Launches();
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            EXPECT_EQ(before + 1, Find<size_t()>("FakeCudaLaunches")())
                << "one kernel for all ranks";
            for (int r = 0; r < kRanks; r++) {
                SyncStream(way == 0 ? nullptr : team.At(r).Get());
                if (way == 1) {
                    team.At(0).Sync();
                }
                data.Check(call, r);
            }
        }
    }
}

TEST(DeviceCollectives, TakeEffectInTheirOrderWhateverTheirStreams)
{
    constexpr int kRanks = 3;
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 2000, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    std::vector<std::unique_ptr<Stream>> more;
    for (int r = 0; r < kRanks; r++) {
        more.push_back(std::make_unique<Stream>());
    }
    const Data data(call, kRanks, 5);
    team.Threads([&](int r) { // in place, so that each call works on what the last one left
        void *buffer = data.in[static_cast<size_t>(r)].Get();
        for (int i = 0; i < 6; i++) {
            void *stream = i % 2 == 0 ? team.At(r).Get() : more[static_cast<size_t>(r)]->Get();
            EXPECT_EQ(KOLO_OK, Make(call, buffer, buffer, team.Comm(r), stream));
        }
        more[static_cast<size_t>(r)]->Sync();
    });
    const Bytes got = data.in[1].Take(4 * call.count);
    for (size_t i = 0; i < call.count; i++) {
        uint32_t sum = 0;
        for (const Bytes &host : data.host) {
            sum += reduce_reference::Get<uint32_t>(&host[4 * i]);
        }
        for (int again = 1; again < 6; again++) {
            sum *= kRanks;
        }
        ASSERT_EQ(sum, reduce_reference::Get<uint32_t>(&got[4 * i])) << i;
    }
}

TEST(DeviceCollectives, PremultiplyByEachRanksOwnFactor)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_FLOAT32, KOLO_SUM, 100, 0};
    const Data data(call, 2, 3);
    team.Threads([&](int r) {
        const float factor = r == 0 ? 2.0f : -0.5f;
        const Memory &in = data.in[static_cast<size_t>(r)];
        float values[100];
        for (int i = 0; i < 100; i++) {
            values[i] = static_cast<float>(i * (r + 1));
        }
        in.Put(values, sizeof values);
        kolo_op op;
        ASSERT_EQ(KOLO_OK, kolo_op_create_premulsum(&factor, KOLO_FLOAT32, team.Comm(r), &op));
        ASSERT_EQ(KOLO_OK, kolo_all_reduce(in.Get(), data.out[static_cast<size_t>(r)].Get(), 100,
                                           KOLO_FLOAT32, op, team.Comm(r), team.At(r).Get()));
        team.At(r).Sync();
        kolo_op_destroy(op, team.Comm(r));
    });
    for (int i = 0; i < 100; i++) { // 2 i - (2 i) / 2
        EXPECT_EQ(static_cast<float>(i), data.out[1].At<float>(static_cast<size_t>(i)));
    }
}

TEST(DeviceCollectives, OfDifferentBlocksWhereAllRanksKnowThem)
{
    constexpr int kRanks = 3;
    const size_t counts[kRanks] = {4, 0, 9}, displs[kRanks] = {9, 0, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    std::vector<Memory> in, all, out;
    for (int r = 0; r < kRanks; r++) {
        in.emplace_back(64);
        all.emplace_back(64);
        out.emplace_back(64);
        for (int i = 0; i < 13; i++) {
            const int32_t value = 100 * r + i;
            in.back().Put(&value, 4, static_cast<size_t>(i) * 4);
        }
    }
    team.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(KOLO_OK, kolo_all_gatherv(in[at].Get(), all[at].Get(), counts, displs, KOLO_INT32,
                                            team.Comm(r), team.At(r).Get()));
        EXPECT_EQ(KOLO_OK, kolo_reduce_scatterv(in[at].Get(), out[at].Get(), counts, KOLO_INT32,
                                                KOLO_SUM, team.Comm(r), team.At(r).Get()));
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED,
                  kolo_all_to_allv(in[at].Get(), counts, displs, out[at].Get(), counts, displs,
                                   KOLO_INT32, team.Comm(r), team.At(r).Get()));
        team.At(r).Sync();
    });
    for (int r = 0; r < kRanks; r++) {
        const Memory &got = all[static_cast<size_t>(r)];
        EXPECT_EQ(3, got.At<int32_t>(12)) << "the end of rank 0's block";
        EXPECT_EQ(208, got.At<int32_t>(8)) << "the end of rank 2's block";
    }
    EXPECT_EQ(300 + 3 * 3, out[0].At<int32_t>(3));
    EXPECT_EQ(300 + 3 * 4, out[2].At<int32_t>(0));
}

TEST(DeviceBarrier, IsPassedWhenEveryRankHasComeToIt)
{
    Team team(3);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        EXPECT_EQ(KOLO_OK, kolo_barrier(team.Comm(r), team.At(r).Get())) << kolo_error_text();
        team.At(r).Sync();
    });
}

// ---- graphs ------------------------------------------------------------------------------------

TEST(DeviceGraphs, GiveNewResultsEachTimeTheyAreLaunched)
{
    constexpr int kRanks = 3;
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 500, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    const Data data(call, kRanks, 9);
    team.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        void *stream = team.At(r).Get();
        const Context context;
        void *in = data.in[at].Get(), *out = data.out[at].Get(), *captured, *graph;
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)); // not captured
        team.At(r).Sync();
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)) << kolo_error_text();
        EXPECT_EQ(KOLO_OK, kolo_barrier(team.Comm(r), stream)) << kolo_error_text();
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        for (uint32_t round = 1; round <= 20; round++) {
            const uint32_t value = round * (static_cast<uint32_t>(r) + 1);
            data.in[at].Put(&value, 4, 7 * 4);
            Do("cuGraphLaunch", graph, stream);
            team.At(r).Sync();
            EXPECT_EQ(round * 6, data.out[at].At<uint32_t>(7));
        }
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)); // once more
        team.At(r).Sync();
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    });
}

// ---- what is refused ---------------------------------------------------------------------------

TEST(DeviceErrors, NameTheKindsOfBuffersThatDoNotGoTogether)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    Team team(1);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory here(64), there(64, 1);
    float host[4] = {1, 2, 3, 4};
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(host, here.Get(), 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0), nullptr));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "is host memory, recv")) << kolo_error_text();
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "is memory of GPU 0")) << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_all_reduce(here.Get(), there.Get(), 4, KOLO_FLOAT32, KOLO_SUM,
                                                team.Comm(0), nullptr));
    EXPECT_NE(nullptr,
              strstr(kolo_error_text(), "memory of GPU 1; the communicator's device is GPU 0"))
        << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED,
              kolo_send(here.Get(), 4, KOLO_FLOAT32, 0, team.Comm(0), nullptr));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_all_reduce(host, host, 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0),
                                                team.At(0).Get()));
    EXPECT_EQ(KOLO_OK, kolo_comm_error(team.Comm(0))) << "none of these ends the communicator";
}

TEST(DeviceErrors, StreamsThatWouldWaitForThemselvesAreRefused)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    const auto make = [&](int r, void *stream) {
        return Make(call, data.in[static_cast<size_t>(r)].Get(),
                    data.out[static_cast<size_t>(r)].Get(), team.Comm(r), stream);
    };
    EXPECT_EQ(KOLO_ERR_INVALID, make(0, nullptr));
    EXPECT_EQ(KOLO_OK, make(0, team.At(0).Get()));
    EXPECT_EQ(KOLO_ERR_INVALID, make(1, team.At(0).Get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 0's in this call, too"))
        << kolo_error_text();
    EXPECT_EQ(KOLO_OK, make(1, team.At(1).Get())) << "which changed nothing";
    team.At(0).Sync();
    data.Check(call, 0);
}

TEST(DeviceErrors, DifferentCallsEndTheCommunicatorAndReleaseItsStreams)
{
    Team team(3);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Call other = {kAllReduce, KOLO_INT32, KOLO_SUM, 11, 0};
    const Data data(other, 3, 1);
    const auto make = [&](const Call &c, int r) {
        return Make(c, data.in[static_cast<size_t>(r)].Get(),
                    data.out[static_cast<size_t>(r)].Get(), team.Comm(r), team.At(r).Get());
    };
    EXPECT_EQ(KOLO_OK, make(call, 0));
    EXPECT_EQ(KOLO_OK, make(call, 0)) << "queued behind the first";
    EXPECT_EQ(KOLO_OK, make(call, 1));
    EXPECT_EQ(KOLO_OK, make(call, 1));
    EXPECT_EQ(KOLO_ERR_MISMATCH, make(other, 2));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "of 10 int32 on rank 0")) << kolo_error_text();
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "of 11 int32 on rank 2")) << kolo_error_text();
    team.At(0).Sync(); // rank 2 never came, and yet they end
    team.At(1).Sync();
    EXPECT_NE(KOLO_OK, make(call, 0));
}

TEST(DeviceErrors, AnAbortReleasesStreamsThatWaitForARankThatNeverComes)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(KOLO_OK,
                  Make(call, data.in[1].Get(), data.out[1].Get(), team.Comm(1), team.At(1).Get()));
    }
    kolo_comm_abort(team.Comm(1));
    team.At(1).Sync();
    EXPECT_EQ(0x5a, data.out[1].At<uint8_t>(0)) << "no kernel ran";
}

TEST(DeviceErrors, ALostRankDoesNotHoldUpDestroying)
{
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    {
        Team team(2, 200);
        ASSERT_EQ(KOLO_OK, team.status);
        EXPECT_EQ(KOLO_OK,
                  Make(call, data.in[0].Get(), data.out[0].Get(), team.Comm(0), team.At(0).Get()));
    } // after timeout_ms
    EXPECT_EQ(0x5a, data.out[0].At<uint8_t>(0));
}

TEST(DeviceHost, MemoryWorksOnTheSameCommunicatorAndItCanBeSplit)
{
    Team team(4);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        float mine = static_cast<float>(r), sum = 0;
        for (int i = 0; i < 3; i++) { // also by what is remembered of calls
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, team.Comm(r),
                                               nullptr));
            EXPECT_EQ(6.0f, sum);
        }
        kolo_comm *part = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_comm_split(team.Comm(r), r % 2, 0, nullptr, &part))
            << kolo_error_text();
        const Memory in(4), out(4);
        in.Put(&mine, 4);
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(in.Get(), out.Get(), 1, KOLO_FLOAT32, KOLO_SUM, part,
                                           team.At(r).Get()));
        team.At(r).Sync();
        EXPECT_EQ(r % 2 == 0 ? 2.0f : 4.0f, out.At<float>(0));
        kolo_comm_destroy(part);
    });
}

TEST(DeviceMemory, IsAllocatedOnTheDeviceThatIsNamedAndFreed)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    const size_t live = Find<size_t()>("FakeCudaLive")();
    void *memory = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc_on(1, 100, &memory)) << kolo_error_text();
    Team team(1);
    ASSERT_EQ(KOLO_OK, team.status);
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(memory, memory, 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0), nullptr));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "memory of GPU 1")) << kolo_error_text();
    kolo_mem_free(memory);
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc_on(KOLO_HOST, 100, &memory));
    memset(memory, 1, 100);
    kolo_mem_free(memory);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_mem_alloc_on(2, 100, &memory));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_mem_alloc_on(0, 0, &memory));
    for (long nth = 1;; nth++) {
        Find<void(long)>("FakeCudaFailNth")(nth);
        const kolo_status st = kolo_mem_alloc_on(0, 64, &memory);
        Find<void(long)>("FakeCudaFailNth")(0);
        if (st == KOLO_OK) {
            EXPECT_GT(nth, 4);
            break;
        }
        EXPECT_EQ(KOLO_ERR_SYSTEM, st);
    }
    kolo_mem_free(memory);
    for (kolo_comm *&comm : team.comm) {
        kolo_comm_destroy(comm);
        comm = nullptr;
    }
    team.stream.clear();
    EXPECT_EQ(live, Find<size_t()>("FakeCudaLive")());
}

// ---- ranks on several GPUs ---------------------------------------------------------------------

// Rank r is a thread on GPU r % 2.
struct Several {
    explicit Several(int ranks, int timeout_ms = 20000) : comm(static_cast<size_t>(ranks))
    {
        kolo_id id;
        status.resize(comm.size(), kolo_id_create(&id));
        Threads([&](int r) {
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = r % 2;
            config.timeout_ms = timeout_ms;
            status[static_cast<size_t>(r)] =
                kolo_comm_create(&id, ranks, r, &config, &comm[static_cast<size_t>(r)]);
        });
    }
    ~Several()
    {
        Threads([&](int r) { kolo_comm_destroy(comm[static_cast<size_t>(r)]); });
    }
    bool IsUp() const
    {
        return std::all_of(status.begin(), status.end(),
                           [](kolo_status st) { return st == KOLO_OK; });
    }
    void Threads(const std::function<void(int)> &body)
    {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < comm.size(); r++) {
            threads.emplace_back(body, static_cast<int>(r));
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    std::vector<kolo_comm *> comm;
    std::vector<kolo_status> status;
};

// Buffers of rank r on its GPU, with the marks of Data.
struct Spread {
    Spread(const Call &c, size_t ranks, uint64_t seed)
    {
        for (size_t r = 0; r < ranks; r++) {
            const size_t bytes = c.count * ranks * kBytes[c.type];
            host.push_back(Fill(c.type, c.count * ranks, seed + r));
            in.emplace_back(bytes, static_cast<int>(r % 2));
            out.emplace_back(bytes, static_cast<int>(r % 2));
            in[r].Put(host[r].data(), bytes);
        }
    }
    bool IsRight(const Call &c, int r) const
    {
        const Bytes expected = Expected(c, host, r);
        return expected == out[static_cast<size_t>(r)].Take(expected.size());
    }
    std::vector<Bytes> host;
    std::vector<Memory> in, out;
};

TEST(DeviceSeveral, GpusInOneProcessAreServedThroughTheHostWithTheSameBits)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    constexpr int kRanks = 3;
    Several several(kRanks);
    ASSERT_TRUE(several.IsUp()) << kolo_error_text();
    const size_t before = Launches();
    several.Threads([&](int r) {
        const Stream stream;
        for (const Call &call : EveryCall(19, 1)) {
            const Spread data(call, kRanks, 40); // each thread its own, for its own rank
            const auto at = static_cast<size_t>(r);
            EXPECT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), several.comm[at],
                                    stream.Get()))
                << kolo_error_text();
            stream.Sync();
            EXPECT_TRUE(data.IsRight(call, r)) << call.coll << kolo_type_name(call.type);
        }
    });
    EXPECT_EQ(before, Launches());
}

TEST(DeviceSeveral, CallsOnDifferentStreamsTakeEffectInTheirOrderAndAreQueuedWithoutWaiting)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    constexpr int kRanks = 2, kCalls = 20;
    Several several(kRanks);
    ASSERT_TRUE(several.IsUp());
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_SUM, 300, 0};
    const Spread data(call, kRanks, 1);
    const Stream stream[kRanks][2];
    for (size_t r = 0; r < kRanks; r++) { // one thread, one rank after the other
        void *buffer = data.in[r].Get();
        for (int i = 0; i < kCalls; i++) {
            ASSERT_EQ(KOLO_OK, Make(call, buffer, buffer, several.comm[r], stream[r][i % 2].Get()));
        }
    }
    for (size_t r = 0; r < kRanks; r++) {
        stream[r][(kCalls - 1) % 2].Sync();
        const uint32_t sum = reduce_reference::Get<uint32_t>(&data.host[0][0]) +
                             reduce_reference::Get<uint32_t>(&data.host[1][0]);
        EXPECT_EQ(sum << (kCalls - 1), data.in[r].At<uint32_t>(0));
    }
}

TEST(DeviceSeveral, ALostRankOrAnAbortDoesNotHoldUpTheOthers)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_SUM, 300, 0};
    const Spread data(call, 2, 1);
    for (const bool aborts : {false, true}) {
        const Stream stream;
        Several several(2, aborts ? 20000 : 300);
        ASSERT_TRUE(several.IsUp());
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(KOLO_OK, Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0],
                                    stream.Get()));
        }
        if (aborts) {
            kolo_comm_abort(several.comm[1]);
        }
        stream.Sync();
        EXPECT_NE(KOLO_OK, kolo_comm_error(several.comm[0]));
        EXPECT_NE(KOLO_OK,
                  Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0], stream.Get()));
    }
}

TEST(DeviceSeveral, SayWhatFailedWhicheverCallOfTheDriverItIsAndLeakNothing)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const size_t live = Find<size_t()>("FakeCudaLive")();
    long nth = 1;
    for (bool failed = true; failed; nth++) {
        {
            const Spread data(call, 2, 1);
            const Stream stream[2];
            Find<void(long)>("FakeCudaFailNth")(nth);
            Several several(2, 500);
            bool good = several.IsUp();
            for (size_t r = 0; r < 2 && good; r++) {
                good = Make(call, data.in[r].Get(), data.out[r].Get(), several.comm[r],
                            stream[r].Get()) == KOLO_OK;
            }
            for (size_t r = 0; r < 2 && !good; r++) { // one may wait for one that did not come
                if (several.comm[r] != nullptr) {
                    kolo_comm_abort(several.comm[r]);
                }
            }
            Find<void()>("FakeCudaDrain")();
            failed = Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
            for (int r = 0; r < 2 && good; r++) {
                EXPECT_TRUE(data.IsRight(call, r) ||
                            kolo_comm_error(several.comm[static_cast<size_t>(r)]) != KOLO_OK)
                    << "call " << nth << " of the driver";
            }
            EXPECT_TRUE(good || failed) << nth;
        }
        ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(nth, 40);
}

// ---- coming up ---------------------------------------------------------------------------------

TEST(DeviceStart, RefusesDevicesAndKernelsThatAreNotThere)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 7;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create_local(1, &config, &comm));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "CUDA has 2 devices")) << kolo_error_text();
    config.device = -5;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create_local(1, &config, &comm));
    config.device = 0;
    const std::string kernels = getenv("KOLO_CUDA_KERNELS");
    setenv("KOLO_CUDA_KERNELS", "/no/such/file", 1);
    EXPECT_EQ(KOLO_ERR_SYSTEM, kolo_comm_create_local(1, &config, &comm));
    char other[] = "/tmp/kolo-kernels-XXXXXX";
    const int fd = mkstemp(other);
    ASSERT_EQ(13, write(fd, "another GPU's", 13));
    close(fd);
    setenv("KOLO_CUDA_KERNELS", other, 1);
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm));
    unlink(other);
    unsetenv("KOLO_CUDA_KERNELS");
    if (kolo_fused_image() == nullptr) {
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "built without nvcc")) << kolo_error_text();
    } else {
        EXPECT_EQ(KOLO_OK, kolo_comm_create_local(1, &config, &comm)) << kolo_error_text();
        kolo_comm_destroy(comm);
    }
    setenv("KOLO_CUDA_KERNELS", kernels.c_str(), 1);
}

TEST(DeviceStart, WithoutADriverSaysSoAndHostMemoryIsAsEver)
{
    if (gpu::Library() != nullptr) {
        GTEST_SKIP() << "there is a driver";
    }
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 0;
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "cannot be loaded")) << kolo_error_text();
    config.device = KOLO_HOST;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(1, &config, &comm));
    float mine = 3, sum = 0;
    EXPECT_EQ(KOLO_OK, kolo_all_reduce(&mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, comm, nullptr));
    EXPECT_EQ(3.0f, sum);
    kolo_comm_destroy(comm);
}

TEST(DeviceStart, AndCallsSayWhatFailedWhicheverCallOfTheDriverItIsAndLeakNothing)
{
    if (!gpu::IsFake()) {
        GTEST_SKIP() << "needs the driver of tests/device";
    }
    const size_t live = Find<size_t()>("FakeCudaLive")();
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    long failures = 0;
    for (long nth = 1;; nth++) {
        kolo_config config = KOLO_CONFIG_INIT;
        kolo_comm *comm[2] = {};
        config.device = 0;
        kolo_status st = KOLO_OK;
        {
            const Data data(call, 2, 1);
            const Stream stream;
            Find<void(long)>("FakeCudaFailNth")(nth);
            st = kolo_comm_create_local(2, &config, comm);
            if (st == KOLO_OK) {
                EXPECT_EQ(KOLO_OK, kolo_group_begin());
                for (int r = 0; r < 2 && st == KOLO_OK; r++) {
                    st = Make(call, data.in[static_cast<size_t>(r)].Get(),
                              data.out[static_cast<size_t>(r)].Get(), comm[r], stream.Get());
                }
                const kolo_status ended = kolo_group_end();
                st = st == KOLO_OK ? ended : st;
            }
            Find<void(long)>("FakeCudaFailNth")(0);
            const std::string text = kolo_error_text();
            stream.Sync();
            for (kolo_comm *c : comm) {
                kolo_comm_destroy(c);
            }
            if (st == KOLO_OK) {
                data.Check(call, 0);
                break;
            }
            failures++;
            EXPECT_EQ(KOLO_ERR_SYSTEM, st) << nth;
            EXPECT_NE(std::string::npos, text.find("CUDA_ERROR_OUT_OF_MEMORY: out of memory"))
                << nth << ": " << text;
        }
        ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(failures, 100);
}

} // namespace
