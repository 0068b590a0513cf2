// SPDX-License-Identifier: Apache-2.0
/* The machine that prices plans, of measured costs; from small communicators to large ones.
 *
 * - Shared memory: a sender copies into its outbox. A receiver's core copies or adds from there.
 * - The time of a line depends on what the two cores share: an L3, a NUMA node, a package, nothing.
 *   All lines between two packages share one channel.
 * - Ranks that share a core take turns. The total bandwidth of an L3 or a node has no price.
 * - Between hosts nothing is measured: the transport names the time of a message.
 */
#include "model.h"

#include "topology/machine/host.h"

#include <math.h>
#include <stdlib.h>

/* A copy between ranks that take turns on a core finds the caches filled by the other ranks.
 * Measured on 2 cores with 4 and 8 ranks. Arithmetic hides the same in additions. */
static const double CROWDED_COPY = 2;

/* A line that many cores of another package read goes to one core after the other. A broadcast took
 * 0.22 us to the 24 ranks of one package and 0.71 to the 48 of two (XHC, Cascade Lake). */
static const double TURN_US = 0.02;

/* Bytes that a message brought are added out of memory. An all-reduce of 2 MiB of 2 ranks over TCP
 * takes 745 us if each adds all of it (doubling), and 470 us if each adds one half (ring). */
static const double MESSAGE_SUM = 2.5e-4; /* us a byte */

void kolo_model_init(struct kolo_model *model, const struct kolo_costs *costs, int nranks,
                     int nhosts, const struct kolo_place *place)
{
    *model =
        (struct kolo_model){.costs = *costs, .nranks = nranks, .nhosts = nhosts, .place = place};
    if ((double)costs->cores * nhosts < nranks) {
        model->costs.copy_us_per_byte *= CROWDED_COPY;
        for (size_t i = 0; i < KOLO_LENGTH(model->costs.far); i++) {
            model->costs.far[i].copy_us_per_byte *= CROWDED_COPY;
        }
    }
}

/* ---- links ---- */

static struct kolo_link_price shared_memory(const struct kolo_costs *costs)
{
    return (struct kolo_link_price){
        .latency_us = costs->latency_us, .us_per_byte = costs->copy_us_per_byte, .by_core = true};
}

/* Beyond an L3 a line takes longer to come, and so do the steps that wait for lines. Two ranks of
 * one core are as near as two ranks of one L3: the core's price already has their turns. */
static void make_far(const struct kolo_costs *costs, int at, struct kolo_link_price *out)
{
    const struct kolo_far *far = &costs->far[at];
    const double more_us = far->copy_us_per_byte - costs->copy_us_per_byte;
    if (far->latency_us > costs->latency_us) {
        out->latency_us = far->latency_us;
        out->far_step_us = costs->step_us * (far->latency_us / costs->latency_us - 1);
    }
    out->far_us_per_byte = more_us > 0 ? more_us : 0;
}

static const struct kolo_place *place_of(const struct kolo_model_machine *m, int rank)
{
    return &m->model->place[m->rank != NULL ? m->rank[rank] : rank];
}

static int package_index(const struct kolo_model_machine *m, int package)
{
    int at = 0;
    while (at < m->npackages && m->package[at] != package) {
        at++;
    }
    return at;
}

static void link_in_host(const struct kolo_model_machine *m, int from, int to,
                         struct kolo_link_price *out)
{
    const struct kolo_costs *costs = &m->model->costs;
    const struct kolo_place *a = place_of(m, from), *b = place_of(m, to);
    const enum kolo_near near = kolo_near_of(a, b);
    const int at = near == KOLO_NEAR_UNKNOWN ? costs->unbound - 1 : (int)near - KOLO_NEAR_NUMA;
    *out = shared_memory(costs);
    if (at >= 0) {
        make_far(costs, at, out);
    }
    if (near == KOLO_NEAR_HOST && m->machine.channels > 0) {
        const int i = package_index(m, a->package), k = package_index(m, b->package);
        out->channel = 1 + i * m->npackages + k;
        out->channel_us_per_byte = costs->cross_us_per_byte;
        out->turn_us = TURN_US;
    }
}

/* A message between hosts. A core's time for it is a quarter of the latency if nobody says more, at
 * either end: a send over TCP took 4.3 of 15 us, and over InfiniBand 0.2 to 0.3 of 1.3 are usual. */
static struct kolo_link_price network(const struct kolo_costs *costs)
{
    const double latency_us = costs->net.latency_us, message_us = costs->net_message_us;
    return (struct kolo_link_price){.latency_us = message_us > 0 ? latency_us : latency_us / 2,
                                    .message_us = message_us > 0 ? message_us : latency_us / 4,
                                    .us_per_byte = costs->net.copy_us_per_byte,
                                    .sum_us_per_byte = MESSAGE_SUM,
                                    .by_core = false};
}

static int host_of(const struct kolo_model_machine *m, int rank)
{
    const struct kolo_model *model = m->model;
    if (model->host == NULL) { /* dealt in blocks, as launchers do */
        return (int)((long)rank * model->nhosts / m->nranks);
    }
    return model->host[m->rank != NULL ? m->rank[rank] : rank];
}

/* The ranks of a host share its network interface. */
static int port_of(const void *ctx, int rank)
{
    const struct kolo_model_machine *m = ctx;
    return m->rank != NULL ? m->port[rank] : host_of(m, rank) % m->nranks;
}

/* The ranks of a stand-in may lie on any hosts of many, so hosts' numbers are no ports. */
static void find_ports(struct kolo_model_machine *m)
{
    for (int r = 0; m->rank != NULL && r < m->nranks; r++) {
        m->port[r] = 0;
        while (host_of(m, m->port[r]) != host_of(m, r)) {
            m->port[r]++;
        }
    }
}

static void link_between(const void *ctx, int from, int to, struct kolo_link_price *out)
{
    const struct kolo_model_machine *m = ctx;
    if (m->model->by_messages || host_of(m, from) != host_of(m, to)) {
        *out = network(&m->model->costs);
    } else if (m->model->place != NULL) {
        link_in_host(m, from, to, out);
    } else {
        *out = shared_memory(&m->model->costs);
        if (m->model->costs.unbound > 0) {
            make_far(&m->model->costs, m->model->costs.unbound - 1, out);
        }
    }
}

/* The cores that make `nranks` ranks as crowded as the communicator is. 0: each rank has a core. */
static int cores_for(const struct kolo_model *model, int nranks)
{
    const double cores = (double)model->costs.cores * model->nhosts;
    if (cores >= model->nranks) {
        return 0;
    }
    const int scaled = (int)(cores * nranks / model->nranks + 0.5);
    return scaled > 0 ? scaled : 1;
}

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

/* Find the packages of the ranks. There are channels only if the packages of all ranks are known
 * and few. */
static void find_packages(struct kolo_model_machine *m)
{
    for (int r = 0; m->model->place != NULL && r < m->nranks; r++) {
        const int package = place_of(m, r)->package;
        if (package_index(m, package) < m->npackages) {
            continue;
        }
        if (package < 0 || m->npackages == KOLO_MODEL_PACKAGES) {
            m->npackages = 0;
            return;
        }
        m->package[m->npackages++] = package;
    }
}

void kolo_model_machine(const struct kolo_model *model, int nranks, const int *rank,
                        struct kolo_model_machine *out)
{
    const struct kolo_costs *costs = &model->costs;
    *out = (struct kolo_model_machine){.model = model, .nranks = nranks, .rank = rank};
    find_packages(out);
    find_ports(out);
    const bool alike =
        model->nhosts == 1 && model->place == NULL && costs->unbound == 0 && !model->by_messages;
    const bool cross = model->nhosts == 1 && out->npackages > 1;
    out->machine = (struct kolo_machine){.link = shared_memory(costs),
                                         .link_of = alike ? NULL : link_between,
                                         .port_of = model->nhosts > 1 ? port_of : NULL,
                                         .ctx = out,
                                         .copy_us_per_byte = costs->copy_us_per_byte,
                                         .reduce_us_per_byte = costs->reduce_us_per_byte,
                                         .step_us = costs->step_us,
                                         .switch_us = costs->switch_us,
                                         .cores = cores_for(model, nranks),
                                         .channels = cross ? out->npackages * out->npackages : 0,
                                         .outboxes = true};
}

static kolo_status price_whole(const struct kolo_model *model, const struct kolo_plan *plan,
                               const int *rank, const struct kolo_asking *about, double *out)
{
    struct kolo_model_machine m;
    struct kolo_price price;
    kolo_model_machine(model, plan->shape.nranks, rank, &m);
    m.machine.mapped = about->mapped;
    KOLO_TRY(kolo_price_plan(plan, about->bytes, 0, &m.machine, false, &price));
    *out = price.total_us;
    if (kolo_coll_rooted(plan->shape.coll)) { /* the next call begins before this one ends */
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
    const double crowd = model->nranks / ((double)model->costs.cores * model->nhosts);
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

/* Price the whole plan. Rank i of the shape is rank[i] of the model; NULL: rank i itself. */
static kolo_status forecast_whole(const struct kolo_model *model, const struct kolo_algo *algo,
                                  const struct kolo_shape *shape, const int *rank,
                                  const struct kolo_asking *about, struct kolo_forecast *out)
{
    struct kolo_plan *plan = NULL;
    /* Only the ways of messages between mapped buffers depend on the facts. */
    KOLO_TRY(kolo_plan_build(algo, shape, about->mapped ? -1 : KOLO_PLAN_PLAIN, &plan));
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
