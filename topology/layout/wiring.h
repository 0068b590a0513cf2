// SPDX-License-Identifier: Apache-2.0
/* The plan of channels on a machine's GPUs and NICs, for one host or many alike: rings, two trees,
 * the NIC of each GPU, and how good that is against what is possible. Deterministic: equal graphs
 * give equal wirings, ties go by the order of GPUs, which is by number or bus address. */
#ifndef KOLO_TOPOLOGY_LAYOUT_WIRING_H
#define KOLO_TOPOLOGY_LAYOUT_WIRING_H

#include "topology/layout/fabric.h"
#include "topology/layout/job.h"
#include "topology/layout/layout.h"
#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_over {                   /* what rings within a host run over */
                 KOLO_OVER_SWITCH, /* NVSwitch */
                 KOLO_OVER_DIRECT, /* NVLink or xgmi between GPUs */
                 KOLO_OVER_ALL     /* those, PCI and links between NUMA nodes */
};

struct kolo_rail {                    /* where a ring enters and leaves a host */
    int entry, exit;                  /* GPUs, as places in gpu[] */
    int in, out;                      /* NICs, as places in nic[]; -1: none */
    enum kolo_path in_path, out_path; /* from NIC to GPU */
    bool turns; /* odd hosts are gone through backwards, so that each rail stays with itself */
};

struct kolo_wiring {
    const struct kolo_graph *graph;
    int ngpus, nhosts;
    enum kolo_over over;
    int nrings;             /* distinct; channels are twice as many, for both trees */
    int *path;              /* [nrings * ngpus] GPUs of a host in a ring's order */
    struct kolo_rail *rail; /* [nrings]; entry and exit are the path's ends */
    double ring_gbs;        /* of each ring */
    double bound_gbs;       /* what all rings together cannot exceed, with the ends they have */
    double host_gbs;        /* bound within a host, without NICs */
    double nic_gbs;         /* sum of NICs used; 0: one host */
    int bound_links;        /* the bound in links of `unit_gbs`; 0: not in links */
    double unit_gbs;
    int *nic_of;              /* [ngpus] place in nic[]; -1 */
    enum kolo_path *nic_path; /* [ngpus] */
};

/* Errors: UNSUPPORTED (no GPU, or too many in a host), INVALID (nhosts), SYSTEM. */
KOLO_CHECK kolo_status kolo_wiring_make(const struct kolo_graph *graph, int nhosts,
                                        struct kolo_wiring *out);
void kolo_wiring_free(struct kolo_wiring *wiring);

/* Rings, trees and edges of all ranks: rank r is GPU r mod ngpus of host r / ngpus. Errors: SYSTEM.
 */
KOLO_CHECK kolo_status kolo_wiring_job(const struct kolo_wiring *wiring, struct kolo_job *out);
/* Ring c of all hosts, as ranks into order[ngpus * nhosts]. */
void kolo_wiring_ring(const struct kolo_wiring *wiring, int ring, int *order);
/* Tree `which` (0 or 1) along ring `ring`, of all ranks: out[ngpus * nhosts]. Each rank but a root
 * has its parent; what is inner in one of the two is a leaf, or the end of a chain, in the other.
 */
void kolo_wiring_tree(const struct kolo_wiring *wiring, int ring, int which, struct kolo_tree *out);
/* The order in which a rank sends to all others in an all-to-all: step s (1 to n-1) of rank r. At
 * each step all targets differ; hosts are met one after another, and GPUs of a rail first. */
int kolo_wiring_peer(const struct kolo_wiring *wiring, int rank, int step);

/* Bound, achieved, rings, rails and NICs for people. */
void kolo_wiring_print(const struct kolo_wiring *wiring, struct kolo_text *out);
/* The lines of NCCL's log for all channels; `trees` of all ranks. */
void kolo_wiring_print_log(const struct kolo_job *job, struct kolo_text *out);
void kolo_wiring_json(const struct kolo_wiring *wiring, const struct kolo_job *job,
                      struct kolo_text *out);
static inline double kolo_wiring_gbs(const struct kolo_wiring *wiring)
{
    return wiring->nrings * wiring->ring_gbs;
}

/* wiring_local.c: paths within a host. */
KOLO_CHECK kolo_status kolo_wiring_local(struct kolo_wiring *w, const struct kolo_fabric *fabric);
/* wiring_rails.c: NICs, and paths from where a ring enters to where it leaves. */
KOLO_CHECK kolo_status kolo_wiring_rails(struct kolo_wiring *w, const struct kolo_fabric *fabric);

#ifdef __cplusplus
}
#endif
#endif
