// SPDX-License-Identifier: Apache-2.0
/* `kolo tune`: the declarations that tools/tune*.c share. */
#ifndef KOLO_TOOLS_TUNE_TUNE_H
#define KOLO_TOOLS_TUNE_TUNE_H

#include "core/comm.h"
#include "tools/tune/decide.h"

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

/* ---- file.c: the tuning table ---- */

/* The file to write: options.out, or the file that communicators on this machine look for. */
kolo_status tune_file_path(const struct tune_options *options, const struct kolo_host *host,
                           struct kolo_text *out);
/* Compose the table's new text: the rows of these points replace the old ones. Rows of other ranks,
 * collectives and sizes stay. Errors: as kolo_table_load(), but the file may be missing. */
kolo_status tune_file_compose(const char *path, const struct kolo_host *host,
                              const struct tune_points *points, struct kolo_text *out);
/* Write the file in one step: readers see the old text or the new one. Errors: SYSTEM. */
kolo_status tune_file_write(const char *path, const char *text);

/* ---- calls.c: calls of a rank ---- */

struct tune_memory { /* a rank's buffers: private and shared */
    void *in[2], *out[2];
    size_t bytes; /* of each */
};
kolo_status tune_memory_take(size_t bytes, struct tune_memory *out);
/* Allocate the shared buffers, which come later. */
kolo_status tune_memory_share(struct tune_memory *memory);
void tune_memory_free(struct tune_memory *memory);
/* The bytes of the larger of IN and OUT at a rank. */
size_t tune_span(enum kolo_coll coll, int nranks, size_t bytes);
/* Make one call of the collective, with the current choice. */
kolo_status tune_call(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                      enum kolo_coll coll, size_t bytes);
/* The next composition of other collectives with the same result, from number `from` on; -1: no
 * more. */
int tune_composition(enum kolo_coll coll, int nranks, size_t bytes, int from);
const char *tune_composition_name(int composition);
kolo_status tune_compose(struct kolo_comm *comm, const struct tune_memory *memory, bool shared,
                         int composition, size_t bytes);

/* ---- measure.c: timing, the same on all ranks ---- */

struct tune_rank {
    struct tune_options options;
    struct kolo_comm *comm, *control; /* for measured calls; for all others */
    struct tune_memory memory;
    struct tune_points points;
    struct kolo_host *host;
    struct kolo_text path; /* rank 0: path of the tuning table */
    double begin_us;
    int skipped; /* points not measured for lack of time */
    int rank, nranks;
};
/* Measure every point, in at most options.time_s seconds, and decide. */
kolo_status tune_measure(struct tune_rank *rank);

/* ---- rank.c: the program of a rank ---- */

/* Join the other ranks, measure and report. Returns the exit status. */
int tune_rank_main(const struct tune_options *options);

/* ---- report.c: the report of rank 0 ---- */

void tune_print_rules(const struct tune_points *points, FILE *out);
void tune_print_regret(const struct tune_points *points, FILE *out);
void tune_print_guards(const struct tune_points *points, FILE *out);
void tune_print_explanation(const struct tune_point *point, int nranks, FILE *out);
/* Append to the file. False: it failed, and a line on standard error tells why. */
bool tune_write_csv(const struct tune_points *points, const char *path);
/* Show the share of the work that is done (0 to 1): a growing bar on a terminal, else a line for
 * each tenth. */
void tune_progress(const struct tune_rank *rank, double share, const char *what);

#endif
