// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/ipc src/cuda/ipc.c
// Ranks as processes on a GPU each, whose long calls go from buffer to buffer: `kolo run -n N
// device_loans` over the driver of fake_cuda.cc, with FAKE_CUDA_SHARES and KOLO_TEST_GPUS set.
#include "job.h"

#include <functional>
#include <memory>
#include <thread>

namespace
{

using namespace job;

constexpr size_t kOffset = 3 * 65536 + 8; // in the fourth piece, where there are some
constexpr size_t kCount = 70001; // of two bytes and more: too long for the low-latency kernels
const Call kSum = {kAllReduce, KOLO_INT32, KOLO_SUM, kCount, 0};

size_t Room(int ranks)
{
    return kCount * 4 * static_cast<size_t>(ranks) + kOffset;
}

struct Buffers {
    const Memory &in, &out;
    size_t offset = 0;
};

// A call, which must give the reference's bits. Whether all of the `here` ranks of this process
// brought buffers that the others use.
bool Round(Job &job, const Call &c, const Buffers &buffers, uint64_t seed, size_t here = 1)
{
    const std::vector<Bytes> host = Inputs(c, job.ranks, seed);
    const Bytes expected = Expected(c, host, job.rank), &mine = host[static_cast<size_t>(job.rank)];
    const size_t before = LaunchesDirect();
    buffers.in.Put(mine.data(), mine.size(), buffers.offset);
    Expect(job, kolo_barrier(job.comm, nullptr) == KOLO_OK, "barrier");
    Expect(job,
           Make(c, buffers.in.Get(buffers.offset), buffers.out.Get(buffers.offset), job.comm,
                job.stream) == KOLO_OK,
           "a call");
    Do("cuStreamSynchronize", job.stream);
    Expect(job, expected == buffers.out.Take(expected.size(), buffers.offset),
           "collective " + std::to_string(c.coll) + " gave other bits");
    Expect(job, kolo_barrier(job.comm, nullptr) == KOLO_OK, "barrier");
    return LaunchesDirect() == before + here;
}

// Calls until the others use the buffers of all ranks.
void UntilDirect(Job &job, const Call &c, const Buffers &buffers, const std::string &what,
                 size_t here = 1)
{
    const double begin = Seconds();
    int32_t all = 0;
    for (uint64_t seed = 1; all == 0; seed += 100) {
        const bool direct = Round(job, c, buffers, seed, here);
        const int32_t mine = direct ? 1 : Seconds() - begin > 20 ? -1 : 0;
        if (kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_MIN, job.comm, nullptr) != KOLO_OK) {
            all = -1;
        }
    }
    Expect(job, all == 1, what + ": slots are taken for ever");
}

void CheckCollectives(Job &job, const std::function<Memory()> &make)
{
    for (const Call &c : std::vector<Call>{{kAllReduce, KOLO_BFLOAT16, KOLO_AVG, kCount, 0},
                                           {kAllGather, KOLO_INT16, KOLO_SUM, kCount, 0},
                                           {kReduceScatter, KOLO_FLOAT32, KOLO_SUM, kCount, 0}}) {
        const Memory in = make(), out = make();
        UntilDirect(job, c, {in, out}, "out of place");
        UntilDirect(job, c, {in, out, kOffset}, "behind the beginning");
        if (c.coll == kAllReduce) {
            UntilDirect(job, c, {in, in}, "in place");
        }
    }
}

void CheckSlotsOnly(Job &job)
{
    Job other = job;
    setenv("KOLO_CUDA_DIRECT", "0", 1);
    other.comm = Join(Gpu(job.rank));
    unsetenv("KOLO_CUDA_DIRECT");
    const Memory in(Room(job.ranks), Gpu(job.rank)), out(Room(job.ranks), Gpu(job.rank));
    for (uint64_t i = 0; i < 5; i++) {
        Expect(other, !Round(other, kSum, {in, out}, i), "KOLO_CUDA_DIRECT=0");
    }
    kolo_comm_destroy(other.comm);
    job.complaints = other.complaints;
}

// One rank's memory cannot be mapped; the others' can.
void CheckHidden(Job &job, const Memory &hidden, const Memory &known)
{
    for (int apart = 0; apart < job.ranks; apart++) {
        for (uint64_t i = 0; i < 3; i++) {
            const bool direct =
                Round(job, kSum, {job.rank == apart ? hidden : known, known}, 10 + i);
            Expect(job, !direct || job.rank != apart, "memory that cannot be mapped");
        }
    }
    UntilDirect(job, kSum, {known, known}, "after memory that cannot be mapped");
}

size_t Opened()
{
    return Find<size_t()>("FakeCudaOpened")();
}

// The next allocation most likely lies where the last did. What is freed is unmapped.
void CheckNewMemory(Job &job, const std::function<Memory()> &make)
{
    const size_t before = Opened();
    for (int i = 0; i < 4; i++) {
        const Memory in = make(), out = make();
        UntilDirect(job, kSum, {in, out}, "memory anew");
    }
    const double begin = Seconds();
    while (Opened() > before && Seconds() - begin < 20) {
        std::this_thread::yield();
    }
    Expect(job, Opened() == before, "freed memory stays mapped");
}

// By turns one rank brings memory that is new to the others.
void CheckKnownAndNew(Job &job, const Memory &in, const Memory &out)
{
    UntilDirect(job, kSum, {in, out}, "known");
    for (int i = 0; i < 4 * job.ranks; i++) {
        const Memory fresh(Room(job.ranks), Gpu(job.rank));
        const bool brings = job.rank == i % job.ranks;
        const bool direct =
            Round(job, kSum, {brings ? fresh : in, out}, 20 + static_cast<uint64_t>(i));
        Expect(job, direct || brings, "known memory is lent already");
    }
    UntilDirect(job, kSum, {in, out}, "known, again");
}

void Capture(Job &job, int mode, const Buffers &buffers, void **graph_out)
{
    void *captured;
    Do("cuStreamBeginCapture_v2", job.stream, mode);
    Expect(job, Make(kSum, buffers.in.Get(), buffers.out.Get(), job.comm, job.stream) == KOLO_OK,
           "capture");
    Do("cuStreamEndCapture", job.stream, &captured);
    Do("cuGraphInstantiateWithFlags", graph_out, captured, 0ull);
    Do("cuGraphDestroy", captured);
}

// A graph of memory that nobody knew goes from buffer to buffer, at once and later on.
void CheckGraph(Job &job, int mode)
{
    const int gpu = Gpu(job.rank);
    const Memory in(Room(job.ranks), gpu), out(Room(job.ranks), gpu);
    const size_t before = LaunchesDirect();
    void *graph;
    Capture(job, mode, {in, out}, &graph);
    Expect(job, LaunchesDirect() == before + 1, "a capture waits until its buffers are mapped");
    /* A rank maps no buffers while its GPU works on a graph that waits for another rank's capture. */
    Expect(job, kolo_barrier(job.comm, nullptr) == KOLO_OK, "barrier");
    for (int32_t round = 1; round <= 12; round++) {
        const int32_t value = round * (job.rank + 1);
        const Memory fresh(Room(job.ranks), gpu);
        in.Put(&value, 4, 4 * (kCount - 1));
        Do("cuGraphLaunch", graph, job.stream);
        Do("cuStreamSynchronize", job.stream);
        Expect(job, out.At<int32_t>(kCount - 1) == round * job.ranks * (job.ranks + 1) / 2,
               "a launch");
        if (round % 3 == 0) {
            (void)Round(job, kSum, {fresh, out}, 30 + static_cast<uint64_t>(round));
        }
    }
    Do("cuGraphExecDestroy", graph);
}

// A call into out[0] in a graph, and one into out[1]. Whether the driver has failed on the way: the
// nth call of it does.
bool CaptureAndCall(Job &job, const Memory &in, const Memory *out, long nth)
{
    const auto begin = Find<int(void *, int)>("cuStreamBeginCapture_v2");
    const auto end = Find<int(void *, void **)>("cuStreamEndCapture");
    void *captured = nullptr;
    (void)begin(job.stream, 1);
    Find<void(long)>("FakeCudaFailNth")(nth);
    kolo_status st = Make(kSum, in.Get(), out[0].Get(), job.comm, job.stream);
    (void)end(job.stream, &captured);
    if (st == KOLO_OK) {
        Do("cuGraphLaunch", captured, job.stream);
        st = Make(kSum, in.Get(), out[1].Get(), job.comm, job.stream);
    }
    if (st != KOLO_OK) {
        kolo_comm_abort(job.comm); // as a program does that cannot go on
    }
    Find<void()>("FakeCudaDrain")();
    const bool failed = Find<bool()>("FakeCudaHasFailed")();
    Find<void(long)>("FakeCudaFailNth")(0);
    if (captured != nullptr) {
        Do("cuGraphDestroy", captured);
    }
    return nth > 0 && failed;
}

// Each call of the driver fails once, on one rank, in the call or in the thread that maps.
void CheckDriverErrors(Job &job, const std::function<Memory()> &make)
{
    const size_t before = Opened();
    const bool all = job.ranks == 2 || getenv("KOLO_TEST_WHOLE") != nullptr; // else each third call
    int32_t more = 1;
    for (int32_t nth = 1; more != 0; nth += all ? 1 : 3) {
        int32_t failed = 0;
        for (int at = 0; at < 2; at++) {
            Job one = job;
            one.comm = Join(Gpu(job.rank));
            const Memory in = make(), out[] = {make(), make()};
            const int32_t none = -1;
            in.Put(&nth, 4);
            out[0].Put(&none, 4);
            out[1].Put(&none, 4);
            failed |= CaptureAndCall(one, in, out, job.rank == at ? nth : 0);
            const double since = Seconds();
            for (const Memory &got : out) {
                bool right = false;
                while (!right && kolo_comm_error(one.comm) == KOLO_OK && Seconds() - since < 20) {
                    right = got.At<int32_t>(0) == nth * job.ranks;
                }
                Expect(job, right || kolo_comm_error(one.comm) != KOLO_OK,
                       "call " + std::to_string(nth) + " of the driver");
            }
            kolo_comm_destroy(one.comm);
        }
        Expect(job, Opened() == before, "all is given back");
        Expect(job, nth < 200, "calls of the driver end");
        if (kolo_all_reduce(&failed, &more, 1, KOLO_INT32, KOLO_MAX, world, nullptr) != KOLO_OK) {
            exit(2);
        }
    }
}

// Two processes of two threads each: some memory is in this process, some in another one.
void CheckThreads(Job &job)
{
    kolo_id mine, id;
    Job two[2] = {job, job};
    std::vector<std::thread> threads;
    Expect(job, job.rank != 0 || kolo_id_create(&mine) == KOLO_OK, "an id");
    Expect(job, kolo_broadcast(&mine, &id, sizeof id, KOLO_UINT8, 0, world, nullptr) == KOLO_OK,
           "its broadcast");
    for (Job &one : two) {
        one.rank = 2 * job.rank + static_cast<int>(&one - two);
        one.ranks = 4;
        threads.emplace_back([&one, &id] {
            const Stream stream(one.rank);
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = one.rank;
            one.stream = stream.Get();
            Expect(one, kolo_comm_create(&id, 4, one.rank, &config, &one.comm) == KOLO_OK, "comm");
            const Memory in(Room(4), one.rank), out(Room(4), one.rank);
            UntilDirect(one, kSum, {in, out}, "threads of processes", 2);
            const Memory mapped = Memory::Virtual(Room(4), true, one.rank);
            UntilDirect(one, kSum, {mapped, mapped}, "mapped memory of threads", 2);
            kolo_comm_destroy(one.comm);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    job.complaints += two[0].complaints + two[1].complaints;
}

} // namespace

int main()
{
    if (!gpu::IsFake() || !Spreads()) {
        fprintf(stderr, "KOLO_CUDA_PATH is not the driver of tests/device\n");
        return 2;
    }
    world = Join(KOLO_HOST);
    const int gpu = Gpu(kolo_comm_rank(world));
    Job job = {kolo_comm_rank(world), kolo_comm_size(world), nullptr, nullptr, 0};
    const auto plain = [&] { return Memory(Room(job.ranks), gpu); };
    const auto mapped = [&] { return Memory::Virtual(Room(job.ranks), true, gpu); };
    const auto pieces = [&] { return Memory::Virtual(Room(job.ranks), true, gpu, 5); };
    {
        const Context context(gpu);
        const Stream stream(gpu);
        const size_t opened = Opened();
        job.comm = Join(gpu);
        job.stream = stream.Get();
        if (job.rank == 0) {
            printf("TAP version 13\n");
        }
        CheckCollectives(job, plain);
        Say(job, "long calls of processes go from buffer to buffer once buffers are mapped");
        CheckCollectives(job, mapped);
        CheckCollectives(job, pieces);
        Say(job, "also in memory of virtual memory management, of several allocations, too");
        CheckSlotsOnly(job);
        Say(job, "and never where that is not wanted");
        const Memory known = plain(), out = plain();
        CheckHidden(job, Memory::Pooled(Room(job.ranks), gpu), known);
        CheckHidden(job, Memory::Virtual(Room(job.ranks), false, gpu), known);
        CheckHidden(job, Memory(Room(job.ranks), gpu, true), known);
        Say(job, "memory of pools, of no handle and managed memory takes slots, at all ranks");
        CheckNewMemory(job, plain);
        CheckNewMemory(job, mapped);
        CheckNewMemory(job, pieces);
        Say(job, "memory that was freed is unmapped, and not taken for what lies there next");
        CheckKnownAndNew(job, known, out);
        Say(job, "what one rank brings may be new while the others' is known");
        CheckGraph(job, 0 /* global */);
        CheckGraph(job, 1 /* this thread's */);
        Say(job, "graphs of memory that nobody knew go from buffer to buffer");
        kolo_comm_destroy(job.comm);
        Expect(job, Opened() == opened, "all is unmapped");
        Say(job, "what a communicator has mapped it gives back");
        CheckDriverErrors(job, plain);
        CheckDriverErrors(job, [&] { return Memory::Virtual(Room(job.ranks), true, gpu, 2); });
        Say(job, "whichever call of the driver fails, results are right, or all ranks are told");
        if (job.ranks == 2) {
            CheckThreads(job);
            Say(job, "threads of several processes map what is not theirs");
        }
    }
    if (job.rank == 0) {
        printf("1..%d\n", tests);
    }
    kolo_comm_destroy(world);
    return failures == 0 ? 0 : 1;
}
