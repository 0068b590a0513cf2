// SPDX-License-Identifier: Apache-2.0
/* `kolo run`: the declarations that tools/run*.c share. */
#ifndef KOLO_TOOLS_RUN_RUN_H
#define KOLO_TOOLS_RUN_RUN_H

#include "util/util.h"

#include <sys/types.h>

/* Start N local ranks of a program and end with them. Returns the exit status: 0, the first
 * failure's (128 + signal for a signal), 124 (time-out), 126 or 127 (the program cannot be
 * started), 2 (bad option). */
int kolo_tool_run(int argc, char **argv);

enum run_prefix { RUN_PREFIX_OTHERS, RUN_PREFIX_ALL, RUN_PREFIX_NONE };
enum run_bind { RUN_BIND_AUTO, RUN_BIND_NONE, RUN_BIND_CORE };

struct run_options {
    int nranks;
    enum run_prefix prefix;
    enum run_bind bind;
    int timeout_s;    /* 0: none */
    int min_ranks;    /* an elastic job goes on with as many; 0: the job is not elastic */
    int max_restarts; /* of all ranks together */
    const char *mpi;  /* NULL: no MPI program; else the path of its MPI library, or "" */
    char **command;
};

/* One of a rank's output streams. */
struct run_stream {
    int fd;      /* our end of its pipe, non-blocking; -1: ended, or not piped */
    int to;      /* 1 or 2 */
    int prefix;  /* the rank to show before each line, or -1 */
    char *bytes; /* of an incomplete line */
    size_t len, cap;
    double since_us; /* when the last byte came */
};

struct run_rank {
    pid_t pid;
    bool exited;
    int status;    /* as of waitpid(2), once exited */
    int restarts;  /* how many were started before in its place */
    bool given_up; /* it failed, and has no replacement */
    struct run_stream streams[2];
};

/* Passes the terminal's input on to rank 0. Rank 0 is in a process group of its own, so it may not
 * read the terminal itself. */
struct run_input {
    int to; /* our end of rank 0's pipe, non-blocking; -1: no pipe */
    char bytes[4096];
    size_t len;
};

struct run_state {
    struct run_options options;
    struct run_rank *ranks; /* [options.nranks] */
    int nstarted, nexited, nrestarts;
    struct run_input input;
    bool output_is_closed; /* our output has no reader any more */
};

/* Read the options (options.c). False after a message. `help`: its text was asked for, and is
 * printed. */
enum { RUN_MOST_RANKS = 4096 };
bool run_parse_options(int argc, char **argv, struct run_options *out, bool *help);
/* Start a rank (start.c). Returns 0, or the errno with which the program failed to start. */
int run_start_rank(struct run_state *run, int rank);
/* Choose the job's name and secret, and read the allowed CPUs. False after a message. */
bool run_prepare(struct run_state *run);

/* An elastic job (elastic.c). Read "MIN:MAX", numbers of 1 to `most`; false: it is none. */
bool run_elastic_range(const char *text, int most, struct run_options *out);
/* Make the folder where its ranks meet; false after a message. */
bool run_elastic_prepare(void);
/* Remove the folder. */
void run_elastic_end(void);
/* Tell rank `rank`, in its process, what it is to know of it. */
void run_elastic_environment(const struct run_state *run, int rank);
/* Whether a rank has written why the job cannot go on, although ranks live (Members.fail() of
 * kolo_torch.elastic). `why` becomes its sentence. */
#define RUN_WHY_BYTES 512
bool run_elastic_given_up(const struct run_state *run, char why[RUN_WHY_BYTES]);
/* Whether enough ranks are left for the job to go on. */
bool run_elastic_goes_on(const struct run_state *run);
/* End what a failed rank has left, and start another in its place. Returns the failed one's pid, to be
 * reaped; 0: there is no replacement. */
pid_t run_elastic_replace(struct run_state *run, int rank);

/* Become an MPI program whose collectives go to kolo (mpi.c). Returns only if that failed: the
 * exit status. */
int run_mpi(const struct run_options *options);

/* Wait at most `timeout_ms` for output, input or `wake_fd`, and pass on all that is ready
 * (pump.c). */
void run_pump(struct run_state *run, int wake_fd, int timeout_ms);
/* Pass on all that a rank's pipes hold now. */
void run_drain(struct run_state *run, struct run_rank *rank);
/* Pass on a rank's last output, and close its pipes. */
void run_end_streams(struct run_state *run, struct run_rank *rank);
/* Pass on the last output, even if its line is incomplete. */
void run_finish_output(struct run_state *run);

#endif
