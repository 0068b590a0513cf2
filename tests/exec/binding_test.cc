// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/cpu/bind.c src/exec/lower
/* Binding: every byte of a call's buffers belongs to one piece of one chunk; all ranks cut alike;
 * a bound op moves what its chunks have.
 */
#include "bound_probe.h"
#include "catalogue.h"
#include "programs.h"

#include <algorithm>

namespace
{

constexpr size_t kElems[] = {1, 2, 4, 8, 16};

struct Sizes { // of a call, as one rank knows them
    size_t elem = 0, count = 0;
    std::vector<size_t> all; // counts and displacements, for all_to_all those of OUT behind them
};

struct Extents { // of one rank
    kolo_extents l = {};
    size_t *arrays = nullptr;
    size_t piece = 0;
    uint32_t tiles = 0;
    bool inlined = false;

    Extents(const kolo_plan *plan, int rank, Sizes sizes, size_t slot, bool one_tile)
    {
        kolo_coll_args args = {};
        args.count = sizes.count;
        args.v.all = sizes.all.empty() ? nullptr : sizes.all.data();
        EXPECT_EQ(KOLO_OK, kolo_extents_make(plan, rank, &args, sizes.elem, &l, &arrays));
        l.one_tile = one_tile;
        kolo_tile(plan, &l, slot, &piece, &tiles, &inlined);
    }
    ~Extents()
    {
        std::free(arrays);
    }
    Extents(const Extents &) = delete;
    Extents &operator=(const Extents &) = delete;
};

struct Range {
    size_t begin, end;
};

// Every piece of a rank's buffer, in bytes; empty ones left out.
std::vector<Range> Pieces(const kolo_plan *plan, const Extents &e, int rank, kolo_buf buf)
{
    std::vector<Range> all;
    for (int c = 0; c < kolo_plan_buf_chunks(plan, rank, buf); c++) {
        const size_t off = buf == KOLO_IN ? e.l.in_off[c] : e.l.out_off[c];
        const size_t len = kolo_extent_bytes(&e.l, rank, buf, c);
        EXPECT_LE(len, e.piece * e.tiles) << "chunk " << c << " is longer than its tiles";
        for (uint32_t t = 0; t < e.tiles; t++) {
            const size_t begin = std::min(len, e.piece * t);
            const size_t end = std::min(len, e.piece * (t + 1));
            if (begin < end) {
                all.push_back({off + begin, off + end});
            }
        }
    }
    std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.begin < b.begin; });
    return all;
}

// The pieces are the wanted ranges, without hole or overlap, cut between elements.
void ExpectCover(const std::vector<Range> &pieces, std::vector<Range> wanted, size_t elem)
{
    size_t i = 0;
    wanted.erase(
        std::remove_if(wanted.begin(), wanted.end(), [](Range r) { return r.begin == r.end; }),
        wanted.end());
    std::sort(wanted.begin(), wanted.end(), [](Range a, Range b) { return a.begin < b.begin; });
    for (const Range &want : wanted) {
        size_t at = want.begin;
        while (at < want.end && i < pieces.size()) {
            ASSERT_EQ(at, pieces[i].begin) << "a hole or an overlap";
            ASSERT_EQ(0u, pieces[i].begin % elem);
            ASSERT_EQ(0u, pieces[i].end % elem);
            at = pieces[i++].end;
        }
        ASSERT_EQ(want.end, at);
    }
    ASSERT_EQ(pieces.size(), i) << "bytes beyond the buffer";
}

size_t Blocks(const kolo_plan *plan, int rank, kolo_buf buf)
{
    const int chunks = kolo_plan_buf_chunks(plan, rank, buf);
    return static_cast<size_t>(kolo_coll_flat(plan->shape.coll) ? chunks > 0 : chunks);
}

void ExpectAlike(const Extents &a, const Extents &b)
{
    ASSERT_EQ(a.piece, b.piece);
    ASSERT_EQ(a.tiles, b.tiles);
    ASSERT_EQ(a.inlined, b.inlined);
}

void ExpectBound(const std::vector<Prog> &progs, const kolo_plan *plan, int rank, const Extents &e,
                 size_t slot)
{
    int phases = 1;
    for (int r = 0; r < plan->shape.nranks; r++) {
        phases = std::max(phases, plan->rank[r].phases);
    }
    char *what = bound_probe(progs[static_cast<size_t>(rank)].get(), &e.l, slot, phases);
    EXPECT_STREQ("", what);
    std::free(what);
}

class Binding : public ::testing::TestWithParam<int>
{
};

std::vector<size_t> Counts(size_t n, size_t elem, size_t slot_elems)
{
    const size_t tile = slot_elems / n + 1;
    return {0,
            1,
            n - 1,
            n,
            n + 1,
            48 / elem,
            48 / elem + 1,
            tile * n + 1,
            3 * slot_elems + 5,
            3 * slot_elems * n + 7};
}

TEST_P(Binding, PutsEachByteOfRegularCallsIntoOnePiece)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    for (int n : {1, 2, 3, 4, 5, 7, 8, 16}) {
        const Plan plan = BuildPlan(algo, n, n / 2);
        if (plan == nullptr) {
            continue;
        }
        const std::vector<Prog> progs = LowerAll(plan.get(), CREW_ARENA, 1);
        const size_t slot = static_cast<size_t>(std::max(plan->max_places, 1)) * 192 + 40;
        for (size_t elem : kElems) {
            for (size_t count : Counts(static_cast<size_t>(n), elem, slot / elem)) {
                SCOPED_TRACE("n " + std::to_string(n) + ", " + std::to_string(count) + " of " +
                             std::to_string(elem) + " bytes");
                const Sizes sizes = {elem, count, {}};
                const Extents first(plan.get(), 0, sizes, slot, false);
                for (int r = 0; r < n; r++) {
                    const Extents e(plan.get(), r, sizes, slot, false);
                    ExpectAlike(first, e);
                    for (kolo_buf buf : {KOLO_IN, KOLO_OUT}) {
                        const size_t bytes = Blocks(plan.get(), r, buf) * count * elem;
                        ExpectCover(Pieces(plan.get(), e, r, buf), {{0, bytes}}, elem);
                    }
                    ExpectBound(progs, plan.get(), r, e, slot);
                }
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Catalogue, Binding, ::testing::Range(0, kolo_algos_count), AlgorithmName);

// ---- v-forms ----

struct Vector { // counts and displacements, with gaps and in reverse order
    std::vector<size_t> counts, displs;
};

Vector Uneven(size_t n, size_t kind)
{
    Vector v;
    size_t at = 3;
    v.counts.resize(n);
    v.displs.resize(n);
    for (size_t r = n; r-- > 0;) {
        const size_t some[] = {0, 7 * r % 5, r == n / 2 ? size_t{100003} : r % 2, r + 1};
        v.counts[r] = some[kind % 4];
        v.displs[r] = at;
        at += v.counts[r] + 2;
    }
    return v;
}

std::vector<Range> Wanted(const Vector &v, size_t elem)
{
    std::vector<Range> all;
    for (size_t r = 0; r < v.counts.size(); r++) {
        all.push_back({v.displs[r] * elem, (v.displs[r] + v.counts[r]) * elem});
    }
    return all;
}

void ExpectBuffer(const kolo_plan *plan, const Extents &e, int rank, kolo_buf buf, const Vector &v,
                  size_t elem)
{
    const int chunks = kolo_plan_buf_chunks(plan, rank, buf);
    const bool one = plan->shape.coll != KOLO_COLL_ALL_TO_ALL &&
                     (buf == KOLO_IN) == (plan->shape.coll == KOLO_COLL_GATHER ||
                                          plan->shape.coll == KOLO_COLL_ALL_GATHER);
    std::vector<Range> wanted;
    if (chunks > 0) {
        wanted = one ? std::vector<Range>{{0, v.counts[static_cast<size_t>(rank)] * elem}}
                     : Wanted(v, elem);
    }
    ExpectCover(Pieces(plan, e, rank, buf), wanted, elem);
}

Sizes SizesOf(const Vector &v, size_t elem)
{
    Sizes sizes = {elem, 0, v.counts};
    sizes.all.insert(sizes.all.end(), v.displs.begin(), v.displs.end());
    return sizes;
}

TEST_P(Binding, PutsEachByteOfGatheredAndScatteredBlocksIntoOnePiece)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    const bool knows_all =
        algo->coll == KOLO_COLL_ALL_GATHER || algo->coll == KOLO_COLL_REDUCE_SCATTER;
    if (!knows_all && algo->coll != KOLO_COLL_GATHER && algo->coll != KOLO_COLL_SCATTER) {
        return;
    }
    for (size_t n : {1, 2, 3, 5, 8}) {
        const Plan plan = BuildPlan(algo, static_cast<int>(n), static_cast<int>(n / 2));
        for (size_t elem : kElems) {
            for (size_t kind = 0; kind < 4 && plan != nullptr; kind++) {
                SCOPED_TRACE("n " + std::to_string(n) + ", kind " + std::to_string(kind) + ", " +
                             std::to_string(elem) + " bytes");
                const Vector v = Uneven(n, kind);
                const size_t slot = static_cast<size_t>(std::max(plan->max_places, 1)) * 4096;
                const Extents first(plan.get(), 0, SizesOf(v, elem), slot, !knows_all);
                for (int r = 0; r < static_cast<int>(n); r++) {
                    Vector mine = v; // of a gather or scatter the others know their block only
                    for (size_t q = 0; q < n && !knows_all && r != plan->shape.root; q++) {
                        mine.counts[q] = static_cast<int>(q) == r ? v.counts[q] : 0;
                    }
                    const Extents e(plan.get(), r, SizesOf(mine, elem), slot, !knows_all);
                    ASSERT_EQ(first.tiles, e.tiles);
                    ASSERT_TRUE(!knows_all || first.piece == e.piece);
                    for (kolo_buf buf : {KOLO_IN, KOLO_OUT}) {
                        ExpectBuffer(plan.get(), e, r, buf, v, elem);
                    }
                }
            }
        }
    }
}

// Of each pair, what one rank sends is as long as what the other expects, and what either says of
// the other's buffers.
TEST(BindingAllToAll, CutsUnevenBlocksAlikeAtBothEnds)
{
    const kolo_algo *algo = nullptr;
    for (int i = 0; i < kolo_algos_count; i++) {
        algo = std::string(kolo_algos[i]->base.name) == "alltoall_direct" ? kolo_algos[i] : algo;
    }
    for (size_t n : {1, 2, 3, 5, 8}) {
        const Plan plan = BuildPlan(algo, static_cast<int>(n), 0);
        for (size_t kind = 0; kind < 4; kind++) {
            std::vector<Vector> rows(n), columns(n);
            std::vector<std::unique_ptr<Extents>> all;
            for (size_t r = 0; r < n; r++) {
                rows[r] = Uneven(n, kind + r);
                columns[r] = Uneven(n, 3);
            }
            for (size_t r = 0; r < n; r++) {
                size_t at = 1;
                for (size_t q = 0; q < n; q++) {
                    columns[r].counts[q] = rows[q].counts[r];
                    columns[r].displs[q] = at;
                    at += rows[q].counts[r] + 1;
                }
                Sizes sizes = SizesOf(rows[r], 4);
                const Sizes out = SizesOf(columns[r], 4);
                sizes.all.insert(sizes.all.end(), out.all.begin(), out.all.end());
                all.push_back(
                    std::make_unique<Extents>(plan.get(), static_cast<int>(r), sizes, 4096, true));
                ASSERT_EQ(1u, all[r]->tiles);
                const int rank = static_cast<int>(r);
                ExpectBuffer(plan.get(), *all[r], rank, KOLO_IN, rows[r], 4);
                ExpectBuffer(plan.get(), *all[r], rank, KOLO_OUT, columns[r], 4);
            }
            for (int r = 0; r < static_cast<int>(n); r++) {
                for (int q = 0; q < static_cast<int>(n); q++) {
                    const kolo_extents *mine = &all[static_cast<size_t>(r)]->l;
                    const kolo_extents *its = &all[static_cast<size_t>(q)]->l;
                    EXPECT_EQ(kolo_extent_bytes(mine, r, KOLO_IN, q),
                              kolo_extent_bytes(its, q, KOLO_OUT, r));
                    EXPECT_EQ(kolo_extent_bytes(mine, q, KOLO_IN, r),
                              kolo_extent_bytes(its, q, KOLO_IN, r));
                    EXPECT_EQ(kolo_extent_bytes(mine, q, KOLO_OUT, r),
                              kolo_extent_bytes(its, q, KOLO_OUT, r));
                }
            }
        }
    }
}

// What a rank says of the others' chunks is what they say themselves.
TEST_P(Binding, GivesEveryRankTheSameLengths)
{
    const kolo_algo *algo = kolo_algos[GetParam()];
    if (algo->coll == KOLO_COLL_ALL_TO_ALL) {
        return; // a rank knows its own blocks only: see above
    }
    for (size_t n : {2, 3, 5}) {
        const Plan plan = BuildPlan(algo, static_cast<int>(n), 1);
        if (plan == nullptr) {
            continue;
        }
        Vector v = Uneven(n, 3);
        Sizes sizes = SizesOf(v, 8);
        sizes.count = 1001;
        if (kolo_coll_flat(algo->coll)) {
            sizes.all.clear();
        }
        const Extents mine(plan.get(), 0, sizes, 65536, false);
        for (int q = 0; q < static_cast<int>(n); q++) {
            const Extents its(plan.get(), q, sizes, 65536, false);
            for (kolo_buf buf : {KOLO_IN, KOLO_OUT}) {
                for (int c = 0; c < kolo_plan_buf_chunks(plan.get(), q, buf); c++) {
                    EXPECT_EQ(kolo_extent_bytes(&mine.l, q, buf, c),
                              kolo_extent_bytes(&its.l, q, buf, c));
                }
            }
        }
    }
}

} // namespace
