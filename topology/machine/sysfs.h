// SPDX-License-Identifier: Apache-2.0
/* What Linux tells of devices in /sys and hwloc does not: the speed a link can have (hwloc has what
 * it has now, and idle GPUs slow theirs down), the rate of a port, and which functions are virtual.
 * HWLOC_FSROOT, where it is set, stands before /sys, as it does for hwloc. */
#ifndef KOLO_TOPOLOGY_MACHINE_SYSFS_H
#define KOLO_TOPOLOGY_MACHINE_SYSFS_H

#include "topology/machine/graph.h"

struct dirent;

/* Refine nodes and PCI links that have an address or a name. Not finished. */
void kolo_sysfs_refine(struct kolo_graph *graph);

/* Add RDMA devices that are not on PCI (rdma.c). Not finished. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_sysfs_add_rdma(struct kolo_graph *graph);
/* Whether the node of an RDMA device, such as /dev/infiniband/uverbs0, is there (rdma.c). */
bool kolo_sysfs_rdma_node(const char *name);

/* The first line of a file below the root, without its end; false: not there, or empty. */
bool kolo_sysfs_read(const char *path, char *out, size_t bytes);
bool kolo_sysfs_exists(const char *path);
/* The last part of where a link leads; false: no link. */
bool kolo_sysfs_link(const char *path, char *out, size_t bytes);

/* The entries of a folder, sorted; free() each, and the array. Their number, 0 if there are none.
 */
int kolo_sysfs_list(const char *path, struct dirent ***out);

#endif
