// SPDX-License-Identifier: Apache-2.0
// covers: src/tune/sums.c src/tune/coded.c
/* How often plans encode an element if they run on the units of a codec, and which of them may. */
extern "C" {
#include "plan/plan.h"
#include "tune/sums.h"
#include "tune/tune.h"
}

#include <cstring>
#include <gtest/gtest.h>
#include <string>

namespace
{

const kolo_algo *Find(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    return nullptr;
}

// -1: the algorithm has no plan for so many ranks.
kolo_plan_sums SumsOf(const kolo_algo *algo, int nranks)
{
    const kolo_shape shape = {
        sizeof(kolo_shape), algo->coll, nranks, 0, nullptr, 0, nullptr, 1, 0, nullptr};
    kolo_plan_sums sums = {false, -1};
    kolo_plan *plan = nullptr;
    if (kolo_plan_build(algo, &shape, -1, &plan) == KOLO_OK) {
        EXPECT_EQ(kolo_sums_of_plan(plan, &sums), KOLO_OK) << kolo_error_text();
    }
    kolo_plan_destroy(plan);
    return sums;
}

int EncodingsOf(const std::string &name, int nranks)
{
    return SumsOf(Find(name), nranks).encodings;
}

TEST(Sums, AnOwnerEncodesOnce)
{
    for (int n = 2; n <= 9; n++) {
        EXPECT_EQ(EncodingsOf("allreduce_direct", n), 2) << n << " ranks";
        EXPECT_EQ(EncodingsOf("allreduce_oneshot", n), 2) << n << " ranks";
        EXPECT_EQ(EncodingsOf("reducescatter_direct", n), 2) << n << " ranks";
    }
}

TEST(Sums, ARingEncodesAtEachRank)
{
    for (int n = 2; n <= 9; n++) {
        EXPECT_EQ(EncodingsOf("allreduce_ring", n), n) << n << " ranks";
        EXPECT_EQ(EncodingsOf("reducescatter_ring", n), n) << n << " ranks";
    }
}

TEST(Sums, DoublingEncodesInEachRound)
{
    EXPECT_EQ(EncodingsOf("allreduce_doubling", 2), 2);
    EXPECT_EQ(EncodingsOf("allreduce_doubling", 4), 3);
    EXPECT_EQ(EncodingsOf("allreduce_doubling", 8), 4);
}

TEST(Sums, CopiesKeepTheCodes)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo = kolo_algos[i];
        for (int n = 2; algo->coll == KOLO_COLL_ALL_GATHER && n <= 8; n++) {
            const int encodings = SumsOf(algo, n).encodings;
            EXPECT_TRUE(encodings == 1 || encodings == -1) << algo->base.name << ", " << n;
        }
    }
}

// More than 2 encodings on a way mean that a partial sum was stored, and so the other way round.
TEST(Sums, StoredSumsAreEncodedAgain)
{
    int plans = 0;
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo = kolo_algos[i];
        const bool reduces = kolo_coll_reduces(algo->coll) && algo->coll != KOLO_COLL_REDUCE;
        for (int n = 2; reduces && n <= 8; n++) {
            const kolo_plan_sums sums = SumsOf(algo, n);
            if (sums.encodings >= 0) {
                plans++;
                EXPECT_EQ(sums.stored, sums.encodings > kolo_codec_encodings(algo->coll))
                    << algo->base.name << " of " << n << ": " << sums.encodings;
            }
        }
    }
    EXPECT_GT(plans, 40);
}

} // namespace
