// SPDX-License-Identifier: Apache-2.0
/* Routes and cuts. The minimum cut is the least of the maximal flows from GPU 0 to each other GPU.
 * A set that separates any two GPUs separates GPU 0 from one of them, and links are as wide in both
 * directions. Maximal flows are found by shortest augmenting paths (Edmonds, Karp 1972,
 * doi:10.1145/321694.321699). */
#include "topology/layout/fabric.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

const char *kolo_path_name(enum kolo_path path)
{
    static const char *const names[KOLO_PATHS] = {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS", "none"};
    return names[path];
}

/* ---- how near ---- */

static int depth_of(const struct kolo_graph *graph, int node)
{
    int depth = 0;
    while ((node = graph->node[node].parent) >= 0) {
        depth++;
    }
    return depth;
}

/* The way over PCI from one node to another. */
struct climb {
    int top; /* the lowest node above both; -1: none */
    int links, switches;
};

static struct climb climb_from(const struct kolo_graph *graph, int a, int b)
{
    struct climb c = {.top = -1};
    int da = depth_of(graph, a), db = depth_of(graph, b);
    for (; a != b && a >= 0 && b >= 0; c.links++) {
        int *deeper = da >= db ? &a : &b;
        int *depth = da >= db ? &da : &db;
        *deeper = graph->node[*deeper].parent;
        (*depth)--;
        c.switches += *deeper >= 0 && graph->node[*deeper].kind == KOLO_NODE_SWITCH;
    }
    c.top = a == b ? a : -1;
    return c;
}

int kolo_pci_steps(const struct kolo_graph *graph, int a, int b)
{
    return climb_from(graph, a, b).links;
}

enum kolo_path kolo_pci_path(const struct kolo_graph *graph, int a, int b)
{
    const struct climb c = climb_from(graph, a, b);
    if (a == b) {
        return KOLO_PATH_LOC;
    }
    if (c.top < 0) {
        return KOLO_PATH_SYS;
    }
    const struct kolo_node *top = &graph->node[c.top];
    if (top->kind == KOLO_NODE_NUMA) {
        return top->number < 0 && top->cpus == NULL ? KOLO_PATH_SYS : KOLO_PATH_PHB;
    }
    return c.switches <= 2 ? KOLO_PATH_PIX : KOLO_PATH_PXB;
}

/* ---- routes ---- */

static int other_end(const struct kolo_graph_edge *link, int arc)
{
    return arc % 2 == 0 ? link->b : link->a;
}

static int this_end(const struct kolo_graph_edge *link, int arc)
{
    return arc % 2 == 0 ? link->a : link->b;
}

/* The best known route to a node: its width, its length, and its last arc. */
struct reach {
    double width;
    int hops, arc;
    bool done;
};

static bool is_better(double width, int hops, const struct reach *than)
{
    return width > than->width || (width >= than->width && hops < than->hops);
}

static void spread_reach(const struct kolo_graph *graph, int from, int b, struct reach *reach)
{
    for (int i = 0; i < 2 * graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i / 2];
        const int to = other_end(link, i);
        if (this_end(link, i) != from || (to != b && graph->node[to].kind == KOLO_NODE_GPU)) {
            continue;
        }
        const double width = link->gbs < reach[from].width ? link->gbs : reach[from].width;
        if (!reach[to].done && is_better(width, reach[from].hops + 1, &reach[to])) {
            reach[to] = (struct reach){width, reach[from].hops + 1, i, false};
        }
    }
}

int kolo_graph_route(const struct kolo_graph *graph, int a, int b, int *out, int most)
{
    struct reach *reach = calloc((size_t)graph->nnodes, sizeof *reach);
    int count = -1;
    if (reach == NULL) {
        return -1;
    }
    reach[a] = (struct reach){DBL_MAX, 0, -1, false};
    for (int at = a; at >= 0 && at != b;) {
        reach[at].done = true;
        spread_reach(graph, at, b, reach);
        at = -1;
        for (int i = 0; i < graph->nnodes; i++) {
            const bool open = !reach[i].done && reach[i].width > 0;
            if (open && (at < 0 || is_better(reach[i].width, reach[i].hops, &reach[at]))) {
                at = i;
            }
        }
    }
    if (reach[b].width > 0 && reach[b].hops <= most) {
        count = reach[b].hops;
        for (int at = b, i = count - 1; i >= 0; i--) {
            out[i] = reach[at].arc;
            at = this_end(&graph->link[out[i] / 2], out[i]);
        }
    }
    free(reach);
    return count;
}

/* ---- making ---- */

static bool is_fast(const struct kolo_graph_edge *link)
{
    return link->kind == KOLO_LINK_NVLINK || link->kind == KOLO_LINK_XGMI;
}

static bool push_arcs(struct kolo_fabric *f, const int *arcs, int count)
{
    if (f->narcs + count > f->arc_room) {
        const int room = 2 * f->arc_room + count + 64;
        int *grown = realloc(f->arc, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        f->arc = grown;
        f->arc_room = room;
    }
    for (int i = 0; i < count; i++) {
        f->arc[f->narcs++] = arcs[i];
    }
    return true;
}

/* Write the arcs of the direct link, or of the route over the NVSwitch. Returns their number; 0: no
 * such route. */
static int fast_route(const struct kolo_graph *graph, int a, int b, int *out)
{
    int up = -1, down = -1;
    for (int i = 0; i < 2 * graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i / 2];
        const int from = this_end(link, i), to = other_end(link, i);
        if (!is_fast(link)) {
            continue;
        }
        if (from == a && to == b) {
            out[0] = i;
            return 1;
        }
        up = from == a && graph->node[to].kind == KOLO_NODE_NVSWITCH ? i : up;
        down = to == b && graph->node[from].kind == KOLO_NODE_NVSWITCH ? i : down;
    }
    out[0] = up;
    out[1] = down;
    return up >= 0 && down >= 0 ? 2 : 0;
}

static kolo_status add_route(struct kolo_fabric *f, int i, int j)
{
    int arcs[64];
    const int a = f->graph->gpu[i], b = f->graph->gpu[j];
    struct kolo_route *route = &f->route[i * f->n + j];
    int count = i != j ? fast_route(f->graph, a, b, arcs) : 0;
    *route = (struct kolo_route){.path = count > 0 ? KOLO_PATH_NVL : kolo_pci_path(f->graph, a, b),
                                 .first = f->narcs};
    if (count == 0 && i != j) {
        count = kolo_graph_route(f->graph, a, b, arcs, (int)KOLO_LENGTH(arcs));
        route->path = count < 0 ? KOLO_PATH_NONE : route->path;
        count = count < 0 ? 0 : count;
    }
    route->count = count;
    route->gbs = i == j ? 0 : DBL_MAX;
    for (int k = 0; k < count; k++) {
        const double gbs = f->graph->link[arcs[k] / 2].gbs;
        route->gbs = gbs < route->gbs ? gbs : route->gbs;
    }
    route->gbs = count == 0 ? 0 : route->gbs;
    return push_arcs(f, arcs, count) ? KOLO_OK
                                     : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for routes");
}

/* Mark the GPUs that an NVL route joins to GPU i, and count the new ones. */
static int reach_by_nvlink(const struct kolo_fabric *f, int i, unsigned char *seen)
{
    int reached = 0;
    for (int j = 0; j < f->n; j++) {
        if (seen[j] == 0 && f->route[i * f->n + j].path == KOLO_PATH_NVL) {
            seen[j] = 1;
            reached++;
        }
    }
    return reached;
}

/* Find out whether NVL routes alone join all GPUs, and whether each such route crosses the
 * NVSwitch. */
static void classify_routes(struct kolo_fabric *f)
{
    unsigned char seen[KOLO_FABRIC_GPUS_MAX] = {1};
    int reached = 1;
    for (int before = 0; before < reached;) {
        before = reached;
        for (int i = 0; i < f->n; i++) {
            reached += seen[i] != 0 ? reach_by_nvlink(f, i, seen) : 0;
        }
    }
    f->direct = f->n > 1 && reached == f->n;
    f->switched = f->direct;
    for (int i = 0; i < f->n; i++) {
        for (int j = 0; j < f->n; j++) {
            f->switched = f->switched && (i == j || f->route[i * f->n + j].count == 2);
        }
    }
    for (int l = 0; l < f->graph->nlinks; l++) {
        const struct kolo_graph_edge *link = &f->graph->link[l];
        const double unit = link->gbs / link->count;
        if (is_fast(link)) {
            const bool same =
                f->unit_gbs == 0 || (unit > 0.999 * f->unit_gbs && unit < 1.001 * f->unit_gbs);
            f->unit_gbs = same ? unit : -1;
        }
    }
    f->unit_gbs = f->unit_gbs < 0 ? 0 : f->unit_gbs;
}

kolo_status kolo_fabric_make(const struct kolo_graph *graph, struct kolo_fabric *out)
{
    struct kolo_fabric f = {.graph = graph, .n = graph->ngpus};
    kolo_status st = KOLO_OK;
    if (f.n == 0 || f.n > KOLO_FABRIC_GPUS_MAX) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s: %d GPUs; a host of 1 to %d is planned",
                         graph->source, f.n, KOLO_FABRIC_GPUS_MAX);
    }
    f.route = calloc((size_t)f.n * (size_t)f.n, sizeof *f.route);
    if (f.route == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the routes of %d GPUs", f.n);
    }
    for (int i = 0; i < f.n && st == KOLO_OK; i++) {
        for (int j = 0; j < f.n && st == KOLO_OK; j++) {
            st = add_route(&f, i, j);
        }
    }
    if (st < 0) {
        kolo_fabric_free(&f);
        return st;
    }
    classify_routes(&f);
    *out = f;
    return KOLO_OK;
}

void kolo_fabric_free(struct kolo_fabric *fabric)
{
    free(fabric->route);
    free(fabric->arc);
    *fabric = (struct kolo_fabric){0};
}

/* ---- the cut ---- */

struct flow {
    const struct kolo_graph *graph;
    double *left;        /* [arcs] */
    int *by;             /* [nodes] last arc to a node; -1 a source, -2 not reached */
    int *queue;          /* [nodes] */
    unsigned char *role; /* [nodes] SOURCE, SINK or 0 */
    bool direct;
};
enum { SOURCE = 1, SINK = 2 };

/* Find a shortest path with capacity left. Returns the sink that it leads to; -1: no path. */
static int find_way(struct flow *f)
{
    int head = 0, tail = 0;
    for (int i = 0; i < f->graph->nnodes; i++) {
        f->by[i] = f->role[i] == SOURCE ? -1 : -2;
        if (f->role[i] == SOURCE) {
            f->queue[tail++] = i;
        }
    }
    while (head < tail) {
        const int at = f->queue[head++];
        if (f->role[at] == SINK) {
            return at;
        }
        for (int i = 0; i < 2 * f->graph->nlinks; i++) {
            const struct kolo_graph_edge *link = &f->graph->link[i / 2];
            const int to = other_end(link, i);
            if (this_end(link, i) == at && f->by[to] == -2 && f->left[i] > 1e-9 &&
                (!f->direct || is_fast(link))) {
                f->by[to] = i;
                f->queue[tail++] = to;
            }
        }
    }
    return -1;
}

static double max_flow(struct flow *f)
{
    double total = 0;
    for (int i = 0; i < 2 * f->graph->nlinks; i++) {
        f->left[i] = f->graph->link[i / 2].gbs;
    }
    for (int sink; (sink = find_way(f)) >= 0;) {
        double least = DBL_MAX;
        for (int at = sink; f->by[at] >= 0;) {
            const int arc = f->by[at];
            least = f->left[arc] < least ? f->left[arc] : least;
            at = this_end(&f->graph->link[arc / 2], arc);
        }
        for (int at = sink; f->by[at] >= 0;) {
            const int arc = f->by[at];
            f->left[arc] -= least;
            f->left[arc ^ 1] += least;
            at = this_end(&f->graph->link[arc / 2], arc);
        }
        total += least;
    }
    return total;
}

static bool open_flow(const struct kolo_fabric *fabric, bool direct, struct flow *f)
{
    const size_t nodes = (size_t)fabric->graph->nnodes;
    *f = (struct flow){.graph = fabric->graph, .direct = direct};
    f->left = malloc((2 * (size_t)fabric->graph->nlinks + 1) * sizeof *f->left);
    f->by = malloc(nodes * sizeof *f->by);
    f->queue = malloc(nodes * sizeof *f->queue);
    f->role = calloc(nodes, 1);
    return f->left != NULL && f->by != NULL && f->queue != NULL && f->role != NULL;
}

static void close_flow(struct flow *f)
{
    free(f->left);
    free(f->by);
    free(f->queue);
    free(f->role);
}

double kolo_fabric_cut(const struct kolo_fabric *fabric, bool direct)
{
    const int *gpu = fabric->graph->gpu;
    struct flow f;
    double least = DBL_MAX;
    const bool fits = open_flow(fabric, direct, &f);
    for (int i = 1; i < fabric->n && fits; i++) {
        f.role[gpu[0]] = SOURCE;
        f.role[gpu[i]] = SINK;
        const double flow = max_flow(&f);
        f.role[gpu[i]] = 0;
        least = flow < least ? flow : least;
    }
    close_flow(&f);
    return least < DBL_MAX ? least : 0;
}

double kolo_fabric_cut_of(const struct kolo_fabric *fabric, bool direct,
                          const unsigned char *in_set)
{
    struct flow f;
    double flow = 0;
    if (open_flow(fabric, direct, &f)) {
        for (int i = 0; i < fabric->n; i++) {
            f.role[fabric->graph->gpu[i]] = in_set[i] != 0 ? SOURCE : SINK;
        }
        flow = max_flow(&f);
    }
    close_flow(&f);
    return flow;
}
