// SPDX-License-Identifier: Apache-2.0
/* Points, ways and what is decided from their times: the part of `kolo tune` that calls nobody.
 *
 * A *point* is a call to be tuned: collective, bytes, buffers. A *way* is how it may be done: an
 * algorithm with a tile, or a composition of other collectives. Ways are timed in two parts of
 * rounds: the first decides, the second, which has not decided, tells how good the decision is. */
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
    bool dropped;                       /* far behind at the first look */
    bool checked;                       /* takes part in TUNE_CHECK */
    double us[TUNE_PARTS][TUNE_ROUNDS]; /* microseconds a call; 0: not timed in this round */
};

struct tune_point {
    enum kolo_coll coll;
    size_t bytes; /* as in struct kolo_query */
    bool shared;
    int nways;
    struct tune_way way[TUNE_WAYS];
    size_t tile_bytes;  /* without a table, whatever the algorithm; 0: the default */
    int standard;       /* the way without a table */
    const char *source; /* of the standard: "price" */
    int chosen;         /* as decided */
};

struct tune_points {
    int nranks;
    int count;
    struct tune_point *point; /* by collective, then buffers, then bytes */
};

/* Median, and the standard deviation of the median, of what was timed; count 0: nothing was. */
struct tune_figure {
    double value, sigma;
    int count;
};
struct tune_figure tune_figure_of(const double *values, int count);
struct tune_figure tune_time(const struct tune_way *way, enum tune_part part);
/* 1 - a/b, from the rounds that both were timed in: what is gained by a over b. */
struct tune_figure tune_gain(const struct tune_way *a, const struct tune_way *b,
                             enum tune_part part);
/* A rule is worth writing: more than two standard deviations, and 5 %. */
bool tune_is_worth(const struct tune_figure *gain);
/* Of the ways that are no composition, the fastest of this part; the standard where none is timed.
 */
int tune_best(const struct tune_point *point, enum tune_part part);
/* Sets point->chosen: the fastest way where it is worth a rule, else the standard. */
void tune_decide(struct tune_point *point);
/* At the smaller of two sizes of one collective the choice takes longer than at the larger: what
 * the larger does is to be tried at the smaller. The way of `larger`, or -1. */
int tune_hint(const struct tune_point *smaller, const struct tune_point *larger);
/* The way of this algorithm and tile; -1: none. */
int tune_find(const struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes);
/* Adds a way, unless it is there or there is no room. Returns its number or -1. */
int tune_add(struct tune_point *point, const struct kolo_algo *algo, size_t tile_bytes,
             double predicted_us);
/* The rows for the choices that differ from the standard: neighbouring sizes are one row, and both
 * kinds of buffers where they agree. Returns how many; at most `room`. */
int tune_rows(const struct tune_points *points, struct kolo_row *rows, int room);

/* The sizes of a collective that its points stand for. */
void tune_range(const struct tune_points *points, enum kolo_coll coll, size_t *low, size_t *high);

#ifdef __cplusplus
}
#endif

#endif
