// SPDX-License-Identifier: Apache-2.0
/* NCCL's and RCCL's topology XML. Such a file is a hint. It may have invented switches, missing
 * GPUs or NICs, empty speeds, NUMA ids of -1, and duplicate bus addresses. The reader accepts all
 * of that, and adds a note where it matters.
 *
 * A NIC is a PCI device of class 02, or with a <net>. It has a port for each <net>, and for each name
 * in "mlx5_0+mlx5_1", as NCCL calls ports that it has joined. A <net> without a PCI device is a NIC
 * of a virtual machine, or an interface that software made: a bridge, a tunnel, a container's end.
 * FlagCX writes <apu> for <gpu>. Form: NCCL 2.30 src/graph/xml.cc. */
#include "topology/formats/read.h"
#include "topology/machine/cpus.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, WIDTH_UNKNOWN = 255 /* Linux, of a virtual device */ };

struct nccl_reading {
    struct kolo_graph *graph;
    struct kolo_link_claims claims;
    int node[DEPTH]; /* of each open element, or of its parent; -1 none */
    int depth;
};

static int node_above(const struct nccl_reading *r)
{
    return r->depth > 0 ? r->node[r->depth - 1] : -1;
}

static kolo_status check_root(const struct kolo_xml_element *e)
{
    int version = 0;
    if (strcmp(e->name, "system") != 0) {
        return kolo_xml_fail(e, "the root of a topology file is <system>");
    }
    KOLO_TRY(kolo_xml_int(e, "version", 0, 1000, 1, &version));
    return version <= 2
               ? KOLO_OK
               : kolo_xml_fail(e, "version %d is not known: NCCL writes 1, RCCL 2", version);
}

/* Keep the CPUs of a mask as a list. */
static kolo_status take_affinity(struct nccl_reading *r, const struct kolo_xml_element *e, int node)
{
    const char *mask = kolo_xml_get(e, "affinity");
    char *list = mask != NULL && mask[0] != '\0' ? kolo_list_of_mask(mask) : NULL;
    if (mask != NULL && mask[0] != '\0' && list == NULL) {
        kolo_graph_note(r->graph, "line %d: affinity \"%.40s\" is no mask of CPUs: left out",
                        e->line, mask);
    }
    const bool fits = kolo_graph_text(r->graph, &r->graph->node[node].cpus, list);
    free(list);
    return fits ? KOLO_OK : kolo_graph_full(r->graph);
}

static kolo_status add_cpu(struct nccl_reading *r, const struct kolo_xml_element *e, int *out)
{
    int family = 0, model = 0, numa = -1;
    KOLO_TRY(kolo_xml_int(e, "numaid", -1, 1 << 20, -1, &numa));
    KOLO_TRY(kolo_xml_int(e, "familyid", -1, 0xffff, 0, &family));
    KOLO_TRY(kolo_xml_int(e, "modelid", -1, 0xffff, 0, &model));
    const int node = kolo_graph_add(r->graph, KOLO_NODE_NUMA, -1);
    if (node < 0) {
        return kolo_graph_full(r->graph);
    }
    struct kolo_node *n = &r->graph->node[node];
    n->number = numa;
    n->arch = family > 0 && model > 0 ? family << 8 | (model & 0xff) : 0;
    if (!kolo_graph_text(r->graph, &n->name, kolo_xml_get(e, "vendor")) ||
        !kolo_graph_text(r->graph, &n->arch_text, kolo_xml_get(e, "arch"))) {
        return kolo_graph_full(r->graph);
    }
    *out = node;
    return take_affinity(r, e, node);
}

static double pci_gbs(const struct kolo_xml_element *e, int width, bool *assumed)
{
    const char *speed = kolo_xml_get(e, "link_speed");
    const double gbs = kolo_pci_gbs(speed, width);
    *assumed = gbs <= 0 || width <= 0;
    return gbs > 0 ? gbs : kolo_pci_gbs_usual(0) * (width > 0 ? width : 16) / 16;
}

static kolo_status add_pci(struct nccl_reading *r, const struct kolo_xml_element *e, int *out)
{
    int class_id = 0, width = 0, vendor = 0, device = 0;
    uint64_t bus = KOLO_BUS_NONE;
    const char *text = kolo_xml_get(e, "busid");
    const int parent = node_above(r);
    bool assumed = false;
    KOLO_TRY(kolo_xml_int(e, "class", 0, 0xffffff, 0, &class_id));
    KOLO_TRY(kolo_xml_int(e, "vendor", 0, 0xffff, 0, &vendor));
    KOLO_TRY(kolo_xml_int(e, "device", 0, 0xffff, 0, &device));
    KOLO_TRY(kolo_xml_int(e, "link_width", 0, WIDTH_UNKNOWN, 0, &width));
    width = width == WIDTH_UNKNOWN ? 0 : width;
    if (text == NULL || !kolo_bus_parse(text, &bus)) {
        return kolo_xml_fail(e, "busid is \"%.40s\", not a PCI address such as 0000:3b:00.0",
                             text != NULL ? text : "");
    }
    const int node =
        kolo_graph_add(r->graph, kolo_pci_kind((uint32_t)class_id, (uint32_t)vendor), parent);
    if (node < 0) {
        return kolo_graph_full(r->graph);
    }
    struct kolo_node *n = &r->graph->node[node];
    n->bus = bus;
    n->class_id = (uint32_t)class_id;
    n->vendor = (uint32_t)vendor;
    n->device = (uint32_t)device;
    *out = node;
    const double gbs = pci_gbs(e, width, &assumed);
    const struct kolo_graph_edge link = {parent, node, KOLO_LINK_PCI, 1, gbs, assumed};
    return parent < 0 || kolo_graph_join(r->graph, &link) ? KOLO_OK : kolo_graph_full(r->graph);
}

/* Parse "910" or "gfx942": the digits after any letters. gfx90a is 910. */
static int gcn_arch(const char *text)
{
    const char *digits = text;
    if (strncmp(text, "gfx90a", 6) == 0) {
        return 910;
    }
    while (*digits != '\0' && (*digits < '0' || *digits > '9')) {
        digits++;
    }
    return (int)(strtol(digits, NULL, 10) % 10000);
}

static kolo_status add_gpu(struct nccl_reading *r, const struct kolo_xml_element *e, int *out)
{
    const int node = node_above(r);
    const char *gcn = kolo_xml_get(e, "gcn");
    if (node < 0 || r->graph->node[node].bus == KOLO_BUS_NONE) {
        return kolo_xml_fail(e, "a GPU must lie within a <pci>");
    }
    struct kolo_node *n = &r->graph->node[node];
    KOLO_TRY(kolo_xml_int(e, "dev", -1, 1 << 20, -1, &n->number));
    KOLO_TRY(kolo_xml_int(e, "sm", 0, 10000, 0, &n->arch));
    KOLO_TRY(kolo_xml_int(e, "gdr", -1, 1, -1, &n->gdr));
    n->kind = KOLO_NODE_GPU; /* whatever its class is */
    *out = node;
    if (gcn != NULL) {
        n->arch = gcn_arch(gcn);
        return kolo_graph_text(r->graph, &n->arch_text, gcn) ? KOLO_OK : kolo_graph_full(r->graph);
    }
    return KOLO_OK;
}

static kolo_status add_claim(struct nccl_reading *r, const struct kolo_xml_element *e)
{
    const int node = node_above(r);
    const char *target = kolo_xml_get(e, "target");
    int class_id = 0;
    struct kolo_link_claim claim = {.from = node, .to = KOLO_BUS_NONE};
    if (node < 0 || r->graph->node[node].kind != KOLO_NODE_GPU) {
        return kolo_xml_fail(e, "a link must lie within a <gpu>");
    }
    KOLO_TRY(kolo_xml_int(e, "tclass", 0, 0xffffff, 0x030200, &class_id));
    KOLO_TRY(kolo_xml_int(e, "count", 0, 1024, 1, &claim.count));
    claim.link = strcmp(e->name, "xgmi") == 0 ? KOLO_LINK_XGMI : KOLO_LINK_NVLINK;
    claim.kind = class_id == 0x068000   ? KOLO_NODE_NVSWITCH
                 : class_id == 0x068001 ? KOLO_NODE_NUMA
                                        : KOLO_NODE_GPU;
    if (strcmp(e->name, "c2c") == 0) {
        double mbs = 0;
        KOLO_TRY(kolo_xml_number(e, "bw", 0, &mbs));
        claim.kind = KOLO_NODE_NUMA;
        claim.link = KOLO_LINK_C2C;
        claim.gbs = mbs > 0 && mbs < 1e9 ? mbs / 1000 * claim.count : 0;
    } else if (target == NULL || !kolo_bus_parse(target, &claim.to)) {
        claim.kind = KOLO_NODE_NVSWITCH; /* virtual machines hide NVSwitches, never GPUs */
        kolo_graph_note(r->graph, "line %d: a link to \"%.24s\" is taken to lead to an NVSwitch",
                        e->line, target != NULL ? target : "");
    }
    return kolo_link_claims_add(r->graph, &r->claims, &claim) ? KOLO_OK : kolo_graph_full(r->graph);
}

static int count_ports(const char *name)
{
    int ports = 1;
    for (const char *c = name; *c != '\0'; c++) {
        ports += *c == '+';
    }
    return ports;
}

/* Whether software made an interface of this name: it is no way of a GPU to other hosts. */
static bool is_made(const char *name)
{
    static const char *const prefixes[] = {
        "br-",       "docker", "veth",  "cali",    "tunl",      "lxc",     "lxd",
        "virbr",     "vnet",   "cni",   "cbr",     "flannel",   "vxlan",   "weave",
        "cilium",    "podman", "dummy", "tun",     "tap",       "wg",      "gre",
        "sit",       "ip6",    "ipvl",  "kube",    "nodelocal", "ovs",     "genev",
        "tailscale", "zt",     "vmnet", "vboxnet", "ifb",       "nerdctl", "lo"};
    for (size_t i = 0; i < KOLO_LENGTH(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return strcmp(prefixes[i], "lo") != 0 || name[2] == '\0';
        }
    }
    return strncmp(name, "br", 2) == 0 && name[2] >= '0' && name[2] <= '9';
}

/* Find the node of this name that has no address; -1: none. A file of several processes names an
 * interface below each of its NUMA nodes. */
static int find_named(const struct kolo_graph *g, const char *name)
{
    for (int i = 0; i < g->nnodes; i++) {
        const struct kolo_node *n = &g->node[i];
        if ((n->kind == KOLO_NODE_NIC || n->kind == KOLO_NODE_INTERFACE) &&
            n->bus == KOLO_BUS_NONE && n->name != NULL && strcmp(n->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Add another port to a NIC. */
static kolo_status add_port(struct kolo_graph *g, int node, const char *name, double gbs)
{
    struct kolo_text joined = {0};
    struct kolo_node *n = &g->node[node];
    kolo_text_add(&joined, "%s+%s", n->name, name);
    n->ports += count_ports(name);
    n->gbs += gbs;
    const bool fits = joined.chars != NULL && kolo_graph_text(g, &n->name, joined.chars);
    kolo_text_free(&joined);
    return fits ? KOLO_OK : kolo_graph_full(g);
}

/* The node that a <net> describes: its PCI device, or a new node. */
static kolo_status place_net(struct nccl_reading *r, const char *name, double gbs, int *out)
{
    struct kolo_graph *g = r->graph;
    const int holder = node_above(r);
    const bool on_pci = holder >= 0 && g->node[holder].bus != KOLO_BUS_NONE;
    if (on_pci &&
        (g->node[holder].kind == KOLO_NODE_NIC || g->node[holder].kind == KOLO_NODE_DEVICE)) {
        g->node[holder].kind = KOLO_NODE_NIC;
        *out = holder;
        return KOLO_OK;
    }
    const bool made = !on_pci && is_made(name);
    *out = kolo_graph_add(g, made ? KOLO_NODE_INTERFACE : KOLO_NODE_NIC, made ? -1 : holder);
    const struct kolo_graph_edge link = {
        holder, *out, KOLO_LINK_PCI, 1, gbs > 0 ? gbs : kolo_pci_gbs_usual(0), gbs <= 0};
    return *out >= 0 && (made || holder < 0 || kolo_graph_join(g, &link)) ? KOLO_OK
                                                                          : kolo_graph_full(g);
}

static kolo_status add_net(struct nccl_reading *r, const struct kolo_xml_element *e)
{
    const char *guid = kolo_xml_get(e, "guid");
    const char *name = kolo_xml_get(e, "name");
    const int holder = node_above(r);
    int node = -1, number = -1, port = 0, gdr = -1;
    double mbits = 0;
    KOLO_TRY(kolo_xml_int(e, "dev", -1, 1 << 20, -1, &number));
    KOLO_TRY(kolo_xml_int(e, "port", 0, 1024, 0, &port));
    KOLO_TRY(kolo_xml_int(e, "gdr", -1, 1, -1, &gdr));
    KOLO_TRY(kolo_xml_number(e, "speed", 0, &mbits));
    const double gbs = mbits < 1e9 ? mbits / 8000 : 0;
    name = name != NULL && name[0] != '\0' ? name : "net";
    if ((holder < 0 || r->graph->node[holder].bus == KOLO_BUS_NONE) &&
        find_named(r->graph, name) >= 0) {
        return KOLO_OK;
    }
    KOLO_TRY(place_net(r, name, gbs, &node));
    struct kolo_node *n = &r->graph->node[node];
    if (n->name != NULL) {
        return add_port(r->graph, node, name, gbs);
    }
    n->number = number;
    n->port = port;
    n->ports = count_ports(name);
    n->gdr = gdr;
    n->gbs = gbs;
    n->guid = guid != NULL ? strtoull(guid, NULL, 16) : 0;
    return kolo_graph_text(r->graph, &n->name, name) ? KOLO_OK : kolo_graph_full(r->graph);
}

/* FlagCX's name for a GPU tells its number alone. */
static kolo_status add_apu(struct nccl_reading *r, const struct kolo_xml_element *e)
{
    const int node = node_above(r);
    return node < 0 || r->graph->node[node].kind != KOLO_NODE_GPU
               ? KOLO_OK
               : kolo_xml_int(e, "dev", -1, 1 << 20, -1, &r->graph->node[node].number);
}

static kolo_status start_element(void *context, const struct kolo_xml_element *e)
{
    struct nccl_reading *r = context;
    int node = node_above(r);
    kolo_status st = KOLO_OK;
    if (e->depth == 0) {
        st = check_root(e);
    } else if (strcmp(e->name, "cpu") == 0) {
        st = add_cpu(r, e, &node);
    } else if (strcmp(e->name, "pci") == 0) {
        st = add_pci(r, e, &node);
    } else if (strcmp(e->name, "gpu") == 0) {
        st = add_gpu(r, e, &node);
    } else if (strcmp(e->name, "apu") == 0) {
        st = add_apu(r, e);
    } else if (strcmp(e->name, "nvlink") == 0 || strcmp(e->name, "xgmi") == 0 ||
               strcmp(e->name, "c2c") == 0) {
        st = add_claim(r, e);
    } else if (strcmp(e->name, "net") == 0) {
        st = add_net(r, e);
    } /* <nic>, <pcilink> and elements of later versions are not needed */
    r->node[r->depth++] = node;
    return st;
}

static kolo_status end_element(void *context, const struct kolo_xml_element *e)
{
    struct nccl_reading *r = context;
    (void)e;
    r->depth--;
    return KOLO_OK;
}

/* A device with children is a switch, whatever its class. A device with neither children nor a class
 * is of unknown kind. */
static void find_switches(struct kolo_graph *graph)
{
    int unknown = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        const int parent = graph->node[i].parent;
        if (parent >= 0 && graph->node[parent].kind == KOLO_NODE_DEVICE) {
            graph->node[parent].kind = KOLO_NODE_SWITCH;
        }
    }
    for (int i = 0; i < graph->nnodes; i++) {
        unknown += graph->node[i].kind == KOLO_NODE_DEVICE && graph->node[i].class_id == 0;
    }
    if (unknown > 0) {
        kolo_graph_note(graph, "%d PCI device%s no class here: GPU or NIC, the file does not tell",
                        unknown, unknown == 1 ? " has" : "s have");
    }
}

kolo_status kolo_read_nccl(const struct kolo_xml_source *source, struct kolo_graph *graph)
{
    struct nccl_reading *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", source->path);
    }
    r->graph = graph;
    kolo_status st = kolo_xml_read(
        source,
        &(struct kolo_xml_reader){.start = start_element, .end = end_element, .context = r});
    if (st == KOLO_OK) {
        find_switches(graph);
        st = kolo_link_claims_join(graph, &r->claims);
    }
    free(r->claims.claim);
    free(r);
    return st;
}
