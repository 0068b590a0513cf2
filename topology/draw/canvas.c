// SPDX-License-Identifier: Apache-2.0
/* Draws shapes as SVG elements and keeps the size of the drawing. */
#include "topology/draw/canvas.h"

#include "topology/machine/graph.h"
#include "util/escape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void extend_box(struct kolo_canvas *c, double x, double y)
{
    c->width = fmax(c->width, x);
    c->height = fmax(c->height, y);
}

static void add_stroke(struct kolo_canvas *c, const struct kolo_stroke *s)
{
    kolo_text_add(&c->body, " stroke=\"%s\" stroke-width=\"%.1f\"", s->colour, s->width);
    if (s->dash != NULL) {
        kolo_text_add(&c->body, " stroke-dasharray=\"%s\"", s->dash);
    }
    kolo_text_add(&c->body, s->arrow ? " marker-end=\"url(#arrow)\"/>\n" : "/>\n");
}

void kolo_canvas_line(struct kolo_canvas *c, struct kolo_point a, struct kolo_point b,
                      const struct kolo_stroke *stroke)
{
    extend_box(c, fmax(a.x, b.x), fmax(a.y, b.y));
    kolo_text_add(&c->body, "<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\"", a.x, a.y, b.x, b.y);
    add_stroke(c, stroke);
}

void kolo_canvas_curve(struct kolo_canvas *c, struct kolo_point a, struct kolo_point b,
                       struct kolo_point pull, const struct kolo_stroke *stroke)
{
    extend_box(c, fmax(a.x, b.x), fmax(fmax(a.y, b.y), (a.y + b.y + 2 * pull.y) / 4));
    kolo_text_add(&c->body, "<path d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\" fill=\"none\"", a.x, a.y,
                  pull.x, pull.y, b.x, b.y);
    add_stroke(c, stroke);
}

void kolo_canvas_box(struct kolo_canvas *c, const struct kolo_box *b)
{
    extend_box(c, b->x + b->width, b->y + b->height);
    kolo_text_add(&c->body,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.0f\" "
                  "fill=\"%s\" stroke=\"%s\"/>\n",
                  b->x, b->y, b->width, b->height, b->round, b->fill, b->edge);
}

void kolo_canvas_dot(struct kolo_canvas *c, struct kolo_point at, double radius, const char *fill,
                     const char *edge)
{
    extend_box(c, at.x + radius, at.y + radius);
    kolo_text_add(&c->body,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" stroke=\"%s\"/>\n", at.x,
                  at.y, radius, fill, edge);
}

static void add_text(struct kolo_canvas *c, struct kolo_point at, double size,
                     enum kolo_anchor anchor, const char *style, const char *text)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    const double width = 0.6 * size * (double)strlen(text);
    const double right = anchor == KOLO_ANCHOR_START    ? width
                         : anchor == KOLO_ANCHOR_MIDDLE ? width / 2
                                                        : 0;
    extend_box(c, at.x + right, at.y);
    kolo_text_add(&c->body, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.0f\" text-anchor=\"%s\"%s>",
                  at.x, at.y, size, anchors[anchor], style);
    kolo_text_xml(&c->body, text);
    kolo_text_add(&c->body, "</text>\n");
}

void kolo_canvas_text(struct kolo_canvas *c, struct kolo_point at, double size,
                      enum kolo_anchor anchor, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add_text(c, at, size, anchor, "", text);
}

void kolo_canvas_label(struct kolo_canvas *c, struct kolo_point at, const char *format, ...)
{
    char text[64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* The white rim is a text of its own: some SVG viewers do not know paint-order. */
    add_text(c, at, 10, KOLO_ANCHOR_MIDDLE,
             " stroke=\"white\" stroke-width=\"3\" stroke-linejoin=\"round\"", text);
    add_text(c, at, 10, KOLO_ANCHOR_MIDDLE, "", text);
}

void kolo_canvas_finish(struct kolo_canvas *c, struct kolo_text *out)
{
    const double width = c->width + 20, height = c->height + 20;
    kolo_text_add(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                  "width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\">\n"
                  "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                  "markerUnits=\"userSpaceOnUse\" markerWidth=\"8\" markerHeight=\"8\" "
                  "orient=\"auto\"><path d=\"M0 1L8 4L0 7z\" fill=\"#333\"/></marker></defs>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n%s</svg>\n",
                  width, height, width, height, c->body.chars != NULL ? c->body.chars : "");
    kolo_text_free(&c->body);
    *c = (struct kolo_canvas){0};
}

const char *kolo_canvas_colour(int index)
{
    static const char *const colours[] = {"#56b4e9", "#e69f00", "#009e73", "#f0e442",
                                          "#cc79a7", "#d55e00", "#0072b2", "#bbbbbb"};
    return colours[(unsigned)index % KOLO_LENGTH(colours)];
}
