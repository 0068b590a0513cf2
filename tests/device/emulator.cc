// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include "exec/gpu/copies/copies_body.h"
#include "exec/gpu/ll/ll_table.h"
#include "exec/gpu/program/program_table.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace emulator
{

static std::atomic<void (*)()> on_fault{[] {
    fputs("a kernel's access is not aligned to its size\n", stderr);
    abort();
}};

void OnFault(void (*what)())
{
    on_fault = what;
}

} // namespace emulator

#ifdef KOLO_TESTS_FAULTS
// The compiler's check of alignment calls this (-fsanitize=alignment); it prints, in a library that
// is not linked here.
extern "C" void __ubsan_handle_type_mismatch_v1(void *, void *);
extern "C" void __ubsan_handle_type_mismatch_v1(void *, void *)
{
    emulator::on_fault.load()();
}
#endif

namespace emulator
{

using Kernel = void (*)(const kolo_fused &, const kolo_fused_rank *, const kolo_gpu::Who &);

static const std::map<std::string, Kernel> &Table()
{
#define ENTRY(name, ...) {"kolo_fused_" #name, __VA_ARGS__::run},
    static const std::map<std::string, Kernel> table = {KOLO_FUSED_TABLE(ENTRY)};
    return table;
}

using ProgramKernel = void (*)(const kolo_program_launch &, uint32_t, kolo_gpu::Shared *,
                               const kolo_gpu::Threads &);

static const std::map<std::string, ProgramKernel> &PeerTable()
{
#define PEER(name, ...) {"kolo_program_" #name, KOLO_PROGRAM_OF(__VA_ARGS__)::run},
    static const std::map<std::string, ProgramKernel> table = {KOLO_PROGRAM_TABLE(PEER)};
    return table;
}

using LlKernel = void (*)(const kolo_ll_launch &, uint32_t, const kolo_gpu::Threads &);

static const std::map<std::string, LlKernel> &LlTable()
{
#define LOW(name, ...) {"kolo_ll_" #name, __VA_ARGS__::run},
    static const std::map<std::string, LlKernel> table = {KOLO_LL_TABLE(LOW)};
    return table;
}

bool Has(const char *name)
{
    return ArgumentBytes(name) > 0;
}

size_t ArgumentBytes(const char *name)
{
    return Table().count(name) > 0                 ? sizeof(kolo_fused_launch)
           : PeerTable().count(name) > 0           ? sizeof(kolo_program_launch)
           : LlTable().count(name) > 0             ? sizeof(kolo_ll_launch)
           : name == std::string(KOLO_COPIES_NAME) ? sizeof(kolo_copies_launch)
                                                   : 0;
}

// Threads of a block share no data and do not wait for one another, so one may do the work of all.
// ThreadSanitizer makes each of them slow, and sees the same accesses either way.
static unsigned Emulated(unsigned threads)
{
#ifdef __SANITIZE_THREAD__
    return threads > 0 ? 1 : 0;
#else
    return threads;
#endif
}

static void EachInAThread(unsigned blocks, const std::function<void(unsigned)> &block)
{
    std::vector<std::thread> hosts;
    for (unsigned b = 0; b < blocks; b++) {
        hosts.emplace_back(block, b);
    }
    for (std::thread &host : hosts) {
        host.join();
    }
}

bool Run(const char *name, const kolo_program_launch &launch, unsigned blocks, unsigned threads)
{
    const auto found = PeerTable().find(name);
    EachInAThread(found != PeerTable().end() ? blocks : 0, [&](unsigned block) {
        kolo_gpu::Shared shared;
        found->second(launch, block, &shared, {0, 1, threads});
    });
    return found != PeerTable().end();
}

bool Run(const char *name, const kolo_ll_launch &launch, unsigned blocks, unsigned threads)
{
    const auto found = LlTable().find(name);
    EachInAThread(found != LlTable().end() ? blocks : 0, [&](unsigned block) {
        found->second(launch, block, {0, 1, threads});
    });
    return found != LlTable().end();
}

void Run(const kolo_copies_launch &launch, unsigned blocks, unsigned threads)
{
    const auto *batch = reinterpret_cast<const kolo_copy_batch *>(launch.batch);
    const auto *copy = reinterpret_cast<const kolo_copy *>(batch + 1);
    if (__atomic_load_n(reinterpret_cast<const uint32_t *>(launch.stop), __ATOMIC_ACQUIRE) != 0) {
        return;
    }
    threads = Emulated(threads);
    for (unsigned block = 0; block < blocks; block++) {
        for (unsigned thread = 0; thread < threads; thread++) {
            kolo_gpu::copy_window(copy, batch->count, 0, {block, blocks, thread, threads});
        }
    }
}

bool Run(const char *name, const kolo_fused_launch &launch, unsigned blocks, unsigned threads)
{
    const auto found = Table().find(name);
    if (found == Table().end()) {
        return false;
    }
    const auto *table = reinterpret_cast<const kolo_fused_table *>(launch.table);
    const kolo_fused_rank *rank = table != nullptr ? table->rank : launch.rank;
    if (table != nullptr && __atomic_load_n(&table->aborted, __ATOMIC_ACQUIRE) != 0) {
        return true;
    }
    threads = Emulated(threads);
    constexpr unsigned kHosts = 3;
    const auto host = [&](unsigned first) {
        for (unsigned block = first; block < blocks; block += kHosts) {
            for (unsigned thread = 0; thread < threads; thread++) {
                found->second(launch.call, rank, {block, blocks, thread, threads});
            }
        }
    };
    std::vector<std::thread> hosts;
    for (unsigned i = 1; i < kHosts && i < blocks; i++) {
        hosts.emplace_back(host, i);
    }
    host(0);
    for (std::thread &thread : hosts) {
        thread.join();
    }
    return true;
}

} // namespace emulator
