// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/cpu src/exec/lower
/* Lowered programs, run by threads, against what each collective promises: every algorithm, kind of
 * link, rank count, size around a tile, in place and out of place. Offsets and values all differ.
 */
#include "catalogue.h"
#include "programs.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

namespace
{

using Words = std::vector<uint32_t>;

uint32_t Value(int rank, size_t i)
{
    return static_cast<uint32_t>(rank + 1) * 2654435761u + static_cast<uint32_t>(i) * 40503u + 7u;
}

struct Case {
    const kolo_algo *algo;
    int n, root;
    size_t count; /* elements; of a block where the collective has blocks */
    bool in_place;
    const Grouping *groups;
};

/* IN and OUT of one rank, with room in front so that no two offsets agree. */
struct Buffers {
    Words in, out;
    uint32_t *in_at = nullptr, *out_at = nullptr;
};

size_t InCount(const Case &c, int rank)
{
    const size_t n = static_cast<size_t>(c.n);
    switch (c.algo->coll) {
    case KOLO_COLL_BROADCAST:
        return rank == c.root ? c.count : 0;
    case KOLO_COLL_SCATTER:
        return rank == c.root ? c.count * n : 0;
    case KOLO_COLL_REDUCE_SCATTER:
    case KOLO_COLL_ALL_TO_ALL:
        return c.count * n;
    case KOLO_COLL_BARRIER:
        return 0;
    default:
        return c.count;
    }
}

size_t OutCount(const Case &c, int rank)
{
    const size_t n = static_cast<size_t>(c.n);
    switch (c.algo->coll) {
    case KOLO_COLL_REDUCE:
        return rank == c.root ? c.count : 0;
    case KOLO_COLL_GATHER:
        return rank == c.root ? c.count * n : 0;
    case KOLO_COLL_ALL_GATHER:
    case KOLO_COLL_ALL_TO_ALL:
        return c.count * n;
    case KOLO_COLL_BARRIER:
        return 0;
    default:
        return c.count;
    }
}

uint32_t Expected(const Case &c, int rank, size_t i)
{
    uint32_t sum = 0;
    const size_t block = c.count > 0 ? i / c.count : 0, at = c.count > 0 ? i % c.count : 0;
    const size_t me = static_cast<size_t>(rank);
    switch (c.algo->coll) {
    case KOLO_COLL_ALL_REDUCE:
    case KOLO_COLL_REDUCE:
        for (int q = 0; q < c.n; q++) {
            sum += Value(q, i);
        }
        return sum;
    case KOLO_COLL_REDUCE_SCATTER:
        for (int q = 0; q < c.n; q++) {
            sum += Value(q, me * c.count + i);
        }
        return sum;
    case KOLO_COLL_BROADCAST:
        return Value(c.root, i);
    case KOLO_COLL_SCATTER:
        return Value(c.root, me * c.count + i);
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return Value(static_cast<int>(block), at);
    case KOLO_COLL_ALL_TO_ALL:
        return Value(static_cast<int>(block), me * c.count + at);
    default:
        return 0;
    }
}

/* In place: where IN lies within OUT, or OUT within IN (negative: nowhere). Not if the peers rely on
 * it that they are apart. */
void Place(const Case &c, int rank, bool apart, Buffers *b)
{
    const size_t pad = 16 + 3 * static_cast<size_t>(rank), nin = InCount(c, rank),
                 nout = OutCount(c, rank);
    const size_t block = static_cast<size_t>(rank) * c.count;
    b->in.assign(pad + nin + 16, 0xABABABABu);
    b->out.assign(2 * pad + nout + 16, 0xCDCDCDCDu);
    b->in_at = b->in.data() + pad;
    b->out_at = b->out.data() + 2 * pad;
    if (c.in_place && !apart && nin > 0 && nout > 0) {
        if (nin == nout) {
            b->in_at = b->out_at;
        } else if (nin < nout) {
            b->in_at = b->out_at + block;
        } else {
            b->out_at = b->in_at + block;
        }
    }
    for (size_t i = 0; i < nin; i++) {
        b->in_at[i] = Value(rank, i);
    }
}

void Check(const Case &c, std::vector<Buffers> &ranks)
{
    for (int r = 0; r < c.n; r++) {
        for (size_t i = 0; i < OutCount(c, r); i++) {
            ASSERT_EQ(Expected(c, r, i), ranks[static_cast<size_t>(r)].out_at[i])
                << "rank " << r << " element " << i;
        }
        Buffers &b = ranks[static_cast<size_t>(r)];
        if (b.in_at >= b.in.data() && b.in_at < b.in.data() + b.in.size() &&
            !(b.out_at >= b.in.data() && b.out_at < b.in.data() + b.in.size())) {
            for (size_t i = 0; i < InCount(c, r); i++) {
                ASSERT_EQ(Value(r, i), b.in_at[i]) << "IN was written, rank " << r;
            }
            ASSERT_EQ(0xABABABABu, b.in.back());
        }
        ASSERT_EQ(0xCDCDCDCDu, b.out.back());
    }
}

struct Programs {
    Plan plan;
    std::vector<Prog> of_rank;
};

constexpr unsigned Seed(int n)
{
    return static_cast<unsigned>(n) * 3 + 1;
}

/* Adds to `phases` what the plan has more: a crew has just as many lines as its plans take. */
void Build(const Case &c, crew_links links, Programs *out, int *phases)
{
    out->plan = BuildPlan(c.algo, c.n, c.root, -1, nullptr, c.groups);
    ASSERT_NE(nullptr, out->plan);
    out->of_rank = LowerAll(out->plan.get(), links, Seed(c.n));
    for (int r = 0; r < c.n; r++) {
        ASSERT_NE(nullptr, out->of_rank[static_cast<size_t>(r)]);
        *phases = std::max(*phases, static_cast<int>(out->plan->rank[r].phases));
    }
}

bool Supports(const kolo_algo *algo, int n, int root)
{
    kolo_shape shape = {};
    shape.size = sizeof shape;
    shape.coll = algo->coll;
    shape.nranks = n;
    shape.root = root;
    ApplyLayout(&shape, nullptr);
    UsualGroups(n).Apply(&shape);
    return algo->supports == nullptr || algo->supports(&shape);
}

/* Two calls in a row in the same environment, so that slots are used again. */
void RunCase(const Case &c, crew_links links, unsigned jitter)
{
    SCOPED_TRACE(std::string(c.algo->base.name) + " over " + crew_links_name(links) + ", n " +
                 std::to_string(c.n) + ", root " + std::to_string(c.root) + ", count " +
                 std::to_string(c.count) + (c.in_place ? ", in place" : "") + ", " +
                 c.groups->name);
    Programs programs;
    int phases = 1;
    ASSERT_NO_FATAL_FAILURE(Build(c, links, &programs, &phases));
    crew *crew = crew_create(c.n, links, Seed(c.n), 4096, 1024, phases);
    std::vector<Buffers> first(static_cast<size_t>(c.n)), second(static_cast<size_t>(c.n));
    std::vector<crew_call> calls;
    for (int r = 0; r < c.n; r++) {
        for (std::vector<Buffers> *set : {&first, &second}) {
            Buffers &b = (*set)[static_cast<size_t>(r)];
            Place(c, r, programs.of_rank[static_cast<size_t>(r)]->apart, &b);
            crew_call call = {};
            call.prog = programs.of_rank[static_cast<size_t>(r)].get();
            call.args.count = c.count;
            call.elem = 4;
            call.in = b.in_at;
            call.out = b.out_at;
            call.reduce = kolo_reduce_kernel(KOLO_UINT32, KOLO_SUM);
            calls.push_back(call);
        }
    }
    EXPECT_EQ(KOLO_OK, crew_run(crew, 2, calls.data(), jitter, 20e3)) << kolo_error_text();
    Check(c, first);
    Check(c, second);
    crew_destroy(crew);
}

class EveryAlgorithm : public ::testing::TestWithParam<int>
{
};

std::vector<int> RankCounts()
{
    return WholeRun()   ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16}
           : FullRun()  ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 13}
           : ShortRun() ? std::vector<int>{1, 2, 3, 4, 5}
                        : std::vector<int>{1, 2, 3, 4, 5, 8};
}

TEST_P(EveryAlgorithm, GivesWhatTheCollectivePromisesOverEveryKindOfLink)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : RankCounts()) {
        for (int root : {0, n - 1}) {
            if ((root > 0 && !kolo_coll_rooted(algo->coll)) || (n == 1 && root > 0) ||
                !Supports(algo, n, root)) {
                continue;
            }
            unsigned turn = static_cast<unsigned>(n + root); // in place: by turns, or both ways
            for (size_t count : {size_t{0}, size_t{1}, size_t{3}, static_cast<size_t>(n - 1),
                                 static_cast<size_t>(n + 1), size_t{257}, size_t{5003}}) {
                turn++;
                for (int links = 0; links < CREW_LINKS; links++) {
                    turn++;
                    for (bool in_place : {false, true}) {
                        if (!WholeRun() && in_place != (turn % 2 == 0)) {
                            continue;
                        }
                        RunCase({algo, n, root, count, in_place, &UsualGroups(n)},
                                static_cast<crew_links>(links),
                                static_cast<unsigned>(n + links) * (count % 2 == 0 ? 1u : 0u));
                        if (HasFailure()) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

class EveryHierarchy : public EveryAlgorithm
{
};

TEST_P(EveryHierarchy, GivesWhatTheCollectivePromisesForAnyGroups)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    int turn = 0; // a short run has half of the kinds of links, by turns
    for (int n : {4, 8}) {
        for (const Grouping &groups : Groupings(n)) {
            const int root = kolo_coll_rooted(algo->coll) ? n - 1 : 0;
            turn++;
            for (size_t count : {size_t{3}, size_t{5003}}) {
                for (int links = ShortRun() ? turn++ % 2 : 0; links < CREW_LINKS;
                     links += ShortRun() ? 2 : 1) {
                    RunCase({algo, n, root, count, (links + n / 4) % 2 == 0, &groups},
                            static_cast<crew_links>(links), count == 3 ? 1u : 0u);
                    if (HasFailure()) {
                        return;
                    }
                }
            }
        }
    }
}

/* Lines, short and long slots in turn, other algorithms and roots between: more tiles than there
 * are copies of any. */
void RunSequence(const std::vector<Case> &cases, crew_links links, unsigned jitter)
{
    const int n = cases[0].n;
    std::vector<Programs> programs(cases.size());
    int phases = 1;
    std::vector<std::vector<Buffers>> data(cases.size(), std::vector<Buffers>(cases[0].n));
    std::vector<crew_call> calls(cases.size() * static_cast<size_t>(n));
    for (size_t i = 0; i < cases.size(); i++) {
        ASSERT_NO_FATAL_FAILURE(Build(cases[i], links, &programs[i], &phases));
        for (size_t r = 0; r < data[i].size(); r++) {
            Buffers &b = data[i][r];
            Place(cases[i], static_cast<int>(r), programs[i].of_rank[r]->apart, &b);
            crew_call &call = calls[r * cases.size() + i];
            call.prog = programs[i].of_rank[r].get();
            call.args.count = cases[i].count;
            call.elem = 4;
            call.in = b.in_at;
            call.out = b.out_at;
            call.reduce = kolo_reduce_kernel(KOLO_UINT32, KOLO_SUM);
        }
    }
    crew *crew = crew_create(n, links, Seed(n), 4096, 512, phases);
    EXPECT_EQ(KOLO_OK, crew_run(crew, static_cast<int>(cases.size()), calls.data(), jitter, 20e3))
        << kolo_error_text();
    for (size_t i = 0; i < cases.size(); i++) {
        SCOPED_TRACE("call " + std::to_string(i) + ", " + cases[i].algo->base.name);
        Check(cases[i], data[i]);
    }
    crew_destroy(crew);
}

TEST_P(EveryAlgorithm, GivesWhatItPromisesBetweenOthersInAnyMixOfSizes)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    const size_t counts[] = {5003, 1, 40, 3, 2777, 2, 100};
    for (int n : {2, 3, 4}) {
        for (int links = 0; links < CREW_LINKS; links++) {
            std::vector<Case> cases;
            for (int i = 0; i < 24; i++) {
                const kolo_algo *other = kolo_algos[(GetParam() + 7 * i) % kolo_algos_count];
                const kolo_algo *one = i % 3 == 1 ? other : algo;
                const int root = kolo_coll_rooted(one->coll) ? i % n : 0;
                if (Supports(one, n, root)) {
                    cases.push_back({one, n, root, counts[static_cast<size_t>(i + n) % 7],
                                     i % 2 != 0, &UsualGroups(n)});
                }
            }
            SCOPED_TRACE(std::string(algo->base.name) + " over " +
                         crew_links_name(static_cast<crew_links>(links)) + ", n " +
                         std::to_string(n));
            RunSequence(cases, static_cast<crew_links>(links), static_cast<unsigned>(links + n));
            if (HasFailure()) {
                return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, EveryAlgorithm, ::testing::Range(0, kolo_algos_count),
                         AlgorithmName);
INSTANTIATE_TEST_SUITE_P(Catalogue, EveryHierarchy, ::testing::ValuesIn(Hierarchies()),
                         AlgorithmName);

} // namespace
