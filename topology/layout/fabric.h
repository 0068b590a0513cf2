// SPDX-License-Identifier: Apache-2.0
/* The planner's questions about a graph: the route from each GPU to every other, how near two
 * devices are, and how much data can leave a set of GPUs. Link l is two arcs: 2l from a to b, and
 * 2l + 1 from b to a. */
#ifndef KOLO_TOPOLOGY_LAYOUT_FABRIC_H
#define KOLO_TOPOLOGY_LAYOUT_FABRIC_H

#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How two devices are joined, the nearest first. The names are those of NCCL and nvidia-smi. */
enum kolo_path {
    KOLO_PATH_LOC, /* the same device */
    KOLO_PATH_NVL, /* NVLink, xgmi, NVSwitch */
    KOLO_PATH_PIX, /* one PCI switch */
    KOLO_PATH_PXB, /* several PCI switches, but no host bridge */
    KOLO_PATH_PHB, /* one NUMA node */
    KOLO_PATH_SYS, /* across NUMA nodes */
    KOLO_PATH_NONE,
    KOLO_PATHS
};
const char *kolo_path_name(enum kolo_path path);

struct kolo_route {
    enum kolo_path path;
    int first, count; /* arcs in struct kolo_fabric's arc[] */
    double gbs;       /* capacity of its narrowest link */
};

struct kolo_fabric {
    const struct kolo_graph *graph;
    int n;                    /* GPUs */
    struct kolo_route *route; /* [n * n] */
    int *arc;
    int narcs, arc_room;
    bool switched;   /* every GPU has links to the NVSwitch */
    bool direct;     /* GPU to GPU links alone join all GPUs */
    double unit_gbs; /* one lane of the direct links; 0: lanes differ, or none exist */
};

enum { KOLO_FABRIC_GPUS_MAX = 128 };

/* Errors: UNSUPPORTED (no GPU, or more than KOLO_FABRIC_GPUS_MAX in one host), SYSTEM. */
KOLO_CHECK kolo_status kolo_fabric_make(const struct kolo_graph *graph, struct kolo_fabric *out);
void kolo_fabric_free(struct kolo_fabric *fabric);

/* How near two nodes are over PCI alone. */
enum kolo_path kolo_pci_path(const struct kolo_graph *graph, int a, int b);
/* Number of PCI links between two nodes: the measure among pairs with equal paths. */
int kolo_pci_steps(const struct kolo_graph *graph, int a, int b);
/* Find the route from node a to node b that crosses no other GPU: the widest, and of equally wide
 * ones the shortest. Writes its arcs to out[most]. Returns their number; -1: no route. */
int kolo_graph_route(const struct kolo_graph *graph, int a, int b, int *out, int most);

/* The minimum cut in GB/s: the least capacity out of any set of GPUs. Neither one ring through all
 * GPUs nor all rings together carry more. `direct`: count only links between GPUs and to the
 * NVSwitch. 0: no memory. */
double kolo_fabric_cut(const struct kolo_fabric *fabric, bool direct);
/* GB/s from the GPUs marked in in_set[n] to the others. */
double kolo_fabric_cut_of(const struct kolo_fabric *fabric, bool direct,
                          const unsigned char *in_set);

#ifdef __cplusplus
}
#endif
#endif
