// SPDX-License-Identifier: Apache-2.0
/* Where a machine comes from: discovery, or the file that KOLO_TOPO_FILE names. The functions here
 * are the only ones that know both discovery (machine/) and file formats (formats/). */
#ifndef KOLO_TOPOLOGY_SOURCE_H
#define KOLO_TOPOLOGY_SOURCE_H

#include "topology/machine/graph.h"
#include "topology/machine/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Discover this machine. If KOLO_TOPO_FILE names an hwloc XML file (format 2), load that file
 * instead. A file of another format describes GPUs and NICs only (see kolo_graph_discover), so the
 * CPUs are then those of this machine. Errors: INVALID (the text names the file and the fault),
 * SYSTEM. */
KOLO_CHECK kolo_status kolo_host_discover(struct kolo_host **out);
/* Load the hwloc XML file `path`. Errors as above. */
KOLO_CHECK kolo_status kolo_host_load(const char *path, struct kolo_host **out);

/* The graph of this machine: devices from hwloc, link speeds and NIC rates from sysfs, GPUs and
 * NVLinks from NVML. A file in KOLO_TOPO_FILE is then taken into account:
 * - The file shares a bus address with this machine: it is a hint and fills in missing values.
 * - The file shares no address: it describes another machine and replaces this one.
 * Errors: INVALID (the file), SYSTEM. */
KOLO_CHECK kolo_status kolo_graph_discover(struct kolo_graph **out);

#ifdef __cplusplus
}
#endif
#endif
