// SPDX-License-Identifier: Apache-2.0
/* `kolo sim`: how long a collective takes on a machine that is not here. */
#ifndef KOLO_TOOLS_SIM_SIM_H
#define KOLO_TOOLS_SIM_SIM_H

#include "sim/sim.h"
#include "tune/tune.h"

#include <stdio.h>

/* Simulate. Returns the exit status: 0, 1 (nothing could be simulated), 2 (bad option). */
int kolo_tool_sim(int argc, char **argv);

/* ---- what the files of the command share ---- */

struct sim_row { /* one size of one algorithm */
    const struct kolo_algo *algo;
    size_t size, count; /* bytes as in the sweeps; elements of the call */
    double us, algbw, busbw;
    struct kolo_sim_result result;
    bool chosen; /* kolo would choose this algorithm for this size */
};

struct sim_sweep {
    enum kolo_coll coll;
    int nranks, root;
    const char *machine;                   /* file, or a description */
    const struct kolo_sim_machine *values; /* the machine's */
    struct sim_row *row;
    int nrows, cap;
    struct kolo_text skipped; /* a line for each algorithm that has no plan here */
};

/* The machine of a file, "live" for this one, or NULL: the costs of KOLO_COSTS, or typical ones.
 * per_host > 0: so many ranks on each host. Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status sim_machine_open(const char *name, int per_host,
                                        struct kolo_sim_machine *out);
/* What kolo would choose for ranks on `place`. The caller frees *host after the chooser, also after
 * an error. Errors: INVALID, SYSTEM. */
KOLO_CHECK kolo_status sim_chooser_open(const struct kolo_sim_place *place, int **host,
                                        struct kolo_chooser **out);

/* A line about the error of times that the machine predicts for `nranks` ranks. */
void sim_print_error(const struct kolo_sim_machine *machine, int nranks, FILE *out);
/* Fill in the columns from size and time. */
void sim_row_rate(const struct sim_sweep *sweep, struct sim_row *row);
/* The table of nccl-tests for the rows of one algorithm, or of all choices (algo NULL). */
void sim_print_table(const struct sim_sweep *sweep, const struct kolo_algo *algo, FILE *out);
/* A line for each size: the fastest, and how much slower kolo's choice is. */
void sim_print_best(const struct sim_sweep *sweep, FILE *out);
void sim_add_json(const struct sim_sweep *sweep, struct kolo_text *out);

#endif
