// SPDX-License-Identifier: Apache-2.0
/* RDMA devices without a PCI device of their own. rdma_rxe and siw make one on any network
 * interface, and hwloc does not show it.
 *
 * - The interface belongs to a NIC: the NIC gets the RDMA device.
 * - The interface is virtual: the RDMA device is a NIC of its own below the first NUMA node.
 *
 * A device counts only if /dev/infiniband has its device node: a container has only the nodes that
 * it was given. */
#include "topology/machine/sysfs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 320 };

bool kolo_sysfs_rdma_node(const char *name)
{
    char path[PATH], text[64];
    struct dirent **entry = NULL;
    bool found = false;
    const int n = kolo_sysfs_list("/sys/class/infiniband_verbs", &entry);
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "/sys/class/infiniband_verbs/%.64s/ibdev",
                       entry[i]->d_name);
        if (kolo_sysfs_read(path, text, sizeof text) && strcmp(text, name) == 0) {
            (void)snprintf(path, sizeof path, "/dev/infiniband/%.64s", entry[i]->d_name);
            found = found || kolo_sysfs_exists(path);
        }
        free(entry[i]);
    }
    free(entry);
    return found;
}

/* The NIC that an interface belongs to, found by PCI address, or by name for virtio; -1: none. */
static int nic_of(const struct kolo_graph *g, const char *interface)
{
    char path[PATH], last[64];
    uint64_t bus = 0;
    (void)snprintf(path, sizeof path, "/sys/class/net/%.32s/device", interface);
    if (!kolo_sysfs_link(path, last, sizeof last)) {
        return -1;
    }
    if (kolo_bus_parse(last, &bus)) {
        return kolo_graph_find(g, bus, KOLO_NODE_NIC);
    }
    for (int i = 0; i < g->nnodes; i++) {
        if (g->node[i].kind == KOLO_NODE_NIC && g->node[i].name != NULL &&
            strcmp(g->node[i].name, interface) == 0) {
            return i;
        }
    }
    return -1;
}

static int first_numa(const struct kolo_graph *g)
{
    for (int i = 0; i < g->nnodes; i++) {
        if (g->node[i].kind == KOLO_NODE_NUMA) {
            return i;
        }
    }
    return -1;
}

static kolo_status add_device(struct kolo_graph *g, const char *name)
{
    char path[PATH], interface[64] = "";
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/ports/1/gid_attrs/ndevs/0",
                   name);
    (void)kolo_sysfs_read(path, interface, sizeof interface);
    int node = interface[0] != '\0' ? nic_of(g, interface) : -1;
    if (node < 0) {
        node = kolo_graph_add(g, KOLO_NODE_NIC, first_numa(g));
    }
    if (node < 0 || !kolo_graph_text(g, &g->node[node].name, name)) {
        return kolo_graph_full(g);
    }
    g->node[node].rdma = 1;
    g->node[node].port = 1;
    return KOLO_OK;
}

kolo_status kolo_sysfs_add_rdma(struct kolo_graph *graph)
{
    kolo_status st = KOLO_OK;
    struct dirent **entry = NULL;
    const int n = kolo_sysfs_list("/sys/class/infiniband", &entry);
    for (int i = 0; i < n; i++) {
        char path[PATH];
        const char *name = entry[i]->d_name;
        (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/device", name);
        if (st == KOLO_OK && !kolo_sysfs_exists(path) && kolo_sysfs_rdma_node(name)) {
            st = add_device(graph, name);
        }
        free(entry[i]);
    }
    free(entry);
    return st;
}
