// SPDX-License-Identifier: Apache-2.0
// covers: topology/machine topology/layout topology/draw topology/source.c
/* Topology: discovery from small recorded machines, orders, the double binary tree, log lines and
 * drawings. Layout properties are checked for every size and for many placements of the ranks. */
extern "C" {
#include "util/util.h"
}

#include "../temp_file.h"
#include "topology/draw/draw.h"
#include "topology/draw/lines.h"
#include "topology/machine/host.h"
#include "topology/source.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <sched.h>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

const std::string kSource = KOLO_SOURCE_ROOT;
const std::string kData = kSource + "/tests/data/";
const std::string kTwoPackages = kData + "hwloc-2pack-2l3-2core.xml";
const std::string kHyperthreads = kData + "hwloc-2pack-2l3-4core-2pu.xml";
const std::string kNoL3 = kData + "hwloc-1pack-4core-no-l3.xml";

class Text
{
  public:
    Text() = default;
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;
    ~Text()
    {
        kolo_text_free(&text_);
    }
    struct kolo_text *out()
    {
        return &text_;
    }
    std::string str() const
    {
        return text_.chars != nullptr ? text_.chars : "";
    }

  private:
    struct kolo_text text_ = {};
};

class Host
{
  public:
    explicit Host(const std::string &path)
    {
        status_ = kolo_host_load(path.c_str(), &host_);
    }
    Host()
    {
        status_ = kolo_host_discover(&host_);
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;
    ~Host()
    {
        kolo_host_destroy(host_);
    }
    kolo_status status() const
    {
        return status_;
    }
    const struct kolo_host *get() const
    {
        return host_;
    }

  private:
    struct kolo_host *host_ = nullptr;
    kolo_status status_;
};

/* Puts an environment variable back at the end of the test. */
class Environment
{
  public:
    Environment(const char *name, const std::string &value) : name_(name)
    {
        const char *old = getenv(name);
        was_set_ = old != nullptr;
        old_ = was_set_ ? old : "";
        setenv(name, value.c_str(), 1);
    }
    Environment(const Environment &) = delete;
    Environment &operator=(const Environment &) = delete;
    ~Environment()
    {
        if (was_set_) {
            setenv(name_, old_.c_str(), 1);
        } else {
            unsetenv(name_);
        }
    }

  private:
    const char *name_;
    bool was_set_;
    std::string old_;
};

bool Contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

std::string Print(const Host &host)
{
    Text text;
    kolo_host_print(host.get(), text.out());
    return text.str();
}

std::string FirstLine(const std::string &text)
{
    return text.substr(0, text.find('\n'));
}

/* ---- discovery ---- */

TEST(TopologyHost, TheSummaryLineNamesPackagesCoresCachesAndMemory)
{
    Host plain(kTwoPackages);
    Host threads(kHyperthreads);
    ASSERT_EQ(KOLO_OK, plain.status());
    ASSERT_EQ(KOLO_OK, threads.status());
    EXPECT_EQ("2 packages, 8 cores, 8 PUs, L3 4 x 32 MiB shared by 2, 2 NUMA nodes 2 GiB",
              FirstLine(Print(plain)));
    EXPECT_EQ("2 packages, 16 cores, 32 PUs, L3 4 x 32 MiB shared by 8, 2 NUMA nodes 96 GiB",
              FirstLine(Print(threads)));
}

TEST(TopologyHost, TheTextListsEachPackageNodeAndL3WithItsCpus)
{
    Host host(kHyperthreads);
    ASSERT_EQ(KOLO_OK, host.status());
    const std::string text = Print(host);
    EXPECT_TRUE(Contains(text, "  source: " + kHyperthreads + "\n")) << text;
    EXPECT_TRUE(Contains(text, "  cpus allowed: 0-31\n")) << text; /* bound is this machine's */
    EXPECT_TRUE(Contains(text, "  package 1: 8 cores, cpus 8-15,24-31\n")) << text;
    EXPECT_TRUE(Contains(text, "  NUMA node 0: 48 GiB, cpus 0-7,16-23\n")) << text;
    EXPECT_TRUE(Contains(text, "  L3 3: 32 MiB, 4 cores, cpus 12-15,28-31\n")) << text;
    EXPECT_TRUE(Contains(text, "  L2: 16 x 1 MiB shared by 2\n")) << text;
}

TEST(TopologyHost, CountsAndCacheSizesAreThoseOfTheFile)
{
    Host threads(kHyperthreads);
    Host bare(kNoL3);
    ASSERT_EQ(KOLO_OK, threads.status());
    ASSERT_EQ(KOLO_OK, bare.status());
    EXPECT_EQ(32, kolo_host_pus(threads.get()));
    EXPECT_EQ(size_t{32} << 20, kolo_host_l3_bytes(threads.get()));
    EXPECT_EQ(4, kolo_host_pus(bare.get()));
    EXPECT_EQ(0u, kolo_host_l3_bytes(bare.get()));
}

TEST(TopologyHost, HyperthreadsOfOneCoreDifferInThePuAlone)
{
    Host host(kHyperthreads);
    ASSERT_EQ(KOLO_OK, host.status());
    const struct kolo_place first = kolo_host_place(host.get(), 9);
    const struct kolo_place second = kolo_host_place(host.get(), 25);
    EXPECT_EQ(18, first.pu);
    EXPECT_EQ(19, second.pu);
    EXPECT_EQ(9, first.core);
    EXPECT_EQ(9, second.core);
    EXPECT_EQ(2, second.l3);
    EXPECT_EQ(1, second.numa);
    EXPECT_EQ(1, second.package);
}

TEST(TopologyHost, PlacesThatDoNotExistAreUnknown)
{
    Host host(kNoL3);
    ASSERT_EQ(KOLO_OK, host.status());
    EXPECT_EQ(-1, kolo_host_place(host.get(), 4).pu);
    EXPECT_EQ(-1, kolo_host_place(host.get(), -1).package);
    EXPECT_EQ(-1, kolo_host_place(host.get(), 0).l3);
    EXPECT_EQ(0, kolo_host_place(host.get(), 0).core);
    EXPECT_EQ(3, kolo_host_pu_os(host.get(), 3));
    EXPECT_EQ(-1, kolo_host_pu_os(host.get(), 4));
    EXPECT_EQ(-1, kolo_host_pu_os(host.get(), -1));
}

TEST(TopologyHost, TheEnvironmentVariableReplacesTheMachine)
{
    Environment file("KOLO_TOPO_FILE", kHyperthreads);
    Host host;
    ASSERT_EQ(KOLO_OK, host.status());
    EXPECT_EQ(32, kolo_host_pus(host.get()));
}

TEST(TopologyHost, TheLiveMachineHoldsThePusThisThreadMayUse)
{
    Environment no_file("KOLO_TOPO_FILE", "");
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        GTEST_SKIP() << "more CPUs than cpu_set_t holds";
    }
    Host host;
    ASSERT_EQ(KOLO_OK, host.status());
    EXPECT_GE(kolo_host_pus(host.get()), CPU_COUNT(&mask));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mask)) {
            EXPECT_GE(kolo_host_place(host.get(), cpu).pu, 0) << cpu;
        }
    }
    EXPECT_TRUE(Contains(Print(host), "source: this machine\n"));
}

TEST(TopologyHost, ABoundThreadIsWhereItsPuIsAndAnUnboundOneWhereAllItsPusAre)
{
    Environment no_file("KOLO_TOPO_FILE", "");
    cpu_set_t all;
    CPU_ZERO(&all);
    Host host;
    ASSERT_EQ(KOLO_OK, host.status());
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        GTEST_SKIP() << "more CPUs than cpu_set_t holds";
    }
    struct kolo_place first = kolo_place_unknown();
    struct kolo_place expected = kolo_place_unknown();
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) {
            continue;
        }
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
        const struct kolo_place here = kolo_host_here(host.get());
        const struct kolo_place place = kolo_host_place(host.get(), cpu);
        EXPECT_EQ(place.pu, here.pu);
        EXPECT_EQ(place.package, here.package);
        if (first.pu < 0) {
            first = expected = place;
        }
        expected.pu = place.pu == first.pu ? expected.pu : -1;
        expected.core = place.core == first.core ? expected.core : -1;
        expected.package = place.package == first.package ? expected.package : -1;
    }
    ASSERT_EQ(0, sched_setaffinity(0, sizeof all, &all));
    const struct kolo_place here = kolo_host_here(host.get());
    EXPECT_EQ(expected.pu, here.pu);
    EXPECT_EQ(expected.core, here.core);
    EXPECT_EQ(expected.package, here.package);
}

void ExpectRefused(const std::string &path, const std::string &why)
{
    Environment file("KOLO_TOPO_FILE", path);
    Host host;
    EXPECT_EQ(KOLO_ERR_INVALID, host.status());
    EXPECT_EQ(nullptr, host.get());
    EXPECT_TRUE(Contains(kolo_error_text(), path)) << kolo_error_text();
    EXPECT_TRUE(Contains(kolo_error_text(), why)) << kolo_error_text();
}

TEST(TopologyHost, ABadFileIsRefusedByNameAndReason)
{
    const std::string head = "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";
    TempFile empty("");
    ExpectRefused(empty.path() + ".absent", "No such file");
    ExpectRefused(empty.path(), "it is empty");
    TempFile cut(head + "<topology version=\"2.0\">\n  <object type=\"Machine\" os_ind");
    ExpectRefused(cut.path(), ":4: unclosed token");
    TempFile fourth(head + "<topology version=\"4.0\">\n</topology>\n");
    ExpectRefused(fourth.path(), "newer than 3");
    TempFile text("no markup at all\n");
    ExpectRefused(text.path(), ":1: syntax error");
    ExpectRefused(kData, "not a regular file");
}

/* A machine of GPUs and NICs tells nothing of CPUs. */
TEST(TopologyHost, AFileOfAnotherFormatIsNoHostAndLeavesTheCpusToThisMachine)
{
    TempFile nccl("<!-- by hand -->\n<system version=\"1\">\n  <cpu numaid=\"0\"/>\n</system>\n");
    {
        Host host(nccl.path());
        EXPECT_EQ(KOLO_ERR_INVALID, host.status());
        EXPECT_TRUE(Contains(kolo_error_text(), "of NCCL")) << kolo_error_text();
    }
    Environment file("KOLO_TOPO_FILE", nccl.path());
    Host host;
    ASSERT_EQ(KOLO_OK, host.status()) << kolo_error_text();
    EXPECT_TRUE(Contains(Print(host), "source: this machine\n"));
}

std::string ReadFile(const std::string &path)
{
    std::ifstream file(path);
    std::stringstream content;
    content << file.rdbuf();
    return content.str();
}

TEST(TopologyHost, OfUnequalCachesTheSmallestCountsAndTheTextNamesEach)
{
    std::string xml = ReadFile(kTwoPackages);
    const std::string size = "cache_size=\"33554432\"";
    ASSERT_NE(std::string::npos, xml.find(size));
    xml.replace(xml.find(size), size.size(), "cache_size=\"100663296\"");
    TempFile file(xml);
    Host host(file.path());
    ASSERT_EQ(KOLO_OK, host.status()) << kolo_error_text();
    EXPECT_EQ(size_t{32} << 20, kolo_host_l3_bytes(host.get()));
    EXPECT_TRUE(
        Contains(FirstLine(Print(host)), ", L3 1 x 96 MiB shared by 2 + 3 x 32 MiB shared by 2, "))
        << Print(host);
}

TEST(TopologyHost, AFileCutAnywhereIsRefused)
{
    const std::string whole = ReadFile(kTwoPackages);
    ASSERT_GT(whole.size(), 1000u);
    const size_t body = whole.rfind("</topology>");
    for (size_t len = 1; len < body; len += 97) {
        TempFile cut(whole.substr(0, len));
        Host host(cut.path());
        EXPECT_EQ(KOLO_ERR_INVALID, host.status()) << len;
    }
}

std::vector<std::string> RecordedMachines(const std::string &folder)
{
    std::vector<std::string> names;
    DIR *dir = opendir(folder.c_str());
    if (dir == nullptr) {
        return names;
    }
    while (const struct dirent *entry = readdir(dir)) {
        const std::string name = entry->d_name;
        if (name.rfind("hwloc-", 0) == 0) {
            names.push_back(name);
        }
    }
    closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
}

TEST(TopologyHost, RecordedMachinesLoadAndEveryPuHasAPlace)
{
    const std::string folder = kSource + "/../shared/data/topologies/";
    const std::vector<std::string> names = RecordedMachines(folder);
    if (names.empty()) {
        GTEST_SKIP() << "no collection of recorded machines beside the source folder";
    }
    for (const std::string &name : names) {
        SCOPED_TRACE(name);
        Host host(folder + name);
        ASSERT_EQ(KOLO_OK, host.status()) << kolo_error_text();
        const int pus = kolo_host_pus(host.get());
        EXPECT_GT(pus, 0);
        std::set<int> seen;
        for (int i = 0; i < pus; i++) {
            const struct kolo_place place =
                kolo_host_place(host.get(), kolo_host_pu_os(host.get(), i));
            EXPECT_TRUE(seen.insert(place.pu).second);
            EXPECT_GE(place.core, 0);
            EXPECT_GE(place.numa, 0);
        }
        EXPECT_EQ(0, *seen.begin());
        EXPECT_EQ(pus - 1, *seen.rbegin());
        EXPECT_TRUE(Contains(FirstLine(Print(host)), std::to_string(pus) + " PU"));
    }
}

/* ---- orders ---- */

std::vector<int> Order(int nranks, const int *host_of, const struct kolo_place *place)
{
    std::vector<int> order(static_cast<size_t>(nranks), -1);
    kolo_order_ranks(nranks, host_of, place, order.data());
    return order;
}

std::vector<struct kolo_place> PlacesOf(const Host &host, const std::vector<int> &cpus)
{
    std::vector<struct kolo_place> places;
    for (const int cpu : cpus) {
        places.push_back(kolo_host_place(host.get(), cpu));
    }
    return places;
}

/* The group of rank r on a level: its key and those of all wider levels. */
using Group = std::array<int, 6>;

Group GroupOf(int level, int host, const struct kolo_place &p)
{
    Group group = {host, p.package, p.numa, p.l3, p.core, p.pu};
    std::fill(group.begin() + level + 1, group.end(), 0);
    return group;
}

/* Each level's groups stay in one piece of the list, which begins with rank 0. */
void ExpectGroupsInOnePiece(const std::vector<int> &order, const std::vector<int> &host_of,
                            const std::vector<struct kolo_place> &place)
{
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < sorted.size(); i++) {
        ASSERT_EQ(static_cast<int>(i), sorted[i]);
    }
    EXPECT_EQ(0, order[0]);
    for (int level = 0; level < 6; level++) {
        std::set<Group> groups;
        size_t changes = 0;
        Group before = {};
        for (size_t i = 0; i < order.size(); i++) {
            const auto rank = static_cast<size_t>(order[i]);
            const Group group = GroupOf(level, host_of[rank], place[rank]);
            changes += i > 0 && group != before;
            groups.insert(group);
            before = group;
        }
        EXPECT_EQ(groups.size() - 1, changes) << "level " << level;
    }
}

TEST(TopologyOrder, RingNeighboursShareCachesHoweverTheRanksWerePlaced)
{
    Host host(kHyperthreads);
    ASSERT_EQ(KOLO_OK, host.status());
    std::vector<int> cpus(32);
    std::iota(cpus.begin(), cpus.end(), 0);
    std::mt19937 random(7);
    for (int round = 0; round < 200; round++) {
        SCOPED_TRACE(round);
        std::shuffle(cpus.begin(), cpus.end(), random);
        std::vector<int> used(cpus.begin(), cpus.begin() + 1 + round % 32);
        const std::vector<struct kolo_place> place = PlacesOf(host, used);
        const std::vector<int> host_of(used.size(), 0);
        const std::vector<int> order = Order(static_cast<int>(used.size()), nullptr, place.data());
        ExpectGroupsInOnePiece(order, host_of, place);
    }
}

TEST(TopologyOrder, HostsStayInOnePieceAndSoDoTheirCaches)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    std::mt19937 random(11);
    for (int round = 0; round < 200; round++) {
        SCOPED_TRACE(round);
        std::vector<int> slots(24);
        std::iota(slots.begin(), slots.end(), 0);
        std::shuffle(slots.begin(), slots.end(), random);
        std::vector<int> host_of;
        std::vector<int> cpus;
        for (const int slot : slots) {
            host_of.push_back(slot / 8);
            cpus.push_back(slot % 8);
        }
        const std::vector<struct kolo_place> place = PlacesOf(host, cpus);
        ExpectGroupsInOnePiece(Order(24, host_of.data(), place.data()), host_of, place);
    }
}

TEST(TopologyOrder, AScatteredPlacementGivesTheKnownRing)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    /* Round robin over the packages, as mpirun --map-by socket does. */
    const std::vector<struct kolo_place> place = PlacesOf(host, {0, 4, 1, 5, 2, 6, 3, 7});
    EXPECT_EQ((std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}), Order(8, nullptr, place.data()));
    /* Rank 0 in the last L3: its package and L3 lead, nothing is torn apart. */
    const std::vector<struct kolo_place> late = PlacesOf(host, {7, 0, 1, 2, 3, 4, 5, 6});
    EXPECT_EQ((std::vector<int>{0, 7, 5, 6, 1, 2, 3, 4}), Order(8, nullptr, late.data()));
}

TEST(TopologyOrder, RanksOfUnknownPlaceFollowInRankOrder)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    std::vector<struct kolo_place> place = PlacesOf(host, {1, 6, 0, 3, 2, 7});
    place[1] = place[5] = kolo_place_unknown();
    EXPECT_EQ((std::vector<int>{0, 2, 4, 3, 1, 5}), Order(6, nullptr, place.data()));
    EXPECT_EQ((std::vector<int>{0, 1, 2, 3}), Order(4, nullptr, nullptr));
    EXPECT_EQ((std::vector<int>{0}), Order(1, nullptr, nullptr));
}

TEST(TopologyOrder, NumbersWrapRoundAtRankZeroOfAnUnknownPlaceToo)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    std::vector<struct kolo_place> place = PlacesOf(host, {7, 6, 0, 7});
    place[0] = place[3] = kolo_place_unknown();
    EXPECT_EQ((std::vector<int>{0, 3, 2, 1}), Order(4, nullptr, place.data()));
}

TEST(TopologyOrder, ARankBoundToAWholePackageFollowsThoseOfItsCores)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    std::vector<struct kolo_place> place = PlacesOf(host, {0, 1, 4, 5});
    place[1] = kolo_place_unknown();
    place[1].package = 0;
    place.push_back(kolo_host_place(host.get(), 3));
    EXPECT_EQ((std::vector<int>{0, 4, 1, 2, 3}), Order(5, nullptr, place.data()));
}

/* ---- trees ---- */

bool Interior(const struct kolo_tree &tree)
{
    return tree.down[0] >= 0 || tree.down[1] >= 0;
}

TEST(TopologyTree, EachTreeReachesEveryRankOnceAndParentsAgreeWithChildren)
{
    std::mt19937 random(3);
    for (int n = 1; n <= 200; n++) {
        std::vector<int> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        for (int which = 0; which < 2; which++) {
            SCOPED_TRACE(testing::Message() << "n " << n << " tree " << which);
            int roots = 0;
            std::vector<int> reached(static_cast<size_t>(n), 0);
            for (int rank = 0; rank < n; rank++) {
                struct kolo_tree tree;
                kolo_tree_build(n, order.data(), which, rank, &tree);
                roots += tree.up < 0;
                for (const int child : tree.down) {
                    if (child < 0) {
                        continue;
                    }
                    ASSERT_LT(child, n);
                    reached[static_cast<size_t>(child)]++;
                    struct kolo_tree below;
                    kolo_tree_build(n, order.data(), which, child, &below);
                    EXPECT_EQ(rank, below.up);
                }
                /* The way up ends at the root within the promised depth: no cycle. */
                int depth = 0;
                for (int up = tree.up; up >= 0 && depth <= n; depth++) {
                    struct kolo_tree above;
                    kolo_tree_build(n, order.data(), which, up, &above);
                    up = above.up;
                }
                EXPECT_LE(depth, kolo_log2_ceil(n + 1) - 1);
            }
            EXPECT_EQ(1, roots);
            EXPECT_EQ(n - 1, std::accumulate(reached.begin(), reached.end(), 0));
            EXPECT_LE(*std::max_element(reached.begin(), reached.end()), 1);
        }
    }
}

TEST(TopologyTree, NoPositionIsInteriorInBothAndOnlyPositionZeroOfOddSizesIsALeafInBoth)
{
    for (int n = 1; n <= 200; n++) {
        for (int position = 0; position < n; position++) {
            const int interior = static_cast<int>(Interior(kolo_tree_at(n, 0, position))) +
                                 static_cast<int>(Interior(kolo_tree_at(n, 1, position)));
            const bool leaf_twice = n % 2 != 0 && position == 0;
            EXPECT_EQ(leaf_twice ? 0 : 1, interior) << "n " << n << " position " << position;
        }
    }
}

TEST(TopologyTree, SubtreesCoverNeighbouringPositions)
{
    for (int n = 1; n <= 64; n++) {
        for (int position = 0; position < n; position++) {
            const struct kolo_tree first = kolo_tree_at(n, 0, position);
            EXPECT_TRUE(first.down[0] < position);
            EXPECT_TRUE(first.down[1] < 0 || first.down[1] > position);
            const struct kolo_tree mirror = kolo_tree_at(n, 1, position);
            if (n % 2 == 0) {
                EXPECT_TRUE(mirror.down[0] < position);
                EXPECT_TRUE(mirror.down[1] < 0 || mirror.down[1] > position);
            }
        }
    }
}

/* ---- lines ---- */

std::string Ring(int channel, int nchannels, const std::vector<int> &order)
{
    Text text;
    kolo_line_ring(text.out(), channel, nchannels, static_cast<int>(order.size()), order.data());
    return text.str();
}

TEST(TopologyLines, RingsReadAsInNccl)
{
    EXPECT_EQ("Channel 00/64 : 0", Ring(0, 64, {0}));
    EXPECT_EQ("Channel 01/02 : 0 2 1", Ring(1, 2, {0, 2, 1}));
    EXPECT_EQ("Channel 00/01 : 0 1 2 3 4 5 6 7 8 9", Ring(0, 1, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ("Channel 00/16 :  0 10  1  2  3  4  5  6  7  8  9",
              Ring(0, 16, {0, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(TopologyLines, ARingOfThousandsOfRanksIsNotCut)
{
    std::vector<int> order(5000);
    std::iota(order.begin(), order.end(), 0);
    const std::string line = Ring(0, 1, order);
    EXPECT_EQ(std::string("Channel 00/01 :").size() + 5000 * 5, line.size());
    EXPECT_EQ(" 4998 4999", line.substr(line.size() - 10));
}

TEST(TopologyLines, TreesReadAsInNccl)
{
    const struct kolo_tree trees[] = {
        {13, {14, -1, -1}}, {13, {-1, -1, -1}}, {-1, {3, 8, 9}}, {4, {-1, 7, -1}}};
    Text text;
    kolo_line_trees(text.out(), 12, 4, trees);
    EXPECT_EQ("Trees [0] 14/-1/-1->12->13 [1] -1/-1/-1->12->13 [2] 3/8/9->12->-1 "
              "[3] 7/-1/-1->12->4",
              text.str());
}

TEST(TopologyLines, TheTreesOfFiveRanksAreTheKnownOnes)
{
    const char *const expected[] = {
        "Trees [0] -1/-1/-1->0->1 [1] -1/-1/-1->0->4", "Trees [0] 0/2/-1->1->3 [1] -1/-1/-1->1->2",
        "Trees [0] -1/-1/-1->2->1 [1] 1/3/-1->2->4",   "Trees [0] 1/4/-1->3->-1 [1] -1/-1/-1->3->2",
        "Trees [0] -1/-1/-1->4->3 [1] 2/0/-1->4->-1",
    };
    for (int rank = 0; rank < 5; rank++) {
        struct kolo_tree trees[2];
        Text text;
        kolo_tree_build(5, nullptr, 0, rank, &trees[0]);
        kolo_tree_build(5, nullptr, 1, rank, &trees[1]);
        kolo_line_trees(text.out(), rank, 2, trees);
        EXPECT_EQ(expected[rank], text.str());
    }
}

TEST(TopologyLines, ConnectionsReadAsInNccl)
{
    const struct kolo_edge shared = {0, 0, 0, 0, 1, 1, "SHM/direct"};
    const struct kolo_edge remote = {11, 1, 13, 5, 14, 6, "NET/Socket/0"};
    Text text;
    kolo_line_edge(text.out(), &shared);
    kolo_text_add(text.out(), "|");
    kolo_line_edge(text.out(), &remote);
    EXPECT_EQ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct|"
              "Channel 11/1 : 13[5] -> 14[6] via NET/Socket/0",
              text.str());
}

/* ---- drawings ---- */

TEST(TopologyDraw, TheRingLineShowsWhoSharesAnL3AndAPackageAndAHost)
{
    Host host(kTwoPackages);
    ASSERT_EQ(KOLO_OK, host.status());
    std::vector<struct kolo_place> place = PlacesOf(host, {0, 4, 1, 5, 2, 6, 0, 1});
    const std::vector<int> host_of = {0, 0, 0, 0, 0, 0, 1, 1};
    place[7] = kolo_place_unknown();
    place[7].package = 0;
    const std::vector<int> order = Order(8, host_of.data(), place.data());
    const struct kolo_layout layout = {8, order.data(), host_of.data(), place.data()};
    Text text;
    kolo_draw_ring(&layout, text.out());
    EXPECT_EQ("(0 2) (4) | (1 3) (5) || (6) 7\n", text.str());
}

TEST(TopologyDraw, ATreeIsDrawnFromItsRootWithOneRankALine)
{
    const std::vector<int> order = {0, 1, 2, 3, 4, 5};
    const struct kolo_layout layout = {6, order.data(), nullptr, nullptr};
    Text first;
    Text second;
    kolo_draw_tree(&layout, 0, first.out());
    kolo_draw_tree(&layout, 1, second.out());
    EXPECT_EQ("3\n|- 1\n|  |- 0\n|  `- 2\n`- 5\n   `- 4\n", first.str());
    EXPECT_EQ("2\n|- 0\n|  `- 1\n`- 4\n   |- 3\n   `- 5\n", second.str());
}

TEST(TopologyDraw, EveryRankOfEveryTreeIsDrawnOnce)
{
    for (int n = 1; n <= 70; n++) {
        std::vector<int> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        const struct kolo_layout layout = {n, order.data(), nullptr, nullptr};
        for (int which = 0; which < 2; which++) {
            Text text;
            kolo_draw_tree(&layout, which, text.out());
            std::multiset<int> drawn;
            const std::string lines = text.str();
            for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
                drawn.insert(std::stoi(lines.substr(lines.find_first_of("0123456789", at))));
            }
            EXPECT_EQ(std::multiset<int>(order.begin(), order.end()), drawn) << n;
        }
    }
}

size_t CountOf(const std::string &text, const std::string &part)
{
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        count++;
    }
    return count;
}

TEST(TopologyDraw, TheSvgHasEveryRankThreeTimesAndEveryEdgeOnce)
{
    for (const int n : {1, 2, 7, 64}) {
        std::vector<int> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        const struct kolo_layout layout = {n, order.data(), nullptr, nullptr};
        Text text;
        kolo_draw_svg(&layout, text.out());
        const std::string svg = text.str();
        const auto ranks = static_cast<size_t>(n);
        EXPECT_EQ(0u, svg.rfind("<svg xmlns=", 0));
        EXPECT_EQ("</svg>\n", svg.substr(svg.size() - 7));
        EXPECT_EQ(3 * ranks, CountOf(svg, "<circle ") / 2);
        EXPECT_EQ((n > 1 ? ranks : 0) + 2 * (ranks - 1), CountOf(svg, "<line "));
        EXPECT_EQ(CountOf(svg, "<text "), CountOf(svg, "</text>"));
        EXPECT_EQ(std::string::npos, svg.find("nan"));
    }
}

} // namespace
