// SPDX-License-Identifier: Apache-2.0
/* `kolo log`: what a log of NCCL, RCCL or kolo tells of a job. */
#ifndef KOLO_TOOLS_LOG_H
#define KOLO_TOOLS_LOG_H

#include "topology/layout/job.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_LOG_VALUES = 16 };

/* Different values that lines of one kind gave, in the order of the lines. */
struct kolo_log_values {
    int count;
    int value[KOLO_LOG_VALUES][2];
};

struct kolo_log {
    const char *path; /* of the first file, for messages */
    struct kolo_job job;
    char version[64];                     /* "2.7.8+cuda10.2"; "" nowhere told */
    char library[8];                      /* "NCCL", "RCCL", "KOLO"; "" */
    struct kolo_log_values nranks;        /* of communicators */
    struct kolo_log_values nodes;         /* nNodes and localRanks */
    struct kolo_log_values channels;      /* behind the slash of a ring line */
    struct kolo_log_values coll_channels; /* "4 coll channels, ..." */
    struct kolo_log_values heads;         /* NVLS Head: channel, rank */
    long lines, own_lines;                /* all, and those of the library */
    int cut_rings;                        /* ring lines that end early */
    int warn_lines, init_complete;
    /* "Ring 02 : 1 -> 2 -> 3": next of a rank in a channel; rebuilds rings. As edges, unsorted. */
    struct kolo_job_edge *next;
    int nnext, next_room;
    struct kolo_text issues; /* a line each */
    int nissues;
};

/* Read a log's text into `log`, which is {0} before the first; then finish it. Errors: INVALID
 * (more than a log of its size can hold), SYSTEM. */
KOLO_CHECK kolo_status kolo_log_read(struct kolo_log *log, const char *path, const char *bytes,
                                     size_t len);
/* After the last file: rings that were cut are rebuilt, lists sorted, issues found. */
KOLO_CHECK kolo_status kolo_log_finish(struct kolo_log *log);
void kolo_log_free(struct kolo_log *log);

/* log_ring.c. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_rebuild(struct kolo_log *log);
/* log_check.c: adds to issues. */
void kolo_log_check(struct kolo_log *log);
/* Places where a parent and its child disagree. */
int kolo_log_tree_faults(const struct kolo_job *job);
void kolo_log_issue(struct kolo_log *log, const char *format, ...) KOLO_PRINTF(2, 3);

/* log_print.c */
void kolo_log_print_text(const struct kolo_log *log, struct kolo_text *out);
void kolo_log_print_json(const struct kolo_log *log, struct kolo_text *out);

/* The command; returns the exit status: 0, 1 (a file), 2 (bad option). */
int kolo_tool_log(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
