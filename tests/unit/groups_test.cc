// SPDX-License-Identifier: Apache-2.0
// covers: topology/layout/groups.c
/* Which ranks are near each other: from recorded machines, from places half known, by hand. */
extern "C" {
#include "util/util.h"
}

#include "topology/draw/lines.h"
#include "topology/machine/host.h"
#include "topology/source.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace
{

const std::string kData = std::string(KOLO_SOURCE_ROOT) + "/tests/data/";

using Places = std::vector<struct kolo_place>;

/* Rank i on PU cpus[i] of a recorded machine. */
Places PlacesOn(const std::string &file, const std::vector<int> &cpus)
{
    struct kolo_host *host = nullptr;
    Places places;
    EXPECT_EQ(KOLO_OK, kolo_host_load((kData + file).c_str(), &host)) << kolo_error_text();
    for (const int cpu : cpus) {
        places.push_back(kolo_host_place(host, cpu));
    }
    kolo_host_destroy(host);
    return places;
}

std::vector<int> Count(int n)
{
    std::vector<int> all;
    for (int i = 0; i < n; i++) {
        all.push_back(i);
    }
    return all;
}

std::string Line(const Places &places, const int *host_of = nullptr)
{
    struct kolo_groups groups = {};
    struct kolo_text text = {};
    const int n = static_cast<int>(places.size());
    EXPECT_EQ(KOLO_OK, kolo_groups_make(n, host_of, places.data(), &groups));
    kolo_line_groups(&text, n, &groups);
    const std::string line = text.chars;
    kolo_text_free(&text);
    kolo_groups_free(&groups);
    return line;
}

Places ByHand(const std::string &text, int n)
{
    Places places(static_cast<size_t>(n));
    EXPECT_TRUE(kolo_places_parse(text.c_str(), n, places.data())) << text;
    return places;
}

TEST(Groups, OfARecordedMachineAreItsCachesNodesAndPackages)
{
    EXPECT_EQ("Groups : L3 0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31, package 0-15 16-31",
              Line(PlacesOn("hwloc-2pack-4l3-4core.xml", Count(32))));
    EXPECT_EQ("Groups : L3 0-3 4-7", Line(PlacesOn("hwloc-1pack-2l3-4core.xml", Count(8))));
    EXPECT_EQ("Groups : NUMA node 0-3 4-7 8-11 12-15, package 0-7 8-15",
              Line(PlacesOn("hwloc-2pack-4numa-4core.xml", Count(16))));
}

TEST(Groups, AreWhereRanksAreAndNotWhereCpusAre)
{
    EXPECT_EQ("Groups : L3 0,2 1,3 4-5",
              Line(PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 4, 1, 5, 8, 9})));
    EXPECT_EQ("Groups : package 0,2,4 1,3",
              Line(PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 16, 4, 20, 8})));
}

TEST(Groups, OneCacheOrOneRankEachMakesNone)
{
    const std::string none = "Groups : none, all ranks are alike";
    EXPECT_EQ(none, Line(PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 1, 2, 3})));
    EXPECT_EQ(none, Line(PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 16})));
    EXPECT_EQ(none, Line(PlacesOn("hwloc-1pack-4core-no-l3.xml", Count(4))));
    EXPECT_EQ(none, Line(Places(4, kolo_place_unknown())));
    EXPECT_EQ(none, Line(Places(1, kolo_place_unknown())));
}

TEST(Groups, ALevelThatIsNotKnownOfEveryRankIsLeftOut)
{
    Places places = PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 1, 4, 5, 16, 17, 20, 21});
    EXPECT_EQ("Groups : L3 0-1 2-3 4-5 6-7, package 0-3 4-7", Line(places));
    places[5].l3 = places[5].core = places[5].pu = -1; /* bound to its package */
    EXPECT_EQ("Groups : package 0-3 4-7", Line(places));
    places[2] = kolo_place_unknown();
    EXPECT_EQ("Groups : none, all ranks are alike", Line(places));
}

TEST(Groups, OfSeveralHostsAreCutByHostEvenWhereTheNumbersAgree)
{
    const int host_of[] = {0, 1, 0, 1};
    EXPECT_EQ("Groups : host 0,2 1,3",
              Line(PlacesOn("hwloc-2pack-4l3-4core.xml", {0, 0, 1, 1}), host_of));
    EXPECT_EQ("Groups : host 0,2 1,3", Line(Places(4, kolo_place_unknown()), host_of));
}

TEST(Groups, NestWhereANodeSpansPackages)
{
    Places places(6, kolo_place_unknown());
    for (int r = 0; r < 6; r++) {
        places[static_cast<size_t>(r)].numa = 0;
        places[static_cast<size_t>(r)].package = r / 2;
        places[static_cast<size_t>(r)].l3 = r / 4; /* and an L3 two of them */
    }
    EXPECT_EQ("Groups : package 0-1 2-3 4-5", Line(places));
}

TEST(GroupsByHand, AreListsOfCachesNodesAndPackages)
{
    EXPECT_EQ("Groups : L3 0-1 2-3", Line(ByHand("0,0,1,1", 4)));
    EXPECT_EQ("Groups : L3 0,2,4 1,3,5-6", Line(ByHand("7,3,7,3,7,3,3", 7)));
    EXPECT_EQ("Groups : L3 0-1 2-3 4-5 6-7, NUMA node 0-3 4-7",
              Line(ByHand("0,0,1,1,2,2,3,3;0,0,0,0,1,1,1,1", 8)));
    EXPECT_EQ("Groups : package 0-1 2-3", Line(ByHand("0;0;0,0,1,1", 4)));
}

TEST(GroupsByHand, BeginAgainForMoreRanksThanTheyName)
{
    EXPECT_EQ("Groups : L3 0-1,4-5 2-3", Line(ByHand("0,0,1,1", 6)));
    EXPECT_EQ("Groups : L3 0,2 1", Line(ByHand("0,1,0,1,5", 3)));
}

TEST(GroupsByHand, OtherTextIsRefused)
{
    struct kolo_place places[4];
    for (const char *text : {"", ",", "0,", ",0", "0,x", "0,-1", "0 ,1", "0;", ";0", "0;0;0;0",
                             "0,1;0,", "99999", "0,123456789012345678901234567890"}) {
        EXPECT_FALSE(kolo_places_parse(text, 4, places)) << text;
    }
}

TEST(Near, IsTheLeastThatTwoPlacesShare)
{
    const Places p = PlacesOn("hwloc-2pack-4numa-4core.xml", {0, 0, 1, 4, 8});
    EXPECT_EQ(KOLO_NEAR_CORE, kolo_near_of(&p[0], &p[1]));
    EXPECT_EQ(KOLO_NEAR_L3, kolo_near_of(&p[0], &p[2]));
    EXPECT_EQ(KOLO_NEAR_PACKAGE, kolo_near_of(&p[0], &p[3]));
    EXPECT_EQ(KOLO_NEAR_HOST, kolo_near_of(&p[0], &p[4]));
    const Places q = PlacesOn("hwloc-1pack-2l3-4core.xml", {0, 4});
    EXPECT_EQ(KOLO_NEAR_NUMA, kolo_near_of(&q[0], &q[1]));
}

TEST(Near, OfLooselyBoundRanksIsAsFarAsItMayBe)
{
    const Places p = PlacesOn("hwloc-2pack-4numa-4core.xml", {0});
    struct kolo_place node = p[0], package = p[0];
    const struct kolo_place anywhere = kolo_place_unknown();
    node.pu = node.core = node.l3 = -1;
    package = node;
    package.numa = -1;
    EXPECT_EQ(KOLO_NEAR_NUMA, kolo_near_of(&p[0], &node));
    EXPECT_EQ(KOLO_NEAR_PACKAGE, kolo_near_of(&node, &package));
    EXPECT_EQ(KOLO_NEAR_UNKNOWN, kolo_near_of(&package, &anywhere));
    EXPECT_EQ(KOLO_NEAR_UNKNOWN, kolo_near_of(&anywhere, &anywhere));
}

TEST(Near, PairsOfPusAreFoundForEveryDistanceThatTheMachineHas)
{
    struct kolo_host *host = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_host_load((kData + "hwloc-2pack-2l3-4core-2pu.xml").c_str(), &host));
    for (const enum kolo_near near :
         {KOLO_NEAR_CORE, KOLO_NEAR_L3, KOLO_NEAR_NUMA, KOLO_NEAR_HOST}) {
        int cpu[2] = {-1, -1};
        ASSERT_TRUE(kolo_host_pair(host, near, cpu)) << near;
        const struct kolo_place a = kolo_host_place(host, cpu[0]);
        const struct kolo_place b = kolo_host_place(host, cpu[1]);
        EXPECT_EQ(near, kolo_near_of(&a, &b));
        EXPECT_NE(cpu[0], cpu[1]);
    }
    int none[2];
    EXPECT_FALSE(kolo_host_pair(host, KOLO_NEAR_PACKAGE, none)) << "a node is a package there";
    kolo_host_destroy(host);
}

} // namespace
