// SPDX-License-Identifier: Apache-2.0
/* Building and searching the graph of a machine. The graph counts its memory, so a hostile file
 * cannot make it larger than a limit, which grows with the size of the file. */
#include "topology/machine/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES_MAX = 64 };

struct kolo_graph *kolo_graph_create(const char *source, const char *format, size_t limit)
{
    struct kolo_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        return NULL;
    }
    graph->format = format;
    graph->limit = limit;
    graph->source = strdup(source);
    if (graph->source == NULL) {
        free(graph);
        return NULL;
    }
    return graph;
}

void kolo_graph_destroy(struct kolo_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    for (int i = 0; i < graph->nnodes; i++) {
        free(graph->node[i].name);
        free(graph->node[i].cpus);
        free(graph->node[i].arch_text);
    }
    kolo_text_free(&graph->notes);
    free(graph->node);
    free(graph->link);
    free(graph->gpu);
    free(graph->nic);
    free(graph->source);
    free(graph);
}

static bool take_memory(struct kolo_graph *graph, size_t bytes)
{
    if (graph->limit != 0 && (bytes > graph->limit || graph->bytes > graph->limit - bytes)) {
        return false;
    }
    graph->bytes += bytes;
    return true;
}

/* realloc() may hold the old and the new array at once, so both count against the limit. */
void *kolo_graph_grow(struct kolo_graph *graph, void *array, int count, int *room, size_t each)
{
    if (count < *room) {
        return array;
    }
    const int more = *room < 16 ? 16 : *room + *room / 2;
    const size_t bytes = (size_t)more * each;
    if (!take_memory(graph, bytes)) {
        return NULL;
    }
    void *new = realloc(array, bytes);
    if (new == NULL) {
        graph->bytes -= bytes;
        return NULL;
    }
    graph->bytes -= (size_t)*room * each;
    *room = more;
    return new;
}

kolo_status kolo_graph_full(const struct kolo_graph *graph)
{
    return graph->limit != 0
               ? kolo_fail(KOLO_ERR_INVALID,
                           "%s: describes more than a file of its size can: over %zu bytes of "
                           "nodes and links",
                           graph->source, graph->limit)
               : kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", graph->source);
}

int kolo_graph_add(struct kolo_graph *graph, enum kolo_node_kind kind, int parent)
{
    void *grown =
        kolo_graph_grow(graph, graph->node, graph->nnodes, &graph->node_room, sizeof *graph->node);
    if (grown == NULL) {
        return -1;
    }
    graph->node = grown;
    graph->node[graph->nnodes] = (struct kolo_node){
        .kind = kind, .parent = parent, .bus = KOLO_BUS_NONE, .number = -1, .gdr = -1, .rdma = -1};
    return graph->nnodes++;
}

struct kolo_graph_edge *kolo_graph_link(const struct kolo_graph *graph, int a, int b, int kind)
{
    for (int i = 0; i < graph->nlinks; i++) {
        struct kolo_graph_edge *link = &graph->link[i];
        if (((link->a == a && link->b == b) || (link->a == b && link->b == a)) &&
            (kind < 0 || link->kind == (enum kolo_link_kind)kind)) {
            return link;
        }
    }
    return NULL;
}

static bool joins_gpus(const struct kolo_graph *graph, const struct kolo_graph_edge *link, int a,
                       int b)
{
    const bool has_a = link->a == a || link->b == a, has_b = link->a == b || link->b == b;
    const bool switched = graph->node[link->a].kind == KOLO_NODE_NVSWITCH ||
                          graph->node[link->b].kind == KOLO_NODE_NVSWITCH;
    return link->kind != KOLO_LINK_PCI && ((has_a && has_b) || (switched && (has_a || has_b)));
}

void kolo_graph_cut(struct kolo_graph *graph, int a, int b)
{
    int kept = 0;
    for (int i = 0; i < graph->nlinks; i++) {
        if (!joins_gpus(graph, &graph->link[i], a, b)) {
            graph->link[kept++] = graph->link[i];
        }
    }
    graph->nlinks = kept;
}

void kolo_graph_keep(struct kolo_graph *graph, const bool *used)
{
    int gpus = 0, links = 0;
    for (int i = 0; i < graph->ngpus; i++) {
        if (used[graph->gpu[i]]) {
            graph->gpu[gpus++] = graph->gpu[i];
        } else {
            graph->node[graph->gpu[i]].kind = KOLO_NODE_DEVICE;
        }
    }
    graph->ngpus = gpus;
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i];
        if (link->kind == KOLO_LINK_PCI || (graph->node[link->a].kind != KOLO_NODE_DEVICE &&
                                            graph->node[link->b].kind != KOLO_NODE_DEVICE)) {
            graph->link[links++] = *link;
        }
    }
    graph->nlinks = links;
}

bool kolo_graph_join(struct kolo_graph *graph, const struct kolo_graph_edge *link)
{
    void *grown =
        kolo_graph_grow(graph, graph->link, graph->nlinks, &graph->link_room, sizeof *graph->link);
    if (grown == NULL) {
        return false;
    }
    graph->link = grown;
    graph->link[graph->nlinks++] = *link;
    return true;
}

bool kolo_graph_text(struct kolo_graph *graph, char **where, const char *text)
{
    if (text == NULL || text[0] == '\0') {
        return true;
    }
    if (!take_memory(graph, strlen(text) + 1)) {
        return false;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return false;
    }
    free(*where);
    *where = copy;
    return true;
}

void kolo_graph_note(struct kolo_graph *graph, const char *format, ...)
{
    char line[256];
    va_list args;
    if (graph->nnotes++ >= NOTES_MAX) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    kolo_text_add(&graph->notes, "%s\n", line);
}

void kolo_graph_set_nvlink(struct kolo_graph *graph, double gbs)
{
    for (int i = 0; i < graph->nlinks; i++) {
        struct kolo_graph_edge *link = &graph->link[i];
        if (link->kind == KOLO_LINK_NVLINK) {
            link->gbs = gbs * link->count;
            link->assumed = false;
        }
    }
}

/* PCI numbers of NVIDIA's GPUs on SXM boards, which all have NVLinks. Source: pci.ids. */
static bool is_sxm(const struct kolo_node *n)
{
    static const uint16_t devices[] = {0x15f9, 0x1db1, 0x1db3, 0x1db5, 0x1db7, 0x1db8, 0x20b0,
                                       0x20b2, 0x20b3, 0x20bd, 0x20f3, 0x2324, 0x2329, 0x232c,
                                       0x2330, 0x2335, 0x2342, 0x2901, 0x2941, 0x3182};
    for (size_t i = 0; i < KOLO_LENGTH(devices); i++) {
        if (n->vendor == 0x10de && n->device == devices[i]) {
            return true;
        }
    }
    return false;
}

/* Whether most GPUs of this generation have NVLinks; the source does not tell which product it is. */
static bool is_linked_arch(const struct kolo_node *n)
{
    static const int arches[] = {60, 70, 80, 90, 100, 103};
    for (size_t i = 0; i < KOLO_LENGTH(arches) && n->device == 0; i++) {
        if (n->arch == arches[i]) {
            return true;
        }
    }
    return false;
}

bool kolo_graph_hides_links(const struct kolo_graph *graph)
{
    int hidden = 0;
    for (int i = 0; i < graph->nlinks; i++) {
        if (graph->link[i].kind != KOLO_LINK_PCI && graph->link[i].kind != KOLO_LINK_SMP) {
            return false;
        }
    }
    for (int i = 0; i < graph->nnodes; i++) {
        const struct kolo_node *n = &graph->node[i];
        const uint32_t sub = n->class_id >> 8;
        const bool is_server = sub == 0x0302 || sub == 0x0380 || sub == 0x1200;
        hidden += n->kind == KOLO_NODE_GPU &&
                  ((is_server && n->arch == 0) || is_sxm(n) || is_linked_arch(n));
    }
    return hidden > 1;
}

int kolo_graph_next_child(const struct kolo_graph *graph, int parent, int after)
{
    for (int i = after + 1; i < graph->nnodes; i++) {
        if (graph->node[i].parent == parent) {
            return i;
        }
    }
    return -1;
}

int kolo_graph_find(const struct kolo_graph *graph, uint64_t bus, int kind)
{
    for (int i = 0; bus != KOLO_BUS_NONE && i < graph->nnodes; i++) {
        if (graph->node[i].bus == bus &&
            (kind < 0 || graph->node[i].kind == (enum kolo_node_kind)kind)) {
            return i;
        }
    }
    return -1;
}

int kolo_graph_numa(const struct kolo_graph *graph, int node)
{
    while (node >= 0 && graph->node[node].kind != KOLO_NODE_NUMA) {
        node = graph->node[node].parent;
    }
    return node;
}

int kolo_graph_nvswitch(struct kolo_graph *graph)
{
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].kind == KOLO_NODE_NVSWITCH) {
            return i;
        }
    }
    return kolo_graph_add(graph, KOLO_NODE_NVSWITCH, -1);
}

const char *kolo_node_kind_name(enum kolo_node_kind kind)
{
    static const char *const names[KOLO_NODE_KINDS] = {"numa",     "switch", "gpu",      "nic",
                                                       "nvswitch", "device", "interface"};
    return names[kind];
}

const char *kolo_link_kind_name(enum kolo_link_kind kind)
{
    static const char *const names[KOLO_LINK_KINDS] = {"PCI", "NVLink", "xgmi", "C2C", "SMP"};
    return names[kind];
}

/* Place in gpu[] or nic[]; -1 none. */
static int place_in(const int *list, int count, int node)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == node) {
            return i;
        }
    }
    return -1;
}

void kolo_node_label(const struct kolo_graph *graph, int node, struct kolo_text *out)
{
    const struct kolo_node *n = &graph->node[node];
    char bus[24];
    kolo_bus_print(n->bus, bus);
    if (n->kind == KOLO_NODE_GPU) {
        kolo_text_add(out, "GPU%d", place_in(graph->gpu, graph->ngpus, node));
    } else if (n->kind == KOLO_NODE_NIC && n->name != NULL) {
        kolo_text_add(out, "%s", n->name);
    } else if (n->kind == KOLO_NODE_NIC) {
        kolo_text_add(out, "NIC%d", place_in(graph->nic, graph->nnics, node));
    } else if (n->kind == KOLO_NODE_NUMA) {
        kolo_text_add(out, n->number >= 0 ? "NUMA node %d" : "NUMA node unknown", n->number);
    } else if (n->kind == KOLO_NODE_NVSWITCH) {
        kolo_text_add(out, n->count > 1 ? "NVSwitch (%d)" : "NVSwitch", n->count);
    } else {
        kolo_text_add(out, "%s",
                      n->kind == KOLO_NODE_SWITCH ? "switch"
                      : n->name != NULL           ? n->name
                                                  : kolo_node_kind_name(n->kind));
    }
    if (n->bus != KOLO_BUS_NONE) {
        kolo_text_add(out, " %s", bus);
    }
}
