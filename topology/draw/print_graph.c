// SPDX-License-Identifier: Apache-2.0
/* A graph as text for people: the tree of NUMA nodes, switches and devices with capacities, and the
 * links of GPUs besides PCI. Equal devices in a row are not folded, because readers look for their
 * addresses. */
#include "topology/draw/draw.h"
#include "topology/machine/graph.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 260 };

static void add_arch(const struct kolo_node *n, struct kolo_text *out)
{
    if (n->kind != KOLO_NODE_GPU) {
        return;
    }
    if (n->arch_text != NULL) {
        kolo_text_add(out, ", %s%s", n->arch_text[0] >= '0' && n->arch_text[0] <= '9' ? "gfx" : "",
                      n->arch_text);
    } else if (n->arch > 0) {
        kolo_text_add(out, ", sm_%d", n->arch);
    }
}

static void add_node(const struct kolo_graph *graph, int node, int depth, struct kolo_text *out)
{
    const struct kolo_node *n = &graph->node[node];
    const struct kolo_graph_edge *up = NULL;
    kolo_text_add(out, "%*s", 2 + 2 * depth, "");
    kolo_node_label(graph, node, out);
    for (int i = 0; i < graph->nlinks && n->parent >= 0 && up == NULL; i++) {
        const struct kolo_graph_edge *link = &graph->link[i];
        const bool joins =
            (link->a == node && link->b == n->parent) || (link->b == node && link->a == n->parent);
        up = link->kind == KOLO_LINK_PCI && joins ? link : NULL;
    }
    if (up != NULL) {
        kolo_text_add(out, "  PCI %s%.4g GB/s", up->assumed ? "~" : "", up->gbs);
    }
    if (n->kind == KOLO_NODE_NUMA) {
        kolo_text_add(out, "%s%s%s%s", n->name != NULL ? ", " : "", n->name != NULL ? n->name : "",
                      n->cpus != NULL ? ", cpus " : "", n->cpus != NULL ? n->cpus : "");
    } else if (n->kind == KOLO_NODE_GPU && n->name != NULL) {
        kolo_text_add(out, ", %s", n->name);
    } else if (n->kind == KOLO_NODE_NIC && n->gbs > 0 && n->ports > 1) {
        kolo_text_add(out, ", %d ports of %.4g GB/s", n->ports, n->gbs / n->ports);
    } else if (n->kind == KOLO_NODE_NIC && n->gbs > 0) {
        kolo_text_add(out, ", port %.4g GB/s", n->gbs);
    } else if (n->kind == KOLO_NODE_NIC && n->ports > 1) {
        kolo_text_add(out, ", %d ports", n->ports);
    }
    if (n->kind == KOLO_NODE_NIC && n->gdr == 0) {
        kolo_text_add(out, ", no GPUDirect");
    }
    add_arch(n, out);
    kolo_text_add(out, "\n");
}

static void add_tree(const struct kolo_graph *graph, int root, struct kolo_text *out)
{
    int path[DEPTH] = {root};
    int last[DEPTH] = {root};
    int depth = 0;
    add_node(graph, root, 0, out);
    while (depth >= 0) {
        const int child = kolo_graph_next_child(graph, path[depth], last[depth]);
        if (child < 0 || depth + 1 >= DEPTH) {
            depth--;
            continue;
        }
        last[depth] = child;
        depth++;
        path[depth] = last[depth] = child;
        add_node(graph, child, depth, out);
    }
}

static void add_links(const struct kolo_graph *graph, struct kolo_text *out)
{
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i];
        if (link->kind == KOLO_LINK_PCI) {
            continue;
        }
        kolo_text_add(out, "  %s ", kolo_link_kind_name(link->kind));
        if (link->kind != KOLO_LINK_SMP) {
            kolo_text_add(out, "%d x ", link->count);
        }
        kolo_text_add(out, "%s%.4g GB/s: ", link->assumed ? "~" : "", link->gbs / link->count);
        kolo_node_label(graph, link->a, out);
        kolo_text_add(out, " - ");
        kolo_node_label(graph, link->b, out);
        kolo_text_add(out, "\n");
    }
}

/* Interfaces that software made are on no device: one line for all. */
static void add_interfaces(const struct kolo_graph *graph, struct kolo_text *out)
{
    int count = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].kind == KOLO_NODE_INTERFACE) {
            kolo_text_add(out, "%s%s", count++ == 0 ? "  virtual interfaces, of no GPU: " : ", ",
                          graph->node[i].name != NULL ? graph->node[i].name : "?");
        }
    }
    kolo_text_add(out, count > 0 ? "\n" : "");
}

void kolo_graph_print(const struct kolo_graph *graph, struct kolo_text *out)
{
    int count[KOLO_NODE_KINDS] = {0};
    for (int i = 0; i < graph->nnodes; i++) {
        count[graph->node[i].kind]++;
    }
    const int numas = count[KOLO_NODE_NUMA], switches = count[KOLO_NODE_SWITCH];
    const int devices = count[KOLO_NODE_DEVICE], interfaces = count[KOLO_NODE_INTERFACE];
    kolo_text_add(out, "%s (%s): %d NUMA node%s, %d PCI switch%s, %d GPU%s, %d NIC%s",
                  graph->source, graph->format, numas, numas == 1 ? "" : "s", switches,
                  switches == 1 ? "" : "es", graph->ngpus, graph->ngpus == 1 ? "" : "s",
                  graph->nnics, graph->nnics == 1 ? "" : "s");
    if (devices > 0) {
        kolo_text_add(out, ", %d other PCI device%s", devices, devices == 1 ? "" : "s");
    }
    if (interfaces > 0) {
        kolo_text_add(out, ", %d virtual interface%s", interfaces, interfaces == 1 ? "" : "s");
    }
    kolo_text_add(out, "\n");
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].parent < 0 && graph->node[i].kind != KOLO_NODE_INTERFACE) {
            add_tree(graph, i, out);
        }
    }
    add_interfaces(graph, out);
    add_links(graph, out);
    for (const char *at = graph->notes.chars; at != NULL && *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        kolo_text_add(out, "  note: %.*s\n", (int)len, at);
        at += len + 1;
    }
    if (graph->nnotes > 64) {
        kolo_text_add(out, "  note: and %d more\n", graph->nnotes - 64);
    }
    kolo_text_add(out, "  capacities are each way; ~ marks a usual one that the source does not "
                       "tell\n");
}
