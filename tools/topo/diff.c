// SPDX-License-Identifier: Apache-2.0
/* `kolo topo --diff A B`: parts that are gone (-), new (+) or changed (~). */
#include "tools/topo/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct diff {
    const struct kolo_graph *a, *b;
    int *twin; /* [nodes of a] the same node in b; -1 none */
    struct kolo_text *out;
    int count;
};

static bool same_thing(const struct kolo_node *a, const struct kolo_node *b)
{
    if (a->kind != b->kind || a->bus != b->bus) {
        return false;
    }
    if (a->bus != KOLO_BUS_NONE && a->kind != KOLO_NODE_NIC) {
        return true;
    }
    const bool same_name = a->name == NULL || b->name == NULL || strcmp(a->name, b->name) == 0;
    return a->number == b->number && (a->kind == KOLO_NODE_NUMA || same_name);
}

/* A node of b is the twin of at most one node of a, because a file may repeat an address. */
static void find_twins(struct diff *d, unsigned char *taken)
{
    for (int i = 0; i < d->a->nnodes; i++) {
        d->twin[i] = -1;
        for (int j = 0; j < d->b->nnodes && d->twin[i] < 0; j++) {
            if (taken[j] == 0 && same_thing(&d->a->node[i], &d->b->node[j])) {
                d->twin[i] = j;
                taken[j] = 1;
            }
        }
    }
}

static void print_node(struct diff *d, char sign, const struct kolo_graph *g, int node)
{
    d->count++;
    kolo_text_add(d->out, "%c %s ", sign, kolo_node_kind_name(g->node[node].kind));
    kolo_node_label(g, node, d->out);
}

static const struct kolo_graph_edge *find_uplink(const struct kolo_graph *g, int node)
{
    const int parent = g->node[node].parent;
    return parent >= 0 ? kolo_graph_link(g, node, parent, KOLO_LINK_PCI) : NULL;
}

static bool rates_differ(double x, double y)
{
    return fabs(x - y) > 0.01 * fmax(x, y);
}

static void compare_node(struct diff *d, int i)
{
    const int j = d->twin[i];
    const struct kolo_graph_edge *up = find_uplink(d->a, i), *other = find_uplink(d->b, j);
    const int parent = d->a->node[i].parent, other_parent = d->b->node[j].parent;
    if (up != NULL && other != NULL && rates_differ(up->gbs, other->gbs)) {
        print_node(d, '~', d->a, i);
        kolo_text_add(d->out, ": PCI %.4g GB/s, now %.4g\n", up->gbs, other->gbs);
    }
    if (rates_differ(d->a->node[i].gbs, d->b->node[j].gbs)) {
        print_node(d, '~', d->a, i);
        kolo_text_add(d->out, ": port %.4g GB/s, now %.4g\n", d->a->node[i].gbs, d->b->node[j].gbs);
    }
    if (parent >= 0 && other_parent >= 0 && d->twin[parent] != other_parent) {
        print_node(d, '~', d->a, i);
        kolo_text_add(d->out, ": hangs on ");
        kolo_node_label(d->a, parent, d->out);
        kolo_text_add(d->out, ", now on ");
        kolo_node_label(d->b, other_parent, d->out);
        kolo_text_add(d->out, "\n");
    }
}

static void say_link(struct diff *d, char sign, const struct kolo_graph *g,
                     const struct kolo_graph_edge *l)
{
    d->count++;
    kolo_text_add(d->out, "%c %s ", sign, kolo_link_kind_name(l->kind));
    kolo_node_label(g, l->a, d->out);
    kolo_text_add(d->out, " - ");
    kolo_node_label(g, l->b, d->out);
}

static void compare_links(struct diff *d)
{
    for (int i = 0; i < d->a->nlinks; i++) {
        const struct kolo_graph_edge *l = &d->a->link[i];
        const int a = d->twin[l->a], b = d->twin[l->b];
        if (l->kind == KOLO_LINK_PCI || a < 0 || b < 0) {
            continue;
        }
        const struct kolo_graph_edge *other = kolo_graph_link(d->b, a, b, (int)l->kind);
        if (other == NULL) {
            say_link(d, '-', d->a, l);
            kolo_text_add(d->out, ", %d x %.4g GB/s\n", l->count, l->gbs / l->count);
        } else if (other->count != l->count || rates_differ(other->gbs, l->gbs)) {
            say_link(d, '~', d->a, l);
            kolo_text_add(d->out, ": %d x %.4g GB/s, now %d x %.4g\n", l->count, l->gbs / l->count,
                          other->count, other->gbs / other->count);
        }
    }
}

/* Find links between twins that b has and a lacks. */
static void find_new_links(struct diff *d, const int *back)
{
    for (int i = 0; i < d->b->nlinks; i++) {
        const struct kolo_graph_edge *l = &d->b->link[i];
        const int a = back[l->a], b = back[l->b];
        if (l->kind != KOLO_LINK_PCI && a >= 0 && b >= 0 &&
            kolo_graph_link(d->a, a, b, (int)l->kind) == NULL) {
            say_link(d, '+', d->b, l);
            kolo_text_add(d->out, ", %d x %.4g GB/s\n", l->count, l->gbs / l->count);
        }
    }
}

static void match_nodes(struct diff *d, int *back, unsigned char *taken)
{
    find_twins(d, taken);
    for (int j = 0; j < d->b->nnodes; j++) {
        back[j] = -1;
    }
    for (int i = 0; i < d->a->nnodes; i++) {
        if (d->twin[i] >= 0) {
            back[d->twin[i]] = i;
        } else {
            print_node(d, '-', d->a, i);
            kolo_text_add(d->out, "\n");
        }
    }
    for (int j = 0; j < d->b->nnodes; j++) {
        if (back[j] < 0) {
            print_node(d, '+', d->b, j);
            kolo_text_add(d->out, "\n");
        }
    }
    for (int i = 0; i < d->a->nnodes; i++) {
        if (d->twin[i] >= 0) {
            compare_node(d, i);
        }
    }
    compare_links(d);
    find_new_links(d, back);
}

int kolo_topo_diff(const struct kolo_graph *a, const struct kolo_graph *b, struct kolo_text *out)
{
    struct diff d = {.a = a, .b = b, .out = out};
    d.twin = calloc((size_t)a->nnodes + 1, sizeof *d.twin);
    int *back = calloc((size_t)b->nnodes + 1, sizeof *back);
    unsigned char *taken = calloc((size_t)b->nnodes + 1, 1);
    if (d.twin != NULL && back != NULL && taken != NULL) {
        match_nodes(&d, back, taken);
    } else {
        d.count = -1;
    }
    free(d.twin);
    free(back);
    free(taken);
    return d.count;
}
