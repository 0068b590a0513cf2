// SPDX-License-Identifier: Apache-2.0
// Launches of the peer kernels for all ranks of a call, for tests without a communicator.
#ifndef KOLO_TESTS_PEER_CALLS_H
#define KOLO_TESTS_PEER_CALLS_H

#include "../exec/catalogue.h"
#include "../exec/programs.h"
#include "calls.h"
#include "exec/peer.h"

#include <map>

namespace peer_calls
{

using calls::Coll;

inline const kolo_algo *Algorithm(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    ADD_FAILURE() << "there is no " << name;
    return kolo_algos[0];
}

inline Coll CollOf(kolo_coll coll)
{
    static const std::map<kolo_coll, Coll> colls = {
        {KOLO_COLL_ALL_REDUCE, calls::kAllReduce},
        {KOLO_COLL_REDUCE, calls::kReduce},
        {KOLO_COLL_BROADCAST, calls::kBroadcast},
        {KOLO_COLL_GATHER, calls::kGather},
        {KOLO_COLL_SCATTER, calls::kScatter},
        {KOLO_COLL_ALL_GATHER, calls::kAllGather},
        {KOLO_COLL_ALL_TO_ALL, calls::kAllToAll},
        {KOLO_COLL_REDUCE_SCATTER, calls::kReduceScatter},
        {KOLO_COLL_BARRIER, calls::kColls}};
    return colls.at(coll);
}

struct Call {
    const kolo_algo *algo;
    kolo_type type;
    kolo_op op; // KOLO_OPS: PREMULSUM, by factors of Fill()
    size_t count;
    int root = 0;
    unsigned slices = 1;
    bool in_place = false;
    size_t shift = 0;    // of the buffers, in elements
    bool direct = false; // from buffer to buffer
};

// All of the launches but their ends. False where the algorithm does not do
// this, or a launch does not hold it.
inline bool Bind(const Call &c, int n, const kolo_peer_room &room,
                 std::vector<kolo_peer_launch> *out)
{
    const Plan plan = BuildPlan(c.algo, n, c.root);
    if (plan == nullptr) {
        return false;
    }
    const std::vector<uint8_t> links(static_cast<size_t>(n), KOLO_LINK_MAP);
    for (int r = 0; r < n; r++) {
        kolo_prog *lowered = nullptr;
        kolo_extents extents;
        size_t *arrays = nullptr;
        kolo_peer_launch launch;
        const kolo_sizes sizes = {
            c.count, reduce_reference::kBytes[c.type], nullptr, nullptr, nullptr, nullptr};
        EXPECT_EQ(KOLO_OK, kolo_lower(plan.get(), r, links.data(), &lowered));
        const Prog prog(lowered);
        EXPECT_EQ(KOLO_OK, kolo_extents_make(plan.get(), r, &sizes, &extents, &arrays));
        const kolo_status st = kolo_peer_bind(lowered, &extents, &room, c.slices, &launch);
        free(arrays);
        if (st != KOLO_OK) {
            EXPECT_EQ(KOLO_ERR_UNSUPPORTED, st) << kolo_error_text();
            return false;
        }
        if (c.direct) {
            kolo_peer_bind_direct(c.algo->coll, c.count * reduce_reference::kBytes[c.type],
                                  c.slices, &launch);
            launch.reached = 1;
        }
        launch.divisor = c.op == KOLO_AVG ? static_cast<uint32_t>(n) : 0;
        out->push_back(launch);
    }
    return true;
}

} // namespace peer_calls

#endif
