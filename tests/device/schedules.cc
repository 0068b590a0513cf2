// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/fused src/gpu/proxy
// Random schedules of what an application does beside collective calls, over the driver of
// fake_cuda.cc with FAKE_CUDA_STRICT: each must come to its end, with right results.
//
//   schedules COUNT [SEED]                     ranks are threads of one process on one GPU
//   kolo run -n N schedules COUNT [SEED]       ranks are processes with one thread on one GPU
//   schedules plan SEED [RANKS]                what the schedule of this seed does
//
// A schedule is a list of steps, the same for all ranks. A step is a few calls, a new communicator,
// the end of one, or an abort by a rank that does not make the call of the others. Meanwhile a
// second thread of each rank frees memory, loads kernels, launches them for the first time, and
// makes streams, each of which waits for all that the GPU has to do.
#include "exec/gpu/fused/fused.h"
#include "job.h"

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <unistd.h>

namespace
{

using namespace job;

constexpr size_t kElements = 3000;  // a block, at most
constexpr size_t kCalls = 3;        // of a step, at most
constexpr unsigned kPatience = 100; // seconds for a schedule

// ---- what is done ------------------------------------------------------------------------------

enum Kind { kCall, kBegin, kEnd, kAbort };
enum Noise { kNothing, kFree, kLoad, kLaunch, kStream };
const char *const noise_name[] = {"nothing", "a free", "a module", "a first launch", "a stream"};

struct Step {
    Kind kind;
    std::vector<Call> calls;
    bool second;                           // on the communicator that was made last
    int rank;                              // that aborts
    std::vector<std::vector<Noise>> noise; // of each rank
};

class Choice
{
  public:
    explicit Choice(uint64_t seed) : state_(seed * 2 + 1)
    {
        Next(2);
    }
    uint64_t Next(uint64_t below)
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % below;
    }

  private:
    uint64_t state_;
};

Call ChooseCall(Choice &choice, int ranks)
{
    const Coll colls[] = {kAllReduce, kAllReduce,     kBroadcast,
                          kAllGather, kReduceScatter, kAllToAll};
    const kolo_type types[] = {KOLO_INT32, KOLO_FLOAT32, KOLO_BFLOAT16, KOLO_INT64};
    return {colls[choice.Next(6)], types[choice.Next(4)], KOLO_SUM, 1 + choice.Next(kElements),
            static_cast<int>(choice.Next(static_cast<uint64_t>(ranks)))};
}

std::vector<Step> Plan(uint64_t seed, int ranks)
{
    Choice choice(seed);
    std::vector<Step> steps;
    bool has_second = false;
    const size_t count = 6 + choice.Next(6);
    while (steps.size() < count) {
        Step step = {};
        const uint64_t kind = choice.Next(10);
        step.kind = kind < 6 ? kCall : !has_second ? kBegin : kind < 8 ? kEnd : kAbort;
        has_second = step.kind == kBegin || (step.kind == kCall && has_second);
        step.second = has_second && choice.Next(2) == 0;
        step.rank = static_cast<int>(choice.Next(static_cast<uint64_t>(ranks)));
        for (uint64_t i = 1 + choice.Next(kCalls); i > 0; i--) {
            step.calls.push_back(ChooseCall(choice, ranks));
        }
        for (int r = 0; r < ranks; r++) {
            step.noise.emplace_back();
            for (uint64_t i = choice.Next(4); i > 0; i--) {
                step.noise.back().push_back(static_cast<Noise>(choice.Next(5)));
            }
        }
        steps.push_back(step);
    }
    return steps;
}

void Print(uint64_t seed, int ranks)
{
    const char *const coll_name[] = {"all-reduce", "reduce",     "broadcast",      "gather",
                                     "scatter",    "all-gather", "reduce-scatter", "all-to-all"};
    printf("schedule %llu of %d ranks\n", static_cast<unsigned long long>(seed), ranks);
    for (const Step &step : Plan(seed, ranks)) {
        const char *const on = step.second ? " on the second communicator" : "";
        if (step.kind == kAbort) {
            printf("rank %d aborts the second communicator, which is destroyed\n", step.rank);
        } else if (step.kind != kCall) {
            printf("%s\n", step.kind == kBegin ? "a second communicator" : "its end");
        }
        for (const Call &c : step.calls) {
            if (step.kind == kCall) {
                printf("%s of %zu %s%s\n", coll_name[c.coll], c.count, kolo_type_name(c.type), on);
            }
        }
        for (int r = 0; r < ranks; r++) {
            for (const Noise noise : step.noise[static_cast<size_t>(r)]) {
                printf("    beside it, rank %d: %s\n", r, noise_name[noise]);
            }
        }
    }
}

// ---- what an application does beside ------------------------------------------------------------

// A kernel that has not been used, which does nothing: its call is aborted.
void LoadOrLaunch(void *stream, bool launches)
{
    static const kolo_fused_table nothing = {1, {}, {}};
    kolo_fused_launch launch = {};
    launch.table = reinterpret_cast<uintptr_t>(&nothing);
    void *module, *function, *arguments[] = {&launch};
    Do("cuModuleLoadData", &module, static_cast<const void *>("any bytes"));
    Do("cuModuleGetFunction", &function, module, "kolo_fused_sum_float32");
    if (launches) {
        Do("cuLaunchKernel", function, 1u, 1u, 1u, 32u, 1u, 1u, 0u, stream,
           static_cast<void **>(arguments), static_cast<void **>(nullptr));
        Do("cuStreamSynchronize", stream);
    } else {
        Do("cuFuncLoad", function);
    }
    Do("cuModuleUnload", module);
}

void Disturb(Noise noise, void *stream)
{
    unsigned long long at;
    void *made;
    switch (noise) {
    case kFree:
        Do("cuMemAlloc_v2", &at, size_t{4096});
        Do("cuMemFree_v2", at);
        break;
    case kLoad:
    case kLaunch:
        LoadOrLaunch(stream, noise == kLaunch);
        break;
    case kStream:
        Do("cuStreamCreate", &made, 1u);
        Do("cuStreamDestroy_v2", made);
        break;
    case kNothing:
        break;
    }
}

// ---- one rank ----------------------------------------------------------------------------------

struct Buffers {
    explicit Buffers(size_t bytes) : in(bytes), out(bytes) {}
    Memory in, out;
};

class Rank
{
  public:
    Rank(kolo_comm *comm, void *stream, void *aside)
        : job_{kolo_comm_rank(comm), kolo_comm_size(comm), comm, stream, 0}, aside_(aside)
    {
        const size_t bytes = kElements * 8 * static_cast<size_t>(job_.ranks);
        for (size_t i = 0; i < kCalls; i++) {
            buffers_.push_back(std::make_unique<Buffers>(bytes));
        }
    }
    ~Rank()
    {
        kolo_comm_destroy(second_);
    }
    Rank(const Rank &) = delete;
    int Follow(const std::vector<Step> &steps)
    {
        for (const Step &step : steps) {
            const std::vector<Noise> &noise = step.noise[static_cast<size_t>(job_.rank)];
            std::thread beside([&] {
                const Context context;
                for (const Noise one : noise) {
                    Disturb(one, aside_);
                }
            });
            Take(step);
            beside.join();
        }
        return job_.complaints;
    }

  private:
    void Take(const Step &step)
    {
        switch (step.kind) {
        case kCall:
            Run(step, step.second ? second_ : job_.comm);
            return;
        case kBegin:
            Expect(job_, kolo_comm_split(job_.comm, 0, 0, nullptr, &second_) == KOLO_OK, "split");
            return;
        case kAbort:
            Abort(step);
            break;
        case kEnd:
            break;
        }
        kolo_comm_destroy(second_);
        second_ = nullptr;
    }
    void Run(const Step &step, kolo_comm *comm)
    {
        std::vector<std::vector<Bytes>> host;
        for (size_t i = 0; i < step.calls.size(); i++) {
            host.push_back(Inputs(step.calls[i], job_.ranks, seed_ += 100));
            const Bytes &mine = host[i][static_cast<size_t>(job_.rank)];
            buffers_[i]->in.Put(mine.data(), mine.size());
        }
        for (size_t i = 0; i < step.calls.size(); i++) {
            Expect(job_,
                   calls::Make(step.calls[i], buffers_[i]->in.Get(), buffers_[i]->out.Get(), comm,
                               job_.stream) == KOLO_OK,
                   "a call");
        }
        Sync(job_);
        for (size_t i = 0; i < step.calls.size(); i++) {
            const Bytes expected = Expected(step.calls[i], host[i], job_.rank);
            Expect(job_, expected == buffers_[i]->out.Take(expected.size()), "other bits");
        }
    }
    // The others' call may be refused, if the abort comes first.
    void Abort(const Step &step)
    {
        if (job_.rank == step.rank) {
            kolo_comm_abort(second_);
        } else {
            const kolo_status st = kolo_all_reduce(buffers_[0]->in.Get(), buffers_[0]->out.Get(), 1,
                                                   KOLO_INT32, KOLO_SUM, second_, job_.stream);
            Sync(job_);
            Expect(job_, st != KOLO_OK || kolo_comm_error(second_) != KOLO_OK, "an abort");
        }
    }
    Job job_;
    void *aside_;
    kolo_comm *second_ = nullptr;
    std::vector<std::unique_ptr<Buffers>> buffers_;
    uint64_t seed_ = 1;
};

// ---- all of them -------------------------------------------------------------------------------

uint64_t seed_now;

// The stacks of a schedule that hangs are in its core; `plan` says what it does.
void Hangs(int)
{
    fprintf(stderr, "schedule %llu hangs\n", static_cast<unsigned long long>(seed_now));
    abort();
}

int Threads(uint64_t seed)
{
    const int ranks = 2 + static_cast<int>(seed % 3);
    const auto n = static_cast<size_t>(ranks);
    const std::vector<Step> steps = Plan(seed, ranks);
    kolo_config config = KOLO_CONFIG_INIT;
    config.device = 0;
    config.timeout_ms = 60000;
    std::vector<kolo_comm *> comm(n);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::thread> threads;
    std::atomic<int> complaints = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        streams.push_back(std::make_unique<Stream>());
    }
    if (kolo_comm_create_local(ranks, &config, comm.data()) != KOLO_OK) {
        fprintf(stderr, "no communicators: %s\n", kolo_error_text());
        return 1;
    }
    for (size_t r = 0; r < n; r++) {
        threads.emplace_back([&, r] {
            Rank rank(comm[r], streams[r]->Get(), streams[n + r]->Get());
            complaints += rank.Follow(steps);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    gpu::FreeLeft();
    for (kolo_comm *c : comm) {
        kolo_comm_destroy(c);
    }
    return complaints;
}

int Processes(uint64_t seed)
{
    const Stream stream, aside;
    int complaints;
    kolo_comm *comm = Join(0);
    {
        Rank rank(comm, stream.Get(), aside.Get());
        complaints = rank.Follow(Plan(seed, kolo_comm_size(comm)));
    }
    kolo_comm_destroy(comm);
    return complaints;
}

int RunAll(uint64_t count, uint64_t first, bool processes)
{
    int wrong = 0;
    signal(SIGALRM, Hangs);
    for (uint64_t seed = first; seed < first + count; seed++) {
        seed_now = seed;
        alarm(kPatience);
        int complaints = processes ? Processes(seed) : Threads(seed);
        int all = complaints;
        if (processes && kolo_all_reduce(&complaints, &all, 1, KOLO_INT32, KOLO_SUM, world,
                                         nullptr) != KOLO_OK) {
            fprintf(stderr, "no result: %s\n", kolo_error_text());
            exit(2);
        }
        if (all != 0 && (!processes || kolo_comm_rank(world) == 0)) {
            fprintf(stderr, "schedule %llu: %d complaints\n", static_cast<unsigned long long>(seed),
                    all);
        }
        wrong += all != 0 ? 1 : 0;
    }
    alarm(0);
    return wrong;
}

} // namespace

int main(int argc, char **argv)
{
    const auto number = [&](int i, uint64_t otherwise) {
        return argc > i ? strtoull(argv[i], nullptr, 10) : otherwise;
    };
    if (argc > 1 && strcmp(argv[1], "plan") == 0) {
        Print(number(2, 1), static_cast<int>(number(3, 2 + number(2, 1) % 3)));
        return 0;
    }
    const bool processes = getenv("KOLO_RANK") != nullptr;
    const uint64_t count = number(1, 60), first = number(2, 1);
    world = processes ? Join(KOLO_HOST) : nullptr;
    const int wrong = RunAll(count, first, processes);
    if (!processes || kolo_comm_rank(world) == 0) {
        printf(
            "TAP version 13\n%s 1 - schedules %llu to %llu of %s on one GPU: no hang, right results "
            "# %d wrong\n1..1\n",
            wrong == 0 ? "ok" : "not ok", static_cast<unsigned long long>(first),
            static_cast<unsigned long long>(first + count - 1), processes ? "processes" : "threads",
            wrong);
    }
    if (processes) {
        kolo_comm_destroy(world);
    }
    return wrong == 0 ? 0 : 1;
}
