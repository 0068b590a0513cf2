// SPDX-License-Identifier: Apache-2.0
/* This machine, or the machine of KOLO_TOPO_FILE. Only this file uses both discovery (hwloc, sysfs
 * and NVML of machine/) and the file readers (formats/). */
#include "topology/source.h"

#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/machine/nvml.h"
#include "topology/machine/sysfs.h"

#include <stdlib.h>

/* ---- a host ---- */

kolo_status kolo_host_load(const char *path, struct kolo_host **out)
{
    char *bytes = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_file_read(path, &bytes, &len));
    const kolo_status st = kolo_host_read(path, bytes, len, out);
    free(bytes);
    return st;
}

kolo_status kolo_host_discover(struct kolo_host **out)
{
    const char *file = kolo_env("KOLO_TOPO_FILE");
    return file != NULL && kolo_file_is_hwloc(file) ? kolo_host_load(file, out)
                                                    : kolo_host_hold(out);
}

/* ---- a graph ---- */

static kolo_status discover_live(struct kolo_graph **out)
{
    struct kolo_host *host = NULL;
    struct kolo_graph *graph = NULL;
    const char *why = NULL;
    KOLO_TRY(kolo_host_live(true, &host));
    kolo_status st = kolo_graph_of_host(host, &graph);
    kolo_host_destroy(host);
    KOLO_TRY(st);
    st = kolo_sysfs_add_rdma(graph);
    const struct kolo_nvml *nvml = kolo_nvml_open(&why);
    if (nvml != NULL) {
        st = st == KOLO_OK ? kolo_nvml_add(nvml, graph) : st;
    } else if (graph->ngpus > 0) {
        kolo_graph_note(graph, "this machine has GPUs, but their links are unknown: %s", why);
    }
    kolo_sysfs_refine(graph); /* also the links of GPUs that only NVML sees */
    return kolo_graph_end(graph, st, out);
}

/* Number of devices with the same address in both graphs. */
static int count_shared(const struct kolo_graph *a, const struct kolo_graph *b)
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
    if (discover_live(&live) < 0 || count_shared(live, hint) == 0) {
        kolo_graph_destroy(live);
        *out = hint; /* the file describes another machine, or is the only source */
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
