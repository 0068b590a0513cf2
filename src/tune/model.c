// SPDX-License-Identifier: Apache-2.0
/* Predictions from prices of plans; from small communicators to large ones. */
#include "model.h"

#include <math.h>
#include <stdlib.h>

/* The time of one call in a long series of equal calls, which follow one another as tiles do.
 * Messages too short to be tiles leave *out as it is. */
static kolo_status price_series(const struct kolo_plan *plan, size_t bytes,
                                const struct kolo_machine *machine, double *out)
{
    enum { CALLS = 8, LEAST = 64 };
    const bool flat = kolo_coll_flat(plan->shape.coll);
    const size_t chunks = (size_t)(flat ? plan->chunks : plan->shape.nranks);
    const size_t tile = kolo_min(flat ? bytes : bytes * chunks, KOLO_TILE_BYTES);
    struct kolo_price price;
    if (tile / chunks < LEAST) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_price_plan(plan, CALLS * bytes, tile, machine, false, &price));
    *out = price.tile_us * price.tiles / CALLS;
    return KOLO_OK;
}

static kolo_status price_whole(const struct kolo_model *model, const struct kolo_plan *plan,
                               const int *rank, const struct kolo_asking *about, double *out)
{
    struct kolo_model_machine m;
    struct kolo_price price;
    kolo_model_machine(model, plan->shape.nranks, rank, &m);
    m.machine.mapped = about->mapped;
    KOLO_TRY(kolo_price_plan(plan, about->bytes, about->tile_bytes, &m.machine, false, &price));
    *out = price.total_us;
    /* A program may make such calls one after another with one root: then the next begins before
     * this one ends. Half of the price is that of such a series. Between 4 ranks over TCP, reduces of
     * 32 KiB to one root took 314 us each by the plan that is best for a lone call, and 55 so. */
    if (kolo_coll_rooted(plan->shape.coll)) {
        double series_us = price.work_us;
        KOLO_TRY(price_series(plan, about->bytes, &m.machine, &series_us));
        *out = (price.total_us + series_us) / 2;
    }
    if (about->mapped) { /* the entry lines */
        *out += m.machine.link.latency_us + (m.machine.cores > 0 ? m.machine.switch_us : 0);
    }
    return KOLO_OK;
}

static int phases_of(const struct kolo_plan *plan)
{
    int most = 0;
    for (int rank = 0; rank < plan->shape.nranks; rank++) {
        most = plan->rank[rank].phases > most ? plan->rank[rank].phases : most;
    }
    return most;
}

static int peers_of(const struct kolo_plan *plan)
{
    int most = 0;
    for (int rank = 0; rank < plan->shape.nranks && plan->shape.nranks <= KOLO_MODEL_RANKS;
         rank++) {
        uint64_t seen = 0; /* one bit a rank */
        for (int i = 0; i < plan->rank[rank].count; i++) {
            const int peer = plan->rank[rank].step[i].peer;
            seen |= peer >= 0 ? UINT64_C(1) << peer : 0;
        }
        const int peers = __builtin_popcountll(seen);
        most = peers > most ? peers : most;
    }
    return most;
}
static_assert(KOLO_MODEL_RANKS <= 64, "a bit a rank");

/* A call's part of the links that the first call opens. Where many ranks share a core, that takes
 * seconds, so a plan with few peers is preferred unless many calls would repay the others' links.
 * A link keeps a core for 100 us; with 512 ranks for 400, as the kernel has more to look through. */
static double links_us(const struct kolo_model *model, double peers)
{
    enum { LINK_US = 100, CALLS = 1000 };
    const double crowd = model->nranks / kolo_model_cores(model);
    return crowd > 1 ? peers * LINK_US * crowd / CALLS : 0;
}

/* ---- smaller communicators ---- */

/* The size of the larger stand-in. A power of two stays one. Other sizes keep their remainder by 8
 * and do not become powers of two. */
static int larger_stand_in(int nranks)
{
    return kolo_is_pow2(nranks) ? KOLO_MODEL_RANKS : KOLO_MODEL_RANKS - 16 + nranks % 8;
}

static int smaller_stand_in(int nranks)
{
    return kolo_is_pow2(nranks) ? KOLO_MODEL_RANKS / 2 : KOLO_MODEL_RANKS / 2 - 8 + nranks % 8;
}

struct stand_in { /* a smaller communicator's shape, and the arrays that it points to */
    struct kolo_shape shape;
    int rank[KOLO_MODEL_RANKS];               /* the ranks that are left; ascending */
    int order[KOLO_LANES * KOLO_MODEL_RANKS]; /* room for as many rings as a plan can use */
    int group[KOLO_LEVELS * KOLO_MODEL_RANKS];
    int tree[KOLO_LANES * KOLO_MODEL_RANKS];
};

/* Pick the ranks that are left. Each of the farthest groups (packages, hosts) keeps its share, so
 * that the borders between them stay. Within such a group the first ranks stay, so that near groups
 * keep their size. */
static void pick_ranks(const struct kolo_shape *shape, int nranks, int *out)
{
    const int top = shape->nlevels - 1;
    const int n = shape->nranks;
    int before = 0; /* ranks of the groups seen so far */
    int count = 0;
    if (top < 0) {
        for (int r = 0; r < nranks; r++) {
            out[r] = r;
        }
        return;
    }
    for (int name = 0; name < n; name++) {
        int size = 0;
        for (int r = name; kolo_group_of(shape, top, name) == name && r < n; r++) {
            size += kolo_group_of(shape, top, r) == name;
        }
        int left = (before + size) * nranks / n - before * nranks / n;
        before += size;
        for (int r = name; left > 0; r++) {
            if (kolo_group_of(shape, top, r) == name) {
                out[count++] = r;
                left--;
            }
        }
    }
}

static int compare_ints(const void *a, const void *b)
{
    const int left = *(const int *)a;
    const int right = *(const int *)b;
    return (left > right) - (left < right);
}

/* The new number of a rank, or -1. */
static int number_in(const struct stand_in *by, int rank)
{
    const int *found =
        bsearch(&rank, by->rank, (size_t)by->shape.nranks, sizeof rank, compare_ints);
    return found != NULL ? (int)(found - by->rank) : -1;
}

/* Make the groups of the ranks that are left. The smallest rank left names its group. */
static void keep_groups(const struct kolo_shape *shape, int level, struct stand_in *out)
{
    const int n = out->shape.nranks;
    for (int r = 0; r < n; r++) {
        int first = 0;
        while (kolo_group_of(shape, level, out->rank[first]) !=
               kolo_group_of(shape, level, out->rank[r])) {
            first++;
        }
        out->group[level * n + r] = first;
    }
}

/* Make ring `ring` of the ranks that are left. */
static void keep_ring(const struct kolo_shape *shape, int ring, struct stand_in *out)
{
    int count = ring * out->shape.nranks;
    for (int i = 0; i < shape->nranks; i++) {
        const int number = number_in(out, shape->order[ring * shape->nranks + i]);
        if (number >= 0) {
            out->order[count++] = number;
        }
    }
}

/* Make tree `tree` of the ranks that are left. The parent of a rank is its nearest ancestor that is
 * left. The ranks without one hang from the first of these ranks, which is the root. */
static void keep_tree(const struct kolo_shape *shape, int tree, struct stand_in *out)
{
    const int *up = shape->tree + (size_t)tree * (size_t)shape->nranks;
    int *kept = out->tree + tree * out->shape.nranks;
    int root = -1;
    for (int i = 0; i < out->shape.nranks; i++) {
        int at = up[out->rank[i]];
        while (at >= 0 && number_in(out, at) < 0) {
            at = up[at];
        }
        kept[i] = at >= 0 ? number_in(out, at) : root;
        root = kept[i] < 0 ? i : root;
    }
}

/* Make the stand-in of `shape` with `nranks` ranks. The first and the last rank stay so. Rings,
 * groups and trees keep the ranks that are left. */
static void stand_in(const struct kolo_shape *shape, int nranks, struct stand_in *out)
{
    out->shape = *shape;
    out->shape.nranks = nranks;
    if (shape->root > 0) {
        out->shape.root = shape->root == shape->nranks - 1 ? nranks - 1 : nranks / 2;
    }
    pick_ranks(shape, nranks, out->rank);
    qsort(out->rank, (size_t)nranks, sizeof out->rank[0], compare_ints);
    out->shape.nrings = shape->nrings < KOLO_LANES ? shape->nrings : KOLO_LANES;
    for (int r = 0; shape->order != NULL && (r == 0 || r < out->shape.nrings); r++) {
        keep_ring(shape, r, out);
    }
    for (int l = 0; l < shape->nlevels; l++) {
        keep_groups(shape, l, out);
    }
    for (int t = 0; t < shape->ntrees; t++) {
        keep_tree(shape, t, out);
    }
    out->shape.tree = out->tree;
    out->shape.order = shape->order != NULL ? out->order : NULL;
    out->shape.group = out->group;
}

static bool stands_in(const struct kolo_algo *algo, const struct kolo_shape *shape, int nranks)
{
    struct stand_in small;
    stand_in(shape, nranks, &small);
    return algo->supports == NULL || algo->supports(&small.shape);
}

/* Whether the plan of `shape` is too large, and smaller plans can stand for it. */
static bool is_scaled(const struct kolo_algo *algo, const struct kolo_shape *shape)
{
    return shape->nranks > KOLO_MODEL_RANKS &&
           stands_in(algo, shape, larger_stand_in(shape->nranks)) &&
           stands_in(algo, shape, smaller_stand_in(shape->nranks));
}

/* Whether a copy of all bytes of a rank would take longer than a fiftieth of a message's time. */
static bool is_copied_dearly(const struct kolo_model *model, const struct kolo_shape *shape,
                             const struct kolo_asking *about)
{
    const struct kolo_costs *costs = &model->costs;
    const double blocks = kolo_coll_flat(shape->coll) ? 1 : shape->nranks;
    const double copy_us = (double)about->bytes * blocks * kolo_local_us_per_byte(costs);
    return kolo_model_is_between(model) && 50 * copy_us > kolo_model_message_us(costs);
}

/* Price the whole plan. Rank i of the shape is rank[i] of the model; NULL: rank i itself. */
static kolo_status forecast_whole(const struct kolo_model *model, const struct kolo_algo *algo,
                                  const struct kolo_shape *shape, const int *rank,
                                  const struct kolo_asking *about, struct kolo_forecast *out)
{
    struct kolo_plan *plan = NULL;
    /* The ways of messages between mapped buffers depend on the facts. So do copies of what goes
     * to other hosts, unless the communicator is so large that a rank knows its own steps alone. */
    const bool whole = is_copied_dearly(model, shape, about) && model->nranks <= KOLO_MODEL_RANKS;
    KOLO_TRY(kolo_plan_build(algo, shape, about->mapped || whole ? -1 : KOLO_PLAN_PLAIN, &plan));
    const kolo_status st = price_whole(model, plan, rank, about, &out->us);
    out->phases = phases_of(plan);
    out->chunks = plan->chunks;
    out->peers = peers_of(plan);
    kolo_plan_destroy(plan);
    return st;
}

/* y at n, by the power law through y1 at n1 and y2 at n2. It does not fall below y2. */
static double extrapolate(double n1, double y1, double n2, double y2, double n)
{
    if (y1 <= 0 || y2 <= y1) {
        return y2;
    }
    return y2 * pow(n / n2, log(y2 / y1) / log(n2 / n1));
}

static kolo_status count_phases(const struct kolo_algo *algo, const struct kolo_shape *shape,
                                int *out)
{
    struct kolo_plan *plan = NULL;
    KOLO_TRY(kolo_plan_build(algo, shape, 0, &plan));
    *out = phases_of(plan);
    kolo_plan_destroy(plan);
    return KOLO_OK;
}

kolo_status kolo_model_price(const struct kolo_model *model, const struct kolo_algo *algo,
                             const struct kolo_shape *shape, const struct kolo_asking *about,
                             struct kolo_forecast *out)
{
    if (!is_scaled(algo, shape)) {
        return forecast_whole(model, algo, shape, NULL, about, out);
    }
    struct stand_in by;
    const int n1 = smaller_stand_in(shape->nranks), n2 = larger_stand_in(shape->nranks);
    const int n = shape->nranks;
    struct kolo_forecast small = {0}, large = {0};
    stand_in(shape, n1, &by);
    KOLO_TRY(forecast_whole(model, algo, &by.shape, by.rank, about, &small));
    stand_in(shape, n2, &by);
    KOLO_TRY(forecast_whole(model, algo, &by.shape, by.rank, about, &large));
    out->us = extrapolate(n1, small.us, n2, large.us, n) +
              links_us(model, extrapolate(n1, small.peers, n2, large.peers, n));
    out->phases = (int)ceil(extrapolate(n1, small.phases, n2, large.phases, n));
    if (extrapolate(n1, small.chunks, n2, large.chunks, n) > UINT16_MAX) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s: too many chunks for %d ranks", algo->base.name,
                         n);
    }
    const int slack = large.phases + 2;
    if (out->phases + slack > about->max_phases && out->phases - slack <= about->max_phases) {
        KOLO_TRY(count_phases(algo, shape, &out->phases));
    }
    return KOLO_OK;
}

kolo_status kolo_model_plan(const struct kolo_algo *algo, const struct kolo_shape *shape,
                            struct kolo_plan **out)
{
    struct stand_in small;
    if (!is_scaled(algo, shape)) {
        return kolo_plan_build(algo, shape, -1, out);
    }
    stand_in(shape, larger_stand_in(shape->nranks), &small);
    return kolo_plan_build(algo, &small.shape, -1, out);
}
