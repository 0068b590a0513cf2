// SPDX-License-Identifier: Apache-2.0
/* Facts that /sys has about devices and hwloc lacks:
 * - The highest speed of a link. hwloc has the present speed, and idle GPUs slow their links.
 * - The rate of a port.
 * - Which functions are virtual.
 *
 * HWLOC_FSROOT, if set, is put before /sys, as in hwloc. */
#ifndef KOLO_TOPOLOGY_MACHINE_SYSFS_H
#define KOLO_TOPOLOGY_MACHINE_SYSFS_H

#include "topology/machine/graph.h"

struct dirent;

/* Refine nodes and PCI links that have an address or a name. The caller finishes the graph. */
void kolo_sysfs_refine(struct kolo_graph *graph);

/* Add RDMA devices that are not on PCI (rdma.c). The caller finishes the graph. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_sysfs_add_rdma(struct kolo_graph *graph);
/* Whether an RDMA device has its device node, such as /dev/infiniband/uverbs0 (rdma.c). */
bool kolo_sysfs_rdma_node(const char *name);

/* Read the first line of a file below the root, without the line end. False: no file, or empty. */
bool kolo_sysfs_read(const char *path, char *out, size_t bytes);
bool kolo_sysfs_exists(const char *path);
/* Read the last part of a symbolic link's target. False: no link. */
bool kolo_sysfs_link(const char *path, char *out, size_t bytes);

/* List the entries of a folder, sorted. The caller frees each entry and the array. Returns their
 * number, 0 if there are none. */
int kolo_sysfs_list(const char *path, struct dirent ***out);

#endif
