// SPDX-License-Identifier: Apache-2.0
/* A graph as text that programs read: kolo's own dump, NCCL's topology XML and JSON. Also the
 * merge of two graphs, which fills one with the values of another. */
#ifndef KOLO_TOPOLOGY_FORMATS_WRITE_H
#define KOLO_TOPOLOGY_FORMATS_WRITE_H

#include "topology/machine/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kolo's own dump. It is complete: reading it gives an equal graph (own.c). */
void kolo_graph_write(const struct kolo_graph *graph, struct kolo_text *out);
/* A file for NCCL_TOPO_FILE, or of RCCL. Values that the graph does not know are left out: NCCL then
 * asks the machine. Errors: UNSUPPORTED (GPUs or NICs without an address that NCCL can read). */
KOLO_CHECK kolo_status kolo_graph_write_nccl(const struct kolo_graph *graph, struct kolo_text *out);
/* One JSON object with nodes, links and notes. */
void kolo_graph_write_json(const struct kolo_graph *graph, struct kolo_text *out);

/* Add the values of `hint` to `base`, joined by bus address (merge.c). Unknown nodes are added,
 * unknown values of known nodes are filled in, and NVLinks are kept from the graph that has them. If
 * one of the two has no addresses, GPUs are joined by their order and NICs by name, and the PCI tree
 * is that of the other. Errors: INVALID (no addresses, and not as many GPUs), SYSTEM. */
KOLO_CHECK kolo_status kolo_graph_merge(struct kolo_graph *base, const struct kolo_graph *hint);

#ifdef __cplusplus
}
#endif
#endif
