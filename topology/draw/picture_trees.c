// SPDX-License-Identifier: Apache-2.0
/* Two trees side by side: the first tree and its complement. Roots are on top, and each leaf has a
 * column. Interior ranks are filled and leaves hollow, to show that each dot is filled in only one
 * of the two trees. Ranks of a host share a colour; lines between hosts are thick. */
#include "topology/draw/picture_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double column_px = 30, level_px = 46;

struct tree_picture {
    const struct kolo_job *job;
    const struct kolo_dots *dots;
    int channel;
    int *up;    /* [dots]; -1 root, -2 not known */
    int *depth; /* [dots] */
    double *x;  /* [dots] column; < 0 not yet */
    bool *inner;
};

/* Read the tree. For ranks it is the tree of the job. For hosts it has the edges by which a rank's
 * parent is on another host. */
static void read_tree(struct tree_picture *t)
{
    for (int i = 0; i < t->dots->count; i++) {
        t->up[i] = -2;
        t->x[i] = -1;
        t->inner[i] = false;
        t->depth[i] = 0;
    }
    for (int i = 0; i < t->job->nbranches; i++) {
        const struct kolo_job_branch *b = &t->job->branch[i];
        const int dot = b->channel == t->channel ? kolo_dot_of(t->job, t->dots, b->rank) : -1;
        const int up = b->up >= 0 ? kolo_dot_of(t->job, t->dots, b->up) : -1;
        if (dot >= 0 && up != dot) {
            t->up[dot] = up;
        }
    }
    for (int i = 0; i < t->dots->count; i++) {
        const int up = t->up[i];
        if (up >= 0) {
            t->inner[up] = true;
        }
        for (int at = i; t->up[at] >= 0 && t->depth[i] <= t->dots->count; at = t->up[at]) {
            t->depth[i]++;
        }
    }
}

/* Put a node in the middle of its children that have a column; without such a child it stays. */
static void centre_above_children(struct tree_picture *t, int n, int node)
{
    double low = INFINITY, high = -INFINITY;
    for (int k = 0; k < n; k++) {
        if (t->up[k] == node && t->x[k] >= 0) {
            low = fmin(low, t->x[k]);
            high = fmax(high, t->x[k]);
        }
    }
    t->x[node] = low <= high ? (low + high) / 2 : t->x[node];
}

/* Place leaves from the left in depth-first order, and each interior node above the middle of its
 * children. Returns the number of columns used. The walk needs no stack: it follows the parents. */
static int place_tree(struct tree_picture *t)
{
    const int n = t->dots->count;
    int columns = 0;
    for (int root = 0; root < n; root++) {
        int at = root, after = -1;
        if (t->up[root] != -1 || t->depth[root] > n) {
            continue;
        }
        for (;;) {
            int child = after + 1;
            while (child < n && (t->up[child] != at || t->depth[child] > n)) {
                child++;
            }
            if (child < n) {
                at = child;
                after = -1;
                continue;
            }
            if (!t->inner[at]) {
                t->x[at] = columns++;
            }
            if (at == root) {
                break;
            }
            after = at;
            at = t->up[at];
        }
    }
    for (int depth = n; depth >= 0; depth--) {
        for (int i = 0; i < n; i++) {
            if (t->depth[i] == depth && t->inner[i]) {
                centre_above_children(t, n, i);
            }
        }
    }
    return columns;
}

static void draw_tree(const struct tree_picture *t, struct kolo_canvas *c, double left, double top)
{
    const double radius = t->dots->count > 64 ? 5 : 11;
    for (int i = 0; i < t->dots->count; i++) {
        const int up = t->up[i];
        if (t->x[i] < 0 || up < 0 || t->x[up] < 0) {
            continue;
        }
        const bool across = t->dots->host_of[i] != t->dots->host_of[up];
        const struct kolo_stroke s = {.colour = across ? "#b34700" : "#333",
                                      .width = across ? 2.6 : 1.1};
        kolo_canvas_line(
            c, (struct kolo_point){left + column_px * t->x[i], top + level_px * t->depth[i]},
            (struct kolo_point){left + column_px * t->x[up], top + level_px * t->depth[up]}, &s);
    }
    for (int i = 0; i < t->dots->count; i++) {
        const struct kolo_point at = {left + column_px * t->x[i], top + level_px * t->depth[i]};
        const int host = t->dots->host_of[i];
        if (t->x[i] < 0) {
            continue;
        }
        kolo_canvas_dot(c, at, radius,
                        !t->inner[i] ? "white"
                        : host >= 0  ? kolo_canvas_colour(host)
                                     : "#ddd",
                        host >= 0 ? kolo_canvas_colour(host) : "#333");
        kolo_canvas_dot(c, at, radius, "none", "#333");
        if (radius > 5) {
            kolo_canvas_text(c, (struct kolo_point){at.x, at.y + 4}, 10, KOLO_ANCHOR_MIDDLE, "%d",
                             i);
        }
    }
}

static int root_of(const struct kolo_job *job, int channel)
{
    for (int i = 0; i < job->nbranches; i++) {
        if (job->branch[i].channel == channel && job->branch[i].up < 0) {
            return job->branch[i].rank;
        }
    }
    return -1;
}

/* The channel with the other tree of the pair. In NCCL and in kolo it is half the channels on. */
static int complement_channel(const struct kolo_job *job)
{
    const int trees = kolo_job_trees(job), half = trees / 2;
    if (trees < 2) {
        return -1;
    }
    if (trees % 2 == 0 && root_of(job, half) != root_of(job, 0)) {
        return half;
    }
    for (int c = 1; c < trees; c++) {
        if (root_of(job, c) != root_of(job, 0)) {
            return c;
        }
    }
    return 1;
}

static void draw_both(const struct kolo_job *job, struct tree_picture *t,
                      struct kolo_canvas *canvas)
{
    const int channels[2] = {0, complement_channel(job)};
    const double top = canvas->height + 40;
    double left = 34;
    kolo_canvas_text(canvas, (struct kolo_point){20, top}, 15, KOLO_ANCHOR_START, "Trees%s",
                     t->dots->hosts ? " (dots are hosts)" : "");
    for (int which = 0; which < 2 && channels[which] >= 0; which++) {
        t->channel = channels[which];
        read_tree(t);
        const int columns = place_tree(t);
        kolo_canvas_text(canvas, (struct kolo_point){left - 12, top + 22}, 12, KOLO_ANCHOR_START,
                         "channel %d, root %d, depth %d", t->channel, root_of(job, t->channel),
                         kolo_job_depth(job, t->channel));
        draw_tree(t, canvas, left, top + 46);
        left += fmax(column_px * columns, 210) + 30;
    }
    kolo_canvas_text(canvas, (struct kolo_point){20, canvas->height + 26}, 11, KOLO_ANCHOR_START,
                     "Filled: passes data on; hollow: a leaf. Thick: between hosts.");
}

void kolo_picture_add_trees(const struct kolo_job *job, struct kolo_canvas *canvas)
{
    struct kolo_dots dots;
    if (job->nbranches == 0 || !kolo_dots_make(job, &dots)) {
        return;
    }
    const size_t n = (size_t)dots.count;
    struct tree_picture t = {.job = job, .dots = &dots};
    t.up = calloc(n, sizeof *t.up);
    t.depth = calloc(n, sizeof *t.depth);
    t.x = calloc(n, sizeof *t.x);
    t.inner = calloc(n, sizeof *t.inner);
    if (t.up != NULL && t.depth != NULL && t.x != NULL && t.inner != NULL) {
        draw_both(job, &t, canvas);
    }
    free(t.up);
    free(t.depth);
    free(t.x);
    free(t.inner);
    kolo_dots_free(&dots);
}
