// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include "exec/fused_table.h"

#include <map>
#include <string>
#include <thread>
#include <vector>

namespace emulator
{

using Kernel = void (*)(const kolo_fused &, const kolo_fused_rank *, const kolo_gpu::Who &);

static const std::map<std::string, Kernel> &Table()
{
#define ENTRY(name, ...) {"kolo_fused_" #name, __VA_ARGS__::run},
    static const std::map<std::string, Kernel> table = {KOLO_FUSED_TABLE(ENTRY)};
    return table;
}

bool Has(const char *name)
{
    return Table().count(name) > 0;
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
