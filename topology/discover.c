// SPDX-License-Identifier: Apache-2.0
/* This machine: hwloc, sysfs and NVML joined, and what a topology file adds: see graph.h. */
#include "topology/machine/host.h"
#include "topology/machine/nvml.h"
#include "topology/machine/sysfs.h"

static kolo_status discover_live(struct kolo_graph **out)
{
    struct kolo_host *host = NULL;
    struct kolo_graph *graph = NULL;
    const char *why = NULL;
    KOLO_TRY(kolo_host_open(NULL, true, &host));
    kolo_status st = kolo_graph_of_host(host, &graph);
    kolo_host_destroy(host);
    KOLO_TRY(st);
    st = kolo_sysfs_add_rdma(graph);
    kolo_sysfs_refine(graph);
    const struct kolo_nvml *nvml = kolo_nvml_open(&why);
    if (nvml != NULL) {
        st = st == KOLO_OK ? kolo_nvml_add(nvml, graph) : st;
    } else if (graph->ngpus > 0) {
        kolo_graph_note(graph, "GPUs are there, but their links are unknown: %s", why);
    }
    return kolo_graph_end(graph, st, out);
}

/* Devices of both with the same address. */
static int shared(const struct kolo_graph *a, const struct kolo_graph *b)
{
    int count = 0;
    for (int i = 0; i < a->nnodes; i++) {
        count += kolo_graph_find(b, a->node[i].bus, -1) >= 0;
    }
    return count;
}

kolo_status kolo_graph_discover(struct kolo_graph **out)
{
    const char *file = kolo_env("KOLO_TOPO_FILE");
    struct kolo_graph *live = NULL, *hint = NULL;
    if (file == NULL) {
        return discover_live(out);
    }
    KOLO_TRY(kolo_graph_load(file, &hint));
    if (discover_live(&live) < 0 || shared(live, hint) == 0) {
        kolo_graph_destroy(live);
        *out = hint; /* another machine, or all that is known */
        return KOLO_OK;
    }
    const kolo_status st = kolo_graph_merge(live, hint);
    kolo_graph_destroy(hint);
    if (st < 0) {
        kolo_graph_destroy(live);
        return st;
    }
    *out = live;
    return KOLO_OK;
}
