// SPDX-License-Identifier: Apache-2.0
/* Parts of `kolo topo`. */
#ifndef KOLO_TOOLS_TOPO_PARTS_H
#define KOLO_TOOLS_TOPO_PARTS_H

#include "tools/topo/peers.h"
#include "topology/machine/graph.h"
#include "topology/machine/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Add the machine's CPUs and the layout of ranks on them to `text`, and a drawing of the layout to
 * `svg`; either may be NULL. ranks 0: one a PU. False: no memory, reported on stderr. */
bool kolo_topo_cpus(const struct kolo_host *host, int ranks, struct kolo_text *text,
                    struct kolo_text *svg);

/* Add the differences of machine `b` from `a`, one a line. Returns their number. Devices are
 * matched by bus address, NUMA nodes by number. */
int kolo_topo_diff(const struct kolo_graph *a, const struct kolo_graph *b, struct kolo_text *out);

/* A file of NCCL's graphs, shown. */
struct kolo_topo_graphs {
    const char *file, *svg; /* svg NULL: no picture; "-": standard output, instead of the text */
    const char *refused;    /* an option that needs a machine; NULL: none was given */
    const char *form;       /* "", "json" or "xml" */
};
/* Show a file of NCCL's graphs. Returns the exit status; -1: the file is no such file. */
int kolo_topo_graphs(const struct kolo_topo_graphs *show);

struct kolo_topo_pair {
    int place[2]; /* in the graph's order of GPUs; -1: not in the graph */
    struct kolo_probed tried;
};
struct kolo_topo_probe {
    struct kolo_topo_pair *pair; /* the caller frees it */
    int count;
};
/* Try peer-to-peer between all GPUs of this machine. Links of pairs that fail are removed from the
 * graph, with a note. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_topo_probe(struct kolo_graph *graph, struct kolo_topo_probe *out);
/* Print the results as a matrix, or as a JSON array. */
void kolo_topo_probe_print(const struct kolo_graph *graph, const struct kolo_topo_probe *probe,
                           struct kolo_text *out);
void kolo_topo_probe_json(const struct kolo_topo_probe *probe, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif
