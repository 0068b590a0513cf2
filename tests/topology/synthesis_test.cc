// SPDX-License-Identifier: Apache-2.0
// covers: topology/layout algos src/plan src/exec
/* Plans made for a cluster of hosts with eight GPUs and eight rails: what the planner lays, the
 * algorithms run over, the proof accepts and the reference executor computes, and no NIC carries
 * more than a twentieth above the least that any plan can reach. KOLO_TEST_WHOLE: 512 ranks. */
#include "machines.h"

#include <algorithm>

extern "C" {
#include "exec/ref.h"
#include "plan/plan.h"
#include "plan/verify/verify.h"
}

namespace
{

enum { kGpus = 8, kShortHosts = 24, kWholeHosts = 64 };

struct Cluster {
    machines::Graph graph = machines::Read(machines::Switched(kGpus, 18, 1));
    struct kolo_wiring wiring = {};
    int hosts = getenv("KOLO_TEST_WHOLE") != nullptr ? kWholeHosts : kShortHosts;
    int ranks = hosts * kGpus;
    std::vector<int> order, tree;
    Cluster()
    {
        EXPECT_EQ(KOLO_OK, kolo_wiring_make(graph.get(), hosts, &wiring)) << kolo_error_text();
        for (int ring = 0; ring < wiring.nrings; ring++) {
            order.resize(order.size() + ranks);
            kolo_wiring_ring(&wiring, ring, &order[static_cast<size_t>(ring) * ranks]);
            AddTrees(ring);
        }
    }
    Cluster(const Cluster &) = delete;
    ~Cluster()
    {
        kolo_wiring_free(&wiring);
    }
    void AddTrees(int ring)
    {
        std::vector<struct kolo_tree> neighbours(ranks);
        for (int which = 0; which < 2; which++) {
            kolo_wiring_tree(&wiring, ring, which, neighbours.data());
            for (const struct kolo_tree &of : neighbours) {
                tree.push_back(of.up);
            }
        }
    }
    kolo_shape Shape(kolo_coll coll) const
    {
        kolo_shape shape = {};
        shape.size = sizeof shape;
        shape.coll = coll;
        shape.nranks = ranks;
        shape.nrings = wiring.nrings;
        shape.order = order.data();
        shape.ntrees = 2 * wiring.nrings;
        shape.tree = tree.data();
        return shape;
    }
    int NicOf(int rank) const
    {
        return rank / kGpus * kGpus + wiring.nic_of[rank % kGpus];
    }
};

using Plan = std::unique_ptr<kolo_plan, void (*)(kolo_plan *)>;

Plan Proved(const Cluster &cluster, const char *name, kolo_coll coll)
{
    kolo_plan *plan = nullptr;
    const kolo_shape shape = cluster.Shape(coll);
    for (int i = 0; i < kolo_algos_count; i++) {
        if (std::string(name) == kolo_algos[i]->base.name) {
            EXPECT_EQ(KOLO_OK, kolo_plan_build(kolo_algos[i], &shape, -1, &plan))
                << kolo_error_text();
        }
    }
    if (plan != nullptr) {
        EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan)) << kolo_error_text();
    }
    return Plan(plan, kolo_plan_destroy);
}

// The chunks that the busiest NIC sends, or receives.
double BusiestNic(const Cluster &cluster, const kolo_plan &plan)
{
    std::vector<double> out(cluster.ranks), in(cluster.ranks);
    for (int r = 0; r < cluster.ranks; r++) {
        for (int i = 0; i < plan.rank[r].count; i++) {
            const kolo_step &step = plan.rank[r].step[i];
            if (step.op == KOLO_SEND && step.peer / kGpus != r / kGpus) {
                out[cluster.NicOf(r)] += step.src.count;
                in[cluster.NicOf(step.peer)] += step.src.count;
            }
        }
    }
    return std::max(*std::max_element(out.begin(), out.end()),
                    *std::max_element(in.begin(), in.end()));
}

void Add(void *, void *dst, const void *a, const void *b, size_t bytes, bool)
{
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i++) {
        static_cast<uint64_t *>(dst)[i] =
            static_cast<const uint64_t *>(a)[i] + static_cast<const uint64_t *>(b)[i];
    }
}

// Every element of a rank's input tells the rank and its place.
uint64_t Element(int rank, size_t place)
{
    return (static_cast<uint64_t>(rank) + 1) * 1000003 + place * 17;
}

struct Buffers {
    std::vector<std::vector<uint64_t>> in, out;
    std::vector<const void *> in_at;
    std::vector<void *> out_at;
    Buffers(int ranks, size_t chunks) : in(ranks), out(ranks)
    {
        for (int r = 0; r < ranks; r++) {
            in[r].resize(chunks);
            out[r].resize(chunks);
            for (size_t i = 0; i < chunks; i++) {
                in[r][i] = Element(r, i);
            }
            in_at.push_back(in[r].data());
            out_at.push_back(out[r].data());
        }
    }
};

void ExpectSums(const Cluster &cluster, const kolo_plan &plan)
{
    Buffers b(cluster.ranks, plan.chunks);
    ASSERT_EQ(KOLO_OK,
              kolo_ref_run(&plan, sizeof(uint64_t), b.in_at.data(), b.out_at.data(), Add, nullptr))
        << kolo_error_text();
    std::vector<uint64_t> sum(plan.chunks);
    for (int r = 0; r < cluster.ranks; r++) {
        for (size_t i = 0; i < sum.size(); i++) {
            sum[i] += Element(r, i);
        }
    }
    for (int r = 0; r < cluster.ranks; r++) {
        ASSERT_EQ(sum, b.out[r]) << r;
    }
}

// A host sends, and receives, 2 (h - 1) / h of the vector at least: Patarasuk, Yuan 2009.
double LeastOfAllReduce(const Cluster &cluster, const kolo_plan &plan)
{
    return 2.0 * (cluster.hosts - 1) / cluster.hosts * plan.chunks / kGpus;
}

void ExpectAllReduceNearTheBound(const char *name)
{
    const Cluster cluster;
    ASSERT_EQ(static_cast<int>(kGpus), cluster.wiring.nrings);
    const Plan plan = Proved(cluster, name, KOLO_COLL_ALL_REDUCE);
    ASSERT_NE(nullptr, plan);
    const double least = LeastOfAllReduce(cluster, *plan);
    EXPECT_LE(BusiestNic(cluster, *plan), 1.05 * least);
    EXPECT_GE(BusiestNic(cluster, *plan), least);
    ExpectSums(cluster, *plan);
}

TEST(Synthesis, RingsOverEightRailsAreProvedRunAndNearTheBound)
{
    ExpectAllReduceNearTheBound("allreduce_rings");
}

TEST(Synthesis, TreesOverEightRailsAreProvedRunAndNearTheBound)
{
    ExpectAllReduceNearTheBound("allreduce_tree");
}

TEST(Synthesis, AnAllToAllOverEightRailsIsProvedRunAndAtTheBound)
{
    const Cluster cluster;
    const Plan plan = Proved(cluster, "alltoall_direct", KOLO_COLL_ALL_TO_ALL);
    ASSERT_NE(nullptr, plan);
    const int n = cluster.ranks;
    // Eight GPUs send a block to each rank of the other hosts, over eight NICs.
    EXPECT_EQ(n - kGpus, BusiestNic(cluster, *plan));
    Buffers b(n, n);
    ASSERT_EQ(KOLO_OK, kolo_ref_run(plan.get(), sizeof(uint64_t), b.in_at.data(), b.out_at.data(),
                                    Add, nullptr))
        << kolo_error_text();
    for (int r = 0; r < n; r++) {
        for (int from = 0; from < n; from++) {
            ASSERT_EQ(Element(from, r), b.out[r][from]) << r << " from " << from;
        }
    }
}

} // namespace
