// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu src/cuda
// Ranks as processes on one GPU: `kolo run -n N ranks`; with KOLO_TEST_GPUS set on one each. On a
// real GPU, or over the driver of fake_cuda.cc with FAKE_CUDA_SHARES set. TAP from rank 0; every
// rank's complaints go to its standard error and into the result.
#include "job.h"

#include <atomic>
#include <thread>

namespace
{

using namespace job;

// ---- results -----------------------------------------------------------------------------------

constexpr size_t kLong = 3 << 20; // bytes a block: several tiles

size_t Room(int ranks)
{
    return kLong * static_cast<size_t>(ranks) + 64;
}

bool CanBeInPlace(Coll coll)
{
    return coll == kAllReduce || coll == kReduce || coll == kBroadcast || coll == kAllToAll;
}

void Check(Job &job, const Call &c, bool in_place, const Memory &a, const Memory &b)
{
    static uint64_t seed;
    const std::vector<Bytes> host = Inputs(c, job.ranks, seed += 100);
    const Bytes expected = Expected(c, host, job.rank), &mine = host[static_cast<size_t>(job.rank)];
    const std::string name = "collective " + std::to_string(c.coll) + " of " +
                             std::to_string(c.count) + " " + kolo_type_name(c.type) + ", " +
                             kolo_op_name(c.op) + (in_place ? ", in place" : "");
    const size_t shift = kBytes[c.type]; // of the buffers in their allocations
    a.Put(mine.data(), mine.size(), shift);
    const Memory &out = in_place ? a : b;
    Expect(job, Make(c, a.Get(shift), out.Get(shift), job.comm, job.stream) == KOLO_OK, name);
    Sync(job);
    Expect(job, expected == out.Take(expected.size(), shift), name + " gave other bits");
}

void CheckEveryCall(Job &job, const Memory &a, const Memory &b, size_t count)
{
    for (const Call &call : EveryCall(count, job.ranks - 1)) {
        Check(job, call, false, a, b);
        if (CanBeInPlace(call.coll)) {
            Check(job, call, true, a, b);
        }
    }
}

void CheckLongCalls(Job &job, const Memory &a, const Memory &b)
{
    const size_t floats = kLong / 4;
    Check(job, {kAllReduce, KOLO_FLOAT32, KOLO_SUM, floats * static_cast<size_t>(job.ranks), 0},
          true, a, b);
    Check(job, {kAllGather, KOLO_FLOAT32, KOLO_SUM, floats, 0}, false, a, b);
    Check(job, {kReduceScatter, KOLO_BFLOAT16, KOLO_SUM, 2 * floats - 3, 0}, false, a, b);
    Check(job, {kAllToAll, KOLO_UINT8, KOLO_SUM, kLong - 1, 0}, true, a, b);
    Check(job, {kScatter, KOLO_INT64, KOLO_SUM, floats / 2, job.ranks - 1}, false, a, b);
}

// Block q of each rank r's buffer is q + 1 elements of 100 r + q, blocks in descending order.
void CheckVForms(Job &job, const Memory &a, const Memory &b)
{
    const auto n = static_cast<size_t>(job.ranks), me = static_cast<size_t>(job.rank);
    std::vector<size_t> counts(n), displs(n), own(n, me + 1), own_displs(n);
    std::vector<int32_t> send(n * (n + 1));
    for (size_t q = 0, at = n * (n + 1) / 2; q < n; q++) {
        counts[q] = q + 1;
        displs[q] = at -= q + 1;
        own_displs[q] = q * (me + 1);
        std::fill_n(send.begin() + static_cast<long>(displs[q]), q + 1,
                    static_cast<int32_t>(100 * me + q));
    }
    const auto want = [&](const char *name, size_t at, size_t count, size_t value) {
        for (size_t i = 0; i < count; i++) {
            Expect(job, b.At<int32_t>(at + i) == static_cast<int32_t>(value), name);
        }
    };
    const auto clear = [&] {
        const std::vector<int32_t> none(n * (n + 1), -1);
        b.Put(none.data(), none.size() * 4);
        a.Put(send.data(), send.size() * 4);
    };
    const auto own_block = [&] { return a.Get(displs[me] * 4); };
    clear();
    Expect(job,
           kolo_all_gatherv(own_block(), b.Get(), counts.data(), displs.data(), KOLO_INT32,
                            job.comm, job.stream) == KOLO_OK,
           "all_gatherv");
    Sync(job);
    for (size_t q = 0; q < n; q++) {
        want("all_gatherv", displs[q], q + 1, 101 * q);
    }
    clear();
    Expect(job,
           kolo_gatherv(own_block(), me + 1, b.Get(), counts.data(), displs.data(), KOLO_INT32, 0,
                        job.comm, job.stream) == KOLO_OK,
           "gatherv");
    Sync(job);
    for (size_t q = 0; q < n; q++) {
        want("gatherv", displs[q], q + 1, me == 0 ? 101 * q : SIZE_MAX);
    }
    clear();
    Expect(job,
           kolo_scatterv(a.Get(), counts.data(), displs.data(), b.Get(), me + 1, KOLO_INT32, 0,
                         job.comm, job.stream) == KOLO_OK,
           "scatterv");
    Sync(job);
    want("scatterv", 0, me + 1, me);
    want("scatterv wrote on", me + 1, 1, SIZE_MAX);
    clear();
    Expect(job,
           kolo_all_to_allv(a.Get(), counts.data(), displs.data(), b.Get(), own.data(),
                            own_displs.data(), KOLO_INT32, job.comm, job.stream) == KOLO_OK,
           "all_to_allv");
    Sync(job);
    for (size_t q = 0; q < n; q++) {
        want("all_to_allv", own_displs[q], me + 1, 100 * q + me);
    }
    std::vector<size_t> one(n, 1);
    clear();
    Expect(job,
           kolo_reduce_scatterv(a.Get(), b.Get(), one.data(), KOLO_INT32, KOLO_SUM, job.comm,
                                job.stream) == KOLO_OK,
           "reduce_scatterv");
    Sync(job);
    want("reduce_scatterv", 0, 1, 100 * (n - 1) * n / 2 + n * (n - 1)); // of the last block
}

// Round a ring in one group, in both directions; then one way, between collectives.
void CheckMessages(Job &job, const Memory &a, const Memory &b)
{
    const int n = job.ranks, next = (job.rank + 1) % n, last = (job.rank + n - 1) % n;
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{kLong / 4}}) {
        const std::vector<int32_t> mine(count, job.rank), none(2 * count + 1, -1);
        kolo_recv_info info = {sizeof info, -1, -1, 0};
        a.Put(mine.data(), count * 4);
        b.Put(none.data(), none.size() * 4);
        bool good = kolo_group_begin() == KOLO_OK;
        good = good && kolo_send(a.Get(), count, KOLO_INT32, next, job.comm, job.stream) == KOLO_OK;
        good = good && kolo_recv(b.Get(), count, KOLO_INT32, last, job.comm, job.stream) == KOLO_OK;
        good = good &&
               kolo_send_tag(a.Get(), count, KOLO_INT32, last, 7, job.comm, job.stream) == KOLO_OK;
        good = good && kolo_recv_tag(b.Get(count * 4), count + 1, KOLO_INT32, KOLO_ANY_SOURCE, 7,
                                     &info, job.comm, job.stream) == KOLO_OK;
        Expect(job, good && kolo_group_end() == KOLO_OK, "messages");
        Sync(job);
        for (const size_t at : {size_t{0}, count - 1}) {
            Expect(job, b.At<int32_t>(at) == last, "a message");
            Expect(job, b.At<int32_t>(count + at) == next, "a message with a tag");
        }
        Expect(job, b.At<int32_t>(2 * count) == -1, "a short message wrote on");
        Expect(job, info.source == next && info.tag == 7 && info.bytes == 4 * count, "its info");
    }
    int32_t value = 10 + job.rank;
    a.Put(&value, 4);
    if (job.rank < 2) {
        Expect(job,
               (job.rank == 0
                    ? kolo_send(a.Get(), 1, KOLO_INT32, 1, job.comm, job.stream)
                    : kolo_recv(a.Get(), 1, KOLO_INT32, 0, job.comm, job.stream)) == KOLO_OK,
               "one way");
    }
    Expect(job,
           kolo_all_reduce(a.Get(), b.Get(), 1, KOLO_INT32, KOLO_MAX, job.comm, job.stream) ==
               KOLO_OK,
           "after it");
    Sync(job);
    Expect(job, b.At<int32_t>(0) == (n == 2 ? 10 : 10 + n - 1), "a collective after a message");
    float host = static_cast<float>(job.rank), got = -1; // host memory goes its own way
    Expect(job, kolo_group_begin() == KOLO_OK, "group");
    Expect(job, kolo_send(&host, 1, KOLO_FLOAT32, next, job.comm, nullptr) == KOLO_OK, "host");
    Expect(job, kolo_recv(&got, 1, KOLO_FLOAT32, last, job.comm, nullptr) == KOLO_OK, "host");
    Expect(job, kolo_group_end() == KOLO_OK && got == static_cast<float>(last), "host message");
}

// ---- graphs, and memory that comes and goes -----------------------------------------------------

void CheckGraph(Job &job, const Memory &a, const Memory &b)
{
    void *captured, *graph;
    const Context context(Gpu(job.rank));
    Do("cuStreamBeginCapture_v2", job.stream, 1 /* this thread's */);
    Expect(job,
           kolo_all_reduce(a.Get(), b.Get(), 5, KOLO_INT32, KOLO_SUM, job.comm, job.stream) ==
               KOLO_OK,
           "capture");
    Expect(job, kolo_barrier(job.comm, job.stream) == KOLO_OK, "capture a barrier");
    Do("cuStreamEndCapture", job.stream, &captured);
    Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
    for (int round = 1; round <= 10; round++) {
        const int32_t value = round * (job.rank + 1);
        a.Put(&value, 4, 12);
        if (round % 3 == 0) { // not from the graph
            Expect(job,
                   kolo_all_reduce(a.Get(), b.Get(), 5, KOLO_INT32, KOLO_SUM, job.comm,
                                   job.stream) == KOLO_OK,
                   "between launches");
        } else {
            Do("cuGraphLaunch", graph, job.stream);
        }
        Sync(job);
        Expect(job, b.At<int32_t>(3) == round * job.ranks * (job.ranks + 1) / 2, "a launch");
    }
    Do("cuGraphExecDestroy", graph);
    Do("cuGraphDestroy", captured);
}

// The second allocation most likely lies where the first did. Its first call may go through the
// host: the old mapping is closed after that. `runs`: kernels serve the second call.
void CheckNewMemory(Job &job, bool is_virtual, bool runs)
{
    const auto by_host = [] {
        return gpu::IsFake() ? Find<size_t()>("FakeCudaCopied")() : 0; // between host and GPU
    };
    for (int round = 0; round < 4; round++) {
        const Memory memory = is_virtual ? Memory::Virtual(1 << 20, true, Gpu(job.rank))
                                         : Memory(1 << 20, Gpu(job.rank));
        const int32_t value = round + job.rank;
        memory.Put(&value, 4);
        Expect(job,
               kolo_all_reduce(memory.Get(), memory.Get(), 1, KOLO_INT32, KOLO_SUM, job.comm,
                               job.stream) == KOLO_OK,
               "memory anew");
        Sync(job);
        const int32_t sum = job.ranks * round + job.ranks * (job.ranks - 1) / 2;
        Expect(job, memory.At<int32_t>(0) == sum, "memory anew gave another sum");
        const size_t copied = by_host();
        Expect(job,
               kolo_all_reduce(memory.Get(), memory.Get(), 1, KOLO_INT32, KOLO_SUM, job.comm,
                               job.stream) == KOLO_OK,
               "memory anew, again");
        Sync(job);
        Expect(job, !runs || by_host() == copied, "memory anew, by the host again");
        Expect(job, memory.At<int32_t>(0) == job.ranks * sum, "its second sum");
    }
}

// Two communicators of a process map the memory of the same ranks. The driver maps no new memory
// where it still has the old one, whichever communicator mapped that.
void CheckTwoCommunicators(Job &job, bool opens)
{
    Job other = job;
    other.comm = Join(Gpu(job.rank));
    for (int round = 0; round < 3; round++) {
        for (Job *one : {&job, &other}) { // the allocation most likely lies where the last one did
            // Between GPUs the other communicator may still hold the old mapping.
            CheckNewMemory(*one, false, opens && !Spreads());
        }
    }
    kolo_comm_destroy(other.comm);
    job.complaints = other.complaints > job.complaints ? other.complaints : job.complaints;
}

// A thread that frees memory lets no other call of the process to the driver pass until all streams
// are done, also this one, which waits for the other ranks.
void CheckFreeWhilePending(Job &job, const Memory &a, const Memory &b)
{
    const int32_t mine[3] = {job.rank, 1, 2};
    std::atomic<bool> open = false;
    unsigned long long spare;
    void (*wait)(void *) = [](void *gate) {
        while (!*static_cast<std::atomic<bool> *>(gate)) {
            std::this_thread::yield();
        }
    };
    a.Put(mine, sizeof mine);
    {
        const Context context(Gpu(job.rank));
        Do("cuMemAlloc_v2", &spare, size_t{64});
        Do("cuLaunchHostFunc", job.stream, wait, static_cast<void *>(&open));
    }
    Expect(job,
           kolo_all_reduce(a.Get(), b.Get(), 3, KOLO_INT32, KOLO_SUM, job.comm, job.stream) ==
               KOLO_OK,
           "while memory is freed");
    std::thread freer([&] {
        const Context context(Gpu(job.rank));
        Do("cuMemFree_v2", spare);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100)); // now it has the lock
    open = true;
    freer.join();
    Sync(job);
    Expect(job, b.At<int32_t>(1) == job.ranks, "a sum while memory is freed");
}

void CheckDifferentCalls(Job &job, const Memory &a, const Memory &b)
{
    const size_t count = job.rank == 0 ? 4 : 5;
    const kolo_status st =
        kolo_all_reduce(a.Get(), b.Get(), count, KOLO_INT32, KOLO_SUM, job.comm, job.stream);
    Expect(job, st == KOLO_OK || st == KOLO_ERR_MISMATCH, "is enqueued, or others have seen it");
    Sync(job);
    const double begin = Seconds();
    while (kolo_comm_error(job.comm) == KOLO_OK && Seconds() - begin < 20) { // the watcher's turn
        std::this_thread::yield();
    }
    Expect(job, kolo_comm_error(job.comm) != KOLO_OK, "the communicator has ended");
    Expect(job,
           kolo_all_reduce(a.Get(), b.Get(), 4, KOLO_INT32, KOLO_SUM, job.comm, job.stream) !=
               KOLO_OK,
           "and takes no call");
}

// Each call of the driver fails once, on one rank: then all ranks see it, or the result is right.
void CheckDriverErrors(Job &job, const Memory &a, const Memory &b)
{
    int32_t more = 1;
    for (int32_t nth = 1; more != 0; nth++) {
        int32_t failed = 0;
        for (int at = 0; at < 2; at++) {
            Job one = job;
            one.comm = Join(Gpu(job.rank));
            const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 3, 0};
            const int32_t mine[3] = {nth, job.rank, 1}, none[3] = {};
            a.Put(mine, sizeof mine);
            b.Put(none, sizeof none);
            Find<void(long)>("FakeCudaFailNth")(job.rank == at ? nth : 0);
            const kolo_status st = Make(call, a.Get(), b.Get(), one.comm, one.stream);
            if (st != KOLO_OK) {
                kolo_comm_abort(one.comm); // as a program does that cannot go on
            }
            Find<void()>("FakeCudaDrain")();
            failed |= job.rank == at && Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
            const int32_t right = b.At<int32_t>(0) == nth * job.ranks;
            const int32_t told = kolo_comm_error(one.comm) != KOLO_OK;
            Expect(job, right != 0 || told != 0, "call " + std::to_string(nth) + " of the driver");
            kolo_comm_destroy(one.comm);
        }
        Expect(job, nth < 100, "calls of the driver end");
        if (kolo_all_reduce(&failed, &more, 1, KOLO_INT32, KOLO_MAX, world, nullptr) != KOLO_OK) {
            exit(2);
        }
    }
}

} // namespace

int main()
{
    world = Join(KOLO_HOST);
    const int gpu = Gpu(kolo_comm_rank(world));
    Job job = {kolo_comm_rank(world), kolo_comm_size(world), Join(gpu), nullptr, 0};
    {
        const Stream stream(gpu);
        const Memory a(Room(job.ranks), gpu), b(Room(job.ranks), gpu);
        job.stream = stream.Get();
        if (job.rank == 0) {
            printf("TAP version 13\n");
        }
        CheckEveryCall(job, a, b, 37);
        Say(job, "collectives of processes give the reference's bits");
        CheckLongCalls(job, a, b);
        Say(job, "and long ones");
        CheckVForms(job, a, b);
        Say(job, "blocks of different lengths go where they belong");
        CheckMessages(job, a, b);
        Say(job, "messages come to who they are for, in the order of the calls");
        const bool opens = getenv("KOLO_CUDA_IPC") == nullptr;
        const bool runs = opens && (Spreads() || job.rank == 0);
        CheckNewMemory(job, false, opens);
        Say(job, "memory that was freed and allocated anew is not taken for the old one");
        CheckTwoCommunicators(job, opens);
        Say(job, "nor by another communicator");
        CheckGraph(job, a, b);
        Say(job, "graphs give new results each time they are launched");
        CheckNewMemory(job, false, opens); // the graph is gone, so mappings are closed again
        const size_t launches = Launches();
        Expect(job, !gpu::IsFake() || (launches > 0) == runs, "launches");
        Say(job, !opens      ? "no rank runs a kernel"
                 : Spreads() ? "each rank runs kernels"
                             : "rank 0 runs the kernels of all");

        const Memory virtual_a = Memory::Virtual(Room(job.ranks), true, gpu);
        const Memory virtual_b = Memory::Virtual(Room(job.ranks), true, gpu);
        const size_t launches_before = Launches();
        CheckEveryCall(job, virtual_a, virtual_b, 11);
        CheckEveryCall(job, job.rank == 1 ? virtual_a : a, b, 5);
        CheckLongCalls(job, virtual_a, virtual_b);
        CheckNewMemory(job, true, opens);
        Expect(job, !gpu::IsFake() || (Launches() > launches_before) == runs, "launches");
        Say(job, "memory of virtual memory management is as good where it can be exported");

        if (gpu::IsFake()) {
            CheckDriverErrors(job, a, b);
            CheckDriverErrors(job, virtual_a, virtual_b);
            Say(job, "whichever call of the driver fails, all ranks are told");
        }
        Job other = job;
        other.comm = Join(gpu);
        const Memory hidden = Memory::Virtual(Room(job.ranks), false, gpu);
        CheckEveryCall(other, job.rank == 0 ? hidden : virtual_a, job.rank == 1 ? hidden : b, 6);
        CheckLongCalls(other, job.rank == 1 ? hidden : a, b);
        kolo_comm_destroy(other.comm);
        job.complaints += other.complaints;
        Say(job, "and gives the same where it cannot");
        // On a GPU that others use, too, only by request.
        const bool manages = gpu::IsFake() || getenv("KOLO_TEST_MANAGED") != nullptr;
        const Memory managed(Room(job.ranks), gpu, manages);
        CheckEveryCall(job, job.rank == 1 ? managed : a, b, 8);
        CheckLongCalls(job, a, job.rank == 0 ? managed : b);
        const size_t launches_closed = Launches();
        CheckEveryCall(job, a, b, 7);
        Expect(job, !gpu::IsFake() || (Launches() > launches_closed) == runs, "launches again");
        Say(job,
            "where one rank's memory cannot be opened, they give the same, for that call only");
        CheckFreeWhilePending(job, a, b);
        Say(job, "a thread may free memory while a call is pending");
        if (opens) {
            const Memory new_a(4096, gpu), new_b(4096, gpu);
            CheckFreeWhilePending(job, new_a, new_b);
            const Memory new_virtual = Memory::Virtual(4096, true, gpu);
            CheckFreeWhilePending(job, new_virtual, new_virtual);
            Say(job, "also if it is the first call on that memory");
        }
        CheckDifferentCalls(job, a, b);
        Say(job, "different calls end the communicator and release its streams");
        kolo_comm_destroy(job.comm);
    }
    if (job.rank == 0) {
        printf("1..%d\n", tests);
    }
    kolo_comm_destroy(world);
    return failures == 0 ? 0 : 1;
}
