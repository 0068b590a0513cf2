// SPDX-License-Identifier: Apache-2.0
/* What the planner asks of a machine's graph: the way from each GPU to each other one, how near two
 * devices are, and how much can leave any set of GPUs at all. A link is two arcs, 2l from a to b
 * and 2l + 1 back. */
#ifndef KOLO_TOPOLOGY_LAYOUT_FABRIC_H
#define KOLO_TOPOLOGY_LAYOUT_FABRIC_H

#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How two devices are joined, the nearest first; names as NCCL and nvidia-smi have them. */
enum kolo_path {
    KOLO_PATH_LOC, /* the same device */
    KOLO_PATH_NVL, /* NVLink, xgmi, NVSwitch */
    KOLO_PATH_PIX, /* one PCI switch */
    KOLO_PATH_PXB, /* several, but no host bridge */
    KOLO_PATH_PHB, /* one NUMA node */
    KOLO_PATH_SYS, /* across NUMA nodes */
    KOLO_PATH_NONE,
    KOLO_PATHS
};
const char *kolo_path_name(enum kolo_path path);

struct kolo_route {
    enum kolo_path path;
    int first, count; /* arcs in struct kolo_fabric's arc[] */
    double gbs;       /* of its narrowest link */
};

struct kolo_fabric {
    const struct kolo_graph *graph;
    int n;                    /* GPUs */
    struct kolo_route *route; /* [n * n] */
    int *arc;
    int narcs, arc_room;
    bool switched;   /* every GPU has links to the NVSwitch */
    bool direct;     /* GPU to GPU links alone join all GPUs */
    double unit_gbs; /* of one lane of those links; 0: they differ, or there are none */
};

enum { KOLO_FABRIC_GPUS_MAX = 128 };

/* Errors: UNSUPPORTED (no GPU, or more than KOLO_FABRIC_GPUS_MAX in one host), SYSTEM. */
KOLO_CHECK kolo_status kolo_fabric_make(const struct kolo_graph *graph, struct kolo_fabric *out);
void kolo_fabric_free(struct kolo_fabric *fabric);

/* How near two nodes are by PCI alone. */
enum kolo_path kolo_pci_path(const struct kolo_graph *graph, int a, int b);
/* The way from node a to node b through nodes that are no GPUs, widest first, then shortest: arcs
 * into out[most]; how many; -1: there is none. */
int kolo_graph_route(const struct kolo_graph *graph, int a, int b, int *out, int most);

/* GB/s that can leave the set of GPUs that least can leave: no ring that passes all GPUs carries
 * more, nor all rings together. `direct`: over GPU to GPU links and NVSwitch alone. 0: no memory.
 */
double kolo_fabric_cut(const struct kolo_fabric *fabric, bool direct);
/* GB/s that can leave this set of GPUs, in_set[n], for the others. */
double kolo_fabric_cut_of(const struct kolo_fabric *fabric, bool direct,
                          const unsigned char *in_set);

#ifdef __cplusplus
}
#endif
#endif
