// SPDX-License-Identifier: Apache-2.0
// The ranks of one host of layers_hosts_test.py, a process and a GPU each, over the driver of
// fake_cuda.cc: `layer_hosts HOST HOSTS SIZE WHAT`. A user namespace of its own makes it a host of
// its own.
#include "layer_calls.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

using namespace layer_calls;

int complaints;

struct Job {
    int rank, ranks, gpu, size; // of `size` ranks a host
    kolo_comm *comm;
    void *stream;
};

void Expect(const Job &job, bool holds, const std::string &what)
{
    if (!holds) {
        complaints++;
        printf("rank %d: %s: %s\n", job.rank, what.c_str(), kolo_error_text());
    }
}

kolo_comm *Join(int gpu, bool deterministic = false)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = gpu;
    config.deterministic = deterministic;
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK) {
        printf("no communicator: %s\n", kolo_error_text());
        fflush(stdout);
        _exit(2);
    }
    return comm;
}

void Sync(const Job &job)
{
    const Context context(job.gpu);
    Do("cuStreamSynchronize", job.stream);
}

std::vector<Bytes> Inputs(const Job &job, const Call &c, bool exact)
{
    static uint64_t seed;
    const size_t count = c.count * Blocks(c.coll, job.ranks);
    std::vector<Bytes> in;
    for (int r = 0; r < job.ranks; r++) {
        in.push_back(exact ? Exact(c.type, count, ++seed) : Fill(c.type, count, ++seed));
    }
    return in;
}

void Check(const Job &job, const Call &c, bool in_place, bool exact)
{
    std::vector<Bytes> inputs = Inputs(job, c, exact);
    const Bytes &mine = inputs[static_cast<size_t>(job.rank)];
    const Shift shift = in_place ? InPlaceShift(c, job.rank) : Shift();
    const Memory a(mine.size(), job.gpu), b(mine.size(), job.gpu);
    const Memory &out = in_place ? a : b;
    a.Put(mine.data(), mine.size());
    Expect(job, Make(c, a.Get(shift.in), out.Get(shift.out), job.comm, job.stream) == KOLO_OK,
           Name(c));
    Sync(job);
    for (size_t r = 0; r < inputs.size() && in_place; r++) {
        const size_t in = InPlaceShift(c, static_cast<int>(r)).in;
        inputs[r].erase(inputs[r].begin(), inputs[r].begin() + static_cast<long>(in));
    }
    const Bytes expected = Expected(c, inputs, job.rank);
    Expect(job, expected == out.Take(expected.size(), shift.out),
           Name(c) + (in_place ? ", in place: other bits" : ": other bits"));
}

// In place and not; with more than two GPUs a host by turns, and the turns of sums in any order and in
// the order of ranks differ. KOLO_TEST_WHOLE=1: both ways each.
void CheckCalls(const Job &job, const std::vector<Call> &calls, bool exact = true)
{
    const bool both = job.size <= 2 || getenv("KOLO_TEST_WHOLE") != nullptr;
    size_t turn = exact ? 0 : 1;
    for (const Call &call : calls) {
        const bool in_place = CanBeInPlace(call.coll) && turn++ % 2 == 0;
        if (both || !in_place) {
            Check(job, call, false, exact);
        }
        if (both ? CanBeInPlace(call.coll) : in_place) {
            Check(job, call, true, exact);
        }
    }
}

void CheckLengths(const Job &job)
{
    std::vector<Call> calls;
    for (const size_t count : {1, 5, 33, 4097, 500001}) {
        for (const Coll coll : {kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter}) {
            calls.push_back({coll, KOLO_INT16, KOLO_SUM, count, job.ranks - 1});
        }
    }
    CheckCalls(job, calls);
}

// Of an all-reduce each rank moves 1/size of its bytes to the host and back.
void CheckBytes(const Job &job)
{
    constexpr size_t kBytes = 1 << 22;
    const Memory at(kBytes, job.gpu);
    at.Put(Bytes(kBytes).data(), kBytes);
    const auto copied = Find<size_t()>("FakeCudaCopied");
    const size_t before = copied();
    Expect(job,
           kolo_all_reduce(at.Get(), at.Get(), kBytes / 4, KOLO_INT32, KOLO_SUM, job.comm,
                           job.stream) == KOLO_OK,
           "all-reduce");
    Sync(job);
    Expect(job, copied() - before == 2 * kBytes / static_cast<size_t>(job.size),
           std::to_string(copied() - before) + " bytes through the host");
}

void CheckGraph(const Job &job)
{
    void *captured, *graph;
    const Context context(job.gpu);
    const Memory a(20000, job.gpu), b(20000, job.gpu);
    a.Put(Bytes(20000).data(), 20000);
    Do("cuStreamBeginCapture_v2", job.stream, 1 /* this thread's */);
    Expect(job,
           kolo_all_reduce(a.Get(), b.Get(), 5000, KOLO_INT32, KOLO_SUM, job.comm, job.stream) ==
               KOLO_OK,
           "capture");
    Do("cuStreamEndCapture", job.stream, &captured);
    Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
    for (int round = 1; round <= 10; round++) {
        const int32_t value = round * (job.rank + 1);
        a.Put(&value, 4, 4999 * 4);
        Do("cuGraphLaunch", graph, job.stream);
        Sync(job);
        Expect(job, b.At<int32_t>(4999) == round * job.ranks * (job.ranks + 1) / 2, "a launch");
    }
    Do("cuGraphExecDestroy", graph);
    Do("cuGraphDestroy", captured);
}

void CheckAll(Job job)
{
    CheckCalls(job, EveryCall(77, 1));
    CheckLengths(job);
    CheckBytes(job);
    CheckGraph(job);
    Job other = job;
    other.comm = Join(job.gpu, true);
    CheckCalls(other, EveryCall(77, 1), false);
    kolo_comm_destroy(other.comm);
}

// Calls until one rank is lost, then who it was.
void CallUntilTheEnd(const Job &job)
{
    const Memory at(1 << 20, job.gpu);
    at.Put(Bytes(1 << 20).data(), 1 << 20);
    kolo_failure failure = {};
    failure.size = sizeof failure;
    for (int i = 0; failure.status == KOLO_OK; i++) {
        const kolo_status st = kolo_all_reduce(at.Get(), at.Get(), 1 << 18, KOLO_INT32, KOLO_SUM,
                                               job.comm, job.stream);
        Sync(job);
        if (i == 3) {
            printf("rank %d is %d\n", job.rank, getpid());
            fflush(stdout);
        }
        if (kolo_comm_failure(job.comm, &failure) != KOLO_OK ||
            (st != KOLO_OK && failure.status == KOLO_OK)) {
            complaints++;
            break;
        }
    }
    printf("rank %d: %s %d # %s\n", job.rank, kolo_status_name(failure.status), failure.rank,
           failure.text);
}

// Those that are left go on.
void Shrink(const Job &job, int without)
{
    kolo_comm *rest = nullptr;
    Expect(job, kolo_comm_shrink(job.comm, &without, 1, nullptr, &rest) == KOLO_OK, "shrink");
    if (rest != nullptr) {
        const Memory at(4000, job.gpu);
        at.Put(std::vector<int32_t>(1000, 1).data(), 4000);
        Expect(job,
               kolo_all_reduce(at.Get(), at.Get(), 1000, KOLO_INT32, KOLO_SUM, rest, job.stream) ==
                   KOLO_OK,
               "a call of those that are left");
        Sync(job);
        Expect(job, at.At<int32_t>(999) == job.ranks - 1, "their sum");
        kolo_comm_destroy(rest);
    }
}

int RunRank(int rank, int ranks, int size, const std::string &what)
{
    setenv("KOLO_RANK", std::to_string(rank).c_str(), 1);
    setenv("KOLO_NRANKS", std::to_string(ranks).c_str(), 1);
    Job job = {rank, ranks, rank % size, size, Join(rank % size), nullptr};
    {
        const Stream stream(job.gpu);
        job.stream = stream.Get();
        if (what == "check") {
            CheckAll(job);
        } else {
            CallUntilTheEnd(job);
            Shrink(job, atoi(what.c_str()));
        }
        kolo_comm_destroy(job.comm);
    }
    return complaints == 0 ? 0 : 1;
}

} // namespace

int main(int, char **argv)
{
    const int host = atoi(argv[1]), hosts = atoi(argv[2]), size = atoi(argv[3]);
    bool good = true;
    if (unshare(CLONE_NEWUSER) != 0) {
        printf("no user namespaces here: %s\n", strerror(errno));
        return 77;
    }
    for (int i = 0; i < size; i++) {
        const pid_t child = fork();
        if (child == 0) {
            const int status = RunRank(host * size + i, hosts * size, size, argv[4]);
            fflush(stdout);
            _exit(status);
        }
        good = good && child > 0;
    }
    for (int status; wait(&status) > 0;) {
        good = good && ((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                        (WIFSIGNALED(status) && strcmp(argv[4], "check") != 0));
    }
    return good ? 0 : 1;
}
