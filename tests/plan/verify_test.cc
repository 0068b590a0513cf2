// SPDX-License-Identifier: Apache-2.0
// covers: src/plan
// The prover: every algorithm of the catalogue is right, and broken ones are refused with the
// reason.
#include "plan_util.h"

#include <numeric>

// ---- every algorithm ----

class EveryAlgorithm : public testing::TestWithParam<const kolo_algo *>
{
};

TEST_P(EveryAlgorithm, IsProvedForEveryNumberOfRanksAndRoot)
{
    int plans = 0;
    for (int n = 1; n <= MaxRanks(); n++) {
        for (int root : Roots(GetParam()->coll, n)) {
            const Plan plan = Build(GetParam(), Shape(GetParam()->coll, n, root));
            if (plan != nullptr) {
                plans++;
                ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
            }
        }
    }
    EXPECT_GE(plans, 4);
    RecordProperty("plans", plans);
}

// A stride that shares no factor with n visits every rank: an order that is no rotation.
TEST_P(EveryAlgorithm, IsProvedOnRingsOfAnotherOrder)
{
    for (int n = 3; n <= 13; n++) {
        int stride = n / 2 + 1;
        while (std::gcd(stride, n) != 1) {
            stride++;
        }
        std::vector<int> order;
        for (int i = 0; i < n; i++) {
            order.push_back((1 + i * stride) % n);
        }
        for (int root : Roots(GetParam()->coll, n)) {
            const Plan plan = Build(GetParam(), Shape(GetParam()->coll, n, root, order.data()));
            if (plan != nullptr) {
                ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryAlgorithm, testing::ValuesIn(AllAlgos()), AlgoName);

class EveryHierarchy : public testing::TestWithParam<const kolo_algo *>
{
};

TEST_P(EveryHierarchy, IsProvedForAnyGroups)
{
    int plans = 0;
    for (int n = 1; n <= MaxRanks(); n += n < 20 ? 1 : 11) {
        for (const Grouping &groups : Groupings(n)) {
            for (int root : Roots(GetParam()->coll, n)) {
                kolo_shape shape = Shape(GetParam()->coll, n, root);
                groups.Apply(&shape);
                const Plan plan = Build(GetParam(), shape);
                ASSERT_NE(nullptr, plan) << groups.name << " " << n;
                ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get()))
                    << groups.name << " " << n << ": " << kolo_error_text();
                plans++;
            }
        }
    }
    RecordProperty("plans", plans);
}

TEST_P(EveryHierarchy, IsNoCandidateWithoutGroups)
{
    kolo_shape shape = Shape(GetParam()->coll, 8);
    shape.nlevels = 0;
    shape.group = nullptr;
    EXPECT_EQ(nullptr, Build(GetParam(), shape));
    EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("without groups"));
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryHierarchy, testing::ValuesIn(Hierarchies()), AlgoName);

TEST(Groups, ThatDoNotNestOrHaveOtherNamesAreRefused)
{
    const int wrong[][8] = {
        {1, 1, 2, 2, 0, 0, 0, 0}, // not the smallest rank
        {0, 0, 0, 3, 0, 0, 2, 2}, // rank 2 leaves its group
        {0, 0, 2, 2, 0, 1, 1, 1}, // group 0 lies in two
        {0, -1, 2, 2, 0, 0, 0, 0}, {0, 0, 2, 4, 0, 0, 0, 0},
    };
    for (const auto &group : wrong) {
        kolo_shape shape = Shape(KOLO_COLL_ALL_REDUCE, 4);
        shape.nlevels = 2;
        shape.group = group;
        kolo_plan *plan = nullptr;
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_plan_build(Named("allreduce_hier"), &shape, -1, &plan));
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find("smallest rank"));
    }
}

TEST(Expression, IsInRankOrderWhereTheAlgorithmPromisesIt)
{
    for (const char *name : {"allreduce_chain", "allreduce_oneshot", "allreduce_direct"}) {
        for (int n : {1, 2, 3, 8, 11}) {
            bool rank_order = false;
            const Plan plan = Build(Named(name), Shape(KOLO_COLL_ALL_REDUCE, n));
            ASSERT_NE(nullptr, plan);
            ASSERT_EQ(KOLO_OK, kolo_verify_expression(plan.get(), &rank_order));
            EXPECT_TRUE(rank_order) << name << " " << n;
        }
    }
}

TEST(Expression, IsNotInRankOrderInARing)
{
    bool rank_order = true;
    const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 4));
    ASSERT_EQ(KOLO_OK, kolo_verify_expression(plan.get(), &rank_order));
    EXPECT_FALSE(rank_order);
}

TEST(Expression, InAnotherOrderThanThatOfRanksIsSeen)
{
    const kolo_algo algo =
        Algo("other_order", KOLO_COLL_REDUCE, [](const kolo_shape *, kolo_builder *b) {
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_transfer(b, 2, kolo_in(0), 0, kolo_out(0), KOLO_ADD);
            kolo_transfer(b, 1, kolo_in(0), 0, kolo_out(0), KOLO_ADD | KOLO_LAST);
        });
    bool rank_order = true;
    const Plan plan = Build(&algo, Shape(KOLO_COLL_REDUCE, 3));
    ASSERT_EQ(KOLO_OK, kolo_verify_expression(plan.get(), &rank_order)) << kolo_error_text();
    EXPECT_FALSE(rank_order);
}

// ---- broken algorithms ----
// Each is one small mistake in an all-reduce (or what its name says) that is right otherwise.

// Right: everyone's vector goes to rank 0 in order, the result goes out. `skip` leaves rank 2's
// out.
static void SumAtZero(kolo_builder *b, int n, int skip, int twice)
{
    kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    for (int r = 1; r < n; r++) {
        const unsigned last = r == n - 1 ? KOLO_LAST : 0;
        for (int i = 0; r != skip && i < (r == twice ? 2 : 1); i++) {
            kolo_transfer(b, r, kolo_in(0), 0, kolo_out(0), KOLO_ADD | last);
            kolo_round(b);
        }
    }
    kolo_round(b);
}

static void SendOut(kolo_builder *b, int n)
{
    for (int r = 1; r < n; r++) {
        kolo_transfer(b, 0, kolo_out(0), r, kolo_out(0), KOLO_MOVE);
    }
    kolo_round(b);
}

TEST(Broken, TheModelOfTheBrokenOnesIsRight)
{
    const kolo_algo algo =
        Algo("model", KOLO_COLL_ALL_REDUCE, [](const kolo_shape *s, kolo_builder *b) {
            SumAtZero(b, s->nranks, -1, -1);
            SendOut(b, s->nranks);
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_ALL_REDUCE, 4));
    EXPECT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
}

TEST(Broken, ALostContributionIsRefused)
{
    ExpectRefused(KOLO_COLL_ALL_REDUCE, 4,
                  [](const kolo_shape *s, kolo_builder *b) {
                      SumAtZero(b, s->nranks, 2, -1);
                      SendOut(b, s->nranks);
                  },
                  {"rank 0", "LAST", "not all ranks"});
}

TEST(Broken, AContributionWithoutAnyAdditionIsRefused)
{
    ExpectRefused(KOLO_COLL_REDUCE, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
                  },
                  {"out[0] of rank 0", "holds x0[0]", "sum of chunk 0"});
}

TEST(Broken, ADoubledContributionIsRefused)
{
    ExpectRefused(KOLO_COLL_ALL_REDUCE, 4,
                  [](const kolo_shape *s, kolo_builder *b) {
                      SumAtZero(b, s->nranks, -1, 1);
                      SendOut(b, s->nranks);
                  },
                  {"rank 0 lane 0 step 2", "contribution of rank 1 twice", "(x0[0] + x1[0])"});
}

TEST(Broken, ReadingWhatNothingWroteIsRefused)
{
    ExpectRefused(KOLO_COLL_BROADCAST, 3,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_transfer(b, 1, kolo_out(0), 2, kolo_out(0), KOLO_MOVE);
                      kolo_round(b);
                      kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
                  },
                  {"rank 1 lane 0 step 0", "reads out[0]", "nothing has written"});
}

TEST(Broken, ReadingOutThatHoldsDataOnlyInPlaceIsRefused)
{
    ExpectRefused(KOLO_COLL_BROADCAST, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_transfer(b, 0, kolo_out(0), 1, kolo_out(0), KOLO_MOVE);
                  },
                  {"rank 0", "reads out[0]"});
}

TEST(Broken, OverwritingInputInPlaceBeforeItIsReadIsRefused)
{
    ExpectRefused( // right out of place: rank 1 gets the result before it gives its own vector
        KOLO_COLL_ALL_TO_ALL, 2,
        [](const kolo_shape *, kolo_builder *b) {
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_local(b, 1, kolo_in(1), kolo_out(1), KOLO_MOVE);
            kolo_transfer(b, 0, kolo_in(1), 1, kolo_out(0), KOLO_MOVE);
            kolo_round(b);
            kolo_transfer(b, 1, kolo_in(0), 0, kolo_out(1), KOLO_MOVE);
        },
        {"rank 1", "in place", "x0[1]"});
}

TEST(Broken, SendingInACycleWithOneSlotIsADeadlock)
{
    ExpectRefused( // both send two messages before they receive any
        KOLO_COLL_ALL_GATHER, 2,
        [](const kolo_shape *, kolo_builder *b) {
            for (int r = 0; r < 2; r++) {
                kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
                kolo_transfer(b, r, kolo_in(0), 1 - r, kolo_out(r), KOLO_MOVE);
                kolo_transfer(b, r, kolo_in(0), 1 - r, kolo_out(r), KOLO_MOVE);
            }
        },
        {"deadlock", "cycle of 2", "rank 0 lane 0 step 1", "waits for rank 1", "rank 1 lane 0"});
}

// ---- wrong marks, orders, writes ----

static void DropLast(kolo_builder *b, int n)
{
    kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
    for (int r = 1; r < n; r++) {
        kolo_transfer(b, r, kolo_in(0), 0, kolo_out(0), KOLO_ADD);
    }
    kolo_round(b);
}

TEST(Broken, ASumThatIsNeverLastIsRefused)
{
    ExpectRefused(KOLO_COLL_REDUCE, 3,
                  [](const kolo_shape *s, kolo_builder *b) { DropLast(b, s->nranks); },
                  {"rank 0 lane 0 step 2", "not LAST"});
}

TEST(Broken, LastOnAnEarlierAdditionIsRefused)
{
    ExpectRefused(KOLO_COLL_REDUCE, 3,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
                      kolo_transfer(b, 1, kolo_in(0), 0, kolo_out(0), KOLO_ADD | KOLO_LAST);
                      kolo_transfer(b, 2, kolo_in(0), 0, kolo_out(0), KOLO_ADD | KOLO_LAST);
                  },
                  {"rank 0 lane 0 step 1", "LAST, but not all ranks"});
}

TEST(Broken, AnotherExpressionOnOneRankIsRefused)
{
    ExpectRefused( // both add, each its own first
        KOLO_COLL_ALL_REDUCE, 2,
        [](const kolo_shape *, kolo_builder *b) {
            for (int r = 0; r < 2; r++) {
                kolo_local(b, r, kolo_in(0), kolo_out(0), KOLO_MOVE);
            }
            for (int r = 0; r < 2; r++) {
                kolo_transfer(b, r, kolo_in(0), 1 - r, kolo_out(0), KOLO_ADD | KOLO_LAST);
            }
        },
        {"out[0] of rank 1", "(x1[0] + x0[0])", "(x0[0] + x1[0])"});
}

TEST(Broken, AddingDifferentChunksIsRefused)
{
    ExpectRefused(KOLO_COLL_REDUCE_SCATTER, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      for (int r = 0; r < 2; r++) {
                          kolo_local(b, r, kolo_in(r), kolo_out(0), KOLO_MOVE);
                      }
                      for (int r = 0; r < 2; r++) {
                          kolo_transfer(b, r, kolo_in(r), 1 - r, kolo_out(0), KOLO_ADD | KOLO_LAST);
                      }
                  },
                  {"rank", "adds different chunks", "x0[0]", "x1[1]"});
}

TEST(Broken, ASumInTheWrongChunkIsRefused)
{
    ExpectRefused(KOLO_COLL_REDUCE, 2,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_chunks(b, 2);
                      kolo_scratch_chunks(b, 2);
                      for (int c = 0; c < 2; c++) {
                          kolo_local(b, 0, kolo_in(c), kolo_scratch(c), KOLO_MOVE);
                          kolo_transfer(b, 1, kolo_in(c), 0, kolo_scratch(c), KOLO_ADD | KOLO_LAST);
                          kolo_round(b);
                      }
                      kolo_local(b, 0, kolo_scratch(0), kolo_out(1), KOLO_MOVE);
                      kolo_local(b, 0, kolo_scratch(1), kolo_out(0), KOLO_MOVE);
                  },
                  {"out[0] of rank 0", "x0[1] + x1[1]", "the sum of chunk 0"});
}

TEST(Broken, SlicesThatOverlapByAPartAreRefused)
{
    ExpectRefused(KOLO_COLL_BROADCAST, 1,
                  [](const kolo_shape *, kolo_builder *b) {
                      kolo_chunks(b, 3);
                      kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, 3),
                                 kolo_slice_make(KOLO_OUT, 0, 3), KOLO_MOVE);
                      kolo_local(b, 0, kolo_slice_make(KOLO_OUT, 1, 2),
                                 kolo_slice_make(KOLO_OUT, 0, 2), KOLO_MOVE);
                  },
                  {"rank 0 lane 0 step 1", "overlap by a part"});
}

TEST(Broken, WritingInIsRefused)
{
    const kolo_algo algo =
        Algo("broken", KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 2));
    ASSERT_EQ(1, plan->rank[1].count);
    for (int r = 0; r < 2; r++) { // the builder refuses this, so say it to the sealed plan
        for (int i = 0; i < plan->rank[r].count; i++) {
            if (plan->rank[r].step[i].op == KOLO_COPY) {
                std::swap(plan->rank[r].step[i].src, plan->rank[r].step[i].dst);
            }
        }
    }
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_verify_plan(plan.get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 0")) << kolo_error_text();
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "writes in[0]")) << kolo_error_text();
}

TEST(Broken, ABarrierThatDoesNotWaitForOneRankIsRefused)
{
    ExpectRefused(KOLO_COLL_BARRIER, 3,
                  [](const kolo_shape *, kolo_builder *b) {
                      const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
                      kolo_transfer(b, 1, none, 0, none, KOLO_MOVE);
                      kolo_round(b);
                      kolo_transfer(b, 0, none, 1, none, KOLO_MOVE);
                      kolo_transfer(b, 0, none, 2, none, KOLO_MOVE);
                  },
                  {"rank 0 can leave the barrier before rank 2 enters"});
}

// ---- claims ----

// The receiving step that has the slices, phase and place of a SEND.
static kolo_step *Receiver(const kolo_plan *plan, int from, const kolo_step *send)
{
    for (int k = 0; k < plan->rank[send->peer].count; k++) {
        kolo_step *other = &plan->rank[send->peer].step[k];
        if (other->op != KOLO_SEND && other->peer == from && other->phase == send->phase &&
            other->place == send->place && memcmp(&other->dst, &send->dst, sizeof send->dst) == 0) {
            return other;
        }
    }
    return nullptr;
}

// A COPY from IN writes nothing in place, where it is one onto itself. The builder may count it as
// a write all the same, and so claim less than it could.
static bool IsCopiedToo(const kolo_plan *plan, int rank, const kolo_slice &src)
{
    for (int i = 0; i < plan->rank[rank].count; i++) {
        const kolo_step *s = &plan->rank[rank].step[i];
        if (s->op == KOLO_COPY && s->src.buf == KOLO_IN && src.buf == KOLO_IN &&
            s->src.first < src.first + src.count && src.first < s->src.first + s->src.count) {
            return true;
        }
    }
    return false;
}

// Every claim that the builder did not make, made: it is a lie.
TEST(Claims, FalseStableAndFreshAreRefused)
{
    int refused = 0;
    for (const kolo_algo *algo : AllAlgos()) {
        for (int bit : {KOLO_STEP_STABLE, KOLO_STEP_FRESH}) {
            const Plan plan = Build(algo, Shape(algo->coll, 4));
            for (int r = 0; r < 4; r++) {
                for (int i = 0; i < plan->rank[r].count; i++) {
                    kolo_step *send = &plan->rank[r].step[i];
                    if (send->op != KOLO_SEND || (send->flags & bit) != 0 || send->src.count == 0) {
                        continue;
                    }
                    kolo_step *recv = Receiver(plan.get(), r, send);
                    ASSERT_NE(nullptr, recv);
                    send->flags = static_cast<uint8_t>(send->flags | bit);
                    recv->flags = static_cast<uint8_t>(recv->flags | bit);
                    if (kolo_verify_plan(plan.get()) == KOLO_OK) {
                        EXPECT_TRUE(bit == KOLO_STEP_STABLE &&
                                    IsCopiedToo(plan.get(), r, send->src))
                            << algo->base.name << " rank " << r << " step " << i;
                    } else {
                        refused++;
                    }
                    send->flags = static_cast<uint8_t>(send->flags & ~bit);
                    recv->flags = static_cast<uint8_t>(recv->flags & ~bit);
                }
            }
        }
    }
    EXPECT_GT(refused, 100);
}

// One end of one message of a plan is changed.
static void ExpectEnds(void (*change)(kolo_step *), const char *what)
{
    const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 3));
    int index = 0;
    while (plan->rank[1].step[index].op != KOLO_SEND) {
        index++;
    }
    change(&plan->rank[1].step[index]);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_verify_plan(plan.get())) << what;
    EXPECT_NE(nullptr, strstr(kolo_error_text(), what)) << kolo_error_text();
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 1 lane 0 step")) << kolo_error_text();
}

TEST(Ends, ThatDisagreeAreRefused)
{
    ExpectEnds([](kolo_step *s) { s->src.first = (s->src.first + 1) % 3; }, "disagree in slices");
    ExpectEnds([](kolo_step *s) { s->src.buf = KOLO_OUT; }, "disagree in slices");
    ExpectEnds([](kolo_step *s) { s->dst.first = (s->dst.first + 1) % 3; }, "disagree in slices");
    ExpectEnds([](kolo_step *s) { s->flags ^= KOLO_STEP_STABLE; }, "disagree in flags");
    ExpectEnds([](kolo_step *s) { s->flags ^= KOLO_STEP_FRESH; }, "disagree in flags");
    ExpectEnds([](kolo_step *s) { s->phase++; }, "disagree in phase");
    ExpectEnds([](kolo_step *s) { s->place++; }, "disagree in phase or place");
}

TEST(Places, ThatHoldTwoThingsOrLieOutsideAreRefused)
{
    for (int place : {0, 9}) { // rank 0 sends chunks 1 and 2 from places 0 and 1
        const Plan plan = Build(Named("scatter_direct"), Shape(KOLO_COLL_SCATTER, 3));
        int sends = 0;
        for (int i = 0; i < plan->rank[0].count; i++) {
            kolo_step *send = &plan->rank[0].step[i];
            if (send->op == KOLO_SEND && sends++ == 1) {
                kolo_step *recv = Receiver(plan.get(), 0, send);
                ASSERT_NE(nullptr, recv);
                send->place = recv->place = static_cast<uint16_t>(place);
            }
        }
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_verify_plan(plan.get()));
        EXPECT_NE(nullptr, strstr(kolo_error_text(),
                                  place == 0 ? "announced with something else" : "place 9"))
            << kolo_error_text();
    }
}
