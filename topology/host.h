// SPDX-License-Identifier: Apache-2.0
/* Inside of struct kolo_host, for host.c and host_print.c only. */
#ifndef KOLO_TOPOLOGY_HOST_H
#define KOLO_TOPOLOGY_HOST_H

#include "topology.h"

#include <hwloc.h>

struct kolo_host {
    hwloc_topology_t hwloc;
    char *file; /* NULL: this machine */
    bool devices;
    int holds; /* of the shared one; 0: it has one owner */
};

/* The file `path`, or this machine (NULL), with its PCI and OS devices or without, which is faster.
 * Errors as kolo_host_load(). */
KOLO_CHECK kolo_status kolo_host_open(const char *path, bool devices, struct kolo_host **out);

/* False where a file is a machine in another format than hwloc's, which says nothing of CPUs; true
 * too where it cannot be read, and opening it will say why. (file.c) */
bool kolo_file_is_hwloc(const char *path);

/* CPUs the calling thread is bound to, cut to those of `host`; the caller frees it. NULL: no
 * memory. */
hwloc_bitmap_t kolo_host_bound(const struct kolo_host *host);

#endif
