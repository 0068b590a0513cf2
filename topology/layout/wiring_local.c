// SPDX-License-Identifier: Apache-2.0
/* Rings within a host, for three kinds of machine.
 *
 * 1. GPUs behind an NVSwitch: any order is as good as any other. No search.
 * 2. GPUs joined by direct links: the bound is the minimum cut, counted in links.
 *    - A full mesh has a closed form. Put n-1 GPUs on a circle and one in its middle. The zigzag
 *      0 1 -1 2 -2 ... meets each distance twice (n even) or, in directed steps, once (n odd).
 *      So turning it through all places uses every link alike (Lucas 1883, after Walecki).
 *    - Else the search runs, first for rings that can be used in both directions, then for any.
 *    - Links are cut in two or three if whole links do not suffice. Four GPUs with two links a
 *      pair have six rings; with one link a pair they do not have three.
 * 3. Other machines: rings also run over PCI and between NUMA nodes. A ring's rate is then a link's
 *    capacity divided by its number of rings. Sums of such rates are tried from the bound down. */
#include "topology/layout/pack.h"
#include "topology/layout/wiring.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 60000, TRIES = 12, RINGS_MAX = 16 };

static bool reserve_rings(struct kolo_wiring *w, int nrings)
{
    const size_t ints = (size_t)nrings * (size_t)w->ngpus;
    int *path = realloc(w->path, ints * sizeof *path);
    if (path == NULL) {
        return false;
    }
    w->path = path;
    return true;
}

static void keep_rings(struct kolo_wiring *w, int nrings, double rate, const int *path)
{
    memmove(w->path, path, (size_t)nrings * (size_t)w->ngpus * sizeof *path);
    w->nrings = nrings;
    w->ring_gbs = rate;
}

/* ---- NVSwitch ---- */

/* Make as many rings as a GPU has links, up to eight. Each begins at another GPU. */
static kolo_status fill_switched(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    const int n = w->ngpus;
    int links = 0;
    for (int i = 0; i < f->graph->nlinks; i++) {
        const struct kolo_graph_edge *l = &f->graph->link[i];
        const bool fast = l->kind == KOLO_LINK_NVLINK || l->kind == KOLO_LINK_XGMI;
        links = fast && (links == 0 || l->count < links) ? l->count : links;
    }
    const int nrings = links > 8 ? 8 : links > 0 ? links : 1;
    if (!reserve_rings(w, nrings)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", nrings);
    }
    for (int r = 0; r < nrings; r++) {
        for (int i = 0; i < n; i++) {
            w->path[r * n + i] = (i + r) % n;
        }
    }
    w->nrings = nrings;
    w->ring_gbs = w->bound_gbs / nrings;
    w->bound_links = f->unit_gbs > 0 ? links : 0;
    return KOLO_OK;
}

/* ---- full mesh ---- */

static int common_divisor(int a, int b)
{
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The greatest common divisor of the link counts, and whether all pairs have the same count. */
static int common_count(const struct kolo_fabric *f, bool *is_mesh)
{
    int common = 0, pairs = 0;
    bool same = true;
    for (int i = 0; i < f->graph->nlinks; i++) {
        const struct kolo_graph_edge *l = &f->graph->link[i];
        if (l->kind != KOLO_LINK_NVLINK && l->kind != KOLO_LINK_XGMI) {
            continue;
        }
        same = same && (common == 0 || common == l->count);
        common = common_divisor(l->count, common);
        pairs++;
    }
    *is_mesh = same && pairs == f->n * (f->n - 1) / 2;
    return common > 0 ? common : 1;
}

/* The place at step k of the zigzag 0 1 -1 2 -2 ... */
static int zigzag_place(int k)
{
    return k % 2 == 1 ? (k + 1) / 2 : -k / 2;
}

/* The zigzag on places 0..n-2, turned by t, with the GPU n-1 in the middle of the circle. */
static void mesh_ring(int n, int t, bool back, int *path)
{
    path[0] = n - 1;
    for (int k = 0; k < n - 1; k++) {
        const int at = back ? n - 2 - k : k;
        path[k + 1] = kolo_mod(zigzag_place(at) + t, n - 1);
    }
}

static kolo_status fill_mesh(struct kolo_wiring *w, double lane)
{
    const int n = w->ngpus;
    const bool odd = n % 2 == 1;
    const int nrings = n == 2 ? 1 : odd ? n - 1 : 2 * (n - 1);
    if (!reserve_rings(w, nrings)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", nrings);
    }
    for (int r = 0; r < nrings; r++) {
        mesh_ring(n, odd || n == 2 ? r : r / 2, !odd && r % 2 == 1, w->path + r * n);
    }
    w->nrings = nrings;
    w->ring_gbs = odd || n == 2 ? lane : lane / 2;
    return KOLO_OK;
}

/* ---- direct links of any shape ---- */

struct attempt {
    int nrings;
    double rate;
    bool mirrored, direct;
};

static enum kolo_packed try_pack(const struct kolo_fabric *f, const struct attempt *a, long *budget,
                                 int *out)
{
    enum kolo_packed result = KOLO_PACK_UNKNOWN;
    for (unsigned seed = 0; seed < TRIES && 0 < *budget && result == KOLO_PACK_UNKNOWN; seed++) {
        struct kolo_pack pack = {.fabric = f,
                                 .nrings = a->nrings,
                                 .rate_gbs = a->rate,
                                 .mirrored = a->mirrored,
                                 .direct = a->direct,
                                 .steps = *budget < STEPS / TRIES ? *budget : STEPS / TRIES,
                                 .seed = seed,
                                 .out = out};
        const long before = pack.steps;
        result = kolo_pack_rings(&pack);
        *budget -= before - pack.steps;
    }
    return result;
}

/* Search for as many rings as possible at a given part of a lane. True: the bound is reached. */
static bool search_part(struct kolo_wiring *w, const struct kolo_fabric *f, double lane, int parts,
                        long *budget, int *out)
{
    const int bound = (int)(w->bound_gbs * parts / lane + 1e-6);
    for (int k = bound < 3 * RINGS_MAX ? bound : 3 * RINGS_MAX; k > 0; k--) {
        const double rate = lane / parts;
        if (k * rate <= kolo_wiring_gbs(w) * (1 + 1e-9)) {
            return false; /* no gain */
        }
        struct attempt a = {k, rate, true, true};
        const bool even = k % 2 == 0 && try_pack(f, &a, budget, out) == KOLO_PACKED;
        a.mirrored = false;
        if (even || try_pack(f, &a, budget, out) == KOLO_PACKED) {
            keep_rings(w, k, rate, out);
            return k == bound && bound * rate > w->bound_gbs * (1 - 1e-6);
        }
    }
    return false;
}

static kolo_status fill_direct(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    bool is_mesh = false;
    const int common = common_count(f, &is_mesh);
    const double lane = common * f->unit_gbs;
    long budget = 8L * STEPS;
    const int most = 3 * RINGS_MAX;
    w->bound_links = (int)(w->bound_gbs / f->unit_gbs + 0.5);
    w->unit_gbs = f->unit_gbs;
    int *out = malloc((size_t)most * (size_t)w->ngpus * sizeof *out);
    if (out == NULL || !reserve_rings(w, most)) {
        free(out);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", most);
    }
    bool optimal = false;
    for (int parts = 1; parts <= 3 && !optimal; parts++) {
        /* Use the closed form if whole lanes do not suffice. */
        if (is_mesh && (parts == 2 || w->ngpus > 8)) {
            free(out);
            return fill_mesh(w, lane);
        }
        optimal = search_part(w, f, lane, parts, &budget, out);
    }
    free(out);
    return KOLO_OK;
}

/* ---- everything ---- */

enum { CAPACITIES = 24, SUMS = CAPACITIES * 8 * 8 };

struct sum {
    double total;
    int nrings;
};

static int compare_sums(const void *left, const void *right)
{
    const struct sum *a = left, *b = right;
    if (a->total < b->total * (1 - 1e-9) || a->total > b->total * (1 + 1e-9)) {
        return a->total > b->total ? -1 : 1;
    }
    return a->nrings < b->nrings ? -1 : a->nrings > b->nrings;
}

/* List the distinct capacities of the links on routes. */
static int list_capacities(const struct kolo_fabric *f, double *out)
{
    int count = 0;
    for (int i = 0; i < f->narcs && count < CAPACITIES; i++) {
        const double gbs = f->graph->link[f->arc[i] / 2].gbs;
        bool known = false;
        for (int k = 0; k < count; k++) {
            known = known || (out[k] > 0.999 * gbs && out[k] < 1.001 * gbs);
        }
        if (!known) {
            out[count++] = gbs;
        }
    }
    return count;
}

/* Add the sums of k rings that each have `capacity` / sharers, up to the bound. */
static int add_sums(double capacity, int k, double bound, int sums, struct sum *out)
{
    for (int sharers = 1; sharers <= k; sharers++) {
        const double total = k * capacity / sharers;
        if (total <= bound * (1 + 1e-6) && sums < SUMS) {
            out[sums++] = (struct sum){total, k};
        }
    }
    return sums;
}

/* List the sums of up to 8 rings within the bound: the largest sum first, and of equal sums the one
 * with the fewest rings. */
static int list_sums(const struct kolo_fabric *f, double bound, struct sum *out)
{
    double capacity[CAPACITIES];
    const int count = list_capacities(f, capacity);
    int sums = 0;
    for (int k = 1; k <= 8; k++) {
        for (int i = 0; i < count; i++) {
            sums = add_sums(capacity[i], k, bound, sums, out);
        }
    }
    qsort(out, (size_t)sums, sizeof *out, compare_sums);
    return sums;
}

static kolo_status fill_all(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    struct sum sums[SUMS];
    const int count = list_sums(f, w->bound_gbs, sums);
    long budget = 4L * STEPS;
    int *out = malloc((size_t)RINGS_MAX * (size_t)w->ngpus * sizeof *out);
    if (out == NULL || !reserve_rings(w, RINGS_MAX)) {
        free(out);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", RINGS_MAX);
    }
    for (int i = 0; i < count && w->nrings == 0 && budget > 0; i++) {
        const struct attempt a = {sums[i].nrings, sums[i].total / sums[i].nrings, false, false};
        if ((i == 0 || compare_sums(&sums[i - 1], &sums[i]) != 0) &&
            try_pack(f, &a, &budget, out) == KOLO_PACKED) {
            keep_rings(w, a.nrings, a.rate, out);
        }
    }
    free(out);
    return KOLO_OK;
}

/* If nothing else fits: one ring in the order of the GPUs, as fast as its slowest link allows. */
static kolo_status fill_simple(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    const int n = w->ngpus;
    int *uses = calloc(2 * (size_t)f->graph->nlinks + 1, sizeof *uses);
    if (uses == NULL || !reserve_rings(w, 1)) {
        free(uses);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a ring");
    }
    for (int i = 0; i < n; i++) {
        const struct kolo_route *r = &f->route[i * n + (i + 1) % n];
        w->path[i] = i;
        for (int k = 0; k < r->count; k++) {
            uses[f->arc[r->first + k]]++;
        }
    }
    w->nrings = 1;
    w->ring_gbs = w->bound_gbs;
    for (int i = 0; i < 2 * f->graph->nlinks; i++) {
        const double gbs = uses[i] > 0 ? f->graph->link[i / 2].gbs / uses[i] : w->ring_gbs;
        w->ring_gbs = gbs < w->ring_gbs ? gbs : w->ring_gbs;
    }
    for (int i = 0; i < n && n > 1; i++) {
        w->ring_gbs = f->route[i * n + (i + 1) % n].count == 0 ? 0 : w->ring_gbs;
    }
    free(uses);
    return KOLO_OK;
}

kolo_status kolo_wiring_local(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    w->over = f->switched                    ? KOLO_OVER_SWITCH
              : f->direct && f->unit_gbs > 0 ? KOLO_OVER_DIRECT
                                             : KOLO_OVER_ALL;
    w->unit_gbs = f->unit_gbs;
    w->bound_gbs = w->host_gbs = kolo_fabric_cut(f, w->over != KOLO_OVER_ALL);
    if (w->ngpus == 1) {
        return fill_simple(w, f);
    }
    if (w->over == KOLO_OVER_SWITCH) {
        return fill_switched(w, f);
    }
    if (w->over == KOLO_OVER_DIRECT) {
        KOLO_TRY(fill_direct(w, f));
        if (w->nrings > 0) {
            return KOLO_OK;
        }
        w->over = KOLO_OVER_ALL; /* no ring over direct links alone */
        w->bound_links = 0;
        w->bound_gbs = w->host_gbs = kolo_fabric_cut(f, false);
    }
    KOLO_TRY(fill_all(w, f));
    return w->nrings > 0 ? KOLO_OK : fill_simple(w, f);
}
