// SPDX-License-Identifier: Apache-2.0
/* `kolo tune`: the parts that tools/tune*.c share.
 *
 * A *point* is a call to be tuned: collective, bytes, buffers. A *way* is how it may be done: an
 * algorithm with a tile, or a composition of other collectives. Ways are timed in two parts of
 * rounds: the first decides, the second, which has not decided, tells how good the decision is. */
#ifndef KOLO_TOOLS_TUNE_H
#define KOLO_TOOLS_TUNE_H

#include "core/comm.h"
#include "tune/table.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Measure which algorithms are fastest and keep the choices. Returns the exit status: 0, 1 (it
 * cannot be measured or written), 2 (bad option). */
int kolo_tool_tune(int argc, char **argv);

enum { TUNE_ROUNDS = 64, TUNE_WAYS = 40, TUNE_SIZES = 64, TUNE_TEXT = 64 };
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
    int standard;       /* the way without a table */
    const char *source; /* of the standard: "price" */
    int chosen;         /* as decided */
};

struct tune_points {
    int nranks;
    int count;
    struct tune_point *point; /* by collective, then buffers, then bytes */
};

struct tune_options {
    int nranks[TUNE_SIZES]; /* to start */
    int njobs;
    unsigned colls; /* bits */
    size_t min_bytes, max_bytes, explain_bytes;
    int factor, time_s;
    const char *out, *csv; /* NULL: the default file; none */
    bool dry_run, regret, explain, shared, bar, help;
};

/* ---- tune_decide.c: pure ---- */

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

/* ---- tune_file.c: the table that is kept ---- */

/* The file to write: options.out, KOLO_TUNE_FILE, or the one that communicators look for. */
kolo_status tune_file_path(const struct tune_options *options, const struct kolo_host *host,
                           struct kolo_text *out);
/* The text of the table there with these points' rows. What it says of other ranks, collectives and
 * sizes stays. Errors: as kolo_table_load(), but a file may be missing. */
kolo_status tune_file_compose(const char *path, const struct kolo_host *host,
                              const struct tune_points *points, struct kolo_text *out);
/* In one step: readers see the old text or the new one. Errors: SYSTEM. */
kolo_status tune_file_write(const char *path, const char *text);

/* ---- tune_calls.c: calls of a rank ---- */

struct tune_memory { /* of a rank: private and shared */
    void *in[2], *out[2];
    size_t bytes; /* of each */
};
kolo_status tune_memory_take(size_t bytes, bool shared, struct tune_memory *out);
void tune_memory_free(struct tune_memory *memory);
/* The most bytes of IN or OUT at a rank. */
size_t tune_span(enum kolo_coll coll, int nranks, size_t bytes);
/* One call of the collective as it is chosen. */
kolo_status tune_call(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                      enum kolo_coll coll, size_t bytes);
/* Compositions of other collectives that do the same, from number `from` on; -1: no more. */
int tune_composition(enum kolo_coll coll, int nranks, size_t bytes, int from);
const char *tune_composition_name(int composition);
kolo_status tune_compose(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                         int composition, size_t bytes);

/* ---- tune_measure.c: timing, on all ranks alike ---- */

struct tune_rank {
    struct tune_options options;
    struct kolo_comm *comm, *control; /* measured; for everything else */
    struct tune_memory memory;
    struct tune_points points;
    struct kolo_host *host;
    struct kolo_text path; /* rank 0: of the table that is kept */
    double begin_us;
    int skipped; /* points that the time was too short for */
    int rank, nranks;
};
/* Measures every point, in at most options.time_s seconds, and decides. */
kolo_status tune_measure(struct tune_rank *rank);

/* ---- tune_rank.c: what a rank does ---- */

/* Joins the others, measures and reports. Returns the exit status. */
int tune_rank_main(const struct tune_options *options);

/* ---- tune_report.c: what rank 0 says ---- */

void tune_way_name(const struct tune_way *way, char out[TUNE_TEXT]);
void tune_print_rules(const struct tune_points *points, FILE *out);
void tune_print_regret(const struct tune_points *points, FILE *out);
void tune_print_guards(const struct tune_points *points, FILE *out);
void tune_print_explanation(const struct tune_point *point, int nranks, FILE *out);
/* Appends to the file. False and a line on standard error if that fails. */
bool tune_write_csv(const struct tune_points *points, const char *path);
/* A share of 1 on a terminal: a bar that grows; else a line for each tenth. */
void tune_progress(const struct tune_rank *rank, double share, const char *what);

#ifdef __cplusplus
}
#endif

#endif
