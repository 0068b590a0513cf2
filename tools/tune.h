// SPDX-License-Identifier: Apache-2.0
/* `kolo tune`: the parts that tools/tune*.c share. */
#ifndef KOLO_TOOLS_TUNE_H
#define KOLO_TOOLS_TUNE_H

#include "core/comm.h"
#include "tune_decide.h"

#include <stdio.h>

/* Measure which algorithms are fastest and keep the choices. Returns the exit status: 0, 1 (it
 * cannot be measured or written), 2 (bad option). */
int kolo_tool_tune(int argc, char **argv);

enum { TUNE_TEXT = 64, TUNE_SIZES = 64 };

struct tune_options {
    int nranks[TUNE_SIZES]; /* to start */
    int njobs;
    unsigned colls; /* bits */
    size_t min_bytes, max_bytes, explain_bytes;
    int factor, time_s;
    const char *out, *csv; /* NULL: the default file; none */
    bool dry_run, explain, shared, bar, help;
};

/* ---- tune_file.c: the table that is kept ---- */

/* The file to write: options.out, or the one that communicators of this machine look for. */
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
kolo_status tune_memory_take(size_t bytes, struct tune_memory *out);
/* The shared ones, later. */
kolo_status tune_memory_share(struct tune_memory *memory);
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

#endif
