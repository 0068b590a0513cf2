// SPDX-License-Identifier: Apache-2.0
/* A layout as one SVG document for a browser: the ring above, both trees below.
 *
 * - Ranks that share an L3 have one colour.
 * - A ring edge is solid inside an L3, dashed between L3s and thick between hosts. So grey print
 *   loses nothing.
 * - In a tree, interior ranks are filled and leaves hollow. Each rank is filled in at most one of
 *   the two trees.
 * - The colours are Okabe and Ito's palette for the colour-blind, lightened by opacity under the
 *   labels. */
#include "topology/draw/draw.h"

#include <math.h>

static const char *const colours[] = {"#56b4e9", "#e69f00", "#009e73", "#f0e442",
                                      "#0072b2", "#d55e00", "#cc79a7"};
static const double step_px = 46; /* between neighbours */
static const double dot_px = 12;
static const double margin_px = 40;
static const double level_px = 50; /* between the levels of a tree */

struct point {
    double x, y;
};

static int host_of(const struct kolo_layout *layout, int position)
{
    return layout->host_of != NULL ? layout->host_of[layout->order[position]] : 0;
}

static int l3_of(const struct kolo_layout *layout, int position)
{
    return layout->place != NULL ? layout->place[layout->order[position]].l3 : -1;
}

static const char *colour_of(const struct kolo_layout *layout, int position)
{
    const int l3 = l3_of(layout, position);
    const int index = l3 + 3 * host_of(layout, position);
    return l3 < 0 ? "#dddddd" : colours[(unsigned)index % KOLO_LENGTH(colours)];
}

static double ring_radius(int nranks)
{
    const double radius = nranks * step_px / (2 * M_PI);
    return fmax(radius, 60);
}

static double width_px(int nranks)
{
    const double ring = 2 * ring_radius(nranks);
    const double tree = step_px * nranks;
    const double title = 420;
    return 2 * margin_px + fmax(title, fmax(ring, tree));
}

static double tree_height(int nranks)
{
    return margin_px + kolo_log2_ceil(nranks + 1) * level_px;
}

static void add_line(struct kolo_text *out, struct point a, struct point b, const char *style)
{
    kolo_text_add(out,
                  "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#444\"%s/>\n",
                  a.x, a.y, b.x, b.y, style);
}

static void add_dot(struct kolo_text *out, struct point at, const char *fill, int rank)
{
    kolo_text_add(out,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\" fill=\"white\"/>"
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.0f\" fill=\"%s\" fill-opacity=\"0.6\" "
                  "stroke=\"#444\"/>"
                  "<text x=\"%.1f\" y=\"%.1f\">%d</text>\n",
                  at.x, at.y, dot_px, at.x, at.y, dot_px, fill, at.x, at.y + 4, rank);
}

static void add_title(struct kolo_text *out, double y, const char *title)
{
    kolo_text_add(out, "<text x=\"%.0f\" y=\"%.1f\" style=\"text-anchor:start\">%s</text>\n",
                  margin_px / 2, y, title);
}

static struct point ring_point(const struct kolo_layout *layout, int position)
{
    const double radius = ring_radius(layout->nranks);
    const double angle = 2 * M_PI * position / layout->nranks - M_PI / 2;
    return (struct point){width_px(layout->nranks) / 2 + radius * cos(angle),
                          2 * margin_px + radius * (1 + sin(angle))};
}

static const char *ring_style(const struct kolo_layout *layout, int a, int b)
{
    if (host_of(layout, a) != host_of(layout, b)) {
        return " stroke-width=\"5\"";
    }
    return l3_of(layout, a) != l3_of(layout, b) ? " stroke-dasharray=\"4 3\"" : "";
}

static void add_ring(const struct kolo_layout *layout, struct kolo_text *out)
{
    const int n = layout->nranks;
    add_title(out, margin_px / 2 + 6,
              "ring: one colour an L3; solid within, dashed between L3s, thick between hosts");
    for (int i = 0; n > 1 && i < n; i++) {
        const int next = (i + 1) % n;
        add_line(out, ring_point(layout, i), ring_point(layout, next), ring_style(layout, i, next));
    }
    for (int i = 0; i < n; i++) {
        add_dot(out, ring_point(layout, i), colour_of(layout, i), layout->order[i]);
    }
}

/* Columns are in order, so no edge crosses another. The shifted tree has shifted columns. */
static struct point tree_point(int n, int which, int position, double top)
{
    const int column = which == 1 && n % 2 != 0 ? kolo_mod(position - 1, n) : position;
    int depth = 0;
    for (int up = position; (up = kolo_tree_at(n, which, up).up) >= 0;) {
        depth++;
    }
    return (struct point){margin_px + step_px * (column + 0.5), top + margin_px + depth * level_px};
}

static void add_tree(const struct kolo_layout *layout, int which, double top, struct kolo_text *out)
{
    const int n = layout->nranks;
    add_title(out, top + 6, which == 0 ? "tree 0: interior ranks filled" : "tree 1");
    for (int i = 0; i < n; i++) {
        const int up = kolo_tree_at(n, which, i).up;
        if (up >= 0) {
            add_line(out, tree_point(n, which, i, top), tree_point(n, which, up, top), "");
        }
    }
    for (int i = 0; i < n; i++) {
        const struct kolo_tree tree = kolo_tree_at(n, which, i);
        const bool leaf = tree.down[0] < 0 && tree.down[1] < 0;
        add_dot(out, tree_point(n, which, i, top), leaf ? "white" : colour_of(layout, i),
                layout->order[i]);
    }
}

void kolo_draw_svg(const struct kolo_layout *layout, struct kolo_text *out)
{
    const double ring_bottom = 3 * margin_px + 2 * ring_radius(layout->nranks);
    const double each = tree_height(layout->nranks);
    const double width = width_px(layout->nranks);
    const double height = ring_bottom + 2 * each;
    kolo_text_add(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "width=\"%.0f\" height=\"%.0f\">\n"
                  "<style>text{font:11px sans-serif;text-anchor:middle;fill:#000}</style>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                  width, height, width, height);
    add_ring(layout, out);
    add_tree(layout, 0, ring_bottom, out);
    add_tree(layout, 1, ring_bottom + each, out);
    kolo_text_add(out, "</svg>\n");
}
