// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu
// Calls on GPU memory of all kinds, for as long as one likes, each checked against the host:
//   kolo run -n N soak [SECONDS]      ranks are processes
//   soak SECONDS threads N            ranks are threads with a stream each
//   soak SECONDS group N              one thread brings the calls of all ranks, on one stream
// SECONDS is 300 unless given. KOLO_SOAK_SEED repeats a run. Ends with a line that says how many
// calls there were and how many gave other bits, which is 0.
#include "../device/calls.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace
{

using namespace calls;

constexpr size_t kRoom = 4u << 20; // bytes of a buffer

// ---- what is done: the same on all ranks -------------------------------------------------------

enum Kind { kCollective, kRing, kBlocks, kBarrier };

struct Step {
    Kind kind;
    Call call;
    size_t shift; // elements that buffers begin after their allocations
    int replays;  // in a graph, so many times; 0: not in one
    uint64_t seed;
};

class Choice
{
  public:
    explicit Choice(uint64_t seed) : state_(seed * 2 + 1) {}
    uint64_t Next(uint64_t below)
    {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % below;
    }

  private:
    uint64_t state_;
};

// Small sizes most often, odd ones as often as even ones.
size_t Elements(Choice &choice, size_t most)
{
    const size_t limit = std::min(most, size_t{1} << choice.Next(22));
    return limit == 0 ? 0 : 1 + choice.Next(limit);
}

Step Choose(Choice &choice, int ranks)
{
    Step step = {};
    const uint64_t kind = choice.Next(20);
    step.kind = kind < 14 ? kCollective : kind < 17 ? kRing : kind < 19 ? kBlocks : kBarrier;
    step.call.coll = static_cast<Coll>(choice.Next(kColls));
    step.call.type = static_cast<kolo_type>(choice.Next(KOLO_TYPES));
    step.call.op = static_cast<kolo_op>(choice.Next(KOLO_OPS));
    while (Reduces(step.call.coll) && !kolo_op_valid(step.call.type, step.call.op)) {
        step.call.type = static_cast<kolo_type>(choice.Next(KOLO_TYPES));
        step.call.op = static_cast<kolo_op>(choice.Next(KOLO_OPS));
    }
    step.shift = choice.Next(4);
    const size_t most = (kRoom - 64) / kBytes[step.call.type] / static_cast<size_t>(ranks);
    step.call.count = Elements(choice, std::min(most, size_t{1} << 18));
    step.call.root = static_cast<int>(choice.Next(static_cast<uint64_t>(ranks)));
    step.replays = choice.Next(8) == 0 ? 1 + static_cast<int>(choice.Next(3)) : 0;
    step.seed = choice.Next(1u << 30);
    return step;
}

// ---- one rank ----------------------------------------------------------------------------------

struct Rank {
    Rank(kolo_comm *c, int r, int n, void *s)
        : comm(c), rank(r), ranks(n), stream(s), in(kRoom), out(kRoom)
    {
    }
    kolo_comm *comm;
    int rank, ranks;
    void *stream;
    Memory in, out;
    std::vector<Bytes> host; // all ranks' inputs
    std::vector<size_t> counts, displs, back;

    // Block q of rank r, in all_to_allv.
    size_t Block(const Step &step, int r, int q) const
    {
        return (step.call.count + static_cast<size_t>(3 * r + 5 * q)) % (step.call.count / 2 + 2);
    }
    void Load(const Step &step)
    {
        const size_t elem = kBytes[step.call.type], n = static_cast<size_t>(ranks);
        host.clear();
        for (size_t q = 0; q < n; q++) {
            host.push_back(Fill(step.call.type, step.call.count * n, step.seed + q));
        }
        const Bytes &mine = host[static_cast<size_t>(rank)];
        in.Put(mine.data(), mine.size(), step.shift * elem);
        out.Put(Bytes(kRoom, 0x5a).data(), kRoom);
        counts.assign(n, 0);
        displs.assign(n, 0);
        back.assign(n, 0);
        for (int q = 0; q < ranks; q++) {
            const auto at = static_cast<size_t>(q);
            counts[at] = std::min(Block(step, rank, q), step.call.count);
            back[at] = std::min(Block(step, q, rank), step.call.count);
            displs[at] = at * step.call.count;
        }
    }
    kolo_status Enqueue(const Step &step)
    {
        const size_t shift = step.shift * kBytes[step.call.type];
        const void *from = in.Get(shift);
        void *to = out.Get(shift);
        const Call &c = step.call;
        const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
        kolo_status st = KOLO_OK;
        switch (step.kind) {
        case kCollective:
            return Make(c, from, to, comm, stream);
        case kBarrier:
            return kolo_barrier(comm, stream);
        case kBlocks:
            return kolo_all_to_allv(from, counts.data(), displs.data(), to, back.data(),
                                    displs.data(), c.type, comm, stream);
        case kRing:
            st = kolo_group_begin();
            st = st == KOLO_OK ? kolo_send(from, c.count, c.type, next, comm, stream) : st;
            st = st == KOLO_OK ? kolo_recv(to, c.count, c.type, last, comm, stream) : st;
            return st == KOLO_OK ? kolo_group_end() : st;
        }
        return KOLO_ERR_INTERNAL;
    }
    Bytes Wanted(const Step &step) const
    {
        const size_t block = step.call.count * kBytes[step.call.type];
        const auto part = [&](int q, size_t at, size_t bytes) {
            const auto from = host[static_cast<size_t>(q)].begin() + static_cast<long>(at);
            return Bytes(from, from + static_cast<long>(bytes));
        };
        if (step.kind == kCollective) {
            return Expected(step.call, host, rank);
        }
        if (step.kind == kRing) {
            return part((rank + ranks - 1) % ranks, 0, block);
        }
        Bytes all;
        for (int q = 0; q < ranks && step.kind == kBlocks; q++) {
            const size_t bytes = back[static_cast<size_t>(q)] * kBytes[step.call.type];
            const Bytes own = part(q, static_cast<size_t>(rank) * block, bytes);
            all.insert(all.end(), own.begin(), own.end());
            all.resize(all.size() + block - bytes, 0x5a);
        }
        return all;
    }
    bool IsRight(const Step &step) const
    {
        const Bytes wanted = Wanted(step);
        const size_t shift = step.shift * kBytes[step.call.type];
        const Bytes got = out.Take(wanted.size() + 1, shift);
        return std::equal(wanted.begin(), wanted.end(), got.begin()) && got.back() == 0x5a;
    }
};

std::string Describe(const Step &step)
{
    static const char *const kinds[] = {"collective", "messages", "all_to_allv", "barrier"};
    return std::string(kinds[step.kind]) + " " + std::to_string(step.call.coll) + " of " +
           std::to_string(step.call.count) + " " + kolo_type_name(step.call.type) + ", " +
           kolo_op_name(step.call.op) + ", root " + std::to_string(step.call.root) +
           (step.replays > 0 ? ", in a graph" : "");
}

// ---- all of them -------------------------------------------------------------------------------

void Must(kolo_status st, const Step &step)
{
    if (st != KOLO_OK) {
        fprintf(stderr, "soak: %s: %s\n", Describe(step).c_str(), kolo_error_text());
        exit(1);
    }
}

void Sync(void *stream)
{
    Do("cuStreamSynchronize", stream);
}

// The ranks that this thread drives: one, or all of a group. Returns how many gave other bits.
class Driver
{
  public:
    explicit Driver(std::vector<std::unique_ptr<Rank>> *ranks) : ranks_(*ranks) {}
    size_t Run(const Step &step)
    {
        for (const auto &rank : ranks_) {
            rank->Load(step);
        }
        constexpr int kGraphs = 200; // graphs stay with the communicator
        if (step.replays > 0 && graphs_++ < kGraphs) {
            Replay(step);
        } else {
            Enqueue(step);
            Sync(ranks_[0]->stream);
        }
        return static_cast<size_t>(std::count_if(
            ranks_.begin(), ranks_.end(), [&](const auto &rank) { return !rank->IsRight(step); }));
    }

  private:
    void Enqueue(const Step &step)
    {
        Must(kolo_group_begin(), step);
        for (const auto &rank : ranks_) {
            Must(rank->Enqueue(step), step);
        }
        Must(kolo_group_end(), step);
    }
    void Replay(const Step &step)
    {
        void *stream = ranks_[0]->stream, *captured, *graph;
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        Enqueue(step);
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        for (int i = 0; i < step.replays; i++) {
            Do("cuGraphLaunch", graph, stream);
        }
        Sync(stream);
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    }
    std::vector<std::unique_ptr<Rank>> &ranks_;
    int graphs_ = 0;
};

struct Result {
    size_t calls = 0, wrong = 0;
};

// Rank 0's clock says when it is over, to all.
Result Soak(Driver driver, kolo_comm *comm, double seconds, uint64_t seed,
            const std::function<bool(bool)> &goes_on)
{
    Choice choice(seed);
    Result result;
    const auto start = std::chrono::steady_clock::now();
    const auto is_time = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
               seconds;
    };
    while (goes_on(is_time())) {
        const Step step = Choose(choice, kolo_comm_size(comm));
        const size_t wrong = driver.Run(step);
        result.calls++;
        result.wrong += wrong;
        if (wrong > 0) {
            fprintf(stderr, "soak: rank %d, seed %llu, call %zu: %s gave other bits\n",
                    kolo_comm_rank(comm), static_cast<unsigned long long>(seed), result.calls,
                    Describe(step).c_str());
        }
    }
    return result;
}

bool Ask(kolo_comm *comm, bool time)
{
    const uint8_t mine = time;
    uint8_t all = 0;
    Must(kolo_broadcast(&mine, &all, 1, KOLO_UINT8, 0, comm, nullptr), {});
    return all != 0;
}

kolo_config Config()
{
    kolo_config config = KOLO_CONFIG_INIT;
    config.device = 0;
    config.timeout_ms = 60000;
    return config;
}

Result Processes(double seconds, uint64_t seed)
{
    const kolo_config config = Config();
    kolo_comm *comm = nullptr;
    Must(kolo_comm_create_env(&config, &comm), {});
    Result result;
    {
        const Stream stream;
        const Context context;
        std::vector<std::unique_ptr<Rank>> ranks;
        ranks.push_back(
            std::make_unique<Rank>(comm, kolo_comm_rank(comm), kolo_comm_size(comm), stream.Get()));
        result =
            Soak(Driver(&ranks), comm, seconds, seed, [&](bool time) { return Ask(comm, time); });
    }
    kolo_comm_destroy(comm);
    return result;
}

Result Threads(double seconds, uint64_t seed, int n)
{
    const kolo_config config = Config();
    std::vector<kolo_comm *> comm(static_cast<size_t>(n));
    Must(kolo_comm_create_local(n, &config, comm.data()), {});
    std::vector<Result> results(comm.size());
    std::vector<std::unique_ptr<Stream>> streams; // to make one waits for the others' calls
    std::vector<std::thread> threads;
    for (int r = 0; r < n; r++) {
        streams.push_back(std::make_unique<Stream>());
    }
    for (int r = 0; r < n; r++) {
        threads.emplace_back([&, r] {
            const auto at = static_cast<size_t>(r);
            const Context context;
            std::vector<std::unique_ptr<Rank>> ranks;
            ranks.push_back(std::make_unique<Rank>(comm[at], r, n, streams[at]->Get()));
            results[at] = Soak(Driver(&ranks), comm[at], seconds, seed,
                               [&](bool time) { return Ask(comm[at], time); });
        });
    }
    Result all;
    for (size_t r = 0; r < threads.size(); r++) {
        threads[r].join();
        all.calls = results[r].calls;
        all.wrong += results[r].wrong;
    }
    gpu::FreeLeft();
    for (kolo_comm *c : comm) {
        kolo_comm_destroy(c);
    }
    return all;
}

Result Group(double seconds, uint64_t seed, int n)
{
    const kolo_config config = Config();
    std::vector<kolo_comm *> comm(static_cast<size_t>(n));
    Must(kolo_comm_create_local(n, &config, comm.data()), {});
    Result result;
    {
        const Stream stream;
        const Context context;
        std::vector<std::unique_ptr<Rank>> ranks;
        for (int r = 0; r < n; r++) {
            ranks.push_back(
                std::make_unique<Rank>(comm[static_cast<size_t>(r)], r, n, stream.Get()));
        }
        result = Soak(Driver(&ranks), comm[0], seconds, seed, [](bool time) { return time; });
    }
    for (kolo_comm *c : comm) {
        kolo_comm_destroy(c);
    }
    return result;
}

} // namespace

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 300;
    const char *given = getenv("KOLO_SOAK_SEED");
    const uint64_t seed = given != nullptr ? strtoull(given, nullptr, 10) : 1;
    const std::string way = argc > 3 ? argv[2] : "processes";
    const int n = argc > 3 ? atoi(argv[3]) : 0;
    const Result result = way == "threads" ? Threads(seconds, seed, n)
                          : way == "group" ? Group(seconds, seed, n)
                                           : Processes(seconds, seed);
    printf("%s: seed %llu, %zu calls, %zu of them with other bits\n", way.c_str(),
           static_cast<unsigned long long>(seed), result.calls, result.wrong);
    return result.wrong == 0 && result.calls > 0 ? 0 : 1;
}
