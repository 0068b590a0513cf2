// SPDX-License-Identifier: Apache-2.0
// Launches of the peer kernels for all ranks of a call, for tests without a communicator.
#ifndef KOLO_TESTS_PEER_CALLS_H
#define KOLO_TESTS_PEER_CALLS_H

#include "../exec/catalogue.h"
#include "../exec/programs.h"
#include "calls.h"
#include "exec/gpu/program/program_kernel.h"

#include <deque>
#include <functional>
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
    int rings = 2;       // that the planner lays
    const Grouping *groups = nullptr;
    bool pinned = false; // the program, however short
};

// Ring k of some that differ: as ranks are numbered, backwards, the even before the odd, that
// backwards.
inline std::vector<int> Rings(int n, int rings)
{
    std::vector<int> order;
    for (int k = 0; k < rings; k++) {
        for (int i = 0; i < n; i++) {
            const int at = k % 2 == 0 ? i : (n - i) % n;
            order.push_back(k < 2 ? at : at < (n + 1) / 2 ? 2 * at : 2 * (at - (n + 1) / 2) + 1);
        }
    }
    return order;
}

// NULL where the algorithm does not do this.
inline Plan PlanOf(const Call &c, int n)
{
    kolo_shape shape = {};
    kolo_plan *plan = nullptr;
    shape.size = sizeof shape;
    shape.coll = c.algo->coll;
    shape.nranks = n;
    shape.root = c.root;
    ApplyLayout(&shape, nullptr);
    shape.order = KeptForGood(Rings(n, c.rings));
    shape.nrings = c.rings;
    (c.groups != nullptr ? *c.groups : UsualGroups(n)).Apply(&shape);
    if (c.algo->supports != nullptr && !c.algo->supports(&shape)) {
        return nullptr;
    }
    EXPECT_EQ(KOLO_OK, kolo_plan_build(c.algo, &shape, -1, &plan)) << kolo_error_text();
    return Plan(plan);
}

// Where a program lies that does not go with its launch: kept for good.
using Pin = std::function<uint64_t(const uint64_t *words, size_t count)>;
inline uint64_t PinOnHost(const uint64_t *words, size_t count)
{
    static std::deque<std::vector<uint64_t>> kept;
    kept.emplace_back(words, words + count);
    return reinterpret_cast<uintptr_t>(kept.back().data());
}

inline kolo_status BindRank(const Call &c, const kolo_plan *plan, int r,
                            const kolo_program_room &room, const Pin &pin, kolo_program_launch *out)
{
    kolo_program *program = nullptr;
    kolo_extents extents;
    size_t *arrays = nullptr;
    const size_t elem = reduce_reference::kBytes[c.type];
    kolo_coll_args args = {};
    args.count = c.count;
    kolo_status st = kolo_program_make(plan, r, &program);
    if (st != KOLO_OK) {
        return st;
    }
    EXPECT_EQ(KOLO_OK, kolo_extents_make(plan, r, &args, elem, &extents, &arrays));
    const bool held = program->nwords <= KOLO_PROGRAM_HELD && !c.pinned;
    st = kolo_program_bind(program, held ? 0 : pin(program->word, program->nwords), &extents, &room,
                           c.slices, out);
    free(arrays);
    kolo_program_destroy(program);
    if (st == KOLO_OK && c.direct) {
        kolo_program_bind_direct(c.algo->coll, c.count * elem, out);
        out->reached = 1;
    }
    out->divisor = c.op == KOLO_AVG ? static_cast<uint32_t>(plan->shape.nranks) : 0;
    return st;
}

// All of the launches but their ends. False where the algorithm does not do this, or there is no
// room for it.
inline bool Bind(const Call &c, int n, const kolo_program_room &room,
                 std::vector<kolo_program_launch> *out, const Pin &pin = PinOnHost)
{
    const Plan plan = PlanOf(c, n);
    for (int r = 0; r < n && plan != nullptr; r++) {
        kolo_program_launch launch;
        const kolo_status st = BindRank(c, plan.get(), r, room, pin, &launch);
        if (st != KOLO_OK) {
            EXPECT_EQ(KOLO_ERR_UNSUPPORTED, st) << kolo_error_text();
            return false;
        }
        out->push_back(launch);
    }
    return plan != nullptr;
}

} // namespace peer_calls

#endif
