// SPDX-License-Identifier: Apache-2.0
/* From hwloc's tree to the graph. hwloc shows each port of a PCI switch as a bridge: a host bridge
 * has depth 0, a root port 1, and from there on upstream ports are even and downstream ports odd; a
 * switch of ours is an upstream port. The matrix "NVLinkBandwidth" holds line rates in MB/s between
 * GPUs, NVSwitches and, on POWER, packages; GPUs behind NVSwitches have 0 between them. */
#include "graph.h"
#include "host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct made { /* which node an hwloc object became */
    hwloc_obj_t object;
    int node;
};

struct building {
    const struct kolo_host *host;
    struct kolo_graph *graph;
    struct made *made;
    int nmade, room;
    int elsewhere; /* the NUMA node for what is local to none; -1 not needed yet */
};

static bool remember(struct building *b, hwloc_obj_t object, int node)
{
    void *grown = kolo_graph_grow(b->graph, b->made, b->nmade, &b->room, sizeof *b->made);
    if (grown == NULL) {
        return false;
    }
    b->made = grown;
    b->made[b->nmade++] = (struct made){object, node};
    return true;
}

static int recall(const struct building *b, const struct hwloc_obj *object)
{
    for (int i = 0; i < b->nmade; i++) {
        if (b->made[i].object == object) {
            return b->made[i].node;
        }
    }
    return -1;
}

static int info_int(hwloc_obj_t object, const char *name)
{
    const char *text = object != NULL ? hwloc_obj_get_info_by_name(object, name) : NULL;
    return text != NULL ? (int)strtol(text, NULL, 10) : 0;
}

/* ---- NUMA nodes ---- */

static kolo_status add_numa(struct building *b, hwloc_obj_t object)
{
    hwloc_topology_t t = b->host->hwloc;
    char *cpus = NULL;
    struct hwloc_obj *package =
        hwloc_get_next_obj_covering_cpuset_by_type(t, object->cpuset, HWLOC_OBJ_PACKAGE, NULL);
    package = package != NULL ? package : hwloc_get_root_obj(t);
    const int node = kolo_graph_add(b->graph, KOLO_NODE_NUMA, -1);
    if (node < 0 || !remember(b, object, node)) {
        return kolo_graph_full(b->graph);
    }
    struct kolo_node *n = &b->graph->node[node];
    n->number = (int)object->os_index;
    n->arch =
        info_int(package, "CPUFamilyNumber") << 8 | (info_int(package, "CPUModelNumber") & 0xff);
    if (hwloc_bitmap_list_asprintf(&cpus, object->cpuset) < 0) {
        return kolo_graph_full(b->graph);
    }
    const bool fits =
        kolo_graph_text(b->graph, &n->cpus, cpus) &&
        kolo_graph_text(b->graph, &n->name, hwloc_obj_get_info_by_name(package, "CPUVendor")) &&
        kolo_graph_text(b->graph, &n->arch_text,
                        hwloc_obj_get_info_by_name(hwloc_get_root_obj(t), "Architecture"));
    free(cpus);
    return fits ? KOLO_OK : kolo_graph_full(b->graph);
}

/* Nodes without CPUs are memory only: of a GPU, or far away. */
static kolo_status add_numas(struct building *b)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(b->host->hwloc, HWLOC_OBJ_NUMANODE, object)) !=
           NULL) {
        if (!hwloc_bitmap_iszero(object->cpuset)) {
            KOLO_TRY(add_numa(b, object));
        }
    }
    return KOLO_OK;
}

/* The NUMA node that a device is local to, or one without a number where it is local to several. */
static int numa_of(struct building *b, hwloc_obj_t device)
{
    struct hwloc_obj *local = hwloc_get_non_io_ancestor_obj(b->host->hwloc, device);
    hwloc_obj_t numa = NULL;
    int found = -1, count = 0;
    while ((numa = hwloc_get_next_obj_by_type(b->host->hwloc, HWLOC_OBJ_NUMANODE, numa)) != NULL) {
        if (local->nodeset != NULL && hwloc_bitmap_isset(local->nodeset, numa->os_index) &&
            recall(b, numa) >= 0) {
            found = recall(b, numa);
            count++;
        }
    }
    if (count == 1) {
        return found;
    }
    if (b->elsewhere < 0) {
        b->elsewhere = kolo_graph_add(b->graph, KOLO_NODE_NUMA, -1);
    }
    return b->elsewhere;
}

/* ---- PCI ---- */

static uint64_t bus_of(const struct hwloc_obj *object)
{
    const struct hwloc_pcidev_attr_s *pci = object->type == HWLOC_OBJ_BRIDGE
                                                ? &object->attr->bridge.upstream.pci
                                                : &object->attr->pcidev;
    return (uint64_t)pci->domain << 16 | (uint64_t)pci->bus << 8 | (uint64_t)pci->dev << 3 |
           pci->func;
}

static kolo_status join_pci(struct kolo_graph *graph, int parent, int node, float wire_gbs)
{
    const double gbs = kolo_pci_gbs_of_wire((double)wire_gbs);
    const struct kolo_link link = {
        parent, node, KOLO_LINK_PCI, 1, gbs > 0 ? gbs : kolo_pci_gbs_usual(), !(gbs > 0)};
    return kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
}

static bool is_switch(const struct hwloc_obj *object)
{
    return object->type == HWLOC_OBJ_BRIDGE &&
           object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI &&
           object->attr->bridge.depth >= 2 && object->attr->bridge.depth % 2 == 0;
}

/* The node above a device: its nearest switch, made with those above it, else its NUMA node. */
static kolo_status find_parent(struct building *b, hwloc_obj_t device, int *out)
{
    hwloc_obj_t chain[64];
    int depth = 0;
    int parent = -1;
    for (hwloc_obj_t up = device->parent; up != NULL && depth < 64; up = up->parent) {
        if (is_switch(up)) {
            chain[depth++] = up;
        }
    }
    parent = numa_of(b, device);
    if (parent < 0) {
        return kolo_graph_full(b->graph);
    }
    while (depth-- > 0) {
        int node = recall(b, chain[depth]);
        if (node < 0) {
            node = kolo_graph_add(b->graph, KOLO_NODE_SWITCH, parent);
            if (node < 0 || !remember(b, chain[depth], node)) {
                return kolo_graph_full(b->graph);
            }
            b->graph->node[node].bus = bus_of(chain[depth]);
            KOLO_TRY(join_pci(b->graph, parent, node,
                              chain[depth]->attr->bridge.upstream.pci.linkspeed));
        }
        parent = node;
    }
    *out = parent;
    return KOLO_OK;
}

/* The OS device of a type below a PCI device; NULL: there is none. */
static hwloc_obj_t os_device(hwloc_obj_t device, hwloc_obj_osdev_type_t type, const char *prefix)
{
    for (hwloc_obj_t child = device->io_first_child; child != NULL; child = child->next_sibling) {
        if (child->type == HWLOC_OBJ_OS_DEVICE && child->attr->osdev.type == type &&
            child->name != NULL && strncmp(child->name, prefix, strlen(prefix)) == 0) {
            return child;
        }
    }
    return NULL;
}

static bool describe_gpu(struct building *b, hwloc_obj_t device, struct kolo_node *n)
{
    hwloc_obj_t nvml = os_device(device, HWLOC_OBJ_OSDEV_GPU, "nvml");
    hwloc_obj_t cuda = os_device(device, HWLOC_OBJ_OSDEV_COPROC, "cuda");
    hwloc_obj_t told = nvml != NULL ? nvml : cuda;
    long number = 0;
    if (nvml != NULL && kolo_parse_int(nvml->name + strlen("nvml"), 0, 1 << 20, &number)) {
        n->number = (int)number;
    }
    return told == NULL ||
           kolo_graph_text(b->graph, &n->name, hwloc_obj_get_info_by_name(told, "GPUModel"));
}

static bool describe_nic(struct building *b, hwloc_obj_t device, struct kolo_node *n)
{
    hwloc_obj_t verbs = os_device(device, HWLOC_OBJ_OSDEV_OPENFABRICS, "");
    hwloc_obj_t net = os_device(device, HWLOC_OBJ_OSDEV_NETWORK, "");
    n->rdma = verbs != NULL;
    n->port = verbs != NULL ? 1 : 0;
    return verbs == NULL && net == NULL
               ? true
               : kolo_graph_text(b->graph, &n->name, verbs != NULL ? verbs->name : net->name);
}

/* A network device without any interface carries nothing: it is a function for a virtual machine,
 * or has no driver. */
static bool is_wanted(hwloc_obj_t device, enum kolo_node_kind kind)
{
    return kind == KOLO_NODE_GPU ||
           (kind == KOLO_NODE_NIC && (os_device(device, HWLOC_OBJ_OSDEV_NETWORK, "") != NULL ||
                                      os_device(device, HWLOC_OBJ_OSDEV_OPENFABRICS, "") != NULL));
}

static kolo_status add_device(struct building *b, hwloc_obj_t device)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    const uint32_t class_id = (uint32_t)pci->class_id << 8;
    const enum kolo_node_kind kind = kolo_pci_kind(class_id, pci->vendor_id);
    int parent = -1;
    if (!is_wanted(device, kind)) {
        return KOLO_OK;
    }
    KOLO_TRY(find_parent(b, device, &parent));
    const int node = kolo_graph_add(b->graph, kind, parent);
    if (node < 0 || !remember(b, device, node)) {
        return kolo_graph_full(b->graph);
    }
    struct kolo_node *n = &b->graph->node[node];
    n->bus = bus_of(device);
    n->class_id = class_id;
    n->vendor = pci->vendor_id;
    n->device = pci->device_id;
    if (!(kind == KOLO_NODE_GPU ? describe_gpu(b, device, n) : describe_nic(b, device, n))) {
        return kolo_graph_full(b->graph);
    }
    return join_pci(b->graph, parent, node, pci->linkspeed);
}

static kolo_status add_devices(struct building *b)
{
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_pcidev(b->host->hwloc, device)) != NULL) {
        KOLO_TRY(add_device(b, device));
    }
    return KOLO_OK;
}

/* ---- NVLink ---- */

static hwloc_obj_t pci_of(hwloc_obj_t object)
{
    while (object != NULL && object->type == HWLOC_OBJ_OS_DEVICE) {
        object = object->parent;
    }
    return object;
}

static bool is_nvswitch(const struct hwloc_obj *object)
{
    return object->type == HWLOC_OBJ_PCI_DEVICE &&
           (object->attr->pcidev.class_id == 0x0680 ||
            (object->subtype != NULL && strcmp(object->subtype, "NVSwitch") == 0));
}

/* Links of 25 GB/s (NVLink 2 and later) or of 20 (NVLink 1) make up the sum. */
static int lanes_of(uint64_t mbs)
{
    const uint64_t each = mbs % 25000 == 0 ? 25000 : 20000;
    return mbs / each > 0 && mbs / each < 1024 ? (int)(mbs / each) : 1;
}

static kolo_status claim_row(struct building *b, const struct hwloc_distances_s *matrix,
                             unsigned row, struct kolo_claims *claims)
{
    const int from = recall(b, pci_of(matrix->objs[row]));
    for (unsigned column = 0; from >= 0 && column < matrix->nbobjs; column++) {
        hwloc_obj_t to = matrix->objs[column];
        const uint64_t mbs = matrix->values[row * matrix->nbobjs + column];
        struct kolo_claim claim = {from, KOLO_BUS_NONE, KOLO_NODE_GPU, KOLO_LINK_NVLINK, 0, 0};
        if (column == row || mbs == 0 || mbs > 100000000 || to == NULL) {
            continue;
        }
        claim.count = lanes_of(mbs);
        claim.gbs = 0.8 * (double)mbs / 1000;
        if (is_nvswitch(pci_of(to))) {
            claim.kind = KOLO_NODE_NVSWITCH;
        } else if (to->type == HWLOC_OBJ_PACKAGE || to->type == HWLOC_OBJ_NUMANODE) {
            claim.kind = KOLO_NODE_NUMA;
        } else if (recall(b, pci_of(to)) >= 0) {
            claim.to = b->graph->node[recall(b, pci_of(to))].bus;
        } else {
            continue;
        }
        if (!kolo_claims_add(b->graph, claims, &claim)) {
            return kolo_graph_full(b->graph);
        }
    }
    return KOLO_OK;
}

static kolo_status add_nvlinks(struct building *b)
{
    struct hwloc_distances_s *matrix = NULL;
    struct kolo_claims claims = {0};
    kolo_status st = KOLO_OK;
    unsigned count = 1;
    int switches = 0;
    if (hwloc_distances_get_by_name(b->host->hwloc, "NVLinkBandwidth", &count, &matrix, 0) != 0 ||
        count == 0 || matrix == NULL) {
        return KOLO_OK;
    }
    for (unsigned row = 0; row < matrix->nbobjs && st == KOLO_OK; row++) {
        switches += matrix->objs[row] != NULL && is_nvswitch(matrix->objs[row]);
        st = matrix->objs[row] != NULL ? claim_row(b, matrix, row, &claims) : KOLO_OK;
    }
    hwloc_distances_release(b->host->hwloc, matrix);
    if (st == KOLO_OK) {
        st = kolo_claims_join(b->graph, &claims);
    }
    const int nvswitch = switches > 0 && st == KOLO_OK ? kolo_graph_nvswitch(b->graph) : -1;
    if (nvswitch >= 0) {
        b->graph->node[nvswitch].count = switches;
    }
    free(claims.claim);
    return st;
}

kolo_status kolo_graph_of_host(const struct kolo_host *host, struct kolo_graph **out)
{
    const bool live = host->file == NULL;
    struct kolo_graph *graph =
        kolo_graph_create(live ? "this machine" : host->file, live ? "hwloc" : "hwloc XML", 0);
    if (graph == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the devices of the topology");
    }
    struct building b = {.host = host, .graph = graph, .elsewhere = -1};
    kolo_status st = add_numas(&b);
    if (st == KOLO_OK) {
        st = add_devices(&b);
    }
    if (st == KOLO_OK) {
        st = add_nvlinks(&b);
    }
    free(b.made);
    return kolo_graph_end(graph, st, out);
}
