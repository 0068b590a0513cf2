// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/proof src/exec/lower src/exec/ref.c
/* All ranks' lowered programs, proved: every algorithm over every kind of link. */
#include "catalogue.h"
#include "programs.h"

namespace
{

struct Links {
    crew_links kind;
    unsigned seed;
};

const Links kLinks[] = {{CREW_MAPPED, 1}, {CREW_MAPPED, 2}, {CREW_ARENA, 1}, {CREW_MESSAGE, 1},
                        {CREW_MIXED, 1},  {CREW_MIXED, 2},  {CREW_MIXED, 3}};

int MostRanks()
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return FullRun() ? 16 : 6;
#else
    return 16;
#endif
}

std::string Name(const kolo_algo *algo, int n, int root, const Links &links)
{
    return std::string(algo->base.name) + " over " + crew_links_name(links.kind) + " " +
           std::to_string(links.seed) + ", n " + std::to_string(n) + ", root " +
           std::to_string(root);
}

// Another algorithm for the second call: a different one for each case.
const kolo_algo *Partner(int index, int n, unsigned turn)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        const kolo_algo *algo =
            kolo_algos[(index + 1 + static_cast<int>(turn) * 7 + i) % kolo_algos_count];
        if (BuildPlan(algo, n, 0) != nullptr) {
            return algo;
        }
    }
    return nullptr;
}

constexpr std::array<Slots, 2> kSlotPairs[] = {{Slots::kLong, Slots::kLong},
                                               {Slots::kLong, Slots::kShort},
                                               {Slots::kShort, Slots::kLong},
                                               {Slots::kShort, Slots::kShort}};

class Programs : public ::testing::TestWithParam<int>
{
};

TEST_P(Programs, KeepThePlanOverEveryKindOfLinkWhateverCallFollows)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    unsigned turn = 0;
    for (int n = 1; n <= MostRanks(); n++) {
        for (int root : {0, n - 1}) {
            const Plan plan = BuildPlan(algo, n, root);
            if (plan == nullptr || (root > 0 && !kolo_coll_rooted(algo->coll))) {
                continue;
            }
            for (const Links &links : kLinks) {
                SCOPED_TRACE(Name(algo, n, root, links));
                const kolo_algo *partner = Partner(GetParam(), n, turn++);
                const Plan other = BuildPlan(partner, n, root * (turn % 2 == 0 ? 1 : 0));
                const kolo_plan *follows = other != nullptr ? other.get() : plan.get();
                for (const Depths depths : kSmall) {
                    for (const auto &slots : kSlotPairs) {
                        const auto first = LowerAll(plan.get(), links.kind, links.seed, depths);
                        const auto second = LowerAll(follows, links.kind, links.seed, depths);
                        Calls calls;
                        calls.depths = depths;
                        calls.Add(plan.get(), first, 3, slots[0]);
                        calls.Add(follows, second, 3, slots[1]);
                        EXPECT_EQ(KOLO_OK, calls.Verify()) << partner->base.name << " follows\n"
                                                           << kolo_error_text();
                    }
                }
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

// With one rank's steps only, lowering sees less and uses outboxes and messages alone.
TEST_P(Programs, KeepThePlanWhenEachRankLowersWithItsOwnStepsOnly)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n = 1; n <= 5; n++) {
        const int root = kolo_coll_rooted(algo->coll) ? n / 2 : 0;
        const Plan whole = BuildPlan(algo, n, root);
        for (crew_links links : {CREW_ARENA, CREW_MESSAGE}) {
            SCOPED_TRACE(Name(algo, n, root, {links, 1}));
            std::vector<Plan> own;
            std::vector<Prog> progs;
            for (int r = 0; r < n && whole != nullptr; r++) {
                std::vector<uint8_t> bits(static_cast<size_t>(n), links == CREW_ARENA ? 1 : 0);
                kolo_prog *prog = nullptr;
                own.push_back(BuildPlan(algo, n, root, r));
                ASSERT_EQ(KOLO_OK, kolo_lower(own.back().get(), r, bits.data(), &prog));
                progs.emplace_back(prog);
            }
            if (whole == nullptr) {
                continue;
            }
            Calls calls;
            calls.Add(whole.get(), progs, 2);
            calls.Add(whole.get(), progs, 6);
            ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
        }
    }
}

TEST_P(Programs, KeepThePlanForAnyNumberOfTiles)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {2, 3, 4, 5}) {
        const Plan plan = BuildPlan(algo, n, 0);
        for (const Links &links : kLinks) {
            for (uint32_t tiles = 1; tiles <= 9 && plan != nullptr; tiles++) {
                SCOPED_TRACE(Name(algo, n, 0, links) + ", tiles " + std::to_string(tiles));
                const Depths depths = kSmall[tiles % 2];
                const auto progs = LowerAll(plan.get(), links.kind, links.seed, depths);
                for (const auto &slots : kSlotPairs) {
                    Calls calls;
                    calls.depths = depths;
                    calls.Add(plan.get(), progs, tiles, slots[0]);
                    calls.Add(plan.get(), progs, 1, slots[1]);
                    calls.Add(plan.get(), progs, tiles, slots[0]);
                    ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
                }
            }
        }
    }
}

// The readers of a long slot may not have come to the next tile when many short ones follow it.
TEST_P(Programs, KeepTheirLongSlotsHoweverManyShortTilesComeBetween)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {2, 3, 5}) {
        const Plan plan = BuildPlan(algo, n, 0);
        const kolo_algo *partner = Partner(GetParam(), n, static_cast<unsigned>(n));
        const int root = kolo_coll_rooted(algo->coll) ? n - 1 : 0;
        const Plan between = BuildPlan(partner, n, 0), other = BuildPlan(algo, n, root);
        for (const Links &links : kLinks) {
            for (uint32_t tiles = 0; tiles <= 6 && plan != nullptr; tiles++) {
                SCOPED_TRACE(Name(algo, n, root, links) + ", tiles of " + partner->base.name +
                             " between: " + std::to_string(tiles));
                const Depths depths = kSmall[tiles % 2];
                const auto first = LowerAll(plan.get(), links.kind, links.seed, depths);
                const auto second = LowerAll(between.get(), links.kind, links.seed, depths);
                const auto third = LowerAll(other.get(), links.kind, links.seed, depths);
                Calls calls;
                calls.depths = depths;
                calls.Add(plan.get(), first, 3, Slots::kLong);
                if (tiles > 0) {
                    calls.Add(between.get(), second, tiles, Slots::kShort);
                }
                calls.Add(other.get(), third, 3, Slots::kLong);
                calls.Add(plan.get(), first, 1, Slots::kLong);
                ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
            }
        }
    }
}

// The other tests take fewer copies of lines and slots, so that each is written again sooner.
TEST_P(Programs, KeepThePlanWithTheDepthsOfTheExecutor)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {2, 3, 5}) {
        const Plan plan = BuildPlan(algo, n, 0);
        const kolo_algo *partner = Partner(GetParam(), n, static_cast<unsigned>(n) + 3);
        const Plan between = BuildPlan(partner, n, n - 1);
        for (const Links &links : kLinks) {
            for (const auto &slots : kSlotPairs) {
                if (plan == nullptr || between == nullptr) {
                    continue;
                }
                SCOPED_TRACE(Name(algo, n, 0, links) + ", " + partner->base.name + " between");
                const auto first = LowerAll(plan.get(), links.kind, links.seed);
                const auto second = LowerAll(between.get(), links.kind, links.seed);
                Calls calls;
                calls.Add(plan.get(), first, KOLO_LONG_DEPTH, slots[0]);
                calls.Add(between.get(), second, KOLO_DEPTH - 3, slots[1]);
                calls.Add(plan.get(), first, KOLO_DEPTH + 2, slots[0]);
                ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
            }
        }
    }
}

TEST_P(Programs, KeepThePlanOnAnyRing)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {7, 12, 24}) {
        std::vector<int> order;
        for (int i = 0; i < n; i++) {
            order.push_back((i * (n == 12 ? 7 : 5) + 3) % n);
        }
        const Plan plan =
            BuildPlan(algo, n, kolo_coll_rooted(algo->coll) ? n / 3 : 0, -1, order.data());
        for (const Links &links : kLinks) {
            if (plan == nullptr || n > MostRanks() * 3 / 2) {
                continue;
            }
            SCOPED_TRACE(Name(algo, n, n / 3, links));
            const std::vector<Prog> progs = LowerAll(plan.get(), links.kind, links.seed);
            Calls calls;
            calls.Add(plan.get(), progs, 3);
            calls.Add(plan.get(), progs, 2);
            ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
        }
    }
}

bool LoadsScratch(const kolo_prog &p, uint32_t chunk)
{
    for (uint32_t i = 0; i < p.nops; i++) {
        const kolo_uop &op = p.op[i];
        for (uint32_t k = 0; k < op.nsrc && (op.code == KOLO_DO_MOVE || op.code == KOLO_DO_SEND);
             k++) {
            const kolo_at &at = p.at[op.first + k];
            if (at.space == KOLO_AT_SCRATCH && chunk >= at.index && chunk < at.index + at.count) {
                return true;
            }
        }
    }
    return false;
}

// A sum that goes to a peer needs no copy here.
TEST_P(Programs, StoreNothingIntoScratchThatNobodyLoads)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {2, 3, 4, 8}) {
        const Plan plan = BuildPlan(algo, n, 0);
        for (const Links &links : kLinks) {
            if (plan == nullptr) {
                continue;
            }
            SCOPED_TRACE(Name(algo, n, 0, links));
            for (const Prog &prog : LowerAll(plan.get(), links.kind, links.seed)) {
                for (uint32_t i = 0; i < prog->nops; i++) {
                    const kolo_uop &op = prog->op[i];
                    for (uint32_t k = 0; op.code == KOLO_DO_MOVE && op.ndst > 1 && k < op.ndst;
                         k++) {
                        const kolo_at &at = prog->at[op.first + op.nsrc + k];
                        bool loaded = at.space != KOLO_AT_SCRATCH;
                        for (uint32_t c = 0; c < at.count; c++) {
                            loaded = loaded || LoadsScratch(*prog, at.index + c);
                        }
                        EXPECT_TRUE(loaded) << "rank " << prog->me << ", op " << i;
                    }
                }
            }
        }
    }
}

int Moves(const kolo_prog &p)
{
    return static_cast<int>(std::count_if(
        p.op, p.op + p.nops, [](const kolo_uop &op) { return op.code == KOLO_DO_MOVE; }));
}

TEST(SharedWork, OfABroadcastToOneRankIsHalfOfEach)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (std::string(kolo_algos[i]->base.name) != "broadcast_scatter") {
            continue;
        }
        const Plan plan = BuildPlan(kolo_algos[i], 2, 0);
        const std::vector<Prog> progs = LowerAll(plan.get(), CREW_MAPPED, 1);
        EXPECT_EQ(2, Moves(*progs[0])); // a chunk to the peer, and IN to OUT: nothing in place
        EXPECT_EQ(1, Moves(*progs[1])); // a chunk from the peer
        return;
    }
    FAIL() << "no broadcast_scatter";
}

// A transport may let a long message wait for its receive, so receives do not wait for each other.
TEST(EarlyReceives, ArePostedBeforeTheFirstWait)
{
    for (const char *name : {"allgather_direct", "allgather_ring", "reducescatter_ring"}) {
        const auto *const algo =
            std::find_if(kolo_algos, kolo_algos + kolo_algos_count,
                         [&](const kolo_algo *one) { return one->base.name == std::string(name); });
        ASSERT_NE(kolo_algos + kolo_algos_count, algo) << name;
        const Plan plan = BuildPlan(*algo, 5, 0);
        for (const Prog &prog : LowerAll(plan.get(), CREW_MESSAGE, 1)) {
            bool waits = false;
            for (uint32_t i = 0; i < prog->nops; i++) {
                waits = waits || prog->op[i].code == KOLO_DO_TAKEN;
                EXPECT_FALSE(waits && prog->op[i].code == KOLO_DO_RECV) << name << ", op " << i;
            }
        }
    }
}

// The other tests take one kind of groups.
class HierarchyPrograms : public Programs
{
};

TEST_P(HierarchyPrograms, KeepThePlanForAnyGroups)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {2, 4, 6, 8, 13}) {
        for (const Grouping &groups : Groupings(n)) {
            const int root = kolo_coll_rooted(algo->coll) ? n - 2 : 0;
            const Plan plan = BuildPlan(algo, n, root, -1, nullptr, &groups);
            for (const Links &links : kLinks) {
                if (n > MostRanks()) {
                    continue;
                }
                SCOPED_TRACE(Name(algo, n, root, links) + ", " + groups.name);
                const std::vector<Prog> progs = LowerAll(plan.get(), links.kind, links.seed);
                Calls calls;
                calls.Add(plan.get(), progs, 3);
                calls.Add(plan.get(), progs, 2);
                ASSERT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Programs, ::testing::Range(0, kolo_algos_count), AlgorithmName);
INSTANTIATE_TEST_SUITE_P(Catalogue, HierarchyPrograms, ::testing::ValuesIn(Hierarchies()),
                         AlgorithmName);

// ---- what must be refused, and what the text says ----

const kolo_algo *Named(const std::string &name)
{
    int i = 0;
    while (name != kolo_algos[i]->base.name) {
        i++;
    }
    return kolo_algos[i];
}

kolo_algo Algo(kolo_coll coll, void (*build)(const kolo_shape *, kolo_builder *))
{
    kolo_algo algo = {};
    algo.base = {KOLO_PLUGIN_ABI, sizeof algo, "test_algorithm"};
    algo.coll = coll;
    algo.source = "tests";
    algo.build = build;
    return algo;
}

void ExpectRefused(const Calls &calls, const std::string &text)
{
    EXPECT_EQ(KOLO_ERR_INVALID, calls.Verify());
    EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(text)) << kolo_error_text();
}

void Mark(kolo_plan *plan, unsigned fact)
{
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            kolo_step *s = &plan->rank[r].step[i];
            s->flags |= static_cast<uint8_t>(s->peer >= 0 ? fact : 0);
        }
    }
}

/* One call of three tiles (a barrier has one). */
void ExpectOnceRefused(const Plan &plan, crew_links links, const std::string &text)
{
    const std::vector<Prog> progs = LowerAll(plan.get(), links, 1);
    Calls calls;
    calls.Add(plan.get(), progs, 3);
    ExpectRefused(calls, text);
}

TEST(RefusedPrograms, LetAPeerLoadFromASumThatIsAddedTo)
{
    const Plan plan = BuildPlan(Named("allreduce_doubling"), 4, 0);
    Mark(plan.get(), KOLO_STEP_STABLE);
    ExpectOnceRefused(plan, CREW_MAPPED, "without an order");
}

TEST(RefusedPrograms, StoreWhereAPeerMayStillLoad)
{
    // Rank 0 pulls OUT of rank 1, which adds to it when rank 2 has sent, not when rank 0 is done.
    // Rank 2 waits for rank 3, so that rank 0 comes to load before rank 1 stores.
    const kolo_algo algo = Algo(KOLO_COLL_ALL_REDUCE, [](const kolo_shape *, kolo_builder *b) {
        kolo_local(b, 1, kolo_in(0), kolo_out(0), KOLO_MOVE);
        kolo_transfer(b, 3, kolo_in(0), 2, kolo_out(0), KOLO_MOVE);
        kolo_round(b);
        kolo_transfer(b, 1, kolo_out(0), 0, kolo_out(0), KOLO_MOVE);
        kolo_transfer(b, 2, kolo_out(0), 1, kolo_out(0), KOLO_ADD | KOLO_LAST);
    });
    const Plan plan = BuildPlan(&algo, 4, 0);
    for (int r = 0; r < 4; r++) { // pull, do not push
        for (int i = 0; i < plan->rank[r].count; i++) {
            plan->rank[r].step[i].flags &= static_cast<uint8_t>(~KOLO_STEP_FRESH);
        }
    }
    Mark(plan.get(), KOLO_STEP_STABLE);
    ExpectOnceRefused(plan, CREW_MAPPED, "stores where rank 0 may still load");
}

TEST(RefusedPrograms, StoreIntoAPeersBufferThatItHasNotFilledYet)
{
    // Rank 0 pushes into OUT of rank 1, which puts something else there at any time.
    const kolo_algo algo = Algo(KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
        kolo_scratch_chunks(b, 1);
        kolo_local(b, 0, kolo_in(0), kolo_out(0), KOLO_MOVE);
        kolo_transfer(b, 0, kolo_in(0), 1, kolo_scratch(0), KOLO_MOVE);
        kolo_round(b);
        kolo_local(b, 1, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
        kolo_round(b);
        kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(0), KOLO_MOVE);
    });
    const Plan plan = BuildPlan(&algo, 2, 0);
    Mark(plan.get(), KOLO_STEP_FRESH);
    ExpectOnceRefused(plan, CREW_MAPPED, "without an order");
}

TEST(RefusedPrograms, SendFromWhereTheyStore)
{
    const Plan plan = BuildPlan(Named("allreduce_doubling"), 4, 0);
    Mark(plan.get(), KOLO_STEP_STABLE);
    ExpectOnceRefused(plan, CREW_MESSAGE, "may still be sent from");
}

TEST(RefusedPrograms, TouchAChunkInTwoLanesWithoutAnOrder)
{
    const kolo_algo algo = Algo(KOLO_COLL_ALL_REDUCE, [](const kolo_shape *, kolo_builder *b) {
        kolo_scratch_chunks(b, 1);
        kolo_local(b, 0, kolo_in(0), kolo_scratch(0), KOLO_MOVE);
        kolo_round(b);
        kolo_lane(b, 1);
        kolo_local(b, 0, kolo_scratch(0), kolo_out(0), KOLO_MOVE);
    });
    ExpectOnceRefused(BuildPlan(&algo, 1, 0), CREW_MAPPED, "without an order");
}

TEST(RefusedPrograms, WaitForASignalThatNobodyGives)
{
    const Plan plan = BuildPlan(Named("allgather_ring"), 3, 0);
    std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1);
    for (uint32_t i = 0; i < progs[1]->nops; i++) {
        kolo_uop *op = &progs[1]->op[i];
        if (op->code == KOLO_DO_SIGNAL) { // in its place, one line twice
            progs[1]->at[op->first].phase = 0;
        }
    }
    Calls calls;
    calls.Add(plan.get(), progs, 3);
    ExpectRefused(calls, "signals line 0 a second time");
}

TEST(RefusedPrograms, WaitForEachOther)
{
    const kolo_algo algo = Algo(KOLO_COLL_BARRIER, [](const kolo_shape *, kolo_builder *b) {
        const kolo_slice nothing = kolo_slice_make(KOLO_SCRATCH, 0, 0);
        kolo_transfer(b, 0, nothing, 1, nothing, KOLO_MOVE);
        kolo_transfer(b, 1, nothing, 0, nothing, KOLO_MOVE);
    });
    const Plan plan = BuildPlan(&algo, 2, 0);
    std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1);
    for (Prog &p : progs) { // wait first, then signal
        std::swap(p->op[0], p->op[1]);
    }
    Calls calls;
    calls.Add(plan.get(), progs, 1);
    ExpectRefused(calls, "all wait for ever: rank 0, op 0, call 0, for line 1");
}

TEST(RefusedPrograms, LeaveABarrierTooEarly)
{
    const kolo_algo algo = Algo(KOLO_COLL_BARRIER, [](const kolo_shape *, kolo_builder *b) {
        const kolo_slice nothing = kolo_slice_make(KOLO_SCRATCH, 0, 0);
        for (int r = 0; r < 3; r++) {
            kolo_transfer(b, r, nothing, (r + 1) % 3, nothing, KOLO_MOVE);
        }
    });
    ExpectOnceRefused(BuildPlan(&algo, 3, 0), CREW_ARENA, "need not have come");
    ExpectOnceRefused(BuildPlan(&algo, 3, 0), CREW_MESSAGE, "need not have come");
}

TEST(RefusedPrograms, ReturnWhileAPeerStillReads)
{
    const Plan plan = BuildPlan(Named("reduce_direct"), 3, 0);
    std::vector<Prog> progs = LowerAll(plan.get(), CREW_MAPPED, 1);
    bool waited = false;
    for (Prog &p : progs) {
        for (uint32_t i = 0; i < p->nops; i++) {
            kolo_uop *op = &p->op[i];
            waited = waited || op->code == KOLO_DO_LEFT;
            op->nsrc = op->code == KOLO_DO_LEFT ? uint16_t{0} : op->nsrc;
        }
    }
    ASSERT_TRUE(waited) << "this lowering waits for nobody: take another plan";
    Calls calls;
    calls.Add(plan.get(), progs, 3);
    ExpectRefused(calls, "its memory is used");
}

TEST(RefusedPrograms, ApplyLastWhereThePlanDoesNot)
{
    const Plan plan = BuildPlan(Named("allreduce_oneshot"), 3, 0);
    std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1);
    for (uint32_t i = 0; i < progs[2]->nops; i++) {
        progs[2]->op[i].last = 0;
    }
    Calls calls;
    calls.Add(plan.get(), progs, 1);
    ExpectRefused(calls, "allreduce_oneshot: rank 2, tile 0, call 0: OUT[0] is not what the plan "
                         "makes");
}

TEST(RefusedPrograms, UseFewerSlotsThanTilesThatReadersMayBeBehind)
{
    const Plan plan = BuildPlan(Named("broadcast_chain"), 3, 0);
    const std::pair<Depths, Slots> few[] = {{{2, 4}, Slots::kShort}, {{4, 2}, Slots::kLong}};
    for (const auto &[depths, slots] : few) {
        const std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1, depths);
        Calls calls;
        calls.depths = {4, 4};
        calls.Add(plan.get(), progs, 3, slots);
        ExpectRefused(calls, "without an order");
    }
}

// The lines' readers of four tiles ago are done, not those of the long slot two tiles ago.
TEST(RefusedPrograms, PutTilesIntoLongSlotsAndDoNotSayIt)
{
    const Plan plan = BuildPlan(Named("broadcast_chain"), 3, 0);
    std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1, kSmall[0]);
    for (Prog &p : progs) {
        p->fills_outbox = false;
    }
    Calls calls;
    calls.depths = kSmall[0];
    calls.Add(plan.get(), progs, 3);
    ExpectRefused(calls, "without an order");
}

TEST(RefusedPrograms, MoveAChunkByTheLengthOfAnother)
{
    const kolo_algo algo = Algo(KOLO_COLL_BROADCAST, [](const kolo_shape *, kolo_builder *b) {
        kolo_chunks(b, 2);
        kolo_scratch_chunks(b, 1);
        for (int c = 0; c < 2; c++) {
            kolo_local(b, 0, kolo_in(c), kolo_out(c), KOLO_MOVE);
        }
        kolo_transfer(b, 0, kolo_in(0), 1, kolo_out(1), KOLO_MOVE); // last chunks are shorter
        kolo_transfer(b, 0, kolo_in(1), 1, kolo_out(0), KOLO_MOVE);
    });
    const Plan plan = BuildPlan(&algo, 2, 0);
    ExpectOnceRefused(plan, CREW_ARENA, "by the length of chunk");
    ExpectOnceRefused(plan, CREW_MESSAGE, "length");
}

// v-forms: each block has a length of its own. In all-to-all a rank knows only its own blocks.
TEST(UnevenBlocks, KeepTheirLengthsInTheAlgorithmsOfVForms)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        const std::string name = kolo_algos[i]->base.name;
        const bool any = kolo_algos[i]->coll == KOLO_COLL_ALL_GATHER ||
                         kolo_algos[i]->coll == KOLO_COLL_REDUCE_SCATTER;
        const bool direct =
            !kolo_coll_flat(kolo_algos[i]->coll) && (name.find("_direct") != std::string::npos ||
                                                     name.find("_pairwise") != std::string::npos);
        for (int n = 1; n <= 6 && (any || direct); n++) {
            const Plan plan = BuildPlan(kolo_algos[i], n, 0);
            for (const Links &links : kLinks) {
                if (plan == nullptr) {
                    continue;
                }
                SCOPED_TRACE(Name(kolo_algos[i], n, 0, links));
                const std::vector<Prog> progs = LowerAll(plan.get(), links.kind, links.seed);
                Calls calls;
                calls.uneven = true;
                calls.Add(plan.get(), progs, 2);
                EXPECT_EQ(KOLO_OK, calls.Verify()) << kolo_error_text();
            }
        }
    }
}

} // namespace
