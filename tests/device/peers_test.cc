// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/p2p
// Communicators of threads on a GPU each, over the driver of fake_cuda.cc with four GPUs: calls are
// kernels that store to each other's memory.
#include "gpu_threads.h"

#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

namespace
{

using namespace calls;

std::vector<int> GpusFrom(int first, int ranks)
{
    std::vector<int> gpus(static_cast<size_t>(ranks));
    std::iota(gpus.begin(), gpus.end(), first);
    return gpus;
}

// Rank r is a thread on GPU first + r.
struct Peered : GpuThreads {
    explicit Peered(int ranks, int first = 0, int timeout_ms = 30000, long fail = 0)
        : GpuThreads(GpusFrom(first, ranks), false, timeout_ms, fail)
    {
    }
};

// Buffers of all ranks on their GPUs.
struct Spread : Data {
    Spread(const Call &c, const Peered &peered, uint64_t seed) : Data(c, peered.Gpus(), seed) {}
    void *In(int r) const
    {
        return in[static_cast<size_t>(r)].Get();
    }
    void *Out(int r) const
    {
        return out[static_cast<size_t>(r)].Get();
    }
};

void CheckCalls(Peered &peered, const std::vector<Call> &calls)
{
    std::vector<std::unique_ptr<Spread>> data;
    for (size_t i = 0; i < calls.size(); i++) {
        data.push_back(std::make_unique<Spread>(calls[i], peered, 100 * i));
    }
    peered.Threads([&](int r) { // all of them queued before any is looked at
        for (size_t i = 0; i < calls.size(); i++) {
            EXPECT_EQ(KOLO_OK, Make(calls[i], data[i]->In(r), data[i]->Out(r), peered.Comm(r),
                                    peered.At(r).Get()))
                << kolo_error_text();
        }
        peered.At(r).Sync();
        for (size_t i = 0; i < calls.size(); i++) {
            data[i]->Check(calls[i], r);
        }
    });
}

class Several : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    }
    void TearDown() override
    {
        Peers("work");
    }
    // What has ended the communicator, once something has.
    static kolo_status EndOf(kolo_comm *comm)
    {
        const auto begin = std::chrono::steady_clock::now();
        while (kolo_comm_error(comm) == KOLO_OK &&
               std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)) {
            std::this_thread::yield();
        }
        return kolo_comm_error(comm);
    }
    static const std::vector<Call> &Few()
    {
        static const std::vector<Call> calls = {{kAllReduce, KOLO_FLOAT32, KOLO_SUM, 1000, 0},
                                                {kAllGather, KOLO_INT16, KOLO_SUM, 31, 0}};
        return calls;
    }
};

// The first test: what a process has found to work it does not try again.
TEST_F(Several, GpusThatDoNotReachEachOtherAreServedThroughTheHost)
{
    for (const char *word : {"none", "refuse", "spoil", "lose reads of 1"}) {
        Peers(word);
        Peered peered(2);
        ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
        const size_t before = Launches();
        CheckCalls(peered, Few());
        EXPECT_EQ(before, Launches()) << word;
    }
}

TEST_F(Several, GpusRunAKernelARankThatGivesTheReferencesBits)
{
    for (const char *ll_bytes : {"0", "1M", "0 "}) { // the last: nor from buffer to buffer
        setenv("KOLO_CUDA_LL_BYTES", ll_bytes[1] == ' ' ? "0" : ll_bytes, 1);
        setenv("KOLO_CUDA_DIRECT", ll_bytes[1] == ' ' ? "0" : "1", 1);
        for (const int ranks : {2, 3, 4}) {
            Peered peered(ranks);
            ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
            const std::vector<Call> calls = EveryCall(77, ranks - 1);
            const size_t before = Launches(), low = LaunchesLow();
            const size_t made = calls.size() * static_cast<size_t>(ranks);
            CheckCalls(peered, calls);
            EXPECT_EQ(before + made, Launches());
            EXPECT_EQ(low + (ll_bytes[0] == '0' ? 0 : made), LaunchesLow());
        }
    }
    unsetenv("KOLO_CUDA_LL_BYTES");
    unsetenv("KOLO_CUDA_DIRECT");
}

TEST_F(Several, GpusTakeLowLatencyKernelsForWhatIsShortAndOthersForTheRest)
{
    const Call call[] = {{kAllReduce, KOLO_INT8, KOLO_MAX, 4096, 0}, // 8192 bytes of two others
                         {kAllReduce, KOLO_INT8, KOLO_MAX, 4097, 0},
                         {kAllGather, KOLO_FLOAT16, KOLO_SUM, 2048, 0},
                         {kAllGather, KOLO_FLOAT16, KOLO_SUM, 2049, 0}};
    setenv("KOLO_CUDA_LL_BYTES", "8192", 1);
    Peered peered(3);
    unsetenv("KOLO_CUDA_LL_BYTES");
    ASSERT_TRUE(peered.IsUp());
    for (int i = 0; i < 8; i++) { // one after the other, on the same slabs
        const size_t low = LaunchesLow(), all = Launches();
        CheckCalls(peered, {call[i % 4]});
        EXPECT_EQ(low + (i % 2 == 0 ? 3 : 0), LaunchesLow()) << i;
        EXPECT_EQ(all + 3, Launches());
    }
}

TEST_F(Several, GpusLeaveWhatTheirBlocksCannotHoldToOtherKernels)
{
    setenv("KOLO_CUDA_LL_BYTES", "1G", 1);
    Peered peered(2); // four multiprocessors, so four blocks of 8 KiB
    unsetenv("KOLO_CUDA_LL_BYTES");
    ASSERT_TRUE(peered.IsUp());
    const size_t low = LaunchesLow();
    CheckCalls(peered, {{kAllReduce, KOLO_UINT8, KOLO_SUM, 32768, 0}});
    EXPECT_EQ(low + 2, LaunchesLow());
    CheckCalls(peered, {{kAllReduce, KOLO_UINT8, KOLO_SUM, 32769, 0}});
    EXPECT_EQ(low + 2, LaunchesLow());
}

TEST_F(Several, GpusReadAndWriteEachOthersBuffersWhereAllRanksAreReached)
{
    Peered peered(3);
    ASSERT_TRUE(peered.IsUp());
    for (const Call &call : std::vector<Call>{{kAllReduce, KOLO_BFLOAT16, KOLO_AVG, 100001, 0},
                                              {kAllGather, KOLO_INT8, KOLO_SUM, 100001, 0},
                                              {kReduceScatter, KOLO_FLOAT32, KOLO_SUM, 30001, 0}}) {
        for (int apart = -1; apart < 3; apart++) { // the rank whose input others do not reach
            const Spread data(call, peered, 3);
            const size_t bytes = call.count * 3 * kBytes[call.type], before = LaunchesDirect();
            const int gpu = peered.Gpu(apart < 0 ? 0 : apart);
            const Memory mapped = Memory::Virtual(bytes, true, gpu);
            mapped.Put(data.host[static_cast<size_t>(apart < 0 ? 0 : apart)].data(), bytes);
            peered.Threads([&](int r) {
                EXPECT_EQ(KOLO_OK, Make(call, r == apart ? mapped.Get() : data.In(r), data.Out(r),
                                        peered.Comm(r), peered.At(r).Get()))
                    << kolo_error_text();
                peered.At(r).Sync();
                data.Check(call, r);
            });
            EXPECT_EQ(before + (apart < 0 ? 3 : 2), LaunchesDirect());
        }
    }
}

// Of what is exact in any order.
std::vector<Call> ExactCalls(size_t count, int root)
{
    std::vector<Call> exact;
    for (const Call &call : EveryCall(count, root)) {
        if (!Reduces(call.coll) || (call.type <= KOLO_UINT64 && call.op != KOLO_AVG)) {
            exact.push_back(call);
        }
    }
    return exact;
}

TEST_F(Several, GpusRunTheAlgorithmsThatRulesForce)
{
    const char *const rules[] = {
        "allreduce:ring;reduce:binomial;broadcast:chain;gather:binomial;scatter:binomial;"
        "allgather:ring;reducescatter:ring;alltoall:bruck",
        "allreduce:tree;reduce:chain;broadcast:scatter;allgather:bruck;alltoall:pairwise;"
        "reducescatter:circulant"};
    for (const char *rule : rules) {
        setenv("KOLO_ALGO", rule, 1);
        for (const int ranks : {2, 3, 4}) {
            Peered peered(ranks);
            ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
            const std::vector<Call> calls = ExactCalls(700, ranks - 1);
            const size_t before = Launches(), direct = LaunchesDirect();
            CheckCalls(peered, calls);
            EXPECT_EQ(before + calls.size() * static_cast<size_t>(ranks), Launches());
            EXPECT_EQ(direct, LaunchesDirect());
            CheckCalls(peered, {{kAllReduce, KOLO_INT64, KOLO_SUM, 300001, 0},
                                {kAllGather, KOLO_UINT8, KOLO_SUM, 300001, 0},
                                {kBroadcast, KOLO_FLOAT64, KOLO_SUM, 100003, ranks - 1}});
        }
    }
    unsetenv("KOLO_ALGO");
}

TEST_F(Several, GpusRefuseARuleThatCannotBeFollowedAndGoOn)
{
    setenv("KOLO_ALGO", "allreduce:1k-:rings", 1); // which nobody has planned
    Peered peered(2);
    unsetenv("KOLO_ALGO");
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 1000, 0};
    const Spread data(call, peered, 1);
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(KOLO_ERR_INVALID,
                  Make(call, data.In(r), data.Out(r), peered.Comm(r), peered.At(r).Get()));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "allreduce_rings cannot run"))
            << kolo_error_text();
    }
    CheckCalls(peered, {{kAllGather, KOLO_INT16, KOLO_SUM, 31, 0}});
}

TEST_F(Several, GpusGoRoundThePlannersRingsWhereNotAllAreJoinedByNvlink)
{
    Peers("slow");
    setenv("KOLO_CUDA_LL_BYTES", "0", 1);
    setenv("KOLO_TOPO_FILE", KOLO_TESTS_DATA "/smi-4gpu.txt", 1);
    {
        Peered peered(4);
        ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
        const size_t before = Launches(), lanes = LaunchesLanes();
        CheckCalls(peered, {{kAllReduce, KOLO_INT32, KOLO_SUM, 400000, 0}});
        CheckCalls(peered, {{kReduce, KOLO_INT32, KOLO_SUM, 400000, 3},
                            {kBroadcast, KOLO_INT16, KOLO_SUM, 400000, 2}});
        EXPECT_EQ(lanes + 12, LaunchesLanes());
        CheckCalls(peered, {{kAllGather, KOLO_INT8, KOLO_SUM, 140001, 0}, // one ring is all it has
                            {kReduceScatter, KOLO_UINT32, KOLO_SUM, 40001, 0},
                            {kAllReduce, KOLO_INT32, KOLO_SUM, 40000, 0}});
        EXPECT_EQ(lanes + 12, LaunchesLanes());
        EXPECT_EQ(before + 24, Launches());
    }
    unsetenv("KOLO_CUDA_LL_BYTES");
    unsetenv("KOLO_TOPO_FILE");
}

TEST_F(Several, GpusTakeLongCallsInTiles)
{
    Peered peered(3);
    ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
    CheckCalls(peered, {{kAllReduce, KOLO_BFLOAT16, KOLO_SUM, 700001, 0},
                        {kAllToAll, KOLO_UINT8, KOLO_SUM, 900001, 0},
                        {kBroadcast, KOLO_FLOAT64, KOLO_SUM, 100003, 2}});
}

TEST_F(Several, GpusHaveBarriersMessagesAndBlocksThatNotAllRanksKnow)
{
    constexpr int kRanks = 3;
    Peered peered(kRanks);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 50, 0};
    const Spread data(call, peered, 8);
    peered.Threads([&](int r) {
        void *stream = peered.At(r).Get();
        const size_t counts[kRanks] = {1, 2, 3}, displs[kRanks] = {0, 1, 3};
        EXPECT_EQ(KOLO_OK, kolo_barrier(peered.Comm(r), stream)) << kolo_error_text();
        EXPECT_EQ(KOLO_OK, Make(call, data.In(r), data.Out(r), peered.Comm(r), stream));
        if (r < 2) { // the sum, from rank 0 over what rank 1 brought
            EXPECT_EQ(KOLO_OK,
                      r == 0 ? kolo_send(data.Out(0), 50, KOLO_INT32, 1, peered.Comm(0), stream)
                             : kolo_recv(data.In(1), 50, KOLO_INT32, 0, peered.Comm(1), stream));
        }
        EXPECT_EQ(KOLO_OK, kolo_gatherv(data.In(r), counts[r], data.Out(r), counts, displs,
                                        KOLO_INT32, 2, peered.Comm(r), stream));
        peered.At(r).Sync();
    });
    const Bytes sum = Expected(call, data.host, 0);
    EXPECT_EQ(sum, data.in[1].Take(sum.size()));
    EXPECT_EQ(data.in[0].At<int32_t>(0), data.out[2].At<int32_t>(0));
    EXPECT_EQ(data.in[1].At<int32_t>(1), data.out[2].At<int32_t>(2));
}

TEST_F(Several, GpusCallsTakeEffectInTheirOrderWhateverTheirStreams)
{
    Peered peered(2);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 2000, 0};
    const Spread data(call, peered, 5);
    peered.Threads([&](int r) { // in place, so that each call works on what the last one left
        const Stream more(peered.Gpu(r));
        for (int i = 0; i < 6; i++) {
            void *stream = i % 2 == 0 ? peered.At(r).Get() : more.Get();
            EXPECT_EQ(KOLO_OK, Make(call, data.In(r), data.In(r), peered.Comm(r), stream));
        }
        more.Sync();
    });
    const uint32_t sum = reduce_reference::Get<uint32_t>(&data.host[0][40]) +
                         reduce_reference::Get<uint32_t>(&data.host[1][40]);
    EXPECT_EQ(sum * 32, data.in[1].At<uint32_t>(10));
}

// Of as many elements: by lines with flags, or from buffer to buffer.
void CheckGraphs(size_t count)
{
    Peered peered(3);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, count, 0};
    const Spread data(call, peered, 9);
    peered.Threads([&](int r) {
        void *stream = peered.At(r).Get(), *captured, *graph;
        const Context context(peered.Gpu(r));
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        EXPECT_EQ(KOLO_OK, Make(call, data.In(r), data.Out(r), peered.Comm(r), stream))
            << kolo_error_text();
        EXPECT_EQ(KOLO_OK, kolo_barrier(peered.Comm(r), stream)) << kolo_error_text();
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        for (uint32_t round = 1; round <= 20; round++) {
            const uint32_t value = round * (static_cast<uint32_t>(r) + 1);
            data.in[static_cast<size_t>(r)].Put(&value, 4, 7 * 4);
            Do("cuGraphLaunch", graph, stream);
            peered.At(r).Sync();
            EXPECT_EQ(round * 6, data.out[static_cast<size_t>(r)].At<uint32_t>(7));
        }
        EXPECT_EQ(KOLO_OK, Make(call, data.In(r), data.Out(r), peered.Comm(r), stream));
        peered.At(r).Sync();
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    });
    EXPECT_EQ(120u, data.out[0].At<uint32_t>(7));
}

TEST_F(Several, GpusGraphsGiveNewResultsEachTimeTheyAreLaunched)
{
    const size_t low = LaunchesLow(), direct = LaunchesDirect();
    CheckGraphs(500);
    EXPECT_LT(low, LaunchesLow());
    EXPECT_EQ(direct, LaunchesDirect());
    CheckGraphs(60000);
    EXPECT_LT(direct, LaunchesDirect());
    setenv("KOLO_ALGO", "allreduce:ring;barrier:dissemination", 1); // made while it is captured
    CheckGraphs(60000);
    unsetenv("KOLO_ALGO");
}

TEST_F(Several, GpusOfOneThreadMakeTheirCallsInAGroup)
{
    Peered peered(4);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kReduceScatter, KOLO_FLOAT16, KOLO_SUM, 333, 0};
    const Spread data(call, peered, 2);
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int r = 0; r < 4; r++) {
        EXPECT_EQ(KOLO_OK, Make(call, data.In(r), data.Out(r), peered.Comm(r), peered.At(r).Get()));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    for (int r = 0; r < 4; r++) {
        peered.At(r).Sync();
        data.Check(call, r);
    }
}

TEST_F(Several, CommunicatorsNeverHaveMoreBlocksThatWaitThanTheGpuHolds)
{
    Peered first(2); // takes the four multiprocessors of each
    ASSERT_TRUE(first.IsUp());
    const size_t before = Launches();
    {
        Peered second(2);
        ASSERT_TRUE(second.IsUp());
        CheckCalls(second, Few());
        EXPECT_EQ(before, Launches()) << "through the host";
    }
    CheckCalls(first, Few());
    EXPECT_EQ(before + 4, Launches());
}

TEST_F(Several, GpusOfWhichOneNeverComesEndInTimeAndSayWhich)
{
    Peered peered(2, 0, 300);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Spread data(call, peered, 1);
    EXPECT_EQ(KOLO_OK, Make(call, data.In(1), data.Out(1), peered.Comm(1), peered.At(1).Get()));
    peered.At(1).Sync();
    EXPECT_EQ(KOLO_ERR_TIMEOUT, EndOf(peered.Comm(1)));
    EXPECT_NE(KOLO_OK, Make(call, data.In(1), data.Out(1), peered.Comm(1), peered.At(1).Get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 1 waited 300 ms for rank 0"))
        << kolo_error_text();
    EXPECT_NE(KOLO_OK, EndOf(peered.Comm(0))) << "the other is told";
}

TEST_F(Several, GpusInDifferentCallsEndTheCommunicator)
{
    for (const size_t count : {11, 200000}) { // the second is no call of the low-latency kernels
        Peered peered(2);
        ASSERT_TRUE(peered.IsUp());
        const Call call[] = {{kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0},
                             {kAllReduce, KOLO_INT32, KOLO_SUM, count, 0}};
        const Spread data(call[1], peered, 1);
        peered.Threads([&](int r) {
            (void)Make(call[r], data.In(r), data.Out(r), peered.Comm(r), peered.At(r).Get());
            peered.At(r).Sync();
            EXPECT_EQ(KOLO_ERR_MISMATCH, EndOf(peered.Comm(r)));
        });
    }
}

TEST_F(Several, GpusThatWaitGiveUpWhenTheCommunicatorIsAborted)
{
    Peered peered(3);
    ASSERT_TRUE(peered.IsUp());
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Spread data(call, peered, 1);
    for (int i = 0; i < 5; i++) {
        EXPECT_EQ(KOLO_OK, Make(call, data.In(1), data.Out(1), peered.Comm(1), peered.At(1).Get()));
    }
    kolo_comm_abort(peered.Comm(2));
    peered.At(1).Sync();
    EXPECT_EQ(0x5a, data.out[1].At<uint8_t>(0));
    EXPECT_EQ(KOLO_ERR_ABORTED, EndOf(peered.Comm(1)));
}

TEST_F(Several, GpusGetAllBackWhicheverCallOfTheDriverFails)
{
    { // what stays: peer access, once enabled
        Peered warm(2);
        ASSERT_TRUE(warm.IsUp());
    }
    const Memory in[] = {Memory(4, 0), Memory(4, 1)}, out[] = {Memory(4, 0), Memory(4, 1)};
    const size_t live = Find<size_t()>("FakeCudaLive")();
    long nth = 1;
    int right = 0;
    for (bool failed = true; failed; nth++) {
        const int32_t value = static_cast<int32_t>(nth), none = 0;
        for (int r = 0; r < 2; r++) {
            in[r].Put(&value, 4);
            out[r].Put(&none, 4);
        }
        {
            Peered peered(2, 0, 10000, nth);
            peered.Threads([&](int r) {
                if (!peered.IsUp()) {
                    return;
                }
                const kolo_status st =
                    kolo_all_reduce(in[r].Get(), out[r].Get(), 1, KOLO_INT32, KOLO_SUM,
                                    peered.Comm(r), peered.At(r).Get());
                if (st != KOLO_OK) {
                    kolo_comm_abort(peered.Comm(r)); // as a program does that cannot go on
                }
            });
            Find<void()>("FakeCudaDrain")();
            failed = Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
            for (int r = 0; r < 2 && peered.IsUp(); r++) {
                const bool good = out[r].At<int32_t>(0) == 2 * value;
                EXPECT_TRUE(good || EndOf(peered.Comm(r)) != KOLO_OK) << nth;
                right += good;
            }
        }
        ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 3000);
    }
    EXPECT_GT(nth, 200) << "kernels, slabs, pairs";
    EXPECT_GT(right, 100) << "what fails while peers come up leaves the way through the host";
}

// A slab, the stream for its end and pinned memory are the driver's business, which waits for all
// work of the GPU, and so for the kernel, which waits for the other rank.
TEST_F(Several, CommunicatorsMayComeAndGoWhileAKernelOfAnotherWaits)
{
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    Peered peered(2);
    ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
    const Spread data(call, peered, 1);
    EXPECT_EQ(KOLO_OK, Make(call, data.In(0), data.Out(0), peered.Comm(0), peered.At(0).Get()));
    for (int i = 0; i < 2; i++) {
        kolo_id id;
        std::vector<std::thread> ranks;
        ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
        for (int r = 0; r < 2; r++) {
            ranks.emplace_back([&id, r] {
                kolo_config config = KOLO_CONFIG_INIT;
                kolo_comm *comm = nullptr;
                config.device = r;
                EXPECT_EQ(KOLO_OK, kolo_comm_create(&id, 2, r, &config, &comm))
                    << kolo_error_text();
                kolo_comm_destroy(comm);
            });
        }
        for (std::thread &rank : ranks) {
            rank.join();
        }
    }
    EXPECT_EQ(KOLO_OK, Make(call, data.In(1), data.Out(1), peered.Comm(1), peered.At(1).Get()));
    for (int r = 0; r < 2; r++) {
        peered.At(r).Sync();
        data.Check(call, r);
    }
}

TEST_F(Several, GpusGoThroughTheHostWhereLaunchesBlock)
{
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    Peered peered(2);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
    const size_t before = Launches();
    CheckCalls(peered, {call});
    EXPECT_EQ(before, Launches()) << "a kernel that waits for a launch of the same thread";
}

TEST_F(Several, GpusRefuseMemoryThatWasFreed)
{
    void *gone = nullptr;
    Peered peered(2);
    ASSERT_TRUE(peered.IsUp()) << kolo_error_text();
    {
        const Memory memory(1 << 20, 0);
        gone = memory.Get();
    }
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(gone, gone, 1000, KOLO_INT32, KOLO_SUM, peered.Comm(0), nullptr));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "was freed")) << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_send(gone, 1000, KOLO_INT32, 1, peered.Comm(0), nullptr));
}

} // namespace
