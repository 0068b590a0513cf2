// SPDX-License-Identifier: Apache-2.0
/* Rings over many hosts. A ring enters a host by one NIC and leaves it by one. Each NIC is used
 * once in each direction.
 *
 * - Two GPUs are near a NIC: the ring enters at one GPU and leaves from the other, through the same
 *   NIC.
 * - One GPU is near a NIC: two NICs are paired. Ring 0 enters by the first and leaves by the
 *   second, ring 1 the other way round. Odd hosts run the path backwards, so a NIC sends to the
 *   same NIC of the next host. Rails are crossed only at the end of a ring over an odd number of
 *   hosts.
 *
 * The bound: a ring whose two ends in a host are on the same side of a cut crosses the cut both
 * ways. Any other ring crosses it at least once. Take R rings of rate b, r of them with ends on
 * both sides of a set S of GPUs. Then (2R - r) b is at most twice the capacity out of S. The sets
 * tried are single GPUs and the GPUs below each node of the PCI tree. Besides, all rings together
 * carry no more than the NICs. */
#include "topology/layout/pack.h"
#include "topology/layout/wiring.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NICS_MAX = 64, STEPS = 20000 };

/* ---- NICs ---- */

static double nic_gbs(const struct kolo_graph *g, int nic)
{
    const struct kolo_node *node = &g->node[nic];
    const struct kolo_graph_edge *link =
        node->parent >= 0 ? kolo_graph_link(g, nic, node->parent, KOLO_LINK_PCI) : NULL;
    const double pci = link != NULL ? link->gbs : kolo_pci_gbs_usual(0);
    return node->gbs > 0 && node->gbs < pci ? node->gbs : pci;
}

/* Choose the NICs that carry rings: NICs with RDMA, if any has it, those on PCI, if any is, and at
 * least half as fast as the fastest. That leaves out the Ethernet port for logging in. */
static int choose_nics(const struct kolo_graph *g, int *out)
{
    bool rdma = false, on_pci = false;
    double most = 0;
    int count = 0;
    for (int i = 0; i < g->nnics; i++) {
        rdma = rdma || g->node[g->nic[i]].rdma == 1;
        on_pci = on_pci || g->node[g->nic[i]].bus != KOLO_BUS_NONE;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->nnics; i++) {
            const double gbs = nic_gbs(g, g->nic[i]);
            if ((rdma && g->node[g->nic[i]].rdma == 0) ||
                (on_pci && g->node[g->nic[i]].bus == KOLO_BUS_NONE)) {
                continue;
            }
            if (pass == 0) {
                most = gbs > most ? gbs : most;
            } else if (gbs >= most / 2 && count < NICS_MAX) {
                out[count++] = i;
            }
        }
    }
    return count;
}

static enum kolo_path near_of(const struct kolo_graph *g, int gpu, int nic)
{
    return kolo_pci_path(g, g->gpu[gpu], g->nic[nic]);
}

/* How far a GPU is from a NIC: by path, and among equal paths by the number of links. */
static int distance_of(const struct kolo_graph *g, int gpu, int nic)
{
    enum { LINKS_MOST = 1000 };
    const int steps = kolo_pci_steps(g, g->gpu[gpu], g->nic[nic]);
    return (int)near_of(g, gpu, nic) * LINKS_MOST + (steps < LINKS_MOST ? steps : LINKS_MOST - 1);
}

/* The nearest NIC, as a place in nics[]; among equally near NICs the one with the fewest GPUs, then
 * the first. */
static int nearest_nic(const struct kolo_graph *g, int gpu, const int *nics, int count,
                       const int *uses)
{
    int best = 0;
    for (int k = 1; k < count; k++) {
        const int far = distance_of(g, gpu, nics[k]), least = distance_of(g, gpu, nics[best]);
        best = far < least || (far == least && uses[k] < uses[best]) ? k : best;
    }
    return best;
}

/* Give each GPU its nearest NIC. The GPUs that are nearest to a NIC choose first, so that the others
 * find the NICs that are not in use. */
static void assign_nics(struct kolo_wiring *w, const int *nics, int count)
{
    int uses[NICS_MAX] = {0};
    for (int i = 0; i < w->ngpus; i++) {
        w->nic_of[i] = -1;
        w->nic_path[i] = KOLO_PATH_NONE;
    }
    for (int path = 0; path < KOLO_PATHS && count > 0; path++) {
        for (int i = 0; i < w->ngpus; i++) {
            const int best = nearest_nic(w->graph, i, nics, count, uses);
            if (w->nic_of[i] < 0 && (int)near_of(w->graph, i, nics[best]) == path) {
                w->nic_of[i] = nics[best];
                w->nic_path[i] = (enum kolo_path)path;
                uses[best]++;
            }
        }
    }
}

/* ---- ends ---- */

struct ends {
    const struct kolo_graph *g;
    int n;
    int nics[NICS_MAX], count;
    int entries[KOLO_FABRIC_GPUS_MAX], exits[KOLO_FABRIC_GPUS_MAX]; /* uses of each GPU */
};

/* The GPU nearest to a NIC, except GPU `other`; among equals the least used, then the first. */
static int nearest_gpu(const struct ends *e, int nic, const int *uses, int other)
{
    int best = -1;
    for (int i = 0; i < e->n; i++) {
        if (i == other) {
            continue;
        }
        const int far = distance_of(e->g, i, nic);
        const int least = best >= 0 ? distance_of(e->g, best, nic) : INT_MAX;
        if (far < least || (far == least && uses[i] < uses[best])) {
            best = i;
        }
    }
    return best;
}

/* Number of GPUs at the smallest distance from a NIC. */
static int count_near(const struct ends *e, int nic)
{
    const int best = nearest_gpu(e, nic, e->entries, -1);
    int count = 0;
    for (int i = 0; i < e->n; i++) {
        count += distance_of(e->g, i, nic) == distance_of(e->g, best, nic);
    }
    return count;
}

static void set_rail(struct ends *e, struct kolo_rail *rail, int in, int out, bool turns)
{
    const int entry = nearest_gpu(e, in, e->entries, -1);
    const int exit = e->n == 1 ? entry : nearest_gpu(e, out, e->exits, entry);
    e->entries[entry]++;
    e->exits[exit]++;
    *rail = (struct kolo_rail){.entry = entry,
                               .exit = exit,
                               .in = in,
                               .out = out,
                               .in_path = near_of(e->g, entry, in),
                               .out_path = near_of(e->g, exit, out),
                               .turns = turns};
}

static void set_rails(struct ends *e, struct kolo_rail *rail)
{
    int waiting = -1; /* a NIC with one GPU and no partner yet */
    for (int k = 0; k < e->count; k++) {
        if (e->n == 1 || count_near(e, e->nics[k]) > 1) {
            set_rail(e, &rail[k], e->nics[k], e->nics[k], false);
        } else if (waiting < 0) {
            waiting = k;
        } else {
            set_rail(e, &rail[waiting], e->nics[waiting], e->nics[k], true);
            set_rail(e, &rail[k], e->nics[k], e->nics[waiting], true);
            waiting = -1;
        }
    }
    if (waiting >= 0) {
        set_rail(e, &rail[waiting], e->nics[waiting], e->nics[waiting], false);
    }
}

/* ---- paths ---- */

/* Behind an NVSwitch: the path goes from entry to exit, and takes the others in order. */
static void fill_switched(const struct kolo_wiring *w, const struct kolo_rail *rail, int *path)
{
    const int n = w->ngpus;
    int count = 0;
    path[count++] = rail->entry;
    for (int i = 1; i < n; i++) {
        const int gpu = (rail->entry + i) % n;
        if (gpu != rail->exit) {
            path[count++] = gpu;
        }
    }
    if (n > 1) {
        path[count] = rail->exit;
    }
}

/* Add the traffic between NICs and GPUs to the use of the links on its routes. */
static void take_nic_ways(const struct kolo_wiring *w, double rate, double *used)
{
    int arcs[64];
    for (int k = 0; k < w->nrings; k++) {
        const struct kolo_rail *r = &w->rail[k];
        const int ends[2][2] = {{w->graph->nic[r->in], w->graph->gpu[r->entry]},
                                {w->graph->gpu[r->exit], w->graph->nic[r->out]}};
        for (int e = 0; e < 2; e++) {
            const int count =
                kolo_graph_route(w->graph, ends[e][0], ends[e][1], arcs, (int)KOLO_LENGTH(arcs));
            for (int i = 0; i < count; i++) {
                used[arcs[i]] += rate;
            }
        }
    }
}

static bool any_overfull(const struct kolo_graph *g, const double *used)
{
    for (int i = 0; i < 2 * g->nlinks; i++) {
        if (used[i] > g->link[i / 2].gbs * (1 + 1e-6)) {
            return true;
        }
    }
    return false;
}

static enum kolo_packed pack_at(struct kolo_wiring *w, const struct kolo_fabric *f, double rate,
                                const int *entry, const int *exit, double *used)
{
    enum kolo_packed result = KOLO_PACK_UNKNOWN;
    memset(used, 0, 2 * (size_t)w->graph->nlinks * sizeof *used);
    take_nic_ways(w, rate, used);
    if (any_overfull(w->graph, used)) {
        return KOLO_PACK_IMPOSSIBLE;
    }
    for (unsigned seed = 0; seed < 4 && result == KOLO_PACK_UNKNOWN; seed++) {
        struct kolo_pack pack = {.fabric = f,
                                 .nrings = w->nrings,
                                 .rate_gbs = rate,
                                 .direct = w->over == KOLO_OVER_DIRECT,
                                 .entry = entry,
                                 .exit = exit,
                                 .used = used,
                                 .steps = STEPS / 4,
                                 .seed = seed,
                                 .out = w->path};
        result = kolo_pack_rings(&pack);
    }
    return result;
}

/* Pack the paths at the rate that NICs and host allow. After a failure, lower it by a tenth. */
static kolo_status pack_paths(struct kolo_wiring *w, const struct kolo_fabric *f, double rate)
{
    int entry[NICS_MAX], exit[NICS_MAX];
    double *used = malloc((2 * (size_t)w->graph->nlinks + 1) * sizeof *used);
    enum kolo_packed result = KOLO_PACK_UNKNOWN;
    if (used == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", w->nrings);
    }
    for (int k = 0; k < w->nrings; k++) {
        entry[k] = w->rail[k].entry;
        exit[k] = w->rail[k].exit;
    }
    for (int tenth = 10; tenth > 0 && result != KOLO_PACKED; tenth--) {
        w->ring_gbs = rate * tenth / 10;
        result = pack_at(w, f, w->ring_gbs, entry, exit, used);
    }
    free(used);
    for (int k = 0; k < w->nrings && result != KOLO_PACKED; k++) {
        w->ring_gbs = 0;
        fill_switched(w, &w->rail[k], w->path + k * w->ngpus); /* any path */
    }
    return KOLO_OK;
}

/* ---- the bound ---- */

static double bound_of(const struct kolo_wiring *w, const struct kolo_fabric *f,
                       const unsigned char *in_set)
{
    int members = 0, apart = 0;
    for (int i = 0; i < w->ngpus; i++) {
        members += in_set[i] != 0;
    }
    for (int k = 0; k < w->nrings; k++) {
        apart += in_set[w->rail[k].entry] != in_set[w->rail[k].exit];
    }
    if (members == 0 || members == w->ngpus) {
        return INFINITY;
    }
    const double cut = kolo_fabric_cut_of(f, w->over != KOLO_OVER_ALL, in_set);
    return 2 * cut * w->nrings / (2 * w->nrings - apart);
}

static bool is_below(const struct kolo_graph *g, int node, int above)
{
    while (node >= 0 && node != above) {
        node = g->node[node].parent;
    }
    return node == above;
}

/* The bound of a host. With an NVSwitch or direct links, single GPUs suffice: no other set is
 * narrower. */
static double host_bound(const struct kolo_wiring *w, const struct kolo_fabric *f)
{
    unsigned char in_set[KOLO_FABRIC_GPUS_MAX];
    double least = INFINITY;
    for (int node = 0; node < w->graph->nnodes; node++) {
        const enum kolo_node_kind kind = w->graph->node[node].kind;
        const bool group = kind == KOLO_NODE_NUMA || kind == KOLO_NODE_SWITCH;
        if (kind != KOLO_NODE_GPU && !(group && w->over == KOLO_OVER_ALL)) {
            continue;
        }
        for (int i = 0; i < w->ngpus; i++) {
            in_set[i] = is_below(w->graph, w->graph->gpu[i], node);
        }
        least = fmin(least, bound_of(w, f, in_set));
    }
    return least;
}

/* Rate of a rail: the least of its NICs and of the routes between NICs and GPUs. */
static double rail_gbs(const struct kolo_wiring *w, const struct kolo_rail *rail)
{
    const struct kolo_graph *g = w->graph;
    const int ends[2][2] = {{g->nic[rail->in], g->gpu[rail->entry]},
                            {g->gpu[rail->exit], g->nic[rail->out]}};
    double gbs = fmin(nic_gbs(g, ends[0][0]), nic_gbs(g, ends[1][1]));
    int arcs[64];
    for (int e = 0; e < 2; e++) {
        const int count = kolo_graph_route(g, ends[e][0], ends[e][1], arcs, (int)KOLO_LENGTH(arcs));
        gbs = count < 0 ? 0 : gbs;
        for (int i = 0; i < count; i++) {
            gbs = fmin(gbs, g->link[arcs[i] / 2].gbs);
        }
    }
    return gbs;
}

/* Lower the rate until it fits each GPU's links to the NVSwitch, inwards and outwards. */
static double switched_rate(const struct kolo_wiring *w, const struct kolo_fabric *f,
                            const struct ends *e, double rate)
{
    const double each = kolo_fabric_cut(f, true);
    for (int i = 0; i < w->ngpus; i++) {
        const int least = e->entries[i] < e->exits[i] ? e->entries[i] : e->exits[i];
        const int passes = w->nrings - least;
        rate = passes > 0 ? fmin(rate, each / passes) : rate;
    }
    return rate;
}

static kolo_status lay_rails(struct kolo_wiring *w, const struct kolo_fabric *f, struct ends *e)
{
    double least = INFINITY;
    w->nrings = e->count;
    w->nic_gbs = 0;
    w->bound_links = 0;
    set_rails(e, w->rail);
    for (int k = 0; k < e->count; k++) {
        const double gbs = rail_gbs(w, &w->rail[k]);
        w->nic_gbs += gbs;
        least = fmin(least, gbs);
    }
    const double host = host_bound(w, f);
    w->host_gbs = w->ngpus > 1 ? host : 0;
    w->bound_gbs = fmin(w->nic_gbs, host);
    w->ring_gbs = fmin(least, w->bound_gbs / e->count);
    if (w->over != KOLO_OVER_SWITCH && w->ngpus > 1) {
        return pack_paths(w, f, w->ring_gbs);
    }
    for (int k = 0; k < e->count; k++) {
        fill_switched(w, &w->rail[k], w->path + k * w->ngpus);
    }
    if (w->ngpus > 1) {
        w->ring_gbs = switched_rate(w, f, e, w->ring_gbs);
    }
    return KOLO_OK;
}

kolo_status kolo_wiring_rails(struct kolo_wiring *w, const struct kolo_fabric *f)
{
    struct ends e = {.g = w->graph, .n = w->ngpus};
    e.count = choose_nics(w->graph, e.nics);
    assign_nics(w, e.nics, e.count);
    if (w->nhosts == 1 || e.count == 0) {
        return KOLO_OK;
    }
    w->rail = calloc((size_t)e.count, sizeof *w->rail);
    int *path = realloc(w->path, (size_t)e.count * (size_t)w->ngpus * sizeof *path);
    w->path = path != NULL ? path : w->path;
    if (w->rail == NULL || path == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rails", e.count);
    }
    return lay_rails(w, f, &e);
}
