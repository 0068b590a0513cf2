// SPDX-License-Identifier: Apache-2.0
/* The place of each node in a machine's picture: picture_place.c computes it for picture_machine.c.
 *
 * A machine is drawn in bands, each as wide as a page. A band has, from top to bottom, the NVSwitch,
 * GPUs, NICs, PCI switches and NUMA nodes. A NUMA node whose devices are in several bands has a box
 * in each. NICs of one parent are stacked if there are more than two. */
#ifndef KOLO_TOPOLOGY_DRAW_PICTURE_PLACE_H
#define KOLO_TOPOLOGY_DRAW_PICTURE_PLACE_H

#include "topology/draw/canvas.h"
#include "topology/machine/graph.h"

enum {
    KOLO_COLUMN_PX = 88,
    KOLO_BOX_PX = 80,
    KOLO_LEVEL_PX = 62,
    KOLO_STACK_PX = 50,
    KOLO_NUMA_PX = 140,
    KOLO_PAGE_PX = 1540
};

struct kolo_band {
    int deepest, rows; /* levels of switches, and of stacked NICs */
    bool gpus, smp;
    double arcs; /* height of the links between its GPUs */
    double top, gpu_y, nic_y, numa_y;
};

/* The box of a NUMA node in a band. */
struct kolo_numa_box {
    int numa, band;
    double x;
};

struct kolo_places {
    const struct kolo_graph *g;
    struct kolo_point *at; /* [nodes] middle of the box; x < 0: not drawn */
    int *depth;            /* [nodes] below the NUMA node */
    int *band;             /* [nodes] of a NUMA node the first one */
    int *row;              /* [nodes] of a stacked NIC: 0 is nearest to the parent */
    int *stack;            /* [nodes] NICs in its column; 0: it is not stacked */
    struct kolo_band *bands;
    int nbands;
    struct kolo_numa_box *boxes;
    int nboxes;
};

/* Place all nodes, the first band below `top`. False: no memory. */
bool kolo_places_make(const struct kolo_graph *graph, double top, struct kolo_places *out);
void kolo_places_free(struct kolo_places *places);
/* The box of a NUMA node in a band; NULL: it has none there. */
const struct kolo_numa_box *kolo_places_box(const struct kolo_places *places, int numa, int band);
bool kolo_places_is_leaf(const struct kolo_node *node);
/* Height of the curve of a link between two GPUs of one band. */
double kolo_places_arc(const struct kolo_places *places, const struct kolo_graph_edge *link);

#endif
