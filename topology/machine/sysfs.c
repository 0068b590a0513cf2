// SPDX-License-Identifier: Apache-2.0
/* Reads /sys, and fills in link speeds, port rates and virtual functions from it. */
#include "topology/machine/sysfs.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 512 };

static void full_path(const char *path, char out[PATH])
{
    const char *root = kolo_env("HWLOC_FSROOT");
    (void)snprintf(out, PATH, "%s%s", root != NULL ? root : "", path);
}

bool kolo_sysfs_read(const char *path, char *out, size_t bytes)
{
    char full[PATH];
    full_path(path, full);
    FILE *file = fopen(full, "re");
    const bool told = file != NULL && fgets(out, (int)bytes, file) != NULL;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (told) {
        out[strcspn(out, "\n")] = '\0';
    }
    return told && out[0] != '\0';
}

bool kolo_sysfs_exists(const char *path)
{
    char full[PATH];
    full_path(path, full);
    return access(full, F_OK) == 0;
}

bool kolo_sysfs_link(const char *path, char *out, size_t bytes)
{
    char full[PATH], to[PATH];
    full_path(path, full);
    const ssize_t len = readlink(full, to, sizeof to - 1);
    if (len <= 0) {
        return false;
    }
    to[len] = '\0';
    const char *slash = strrchr(to, '/');
    const char *last = slash != NULL ? slash + 1 : to;
    if (strlen(last) >= bytes) {
        return false;
    }
    memcpy(out, last, strlen(last) + 1);
    return true;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int kolo_sysfs_list(const char *path, struct dirent ***out)
{
    char full[PATH];
    full_path(path, full);
    const int n = scandir(full, out, is_shown, alphasort);
    return n > 0 ? n : 0;
}

/* The highest speed of a device's link in GB/s; 0 unknown. */
static double max_gbs(uint64_t bus)
{
    char address[24], path[PATH], speed[64], width[16];
    kolo_bus_print(bus, address);
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/max_link_speed", address);
    const bool has_speed = kolo_sysfs_read(path, speed, sizeof speed);
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/max_link_width", address);
    if (!has_speed || !kolo_sysfs_read(path, width, sizeof width)) {
        return 0;
    }
    const long lanes = strtol(width, NULL, 10);
    return lanes > 0 && lanes <= 64 ? kolo_pci_gbs(speed, (int)lanes) : 0;
}

static void refine_links(struct kolo_graph *g)
{
    for (int i = 0; i < g->nlinks; i++) {
        struct kolo_graph_edge *l = &g->link[i];
        const int child = g->node[l->b].parent == l->a ? l->b : l->a;
        const double gbs = l->kind == KOLO_LINK_PCI && g->node[child].bus != KOLO_BUS_NONE
                               ? max_gbs(g->node[child].bus)
                               : 0;
        if (gbs > 0) {
            l->gbs = gbs;
            l->assumed = false;
        }
    }
}

/* A virtual function shares the rail of its physical function. If the graph has the physical
 * function, the virtual one is no NIC. A virtual machine sees only virtual functions, and there
 * they are NICs. */
static bool is_spare_function(const struct kolo_graph *g, const struct kolo_node *n)
{
    char address[24], path[PATH], physical[64];
    uint64_t bus = 0;
    kolo_bus_print(n->bus, address);
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/physfn", address);
    return kolo_sysfs_link(path, physical, sizeof physical) && kolo_bus_parse(physical, &bus) &&
           kolo_graph_find(g, bus, KOLO_NODE_NIC) >= 0;
}

/* The rate of a port: "400 Gb/sec (4X NDR)" for verbs, "100000" (Mb/s) for an interface. */
static double port_gbs(const struct kolo_node *n)
{
    char path[PATH], text[64];
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%.64s/ports/%d/rate", n->name,
                   n->port > 0 ? n->port : 1);
    if (kolo_sysfs_read(path, text, sizeof text)) {
        return strtod(text, NULL) / 8;
    }
    (void)snprintf(path, sizeof path, "/sys/class/net/%.64s/speed", n->name);
    return kolo_sysfs_read(path, text, sizeof text) ? strtod(text, NULL) / 8000 : 0;
}

void kolo_sysfs_refine(struct kolo_graph *graph)
{
    refine_links(graph);
    for (int i = 0; i < graph->nnodes; i++) {
        struct kolo_node *n = &graph->node[i];
        if (n->kind != KOLO_NODE_NIC) {
            continue;
        }
        if (n->bus != KOLO_BUS_NONE && is_spare_function(graph, n)) {
            n->kind = KOLO_NODE_DEVICE;
        } else if (n->name != NULL) {
            const double gbs = port_gbs(n);
            n->gbs = gbs > 0 && gbs < 1e6 ? gbs : n->gbs;
        }
    }
}
