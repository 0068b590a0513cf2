// SPDX-License-Identifier: Apache-2.0
/* Rings packed into a machine: given how many and how fast, find ways through all GPUs whose sums
 * fit the links. */
#ifndef KOLO_TOPOLOGY_LAYOUT_PACK_H
#define KOLO_TOPOLOGY_LAYOUT_PACK_H

#include "topology/layout/fabric.h"

struct kolo_pack {
    const struct kolo_fabric *fabric;
    int nrings;
    double rate_gbs;  /* of each ring */
    bool mirrored;    /* nrings / 2 are found, and each is gone both ways */
    bool direct;      /* over NVL routes alone */
    const int *entry; /* [nrings] where a ring enters and leaves the host; NULL: they are cycles */
    const int *exit;
    const double *used; /* [arcs] taken by others already, GB/s; NULL: nothing is */
    long steps;         /* how many places may be tried */
    unsigned seed;      /* what is tried first among equals */
    int *out;           /* [nrings * n]: GPUs of each ring in order */
};

enum kolo_packed {
    KOLO_PACKED,
    KOLO_PACK_IMPOSSIBLE, /* all was tried */
    KOLO_PACK_UNKNOWN     /* steps ran out, or memory */
};
/* Steps are taken off `pack->steps`. Deterministic. */
enum kolo_packed kolo_pack_rings(struct kolo_pack *pack);

#endif
