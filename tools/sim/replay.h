// SPDX-License-Identifier: Apache-2.0
/* `kolo sim --replay`: how long the calls of a job's flight records take on a machine that is not
 * here. */
#ifndef KOLO_TOOLS_SIM_REPLAY_H
#define KOLO_TOOLS_SIM_REPLAY_H

#include "sim/sim.h"

struct sim_replay_options {
    char **path; /* a record for each rank */
    int npaths;
    int nranks; /* of the largest communicator; 0: as recorded */
    uint64_t seed;
    const struct kolo_sim_machine *machine;
    const char *machine_name;
    const char *json; /* as in `kolo sim --json`, or NULL */
};

/* Read, simulate and print. Returns the exit status: 0 or 1. */
int sim_replay(const struct sim_replay_options *options);

#endif
