// SPDX-License-Identifier: Apache-2.0
/* A simulation of one call: when each op of each rank's lowered program begins and ends.
 *
 * The programs are those that the executor runs, with its lanes, tiles, stages and credits. What an
 * op takes is a property of the machine:
 *   MOVE          a pass of the core over the bytes; more for each further source and destination,
 *                 and for each that a message brought, if it is added
 *   WAIT, SIGNAL  step_us for each line; a line is there latency_us after its SIGNAL
 *   SEND, TAKEN   net_message_us and the copy of the bytes, at either end, while others are on the
 *                 wire
 *   message       a flow over the NICs and uplinks, shared max-min fairly; its last byte is there
 *                 net latency after it left; messages from one rank to another keep their order
 * A core does one op at a time, also for its lanes and for ranks that share it.
 *
 * The same input gives the same output, to the bit.
 */
#ifndef KOLO_SIM_SIM_H
#define KOLO_SIM_SIM_H

#include "sim/machine.h"
#include "sim/program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_sim_moment {     /* an op that took time, or waited */
    double ready_us;         /* all that it waited for is there */
    double begin_us, end_us; /* it has the core */
    int rank, lane, op;
    uint32_t tile;
    int cause; /* the moment that it waited for last, or -1 */
    /* What lies between the cause's end and ready_us: the latency of a line or message, and the
     * bytes of a message alone on its links. The rest is waiting for other messages. */
    double latency_us, wire_us;
};

/* What the links and cores did in a call, all tiles counted. */
struct kolo_sim_use {
    int nnics, nleaves, ncores;
    double *link_us; /* [2 * (nnics + nleaves)]: out and in of each NIC, then up and down of each
                      * leaf switch: its bytes at its full rate */
    double *core_us; /* [ncores]: a core a rank, or those that the ranks of a host share */
};

struct kolo_sim_options {
    const struct kolo_algo *algo;
    const struct kolo_sim_machine *machine;
    int nranks, root;
    size_t bytes;      /* as in struct kolo_query */
    size_t tile_bytes; /* of kolo's choice, if the machine has no tile of its own; 0: the default */
    uint64_t seed;
    bool fold;    /* where it is exact; see fold.h */
    bool moments; /* keep them, for the critical path and the trace */
    bool use;     /* tell what links and cores did */
};

struct kolo_sim_result {
    double total_us;
    double tile_us;         /* of one more tile in the steady state; 0: all tiles were simulated */
    uint32_t tiles, walked; /* of the call; simulated */
    int simulated;          /* ranks; fewer than nranks if they stand for all */
    int programs;           /* different ones */
    size_t steps, events;
    double busiest_us;              /* of the core that computes longest; of the tiles walked */
    double wire_us;                 /* of the NIC that is busy longest, with its bytes alone */
    struct kolo_sim_moment *moment; /* in order of begin of their simulation, or NULL */
    int nmoments, last;             /* last: the moment that ends last, or -1 */
    struct kolo_sim_use use;        /* empty without the option */
    struct kolo_sim_set set;        /* the programs; kept with `moments` alone */
};

/* Simulate one call. Errors: UNSUPPORTED (the algorithm refuses the shape, or its plan is too large
 * to simulate), INVALID, SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_run(const struct kolo_sim_options *options,
                                    struct kolo_sim_result *out);
/* Free the moments, the programs and the use. The figures stay. */
void kolo_sim_result_free(struct kolo_sim_result *result);

#ifdef __cplusplus
}
#endif
#endif
