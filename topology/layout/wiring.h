// SPDX-License-Identifier: Apache-2.0
/* The plan of channels over the GPUs and NICs of one host or of many equal hosts. It holds rings,
 * two trees, the NIC of each GPU, and how close the result comes to the upper bound. The plan is
 * deterministic: equal graphs give equal wirings. Ties go by the order of GPUs, which is by number
 * or bus address. */
#ifndef KOLO_TOPOLOGY_LAYOUT_WIRING_H
#define KOLO_TOPOLOGY_LAYOUT_WIRING_H

#include "topology/layout/fabric.h"
#include "topology/layout/job.h"
#include "topology/layout/layout.h"
#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_over {                   /* links of the rings in a host */
                 KOLO_OVER_SWITCH, /* NVSwitch */
                 KOLO_OVER_DIRECT, /* NVLink or xgmi between GPUs */
                 KOLO_OVER_ALL     /* all links: also PCI and between NUMA nodes */
};

struct kolo_rail {                    /* the ends of a ring in a host */
    int entry, exit;                  /* GPUs, as places in gpu[] */
    int in, out;                      /* NICs, as places in nic[]; -1: none */
    enum kolo_path in_path, out_path; /* from NIC to GPU */
    bool turns; /* odd hosts run the path backwards, so that a ring stays on its rail */
};

struct kolo_wiring {
    const struct kolo_graph *graph;
    int ngpus, nhosts;
    enum kolo_over over;
    int nrings;             /* distinct; channels are twice as many, one per tree */
    int *path;              /* [nrings * ngpus] GPUs of a host in a ring's order */
    struct kolo_rail *rail; /* [nrings]; entry and exit are the path's ends */
    double ring_gbs;        /* of each ring */
    double bound_gbs;       /* upper bound of all rings together, given their ends */
    double host_gbs;        /* upper bound in a host, without NICs */
    double nic_gbs;         /* sum of the used NICs; 0: one host */
    int bound_links;        /* the bound in links of `unit_gbs`; 0: not in links */
    double unit_gbs;
    int *nic_of;              /* [ngpus] place in nic[]; -1 none */
    enum kolo_path *nic_path; /* [ngpus] */
};

/* Plan `nhosts` hosts like this graph. Errors: UNSUPPORTED (no GPU, or too many in a host), INVALID
 * (nhosts), SYSTEM. */
KOLO_CHECK kolo_status kolo_wiring_make(const struct kolo_graph *graph, int nhosts,
                                        struct kolo_wiring *out);
void kolo_wiring_free(struct kolo_wiring *wiring);

/* Rings, trees and edges of all ranks: rank r is GPU r mod ngpus of host r / ngpus. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_wiring_job(const struct kolo_wiring *wiring, struct kolo_job *out);
/* One ring over all hosts: writes its ranks to order[ngpus * nhosts]. */
void kolo_wiring_ring(const struct kolo_wiring *wiring, int ring, int *order);
/* Tree `which` (0 or 1) along ring `ring`: writes every rank's neighbours to out[ngpus * nhosts].
 * Every rank but the root has a parent. A rank that is interior in one of the two trees is a leaf,
 * or the end of a chain, in the other. */
void kolo_wiring_tree(const struct kolo_wiring *wiring, int ring, int which, struct kolo_tree *out);
/* The target of `rank` at `step` (1 to n-1) of an all-to-all. At each step all targets differ. A
 * rank meets the hosts one after another, and in each host its rail's GPU first. */
int kolo_wiring_peer(const struct kolo_wiring *wiring, int rank, int step);

/* Print bound, achieved rate, rings, rails and NICs for people. */
void kolo_wiring_print(const struct kolo_wiring *wiring, struct kolo_text *out);
/* Print all channels as the lines of NCCL's log, with the trees of all ranks. */
void kolo_wiring_print_log(const struct kolo_job *job, struct kolo_text *out);
void kolo_wiring_json(const struct kolo_wiring *wiring, const struct kolo_job *job,
                      struct kolo_text *out);
/* The rings and trees of a job that has no machine. */
void kolo_job_json(const struct kolo_job *job, struct kolo_text *out);
/* Whether GPUDirect RDMA may serve GPU node `gpu` and NIC `nic` (a place in nic[]): only PCI
 * switches are between them (NCCL's default, PXB), and the graph does not say that it fails. */
bool kolo_wiring_gdr(const struct kolo_wiring *wiring, int gpu, int nic);
static inline double kolo_wiring_gbs(const struct kolo_wiring *wiring)
{
    return wiring->nrings * wiring->ring_gbs;
}

/* Find the paths within a host (wiring_local.c). */
KOLO_CHECK kolo_status kolo_wiring_local(struct kolo_wiring *w, const struct kolo_fabric *fabric);
/* Choose the NICs, and find the paths between a ring's ends in a host (wiring_rails.c). */
KOLO_CHECK kolo_status kolo_wiring_rails(struct kolo_wiring *w, const struct kolo_fabric *fabric);

#ifdef __cplusplus
}
#endif
#endif
