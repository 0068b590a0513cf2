// SPDX-License-Identifier: Apache-2.0
// covers: src/plan/verify/race.c src/plan/verify/verify.c
// Lanes of a rank that touch one chunk: the prover accepts them where the plan orders them, and
// refuses them where it does not.
#include "plan_util.h"

#include <bitset>
#include <map>
#include <random>

extern "C" {
#include "plan/verify/race.h"
#include "plan/walk.h"
}

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

// ---- any plan of several lanes ----

namespace
{

enum { kRanks = 3, kLanes = 3, kChunks = 4, kMost = 256 };

std::mt19937 dice;

int Throw(int sides)
{
    return static_cast<int>(dice() % static_cast<unsigned>(sides));
}

// Lane 0 gives every rank the root's chunks, and the other lanes wait for that.
void Begin(kolo_builder *b)
{
    kolo_chunks(b, kChunks);
    kolo_scratch_chunks(b, kChunks);
    kolo_lane(b, 0);
    kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, kChunks), kolo_slice_make(KOLO_OUT, 0, kChunks),
               KOLO_MOVE);
    for (int r = 1; r < kRanks; r++) {
        kolo_transfer(b, 0, kolo_slice_make(KOLO_IN, 0, kChunks), r,
                      kolo_slice_make(KOLO_OUT, 0, kChunks), KOLO_MOVE);
    }
    kolo_round(b);
    for (int lane = 1; lane < kLanes; lane++) {
        kolo_lane(b, lane);
        for (int r = 0; r < kRanks; r++) {
            kolo_join(b, r, 0);
        }
    }
    kolo_round(b);
}

// One step or message of any kind. Chunk c always holds what the root had in it.
void Step(kolo_builder *b)
{
    const int lane = Throw(kLanes), rank = Throw(kRanks), c = Throw(kChunks);
    const int peer = (rank + 1 + Throw(kRanks - 1)) % kRanks;
    const kolo_slice none = kolo_slice_make(KOLO_OUT, 0, 0);
    const kolo_slice data = rank == 0 ? kolo_in(c) : kolo_out(c);
    kolo_lane(b, lane);
    switch (Throw(12)) {
    case 0:
        kolo_local(b, rank, data, kolo_scratch(c), KOLO_MOVE);
        break;
    case 1:
        kolo_transfer(b, rank, data, peer, kolo_out(c), KOLO_MOVE);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        kolo_join(b, rank, (lane + 1 + Throw(kLanes - 1)) % kLanes);
        break;
    default:
        kolo_transfer(b, rank, none, peer, none, KOLO_MOVE);
    }
    kolo_round(b);
}

Plan AnyPlan(unsigned seed)
{
    dice.seed(seed);
    const kolo_algo algo =
        Algo("any", KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
            Begin(b);
            for (int steps = 10 + Throw(60); steps > 0; steps--) {
                Step(b);
            }
        });
    return Build(&algo, Shape(KOLO_COLL_BROADCAST, kRanks));
}

// What the steps of a plan say of their order, found without clocks.
class Order
{
  public:
    Order(const kolo_plan *of, bool follow_messages) : plan(of)
    {
        for (int r = 0; r < kRanks; r++) {
            base[r + 1] = base[r] + plan->rank[r].count;
        }
        EXPECT_LE(base[kRanks], static_cast<int>(kMost));
        AddLanes();
        if (follow_messages) {
            AddMessages();
        }
        Close();
    }
    bool Orders(int rank, int a, int b) const
    {
        return before[base[rank] + a][base[rank] + b] || before[base[rank] + b][base[rank] + a];
    }

  private:
    const kolo_plan *plan;
    int base[kRanks + 1] = {};
    std::bitset<kMost> before[kMost];
    void AddLanes()
    {
        for (int r = 0; r < kRanks; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step *step = plan->rank[r].step;
                for (int k = 0; k < i; k++) {
                    before[base[r] + i][base[r] + k] =
                        step[k].lane == step[i].lane || step[i].dep == k;
                }
            }
        }
    }
    void AddMessages()
    {
        std::map<std::tuple<int, int, int>, std::vector<int>> sent, received;
        for (int r = 0; r < kRanks; r++) {
            for (int i = 0; i < plan->rank[r].count; i++) {
                const kolo_step &s = plan->rank[r].step[i];
                if (s.op == KOLO_SEND) {
                    sent[{r, s.peer, s.lane}].push_back(base[r] + i);
                } else if (s.op == KOLO_RECV) {
                    received[{s.peer, r, s.lane}].push_back(base[r] + i);
                }
            }
        }
        for (const auto &[link, steps] : received) {
            for (size_t k = 0; k < steps.size(); k++) {
                before[steps[k]][sent[link][k]] = true;
            }
        }
    }
    void Close()
    {
        for (int via = 0; via < base[kRanks]; via++) {
            for (int i = 0; i < base[kRanks]; i++) {
                if (before[i][via]) {
                    before[i] |= before[via];
                }
            }
        }
    }
};

// Chunks of OUT and SCRATCH; in place the root's IN is its OUT.
std::bitset<3 * kChunks> Chunks(const kolo_slice &s, bool in_place)
{
    std::bitset<3 * kChunks> bits;
    const unsigned buf = in_place && s.buf == KOLO_IN ? static_cast<unsigned>(KOLO_OUT) : s.buf;
    for (unsigned i = 0; i < s.count; i++) {
        bits.set(buf * kChunks + s.first + i);
    }
    return bits;
}

struct Touched {
    std::bitset<3 * kChunks> read, written;
    Touched(const kolo_step &s, bool in_place)
    {
        if (s.op == KOLO_SEND || s.op == KOLO_COPY) {
            read = Chunks(s.src, in_place);
        }
        if (s.op == KOLO_RECV || s.op == KOLO_COPY) {
            written = Chunks(s.dst, in_place);
        }
        if (s.op == KOLO_COPY && read == written) { // onto itself
            read.reset();
            written.reset();
        }
    }
};

bool Races(const kolo_plan *plan, const Order &order, int rank, int a, int b, bool in_place)
{
    const Touched x(plan->rank[rank].step[a], in_place), y(plan->rank[rank].step[b], in_place);
    return ((x.written & (y.read | y.written)) | (x.read & y.written)).any() &&
           !order.Orders(rank, a, b);
}

bool HasRace(const kolo_plan *plan, const Order &order, bool in_place)
{
    for (int r = 0; r < kRanks; r++) {
        for (int b = 0; b < plan->rank[r].count; b++) {
            for (int a = 0; a < b; a++) {
                if (Races(plan, order, r, a, b, in_place)) {
                    return true;
                }
            }
        }
    }
    return false;
}

// The text of the refusal tells of two steps that race.
void ExpectRaceTold(const kolo_plan *plan, const Order &order, bool in_place)
{
    const std::string text = kolo_error_text();
    const size_t at = text.find(": rank "), uses = text.find("a chunk that step ");
    int rank = 0, lane = 0, step = 0, other = 0;
    ASSERT_NE(std::string::npos, at) << text;
    ASSERT_NE(std::string::npos, uses) << text;
    ASSERT_EQ(3, sscanf(&text[at], ": rank %d lane %d step %d", &rank, &lane, &step)) << text;
    ASSERT_EQ(1, sscanf(&text[uses], "a chunk that step %d", &other)) << text;
    EXPECT_TRUE(Races(plan, order, rank, step, other, in_place)) << text;
    EXPECT_EQ(in_place, text.find("in place") != std::string::npos) << text;
}

} // namespace

TEST(AnyLanes, AreRefusedIfAndOnlyIfTwoOfTheirStepsRace)
{
    int racy[2] = {}, by_lanes = 0, by_messages[2] = {};
    for (unsigned seed = 0; seed < 5000; seed++) {
        SCOPED_TRACE(seed);
        const Plan plan = AnyPlan(seed);
        const Order whole(plan.get(), true), local(plan.get(), false);
        const bool apart = HasRace(plan.get(), whole, false);
        if (apart || HasRace(plan.get(), whole, true)) {
            ASSERT_EQ(KOLO_ERR_INVALID, kolo_verify_plan(plan.get()));
            ExpectRaceTold(plan.get(), whole, !apart);
            racy[!apart]++;
            continue;
        }
        ASSERT_EQ(KOLO_OK, kolo_verify_plan(plan.get())) << kolo_error_text();
        if (HasRace(plan.get(), local, false)) {
            by_messages[0]++;
        } else if (HasRace(plan.get(), local, true)) {
            by_messages[1]++;
        } else {
            by_lanes++;
        }
    }
    for (int plans : {racy[0], racy[1], by_lanes, by_messages[0], by_messages[1]}) {
        EXPECT_GE(plans,
                  20); // of each kind: index 1 counts those where only the run in place is so
    }
}

namespace
{

struct BothClocks {
    kolo_clocks whole = {}, local = {};
    int behind = 0; // entries that only the whole clock has
    ~BothClocks()
    {
        kolo_clocks_free(&whole);
        kolo_clocks_free(&local);
    }
};

kolo_status Compare(void *ctx, const kolo_event *e)
{
    auto *both = static_cast<BothClocks *>(ctx);
    kolo_clocks_step(&both->whole, e);
    kolo_clocks_step(&both->local, e);
    const size_t row = static_cast<size_t>(e->rank) * kLanes + e->step->lane;
    const uint32_t *known = &both->whole.now[row * both->whole.width + e->rank * kLanes];
    const uint32_t *own = &both->local.now[row * both->local.width];
    for (int lane = 0; lane < kLanes; lane++) {
        EXPECT_LE(own[lane], known[lane]);
        both->behind += own[lane] < known[lane];
    }
    EXPECT_EQ(own[e->step->lane], known[e->step->lane]);
    return KOLO_OK;
}

} // namespace

TEST(Clocks, LocalOnesAreShortAndNeverKnowMoreThanWholeOnes)
{
    int behind = 0;
    for (unsigned seed = 0; seed < 100; seed++) {
        const Plan plan = AnyPlan(seed);
        BothClocks both;
        kolo_order order = {};
        ASSERT_EQ(KOLO_OK, kolo_order_create(plan.get(), &order));
        ASSERT_TRUE(kolo_clocks_init(&both.whole, &order, 0, true));
        ASSERT_TRUE(kolo_clocks_init(&both.local, &order, 0, false));
        const kolo_visitor compare = {Compare};
        EXPECT_EQ(KOLO_OK, kolo_order_walk(&order, 1, 1, &compare, &both));
        EXPECT_EQ(static_cast<size_t>(kLanes), both.local.width);
        EXPECT_EQ(nullptr, both.local.sent);
        behind += both.behind;
        kolo_order_destroy(&order);
    }
    EXPECT_GT(behind, 0);
}
