// SPDX-License-Identifier: Apache-2.0
/* The machine of a simulation: hosts with cores and shared memory, network interfaces (NICs), one
 * a host or several rails, and one switch, or leaf switches under a core of switches.
 *
 *   rank rank | rank rank     ranks go to hosts in blocks; rank i of a host uses its NIC i mod rails
 *      NIC    |    NIC        each way a link of its own
 *         leaf switch         hosts_per_switch of them share its uplinks; 0: one switch for all
 *
 * A machine file has lines "name value"; '#' begins a comment. The names are those of KOLO_COSTS,
 * and those of the table in machine.c.
 */
#ifndef KOLO_SIM_MACHINE_H
#define KOLO_SIM_MACHINE_H

#include "topology/layout/groups.h"
#include "tune/model.h"
#include "tune/tune.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_sim_machine {
    struct kolo_costs costs;  /* of a host, and net: latency and 1 / bandwidth of a NIC */
    int ranks_per_host;       /* 0: all ranks on one host */
    double local_us_per_byte; /* a core copies within its own caches */
    double call_us;           /* from the call to its first op */
    double net_core_share;  /* part of a core that a busy NIC takes from computation; for replays */
    double net_gap_us;      /* from the start of one message of a NIC to the next, at least */
    double net_ramp_us;     /* more latency of a message of net_ramp_bytes or more; */
    size_t net_ramp_bytes;  /* of a shorter one its part of that */
    int rails;              /* NICs of a host */
    int lost_rail;          /* -1: none; its ranks use the next rail */
    int slow_nic;           /* number of a NIC, in the order of hosts; -1: none */
    double slow_nic_factor; /* its bytes take longer by this factor */
    int hosts_per_switch;   /* 0: one switch */
    double uplink_us_per_byte; /* 1 / bandwidth of a leaf's uplinks together, each way */
    double switch_latency_us;  /* more latency between two leaves */
    double noise;              /* standard deviation of log(processor time); 0: none */
    int slow_rank;             /* -1: none */
    double slow_factor;        /* its processor times are longer by this factor */
    size_t tile_bytes;         /* most bytes of a tile of a call; 0: kolo's */
    /* Of a start, processor times: to launch a process; of a rank for its communicator, and more for
     * each other rank; of the hub for a message and for a byte; of a rank for its first call, and
     * more for each other rank. */
    double start_process_us, start_rank_us, start_peer_us, start_message_us, start_us_per_byte;
    double start_call_us, start_call_peer_us;
    double error, error_95; /* of predicted times, held out, in percent; 0: not known */
    int error_ranks;        /* most ranks of the measurements that gave the errors */
    char topo[256];         /* hwloc XML file of a host; "": places unknown */
};

/* A core for each rank, one host, the costs of kolo's defaults. After a change of
 * costs.copy_us_per_byte call kolo_sim_machine_local(). */
void kolo_sim_machine_init(struct kolo_sim_machine *out);
/* Make copies within a core's own caches as much faster than copies from another core's as they
 * usually are. */
void kolo_sim_machine_local(struct kolo_sim_machine *machine);
/* One host with the costs of this machine, which are measured now. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_machine_live(struct kolo_sim_machine *out);
/* Read a machine file. `name` is for error texts. Errors: INVALID, with the line. */
KOLO_CHECK kolo_status kolo_sim_machine_parse(const char *name, const char *text,
                                              struct kolo_sim_machine *out);
KOLO_CHECK kolo_status kolo_sim_machine_read(const char *path, struct kolo_sim_machine *out);
/* Add the names of a machine file that KOLO_COSTS does not have, one a line, with their meaning. */
void kolo_sim_machine_names(struct kolo_text *out);

/* A machine with ranks on it. It points into itself: do not move it. */
struct kolo_sim_place {
    const struct kolo_sim_machine *machine;
    int nranks, per_host, nhosts;
    int cores; /* that the ranks of a host share; 0: a core each */
    struct kolo_model model;
    struct kolo_model_machine host; /* prices of links within a host */
    struct kolo_place *place;       /* [nranks] or NULL: unknown */
    struct kolo_groups groups;      /* as in struct kolo_shape */
    int *order;                     /* [nranks], or NULL: the ring is 0, 1, 2, ... */
};

/* Put `nranks` ranks on the machine. Errors: INVALID (the topo file), SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_place_open(const struct kolo_sim_machine *machine, int nranks,
                                           struct kolo_sim_place *out);
void kolo_sim_place_close(struct kolo_sim_place *place);

static inline int kolo_sim_leaf_of(const struct kolo_sim_place *p, int rank)
{
    const int hosts = p->machine->hosts_per_switch;
    return hosts > 0 ? rank / p->per_host / hosts : 0;
}
static inline int kolo_sim_host_of(const struct kolo_sim_place *p, int rank)
{
    return rank / p->per_host;
}
/* The number of the NIC that a rank uses, among those of all hosts. */
int kolo_sim_nic_of(const struct kolo_sim_place *place, int rank);
/* The link between two ranks of one host. */
void kolo_sim_near_link(const struct kolo_sim_place *place, int from, int to,
                        struct kolo_link_price *out);
/* The shape of a collective on these ranks: rings and groups as kolo would make them. */
struct kolo_shape kolo_sim_shape(const struct kolo_sim_place *place, enum kolo_coll coll, int root);

#ifdef __cplusplus
}
#endif
#endif
