// SPDX-License-Identifier: Apache-2.0
// Collective calls on GPU memory, and what they must give: for communicators of threads and of
// processes.
#ifndef KOLO_TESTS_CALLS_H
#define KOLO_TESTS_CALLS_H

#include "../unit/reduce_reference.h"
#include "gpu.h"
extern "C" {
#include "exec/reduce/reduce.h"
}

#include <kolo/kolo.h>

#include <gtest/gtest.h>

namespace calls
{

using gpu::Context;
using gpu::Do;
using gpu::Find;
using gpu::Memory;
using gpu::Stream;
using reduce_reference::Bytes;
using reduce_reference::Fill;
using reduce_reference::kBytes;

enum Coll {
    kAllReduce,
    kReduce,
    kBroadcast,
    kGather,
    kScatter,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kColls
};
struct Call {
    Coll coll;
    kolo_type type;
    kolo_op op;
    size_t count;
    int root;
};

inline kolo_status Make(const Call &c, const void *in, void *out, kolo_comm *comm, void *stream)
{
    switch (c.coll) {
    case kAllReduce:
        return kolo_all_reduce(in, out, c.count, c.type, c.op, comm, stream);
    case kReduce:
        return kolo_reduce(in, out, c.count, c.type, c.op, c.root, comm, stream);
    case kBroadcast:
        return kolo_broadcast(in, out, c.count, c.type, c.root, comm, stream);
    case kGather:
        return kolo_gather(in, out, c.count, c.type, c.root, comm, stream);
    case kScatter:
        return kolo_scatter(in, out, c.count, c.type, c.root, comm, stream);
    case kAllGather:
        return kolo_all_gather(in, out, c.count, c.type, comm, stream);
    case kReduceScatter:
        return kolo_reduce_scatter(in, out, c.count, c.type, c.op, comm, stream);
    default:
        return kolo_all_to_all(in, out, c.count, c.type, comm, stream);
    }
}

inline bool Reduces(Coll coll)
{
    return coll == kAllReduce || coll == kReduce || coll == kReduceScatter;
}

// All ranks' inputs as long as the longest kind; what rank r's output must be, "" for nothing.
inline Bytes Expected(const Call &c, const std::vector<Bytes> &in, int r)
{
    const size_t n = in.size(), block = c.count * kBytes[c.type];
    const size_t own = static_cast<size_t>(r) * block;
    const auto part = [&](size_t q, size_t at) {
        return Bytes(in[q].begin() + static_cast<long>(at),
                     in[q].begin() + static_cast<long>(at + block));
    };
    if (Reduces(c.coll)) {
        reduce_reference::Job job = {
            c.op, {}, c.count, kBytes[c.type], c.op == KOLO_AVG ? static_cast<unsigned>(n) : 0};
        for (const Bytes &data : in) {
            job.src.push_back(data.data() + (c.coll == kReduceScatter ? own : 0));
        }
        return c.coll == kReduce && r != c.root ? Bytes()
                                                : reduce_reference::Reference(c.type, job);
    }
    if (c.coll == kBroadcast || c.coll == kScatter) {
        return part(static_cast<size_t>(c.root), c.coll == kScatter ? own : 0);
    }
    Bytes all;
    for (size_t q = 0; q < n && !(c.coll == kGather && r != c.root); q++) {
        const Bytes one = part(q, c.coll == kAllToAll ? own : 0);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

// Buffers of all ranks, of rank r on gpu[r].
struct Data {
    Data(const Call &c, size_t ranks, uint64_t seed) : Data(c, std::vector<int>(ranks), seed) {}
    Data(const Call &c, const std::vector<int> &gpu, uint64_t seed)
    {
        const size_t ranks = gpu.size(), bytes = c.count * ranks * kBytes[c.type];
        for (size_t r = 0; r < ranks; r++) {
            host.push_back(Fill(c.type, c.count * ranks, seed + r));
            in.emplace_back(bytes, gpu[r]);
            out.emplace_back(bytes, gpu[r]);
            in[r].Put(host[r].data(), bytes);
            out[r].Put(Bytes(bytes, 0x5a).data(), bytes);
        }
    }
    void Check(const Call &c, int r) const
    {
        const Bytes expected = Expected(c, host, r);
        EXPECT_EQ(expected, out[static_cast<size_t>(r)].Take(expected.size()))
            << "collective " << c.coll << " of " << c.count << " " << kolo_type_name(c.type) << ", "
            << kolo_op_name(c.op) << ", rank " << r << " of " << host.size();
    }
    std::vector<Bytes> host;
    std::vector<Memory> in, out;
};

inline std::vector<Call> EveryCall(size_t count, int root)
{
    std::vector<Call> calls;
    for (int coll = 0; coll < kColls; coll++) {
        for (int type = 0; type < KOLO_TYPES; type++) {
            for (kolo_op op = 0; op < (Reduces(static_cast<Coll>(coll)) ? KOLO_OPS : 1); op++) {
                const auto t = static_cast<kolo_type>(type);
                if (!Reduces(static_cast<Coll>(coll)) || kolo_op_valid(t, op)) {
                    calls.push_back({static_cast<Coll>(coll), t, op, count, root});
                }
            }
        }
    }
    return calls;
}

// How far apart the calls of the driver are that fail, one in each round of a test. ThreadSanitizer
// sees a part of them: the number has no divisor in common with the length of a pattern of calls.
inline long NextFailure()
{
#ifdef __SANITIZE_THREAD__
    return 11;
#else
    return 1;
#endif
}

inline size_t Launches()
{
    return gpu::IsFake() ? Find<size_t()>("FakeCudaLaunches")() : 0;
}

inline size_t LaunchesDirect()
{
    return gpu::IsFake() ? Find<size_t()>("FakeCudaLaunchesDirect")() : 0;
}

inline size_t LaunchesLanes()
{
    return gpu::IsFake() ? Find<size_t()>("FakeCudaLaunchesLanes")() : 0;
}

inline size_t LaunchesLow()
{
    return gpu::IsFake() ? Find<size_t()>("FakeCudaLaunchesLow")() : 0;
}

} // namespace calls

#endif
