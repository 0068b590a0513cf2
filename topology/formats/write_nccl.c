// SPDX-License-Identifier: Apache-2.0
/* A machine as the topology XML of NCCL (version 1), or of RCCL (version 2) if it has xgmi. NCCL asks
 * the machine for each attribute that a file leaves out, and believes each that it has. So nothing is
 * written that the graph does not know: an address that no device has, a speed that is only usual, a
 * guid of 0 that would make all NICs one.
 *
 * NCCL finds GPUs and NICs by their addresses, so a machine without them cannot be written. Form:
 * NCCL 2.30 src/graph/xml.cc. */
#include "topology/formats/write.h"
#include "topology/machine/cpus.h"
#include "topology/machine/graph.h"
#include "util/escape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A switch without an address gets one that no machine has, as in the files of clouds. */
static void add_address(const struct kolo_graph *g, int node, struct kolo_text *out)
{
    char bus[24];
    if (g->node[node].bus != KOLO_BUS_NONE) {
        kolo_bus_print(g->node[node].bus, bus);
    } else {
        (void)snprintf(bus, sizeof bus, "ffff:%02x:%02x.0", 0xff - node / 32 % 256, node % 32);
    }
    kolo_text_add(out, "%s", bus);
}

/* Add the generation and width nearest to a capacity. 16 lanes are tried first, and for each width
 * the smallest generation first. */
static void add_speed(double gbs, struct kolo_text *out)
{
    static const char *const rates[] = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
    static const int widths[] = {16, 8, 4, 2, 1, 32};
    double best = INFINITY;
    size_t rate = 2;
    int width = 16;
    for (size_t w = 0; w < KOLO_LENGTH(widths); w++) {
        for (size_t r = 0; r < KOLO_LENGTH(rates); r++) {
            const double off = fabs(kolo_pci_gbs(rates[r], widths[w]) - gbs);
            if (off < best * 0.999) {
                best = off;
                rate = r;
                width = widths[w];
            }
        }
    }
    kolo_text_add(out, " link_speed=\"%s GT/s PCIe\" link_width=\"%d\"", rates[rate], width);
}

static void add_c2c(const struct kolo_graph_edge *l, int indent, struct kolo_text *out)
{
    kolo_text_add(out, "%*s<c2c bw=\"%.0f\" count=\"%d\"/>\n", indent, "", l->gbs * 1000 / l->count,
                  l->count);
}

static void add_nvlinks(const struct kolo_graph *g, int gpu, int indent, struct kolo_text *out)
{
    for (int i = 0; i < g->nlinks; i++) {
        const struct kolo_graph_edge *l = &g->link[i];
        const int to = l->a == gpu ? l->b : l->a;
        if ((l->a != gpu && l->b != gpu) || l->kind == KOLO_LINK_PCI || l->kind == KOLO_LINK_SMP) {
            continue;
        }
        if (l->kind == KOLO_LINK_C2C) {
            add_c2c(l, indent, out);
            continue;
        }
        const enum kolo_node_kind kind = g->node[to].kind;
        kolo_text_add(out, "%*s<%s target=\"", indent, "",
                      l->kind == KOLO_LINK_XGMI ? "xgmi" : "nvlink");
        if (kind == KOLO_NODE_GPU) {
            add_address(g, to, out);
        } else {
            kolo_text_add(out, "ffff:ff:ff.0");
        }
        kolo_text_add(out, "\" count=\"%d\" tclass=\"%s\"/>\n", l->count,
                      kind == KOLO_NODE_NVSWITCH ? "0x068000"
                      : kind == KOLO_NODE_NUMA   ? "0x068001"
                                                 : "0x030200");
    }
}

static int place_in(const int *list, int count, int node)
{
    int i = 0;
    while (i < count && list[i] != node) {
        i++;
    }
    return i;
}

static void add_gpu(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    const bool amd = n->arch_text != NULL;
    const int place = place_in(g->gpu, g->ngpus, node);
    kolo_text_add(out, "%*s<gpu dev=\"%d\"", indent, "", n->number >= 0 ? n->number : place);
    if (n->arch > 0 && !amd) {
        kolo_text_add(out, " sm=\"%d\"", n->arch);
    }
    kolo_text_add(out, " rank=\"%d\"", place);
    if (n->gdr >= 0) {
        kolo_text_add(out, " gdr=\"%d\"", n->gdr);
    }
    if (amd) {
        kolo_text_add(out, " gcn=\"");
        kolo_text_xml(out, n->arch_text);
        kolo_text_add(out, "\"");
    }
    kolo_text_add(out, ">\n");
    add_nvlinks(g, node, indent + 2, out);
    kolo_text_add(out, "%*s</gpu>\n", indent, "");
}

/* The number of a NIC's first port among the ports of all NICs. */
static int first_dev(const struct kolo_graph *g, int node)
{
    int dev = 0;
    for (int i = 0; i < g->nnics && g->nic[i] != node; i++) {
        dev += g->node[g->nic[i]].ports > 1 ? g->node[g->nic[i]].ports : 1;
    }
    return dev;
}

/* Add a <net> for each port: NCCL joins ports itself, by their guid and address. */
static void add_net(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    const int ports = n->ports > 1 ? n->ports : 1;
    const char *name = n->name;
    if (name == NULL) {
        return; /* NCCL adds the interface under its own name */
    }
    kolo_text_add(out, "%*s<nic>\n", indent, "");
    for (int port = 0; port < ports; port++) {
        const size_t len = port + 1 < ports ? strcspn(name, "+") : strlen(name);
        char *own = strndup(name, len);
        kolo_text_add(out, "%*s<net name=\"", indent + 2, "");
        kolo_text_xml(out, own != NULL ? own : "");
        kolo_text_add(out, "\" dev=\"%d\"", first_dev(g, node) + port);
        free(own);
        if (n->gbs > 0) {
            kolo_text_add(out, " speed=\"%.0f\"", n->gbs * 8000 / ports);
        }
        if (n->port > 0) {
            kolo_text_add(out, " port=\"%d\"", n->port + port);
        }
        if (n->guid != 0) {
            kolo_text_add(out, " guid=\"0x%llx\"", (unsigned long long)n->guid);
        }
        if (n->gdr >= 0) {
            kolo_text_add(out, " gdr=\"%d\"", n->gdr);
        }
        kolo_text_add(out, "/>\n");
        name += len + (name[len] == '+');
    }
    kolo_text_add(out, "%*s</nic>\n", indent, "");
}

/* The PCI class. A device of no class is left without one: NCCL then asks the machine. */
static uint32_t class_of(const struct kolo_node *n)
{
    return n->class_id != 0              ? n->class_id
           : n->kind == KOLO_NODE_GPU    ? 0x030200
           : n->kind == KOLO_NODE_NIC    ? 0x020000
           : n->kind == KOLO_NODE_SWITCH ? 0x060400
                                         : 0;
}

static bool is_bare_nic(const struct kolo_graph *g, int node)
{
    const struct kolo_node *n = &g->node[node];
    return n->kind == KOLO_NODE_NIC && n->bus == KOLO_BUS_NONE && n->parent >= 0 &&
           g->node[n->parent].kind == KOLO_NODE_NUMA;
}

static void open_numa(const struct kolo_node *n, int indent, struct kolo_text *out)
{
    struct kolo_text mask = {0};
    kolo_text_add(out, "%*s<cpu numaid=\"%d\"", indent, "", n->number);
    if (n->cpus != NULL && kolo_mask_add(n->cpus, &mask) && mask.chars != NULL) {
        kolo_text_add(out, " affinity=\"%s\"", mask.chars);
    }
    kolo_text_free(&mask);
    if (n->arch_text != NULL) {
        kolo_text_add(out, " arch=\"");
        kolo_text_xml(out, n->arch_text);
        kolo_text_add(out, "\"");
    }
    if (n->name != NULL) {
        kolo_text_add(out, " vendor=\"");
        kolo_text_xml(out, n->name);
        kolo_text_add(out, "\"");
    }
    if (n->arch > 0) {
        kolo_text_add(out, " familyid=\"%d\" modelid=\"%d\"", n->arch >> 8, n->arch & 0xff);
    }
    kolo_text_add(out, ">\n");
}

/* Whether a GPU has more to say than its address: NCCL fills a <gpu> that is absent. */
static bool has_gpu_tag(const struct kolo_graph *g, int node)
{
    const struct kolo_node *n = &g->node[node];
    bool linked = false;
    for (int i = 0; i < g->nlinks && !linked; i++) {
        linked = (g->link[i].a == node || g->link[i].b == node) && g->link[i].kind != KOLO_LINK_PCI;
    }
    return linked || n->arch > 0 || n->number >= 0;
}

static void open_node(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    if (n->kind == KOLO_NODE_NUMA) {
        open_numa(n, indent, out);
        return;
    }
    if (is_bare_nic(g, node)) {
        add_net(g, node, indent, out);
        return;
    }
    const struct kolo_graph_edge *up =
        n->parent >= 0 ? kolo_graph_link(g, node, n->parent, KOLO_LINK_PCI) : NULL;
    kolo_text_add(out, "%*s<pci busid=\"", indent, "");
    add_address(g, node, out);
    kolo_text_add(out, "\"");
    if (class_of(n) != 0) {
        kolo_text_add(out, " class=\"0x%06x\"", class_of(n));
    }
    if (n->vendor != 0) {
        kolo_text_add(out, " vendor=\"0x%04x\" device=\"0x%04x\"", n->vendor, n->device);
    }
    const bool mended = n->kind == KOLO_NODE_SWITCH; /* a switch's link is known from those below */
    if (up != NULL && (!up->assumed || (mended && up->gbs > kolo_pci_gbs_usual(0)))) {
        add_speed(up->gbs, out);
    }
    kolo_text_add(out, ">\n");
    if (n->kind == KOLO_NODE_GPU && has_gpu_tag(g, node)) {
        add_gpu(g, node, indent + 2, out);
    } else if (n->kind == KOLO_NODE_NIC) {
        add_net(g, node, indent + 2, out);
    }
}

static void close_node(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    if (!is_bare_nic(g, node)) {
        kolo_text_add(out, "%*s</%s>\n", indent, "",
                      g->node[node].kind == KOLO_NODE_NUMA ? "cpu" : "pci");
    }
}

static void write_tree(const struct kolo_graph *g, int root, struct kolo_text *out)
{
    int at = root, after = -1, indent = 2;
    open_node(g, root, indent, out);
    for (;;) {
        const int child = kolo_graph_next_child(g, at, after);
        if (child >= 0) {
            indent += 2;
            open_node(g, child, indent, out);
            at = child;
            after = -1;
            continue;
        }
        close_node(g, at, indent, out);
        if (at == root) {
            return;
        }
        indent -= 2;
        after = at;
        at = g->node[at].parent;
    }
}

/* Refuse a machine whose devices NCCL cannot find. */
static kolo_status check_addresses(const struct kolo_graph *g)
{
    enum { DOMAIN_MAX = 0xffff }; /* NCCL's addresses have four digits of domain */
    for (int i = 0; i < g->nnodes; i++) {
        const struct kolo_node *n = &g->node[i];
        const bool device = n->kind == KOLO_NODE_GPU || n->kind == KOLO_NODE_DEVICE ||
                            (n->kind == KOLO_NODE_NIC && !is_bare_nic(g, i));
        if (device && n->bus == KOLO_BUS_NONE) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED,
                             "%s has no PCI addresses, by which NCCL finds GPUs and NICs: merge a "
                             "file that has them (--merge)",
                             g->source);
        }
        if (device && n->bus >> 16 > DOMAIN_MAX) {
            char bus[24];
            kolo_bus_print(n->bus, bus);
            return kolo_fail(KOLO_ERR_UNSUPPORTED,
                             "%s: %s has a PCI domain of more than four digits, which NCCL cannot "
                             "read",
                             g->source, bus);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_graph_write_nccl(const struct kolo_graph *graph, struct kolo_text *out)
{
    bool xgmi = false;
    KOLO_TRY(check_addresses(graph));
    for (int i = 0; i < graph->nlinks; i++) {
        xgmi = xgmi || graph->link[i].kind == KOLO_LINK_XGMI;
    }
    kolo_text_add(out, "<system version=\"%d\">\n", xgmi ? 2 : 1);
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].kind == KOLO_NODE_NUMA) {
            write_tree(graph, i, out);
        }
    }
    kolo_text_add(out, "</system>\n");
    return KOLO_OK;
}
