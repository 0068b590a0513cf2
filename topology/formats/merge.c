// SPDX-License-Identifier: Apache-2.0
/* Merges two descriptions of one machine, matched by bus address. A topology file (the hint) places
 * GPUs on switches that discovery (the base) cannot see in a virtual machine, but has no NVLinks.
 * Discovery finds the NVLinks but not the switches. So:
 * - The place in the PCI tree is the hint's, if the hint has one.
 * - Unknown values of a node come from the hint.
 * - Links between GPUs are the base's, if it has any, else the hint's. */
#include "topology/formats/write.h"
#include "topology/machine/graph.h"

#include <stdlib.h>
#include <string.h>

struct merging {
    struct kolo_graph *base;
    const struct kolo_graph *hint;
    int *twin; /* [nodes of the hint] the same node in the base */
};

/* The base's node for a node of the hint; -1: none. */
static int find_twin(const struct merging *m, int node)
{
    const struct kolo_node *n = &m->hint->node[node];
    for (int i = 0; i < m->base->nnodes; i++) {
        const struct kolo_node *b = &m->base->node[i];
        const bool same_bus = n->bus != KOLO_BUS_NONE && b->bus == n->bus;
        const bool same_numa =
            n->kind == KOLO_NODE_NUMA && b->kind == n->kind && b->number == n->number;
        if (same_bus || same_numa ||
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
        twin = twin >= 0 ? twin : kolo_graph_add(m->base, h->kind, -1);
        if (twin < 0) {
            return kolo_graph_full(m->base);
        }
        m->base->node[twin].bus = h->bus;
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

kolo_status kolo_graph_merge(struct kolo_graph *base, const struct kolo_graph *hint)
{
    struct merging m = {.base = base, .hint = hint};
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
