// SPDX-License-Identifier: Apache-2.0
/* `kolo log`: the communicators in a log of NCCL, RCCL or kolo.
 *
 *   bytes -> lines (log_text) -> messages (log_line) -> facts of members (log_read, log_member)
 *         -> communicators (log_comm) -> rings (log_ring), issues (log_check, log_fault) -> output
 *
 * A member is one rank's part of one communicator: a process may be a member of several
 * communicators, and a host of several processes. */
#ifndef KOLO_TOOLS_LOG_LOG_H
#define KOLO_TOOLS_LOG_LOG_H

#include "topology/layout/job.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_LOG_VALUES = 16, KOLO_LOG_NAME = 128 };

/* The distinct values in lines of one kind, in the order of the lines. */
struct kolo_log_values {
    int count;
    int value[KOLO_LOG_VALUES][2];
};

enum { KOLO_LOG_NVLS = 1, KOLO_LOG_MNNVL = 2, KOLO_LOG_COLLNET = 4, KOLO_LOG_PXN = 8 };

/* "3[8a000]": the GPU of a rank as a bus id or a device. */
struct kolo_log_bracket {
    uint64_t value;
    bool known;
};

/* One rank's part of one communicator. 0 and, for ranks and indices, -1: not in the log. */
struct kolo_log_member {
    int host, pid, tid;     /* host: index into all.host */
    uint64_t comm, id;      /* pointer, commId */
    int rank, nranks, most; /* most: the highest rank that its lines name */
    int nodes, local, colour;
    int ring_channels; /* behind the slash of a ring line */
    int coll_channels; /* "4 coll channels, ..." */
    bool whole_ring;   /* nranks is the length of its ring */
    bool began, complete, ended;
    unsigned uses;               /* KOLO_LOG_NVLS and the like */
    int last;                    /* kind of the last fact */
    int last_channel[3];         /* last channel of each kind, see member.c */
    uint64_t trees;              /* hash of its Trees line; 0: none */
    int earlier;                 /* the member before this one in its process */
    struct kolo_log_bracket gpu; /* as edges name it */
    int edges;                   /* that it said */
    long called;                 /* the last line that names it after its start */
    long line, end, stamp;       /* first and last line, and the last that names the communicator */
    int set;                     /* index into comm[] after the end of the log */
};

/* "Ring 02 : 1 -> 2 -> 3": the next rank in a channel. */
struct kolo_log_next {
    struct kolo_job_edge edge;
    int member;
};

struct kolo_log_comm {
    struct kolo_job job; /* job.nranks is the least that there are, if it is not exact */
    uint64_t id;         /* commId; 0 unknown */
    bool nranks_exact, hosts_exact, channels_exact;
    int nhosts; /* at least, if it is not exact */
    int nmembers, began, complete;
    unsigned uses;                        /* KOLO_LOG_NVLS and the like */
    long line;                            /* the first line */
    int number;                           /* by first lines */
    struct kolo_log_values nodes;         /* nNodes and localRanks */
    struct kolo_log_values channels;      /* behind the slash of a ring line */
    struct kolo_log_values coll_channels; /* "4 coll channels, ..." */
    struct kolo_log_values heads;         /* NVLS Head: channel, rank */
    struct kolo_job_edge *next;           /* from "Ring 02 : 1 -> 2 -> 3", unsorted */
    int nnext, next_room;
};

/* Lines of one kind that tell of a fault: the first is kept. */
struct kolo_log_fault {
    char *kind, *text; /* kind: the text without its numbers */
    char who[KOLO_LOG_NAME + 32];
    const char *file;
    long line, count;
    bool warning;
};

struct kolo_log {
    const char *path;   /* of the first file, for messages */
    const char *wanted; /* which communicator: its place in the list, its commId; NULL: the first */
    char version[64];   /* "2.7.8+cuda10.2"; "" unknown */
    char library[8];    /* "NCCL", "RCCL", "KOLO"; "" unknown */
    long lines, own_lines; /* all lines, and the library's lines */
    const char *file;      /* the file at hand, */
    long line;             /* and the line of it */
    int files, warn_lines;

    struct kolo_log_member *member;
    int nmembers, member_room;
    struct kolo_log_map *threads, *processes, *names; /* member.c */

    struct kolo_job all;                /* what all members say, in the order of the lines */
    int *branch_of, *ring_of, *edge_of; /* the members that say it */
    int branch_room, ring_room, edge_room;
    struct kolo_log_bracket *bracket; /* of the edges' far ends */
    int bracket_room;
    struct kolo_log_next *next;
    int nnext, next_room;
    struct kolo_log_next *head; /* NVLS Head: channel and, as from, a rank */
    int nheads, head_room;

    struct kolo_log_comm *comm; /* the largest first */
    int ncomms, shown;          /* shown: index; -1 none */

    struct kolo_log_fault *fault;
    int nfaults, fault_room;
    struct kolo_text settings;                          /* "NCCL_ALGO=Ring", one a line */
    char plugin[KOLO_LOG_NAME], network[KOLO_LOG_NAME]; /* the plug-in loaded, the network used */

    struct kolo_text kinds;  /* files without a line of use, and what they are; one a line */
    struct kolo_text issues; /* one a line */
    char *torn;              /* the begin of a line into which another was written, see read.c */
    bool torn_here;          /* the message at hand ends where another begins */
};

/* Read a log's text into `log`, which is {0} before the first text. Finish it after the last.
 * Errors: INVALID (more than a log of its size can hold), SYSTEM. */
KOLO_CHECK kolo_status kolo_log_read(struct kolo_log *log, const char *path, const char *bytes,
                                     size_t len);
/* Complete the log after the last file: sort members into communicators, rebuild cut rings, find
 * issues. Errors: INVALID (`wanted` names no communicator), SYSTEM. */
KOLO_CHECK kolo_status kolo_log_finish(struct kolo_log *log);
void kolo_log_free(struct kolo_log *log);
/* The communicator that is shown; NULL: the log has none. */
struct kolo_log_comm *kolo_log_shown(const struct kolo_log *log);
/* False: nothing in the log is of use. */
bool kolo_log_is_useful(const struct kolo_log *log);

/* Put each member into a communicator (comm.c). Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_log_group(struct kolo_log *log);
/* Make the list of communicators (build.c). Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_build(struct kolo_log *log);
/* Rebuild cut and missing rings (ring.c). Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_log_rebuild(struct kolo_log_comm *comm);
/* Find issues and add them to the log (check.c). */
void kolo_log_check(struct kolo_log *log);
/* Number of places in trees where parent and child disagree. */
int kolo_log_tree_faults(const struct kolo_job *job);
/* The names of the bits of `uses`. */
enum { KOLO_LOG_USES = 4 };
extern const char *const kolo_log_uses[KOLO_LOG_USES];
/* Whether an edge over this carrier joins ranks of one host. */
bool kolo_log_stays_on_host(const char *via);
kolo_status kolo_log_fail_memory(const struct kolo_log *log);
static inline int kolo_log_larger(int a, int b)
{
    return a > b ? a : b;
}
void kolo_log_issue(struct kolo_log *log, const char *format, ...) KOLO_PRINTF(2, 3);

/* Print the log for people (print.c), or as JSON (json.c). */
void kolo_log_print_text(const struct kolo_log *log, struct kolo_text *out);
void kolo_log_print_json(const struct kolo_log *log, struct kolo_text *out);

/* Run the subcommand. Returns the exit status: 0, 1 (bad file, nothing of use), 2 (bad option). */
int kolo_tool_log(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
