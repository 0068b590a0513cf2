// SPDX-License-Identifier: Apache-2.0
/* Flows over links that they share max-min fairly: no flow can have more without taking from one
 * that has no more than it (Bertsekas, Gallager: Data Networks, 1987, section 6.5.2).
 *
 * Only the flows that share links, directly or through others, with a flow that begins or ends
 * get new rates.
 */
#ifndef KOLO_SIM_FLOWS_H
#define KOLO_SIM_FLOWS_H

#include "util/util.h"

enum { KOLO_SIM_FLOW_LINKS = 4 };

struct kolo_sim_flow {
    int link[KOLO_SIM_FLOW_LINKS];                              /* -1: none */
    int next[KOLO_SIM_FLOW_LINKS], before[KOLO_SIM_FLOW_LINKS]; /* flows of the link, or -1 */
    double left;                                                /* bytes, at since_us */
    double since_us, rate;                                      /* bytes a us; rate < 0: no limit */
    double end_us;                                              /* if no rate changes */
    uint32_t mark, version;                                     /* version: of end_us */
    int message; /* the caller's; in a free flow the next free one */
};

struct kolo_sim_link {
    double rate;  /* bytes a us; 0: no limit */
    double bytes; /* of all flows since the beginning */
    int first;    /* flow, or -1 */
    int count;
    uint32_t mark;
    double free; /* while rates are found */
    int open;
};

struct kolo_sim_flows {
    struct kolo_sim_link *link;
    int nlinks;
    struct kolo_sim_flow *flow;
    int nflows, cap, unused;
    uint32_t mark;
    int *part, *links; /* the flows and links whose rates are to be found */
    int nparts, part_cap, nfound;
    int *dirty; /* links where a flow began or ended since */
    int ndirty, dirty_cap;
    bool failed; /* out of memory */
};

bool kolo_sim_flows_open(struct kolo_sim_flows *flows, int nlinks);
void kolo_sim_flows_close(struct kolo_sim_flows *flows);

/* Begin a flow of `bytes` over links; its rate is known after kolo_sim_flows_settle(). Returns its
 * number; -1: out of memory. */
int kolo_sim_flow_begin(struct kolo_sim_flows *flows, const int link[KOLO_SIM_FLOW_LINKS],
                        double bytes, double now_us);
void kolo_sim_flow_end(struct kolo_sim_flows *flows, int flow);

/* Give new rates at now_us where flows began or ended. Calls `changed` for each flow with a new
 * end. */
void kolo_sim_flows_settle(struct kolo_sim_flows *flows, double now_us,
                           void (*changed)(void *ctx, int flow), void *ctx);

#endif
