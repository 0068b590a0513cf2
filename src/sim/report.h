// SPDX-License-Identifier: Apache-2.0
/* The critical path of a simulation in words, and its ops as a trace. */
#ifndef KOLO_SIM_REPORT_H
#define KOLO_SIM_REPORT_H

#include "sim/sim.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of time on a critical path. */
enum kolo_sim_kind_of_time {
    KOLO_SIM_COPYING,  /* moves with one source */
    KOLO_SIM_ADDING,   /* moves with several */
    KOLO_SIM_SERVING,  /* processor time of the call, of messages and of lines */
    KOLO_SIM_LATENCY,  /* of messages and lines */
    KOLO_SIM_BYTES,    /* of messages, alone on their links */
    KOLO_SIM_SHARING,  /* waits for other messages: links, connections, gaps of NICs */
    KOLO_SIM_QUEUEING, /* waits for a core that another rank or lane has */
    KOLO_SIM_TIMES
};

struct kolo_sim_path {
    double us[KOLO_SIM_TIMES];
    double total_us; /* of the tiles that were simulated */
    int messages, lines;
    int ranks, rank[12]; /* the ranks it passes, last to first, as far as there is room */
};

/* `result` has moments. */
void kolo_sim_path_find(const struct kolo_sim_result *result, struct kolo_sim_path *out);
void kolo_sim_path_say(const struct kolo_sim_path *path, struct kolo_text *out);

/* Write the moments in the Trace Event Format of Chrome, which Perfetto opens: a process a host, a
 * thread a lane, an arrow a message on which an op waited. False: a write failed. */
bool kolo_sim_trace_write(const struct kolo_sim_result *result,
                          const struct kolo_sim_options *options, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
