// SPDX-License-Identifier: Apache-2.0
// covers: algos
// What the files of algos/ promise in their opening comments: how many messages follow one another
// at most, how much a rank sends at most, and that the trees are those that the log shows.
#include "plan_util.h"

extern "C" {
#include "plan/walk.h"
#include "topology/formats/file.h"
#include "topology/layout/wiring.h"
#include "util/util.h"
}

#include <algorithm>
#include <functional>
#include <map>
#include <random>

namespace
{

// The longest path of messages, each sent after the one before was received.
class Path
{
  public:
    static int Longest(const kolo_plan *plan)
    {
        Path path(plan);
        const kolo_visitor visitor = {Step};
        EXPECT_EQ(KOLO_OK, kolo_walk(plan, 1, 1, &visitor, &path)) << kolo_error_text();
        return path.longest_;
    }

  private:
    explicit Path(const kolo_plan *plan) : at_(static_cast<size_t>(plan->shape.nranks) * KOLO_LANES)
    {
    }
    static kolo_status Step(void *ctx, const kolo_event *event)
    {
        Path *path = static_cast<Path *>(ctx);
        int &here = path->at_[static_cast<size_t>(event->rank) * KOLO_LANES + event->step->lane];
        if (event->step->op == KOLO_SEND) {
            path->message_[event->message] = here + 1;
        } else if (event->message >= 0) {
            here = std::max(here, path->message_[event->message]);
            path->longest_ = std::max(path->longest_, here);
        }
        return KOLO_OK;
    }

    std::vector<int> at_; // longest path that ends in a lane of a rank
    std::map<int, int> message_;
    int longest_ = 0;
};

int MostChunksSent(const kolo_plan *plan)
{
    int most = 0;
    for (int r = 0; r < plan->shape.nranks; r++) {
        const kolo_step *first = plan->rank[r].step;
        int sent = 0;
        std::for_each(first, first + plan->rank[r].count,
                      [&](const kolo_step &s) { sent += s.op == KOLO_SEND ? s.src.count : 0; });
        most = std::max(most, sent);
    }
    return most;
}

int Up(int n) // ceil(log2 n)
{
    return kolo_log2_ceil(n);
}
int Down(int n) // floor(log2 n)
{
    return kolo_log2_ceil(n + 1) - 1;
}
int Folded(int n) // messages before and after for what is beyond a power of two
{
    return kolo_is_pow2(n) ? 0 : 1;
}
int LargestSubtree(int n) // of a child of a binomial tree's root
{
    const int half = 1 << (Up(n) - 1);
    return std::max(half / 2, n - half);
}
int Bits(int n) // set bits of 0..n-1
{
    int bits = 0;
    for (int i = 0; i < n; i++) {
        bits += __builtin_popcount(static_cast<unsigned>(i));
    }
    return bits;
}

constexpr int kAnyPath = -1; // some fold while others go on: it depends on where they meet

struct Promise {
    const char *name;
    std::function<int(int)> path, sent; // of the number of ranks, which is at least 2
};

const std::vector<Promise> kPromises = {
    {"allreduce_ring", [](int n) { return 2 * (n - 1); }, [](int n) { return 2 * (n - 1); }},
    {"allreduce_doubling", [](int n) { return Folded(n) == 0 ? Down(n) : kAnyPath; },
     [](int n) { return Down(n) + Folded(n); }},
    {"allreduce_rabenseifner", [](int n) { return 2 * (Down(n) + Folded(n)); },
     [](int n) { return 2 * ((1 << Down(n)) - 1) + (Folded(n) << Down(n)); }},
    {"allreduce_direct", [](int) { return 2; }, [](int n) { return 2 * (n - 1); }},
    {"allreduce_oneshot", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"allreduce_circulant", [](int n) { return 2 * Up(n); }, [](int n) { return 2 * (n - 1); }},
    {"reduce_binomial", Down, [](int) { return 1; }},
    {"reduce_chain", [](int n) { return n - 1; }, [](int) { return 1; }},
    {"reduce_scattergather", [](int) { return 2; }, [](int n) { return n; }},
    {"reduce_direct", [](int) { return 1; }, [](int) { return 1; }},
    {"broadcast_binomial", Down, Up},
    {"broadcast_chain", [](int n) { return n - 1; }, [](int) { return 1; }},
    {"broadcast_direct", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"gather_binomial", Down, LargestSubtree},
    {"gather_direct", [](int) { return 1; }, [](int) { return 1; }},
    {"scatter_binomial", Down, [](int n) { return n - 1; }},
    {"scatter_direct", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"allgather_ring", [](int n) { return n - 1; }, [](int n) { return n - 1; }},
    {"allgather_bruck", Up, [](int n) { return n - 1; }},
    {"allgather_doubling", Up, [](int n) { return n - 1; }},
    {"allgather_direct", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"reducescatter_ring", [](int n) { return n - 1; }, [](int n) { return n - 1; }},
    {"reducescatter_halving", Up, [](int n) { return n - 1; }},
    {"reducescatter_direct", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"reducescatter_circulant", Up, [](int n) { return n - 1; }},
    {"alltoall_pairwise", [](int n) { return n - 1 + n % 2; }, [](int n) { return n - 1; }},
    {"alltoall_bruck", Up, Bits},
    {"alltoall_direct", [](int) { return 1; }, [](int n) { return n - 1; }},
    {"barrier_dissemination", Up, [](int) { return 0; }},
    {"barrier_direct", [](int n) { return n > 1 ? 1 : 0; }, [](int) { return 0; }},
    {"barrier_central", [](int) { return 2; }, [](int) { return 0; }},
};

// Who exchanges messages with whom on a lane: pairs, the smaller rank first.
std::set<std::pair<int, int>> Edges(const kolo_plan *plan, int lane)
{
    std::set<std::pair<int, int>> edges;
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const kolo_step &s = plan->rank[r].step[i];
            if (s.op == KOLO_SEND && s.lane == lane) {
                edges.insert(std::minmax(r, static_cast<int>(s.peer)));
            }
        }
    }
    return edges;
}

// Along which pairs one chunk goes.
std::set<std::pair<int, int>> EdgesOf(const kolo_plan *plan, int chunk)
{
    std::set<std::pair<int, int>> edges;
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const kolo_step &s = plan->rank[r].step[i];
            if (s.op == KOLO_SEND && static_cast<int>(s.src.first) == chunk) {
                edges.insert(std::minmax(r, static_cast<int>(s.peer)));
            }
        }
    }
    return edges;
}

} // namespace

TEST(Promises, OfTheLongestPathAndTheMostSentHoldForEveryNumberOfRanks)
{
    for (const Promise &promise : kPromises) {
        const kolo_algo *algo = Named(promise.name);
        for (int n = 2; n <= MaxRanks(); n++) {
            const Plan plan = Build(algo, Shape(algo->coll, n));
            if (plan != nullptr) {
                if (promise.path(n) != kAnyPath) {
                    EXPECT_EQ(promise.path(n), Path::Longest(plan.get()))
                        << promise.name << " " << n;
                }
                EXPECT_EQ(promise.sent(n), MostChunksSent(plan.get())) << promise.name << " " << n;
            }
        }
    }
}

TEST(Promises, TheTreesLongestPathIsTwiceItsHeight)
{
    for (int n = 1; n <= MaxRanks(); n++) {
        const Plan plan = Build(Named("allreduce_tree"), Shape(KOLO_COLL_ALL_REDUCE, n));
        EXPECT_EQ(2 * Down(n), Path::Longest(plan.get())) << n;
    }
}

TEST(Promises, NoInnerNodeOfTheScatterGetsAChunkTwice)
{
    for (int n = 1; n <= MaxRanks(); n++) {
        const Plan plan = Build(Named("broadcast_scatter"), Shape(KOLO_COLL_BROADCAST, n));
        int received = 0;
        for (int r = 0; r < n; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step &s = plan->rank[r].step[i];
                received += s.op == KOLO_RECV ? s.dst.count : 0;
            }
        }
        EXPECT_EQ(n * (n - 1), received) << n;
    }
}

// A server of two packages with four caches of four cores each, whichever ranks these hold.
Grouping Server(bool interleaved)
{
    const auto core = [interleaved](int r) { return interleaved ? r % 8 * 4 + r / 8 : r; };
    return GroupsBy(
        "server", 32,
        {[core](int r) { return core(r) / 4; }, [core](int r) { return core(r) / 16; }});
}

// Chunks that go from one of the groups of a level into another.
int ChunksThatLeave(const kolo_plan *plan, int level, int group)
{
    int chunks = 0;
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const kolo_step &s = plan->rank[r].step[i];
            const bool leaves = s.op == KOLO_SEND &&
                                kolo_group_of(&plan->shape, level, r) == group &&
                                kolo_group_of(&plan->shape, level, s.peer) != group;
            chunks += leaves ? s.src.count : 0;
        }
    }
    return chunks;
}

TEST(Hierarchies, KeepTheirPromisesOnAServerOfThreeTiers)
{
    const struct {
        const char *name;
        int path, sent, leave_package, leave_cache; // of chunks: a vector has plan->chunks
    } promises[] = {
        {"allreduce_hier", 6, 2 * 31, 32, 4 * 2 * (3 * 2 + 1)},
        {"allreduce_hier_oneshot", 3, 3 + 3 + 1, 16, 4 * 3 + 4},
        {"allreduce_hier_leader", 5, 3 + 3 + 1, 1, 3 + 1},
        {"reduce_hier", 3, 1, 0, 0},
        {"broadcast_hier", 3, 7, 1, 3 + 1},
        {"allgather_hier", 11, 3 * 8 + 3 * 2 + 1, 16, 4 * 1 + 3 * 8},
        {"reducescatter_hier", 11, 3 * 8 + 3 * 2 + 1, 16, 4 * 1 + 3 * 8},
        {"barrier_hier", 3, 0, 0, 0},
    };
    for (const auto &promise : promises) {
        for (const bool interleaved : {false, true}) {
            SCOPED_TRACE(std::string(promise.name) + (interleaved ? ", interleaved" : ""));
            const kolo_algo *algo = Named(promise.name);
            const Grouping server = Server(interleaved);
            kolo_shape shape = Shape(algo->coll, 32);
            server.Apply(&shape);
            const Plan plan = Build(algo, shape);
            ASSERT_NE(nullptr, plan);
            EXPECT_EQ(promise.path, Path::Longest(plan.get()));
            EXPECT_EQ(promise.sent, MostChunksSent(plan.get()));
            EXPECT_EQ(promise.leave_package, ChunksThatLeave(plan.get(), 1, 0));
            EXPECT_EQ(promise.leave_cache, ChunksThatLeave(plan.get(), 0, 0));
        }
    }
}

TEST(Tree, IsTheOneThatTheLogShows)
{
    std::mt19937 random(1);
    for (int n = 1; n <= MaxRanks(); n++) {
        std::vector<int> order(static_cast<size_t>(n));
        for (int i = 0; i < n; i++) {
            order[static_cast<size_t>(i)] = i;
        }
        std::shuffle(order.begin(), order.end(), random);
        const Plan plan =
            Build(Named("allreduce_tree"), Shape(KOLO_COLL_ALL_REDUCE, n, 0, order.data()));
        for (int which = 0; which < 2; which++) {
            std::set<std::pair<int, int>> shown;
            for (int r = 0; r < n; r++) {
                kolo_tree tree;
                kolo_tree_build(n, order.data(), which, r, &tree);
                if (tree.up >= 0) {
                    shown.insert(std::minmax(r, tree.up));
                }
            }
            EXPECT_EQ(shown, Edges(plan.get(), which)) << n << " ranks, tree " << which;
        }
    }
}

// What a planner lays is what data goes along, wherever the root is.
TEST(Tree, OfAMachineIsKeptByAllThatRunOnTrees)
{
    for (const char *name : {"allreduce_tree", "broadcast_tree", "reduce_tree"}) {
        const kolo_algo *algo = Named(name);
        for (int n = 1; n <= MaxRanks(); n += n < 12 ? 1 : 17) {
            for (int root = 0; root < (algo->coll == KOLO_COLL_ALL_REDUCE ? 1 : n); root++) {
                kolo_shape shape = Shape(algo->coll, n, root);
                ApplyTrees(&shape);
                const Plan plan = Build(algo, shape);
                ASSERT_NE(nullptr, plan) << kolo_error_text();
                ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
                const int pieces = plan->chunks / shape.ntrees;
                for (int t = 0; t < shape.ntrees; t++) {
                    std::set<std::pair<int, int>> laid;
                    for (int r = 0; r < n; r++) {
                        const int up = shape.tree[t * n + r];
                        if (up >= 0) {
                            laid.insert(std::minmax(r, up));
                        }
                    }
                    for (int chunk = t * pieces; chunk < (t + 1) * pieces; chunk++) {
                        EXPECT_EQ(laid, EdgesOf(plan.get(), chunk)) << name << " " << n;
                    }
                }
            }
        }
    }
}

// Three hosts of four GPUs behind NVSwitches, with two NICs each.
TEST(Tree, OfThreeHostsIsRunAsPlanned)
{
    const std::string path = std::string(KOLO_SOURCE_ROOT) + "/tests/data/hwloc-4gpu-nvswitch.xml";
    enum { HOSTS = 3, RANKS = 4 * HOSTS, TREES = 4 };
    struct kolo_graph *graph = nullptr;
    struct kolo_wiring wiring;
    ASSERT_EQ(KOLO_OK, kolo_graph_load(path.c_str(), &graph)) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_wiring_make(graph, HOSTS, &wiring)) << kolo_error_text();
    ASSERT_EQ(2, wiring.nrings);
    std::vector<int> up;
    for (int t = 0; t < TREES; t++) {
        std::vector<kolo_tree> tree(RANKS);
        kolo_wiring_tree(&wiring, t % 2, t / 2, tree.data());
        for (const kolo_tree &place : tree) {
            up.push_back(place.up);
        }
    }
    for (const char *name : {"allreduce_tree", "broadcast_tree", "reduce_tree"}) {
        kolo_shape shape =
            Shape(Named(name)->coll, RANKS, Named(name)->coll == KOLO_COLL_ALL_REDUCE ? 0 : 5);
        shape.ntrees = TREES;
        shape.tree = up.data();
        const Plan plan = Build(Named(name), shape);
        ASSERT_NE(nullptr, plan) << kolo_error_text();
        EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
        int between = 0; // pairs of ranks on two hosts, along which some tree goes
        for (int chunk = 0; chunk < plan->chunks; chunk += plan->chunks / TREES) {
            for (const auto &edge : EdgesOf(plan.get(), chunk)) {
                between += edge.first / 4 != edge.second / 4;
            }
        }
        EXPECT_EQ((HOSTS - 1) * TREES, between) << name;
    }
    kolo_wiring_free(&wiring);
    kolo_graph_destroy(graph);
}

TEST(Direct, AllToAllSendsInTheOrderThatThePlannerHasForHosts)
{
    const std::string path = std::string(KOLO_SOURCE_ROOT) + "/tests/data/hwloc-4gpu-nvswitch.xml";
    struct kolo_graph *graph = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_graph_load(path.c_str(), &graph)) << kolo_error_text();
    for (const int hosts : {1, 2, 3, 5}) {
        const int n = 4 * hosts;
        struct kolo_wiring wiring;
        ASSERT_EQ(KOLO_OK, kolo_wiring_make(graph, hosts, &wiring)) << kolo_error_text();
        kolo_shape shape = Shape(KOLO_COLL_ALL_TO_ALL, n);
        const Grouping by_host = GroupsBy("hosts", n, {[](int r) { return r / 4; }});
        by_host.Apply(&shape);
        const Plan plan = Build(Named("alltoall_direct"), shape);
        for (int r = 0; r < n; r++) {
            int step = 1;
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step &s = plan->rank[r].step[i];
                if (s.op == KOLO_SEND) {
                    EXPECT_EQ(kolo_wiring_peer(&wiring, r, step++), s.peer) << hosts << " " << r;
                }
            }
            EXPECT_EQ(n, step);
        }
        kolo_wiring_free(&wiring);
    }
    kolo_graph_destroy(graph);
}

TEST(Tree, ThatIsNoneIsRefused)
{
    const int cycle[] = {-1, 2, 3, 1}, two[] = {-1, 0, -1, 2}, beyond[] = {-1, 0, 4, 2};
    for (const int *tree : {cycle, two, beyond}) {
        kolo_shape shape = Shape(KOLO_COLL_BROADCAST, 4);
        kolo_plan *plan = nullptr;
        shape.ntrees = 1;
        shape.tree = tree;
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_plan_build(Named("broadcast_tree"), &shape, -1, &plan));
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("is no tree of 4 ranks"));
    }
}

TEST(Pairwise, InEachRoundARankHasOnePartner)
{
    for (int n = 2; n <= MaxRanks(); n++) {
        const Plan plan = Build(Named("alltoall_pairwise"), Shape(KOLO_COLL_ALL_TO_ALL, n));
        for (int r = 0; r < n; r++) {
            int partner = -1;
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step &s = plan->rank[r].step[i];
                if (s.op == KOLO_RECV) {
                    EXPECT_EQ(partner, s.peer) << n << " ranks, rank " << r << ", step " << i;
                } else if (s.op == KOLO_SEND) {
                    partner = s.peer;
                }
            }
        }
    }
}

TEST(Catalogue, EveryRowHasANameOfItsCollectiveAndASource)
{
    std::set<std::string> names;
    for (const kolo_algo *algo : AllAlgos()) {
        const std::string name = algo->base.name;
        EXPECT_EQ(0u, name.find(std::string(kolo_coll_name(algo->coll)) + "_")) << name;
        EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
        EXPECT_EQ(KOLO_PLUGIN_ABI, algo->base.abi) << name;
        EXPECT_EQ(sizeof(kolo_algo), algo->base.size) << name;
        EXPECT_GT(std::string(algo->source).size(), 20u) << name;
    }
}
