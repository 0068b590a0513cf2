// SPDX-License-Identifier: Apache-2.0
/* `kolo log`: the facts about a job in a log of NCCL, RCCL or kolo. */
#ifndef KOLO_TOOLS_LOG_H
#define KOLO_TOOLS_LOG_H

#include "topology/layout/job.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_LOG_VALUES = 16 };

/* The distinct values in lines of one kind, in the order of the lines. */
struct kolo_log_values {
    int count;
    int value[KOLO_LOG_VALUES][2];
};

struct kolo_log {
    const char *path; /* of the first file, for messages */
    struct kolo_job job;
    char version[64];                     /* "2.7.8+cuda10.2"; "" unknown */
    char library[8];                      /* "NCCL", "RCCL", "KOLO"; "" unknown */
    struct kolo_log_values nranks;        /* of communicators */
    struct kolo_log_values nodes;         /* nNodes and localRanks */
    struct kolo_log_values channels;      /* behind the slash of a ring line */
    struct kolo_log_values coll_channels; /* "4 coll channels, ..." */
    struct kolo_log_values heads;         /* NVLS Head: channel, rank */
    long lines, own_lines;                /* all lines, and the library's lines */
    int cut_rings;                        /* ring lines that end early */
    int warn_lines, init_complete;
    /* From "Ring 02 : 1 -> 2 -> 3": the next rank in a channel, as unsorted edges. They rebuild cut
     * rings. */
    struct kolo_job_edge *next;
    int nnext, next_room;
    struct kolo_text issues; /* one a line */
    int nissues;
};

/* Read a log's text into `log`, which is {0} before the first text. Finish it after the last.
 * Errors: INVALID (more than a log of its size can hold), SYSTEM. */
KOLO_CHECK kolo_status kolo_log_read(struct kolo_log *log, const char *path, const char *bytes,
                                     size_t len);
/* Complete the log after the last file: rebuild cut rings, sort the lists, find issues. */
KOLO_CHECK kolo_status kolo_log_finish(struct kolo_log *log);
void kolo_log_free(struct kolo_log *log);

/* Rebuild cut and missing rings (log_ring.c). Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_rebuild(struct kolo_log *log);
/* Find issues and add them to the log (log_check.c). */
void kolo_log_check(struct kolo_log *log);
/* Number of places in trees where parent and child disagree. */
int kolo_log_tree_faults(const struct kolo_job *job);
void kolo_log_issue(struct kolo_log *log, const char *format, ...) KOLO_PRINTF(2, 3);

/* Print the log for people, or as JSON (log_print.c). */
void kolo_log_print_text(const struct kolo_log *log, struct kolo_text *out);
void kolo_log_print_json(const struct kolo_log *log, struct kolo_text *out);

/* Run the subcommand. Returns the exit status: 0, 1 (a bad file), 2 (bad option). */
int kolo_tool_log(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
