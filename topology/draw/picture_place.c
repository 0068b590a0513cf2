// SPDX-License-Identifier: Apache-2.0
/* Places the nodes of a machine's picture. Each GPU and each stack of NICs has a column, in the order
 * of the PCI tree. A switch is centred below its devices. All nodes below a child of a NUMA node are in
 * one band. */
#include "topology/draw/picture_place.h"

#include <math.h>
#include <stdlib.h>

static const double left_px = 20, numa_gap_px = 30;

bool kolo_places_is_leaf(const struct kolo_node *n)
{
    return n->kind == KOLO_NODE_GPU || n->kind == KOLO_NODE_NIC || n->kind == KOLO_NODE_DEVICE;
}

static bool is_stackable(const struct kolo_node *n)
{
    return n->kind == KOLO_NODE_NIC || n->kind == KOLO_NODE_DEVICE;
}

/* ---- columns ---- */

/* A child's place among the NICs of its parent, and how many there are. */
static int stack_place(const struct kolo_graph *g, int child, int *count)
{
    int place = 0;
    *count = 0;
    for (int i = 0; i < g->nnodes; i++) {
        if (g->node[i].parent == g->node[child].parent && is_stackable(&g->node[i])) {
            place += i < child;
            (*count)++;
        }
    }
    return place;
}

static int stack_height(int count)
{
    return count <= 2 ? 1 : count <= 16 ? 4 : 6;
}

/* The NIC below which a stacked one is placed: the one before it among its siblings. */
static int stacked_on(const struct kolo_graph *g, int leaf)
{
    int i = leaf - 1;
    while (g->node[i].parent != g->node[leaf].parent || !is_stackable(&g->node[i])) {
        i--;
    }
    return i;
}

/* Place a GPU in a column, or a NIC in the column of its stack. Returns the x behind the columns in
 * use. */
static double place_leaf(struct kolo_places *p, int leaf, int band, double x)
{
    int count = 0, row = 0;
    if (is_stackable(&p->g->node[leaf])) {
        const int place = stack_place(p->g, leaf, &count), height = stack_height(count);
        const int first = place - place % height;
        row = place % height;
        p->stack[leaf] = height == 1 ? 0 : count - first < height ? count - first : height;
    }
    p->row[leaf] = row;
    if (row > 0) {
        const int before = stacked_on(p->g, leaf);
        p->at[leaf].x = p->at[before].x;
        p->band[leaf] = p->band[before];
        return x;
    }
    p->at[leaf].x = x + KOLO_COLUMN_PX / 2.0;
    p->band[leaf] = band;
    return x + KOLO_COLUMN_PX;
}

/* Place the leaves below `root`, from x on. Returns the x behind the last column. The walk needs no
 * stack, because each node knows its parent. */
static double place_below(struct kolo_places *p, int root, int band, double x)
{
    int at = root, after = -1;
    p->depth[root] = 1;
    p->band[root] = band;
    if (kolo_places_is_leaf(&p->g->node[root])) {
        return place_leaf(p, root, band, x);
    }
    for (;;) {
        const int child = kolo_graph_next_child(p->g, at, after);
        if (child >= 0) {
            p->depth[child] = p->depth[at] + 1;
            p->band[child] = band;
            x = kolo_places_is_leaf(&p->g->node[child]) ? place_leaf(p, child, band, x) : x;
            at = child;
            after = -1;
            continue;
        }
        if (at == root) {
            return x;
        }
        after = at;
        at = p->g->node[at].parent;
    }
}

/* The next NUMA node in the order of numbers; one without a number comes last. */
static int next_numa(const struct kolo_graph *g, int after)
{
    int best = -1;
    for (int i = 0; i < g->nnodes; i++) {
        const unsigned number = (unsigned)g->node[i].number;
        const unsigned before = after >= 0 ? (unsigned)g->node[after].number : 0;
        const bool later = after < 0 || number > before || (number == before && i > after);
        if (g->node[i].kind == KOLO_NODE_NUMA && later &&
            (best < 0 || number < (unsigned)g->node[best].number)) {
            best = i;
        }
    }
    return best;
}

struct cursor {
    double x;
    int band;
};

static void end_box(struct kolo_places *p, int numa, const struct cursor *c, double begin)
{
    const double x = (begin + fmax(c->x, begin + KOLO_NUMA_PX + 10)) / 2;
    p->boxes[p->nboxes++] = (struct kolo_numa_box){numa, c->band, x};
    if (p->at[numa].x < 0) {
        p->at[numa].x = x;
        p->band[numa] = c->band;
    }
}

static void place_numa(struct kolo_places *p, int numa, struct cursor *c)
{
    double begin = c->x;
    bool first = c->x <= left_px; /* of its band */
    if (!first && c->x + KOLO_NUMA_PX > KOLO_PAGE_PX) {
        *c = (struct cursor){left_px, c->band + 1};
        begin = left_px;
        first = true;
    }
    for (int i = kolo_graph_next_child(p->g, numa, -1); i >= 0;
         i = kolo_graph_next_child(p->g, numa, i)) {
        double x = place_below(p, i, c->band, c->x);
        if (x > KOLO_PAGE_PX && !first && x > c->x) {
            if (c->x > begin) {
                end_box(p, numa, c, begin);
            }
            *c = (struct cursor){left_px, c->band + 1};
            begin = left_px;
            x = place_below(p, i, c->band, c->x);
        }
        c->x = x;
        first = false;
    }
    end_box(p, numa, c, begin);
    c->x = fmax(c->x, begin + KOLO_NUMA_PX + 10) + numa_gap_px;
}

static void place_columns(struct kolo_places *p)
{
    struct cursor c = {left_px, 0};
    for (int numa = next_numa(p->g, -1); numa >= 0; numa = next_numa(p->g, numa)) {
        place_numa(p, numa, &c);
    }
    for (int i = 0; i < p->g->nnodes; i++) {
        const struct kolo_node *n = &p->g->node[i];
        if (n->parent < 0 && n->kind != KOLO_NODE_NUMA && n->kind != KOLO_NODE_NVSWITCH &&
            n->kind != KOLO_NODE_INTERFACE) {
            if (c.x > left_px && c.x + KOLO_COLUMN_PX > KOLO_PAGE_PX) {
                c = (struct cursor){left_px, c.band + 1};
            }
            c.x = place_below(p, i, c.band, c.x);
        }
    }
    p->nbands = c.band + 1;
}

/* Children come after their parents in the graph. So a pass from the end finds them already placed.
 */
static void place_switches(struct kolo_places *p)
{
    for (int i = p->g->nnodes - 1; i >= 0; i--) {
        double low = INFINITY, high = -INFINITY;
        if (p->at[i].x >= 0) {
            continue;
        }
        for (int k = kolo_graph_next_child(p->g, i, i); k >= 0;
             k = kolo_graph_next_child(p->g, i, k)) {
            if (p->at[k].x >= 0) {
                low = fmin(low, p->at[k].x);
                high = fmax(high, p->at[k].x);
            }
        }
        p->at[i].x = low <= high ? (low + high) / 2 : -1;
    }
}

/* ---- rows ---- */

double kolo_places_arc(const struct kolo_places *p, const struct kolo_graph_edge *l)
{
    return fmin(110, 14 + 0.11 * fabs(p->at[l->a].x - p->at[l->b].x));
}

static void measure_bands(struct kolo_places *p)
{
    const struct kolo_graph *g = p->g;
    for (int i = 0; i < g->nnodes; i++) {
        struct kolo_band *b = &p->bands[p->band[i]];
        const enum kolo_node_kind kind = g->node[i].kind;
        if (p->at[i].x < 0) {
            continue;
        }
        b->gpus = b->gpus || kind == KOLO_NODE_GPU;
        b->rows = is_stackable(&g->node[i]) && p->row[i] >= b->rows ? p->row[i] + 1 : b->rows;
        b->deepest =
            kind == KOLO_NODE_SWITCH && p->depth[i] > b->deepest ? p->depth[i] : b->deepest;
    }
    for (int i = 0; i < g->nlinks; i++) {
        const struct kolo_graph_edge *l = &g->link[i];
        struct kolo_band *b = &p->bands[p->band[l->a]];
        if (p->band[l->a] == p->band[l->b] && p->at[l->a].x >= 0 && p->at[l->b].x >= 0) {
            const bool gpus =
                g->node[l->a].kind == KOLO_NODE_GPU && g->node[l->b].kind == KOLO_NODE_GPU;
            b->arcs = gpus ? fmax(b->arcs, kolo_places_arc(p, l) + 10) : b->arcs;
            b->smp = b->smp || l->kind == KOLO_LINK_SMP;
        }
    }
}

static void place_rows(struct kolo_places *p, double top)
{
    double bar = 0;
    for (int i = 0; i < p->g->nnodes; i++) {
        bar = p->g->node[i].kind == KOLO_NODE_NVSWITCH ? 60 : bar;
    }
    for (int i = 0; i < p->nbands; i++) {
        struct kolo_band *b = &p->bands[i];
        b->top = top;
        b->gpu_y = top + (b->gpus ? 26 + bar + b->arcs : -40);
        b->nic_y = b->gpu_y + 70 + (b->rows > 1 ? (b->rows - 1) * KOLO_STACK_PX : 0);
        b->numa_y = b->nic_y + 70 + KOLO_LEVEL_PX * (b->deepest > 0 ? b->deepest : 1);
        top = b->numa_y + 17 + (b->smp ? 60 : 10) + 20;
    }
    for (int i = 0; i < p->g->nnodes; i++) {
        const struct kolo_band *b = &p->bands[p->band[i]];
        const enum kolo_node_kind kind = p->g->node[i].kind;
        p->at[i].y = kind == KOLO_NODE_GPU          ? b->gpu_y
                     : is_stackable(&p->g->node[i]) ? b->nic_y - p->row[i] * KOLO_STACK_PX
                     : kind == KOLO_NODE_SWITCH     ? b->numa_y - KOLO_LEVEL_PX * p->depth[i]
                     : kind == KOLO_NODE_NVSWITCH   ? b->top + 30
                                                    : b->numa_y;
    }
}

/* ---- all ---- */

bool kolo_places_make(const struct kolo_graph *graph, double top, struct kolo_places *out)
{
    const size_t n = (size_t)graph->nnodes + 1;
    struct kolo_places p = {.g = graph};
    p.at = calloc(n, sizeof *p.at);
    p.depth = calloc(n, sizeof *p.depth);
    p.band = calloc(n, sizeof *p.band);
    p.row = calloc(n, sizeof *p.row);
    p.stack = calloc(n, sizeof *p.stack);
    p.bands = calloc(n, sizeof *p.bands);
    p.boxes = calloc(2 * n, sizeof *p.boxes); /* one a NUMA node, and one a child that wraps */
    *out = p;
    if (p.at == NULL || p.depth == NULL || p.band == NULL || p.row == NULL || p.stack == NULL ||
        p.bands == NULL || p.boxes == NULL) {
        kolo_places_free(out);
        return false;
    }
    for (int i = 0; i < graph->nnodes; i++) {
        p.at[i].x = -1;
    }
    place_columns(out);
    place_switches(out);
    measure_bands(out);
    place_rows(out, top);
    return true;
}

void kolo_places_free(struct kolo_places *places)
{
    free(places->at);
    free(places->depth);
    free(places->band);
    free(places->row);
    free(places->stack);
    free(places->bands);
    free(places->boxes);
    *places = (struct kolo_places){0};
}

const struct kolo_numa_box *kolo_places_box(const struct kolo_places *p, int numa, int band)
{
    for (int i = 0; i < p->nboxes; i++) {
        if (p->boxes[i].numa == numa && p->boxes[i].band == band) {
            return &p->boxes[i];
        }
    }
    return NULL;
}
