// SPDX-License-Identifier: Apache-2.0
/* The calls of a job, read from the flight records of its ranks: kolo's, or PyTorch's as JSON. */
#ifndef KOLO_TOOLS_SIM_RECORD_H
#define KOLO_TOOLS_SIM_RECORD_H

#include "plan/plan.h"

struct sim_call {
    enum kolo_coll coll;
    int group, root;         /* group: in struct sim_records */
    uint64_t number;         /* of the group's calls */
    size_t bytes;            /* as in struct kolo_query */
    double begin_us, end_us; /* by the clock of the rank's host */
    double waited_us;        /* since when the rank waited for it; INFINITY: never */
    bool sends;              /* the rank is the sender of a message */
};

struct sim_record { /* of one process */
    const char *path;
    char process[96];      /* host and number; "": unknown */
    struct sim_call *call; /* in order of begin */
    int ncalls, cap;
    int unfinished, unknown; /* entries that are left out: not over; no collective that is known */
};

struct sim_group { /* the ranks of a communicator */
    char name[96];
    int nranks;
    bool messages; /* of one rank to another: scatters by two ranks */
};

struct sim_records {
    struct sim_record *record;
    int nrecords;
    struct sim_group *group;
    int ngroups, cap;
};

/* Read the files. kolo writes one for each communicator of a process, PyTorch one for each process;
 * the files of one process become one record. sim_records_free() is called in any case. Errors: INVALID (the text has
 * file and fault), SYSTEM. */
KOLO_CHECK kolo_status sim_records_read(char **paths, int npaths, struct sim_records *out);
void sim_records_free(struct sim_records *records);

#endif
