// SPDX-License-Identifier: Apache-2.0
/* Drawings of a layout in one line, as a tree of text and as SVG; a host and a graph as text. */
#ifndef KOLO_TOPOLOGY_DRAW_DRAW_H
#define KOLO_TOPOLOGY_DRAW_DRAW_H

#include "topology/layout/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The layout that a drawing shows. host_of NULL: one host; place NULL: no place is known. */
struct kolo_layout {
    int nranks;
    const int *order;
    const int *host_of;
    const struct kolo_place *place;
};

/* One line: "(0 1) (2 3) | (4 5) || (6 7)"; parentheses share an L3, | parts packages, || hosts. */
void kolo_draw_ring(const struct kolo_layout *layout, struct kolo_text *out);
/* A tree, one rank a line, the root first. */
void kolo_draw_tree(const struct kolo_layout *layout, int which, struct kolo_text *out);
/* One SVG document: the ring above, both trees below. */
void kolo_draw_svg(const struct kolo_layout *layout, struct kolo_text *out);

/* ---- machines (host_print.c, print_graph.c) ---- */

/* The host as text. The first line is a summary and serves alone as a log line. Packages, NUMA
 * nodes, caches and the PUs of this process follow. */
void kolo_host_print(const struct kolo_host *host, struct kolo_text *out);

/* The properties of a host that decide which algorithm is fast, in one line: packages, cores, PUs,
 * L3s, NUMA nodes and model. Before them stand 16 hexadecimal digits, the hash of these words. */
void kolo_host_fingerprint(const struct kolo_host *host, struct kolo_text *out);

struct kolo_graph;
/* The graph as text: its PCI tree with capacities. */
void kolo_graph_print(const struct kolo_graph *graph, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif
