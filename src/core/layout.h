// SPDX-License-Identifier: Apache-2.0
/* Rings, trees and groups that plans of a communicator follow. Fixed once it has come up. */
#ifndef KOLO_CORE_LAYOUT_H
#define KOLO_CORE_LAYOUT_H

#include "plan/plan.h"
#include "topology/layout/groups.h"
#include "topology/layout/layout.h"

/* The link between GPUs, as NVML tells. */
enum kolo_gpu_link { KOLO_GPU_LINK_UNKNOWN, KOLO_GPU_PCIE, KOLO_GPU_NVLINK, KOLO_GPU_NVSWITCH };

struct kolo_comm_layout {
    int *order; /* [nrings * nranks] */
    int nrings;
    int *tree; /* [ntrees * nranks] parents, as in struct kolo_shape */
    int ntrees;
    struct kolo_tree branch[KOLO_LANES]; /* this rank's place in each */
    struct kolo_groups groups;
    enum kolo_gpu_link gpu_link; /* the slowest between two GPUs of a host */
};

#endif
