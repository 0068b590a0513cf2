// SPDX-License-Identifier: Apache-2.0
/* Rings as small multiples: one circle for each distinct ring. Ranks stand in the order of the ring,
 * so that no edge crosses another. Ranks of a host that follow each other form an arc with a band and
 * the host's name. The ring's edges are chords, thin within a host and thick between hosts. */
#include "topology/draw/picture_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4 };

struct circle {
    const struct kolo_job *job;
    const struct kolo_dots *dots;
    struct kolo_canvas *c;
    struct kolo_point middle;
    double radius;
    double *angle; /* [dots] */
    int *order;    /* [dots]: the dots along the circle */
};

/* Put the dots in the order in which the ring comes to them first; then those it does not pass. */
static void order_dots(const struct circle *k, const struct kolo_job_ring *ring)
{
    int placed = 0;
    int low = 0;
    for (int i = 0; i < k->dots->count; i++) {
        k->angle[i] = -1; /* not placed */
    }
    for (int i = 1; i < ring->count && ring->from != KOLO_RING_CUT; i++) {
        low = ring->rank[i] < ring->rank[low] ? i : low;
    }
    for (int i = 0; i < ring->count; i++) {
        const int dot = kolo_dot_of(k->job, k->dots, ring->rank[(low + i) % ring->count]);
        if (dot >= 0 && k->angle[dot] < 0) {
            k->angle[dot] = 0;
            k->order[placed++] = dot;
        }
    }
    for (int i = 0; i < k->dots->count; i++) {
        if (k->angle[i] < 0) {
            k->order[placed++] = i;
        }
    }
}

/* Whether the arc of a host begins at a place of the order. */
static bool begins_arc(const struct circle *k, int place)
{
    return place == 0 || k->dots->host_of[k->order[place]] != k->dots->host_of[k->order[place - 1]];
}

/* Give the dots their angles, with a gap between hosts. */
static void place_dots(const struct circle *k)
{
    const double gap = k->job->nhosts > 1 && !k->dots->hosts ? 0.7 : 0; /* in dots */
    int arcs = 0;
    for (int i = 0; i < k->dots->count; i++) {
        arcs += begins_arc(k, i);
    }
    const double step = 2 * M_PI / (k->dots->count + gap * arcs);
    double at = -M_PI / 2;
    for (int i = 0; i < k->dots->count; i++) {
        at += i > 0 && begins_arc(k, i) ? gap * step : 0;
        k->angle[k->order[i]] = at;
        at += step;
    }
}

static struct kolo_point point_on(const struct circle *k, double angle, double radius)
{
    return (struct kolo_point){k->middle.x + radius * cos(angle),
                               k->middle.y + radius * sin(angle)};
}

static double dot_px(const struct kolo_dots *dots)
{
    return dots->count <= 16 ? 11 : dots->count <= 32 ? 9 : dots->count <= 64 ? 6 : 3;
}

/* The point on the line from a to b at the distance `short_of` before b. */
static struct kolo_point point_before(struct kolo_point a, struct kolo_point b, double short_of)
{
    const double length = hypot(b.x - a.x, b.y - a.y);
    const double part = length > short_of ? (length - short_of) / length : 0;
    return (struct kolo_point){a.x + (b.x - a.x) * part, a.y + (b.y - a.y) * part};
}

static void draw_edges(const struct circle *k, const struct kolo_job_ring *ring)
{
    for (int i = 0; i < ring->count && ring->count > 1; i++) {
        const int next = ring->rank[(i + 1) % ring->count];
        const int from = kolo_dot_of(k->job, k->dots, ring->rank[i]);
        const int to = kolo_dot_of(k->job, k->dots, next);
        if (from < 0 || to < 0 || from == to ||
            (ring->from == KOLO_RING_CUT && i + 1 == ring->count)) {
            continue;
        }
        const int host = k->dots->host_of[from], other = k->dots->host_of[to];
        const bool across = host >= 0 && other >= 0 && host != other;
        const int via = kolo_job_via_of(k->job, ring->channel, ring->rank[i], next);
        const enum kolo_job_carrier carrier =
            via >= 0 ? kolo_carrier_of(k->job->via[via]) : KOLO_CARRIER_OTHER;
        const struct kolo_stroke s = {.colour = across ? "#b34700" : "#333",
                                      .width = across ? 2.6 : 1.1,
                                      .dash = carrier == KOLO_CARRIER_SHM ? "4 3" : NULL,
                                      .arrow = k->dots->count <= 32};
        const struct kolo_point a = point_on(k, k->angle[from], k->radius);
        const struct kolo_point b = point_on(k, k->angle[to], k->radius);
        kolo_canvas_line(k->c, point_before(b, a, dot_px(k->dots)),
                         point_before(a, b, dot_px(k->dots)), &s);
    }
}

/* The band of the arc from one place of the order to another. */
static void draw_band(const struct circle *k, int first, int last)
{
    const int host = k->dots->host_of[k->order[first]];
    const double low = k->angle[k->order[first]], high = k->angle[k->order[last]];
    const double radius = k->radius + dot_px(k->dots) + 7;
    if (host < 0 || k->job->nhosts < 2) {
        return;
    }
    const struct kolo_stroke s = {.colour = kolo_canvas_colour(host), .width = 5};
    const int parts = 1 + (int)((high - low) * 8);
    struct kolo_point from = point_on(k, low - 0.03, radius);
    for (int i = 1; i <= parts; i++) {
        const struct kolo_point to =
            point_on(k, low - 0.03 + (high - low + 0.06) * i / parts, radius);
        kolo_canvas_line(k->c, from, to, &s);
        from = to;
    }
    const double middle = (low + high) / 2;
    const struct kolo_point at = point_on(k, middle, radius + 9);
    if (k->job->nhosts <= 16) {
        kolo_canvas_text(k->c, (struct kolo_point){at.x, at.y + 3}, 9,
                         cos(middle) > 0.3    ? KOLO_ANCHOR_START
                         : cos(middle) < -0.3 ? KOLO_ANCHOR_END
                                              : KOLO_ANCHOR_MIDDLE,
                         "%.14s", k->job->host[host]);
    }
}

static void draw_bands(const struct circle *k)
{
    for (int i = 0, first = 0; i < k->dots->count; i++) {
        first = begins_arc(k, i) ? i : first;
        if (i + 1 == k->dots->count || begins_arc(k, i + 1)) {
            draw_band(k, first, i);
        }
    }
}

static void draw_dots(const struct circle *k)
{
    const double radius = dot_px(k->dots);
    for (int i = 0; i < k->dots->count; i++) {
        const struct kolo_point at = point_on(k, k->angle[i], k->radius);
        const int host = k->dots->host_of[i];
        kolo_canvas_dot(k->c, at, radius, host >= 0 ? kolo_canvas_colour(host) : "#eee", "#333");
        if (radius > 3) {
            kolo_canvas_text(k->c, (struct kolo_point){at.x, at.y + radius / 3}, radius * 0.95,
                             KOLO_ANCHOR_MIDDLE, "%d", i);
        }
    }
}

/* "channel 0", "channels 0,4" */
static void draw_title(const struct circle *k, int ring)
{
    const struct kolo_job *job = k->job;
    char text[200];
    static const char *const from[] = {"", " (rebuilt)", " (cut)"};
    int same = 0;
    for (int j = ring; j < job->nrings; j++) {
        same += kolo_ring_same(&job->ring[ring], &job->ring[j]);
    }
    int len =
        snprintf(text, sizeof text, "channel%s %d", same == 1 ? "" : "s", job->ring[ring].channel);
    for (int j = ring + 1; j < job->nrings && len < 150; j++) {
        if (kolo_ring_same(&job->ring[ring], &job->ring[j])) {
            len += snprintf(text + len, sizeof text - (size_t)len, ",%d", job->ring[j].channel);
        }
    }
    kolo_canvas_text(k->c, (struct kolo_point){k->middle.x, k->middle.y - k->radius - 36}, 12,
                     KOLO_ANCHOR_MIDDLE, "%s%s", text, from[job->ring[ring].from]);
}

static void draw_all(const struct kolo_job *job, const struct kolo_dots *dots, double *angle,
                     int *order, struct kolo_canvas *canvas)
{
    const double radius = dots->count <= 16 ? 95 : dots->count <= 32 ? 120 : 190;
    const double cell = 2 * radius + 130, top = canvas->height + 40;
    int drawn = 0, distinct = 0;
    kolo_canvas_text(canvas, (struct kolo_point){20, top}, 15, KOLO_ANCHOR_START, "Rings%s",
                     dots->hosts ? " (dots are hosts)" : "");
    for (int i = 0; i < job->nrings; i++) {
        bool first = true;
        for (int j = 0; j < i; j++) {
            first = first && !kolo_ring_same(&job->ring[j], &job->ring[i]);
        }
        distinct += first;
        if (!first || drawn == KOLO_PICTURE_RINGS) {
            continue;
        }
        const int row = drawn / COLUMNS, column = drawn % COLUMNS;
        const struct circle k = {
            job,    dots,
            canvas, {20 + cell * (column + 0.5), top + 10 + (cell - 30) * (row + 0.5)},
            radius, angle,
            order};
        order_dots(&k, &job->ring[i]);
        place_dots(&k);
        draw_title(&k, i);
        draw_edges(&k, &job->ring[i]);
        draw_bands(&k);
        draw_dots(&k);
        drawn++;
    }
    kolo_canvas_text(canvas, (struct kolo_point){20, canvas->height + 26}, 11, KOLO_ANCHOR_START,
                     "%d of %d distinct ring%s; thick: between hosts, thin: within a host, dashed: "
                     "shared memory.",
                     drawn, distinct, distinct == 1 ? "" : "s");
}

void kolo_picture_add_rings(const struct kolo_job *job, struct kolo_canvas *canvas)
{
    struct kolo_dots dots;
    if (job->nrings == 0 || !kolo_dots_make(job, &dots)) {
        return;
    }
    double *angle = calloc((size_t)dots.count, sizeof *angle);
    int *order = calloc((size_t)dots.count, sizeof *order);
    if (angle != NULL && order != NULL) {
        draw_all(job, &dots, angle, order, canvas);
    }
    free(order);
    free(angle);
    kolo_dots_free(&dots);
}
