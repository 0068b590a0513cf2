// SPDX-License-Identifier: Apache-2.0
// covers: topology/layout
/* The planner: its rings pass every GPU once and fit the links, its trees hang together, it reaches
 * its bounds where they can be reached, and says so only then. */
#include "machines.h"

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <sys/resource.h>

namespace
{

using machines::Graph;
using machines::Read;

struct Plan {
    Graph graph;
    struct kolo_wiring wiring = {};
    struct kolo_job job = {};
    kolo_status status;
    Plan(const std::string &text, int hosts) : graph(Read(text))
    {
        status =
            graph == nullptr ? KOLO_ERR_INVALID : kolo_wiring_make(graph.get(), hosts, &wiring);
        status = status == KOLO_OK ? kolo_wiring_job(&wiring, &job) : status;
    }
    Plan(const Plan &) = delete;
    ~Plan()
    {
        kolo_job_free(&job);
        kolo_wiring_free(&wiring);
    }
    double achieved() const
    {
        return kolo_wiring_gbs(&wiring);
    }
};

/* Load of every link in each direction, from the paths alone; "" where all is well. */
std::string FaultOfRings(const Plan &plan)
{
    const struct kolo_wiring &w = plan.wiring;
    struct kolo_fabric fabric = {};
    if (kolo_fabric_make(plan.graph.get(), &fabric) != KOLO_OK) {
        return "no fabric";
    }
    std::vector<double> load(2 * plan.graph->nlinks, 0);
    std::string fault;
    for (int r = 0; r < w.nrings; r++) {
        std::set<int> seen(w.path + r * w.ngpus, w.path + (r + 1) * w.ngpus);
        if (static_cast<int>(seen.size()) != w.ngpus || *seen.begin() != 0 ||
            *seen.rbegin() != w.ngpus - 1) {
            fault = "ring " + std::to_string(r) + " is no way through all GPUs";
        }
        for (int i = 0; i < w.ngpus && w.ngpus > 1; i++) {
            if (w.rail != nullptr && i == w.ngpus - 1) {
                continue; /* leaves the host */
            }
            const int from = w.path[r * w.ngpus + i], to = w.path[r * w.ngpus + (i + 1) % w.ngpus];
            const struct kolo_route &route = fabric.route[from * w.ngpus + to];
            for (int k = 0; k < route.count; k++) {
                load[fabric.arc[route.first + k]] += w.ring_gbs;
            }
        }
    }
    for (size_t i = 0; i < load.size(); i++) {
        if (load[i] > plan.graph->link[i / 2].gbs * 1.0001) {
            fault = "link " + std::to_string(i / 2) + " carries " + std::to_string(load[i]) +
                    " of " + std::to_string(plan.graph->link[i / 2].gbs);
        }
    }
    kolo_fabric_free(&fabric);
    return fault;
}

std::string FaultOfTrees(const struct kolo_job &job)
{
    for (int c = 0; c < job.nchannels; c++) {
        int roots = 0, members = 0;
        for (int r = 0; r < job.nranks; r++) {
            const struct kolo_job_branch *b = kolo_job_find_branch(&job, c, r);
            if (b == nullptr) {
                return "a rank is in no tree";
            }
            members++;
            roots += b->up < 0;
            const struct kolo_job_branch *up = kolo_job_find_branch(&job, c, b->up);
            if (up != nullptr && up->down[0] != r && up->down[1] != r && up->down[2] != r) {
                return "parent and child disagree";
            }
        }
        if (roots != 1 || kolo_job_depth(&job, c) < 0 || members != job.nranks) {
            return "tree " + std::to_string(c) + " has " + std::to_string(roots) + " roots";
        }
        int counted = 0;
        for (int i = 0; i < job.nbranches; i++) {
            counted += job.branch[i].channel == c;
        }
        if (counted != job.nranks) {
            return "a rank stands twice";
        }
    }
    return "";
}

void ExpectSound(const Plan &plan)
{
    ASSERT_EQ(KOLO_OK, plan.status) << kolo_error_text();
    EXPECT_EQ("", FaultOfRings(plan));
    EXPECT_EQ("", FaultOfTrees(plan.job));
    EXPECT_LE(plan.achieved(), plan.wiring.bound_gbs * 1.0001);
}

void ExpectOptimal(const std::string &text, int hosts, double gbs)
{
    const Plan plan(text, hosts);
    ExpectSound(plan);
    EXPECT_NEAR(gbs, plan.achieved(), 1e-6 * gbs);
    EXPECT_NEAR(gbs, plan.wiring.bound_gbs, 1e-6 * gbs);
}

TEST(Wiring, AHybridCubeMeshHasSixRings)
{
    const Plan plan(machines::Direct(machines::CubeMesh()), 1);
    ExpectSound(plan);
    EXPECT_EQ(6, plan.wiring.nrings);
    EXPECT_EQ(6, plan.wiring.bound_links);
    EXPECT_DOUBLE_EQ(120, plan.achieved());
    EXPECT_DOUBLE_EQ(120, plan.wiring.bound_gbs);
}

TEST(Wiring, FourGpusWithTwoLinksAPairUseEachDirectedPairTwice)
{
    const Plan plan(machines::Direct(machines::Mesh(4, 2)), 1);
    ExpectSound(plan);
    ASSERT_EQ(6, plan.wiring.nrings);
    EXPECT_DOUBLE_EQ(plan.wiring.bound_gbs, plan.achieved());
    std::map<std::pair<int, int>, int> uses;
    for (int r = 0; r < 6; r++) {
        for (int i = 0; i < 4; i++) {
            const int *path = plan.wiring.path + 4 * r;
            uses[{path[i], path[(i + 1) % 4]}]++;
        }
    }
    EXPECT_EQ(12u, uses.size());
    for (const auto &use : uses) {
        EXPECT_EQ(2, use.second);
    }
}

TEST(Wiring, FullMeshesOfEverySizeReachTheirBound)
{
    for (int n = 2; n <= 16; n++) {
        SCOPED_TRACE(n);
        for (const char *tag : {"nvlink", "xgmi"}) {
            const double lane = std::string(tag) == "xgmi" ? kolo_xgmi_gbs(80) : 20;
            ExpectOptimal(machines::Direct(machines::Mesh(n, 1), 0, tag), 1, (n - 1) * lane);
        }
    }
}

TEST(Wiring, BehindAnNvSwitchAnyNumberOfGpusReachesItsLinks)
{
    for (int n = 2; n <= 16; n++) {
        SCOPED_TRACE(n);
        ExpectOptimal(machines::Switched(n, 6, 0), 1, 120);
    }
}

TEST(Wiring, PciMachinesReachTheirNarrowestCut)
{
    ExpectOptimal(machines::Pci(1, 4), 1, 24);
    ExpectOptimal(machines::Pci(4, 2), 1, 22); /* between the sockets */
    ExpectOptimal(machines::Pci(2, 4), 1, 22);
}

/* Three links a GPU, on a cube: its Hamiltonian cycles cannot use all of them. */
TEST(Wiring, WhereTheBoundIsOutOfReachTheGapIsTold)
{
    std::vector<std::vector<int>> links(8, std::vector<int>(8, 0));
    for (const auto &edge : std::vector<std::pair<int, int>>{{0, 1},
                                                             {0, 2},
                                                             {0, 6},
                                                             {1, 3},
                                                             {1, 5},
                                                             {2, 3},
                                                             {2, 4},
                                                             {3, 7},
                                                             {4, 5},
                                                             {4, 6},
                                                             {5, 7},
                                                             {6, 7}}) {
        links[edge.first][edge.second] = links[edge.second][edge.first] = 1;
    }
    const Plan plan(machines::Direct(links), 1);
    ExpectSound(plan);
    EXPECT_DOUBLE_EQ(60, plan.wiring.bound_gbs);
    EXPECT_NEAR(60 * 8.0 / 9, plan.achieved(), 1e-6); /* the best there is, by linear programming */
    struct kolo_text text = {};
    kolo_wiring_print(&plan.wiring, &text);
    EXPECT_NE(nullptr, strstr(text.chars, "11.1 % below")) << text.chars;
    EXPECT_EQ(nullptr, strstr(text.chars, "optimal"));
    kolo_text_free(&text);
}

TEST(Wiring, GpusOnARingWithoutHamiltonianLinksFallBackOnPci)
{
    std::vector<std::vector<int>> star(5, std::vector<int>(5, 0));
    for (int i = 1; i < 5; i++) {
        star[0][i] = star[i][0] = 2; /* no ring in a star */
    }
    const Plan plan(machines::Direct(star), 1);
    ExpectSound(plan);
    EXPECT_GT(plan.achieved(), 0);
    EXPECT_EQ(KOLO_OVER_ALL, plan.wiring.over);
}

/* Rails: which NICs a plan uses in and out, and by which paths. */
void ExpectEachNicOnceEachWay(const Plan &plan, enum kolo_path farthest)
{
    std::map<int, int> in, out;
    ASSERT_NE(nullptr, plan.wiring.rail);
    for (int r = 0; r < plan.wiring.nrings; r++) {
        const struct kolo_rail &rail = plan.wiring.rail[r];
        in[rail.in]++;
        out[rail.out]++;
        EXPECT_LE(rail.in_path, farthest);
        EXPECT_LE(rail.out_path, farthest);
        EXPECT_EQ(rail.entry, plan.wiring.path[r * plan.wiring.ngpus]);
        EXPECT_EQ(rail.exit, plan.wiring.path[(r + 1) * plan.wiring.ngpus - 1]);
    }
    for (int i = 0; i < plan.graph->nnics; i++) {
        EXPECT_EQ(1, in[i]) << "NIC " << i;
        EXPECT_EQ(1, out[i]) << "NIC " << i;
    }
}

TEST(Wiring, EachNicCarriesOneRingInAndOneOutByItsOwnGpus)
{
    for (const int nic_of : {1, 2, 4}) {
        SCOPED_TRACE(nic_of);
        const Plan switched(machines::Switched(8, 12, nic_of), 4);
        ExpectSound(switched);
        EXPECT_EQ(8 / nic_of, switched.wiring.nrings);
        ExpectEachNicOnceEachWay(switched, KOLO_PATH_PIX);
        EXPECT_DOUBLE_EQ(12.5 * 8 / nic_of, switched.achieved());
        const Plan direct(machines::Direct(machines::CubeMesh(), nic_of), 4);
        ExpectSound(direct);
        ExpectEachNicOnceEachWay(direct, KOLO_PATH_PIX);
    }
}

TEST(Wiring, OverAnEvenNumberOfHostsNoRailIsCrossed)
{
    const Plan plan(machines::Switched(8, 18, 1), 6);
    ExpectSound(plan);
    for (int i = 0; i < plan.job.nedges; i++) {
        const struct kolo_job_edge &e = plan.job.edge[i];
        if (e.from / 8 != e.to / 8) {
            EXPECT_EQ(e.from % 8, e.to % 8);
        }
    }
}

TEST(Wiring, MachinesOfChanceAreSound)
{
    unsigned random = 7;
    for (int trial = 0; trial < 60; trial++) {
        SCOPED_TRACE(trial);
        const int n = 2 + trial % 9;
        std::vector<std::vector<int>> links(n, std::vector<int>(n, 0));
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                random = random * 1103515245 + 12345;
                links[i][j] = links[j][i] = random >> 16 & 3;
            }
        }
        for (const int hosts : {1, 3}) {
            ExpectSound(Plan(machines::Direct(links, 1 + trial % 3), hosts));
        }
    }
}

TEST(Wiring, EqualMachinesPlanAlike)
{
    for (const std::string &text :
         {machines::Direct(machines::CubeMesh(), 2), machines::Pci(4, 4)}) {
        const Plan a(text, 2), b(text, 2);
        struct kolo_text x = {}, y = {};
        kolo_wiring_print(&a.wiring, &x);
        kolo_wiring_print_log(&a.job, &x);
        kolo_wiring_print(&b.wiring, &y);
        kolo_wiring_print_log(&b.job, &y);
        EXPECT_STREQ(x.chars, y.chars);
        kolo_text_free(&x);
        kolo_text_free(&y);
    }
}

TEST(Wiring, AllToAllSendsToEachRankOnceAndFromEachAtEveryStep)
{
    const Plan plan(machines::Switched(4, 6, 1), 3);
    ASSERT_EQ(KOLO_OK, plan.status);
    for (int step = 0; step < 12; step++) {
        std::set<int> targets;
        for (int r = 0; r < 12; r++) {
            targets.insert(kolo_wiring_peer(&plan.wiring, r, step));
        }
        EXPECT_EQ(12u, targets.size()) << step;
    }
    std::set<int> peers;
    for (int step = 1; step < 12; step++) {
        peers.insert(kolo_wiring_peer(&plan.wiring, 5, step));
    }
    EXPECT_EQ(11u, peers.size());
    EXPECT_EQ(0u, peers.count(5));
}

TEST(Wiring, AThousandHostsAreSoonPlanned)
{
    const auto begin = std::chrono::steady_clock::now();
    const Plan plan(machines::Switched(8, 18, 1), 1024);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_EQ(KOLO_OK, plan.status) << kolo_error_text();
    EXPECT_EQ(8192, plan.job.nranks);
    EXPECT_EQ(16, plan.job.nchannels);
    if (getenv("KOLO_TEST_SHORT") == nullptr) { /* sanitizers take time and memory of their own */
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        EXPECT_LT(seconds, 20); /* it takes 0.1; each pair of hosts would take minutes */
        EXPECT_LT(usage.ru_maxrss, 200 * 1024);
    }
}

TEST(Wiring, NoGpuIsRefused)
{
    const Plan plan("<system><cpu numaid=\"0\"/></system>", 1);
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, plan.status);
}

} // namespace
