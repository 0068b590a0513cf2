// SPDX-License-Identifier: Apache-2.0
// covers: tools/tune/decide.c
/* From times to rules: significance, ranges of sizes, buffers, hints. */
extern "C" {
#include "plan/plan.h"
#include "tools/tune/decide.h"
#include "tune/tune.h"
}

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace
{

const kolo_algo *Named(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    ADD_FAILURE() << "no algorithm " << name;
    return nullptr;
}

/* Times spread evenly over us * (1 +- spread). */
void Time(tune_way *way, double us, double spread, int rounds = 21)
{
    for (int i = 0; i < rounds; i++) {
        way->us[TUNE_DECIDE][i] = us * (1 + spread * (2.0 * i / (rounds - 1) - 1));
    }
}

/* Two ways, of which `ring` is the standard. */
tune_point Point(kolo_coll coll, size_t bytes, double ring_us, double direct_us, double spread = 0)
{
    tune_point point = {};
    const bool sums = coll == KOLO_COLL_ALL_REDUCE;
    point.coll = coll;
    point.bytes = bytes;
    tune_add(&point, Named(sums ? "allreduce_ring" : "allgather_ring"), 0, ring_us);
    tune_add(&point, Named(sums ? "allreduce_direct" : "allgather_direct"), 0, direct_us);
    Time(&point.way[0], ring_us, spread);
    Time(&point.way[1], direct_us, 0);
    return point;
}

std::vector<std::string> Rows(std::vector<tune_point> points, int nranks = 2)
{
    kolo_row rows[KOLO_TABLE_ROWS];
    std::vector<std::string> found;
    for (tune_point &point : points) {
        tune_decide(&point);
    }
    const tune_points all = {nranks, static_cast<int>(points.size()), points.data()};
    const int count = tune_rows(&all, rows, KOLO_TABLE_ROWS);
    for (int i = 0; i < count; i++) {
        kolo_text text = {};
        rows[i].us = 0; /* what was measured is another test's */
        kolo_table_write_row(&rows[i], &text);
        found.emplace_back(text.chars);
        kolo_text_free(&text);
    }
    return found;
}

using Lines = std::vector<std::string>;

// ---- significance

TEST(TuneFigure, TheMedianAndItsDeviationAreThoseOfTheSamples)
{
    const double values[] = {5, 1, 4, 2, 3};
    const tune_figure figure = tune_figure_of(values, 5);
    EXPECT_DOUBLE_EQ(3, figure.value);
    EXPECT_EQ(5, figure.count);
    EXPECT_NEAR(1.2533 * 1.4826 * 1 / std::sqrt(5), figure.sigma, 1e-9);
    EXPECT_EQ(0, tune_figure_of(values, 0).count);
}

TEST(TuneFigure, OneWildRoundDoesNotMoveIt)
{
    std::vector<double> values(20, 10);
    values.push_back(1e6);
    const tune_figure figure = tune_figure_of(values.data(), 21);
    EXPECT_DOUBLE_EQ(10, figure.value);
    EXPECT_DOUBLE_EQ(0, figure.sigma);
}

TEST(TuneGain, ComparesWithinRoundsSoThatDriftCancels)
{
    tune_way fast = {}, slow = {};
    for (int i = 0; i < 20; i++) {
        slow.us[TUNE_DECIDE][i] = 10 * (i + 1);
        fast.us[TUNE_DECIDE][i] = 9 * (i + 1);
    }
    fast.us[TUNE_DECIDE][20] = 1; /* a round that the other did not have */
    const tune_figure gain = tune_gain(&fast, &slow, TUNE_DECIDE);
    EXPECT_EQ(20, gain.count);
    EXPECT_NEAR(0.1, gain.value, 1e-12);
    EXPECT_NEAR(0, gain.sigma, 1e-12);
}

TEST(TuneDecide, AGainOfFourPerCentIsNoRule)
{
    EXPECT_EQ(Lines{}, Rows({Point(KOLO_COLL_ALL_REDUCE, 4096, 100, 96)}));
    EXPECT_EQ(1u, Rows({Point(KOLO_COLL_ALL_REDUCE, 4096, 100, 94)}).size());
}

TEST(TuneDecide, AGainWithinTwoDeviationsIsNoRule)
{
    tune_point noisy = Point(KOLO_COLL_ALL_REDUCE, 4096, 100, 85, 0.9);
    const tune_figure gain = tune_gain(&noisy.way[1], &noisy.way[0], TUNE_DECIDE);
    ASSERT_GT(gain.value, 0.05);
    ASSERT_LT(gain.value, 2 * gain.sigma);
    EXPECT_EQ(Lines{}, Rows({noisy}));
    tune_point quiet = Point(KOLO_COLL_ALL_REDUCE, 4096, 100, 85, 0.1);
    EXPECT_EQ(1u, Rows({quiet}).size());
}

TEST(TuneDecide, TwoRoundsAreTooFewForARule)
{
    tune_point point = {};
    point.coll = KOLO_COLL_ALL_REDUCE;
    point.bytes = 4096;
    tune_add(&point, Named("allreduce_ring"), 0, 1);
    tune_add(&point, Named("allreduce_direct"), 0, 1);
    Time(&point.way[0], 100, 0, 2);
    Time(&point.way[1], 50, 0, 2);
    EXPECT_EQ(Lines{}, Rows({point}));
}

TEST(TuneDecide, ACompositionOrADroppedWayIsNeverChosen)
{
    tune_point point = Point(KOLO_COLL_ALL_REDUCE, 4096, 100, 50);
    point.way[1].dropped = true;
    point.way[2].composition = 1;
    point.nways = 3;
    Time(&point.way[2], 10, 0);
    EXPECT_EQ(Lines{}, Rows({point}));
}

// ---- ranges

TEST(TuneRows, NeighbouringSizesMergeAndEdgesLieBetweenSizes)
{
    EXPECT_EQ(
        (Lines{"allreduce 2 [64,1k) direct default any\n"}),
        Rows({Point(KOLO_COLL_ALL_REDUCE, 32, 100, 99), Point(KOLO_COLL_ALL_REDUCE, 128, 100, 80),
              Point(KOLO_COLL_ALL_REDUCE, 512, 100, 90),
              Point(KOLO_COLL_ALL_REDUCE, 2048, 100, 120)}));
}

TEST(TuneRows, TheLeastSizeStandsForAllBelowAndTheLargestForTwice)
{
    EXPECT_EQ(
        (Lines{"allreduce 2 [0,64) direct default any\n"}),
        Rows({Point(KOLO_COLL_ALL_REDUCE, 8, 100, 80), Point(KOLO_COLL_ALL_REDUCE, 32, 100, 80)}));
    EXPECT_EQ((Lines{"allreduce 2 [512k,2M) direct default private\n"}),
              Rows({Point(KOLO_COLL_ALL_REDUCE, 1 << 20, 100, 80)}));
}

TEST(TuneRows, SizesWithAGapBetweenThemAreTwoRows)
{
    EXPECT_EQ(
        (Lines{"allgather 3 [0,16) direct default any\n",
               "allgather 3 [64,256) direct default any\n"}),
        Rows({Point(KOLO_COLL_ALL_GATHER, 8, 100, 80), Point(KOLO_COLL_ALL_GATHER, 32, 100, 100),
              Point(KOLO_COLL_ALL_GATHER, 128, 100, 80)},
             3));
}

TEST(TuneRows, BothKindsOfBuffersAreOneRowWhereTheyAgree)
{
    tune_point shared = Point(KOLO_COLL_ALL_REDUCE, 1 << 20, 100, 80);
    shared.shared = true;
    EXPECT_EQ((Lines{"allreduce 2 [512k,2M) direct default any\n"}),
              Rows({Point(KOLO_COLL_ALL_REDUCE, 1 << 20, 100, 80), shared}));
    EXPECT_EQ((Lines{"allreduce 2 [512k,2M) direct default shared\n"}),
              Rows({Point(KOLO_COLL_ALL_REDUCE, 1 << 20, 100, 100), shared}));
}

TEST(TuneRows, AMergedRowTellsOfTheSizeThatGainsLeast)
{
    std::vector<tune_point> points = {Point(KOLO_COLL_ALL_REDUCE, 8, 100, 60),
                                      Point(KOLO_COLL_ALL_REDUCE, 32, 200, 180),
                                      Point(KOLO_COLL_ALL_REDUCE, 128, 400, 200)};
    kolo_row rows[4];
    for (tune_point &point : points) {
        tune_decide(&point);
    }
    const tune_points all = {2, 3, points.data()};
    ASSERT_EQ(1, tune_rows(&all, rows, 4));
    EXPECT_DOUBLE_EQ(180, rows[0].us);
    EXPECT_DOUBLE_EQ(200, rows[0].default_us);
    EXPECT_NEAR(0.1, rows[0].gain, 1e-12);
}

TEST(TuneRows, WhatIsWrittenCanBeRead)
{
    std::vector<tune_point> points;
    for (const kolo_coll coll : {KOLO_COLL_ALL_REDUCE, KOLO_COLL_ALL_GATHER}) {
        for (const bool shared : {false, true}) {
            for (size_t bytes = shared ? 8192 : 8; bytes <= 1 << 24; bytes *= 4) {
                points.push_back(Point(coll, bytes, 100, points.size() % 3 == 1 ? 80 : 120));
                points.back().shared = shared;
            }
        }
    }
    std::string text = "kolo-table 1\nmachine any\n";
    for (const std::string &row : Rows(points)) {
        text += row;
    }
    const kolo_table_source source = {"text", [] { return kolo_algos_count; },
                                      [](int i) { return kolo_algos[i]; }};
    kolo_table *table = nullptr;
    EXPECT_EQ(KOLO_OK, kolo_table_parse(text.c_str(), &source, &table)) << kolo_error_text();
    EXPECT_GT(kolo_table_rows(table), 2);
    kolo_table_destroy(table);
}

TEST(TuneRange, IsWhatThePointsOfACollectiveStandFor)
{
    std::vector<tune_point> points = {Point(KOLO_COLL_ALL_REDUCE, 1024, 1, 1),
                                      Point(KOLO_COLL_ALL_REDUCE, 4096, 1, 1)};
    const tune_points all = {2, 2, points.data()};
    size_t low = 0, high = 0;
    tune_range(&all, KOLO_COLL_ALL_REDUCE, &low, &high);
    EXPECT_EQ(512u, low);
    EXPECT_EQ(8192u, high);
    tune_range(&all, KOLO_COLL_BROADCAST, &low, &high);
    EXPECT_GT(low, high);
}

// ---- guards

TEST(TuneHint, WhatMakesALargerSizeFasterIsToBeTriedAtTheSmaller)
{
    const tune_point small = Point(KOLO_COLL_ALL_REDUCE, 1024, 100, 120);
    const tune_point faster = Point(KOLO_COLL_ALL_REDUCE, 4096, 150, 90);
    const tune_point slower = Point(KOLO_COLL_ALL_REDUCE, 4096, 150, 110);
    EXPECT_EQ(1, tune_hint(&small, &faster));
    EXPECT_EQ(-1, tune_hint(&small, &slower));
}

TEST(TuneAdd, AWayIsThereOnce)
{
    tune_point point = Point(KOLO_COLL_ALL_REDUCE, 1024, 100, 120);
    const kolo_algo *ring = Named("allreduce_ring");
    EXPECT_EQ(-1, tune_add(&point, ring, 0, 1));
    EXPECT_EQ(2, tune_add(&point, ring, 65536, 1));
    EXPECT_EQ(2, tune_find(&point, ring, 65536));
    EXPECT_EQ(-1, tune_find(&point, ring, 32768));
    for (size_t tile = 1; point.nways < TUNE_WAYS; tile++) {
        tune_add(&point, ring, tile, 1);
    }
    EXPECT_EQ(-1, tune_add(&point, ring, 1 << 30, 1)) << "no room";
}

} // namespace
