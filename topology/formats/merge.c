// SPDX-License-Identifier: Apache-2.0
/* Merges two descriptions of one machine, matched by bus address. A topology file (the hint) places
 * GPUs on switches that discovery (the base) cannot see in a virtual machine, but has no NVLinks.
 * Discovery finds the NVLinks but not the switches. So:
 * - The place in the PCI tree is the hint's, if the hint has one.
 * - Unknown values of a node come from the hint.
 * - Links between GPUs are the base's, if it has any, else the hint's.
 *
 * nvidia-smi's matrix has no addresses. Its GPUs are matched by their order, NICs by name and NUMA
 * nodes by number. It then adds values and links between GPUs, and the PCI tree stays that of the
 * machine with addresses. */
#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/machine/graph.h"

#include <stdlib.h>
#include <string.h>

struct merging {
    struct kolo_graph *base;
    const struct kolo_graph *hint;
    int *twin;     /* [nodes of the hint] the same node in the base; -1 none */
    bool by_order; /* one of the two has no addresses */
};

/* Whether all GPUs have addresses. A machine without GPUs has nothing that needs them. */
static bool has_addresses(const struct kolo_graph *g)
{
    for (int i = 0; i < g->nnodes; i++) {
        if (g->node[i].kind == KOLO_NODE_GPU && g->node[i].bus == KOLO_BUS_NONE) {
            return false;
        }
    }
    return true;
}

/* The base's node for a node of the hint, without an address: the GPU at the same place in the
 * order, the NIC of the same name; -1: none. */
static int find_by_order(const struct merging *m, int node)
{
    const struct kolo_node *n = &m->hint->node[node];
    for (int i = 0; i < m->hint->ngpus && n->kind == KOLO_NODE_GPU; i++) {
        if (m->hint->gpu[i] == node) {
            return m->base->gpu[i];
        }
    }
    for (int i = 0; i < m->base->nnics && n->kind == KOLO_NODE_NIC && n->name != NULL; i++) {
        const char *name = m->base->node[m->base->nic[i]].name;
        if (name != NULL && strcmp(name, n->name) == 0) {
            return m->base->nic[i];
        }
    }
    return -1;
}

/* The base's node for a node of the hint; -1: none. */
static int find_twin(const struct merging *m, int node)
{
    const struct kolo_node *n = &m->hint->node[node];
    if (m->by_order && n->kind != KOLO_NODE_NUMA && n->kind != KOLO_NODE_NVSWITCH) {
        return find_by_order(m, node);
    }
    for (int i = 0; i < m->base->nnodes; i++) {
        const struct kolo_node *b = &m->base->node[i];
        const bool same_bus = n->bus != KOLO_BUS_NONE && b->bus == n->bus;
        const bool same_numa =
            n->kind == KOLO_NODE_NUMA && b->kind == n->kind && b->number == n->number;
        const bool same_interface = n->kind == KOLO_NODE_INTERFACE && b->kind == n->kind &&
                                    n->name != NULL && b->name != NULL &&
                                    strcmp(n->name, b->name) == 0;
        if (same_bus || same_numa || same_interface ||
            (n->kind == KOLO_NODE_NVSWITCH && b->kind == KOLO_NODE_NVSWITCH)) {
            return i;
        }
    }
    return -1;
}

static bool fill_in(struct kolo_graph *base, int node, const struct kolo_node *hint)
{
    struct kolo_node *n = &base->node[node];
    n->kind = n->kind == KOLO_NODE_DEVICE ? hint->kind : n->kind;
    n->number = n->number < 0 ? hint->number : n->number;
    n->arch = n->arch == 0 ? hint->arch : n->arch;
    n->gdr = n->gdr < 0 ? hint->gdr : n->gdr;
    n->rdma = n->rdma < 0 ? hint->rdma : n->rdma;
    n->port = n->port == 0 ? hint->port : n->port;
    n->ports = n->ports == 0 ? hint->ports : n->ports;
    n->gbs = n->gbs <= 0 ? hint->gbs : n->gbs;
    n->guid = n->guid == 0 ? hint->guid : n->guid;
    n->class_id = n->class_id == 0 ? hint->class_id : n->class_id;
    n->vendor = n->vendor == 0 ? hint->vendor : n->vendor;
    n->device = n->device == 0 ? hint->device : n->device;
    return (n->name != NULL || kolo_graph_text(base, &n->name, hint->name)) &&
           (n->cpus != NULL || kolo_graph_text(base, &n->cpus, hint->cpus)) &&
           (n->arch_text != NULL || kolo_graph_text(base, &n->arch_text, hint->arch_text));
}

static kolo_status merge_nodes(struct merging *m)
{
    for (int i = 0; i < m->hint->nnodes; i++) {
        const struct kolo_node *h = &m->hint->node[i];
        int twin = find_twin(m, i);
        m->twin[i] = -1;
        if (twin < 0 && m->by_order && h->kind != KOLO_NODE_NVSWITCH) {
            continue; /* a switch or a NUMA node that nothing identifies */
        }
        twin = twin >= 0 ? twin : kolo_graph_add(m->base, h->kind, -1);
        if (twin < 0) {
            return kolo_graph_full(m->base);
        }
        m->base->node[twin].bus = h->bus != KOLO_BUS_NONE ? h->bus : m->base->node[twin].bus;
        if (!fill_in(m->base, twin, h)) {
            return kolo_graph_full(m->base);
        }
        m->twin[i] = twin;
    }
    return KOLO_OK;
}

static bool is_fast(const struct kolo_graph_edge *link)
{
    return link->kind == KOLO_LINK_NVLINK || link->kind == KOLO_LINK_XGMI ||
           link->kind == KOLO_LINK_C2C;
}

static void drop_uplink(struct kolo_graph *g, int node)
{
    int kept = 0;
    for (int i = 0; i < g->nlinks; i++) {
        const struct kolo_graph_edge *l = &g->link[i];
        const bool up = l->kind == KOLO_LINK_PCI && g->node[node].parent >= 0 &&
                        ((l->a == node && l->b == g->node[node].parent) ||
                         (l->b == node && l->a == g->node[node].parent));
        if (!up) {
            g->link[kept++] = *l;
        }
    }
    g->nlinks = kept;
}

static bool is_below(const struct kolo_graph *g, int node, int above)
{
    while (node >= 0 && node != above) {
        node = g->node[node].parent;
    }
    return node == above;
}

static kolo_status merge_links(struct merging *m)
{
    bool fast = false;
    for (int i = 0; i < m->base->nlinks; i++) {
        fast = fast || is_fast(&m->base->link[i]);
    }
    for (int i = 0; i < m->hint->nlinks; i++) {
        struct kolo_graph_edge link = m->hint->link[i];
        const bool a_is_child = m->hint->node[link.a].parent == link.b;
        const int child = m->twin[a_is_child ? link.a : link.b];
        const int parent = m->twin[a_is_child ? link.b : link.a];
        if (child < 0 || parent < 0 || (m->by_order && link.kind == KOLO_LINK_PCI)) {
            continue;
        }
        link.a = m->twin[link.a];
        link.b = m->twin[link.b];
        if (link.kind == KOLO_LINK_PCI) {
            if (is_below(m->base, parent, child)) {
                continue; /* base and hint disagree on the order of these nodes */
            }
            drop_uplink(m->base, child);
            m->base->node[child].parent = parent;
        } else if ((is_fast(&link) && fast) ||
                   (link.kind == KOLO_LINK_SMP &&
                    kolo_graph_link(m->base, link.a, link.b, KOLO_LINK_SMP) != NULL)) {
            continue;
        }
        const int arch = m->base->node[link.a].arch;
        if (link.kind == KOLO_LINK_NVLINK && link.assumed && arch > 0) {
            link.gbs = link.count * kolo_nvlink_gbs(arch); /* the other file tells the generation */
        }
        if (!kolo_graph_join(m->base, &link)) {
            return kolo_graph_full(m->base);
        }
    }
    return KOLO_OK;
}

/* Sort nodes so that each comes after its parent, as in every graph that was read. A dump of the
 * graph relies on that order when it is read again. */
static kolo_status sort_nodes(struct kolo_graph *g)
{
    const size_t n = (size_t)g->nnodes;
    int *place = malloc((n + 1) * sizeof *place);
    struct kolo_node *node = malloc((n + 1) * sizeof *node);
    if (place == NULL || node == NULL) {
        free(place);
        free(node);
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", g->source);
    }
    for (size_t i = 0; i < n; i++) {
        place[i] = -1;
    }
    for (int placed = 0; placed < g->nnodes;) {
        for (int i = 0; i < g->nnodes; i++) {
            const int parent = g->node[i].parent;
            if (place[i] < 0 && (parent < 0 || place[parent] >= 0)) {
                node[placed] = g->node[i];
                node[placed].parent = parent < 0 ? parent : place[parent];
                place[i] = placed++;
            }
        }
    }
    if (n > 0) {
        memcpy(g->node, node, n * sizeof *node);
    }
    for (int i = 0; i < g->nlinks; i++) {
        g->link[i].a = place[g->link[i].a];
        g->link[i].b = place[g->link[i].b];
    }
    free(place);
    free(node);
    return KOLO_OK;
}

static kolo_status merge_into(struct kolo_graph *base, const struct kolo_graph *hint, bool by_order)
{
    struct merging m = {.base = base, .hint = hint, .by_order = by_order};
    m.twin = calloc((size_t)hint->nnodes + 1, sizeof *m.twin);
    if (m.twin == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", base->source);
    }
    kolo_status st = merge_nodes(&m);
    if (st == KOLO_OK) {
        st = merge_links(&m);
    }
    free(m.twin);
    if (st == KOLO_OK) {
        st = sort_nodes(base);
    }
    return st == KOLO_OK ? kolo_graph_finish(base) : st;
}

/* A machine without addresses gets the tree of the one that has them: the two are exchanged. */
static kolo_status merge_by_order(struct kolo_graph *base, const struct kolo_graph *hint)
{
    struct kolo_graph *copy = NULL;
    struct kolo_text dump = {0};
    kolo_graph_write(hint, &dump);
    kolo_status st = dump.chars != NULL
                         ? kolo_graph_read(hint->source, dump.chars, dump.len, &copy)
                         : kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", base->source);
    kolo_text_free(&dump);
    if (st == KOLO_OK) {
        copy->format = hint->format;
        copy->limit = 0;
        const struct kolo_graph tree = *copy;
        *copy = *base;
        *base = tree;
        st = merge_into(base, copy, true);
        kolo_graph_destroy(copy);
    }
    return st;
}

kolo_status kolo_graph_merge(struct kolo_graph *base, const struct kolo_graph *hint)
{
    const bool by_order = !has_addresses(base) || !has_addresses(hint);
    if (by_order && base->ngpus != hint->ngpus && base->ngpus > 0 && hint->ngpus > 0) {
        const struct kolo_graph *without = has_addresses(hint) ? base : hint;
        return kolo_fail(
            KOLO_ERR_INVALID,
            "%s cannot be merged with %s: %s has no PCI addresses, and %d GPUs instead "
            "of %d",
            base->source, hint->source, without->source, without->ngpus,
            without == base ? hint->ngpus : base->ngpus);
    }
    if (by_order && (base->ngpus == 0 || hint->ngpus == 0)) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "%s cannot be merged with %s: one of them has no PCI addresses, and one "
                         "has no GPUs",
                         base->source, hint->source);
    }
    base->limit = 0; /* it was for the size of one file */
    if (by_order && !has_addresses(base) && has_addresses(hint)) {
        KOLO_TRY(merge_by_order(base, hint));
    } else {
        KOLO_TRY(merge_into(base, hint, by_order));
    }
    if (by_order) {
        kolo_graph_note(base, "the GPUs are matched by their order, not by PCI address");
    }
    return KOLO_OK;
}
