// SPDX-License-Identifier: Apache-2.0
/* Makes the graph of a machine from its parts.
 *
 * hwloc shows each port of a PCI switch as a bridge. A host bridge has no bridge above it, and a
 * root port has one. Below a root port, upstream ports are at even depths and downstream ports at
 * odd ones. A switch of the graph is an upstream port.
 *
 * The matrix NVLinkBandwidth holds line rates between GPUs, NVSwitches and, on POWER, packages. It
 * has 0 between GPUs behind NVSwitches. */
#include "topology/formats/xml.h"
#include "topology/machine/graph.h"
#include "topology/machine/parts.h"

#include <stdlib.h>
#include <string.h>

struct building {
    const struct kolo_host *host;
    struct kolo_graph *graph;
    int *node;     /* [parts] the part's node; -1 none */
    int *near;     /* [parts] the part's NUMA node, computed on demand */
    int elsewhere; /* the NUMA node of parts without a local one; -1 not made yet */
};

/* ---- NUMA nodes ---- */

/* The package that contains all PUs of a NUMA node; the machine, if no package does. */
static const struct kolo_part *cpu_of(const struct kolo_host *host, const struct kolo_part *numa)
{
    const int pu = kolo_parts_pu(host, hwloc_bitmap_first(numa->cpus));
    const int package = kolo_parts_above(host, pu, KOLO_PART_PACKAGE);
    hwloc_bitmap_t cpus = package >= 0 ? kolo_parts_cpus(host, package) : NULL;
    const bool has_all = cpus != NULL && hwloc_bitmap_isincluded(numa->cpus, cpus) != 0;
    hwloc_bitmap_free(cpus);
    return &host->part[has_all ? package : 0];
}

static kolo_status add_numa(struct building *b, int part)
{
    const struct kolo_part *p = &b->host->part[part], *cpu = cpu_of(b->host, p);
    char *cpus = NULL;
    const int node = kolo_graph_add(b->graph, KOLO_NODE_NUMA, -1);
    if (node < 0 || hwloc_bitmap_list_asprintf(&cpus, p->cpus) < 0) {
        return kolo_graph_full(b->graph);
    }
    struct kolo_node *n = &b->graph->node[node];
    b->node[part] = node;
    n->number = p->number;
    n->arch = cpu->arch;
    const bool fits = kolo_graph_text(b->graph, &n->cpus, cpus) &&
                      kolo_graph_text(b->graph, &n->name, cpu->vendor) &&
                      kolo_graph_text(b->graph, &n->arch_text, b->host->part[0].name);
    free(cpus);
    return fits ? KOLO_OK : kolo_graph_full(b->graph);
}

enum { NEAR_UNKNOWN = -1, NEAR_SEVERAL = -2 };

/* Add a NUMA node to the nodes that a part is near. */
static void come_near(int *near, int node)
{
    *near = *near == NEAR_UNKNOWN || *near == node ? node : NEAR_SEVERAL;
}

static void find_near(struct building *b)
{
    for (int i = -1; (i = kolo_parts_next(b->host, KOLO_PART_NUMA, i)) >= 0;) {
        for (int k = 0; k < kolo_host_pus(b->host) && b->node[i] >= 0; k++) {
            const struct kolo_pu *pu = &b->host->pu[k];
            if (hwloc_bitmap_isset(b->host->part[i].cpus, (unsigned)pu->os)) {
                come_near(&b->near[pu->part], b->node[i]);
            }
        }
    }
}

/* NUMA nodes without CPUs are left out: they are memory of a GPU, or far memory. */
static kolo_status add_numas(struct building *b)
{
    for (int i = -1; (i = kolo_parts_next(b->host, KOLO_PART_NUMA, i)) >= 0;) {
        if (!hwloc_bitmap_iszero(b->host->part[i].cpus)) {
            KOLO_TRY(add_numa(b, i));
        }
    }
    find_near(b);
    return KOLO_OK;
}

/* The NUMA node that all PUs inside a part are near. */
static int near_of(const struct building *b, int part)
{
    int near = NEAR_UNKNOWN;
    for (int i = part; i < b->host->part[part].end && near != NEAR_SEVERAL; i++) {
        if (b->host->part[i].kind == KOLO_PART_PU) {
            come_near(&near, b->near[i]);
        }
    }
    return near >= 0 ? near : NEAR_SEVERAL;
}

/* The NUMA node that a device is local to. A device that is local to several gets a node without a
 * number. */
static int numa_of(struct building *b, int device)
{
    int local = device;
    while (b->host->part[local].kind >= KOLO_PART_BRIDGE) { /* ends at the machine at the latest */
        local = b->host->part[local].parent;
    }
    if (b->near[local] == NEAR_UNKNOWN) {
        b->near[local] = near_of(b, local);
    }
    if (b->near[local] >= 0) {
        return b->near[local];
    }
    if (b->elsewhere < 0) {
        b->elsewhere = kolo_graph_add(b->graph, KOLO_NODE_NUMA, -1);
    }
    return b->elsewhere;
}

/* ---- PCI ---- */

static kolo_status join_pci(struct kolo_graph *graph, int parent, int node, float wire_gbs)
{
    const double gbs = kolo_pci_gbs_of_wire((double)wire_gbs);
    const struct kolo_graph_edge link = {
        parent, node, KOLO_LINK_PCI, 1, gbs > 0 ? gbs : kolo_pci_gbs_usual(0), !(gbs > 0)};
    return kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
}

static bool is_switch(const struct kolo_host *host, int part)
{
    int depth = 0;
    for (int up = part; (up = kolo_parts_above(host, up, KOLO_PART_BRIDGE)) >= 0;) {
        depth++;
    }
    return host->part[part].kind == KOLO_PART_BRIDGE && host->part[part].pci && depth >= 2 &&
           depth % 2 == 0;
}

/* Find the node above a device: its nearest switch, else its NUMA node. Missing switches on the way
 * up are added. */
static kolo_status find_parent(struct building *b, int device, int *out)
{
    int chain[64];
    int depth = 0;
    int parent = -1;
    for (int up = b->host->part[device].parent; up >= 0 && depth < 64;
         up = b->host->part[up].parent) {
        if (is_switch(b->host, up)) {
            chain[depth++] = up;
        }
    }
    parent = numa_of(b, device);
    if (parent < 0) {
        return kolo_graph_full(b->graph);
    }
    while (depth-- > 0) {
        const struct kolo_part *bridge = &b->host->part[chain[depth]];
        int node = b->node[chain[depth]];
        if (node < 0) {
            node = kolo_graph_add(b->graph, KOLO_NODE_SWITCH, parent);
            if (node < 0) {
                return kolo_graph_full(b->graph);
            }
            b->node[chain[depth]] = node;
            b->graph->node[node].bus = bridge->bus;
            KOLO_TRY(join_pci(b->graph, parent, node, bridge->wire_gbs));
        }
        parent = node;
    }
    *out = parent;
    return KOLO_OK;
}

/* The OS device of a type below a PCI device; NULL: none. */
static const struct kolo_part *os_device(const struct kolo_host *host, int device, int type,
                                         const char *prefix)
{
    for (int i = device + 1; i < host->part[device].end; i++) {
        const struct kolo_part *p = &host->part[i];
        if (p->kind == KOLO_PART_OS && p->parent == device && (p->number & type) != 0 &&
            p->name != NULL && strncmp(p->name, prefix, strlen(prefix)) == 0) {
            return p;
        }
    }
    return NULL;
}

static bool describe_gpu(struct building *b, int device, struct kolo_node *n)
{
    const struct kolo_part *nvml = os_device(b->host, device, KOLO_OS_GPU, "nvml");
    const struct kolo_part *cuda = os_device(b->host, device, KOLO_OS_COPROC, "cuda");
    const struct kolo_part *told = nvml != NULL ? nvml : cuda;
    long number = 0;
    if (nvml != NULL && kolo_parse_int(nvml->name + strlen("nvml"), 0, 1 << 20, &number)) {
        n->number = (int)number;
    }
    return told == NULL || kolo_graph_text(b->graph, &n->name, told->model);
}

static bool describe_nic(struct building *b, int device, struct kolo_node *n)
{
    const struct kolo_part *verbs = os_device(b->host, device, KOLO_OS_OPENFABRICS, "");
    const struct kolo_part *net = os_device(b->host, device, KOLO_OS_NETWORK, "");
    n->rdma = verbs != NULL;
    n->port = verbs != NULL ? 1 : 0;
    return kolo_graph_text(b->graph, &n->name, verbs != NULL ? verbs->name : net->name);
}

/* A network device without an interface carries no data. It is a function for a virtual machine, or
 * has no driver. */
static bool is_wanted(const struct kolo_host *host, int device, enum kolo_node_kind kind)
{
    return kind == KOLO_NODE_GPU ||
           (kind == KOLO_NODE_NIC && (os_device(host, device, KOLO_OS_NETWORK, "") != NULL ||
                                      os_device(host, device, KOLO_OS_OPENFABRICS, "") != NULL));
}

static kolo_status add_device(struct building *b, int device)
{
    const struct kolo_part *p = &b->host->part[device];
    const uint32_t class_id = p->class_id << 8;
    const enum kolo_node_kind kind = kolo_pci_kind(class_id, p->vendor_id);
    int parent = -1;
    if (!is_wanted(b->host, device, kind)) {
        return KOLO_OK;
    }
    KOLO_TRY(find_parent(b, device, &parent));
    const int node = kolo_graph_add(b->graph, kind, parent);
    if (node < 0) {
        return kolo_graph_full(b->graph);
    }
    struct kolo_node *n = &b->graph->node[node];
    b->node[device] = node;
    n->bus = p->bus;
    n->class_id = class_id;
    n->vendor = p->vendor_id;
    n->device = p->device_id;
    if (!(kind == KOLO_NODE_GPU ? describe_gpu(b, device, n) : describe_nic(b, device, n))) {
        return kolo_graph_full(b->graph);
    }
    return join_pci(b->graph, parent, node, p->wire_gbs);
}

static kolo_status add_devices(struct building *b)
{
    for (int i = -1; (i = kolo_parts_next(b->host, KOLO_PART_PCI, i)) >= 0;) {
        KOLO_TRY(add_device(b, i));
    }
    return KOLO_OK;
}

/* ---- NVLink ---- */

/* The PCI device of an OS device, else the part itself. */
static int pci_of(const struct kolo_host *host, int part)
{
    while (part >= 0 && host->part[part].kind == KOLO_PART_OS) {
        part = host->part[part].parent;
    }
    return part;
}

/* The number of links in a sum of rates. A link has 25 GB/s (NVLink 2 and later) or 20 (NVLink 1).
 */
static int lanes_of(uint64_t mbs)
{
    const uint64_t each = mbs % 25000 == 0 ? 25000 : 20000;
    return mbs / each > 0 && mbs / each < 1024 ? (int)(mbs / each) : 1;
}

static kolo_status claim_rate(struct building *b, const struct kolo_part_rate *rate,
                              struct kolo_link_claims *claims)
{
    const int from = pci_of(b->host, rate->from), to = pci_of(b->host, rate->to);
    const enum kolo_part_kind kind = b->host->part[to].kind;
    struct kolo_link_claim claim = {.from = b->node[from],
                                    .to = KOLO_BUS_NONE,
                                    .kind = KOLO_NODE_GPU,
                                    .link = KOLO_LINK_NVLINK,
                                    .count = lanes_of(rate->mbs),
                                    .gbs = 0.8 * (double)rate->mbs / 1000};
    if (claim.from < 0 || b->graph->node[claim.from].kind != KOLO_NODE_GPU ||
        rate->mbs > 100000000) {
        return KOLO_OK;
    }
    if (b->host->part[to].class_id == KOLO_NVSWITCH_CLASS) {
        claim.kind = KOLO_NODE_NVSWITCH;
    } else if (kind == KOLO_PART_PACKAGE || kind == KOLO_PART_NUMA) {
        claim.kind = KOLO_NODE_NUMA;
    } else if (b->node[to] >= 0 && to != from) {
        claim.to = b->graph->node[b->node[to]].bus;
    } else {
        return KOLO_OK;
    }
    return kolo_link_claims_add(b->graph, claims, &claim) ? KOLO_OK : kolo_graph_full(b->graph);
}

/* Number of NVSwitches in the matrix. */
static int count_switches(const struct kolo_host *host)
{
    unsigned char *seen = calloc((size_t)host->nparts, 1);
    int count = 0;
    for (int i = 0; i < 2 * host->nrates && seen != NULL; i++) {
        const struct kolo_part_rate *rate = &host->rate[i / 2];
        const int part = i % 2 == 0 ? rate->from : rate->to;
        count += host->part[part].class_id == KOLO_NVSWITCH_CLASS && seen[part] == 0;
        seen[part] = 1;
    }
    free(seen);
    return count;
}

static kolo_status add_nvlinks(struct building *b)
{
    struct kolo_link_claims claims = {0};
    kolo_status st = KOLO_OK;
    const int switches = count_switches(b->host);
    for (int i = 0; i < b->host->nrates && st == KOLO_OK; i++) {
        st = claim_rate(b, &b->host->rate[i], &claims);
    }
    if (st == KOLO_OK && b->host->nrates > 0) {
        st = kolo_link_claims_join(b->graph, &claims);
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
    const size_t bytes = (size_t)host->nparts * sizeof(int);
    struct kolo_graph *graph = kolo_graph_create(live ? "this machine" : host->file,
                                                 live ? "hwloc" : "hwloc XML", host->limit);
    struct building b = {.host = host,
                         .graph = graph,
                         .node = malloc(bytes),
                         .near = malloc(bytes),
                         .elsewhere = -1};
    kolo_status st = graph != NULL && b.node != NULL && b.near != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the devices");
    if (st == KOLO_OK) {
        memset(b.node, 0xff, bytes);
        memset(b.near, 0xff, bytes);
        st = add_numas(&b);
    }
    if (st == KOLO_OK) {
        st = add_devices(&b);
    }
    if (st == KOLO_OK) {
        st = add_nvlinks(&b);
    }
    free(b.node);
    free(b.near);
    return kolo_graph_end(graph, st, out);
}
