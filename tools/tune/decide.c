// SPDX-License-Identifier: Apache-2.0
/* Makes choices from times.
 *
 * A disturbance in a round affects all ways of the round. So ways are compared within rounds, and
 * the median of the comparisons counts. Single rounds may be far off, so the standard deviation is
 * estimated from the median absolute deviation (MAD). For normal values it is 1.4826 MAD for one
 * value, and sqrt(pi/2)/sqrt(rounds) times that for the median. */
#include "tools/tune/decide.h"

#include "core/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST_GAIN = 0.05, SIGMAS = 2;
enum { LEAST_ROUNDS = 3, FEW_BYTES = 64 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

struct tune_figure tune_figure_of(const double *values, int count)
{
    double sorted[TUNE_ROUNDS];
    struct tune_figure figure = {0};
    count = count < TUNE_ROUNDS ? count : TUNE_ROUNDS;
    if (count == 0) {
        return figure;
    }
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    figure.count = count;
    figure.value = median_of(sorted, count);
    for (int i = 0; i < count; i++) {
        sorted[i] = fabs(values[i] - figure.value);
    }
    figure.sigma = 1.2533 * 1.4826 * median_of(sorted, count) / sqrt(count);
    return figure;
}

struct tune_figure tune_time(const struct tune_way *way, enum tune_part part)
{
    double values[TUNE_ROUNDS];
    int count = 0;
    for (int i = 0; i < TUNE_ROUNDS; i++) {
        if (way->us[part][i] > 0) {
            values[count++] = way->us[part][i];
        }
    }
    return tune_figure_of(values, count);
}

struct tune_figure tune_gain(const struct tune_way *a, const struct tune_way *b,
                             enum tune_part part)
{
    double values[TUNE_ROUNDS];
    int count = 0;
    for (int i = 0; i < TUNE_ROUNDS; i++) {
        if (a->us[part][i] > 0 && b->us[part][i] > 0) {
            values[count++] = 1 - a->us[part][i] / b->us[part][i];
        }
    }
    return tune_figure_of(values, count);
}

bool tune_is_worth(const struct tune_figure *gain)
{
    return gain->count >= LEAST_ROUNDS && gain->value > LEAST_GAIN &&
           gain->value > SIGMAS * gain->sigma;
}

int tune_best(const struct tune_point *point, enum tune_part part)
{
    int best = point->standard;
    double best_us = tune_time(&point->way[best], part).value;
    for (int i = 0; i < point->nways; i++) {
        const struct tune_figure time = tune_time(&point->way[i], part);
        const bool faster = time.count > 0 && (best_us <= 0 || time.value < best_us);
        if (point->way[i].algo != NULL && !point->way[i].dropped && faster) {
            best = i;
            best_us = time.value;
        }
    }
    return best;
}

void tune_decide(struct tune_point *point)
{
    const int best = tune_best(point, TUNE_DECIDE);
    const struct tune_figure gain =
        tune_gain(&point->way[best], &point->way[point->standard], TUNE_DECIDE);
    point->chosen = best != point->standard && tune_is_worth(&gain) ? best : point->standard;
}

int tune_find(const struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes)
{
    for (int i = 0; i < point->nways; i++) {
        if (point->way[i].algo == algo && algo != NULL && point->way[i].tile_bytes == tile_bytes) {
            return i;
        }
    }
    return -1;
}

int tune_add(struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes,
             double predicted_us)
{
    if (point->nways == TUNE_WAYS || tune_find(point, algo, tile_bytes) >= 0) {
        return -1;
    }
    struct tune_way *way = &point->way[point->nways];
    *way = (struct tune_way){.algo = algo, .tile_bytes = tile_bytes, .predicted_us = predicted_us};
    return point->nways++;
}

int tune_hint(const struct tune_point *smaller, const struct tune_point *larger)
{
    const int mine = tune_best(smaller, TUNE_DECIDE), theirs = tune_best(larger, TUNE_DECIDE);
    const struct tune_figure small = tune_time(&smaller->way[mine], TUNE_DECIDE);
    const struct tune_figure large = tune_time(&larger->way[theirs], TUNE_DECIDE);
    const bool falls = small.count > 0 && large.count > 0 && large.value < small.value;
    return falls ? theirs : -1;
}

/* ---- rows ---- */

/* The border between two measured sizes: the power of two not below their geometric mean. */
static size_t size_between(size_t below, size_t above)
{
    size_t edge = 1;
    while ((double)edge < sqrt((double)below * (double)above)) {
        edge *= 2;
    }
    return edge;
}

static bool are_neighbours(const struct tune_point *a, const struct tune_point *b)
{
    return a->coll == b->coll && a->shared == b->shared;
}

/* The range of sizes that a point stands for: the sizes nearest to its own. At the ends the range
 * reaches to half and to twice the point's size, because sizes beyond were not measured. All sizes
 * below a few words count as one. */
static void span_of(const struct tune_points *points, int index, size_t *low, size_t *high)
{
    const struct tune_point *p = &points->point[index];
    const bool first = index == 0 || !are_neighbours(p, p - 1);
    const bool last = index + 1 == points->count || !are_neighbours(p, p + 1);
    *low = !first ? size_between(p[-1].bytes, p->bytes) : p->bytes <= FEW_BYTES ? 0 : p->bytes / 2;
    *low = p->shared ? kolo_max(*low, KOLO_ENTRY_BYTES) : *low;
    *high = p->coll == KOLO_COLL_BARRIER ? SIZE_MAX
            : last                       ? 2 * p->bytes
                                         : size_between(p->bytes, p[1].bytes);
}

void tune_range(const struct tune_points *points, enum kolo_coll coll, size_t *low, size_t *high)
{
    *low = SIZE_MAX;
    *high = 0;
    for (int i = 0; i < points->count; i++) {
        size_t from = 0, to = 0;
        if (points->point[i].coll == coll) {
            span_of(points, i, &from, &to);
            *low = kolo_min(*low, from);
            *high = kolo_max(*high, to);
        }
    }
}

/* The row for a point's choice. */
static struct kolo_row row_of(const struct tune_points *points, int index)
{
    const struct tune_point *p = &points->point[index];
    const struct tune_way *way = &p->way[p->chosen];
    const struct tune_figure gain = tune_gain(way, &p->way[p->standard], TUNE_DECIDE);
    struct kolo_row row = {.coll = p->coll,
                           .ranks_low = points->nranks,
                           .ranks_high = points->nranks,
                           .algo = way->algo,
                           .tile_bytes = way->tile_bytes != p->tile_bytes ? way->tile_bytes : 0,
                           .buffers = p->shared ? KOLO_BUFFERS_SHARED : KOLO_BUFFERS_PRIVATE,
                           .us = tune_time(way, TUNE_DECIDE).value,
                           .default_us = tune_time(&p->way[p->standard], TUNE_DECIDE).value,
                           .gain = gain.value,
                           .sigma = gain.sigma};
    span_of(points, index, &row.low, &row.high);
    return row;
}

static bool same_choice(const struct kolo_row *a, const struct kolo_row *b)
{
    return a->coll == b->coll && a->algo == b->algo && a->tile_bytes == b->tile_bytes;
}

/* Keep the figures of the row with the lesser gain: two rows become one. */
static void keep_lesser(struct kolo_row *row, const struct kolo_row *other)
{
    if (other->gain < row->gain) {
        row->us = other->us;
        row->default_us = other->default_us;
        row->gain = other->gain;
        row->sigma = other->sigma;
    }
}

/* Calls too small for a choice by buffers have only the private point. */
static bool is_for_any(const struct kolo_row *row)
{
    return row->high <= KOLO_ENTRY_BYTES || row->coll == KOLO_COLL_BARRIER;
}

/* Join `row` to one of the rows: as its neighbour, or as the other kind of buffers. */
static bool join_row(struct kolo_row *rows, int count, const struct kolo_row *row)
{
    for (int i = 0; i < count; i++) {
        struct kolo_row *other = &rows[i];
        if (!same_choice(other, row)) {
            continue;
        }
        if (other->buffers == row->buffers && other->high == row->low) {
            other->high = row->high;
            keep_lesser(other, row);
            return true;
        }
    }
    return false;
}

static int join_buffers(struct kolo_row *rows, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        bool joined = false;
        for (int k = 0; k < kept && !joined; k++) {
            /* The private row may begin lower: below, calls do not depend on the buffers. */
            joined =
                same_choice(&rows[k], &rows[i]) && rows[k].high == rows[i].high &&
                kolo_max(rows[k].low, KOLO_ENTRY_BYTES) == kolo_max(rows[i].low, KOLO_ENTRY_BYTES);
            if (joined) {
                rows[k].buffers = KOLO_BUFFERS_ANY;
                keep_lesser(&rows[k], &rows[i]);
            }
        }
        if (!joined) {
            rows[kept++] = rows[i];
        }
    }
    return kept;
}

int tune_rows(const struct tune_points *points, struct kolo_row *rows, int room)
{
    int count = 0;
    for (int i = 0; i < points->count; i++) {
        const struct tune_point *p = &points->point[i];
        if (p->chosen == p->standard) {
            continue;
        }
        struct kolo_row row = row_of(points, i);
        row.buffers = is_for_any(&row) ? KOLO_BUFFERS_ANY : row.buffers;
        if (!join_row(rows, count, &row) && count < room) {
            rows[count++] = row;
        }
    }
    return join_buffers(rows, count);
}
