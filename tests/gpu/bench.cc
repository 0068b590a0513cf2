// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu
// How long all-reduces of GPU memory take, by ranks that are processes (`kolo run -n N bench`) or
// of one process: `bench N group`, one thread brings all calls on one stream; `bench N graph`, the
// same from a graph; `bench N streams`, a thread and a stream each. One line a size:
//   way ranks bytes us GB/s-of-memory copies
// GB/s counts what the least traffic is: each input read and each output written once. `copies` is
// that rate over the rate of the driver's copy on the same GPU, in percent. L2 keeps what is
// smaller than itself, so short calls may go beyond 100.
#include "../device/gpu.h"

#include <kolo/kolo.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace
{

using gpu::Context;
using gpu::Do;
using gpu::Memory;
using gpu::Stream;

double Now()
{
    return std::chrono::duration<double, std::micro>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void Must(kolo_status st)
{
    if (st != KOLO_OK) {
        fprintf(stderr, "bench: %s\n", kolo_error_text());
        exit(1);
    }
}

size_t Largest()
{
    const char *given = getenv("KOLO_BENCH_BYTES");
    return given != nullptr ? strtoul(given, nullptr, 10) : 256u << 20;
}

// Microseconds a call, the least of three rounds.
template <class F> double Time(const Stream &stream, int calls, const F &call)
{
    double best = 1e30;
    for (int round = 0; round < 4; round++) { // the first warms up
        const double start = Now();
        for (int i = 0; i < calls; i++) {
            call();
        }
        stream.Sync();
        best = round > 0 ? std::min(best, (Now() - start) / calls) : best;
    }
    return best;
}

int Calls(size_t bytes)
{
    return gpu::IsFake() ? 2 : bytes < 1 << 20 ? 200 : 20;
}

// Bytes read and written in a microsecond by the driver's copy of a long buffer.
double CopyRate(const Stream &stream)
{
    const size_t bytes = Largest();
    const Memory a(bytes), b(bytes);
    const Context context;
    const auto copy = [&] {
        Do("cuMemcpyDtoDAsync_v2", reinterpret_cast<unsigned long long>(b.Get()),
           reinterpret_cast<unsigned long long>(a.Get()), bytes, stream.Get());
    };
    constexpr double kWarm = 300e3; // us until the GPU's clock is as high as it gets
    for (const double start = Now(); !gpu::IsFake() && Now() - start < kWarm; stream.Sync()) {
        copy();
    }
    const double us = Time(stream, Calls(bytes), copy);
    return 2.0 * static_cast<double>(bytes) / us;
}

void Print(const char *way, int ranks, size_t bytes, double us, double copy_rate)
{
    const double moved = 2.0 * ranks * static_cast<double>(bytes);
    printf("%-10s %2d %10zu %10.1f %8.0f %5.0f%%\n", way, ranks, bytes, us, moved / us / 1e3,
           100 * moved / us / copy_rate);
    fflush(stdout);
}

// Ranks of this process, with their buffers.
struct Team {
    explicit Team(int ranks) : comm(static_cast<size_t>(ranks))
    {
        kolo_config config = KOLO_CONFIG_INIT;
        config.device = 0;
        Must(kolo_comm_create_local(ranks, &config, comm.data()));
        for (int r = 0; r < ranks; r++) {
            in.emplace_back(Largest());
            out.emplace_back(Largest());
            stream.push_back(std::make_unique<Stream>());
        }
    }
    ~Team()
    {
        for (kolo_comm *c : comm) {
            kolo_comm_destroy(c);
        }
    }
    void Call(size_t r, size_t bytes, const Stream &on) const
    {
        Must(kolo_all_reduce(in[r].Get(), out[r].Get(), bytes / 4, KOLO_FLOAT32, KOLO_SUM, comm[r],
                             on.Get()));
    }
    void CallAll(size_t bytes) const
    {
        Must(kolo_group_begin());
        for (size_t r = 0; r < comm.size(); r++) {
            Call(r, bytes, *stream[0]);
        }
        Must(kolo_group_end());
    }
    std::vector<std::unique_ptr<Stream>> stream;
    std::vector<kolo_comm *> comm;
    std::vector<Memory> in, out;
};

double TimeGroup(const Team &team, size_t bytes)
{
    return Time(*team.stream[0], Calls(bytes), [&] { team.CallAll(bytes); });
}

double TimeGraph(const Team &team, size_t bytes)
{
    const Context context;
    void *stream = team.stream[0]->Get(), *captured, *graph;
    Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
    team.CallAll(bytes);
    Do("cuStreamEndCapture", stream, &captured);
    Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
    const double us =
        Time(*team.stream[0], Calls(bytes), [&] { Do("cuGraphLaunch", graph, stream); });
    Do("cuGraphExecDestroy", graph);
    Do("cuGraphDestroy", captured);
    return us;
}

// Threads that begin and end rounds together.
class Meeting
{
  public:
    explicit Meeting(size_t threads) : threads_(threads) {}
    void Wait()
    {
        std::unique_lock<std::mutex> hold(lock_);
        const size_t round = round_;
        if (++here_ == threads_) {
            here_ = 0;
            round_++;
            all_.notify_all();
        }
        all_.wait(hold, [&] { return round_ != round; });
    }

  private:
    const size_t threads_;
    std::mutex lock_;
    std::condition_variable all_;
    size_t here_ = 0, round_ = 0;
};

double TimeStreams(const Team &team, size_t bytes)
{
    Meeting meeting(team.comm.size());
    std::vector<std::thread> threads;
    double best = 1e30;
    const auto body = [&](size_t r) {
        for (int round = 0; round < 4; round++) { // the first warms up
            meeting.Wait();
            const double start = Now();
            for (int i = 0; i < Calls(bytes); i++) {
                team.Call(r, bytes, *team.stream[r]);
            }
            team.stream[r]->Sync();
            meeting.Wait();
            if (r == 0 && round > 0) {
                best = std::min(best, (Now() - start) / Calls(bytes));
            }
        }
    };
    for (size_t r = 0; r < team.comm.size(); r++) {
        threads.emplace_back(body, r);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return best;
}

void OneProcess(int ranks, const char *way)
{
    const auto time = strcmp(way, "graph") == 0     ? TimeGraph
                      : strcmp(way, "streams") == 0 ? TimeStreams
                                                    : TimeGroup;
    const Team team(ranks);
    const double copy_rate = CopyRate(*team.stream[0]);
    for (size_t bytes = 1 << 10; bytes <= Largest(); bytes *= 16) {
        Print(way, ranks, bytes, time(team, bytes), copy_rate);
    }
}

void Processes()
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 0;
    Must(kolo_comm_create_env(&config, &comm));
    {
        const Stream stream;
        const double copy_rate = kolo_comm_rank(comm) == 0 ? CopyRate(stream) : 1;
        const Memory in(Largest()), out(Largest());
        for (size_t bytes = 1 << 10; bytes <= Largest(); bytes *= 16) {
            const double us = Time(stream, Calls(bytes), [&] {
                Must(kolo_all_reduce(in.Get(), out.Get(), bytes / 4, KOLO_FLOAT32, KOLO_SUM, comm,
                                     stream.Get()));
            });
            if (kolo_comm_rank(comm) == 0) {
                Print(getenv("KOLO_CUDA_IPC") == nullptr ? "processes" : "staged",
                      kolo_comm_size(comm), bytes, us, copy_rate);
            }
        }
    }
    Must(kolo_comm_error(comm));
    kolo_comm_destroy(comm);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc > 1) {
        OneProcess(atoi(argv[1]), argc > 2 ? argv[2] : "group");
    } else {
        Processes();
    }
    return 0;
}
