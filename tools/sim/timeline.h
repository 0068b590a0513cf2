// SPDX-License-Identifier: Apache-2.0
/* The ranks of a job on their way through its record. */
#ifndef KOLO_TOOLS_SIM_TIMELINE_H
#define KOLO_TOOLS_SIM_TIMELINE_H

#include "tools/sim/record.h"

struct sim_price {
    double us;      /* that a call takes */
    double core_us; /* processor time of it that a rank lacks if it computes meanwhile */
};

/* What a call takes. recorded_us: of its shortest rank, the last to come. */
typedef kolo_status (*sim_cost)(void *context, const struct sim_call *call, double recorded_us,
                                struct sim_price *out);

struct sim_timeline { /* us */
    double recorded, predicted;
    double compute, calls, waits; /* of all ranks together, as predicted */
    int ncalls, overlapping;
};

/* A rank computes between its calls as long as in the record. A call begins when its last rank is
 * there, and the calls of its communicator before it are over. A rank stops where the record says
 * that it waited for a call, until the call is over. A message leaves when it is sent. Errors:
 * INVALID, if the records do not fit together; SYSTEM; those of `cost`. */
KOLO_CHECK kolo_status sim_timeline_walk(const struct sim_records *records, sim_cost cost,
                                         void *context, struct sim_timeline *out);

#endif
