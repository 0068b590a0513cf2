// SPDX-License-Identifier: Apache-2.0
/* A machine as NCCL's topology XML, version 1. A speed is written as a PCI generation and width
 * that NCCL turns into the same capacity. A device without an address gets one that no machine has,
 * as in the files of clouds. Form: NCCL 2.30 src/graph/xml.cc. */
#include "topology/formats/write.h"
#include "topology/machine/graph.h"
#include "util/escape.h"

#include <math.h>
#include <stdio.h>

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

static void add_nvlinks(const struct kolo_graph *g, int gpu, int indent, struct kolo_text *out)
{
    for (int i = 0; i < g->nlinks; i++) {
        const struct kolo_graph_edge *l = &g->link[i];
        const int to = l->a == gpu ? l->b : l->a;
        if ((l->a != gpu && l->b != gpu) || l->kind == KOLO_LINK_PCI || l->kind == KOLO_LINK_SMP) {
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
    const int dev = place_in(g->gpu, g->ngpus, node);
    kolo_text_add(out, "%*s<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"%d\"", indent, "", dev,
                  n->arch, dev, n->gdr == 0 ? 0 : 1);
    if (n->arch_text != NULL) {
        kolo_text_add(out, " gcn=\"");
        kolo_text_xml(out, n->arch_text);
        kolo_text_add(out, "\"");
    }
    kolo_text_add(out, ">\n");
    add_nvlinks(g, node, indent + 2, out);
    kolo_text_add(out, "%*s</gpu>\n", indent, "");
}

static void add_net(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    kolo_text_add(out, "%*s<nic>\n%*s<net name=\"", indent, "", indent + 2, "");
    kolo_text_xml(out, n->name != NULL ? n->name : "net");
    kolo_text_add(out,
                  "\" dev=\"%d\" speed=\"%.0f\" port=\"%d\" latency=\"0.000000\" guid=\"0x%llx\" "
                  "maxconn=\"65536\" gdr=\"%d\"/>\n%*s</nic>\n",
                  place_in(g->nic, g->nnics, node), n->gbs * 8000, n->port,
                  (unsigned long long)n->guid, n->gdr == 1, indent, "");
}

static const char *class_of(const struct kolo_node *n)
{
    return n->kind == KOLO_NODE_GPU   ? "0x030200"
           : n->kind == KOLO_NODE_NIC ? "0x020700"
                                      : "0x060400";
}

static bool is_bare_nic(const struct kolo_graph *g, int node)
{
    const struct kolo_node *n = &g->node[node];
    return n->kind == KOLO_NODE_NIC && n->bus == KOLO_BUS_NONE && n->parent >= 0 &&
           g->node[n->parent].kind == KOLO_NODE_NUMA;
}

static void open_node(const struct kolo_graph *g, int node, int indent, struct kolo_text *out)
{
    const struct kolo_node *n = &g->node[node];
    if (n->kind == KOLO_NODE_NUMA) {
        kolo_text_add(out, "%*s<cpu numaid=\"%d\" affinity=\"", indent, "", n->number);
        kolo_text_xml(out, n->cpus != NULL ? n->cpus : "");
        kolo_text_add(out, "\" arch=\"");
        kolo_text_xml(out, n->arch_text != NULL ? n->arch_text : "x86_64");
        kolo_text_add(out, "\" vendor=\"");
        kolo_text_xml(out, n->name != NULL ? n->name : "GenuineIntel");
        kolo_text_add(out, "\" familyid=\"%d\" modelid=\"%d\">\n", n->arch > 0 ? n->arch >> 8 : 6,
                      n->arch & 0xff);
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
    kolo_text_add(out, "\" class=\"%s\"", class_of(n));
    add_speed(up != NULL ? up->gbs : kolo_pci_gbs_usual(), out);
    kolo_text_add(out, ">\n");
    if (n->kind == KOLO_NODE_GPU) {
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

static int next_child(const struct kolo_graph *g, int parent, int after)
{
    for (int i = after + 1; i < g->nnodes; i++) {
        if (g->node[i].parent == parent && g->node[i].kind != KOLO_NODE_DEVICE) {
            return i;
        }
    }
    return -1;
}

static void write_tree(const struct kolo_graph *g, int root, struct kolo_text *out)
{
    int at = root, after = -1, indent = 2;
    open_node(g, root, indent, out);
    for (;;) {
        const int child = next_child(g, at, after);
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

void kolo_graph_write_nccl(const struct kolo_graph *graph, struct kolo_text *out)
{
    kolo_text_add(out, "<system version=\"1\">\n");
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].kind == KOLO_NODE_NUMA) {
            write_tree(graph, i, out);
        }
    }
    kolo_text_add(out, "</system>\n");
}
