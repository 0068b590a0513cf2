// SPDX-License-Identifier: Apache-2.0
// covers: src/plan/verify/race.c src/plan/verify/verify.c
// Lanes of a rank that touch one chunk: the prover accepts them where the plan orders them, and
// refuses them where it does not.
#include "plan_util.h"

TEST(Lanes, ThatWriteOneChunkUnorderedAreRefused)
{
    ExpectRefused(KOLO_COLL_BROADCAST, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
                      kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
                      kolo_lane(b, 1);
                      kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
                  },
                  {"rank 1 lane 1", "step 0 of lane 0", "nothing orders"});
}

// Lane 1 of rank 1 passes on what lane 0 received; `joined` says so.
static void PassOn(kolo_builder *b, bool joined)
{
    kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
    kolo_round(b);
    kolo_lane(b, 1);
    if (joined) {
        kolo_join(b, 1, 0);
        kolo_round(b);
    } else { // messages that take their time, but say nothing of lane 0
        const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
        for (int i = 0; i < 3; i++) {
            kolo_transfer(b, 2, none, 1, none, KOLO_MOVE);
            kolo_round(b);
        }
    }
    kolo_transfer(b, 1, kolo_out(0), 2, kolo_out(0), KOLO_MOVE);
}

TEST(Lanes, AJoinOrdersThem)
{
    const kolo_algo algo = Algo("joined", KOLO_COLL_BROADCAST,
                                [](const kolo_shape *, kolo_builder *b) { PassOn(b, true); });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 3));
    EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
}

TEST(Lanes, ReadingWhatAnotherLaneWroteUnorderedIsRefused)
{
    ExpectRefused(
        KOLO_COLL_BROADCAST, 3, [](const kolo_shape *, kolo_builder *b) { PassOn(b, false); },
        {"rank 1 lane 1 step 4 (send", "reads a chunk that step 0 of lane 0", "nothing orders"});
}

// Lane 1 waits for the first step of lane 0, but not for the SEND after it.
TEST(Lanes, WritingWhatAnotherLaneReadsUnorderedIsRefused)
{
    ExpectRefused(
        KOLO_COLL_BROADCAST, 2,
        [](const kolo_shape *, kolo_builder *b) {
            const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_round(b);
            kolo_lane(b, 1);
            kolo_join(b, 0, 0);
            kolo_round(b);
            kolo_lane(b, 0);
            kolo_transfer(b, 0, kolo_out(0), 1, kolo_out(0), KOLO_MOVE);
            kolo_round(b);
            kolo_lane(b, 1);
            for (int i = 0; i < 3; i++) {
                kolo_transfer(b, 1, none, 0, none, KOLO_MOVE);
                kolo_round(b);
            }
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
        },
        {"rank 0 lane 1", "writes a chunk that step 2 of lane 0 uses", "nothing orders them"});
}

// Out of place this is right: lane 0 of rank 1 reads IN, lane 1 writes OUT. In place they are one.
TEST(Lanes, WritingWhatAnotherLaneReadsUnorderedIsRefusedInPlace)
{
    ExpectRefused(KOLO_COLL_ALL_TO_ALL, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      for (int r = 0; r < 2; r++) {
                          kolo_local(b, r, kolo_in(r), kolo_out(r), KOLO_MOVE);
                          kolo_transfer(b, r, kolo_in(1 - r), 1 - r, kolo_out(r), KOLO_MOVE);
                          kolo_lane(b, 1 - r); // rank 0 sends in lane 0, rank 1 in lane 1
                      }
                  },
                  {"rank", "lane", "nothing orders them in place"});
}

TEST(Lanes, MessagesThroughAnotherRankOrderThem)
{
    const kolo_algo algo =
        Algo("through", KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
            const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
            kolo_round(b);
            kolo_transfer(b, 1, none, 2, none, KOLO_MOVE); // lane 0 of rank 1 has received
            kolo_round(b);
            kolo_lane(b, 1);
            kolo_join(b, 2, 0);
            kolo_round(b);
            kolo_transfer(b, 2, none, 1, none, KOLO_MOVE); // and lane 1 of rank 1 knows
            kolo_round(b);
            kolo_transfer(b, 1, kolo_out(0), 2, kolo_out(0), KOLO_MOVE);
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 3));
    EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
}
