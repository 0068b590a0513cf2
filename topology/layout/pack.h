// SPDX-License-Identifier: Apache-2.0
/* Packing of rings into a machine: given the number and the rate of rings, find paths through all
 * GPUs whose sum fits the links. */
#ifndef KOLO_TOPOLOGY_LAYOUT_PACK_H
#define KOLO_TOPOLOGY_LAYOUT_PACK_H

#include "topology/layout/fabric.h"

struct kolo_pack {
    const struct kolo_fabric *fabric;
    int nrings;
    double rate_gbs;  /* rate of each ring */
    bool mirrored;    /* find nrings / 2 rings, and use each in both directions */
    bool direct;      /* use NVL routes only */
    const int *entry; /* [nrings] where a ring enters and leaves the host; NULL: cycles */
    const int *exit;
    const double *used; /* [arcs] GB/s that other traffic takes; NULL: none */
    long steps;         /* most places that may be tried */
    unsigned seed;      /* orders equal candidates */
    int *out;           /* [nrings * n]: GPUs of each ring in order */
};

enum kolo_packed {
    KOLO_PACKED,
    KOLO_PACK_IMPOSSIBLE, /* every order was tried */
    KOLO_PACK_UNKNOWN     /* steps or memory ran out */
};
/* Search for the rings. Reduces `pack->steps` by the steps used. Deterministic. */
enum kolo_packed kolo_pack_rings(struct kolo_pack *pack);

#endif
