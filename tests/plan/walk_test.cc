// SPDX-License-Identifier: Apache-2.0
// covers: src/plan/walk.c src/plan/order.c
// The ordering semantics: slots, tiles, dependencies, and what is said of plans that cannot run.
#include "plan_util.h"

#include <functional>

extern "C" {
#include "plan/walk.h"
}

namespace
{

struct Seen {
    std::vector<kolo_event> events;
    kolo_status answer = KOLO_OK;
};

kolo_status Note(void *ctx, const kolo_event *event)
{
    auto *seen = static_cast<Seen *>(ctx);
    seen->events.push_back(*event);
    return seen->answer;
}

const kolo_visitor kNote = {Note};

// Rank 0 sends `messages` messages to rank 1.
template <int messages> void Stream(const kolo_shape *, kolo_builder *b)
{
    kolo_chunks(b, messages);
    for (int i = 0; i < messages; i++) {
        kolo_local(b, 0, kolo_in(i), kolo_out(i), KOLO_MOVE);
        kolo_transfer(b, 0, kolo_in(i), 1, kolo_out(i), KOLO_MOVE);
        kolo_round(b);
    }
}

} // namespace

TEST(Walk, VisitsEveryStepOfEveryTileOnceAndInOrderOfItsLane)
{
    const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 5));
    Seen seen;
    ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 3, 2, &kNote, &seen));
    std::vector<int> next(5, 0);
    for (const kolo_event &e : seen.events) {
        const int count = plan->rank[e.rank].count;
        EXPECT_EQ(next[static_cast<size_t>(e.rank)]++, e.tile * count + e.index);
    }
    for (int r = 0; r < 5; r++) {
        EXPECT_EQ(3 * plan->rank[r].count, next[static_cast<size_t>(r)]);
    }
}

TEST(Walk, IsTheSameEveryTime)
{
    const Plan plan = Build(Named("alltoall_bruck"), Shape(KOLO_COLL_ALL_TO_ALL, 7));
    Seen first, second;
    ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 2, 1, &kNote, &first));
    ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 2, 1, &kNote, &second));
    ASSERT_EQ(first.events.size(), second.events.size());
    for (size_t i = 0; i < first.events.size(); i++) {
        EXPECT_EQ(first.events[i].number, second.events[i].number);
    }
}

TEST(Walk, NeverHasMoreMessagesUnderWayThanSlots)
{
    const kolo_algo algo = Algo("stream", KOLO_COLL_BROADCAST, Stream<6>);
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 2));
    for (int slots = 1; slots <= 4; slots++) {
        Seen seen;
        ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 2, slots, &kNote, &seen));
        int under_way = 0, most = 0, sent = 0;
        for (const kolo_event &e : seen.events) {
            if (e.step->op == KOLO_SEND) {
                most = std::max(most, ++under_way);
                // The slot was freed by the receive of the message `slots` before this one.
                const int freed = sent++ - slots;
                EXPECT_EQ(freed < 0 ? -1 : freed % 6, e.other);
                EXPECT_EQ(freed < 0 ? 0 : freed / 6, e.other_tile);
            } else if (e.step->op == KOLO_RECV) {
                under_way--;
                EXPECT_EQ(KOLO_SEND, plan->rank[0].step[e.other].op);
                EXPECT_EQ(e.step->src.first, plan->rank[0].step[e.other].src.first);
            }
        }
        EXPECT_LE(most, slots);
        EXPECT_EQ(0, under_way);
    }
}

TEST(Walk, LanesDriftAtMostOneTile)
{
    const kolo_algo algo =
        Algo("drift", KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
            kolo_chunks(b, 2);
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            for (int i = 0; i < 4; i++) { // lane 0 is slow, lane 1 is not
                kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
                kolo_round(b);
            }
            kolo_lane(b, 1);
            kolo_local(b, 0, kolo_in(1), kolo_out(1), KOLO_MOVE);
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 2));
    Seen seen;
    ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 5, 1, &kNote, &seen));
    const int slow = plan->rank[0].count - 1; // steps a tile of lane 0
    int done = 0, most = 0;
    for (const kolo_event &e : seen.events) {
        if (e.rank == 0 && e.step->lane == 0) {
            done++;
        } else if (e.rank == 0) {
            most = std::max(most, e.tile - done / slow);
        }
    }
    EXPECT_EQ(1, most);
}

// Lane 1 is quick and depends on the first step of lane 0 only, which has much to do after it: lane
// 1 waits for that step of its own tile, not of the one before.
TEST(Walk, ADependencyComesAfterWhatItWaitsFor)
{
    const kolo_algo algo =
        Algo("ahead", KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
            kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
            kolo_round(b);
            kolo_lane(b, 1);
            kolo_join(b, 0, 0);
            kolo_round(b);
            kolo_lane(b, 0);
            for (int i = 0; i < 5; i++) {
                kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
                kolo_round(b);
            }
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 2));
    Seen seen;
    int deps = 0;
    ASSERT_EQ(KOLO_OK, kolo_walk(plan.get(), 4, 1, &kNote, &seen));
    std::set<std::pair<int, int>> done; // tile, number
    for (const kolo_event &e : seen.events) {
        if (e.step->dep >= 0) {
            deps++;
            EXPECT_EQ(1u, done.count({e.tile, e.number - e.index + e.step->dep}));
        }
        done.insert({e.tile, e.number});
    }
    EXPECT_EQ(4, deps);
}

TEST(Walk, EndsWithWhatTheVisitorAnswers)
{
    const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 4));
    Seen seen;
    seen.answer = KOLO_ERR_UNSUPPORTED;
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_walk(plan.get(), 1, 1, &kNote, &seen));
    EXPECT_EQ(1u, seen.events.size());
}

TEST(Walk, NamesTheMessageThatIsNeverReceived)
{
    const kolo_algo algo = Algo("stream", KOLO_COLL_BROADCAST, Stream<3>);
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BROADCAST, 2));
    plan->rank[1].count = 2;
    Seen seen;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_walk(plan.get(), 1, 1, &kNote, &seen));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "sends 3 messages to rank 1 on lane 0, which "
                                                 "receives 2"))
        << kolo_error_text();
    EXPECT_TRUE(seen.events.empty());
}

TEST(Walk, NamesWhoWaitsForWhomInADeadlock)
{
    const kolo_algo algo =
        Algo("ring", KOLO_COLL_BARRIER, [](const kolo_shape *s, kolo_builder *b) {
            const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
            for (int r = 0; r < s->nranks; r++) {
                kolo_transfer(b, r, none, (r + 1) % s->nranks, none, KOLO_MOVE);
            }
        });
    const Plan plan = Build(&algo, Shape(KOLO_COLL_BARRIER, 3));
    for (int r = 0; r < 3; r++) { // receive first
        std::swap(plan->rank[r].step[0], plan->rank[r].step[1]);
    }
    Seen seen;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_walk(plan.get(), 1, 8, &kNote, &seen));
    const std::string text = kolo_error_text();
    for (const char *part : {"cycle of 3", "rank 0 lane 0 step 0", "waits for rank 2 lane 0",
                             "waits for rank 1 lane 0", "6 steps were not done"}) {
        EXPECT_NE(std::string::npos, text.find(part)) << part << " is not in: " << text;
    }
}

TEST(Walk, RefusesStepsThatAreNoSteps)
{
    const auto broken = [](const std::function<void(kolo_step *)> &breaks) {
        const Plan plan = Build(Named("allreduce_ring"), Shape(KOLO_COLL_ALL_REDUCE, 3));
        breaks(&plan->rank[1].step[2]);
        Seen seen;
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_walk(plan.get(), 1, 1, &kNote, &seen));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 1 lane")) << kolo_error_text();
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "step 2")) << kolo_error_text();
    };
    broken([](kolo_step *s) { s->op = 9; });
    broken([](kolo_step *s) { s->lane = 3; });
    broken([](kolo_step *s) { s->dep = 2; });
    broken([](kolo_step *s) { s->src.count = 2; });
    broken([](kolo_step *s) { s->op = KOLO_SEND, s->peer = 1; });
    broken([](kolo_step *s) { s->op = KOLO_SEND, s->peer = 3; });
}
