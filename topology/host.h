// SPDX-License-Identifier: Apache-2.0
/* Inside of struct kolo_host, for host.c and host_print.c only. */
#ifndef KOLO_TOPOLOGY_HOST_H
#define KOLO_TOPOLOGY_HOST_H

#include "topology.h"

#include <hwloc.h>

struct kolo_host {
    hwloc_topology_t hwloc;
    char *file; /* NULL: this machine */
};

/* CPUs the calling thread is bound to, cut to those of `host`; the caller frees it. NULL: no
 * memory. */
hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host);

#endif
