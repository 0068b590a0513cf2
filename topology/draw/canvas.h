// SPDX-License-Identifier: Apache-2.0
/* The small part of SVG that pictures need. A canvas grows as shapes are drawn, so no caller
 * computes its size beforehand. The unit is a pixel; y points down. */
#ifndef KOLO_TOPOLOGY_DRAW_CANVAS_H
#define KOLO_TOPOLOGY_DRAW_CANVAS_H

#include "util/util.h"

struct kolo_canvas {
    struct kolo_text body;
    double width, height; /* of the drawn shapes */
};

struct kolo_point {
    double x, y;
};

struct kolo_stroke {
    const char *colour;
    double width;
    const char *dash; /* NULL: solid */
    bool arrow;       /* at the end */
};

struct kolo_box {
    double x, y, width, height, round;
    const char *fill, *edge;
};

enum kolo_anchor { KOLO_ANCHOR_START, KOLO_ANCHOR_MIDDLE, KOLO_ANCHOR_END };

void kolo_canvas_line(struct kolo_canvas *c, struct kolo_point a, struct kolo_point b,
                      const struct kolo_stroke *stroke);
/* A curve from a to b, pulled towards `pull`. */
void kolo_canvas_curve(struct kolo_canvas *c, struct kolo_point a, struct kolo_point b,
                       struct kolo_point pull, const struct kolo_stroke *stroke);
void kolo_canvas_box(struct kolo_canvas *c, const struct kolo_box *box);
void kolo_canvas_dot(struct kolo_canvas *c, struct kolo_point at, double radius, const char *fill,
                     const char *edge);
void kolo_canvas_text(struct kolo_canvas *c, struct kolo_point at, double size,
                      enum kolo_anchor anchor, const char *format, ...) KOLO_PRINTF(5, 6);
/* A text of size 9, centred, with a white rim that keeps it legible on lines. */
void kolo_canvas_label(struct kolo_canvas *c, struct kolo_point at, const char *format, ...)
    KOLO_PRINTF(3, 4);
/* Write the canvas as one document and empty it. */
void kolo_canvas_finish(struct kolo_canvas *c, struct kolo_text *out);

/* A colour of Okabe and Ito, light enough for text on it. */
const char *kolo_canvas_colour(int index);

#endif
