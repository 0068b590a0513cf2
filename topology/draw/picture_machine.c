// SPDX-License-Identifier: Apache-2.0
/* The picture of a machine. From top to bottom: the NVSwitch bar, links between GPUs, GPUs, NICs,
 * PCI switches, NUMA nodes side by side, and the links between NUMA nodes.
 *
 * Each GPU and NIC has a column, in the order of the PCI tree. A switch is centred below its
 * devices. A line's width is the square root of its capacity. A dotted line has a capacity that the
 * source does not state. */
#include "topology/draw/canvas.h"
#include "topology/draw/picture.h"
#include "topology/draw/picture_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double column_px = 88, box_px = 78, level_px = 62;

struct machine_drawing {
    const struct kolo_graph *g;
    struct kolo_canvas *c;
    struct kolo_point *at; /* [nodes] middle of the box; x < 0: not drawn */
    int *depth;            /* [nodes] below its NUMA node */
    int deepest;
    double top, gpu_y, nic_y, switch_y, numa_y;
};

static bool is_leaf(const struct kolo_node *n)
{
    return n->kind == KOLO_NODE_GPU || n->kind == KOLO_NODE_NIC || n->kind == KOLO_NODE_DEVICE;
}

static int next_child(const struct kolo_graph *g, int parent, int after)
{
    for (int i = after + 1; i < g->nnodes; i++) {
        if (g->node[i].parent == parent) {
            return i;
        }
    }
    return -1;
}

/* Give the leaves below `root` their columns, from x on. Returns the x behind the last column. The
 * walk needs no stack, because each node knows its parent. */
static double place_leaves(struct machine_drawing *d, int root, double x)
{
    int at = root, after = -1;
    d->depth[root] = 0;
    for (;;) {
        const int child = next_child(d->g, at, after);
        if (child >= 0) {
            d->depth[child] = d->depth[at] + 1;
            d->deepest = d->depth[at] > d->deepest ? d->depth[at] : d->deepest;
            if (is_leaf(&d->g->node[child])) {
                d->at[child].x = x + column_px / 2;
                x += column_px;
            }
            at = child;
            after = -1;
            continue;
        }
        if (at == root) {
            return x;
        }
        after = at;
        at = d->g->node[at].parent;
    }
}

/* Children come after their parents in the graph. So a pass from the end finds them already placed.
 */
static void place_inner(struct machine_drawing *d)
{
    for (int i = d->g->nnodes - 1; i >= 0; i--) {
        double low = INFINITY, high = -INFINITY;
        for (int k = next_child(d->g, i, i); k >= 0; k = next_child(d->g, i, k)) {
            if (d->at[k].x >= 0) {
                low = fmin(low, d->at[k].x);
                high = fmax(high, d->at[k].x);
            }
        }
        if (low <= high && d->at[i].x < 0) {
            d->at[i].x = (low + high) / 2;
        }
    }
}

static double arc_px(const struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    return fmin(110, 14 + 0.11 * fabs(d->at[l->a].x - d->at[l->b].x));
}

/* The height of a node: NVSwitch, GPUs, NICs, PCI switches and NUMA nodes from top to bottom. */
static double level_of(const struct machine_drawing *d, int node)
{
    const struct kolo_node *n = &d->g->node[node];
    if (n->kind == KOLO_NODE_GPU) {
        return d->gpu_y;
    }
    if (is_leaf(n)) {
        return d->nic_y;
    }
    if (n->kind == KOLO_NODE_NVSWITCH) {
        return d->top + 30;
    }
    return n->kind == KOLO_NODE_SWITCH ? d->numa_y - level_px * d->depth[node] : d->numa_y;
}

static void place_rows(struct machine_drawing *d)
{
    const struct kolo_graph *g = d->g;
    double arcs = 0, bar = 0;
    for (int i = 0; i < g->nlinks; i++) {
        const struct kolo_graph_edge *l = &g->link[i];
        const bool gpus =
            g->node[l->a].kind == KOLO_NODE_GPU && g->node[l->b].kind == KOLO_NODE_GPU;
        arcs = gpus ? fmax(arcs, arc_px(d, l) + 10) : arcs;
    }
    for (int i = 0; i < g->nnodes; i++) {
        bar = g->node[i].kind == KOLO_NODE_NVSWITCH ? 60 : bar;
    }
    d->gpu_y = d->top + (g->ngpus > 0 ? 26 + bar + arcs : -40);
    d->nic_y = d->gpu_y + 62;
    d->switch_y = d->nic_y + 70;
    d->numa_y = d->switch_y + level_px * (d->deepest > 0 ? d->deepest : 1);
    for (int i = 0; i < g->nnodes; i++) {
        d->at[i].y = level_of(d, i);
    }
}

/* The next NUMA node in the order of numbers. */
static int next_numa(const struct kolo_graph *g, int after)
{
    int best = -1;
    for (int i = 0; i < g->nnodes; i++) {
        const struct kolo_node *n = &g->node[i];
        const bool later = after < 0 || n->number > g->node[after].number ||
                           (n->number == g->node[after].number && i > after);
        if (n->kind == KOLO_NODE_NUMA && later && (best < 0 || n->number < g->node[best].number)) {
            best = i;
        }
    }
    return best;
}

static void place_all(struct machine_drawing *d)
{
    double x = 20;
    for (int i = 0; i < d->g->nnodes; i++) {
        d->at[i].x = -1;
    }
    for (int numa = next_numa(d->g, -1); numa >= 0; numa = next_numa(d->g, numa)) {
        const double begin = x;
        x = place_leaves(d, numa, x);
        x = fmax(x, begin + 150); /* its box */
        d->at[numa].x = (begin + x) / 2;
        x += 30;
    }
    for (int i = 0; i < d->g->nnodes; i++) { /* leaves without a parent */
        if (d->g->node[i].parent < 0 && is_leaf(&d->g->node[i])) {
            d->at[i].x = x + column_px / 2;
            x += column_px;
        }
    }
    place_inner(d);
    place_rows(d);
}

/* ---- lines ---- */

static struct kolo_stroke stroke_of(const struct kolo_graph_edge *l)
{
    static const char *const colours[] = {"#555", "#009e73", "#d55e00", "#cc79a7", "#0072b2"};
    return (struct kolo_stroke){.colour = colours[l->kind],
                                .width = fmin(9, 0.5 + 0.55 * sqrt(l->gbs)),
                                .dash = l->assumed                 ? "2 3"
                                        : l->kind == KOLO_LINK_SMP ? "9 4"
                                                                   : NULL};
}

static void label_link(struct machine_drawing *d, double x, double y,
                       const struct kolo_graph_edge *l)
{
    if (l->count > 1) {
        kolo_canvas_label(d->c, (struct kolo_point){x, y}, "%d x %.4g", l->count,
                          l->gbs / l->count);
    } else {
        kolo_canvas_label(d->c, (struct kolo_point){x, y}, "%.4g", l->gbs);
    }
}

/* There are many links between GPUs. So only bundles show a count, and only the legend shows the
 * speed of a lane. */
static void draw_arc(struct machine_drawing *d, const struct kolo_graph_edge *l, double height,
                     bool below)
{
    const struct kolo_point a = d->at[l->a], b = d->at[l->b];
    const struct kolo_stroke s = stroke_of(l);
    const double sign = below ? 1 : -1, half = 17;
    const double y = a.y + sign * half;
    const struct kolo_point pull = {(a.x + b.x) / 2, y + sign * 2 * height};
    kolo_canvas_curve(d->c, (struct kolo_point){a.x, y}, (struct kolo_point){b.x, y}, pull, &s);
    if (below) {
        label_link(d, pull.x, y + height + 12, l);
    } else if (l->count > 1) { /* at a third: the middles of many arcs meet */
        kolo_canvas_label(d->c, (struct kolo_point){a.x + (b.x - a.x) / 3, y - height * 8 / 9 + 3},
                          "x%d", l->count);
    }
}

static void draw_link(struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    const struct kolo_point a = d->at[l->a], b = d->at[l->b];
    const struct kolo_stroke s = stroke_of(l);
    const enum kolo_node_kind ka = d->g->node[l->a].kind, kb = d->g->node[l->b].kind;
    const bool a_is_bar = ka == KOLO_NODE_NVSWITCH, b_is_bar = kb == KOLO_NODE_NVSWITCH;
    if (a.x < 0 && !a_is_bar) {
        return;
    }
    if (a_is_bar || b_is_bar) {
        const struct kolo_point gpu = a_is_bar ? b : a;
        kolo_canvas_line(d->c, (struct kolo_point){gpu.x, d->top + 44},
                         (struct kolo_point){gpu.x, gpu.y - 17}, &s);
        label_link(d, gpu.x + 31, (d->top + 44 + gpu.y) / 2, l);
    } else if (ka == KOLO_NODE_GPU && kb == KOLO_NODE_GPU) {
        draw_arc(d, l, arc_px(d, l), false);
    } else if (l->kind == KOLO_LINK_SMP) {
        draw_arc(d, l, fmin(60, 8 + 0.03 * fabs(a.x - b.x)), true);
    } else {
        const struct kolo_point low = a.y > b.y ? a : b, high = a.y > b.y ? b : a;
        const bool pci = l->kind == KOLO_LINK_PCI;
        const double shift = pci ? 0 : 12;
        const struct kolo_point top = {high.x + shift, high.y + 17};
        /* Go straight down past the NICs of other columns, then to the target. */
        const struct kolo_point bend = {top.x, fmin(fmax(top.y, d->nic_y + 22), low.y - 14)};
        kolo_canvas_line(d->c, top, bend, &s);
        kolo_canvas_line(d->c, bend, (struct kolo_point){low.x + shift, low.y - 14}, &s);
        label_link(d, (bend.x * 3 + low.x) / 4 + (pci ? -14 : 20),
                   (bend.y * 3 + low.y - 14) / 4 + 4, l);
    }
}

/* ---- boxes ---- */

static void draw_box(struct machine_drawing *d, int node, double width, const char *fill)
{
    const struct kolo_point at = d->at[node];
    const bool round = d->g->node[node].kind == KOLO_NODE_SWITCH;
    kolo_canvas_box(d->c, &(struct kolo_box){at.x - width / 2, at.y - 17, width, 34,
                                             round ? 12.0 : 3.0, fill, "#333"});
}

static void draw_leaf(struct machine_drawing *d, int node)
{
    const struct kolo_node *n = &d->g->node[node];
    const struct kolo_point at = d->at[node];
    struct kolo_text name = {0};
    char bus[24];
    kolo_bus_print(n->bus, bus);
    kolo_node_label(d->g, node, &name);
    if (name.chars != NULL) {
        name.chars[strcspn(name.chars, " ")] = '\0';
        draw_box(d, node, box_px,
                 n->kind == KOLO_NODE_GPU   ? "#d8efd9"
                 : n->kind == KOLO_NODE_NIC ? "#fbe6b8"
                                            : "#eeeeee");
        kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y - 3}, 12, KOLO_ANCHOR_MIDDLE, "%.12s",
                         name.chars);
        kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y + 11}, 9, KOLO_ANCHOR_MIDDLE, "%s",
                         n->bus != KOLO_BUS_NONE ? bus : "");
    }
    if (n->kind == KOLO_NODE_NIC && n->gbs > 0) {
        kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y - 20}, 9, KOLO_ANCHOR_MIDDLE,
                         "port %.4g", n->gbs);
    }
    kolo_text_free(&name);
}

static void draw_inner(struct machine_drawing *d, int node)
{
    const struct kolo_node *n = &d->g->node[node];
    const struct kolo_point at = d->at[node];
    char bus[24];
    kolo_bus_print(n->bus, bus);
    if (n->kind == KOLO_NODE_SWITCH) {
        draw_box(d, node, 92, "#eeeeee");
        kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y - 2}, 11, KOLO_ANCHOR_MIDDLE,
                         "switch");
        kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y + 11}, 9, KOLO_ANCHOR_MIDDLE, "%s",
                         n->bus != KOLO_BUS_NONE ? bus : "");
        return;
    }
    draw_box(d, node, 140, "#d5e5f5");
    kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y - 2}, 12, KOLO_ANCHOR_MIDDLE,
                     n->number >= 0 ? "NUMA node %d" : "NUMA node ?", n->number);
    kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y + 11}, 9, KOLO_ANCHOR_MIDDLE, "%.24s",
                     n->name != NULL ? n->name : "");
}

static void draw_bar(struct machine_drawing *d, int node)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < d->g->ngpus; i++) {
        low = fmin(low, d->at[d->g->gpu[i]].x);
        high = fmax(high, d->at[d->g->gpu[i]].x);
    }
    if (low > high) {
        return;
    }
    struct kolo_text name = {0};
    kolo_node_label(d->g, node, &name);
    kolo_canvas_box(d->c, &(struct kolo_box){low - box_px / 2, d->top + 16, high - low + box_px, 28,
                                             8, "#c7e6d5", "#333"});
    kolo_canvas_text(d->c, (struct kolo_point){(low + high) / 2, d->top + 35}, 13,
                     KOLO_ANCHOR_MIDDLE, "%s", name.chars != NULL ? name.chars : "");
    kolo_text_free(&name);
}

static void draw_nodes(struct machine_drawing *d)
{
    for (int i = 0; i < d->g->nnodes; i++) {
        const struct kolo_node *n = &d->g->node[i];
        if (n->kind == KOLO_NODE_NVSWITCH) {
            draw_bar(d, i);
        } else if (d->at[i].x >= 0) {
            if (is_leaf(n)) {
                draw_leaf(d, i);
            } else {
                draw_inner(d, i);
            }
        }
    }
}

static void draw_legend(struct machine_drawing *d)
{
    const double y = d->c->height + 22;
    const struct kolo_graph_edge samples[] = {{0, 0, KOLO_LINK_PCI, 1, 12, false},
                                              {0, 0, KOLO_LINK_PCI, 1, 12, true},
                                              {0, 0, KOLO_LINK_NVLINK, 1, 40, false},
                                              {0, 0, KOLO_LINK_XGMI, 1, 40, false},
                                              {0, 0, KOLO_LINK_SMP, 1, 16, false}};
    static const char *const names[] = {"PCI", "not told, usual value", "NVLink", "xgmi",
                                        "between NUMA nodes"};
    double x = 20;
    for (size_t i = 0; i < KOLO_LENGTH(samples); i++) {
        const struct kolo_stroke s = stroke_of(&samples[i]);
        kolo_canvas_line(d->c, (struct kolo_point){x, y}, (struct kolo_point){x + 36, y}, &s);
        kolo_canvas_text(d->c, (struct kolo_point){x + 42, y + 4}, 11, KOLO_ANCHOR_START, "%s",
                         names[i]);
        x += 60 + 7.0 * (double)strlen(names[i]);
    }
    double lane = 0;
    for (int i = 0; i < d->g->nlinks; i++) {
        const struct kolo_graph_edge *l = &d->g->link[i];
        lane = l->kind == KOLO_LINK_NVLINK || l->kind == KOLO_LINK_XGMI ? l->gbs / l->count : lane;
    }
    if (lane > 0) {
        kolo_canvas_text(
            d->c, (struct kolo_point){20, y + 22}, 11, KOLO_ANCHOR_START,
            "Numbers are GB/s each way; a lane between GPUs carries %.4g, xN bundles N. "
            "Wider is faster.",
            lane);
    } else {
        kolo_canvas_text(d->c, (struct kolo_point){20, y + 22}, 11, KOLO_ANCHOR_START,
                         "Numbers are GB/s each way; wider is faster.");
    }
}

void kolo_picture_add_machine(const struct kolo_graph *graph, struct kolo_canvas *canvas)
{
    const size_t n = (size_t)graph->nnodes + 1;
    struct machine_drawing d = {.g = graph, .c = canvas, .top = canvas->height + 30};
    d.at = calloc(n, sizeof *d.at);
    d.depth = calloc(n, sizeof *d.depth);
    if (d.at != NULL && d.depth != NULL) {
        const char *slash = strrchr(graph->source, '/');
        kolo_canvas_text(canvas, (struct kolo_point){20, d.top - 8}, 15, KOLO_ANCHOR_START,
                         "%.80s (%s)", slash != NULL ? slash + 1 : graph->source, graph->format);
        place_all(&d);
        for (int i = 0; i < graph->nlinks; i++) {
            draw_link(&d, &graph->link[i]);
        }
        draw_nodes(&d);
        draw_legend(&d);
    }
    free(d.at);
    free(d.depth);
}

void kolo_picture_machine(const struct kolo_graph *graph, struct kolo_text *out)
{
    struct kolo_canvas canvas = {0};
    kolo_picture_add_machine(graph, &canvas);
    kolo_canvas_finish(&canvas, out);
}
