// SPDX-License-Identifier: Apache-2.0
// What all_reduce_perf of nccl-tests does, in little, with nothing but nccl.h: ranks are threads of
// processes, which no launcher started. Prints its columns, and ends with 1 if an element is wrong.
//
// usage: nccl_loop PROCESSES THREADS [MOST_BYTES]
#include "place.h"

#include <chrono>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

using place::Buffer;
using place::Must;
using place::Place;

constexpr int kRounds = 5;

struct Rank {
    ncclComm_t comm;
    int rank, ranks;
    const Place &place;
};

// Elements that are not the sum of all ranks' inputs, which are small whole numbers.
size_t Wrong(const Rank &rank, const std::vector<float> &got)
{
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); i++) {
        float sum = 0;
        for (int q = 0; q < rank.ranks; q++) {
            sum += static_cast<float>((i + static_cast<size_t>(q)) % 7);
        }
        wrong += got[i] != sum;
    }
    return wrong;
}

size_t Row(const Rank &rank, size_t count)
{
    const Buffer in(count * sizeof(float)), out(count * sizeof(float));
    std::vector<float> mine(count);
    for (size_t i = 0; i < count; i++) {
        mine[i] = static_cast<float>((i + static_cast<size_t>(rank.rank)) % 7);
    }
    in.Put(mine);
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; round++) {
        Must(ncclAllReduce(in.Get(), out.Get(), count, ncclFloat, ncclSum, rank.comm,
                           rank.place.Stream()),
             "ncclAllReduce");
    }
    rank.place.Sync();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    const size_t wrong = Wrong(rank, out.Take<float>());
    if (rank.rank == 0) {
        const double us = took.count() / kRounds;
        const double algbw = static_cast<double>(count * sizeof(float)) / us / 1e3;
        printf("%12zu  %12zu  %8s  %6s  %6d  %7.2f  %6.2f  %6.2f  %6zu\n", count * sizeof(float),
               count, "float", "sum", -1, us, algbw, algbw * 2 * (rank.ranks - 1) / rank.ranks,
               wrong);
        fflush(stdout);
    }
    return wrong;
}

size_t Run(int rank, int ranks, const ncclUniqueId &id, size_t most)
{
    const Place place;
    Rank self = {nullptr, rank, ranks, place};
    size_t wrong = 0;
    Must(ncclCommInitRank(&self.comm, ranks, id, rank), "ncclCommInitRank");
    for (size_t bytes = 8; bytes <= most; bytes *= 8) {
        wrong += Row(self, bytes / sizeof(float));
    }
    Must(ncclCommFinalize(self.comm), "ncclCommFinalize");
    Must(ncclCommDestroy(self.comm), "ncclCommDestroy");
    return wrong;
}

int Process(int process, int processes, int threads, const ncclUniqueId &id, size_t most)
{
    std::vector<size_t> wrong(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    for (int t = 0; t < threads; t++) {
        running.emplace_back([&, t] {
            wrong[static_cast<size_t>(t)] =
                Run(process * threads + t, processes * threads, id, most);
        });
    }
    size_t all = 0;
    for (int t = 0; t < threads; t++) {
        running[static_cast<size_t>(t)].join();
    }
    place::FreeLeft();
    for (int t = 0; t < threads; t++) {
        all += wrong[static_cast<size_t>(t)];
    }
    return all == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    const int processes = argc > 1 ? atoi(argv[1]) : 0, threads = argc > 2 ? atoi(argv[2]) : 0;
    const size_t most = argc > 3 ? strtoull(argv[3], nullptr, 10) : 1 << 20;
    int pipes[2], failed = 0;
    if (processes < 1 || threads < 1 || pipe(pipes) != 0) {
        fprintf(stderr, "usage: nccl_loop PROCESSES THREADS [MOST_BYTES]\n");
        return 2;
    }
    printf(
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong\n");
    fflush(stdout);
    for (int p = 0; p < processes; p++) {
        if (fork() != 0) {
            continue;
        }
        ncclUniqueId id;
        if (p == 0) { // an id for each of the others
            Must(ncclGetUniqueId(&id), "ncclGetUniqueId");
            for (int q = 1; q < processes; q++) {
                if (write(pipes[1], &id, sizeof id) != sizeof id) {
                    _exit(2);
                }
            }
        } else if (read(pipes[0], &id, sizeof id) != sizeof id) {
            _exit(2);
        }
        _exit(Process(p, processes, threads, id, most));
    }
    for (int status; wait(&status) > 0;) {
        failed += status != 0;
    }
    printf("# Out of bounds values : %d %s\n", failed, failed == 0 ? "OK" : "FAILED");
    return failed == 0 ? 0 : 1;
}
