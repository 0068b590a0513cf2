// SPDX-License-Identifier: Apache-2.0
/* The matrix of edges: a cell for each pair of ranks shows the carrier between them by a letter and
 * a colour. If a pair has several carriers, the cell shows the first. */
#include "topology/draw/picture_parts.h"

#include <string.h>

static const double cell_px = 15;

static void draw_cells(const struct kolo_job *job, struct kolo_canvas *c, double left, double top,
                       bool used[KOLO_CARRIERS])
{
    for (int i = 0; i < job->nedges; i++) {
        const struct kolo_job_edge *e = &job->edge[i];
        const bool again =
            i > 0 && e->from == job->edge[i - 1].from && e->to == job->edge[i - 1].to;
        if (again || e->from >= job->nranks || e->to >= job->nranks) {
            continue;
        }
        const enum kolo_job_carrier carrier = kolo_carrier_of(job->via[e->via]);
        const struct kolo_look *look = kolo_look_of(carrier);
        const double x = left + cell_px * e->to, y = top + cell_px * e->from;
        used[carrier] = true;
        kolo_canvas_box(c, &(struct kolo_box){x, y, cell_px, cell_px, 0, look->colour, "none"});
        kolo_canvas_text(c, (struct kolo_point){x + cell_px / 2, y + cell_px - 4}, 10,
                         KOLO_ANCHOR_MIDDLE, "%s", look->letter);
    }
}

static void draw_grid(const struct kolo_job *job, struct kolo_canvas *c, double left, double top)
{
    const double size = cell_px * job->nranks;
    for (int i = 0; i <= job->nranks; i++) {
        const bool border =
            i == 0 || i == job->nranks || kolo_job_host_of(job, i) != kolo_job_host_of(job, i - 1);
        const struct kolo_stroke s = {.colour = border ? "#333" : "#ccc",
                                      .width = border ? 1.2 : 0.5};
        const double at = cell_px * i;
        kolo_canvas_line(c, (struct kolo_point){left + at, top},
                         (struct kolo_point){left + at, top + size}, &s);
        kolo_canvas_line(c, (struct kolo_point){left, top + at},
                         (struct kolo_point){left + size, top + at}, &s);
        if (i < job->nranks) {
            kolo_canvas_text(c, (struct kolo_point){left - 5, top + at + cell_px - 4}, 9,
                             KOLO_ANCHOR_END, "%d", i);
            kolo_canvas_text(c, (struct kolo_point){left + at + cell_px / 2, top - 4}, 9,
                             KOLO_ANCHOR_MIDDLE, "%d", i);
        }
    }
}

static void draw_legend(struct kolo_canvas *c, const bool used[KOLO_CARRIERS], double left,
                        double top)
{
    double y = top;
    for (int i = 0; i < KOLO_CARRIERS; i++) {
        const struct kolo_look *look = kolo_look_of((enum kolo_job_carrier)i);
        if (used[i]) {
            kolo_canvas_box(c,
                            &(struct kolo_box){left, y, cell_px, cell_px, 0, look->colour, "#333"});
            kolo_canvas_text(c, (struct kolo_point){left + cell_px / 2, y + cell_px - 4}, 10,
                             KOLO_ANCHOR_MIDDLE, "%s", look->letter);
            kolo_canvas_text(c, (struct kolo_point){left + cell_px + 8, y + cell_px - 4}, 11,
                             KOLO_ANCHOR_START, "%s", look->words);
            y += cell_px + 6;
        }
    }
}

void kolo_picture_add_matrix(const struct kolo_job *job, struct kolo_canvas *canvas)
{
    bool used[KOLO_CARRIERS] = {false};
    if (job->nedges == 0 || job->nranks > KOLO_PICTURE_RANKS || job->nranks < 1) {
        return;
    }
    const double top = canvas->height + 66, left = 50;
    kolo_canvas_text(canvas, (struct kolo_point){20, top - 26}, 15, KOLO_ANCHOR_START,
                     "Who sends (row) to whom (column), by what");
    draw_cells(job, canvas, left, top, used);
    draw_grid(job, canvas, left, top);
    draw_legend(canvas, used, left + cell_px * job->nranks + 30, top);
}
