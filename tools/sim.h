// SPDX-License-Identifier: Apache-2.0
/* `kolo sim`: how long a collective takes on a machine that is not here. */
#ifndef KOLO_TOOLS_SIM_H
#define KOLO_TOOLS_SIM_H

#include "sim/sim.h"

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
    const char *machine; /* file, or a description */
    const struct kolo_costs *costs;
    struct sim_row *row;
    int nrows, cap;
    struct kolo_text skipped; /* a line for each algorithm that has no plan here */
};

/* Fill in the columns from size and time. */
void sim_row_rate(const struct sim_sweep *sweep, struct sim_row *row);
/* The table of nccl-tests for the rows of one algorithm, or of all choices (algo NULL). */
void sim_print_table(const struct sim_sweep *sweep, const struct kolo_algo *algo, FILE *out);
/* A line for each size: the fastest, and how much slower kolo's choice is. */
void sim_print_best(const struct sim_sweep *sweep, FILE *out);
void sim_add_json(const struct sim_sweep *sweep, struct kolo_text *out);

#endif
