// SPDX-License-Identifier: Apache-2.0
/* The picture of a machine: boxes for its nodes, lines for its links. A line's width is the square
 * root of its capacity. A dotted line has a capacity that the source does not state. Links between
 * bands are words at the end, because lines would cross everything. */
#include "topology/draw/canvas.h"
#include "topology/draw/picture.h"
#include "topology/draw/picture_parts.h"
#include "topology/draw/picture_place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS_MAX = 1024, LINE_LETTERS = 150 };

struct machine_drawing {
    const struct kolo_graph *g;
    struct kolo_canvas *c;
    struct kolo_places p;
    struct kolo_point label[LABELS_MAX]; /* middles of the labels drawn so far */
    int nlabels;
};

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

/* Whether a label here would lie on another one. */
static bool is_taken(const struct machine_drawing *d, struct kolo_point at)
{
    for (int i = 0; i < d->nlabels; i++) {
        if (fabs(d->label[i].x - at.x) < 52 && fabs(d->label[i].y - at.y) < 11) {
            return true;
        }
    }
    return d->nlabels == LABELS_MAX;
}

/* Draw a label at the first of the points that is free. A label without any is left out: `kolo topo`
 * prints all numbers. */
static void put_label(struct machine_drawing *d, const struct kolo_point *at, int count,
                      const char *text)
{
    for (int i = 0; i < count; i++) {
        if (!is_taken(d, at[i])) {
            d->label[d->nlabels++] = at[i];
            kolo_canvas_label(d->c, at[i], "%s", text);
            return;
        }
    }
}

static void describe_link(const struct kolo_graph_edge *l, int times, char out[32])
{
    const int count = l->count > 1 ? l->count : times;
    if (count > 1) {
        (void)snprintf(out, 32, "%d x %.4g", count, l->gbs / l->count);
    } else {
        (void)snprintf(out, 32, "%.4g", l->gbs);
    }
}

/* Points of a curve from a to b that rises to `height`: the first is at a third, because the middles
 * of many curves meet. */
static int curve_points(struct kolo_point a, struct kolo_point b, double height, double shift,
                        struct kolo_point out[9])
{
    static const double parts[9] = {0.33, 0.5, 0.67, 0.25, 0.75, 0.42, 0.58, 0.17, 0.83};
    for (int i = 0; i < 9; i++) {
        const double t = parts[i];
        out[i] = (struct kolo_point){a.x + (b.x - a.x) * t, a.y + height * 4 * t * (1 - t) + shift};
    }
    return 9;
}

/* There are many links between GPUs. So only bundles show a count, and only the legend shows the
 * speed of a lane. */
static void draw_gpu_arc(struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    struct kolo_point a = d->p.at[l->a], b = d->p.at[l->b], points[9];
    const double height = kolo_places_arc(&d->p, l);
    const struct kolo_stroke s = stroke_of(l);
    char text[32];
    a.y -= 17;
    b.y -= 17;
    kolo_canvas_curve(d->c, a, b, (struct kolo_point){(a.x + b.x) / 2, a.y - 2 * height}, &s);
    if (l->count > 1) {
        const int count = curve_points(a, b, -height, 3, points);
        (void)snprintf(text, sizeof text, "x%d", l->count);
        put_label(d, points, count, text);
    }
}

static void draw_numa_arc(struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    struct kolo_point a = d->p.at[l->a], b = d->p.at[l->b], points[9];
    const struct kolo_stroke s = stroke_of(l);
    const double height = fmin(50, 8 + 0.03 * fabs(a.x - b.x));
    char text[32];
    a.y += 17;
    b.y += 17;
    kolo_canvas_curve(d->c, a, b, (struct kolo_point){(a.x + b.x) / 2, a.y + 2 * height}, &s);
    const int count = curve_points(a, b, height, 4, points);
    describe_link(l, 1, text);
    put_label(d, points, count, text);
}

static void draw_to_switch(struct machine_drawing *d, const struct kolo_graph_edge *l, int gpu)
{
    const struct kolo_point at = d->p.at[gpu];
    const struct kolo_band *b = &d->p.bands[d->p.band[gpu]];
    const struct kolo_stroke s = stroke_of(l);
    const struct kolo_point label = {at.x + 31, (b->top + 44 + at.y) / 2};
    char text[32];
    kolo_canvas_line(d->c, (struct kolo_point){at.x, b->top + 44},
                     (struct kolo_point){at.x, at.y - 17}, &s);
    describe_link(l, 1, text);
    put_label(d, &label, 1, text);
}

/* From a device down past the NICs of other columns, then to its parent. */
static void draw_down(struct machine_drawing *d, const struct kolo_graph_edge *l, int high, int low)
{
    const struct kolo_band *band = &d->p.bands[d->p.band[high]];
    const struct kolo_numa_box *box = kolo_places_box(&d->p, low, d->p.band[high]);
    const bool pci = l->kind == KOLO_LINK_PCI;
    const double shift = pci ? 0 : 12;
    struct kolo_point from = d->p.at[high], to = d->p.at[low];
    const struct kolo_stroke s = stroke_of(l);
    char text[32];
    to.x = box != NULL ? box->x : to.x;
    to.y = box != NULL ? band->numa_y : to.y;
    from = (struct kolo_point){from.x + shift, from.y + 17};
    to = (struct kolo_point){to.x + shift, to.y - 17};
    /* Past the switches of other columns: the last step down is free of boxes. */
    const double last = to.y - (band->deepest > 0 ? 26 : 80);
    const struct kolo_point bend = {from.x, fmin(fmax(from.y, last), to.y)};
    kolo_canvas_line(d->c, from, bend, &s);
    kolo_canvas_line(d->c, bend, to, &s);
    struct kolo_point points[5];
    for (int i = 0; i < 5; i++) {
        const double part = 0.25 + 0.13 * i;
        points[i] = (struct kolo_point){bend.x + (to.x - bend.x) * part + (pci ? -14 : 20),
                                        bend.y + (to.y - bend.y) * part + 4};
    }
    describe_link(l, d->p.stack[high], text);
    put_label(d, points, 5, text);
}

/* Whether a link is drawn as a line: within a band, and of a stack only the nearest. */
static bool is_drawn(const struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    const struct kolo_node *a = &d->g->node[l->a], *b = &d->g->node[l->b];
    const bool bar = a->kind == KOLO_NODE_NVSWITCH || b->kind == KOLO_NODE_NVSWITCH;
    if (bar) {
        return d->p.at[a->kind == KOLO_NODE_NVSWITCH ? l->b : l->a].x >= 0;
    }
    if (d->p.at[l->a].x < 0 || d->p.at[l->b].x < 0) {
        return false;
    }
    if (l->kind == KOLO_LINK_PCI) {
        return d->p.row[l->a] == 0 && d->p.row[l->b] == 0;
    }
    return d->p.band[l->a] == d->p.band[l->b] || a->kind != b->kind;
}

static void draw_link(struct machine_drawing *d, const struct kolo_graph_edge *l)
{
    const enum kolo_node_kind ka = d->g->node[l->a].kind, kb = d->g->node[l->b].kind;
    if (!is_drawn(d, l)) {
        return;
    }
    if (ka == KOLO_NODE_NVSWITCH || kb == KOLO_NODE_NVSWITCH) {
        draw_to_switch(d, l, ka == KOLO_NODE_NVSWITCH ? l->b : l->a);
    } else if (ka == KOLO_NODE_GPU && kb == KOLO_NODE_GPU) {
        draw_gpu_arc(d, l);
    } else if (ka == KOLO_NODE_NUMA && kb == KOLO_NODE_NUMA) {
        draw_numa_arc(d, l);
    } else {
        const bool a_is_low = ka == KOLO_NODE_NUMA || d->p.at[l->a].y > d->p.at[l->b].y;
        draw_down(d, l, a_is_low ? l->b : l->a, a_is_low ? l->a : l->b);
    }
}

/* ---- boxes ---- */

static void draw_box(struct machine_drawing *d, struct kolo_point at, const struct kolo_box *box)
{
    struct kolo_box placed = *box;
    placed.x = at.x - box->width / 2;
    placed.y = at.y - box->height / 2;
    kolo_canvas_box(d->c, &placed);
}

/* A line of a box, as large as it fits. */
static void box_text(struct machine_drawing *d, double x, double y, double size, const char *text)
{
    enum { LETTERS_MOST = 17 };
    const double letters = (double)strlen(text);
    const double fits = (KOLO_BOX_PX - 4) / (0.6 * (letters > 1 ? letters : 1));
    if (letters > LETTERS_MOST) {
        kolo_canvas_text(d->c, (struct kolo_point){x, y}, 7, KOLO_ANCHOR_MIDDLE, "%.*s...",
                         LETTERS_MOST - 2, text);
    } else {
        kolo_canvas_text(d->c, (struct kolo_point){x, y}, floor(fmax(7, fmin(size, fits))),
                         KOLO_ANCHOR_MIDDLE, "%s", text);
    }
}

static void draw_leaf(struct machine_drawing *d, int node)
{
    const struct kolo_node *n = &d->g->node[node];
    const struct kolo_point at = d->p.at[node];
    const bool rated = n->kind == KOLO_NODE_NIC && n->gbs > 0;
    const double up = rated ? 6 : 0;
    struct kolo_text name = {0};
    char bus[24], rate[40];
    kolo_bus_print(n->bus, bus);
    kolo_node_label(d->g, node, &name);
    if (name.chars != NULL) {
        name.chars[strcspn(name.chars, " ")] = '\0';
        draw_box(d, at,
                 &(struct kolo_box){.width = KOLO_BOX_PX,
                                    .height = n->kind == KOLO_NODE_GPU ? 34 : 44,
                                    .round = 3,
                                    .fill = n->kind == KOLO_NODE_GPU   ? "#d8efd9"
                                            : n->kind == KOLO_NODE_NIC ? "#fbe6b8"
                                                                       : "#eeeeee",
                                    .edge = "#333"});
        box_text(d, at.x, at.y - (n->bus != KOLO_BUS_NONE ? 3 : -4) - up, 12, name.chars);
        box_text(d, at.x, at.y + 11 - up, 9, n->bus != KOLO_BUS_NONE ? bus : "");
    }
    if (rated && n->ports > 1) {
        (void)snprintf(rate, sizeof rate, "%d ports of %.4g", n->ports, n->gbs / n->ports);
    } else if (rated) {
        (void)snprintf(rate, sizeof rate, "port %.4g", n->gbs);
    }
    if (rated) {
        box_text(d, at.x, at.y + 16, 9, rate);
    }
    kolo_text_free(&name);
}

static void draw_switch(struct machine_drawing *d, int node)
{
    const struct kolo_node *n = &d->g->node[node];
    const struct kolo_point at = d->p.at[node];
    char bus[24];
    kolo_bus_print(n->bus, bus);
    draw_box(
        d, at,
        &(struct kolo_box){
            .width = KOLO_BOX_PX, .height = 34, .round = 12, .fill = "#eeeeee", .edge = "#333"});
    box_text(d, at.x, at.y - 2, 11, "switch");
    box_text(d, at.x, at.y + 11, 9, n->bus != KOLO_BUS_NONE ? bus : "");
}

static void draw_numa(struct machine_drawing *d, const struct kolo_numa_box *box)
{
    const struct kolo_node *n = &d->g->node[box->numa];
    const struct kolo_point at = {box->x, d->p.bands[box->band].numa_y};
    char number[16] = "?";
    if (n->number >= 0) {
        (void)snprintf(number, sizeof number, "%d", n->number);
    }
    const char *again = box->band > d->p.band[box->numa] ? ", continued" : "";
    draw_box(
        d, at,
        &(struct kolo_box){
            .width = KOLO_NUMA_PX, .height = 34, .round = 3, .fill = "#d5e5f5", .edge = "#333"});
    kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y - 2}, again[0] != '\0' ? 10 : 12,
                     KOLO_ANCHOR_MIDDLE, "NUMA node %s%s", number, again);
    kolo_canvas_text(d->c, (struct kolo_point){at.x, at.y + 11}, 9, KOLO_ANCHOR_MIDDLE, "%.24s",
                     n->name != NULL ? n->name : "");
}

/* The NVSwitch is a bar above the GPUs of each band. */
static void draw_bars(struct machine_drawing *d, int node)
{
    struct kolo_text name = {0};
    kolo_node_label(d->g, node, &name);
    for (int band = 0; band < d->p.nbands; band++) {
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < d->g->ngpus; i++) {
            if (d->p.band[d->g->gpu[i]] == band) {
                low = fmin(low, d->p.at[d->g->gpu[i]].x);
                high = fmax(high, d->p.at[d->g->gpu[i]].x);
            }
        }
        if (low <= high) {
            const double top = d->p.bands[band].top;
            kolo_canvas_box(d->c,
                            &(struct kolo_box){low - KOLO_BOX_PX / 2.0, top + 16,
                                               high - low + KOLO_BOX_PX, 28, 8, "#c7e6d5", "#333"});
            kolo_canvas_text(d->c, (struct kolo_point){(low + high) / 2, top + 35}, 13,
                             KOLO_ANCHOR_MIDDLE, "%s", name.chars != NULL ? name.chars : "");
        }
    }
    kolo_text_free(&name);
}

static void draw_nodes(struct machine_drawing *d)
{
    for (int i = 0; i < d->g->nnodes; i++) {
        const struct kolo_node *n = &d->g->node[i];
        if (n->kind == KOLO_NODE_NVSWITCH) {
            draw_bars(d, i);
        } else if (d->p.at[i].x >= 0 && kolo_places_is_leaf(n)) {
            draw_leaf(d, i);
        } else if (d->p.at[i].x >= 0 && n->kind == KOLO_NODE_SWITCH) {
            draw_switch(d, i);
        }
    }
    for (int i = 0; i < d->p.nboxes; i++) {
        draw_numa(d, &d->p.boxes[i]);
    }
}

/* ---- words below the picture ---- */

/* Draw a text in lines of at most LINE_LETTERS letters, cut at blanks. */
static void draw_words(struct machine_drawing *d, const char *text)
{
    while (*text != '\0') {
        size_t len = strlen(text);
        if (len > LINE_LETTERS) {
            len = LINE_LETTERS;
            while (len > 1 && text[len] != ' ') {
                len--;
            }
            len = len > 1 ? len : LINE_LETTERS;
        }
        kolo_canvas_text(d->c, (struct kolo_point){20, d->c->height + 16}, 11, KOLO_ANCHOR_START,
                         "%.*s", (int)len, text);
        text += len + (text[len] == ' ');
    }
}

static void short_name(const struct kolo_graph *g, int node, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    struct kolo_text name = {0};
    kolo_node_label(g, node, &name);
    if (name.chars != NULL && n->kind == KOLO_NODE_GPU) {
        name.chars[strcspn(name.chars, " ")] = '\0';
    }
    kolo_text_add(out, "%s", name.chars != NULL ? name.chars : "");
    kolo_text_free(&name);
}

static void list_other_links(struct machine_drawing *d)
{
    struct kolo_text list = {0};
    for (int i = 0; i < d->g->nlinks; i++) {
        const struct kolo_graph_edge *l = &d->g->link[i];
        const bool placed = d->p.at[l->a].x >= 0 && d->p.at[l->b].x >= 0;
        if (placed && l->kind != KOLO_LINK_PCI && !is_drawn(d, l)) {
            kolo_text_add(&list, "%s", list.len == 0 ? "Links between the rows: " : "; ");
            short_name(d->g, l->a, &list);
            kolo_text_add(&list, " - ");
            short_name(d->g, l->b, &list);
            kolo_text_add(&list, " %d x %.4g", l->count, l->gbs / l->count);
        }
    }
    if (list.chars != NULL) {
        draw_words(d, list.chars);
    }
    kolo_text_free(&list);
}

static void list_interfaces(struct machine_drawing *d)
{
    struct kolo_text list = {0};
    for (int i = 0; i < d->g->nnodes; i++) {
        const struct kolo_node *n = &d->g->node[i];
        if (n->kind == KOLO_NODE_INTERFACE) {
            kolo_text_add(&list, "%s%s", list.len == 0 ? "Virtual interfaces, of no GPU: " : ", ",
                          n->name != NULL ? n->name : "?");
        }
    }
    if (list.chars != NULL) {
        draw_words(d, list.chars);
    }
    kolo_text_free(&list);
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
    if (kolo_graph_hides_links(d->g)) {
        draw_words(d, "The source tells nothing of NVLink or xgmi between the GPUs.");
    }
}

void kolo_picture_add_machine(const struct kolo_graph *graph, struct kolo_canvas *canvas)
{
    struct machine_drawing *d = calloc(1, sizeof *d);
    const double top = canvas->height + 30;
    if (d == NULL || !kolo_places_make(graph, top, &d->p)) {
        free(d);
        return;
    }
    d->g = graph;
    d->c = canvas;
    const char *slash = strrchr(graph->source, '/');
    kolo_canvas_text(canvas, (struct kolo_point){20, top - 8}, 15, KOLO_ANCHOR_START, "%.80s (%s)",
                     slash != NULL ? slash + 1 : graph->source, graph->format);
    for (int i = 0; i < graph->nlinks; i++) {
        draw_link(d, &graph->link[i]);
    }
    draw_nodes(d);
    list_other_links(d);
    list_interfaces(d);
    draw_legend(d);
    kolo_places_free(&d->p);
    free(d);
}

void kolo_picture_machine(const struct kolo_graph *graph, struct kolo_text *out)
{
    struct kolo_canvas canvas = {0};
    kolo_picture_add_machine(graph, &canvas);
    kolo_canvas_finish(&canvas, out);
}
