// SPDX-License-Identifier: Apache-2.0
/* Points, ways and the decisions from their times: the part of `kolo tune` without communication.
 *
 * - A *point* is a call to be tuned: collective, bytes, buffers.
 * - A *way* is a candidate for the call: an algorithm with a tile, or a composition of other
 *   collectives.
 *
 * The rounds have two parts. The first part decides. The second part, which is independent of the
 * decision, tells how good the decision is. */
#ifndef KOLO_TOOLS_TUNE_DECIDE_H
#define KOLO_TOOLS_TUNE_DECIDE_H

#include "tune/table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TUNE_ROUNDS = 64, TUNE_WAYS = 40 };
enum tune_part { TUNE_DECIDE, TUNE_CHECK, TUNE_PARTS };

struct tune_way {
    const struct kolo_algo *algo; /* NULL: a composition */
    int composition;
    size_t tile_bytes;
    double predicted_us;                /* 0: not predicted */
    bool dropped;                       /* much slower at the first look */
    bool checked;                       /* takes part in TUNE_CHECK */
    double us[TUNE_PARTS][TUNE_ROUNDS]; /* microseconds a call; 0: not timed in this round */
};

struct tune_point {
    enum kolo_coll coll;
    size_t bytes; /* as in struct kolo_query */
    bool shared;
    int nways;
    struct tune_way way[TUNE_WAYS];
    size_t tile_bytes;  /* without a table, for all algorithms; 0: default */
    int standard;       /* the way without a table */
    const char *source; /* source of the standard: "price" */
    int chosen;         /* the decided way */
};

struct tune_points {
    int nranks;
    int count;
    struct tune_point *point; /* sorted by collective, buffers, bytes */
};

/* The median of times, and the standard deviation of the median; count 0: no times. */
struct tune_figure {
    double value, sigma;
    int count;
};
struct tune_figure tune_figure_of(const double *values, int count);
struct tune_figure tune_time(const struct tune_way *way, enum tune_part part);
/* The gain of a over b: 1 - a/b, from the rounds in which both were timed. */
struct tune_figure tune_gain(const struct tune_way *a, const struct tune_way *b,
                             enum tune_part part);
/* Whether a gain is worth a rule: more than two standard deviations, and more than 5 %. */
bool tune_is_worth(const struct tune_figure *gain);
/* The fastest way of this part, compositions excluded; the standard if no way is timed. */
int tune_best(const struct tune_point *point, enum tune_part part);
/* Set point->chosen: the fastest way if it is worth a rule, else the standard. */
void tune_decide(struct tune_point *point);
/* Find a hint from the larger of two sizes of one collective. If the smaller size takes longer than
 * the larger one, the smaller size should try the larger one's way. Returns that way of `larger`;
 * -1: no hint. */
int tune_hint(const struct tune_point *smaller, const struct tune_point *larger);
/* The way with this algorithm and tile; -1: none. */
int tune_find(const struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes);
/* Add a way, unless it exists or there is no room. Returns its number or -1. */
int tune_add(struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes,
             double predicted_us);
/* Make rows for the choices that differ from the standard. Neighbouring sizes share a row, and so
 * do both kinds of buffers if they agree. Returns the number of rows, at most `room`. */
int tune_rows(const struct tune_points *points, struct kolo_row *rows, int room);

/* The range of sizes that a collective's points stand for. */
void tune_range(const struct tune_points *points, enum kolo_coll coll, size_t *low, size_t *high);

#ifdef __cplusplus
}
#endif

#endif
