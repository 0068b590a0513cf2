// SPDX-License-Identifier: Apache-2.0
/* `kolo topo --probe` tries peer-to-peer between every pair of GPUs with data. The plan then avoids
 * links that fail. */
#include "tools/topo/parts.h"

#include <stdlib.h>

struct probing {
    struct kolo_graph *graph;
    struct kolo_topo_probe *probe;
    kolo_status status;
};

/* A GPU's place in the planner's order; -1: the GPU is not in the graph. */
static int place_of(const struct kolo_graph *graph, const char *bus)
{
    uint64_t address = KOLO_BUS_NONE;
    const int node = bus[0] != '\0' && kolo_bus_parse(bus, &address)
                         ? kolo_graph_find(graph, address, KOLO_NODE_GPU)
                         : -1;
    for (int i = 0; i < graph->ngpus && node >= 0; i++) {
        if (graph->gpu[i] == node) {
            return i;
        }
    }
    return -1;
}

static void take_pair(void *arg, const struct kolo_probed *pair)
{
    struct probing *p = arg;
    struct kolo_topo_probe *probe = p->probe;
    const int a = place_of(p->graph, pair->bus[0]), b = place_of(p->graph, pair->bus[1]);
    struct kolo_topo_pair *grown = realloc(probe->pair, ((size_t)probe->count + 1) * sizeof *grown);
    if (grown == NULL) {
        p->status = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for what was tried");
        return;
    }
    probe->pair = grown;
    probe->pair[probe->count++] = (struct kolo_topo_pair){{a, b}, *pair};
    if (kolo_probed_fails(pair)) {
        kolo_graph_note(p->graph,
                        "P2P of GPU %d (%s) and GPU %d (%s) is claimed and does not work: %s; "
                        "planned without it",
                        pair->gpu[0], pair->bus[0], pair->gpu[1], pair->bus[1], pair->error);
    }
    if (kolo_probed_fails(pair) && a >= 0 && b >= 0) {
        kolo_graph_cut(p->graph, p->graph->gpu[a], p->graph->gpu[b]);
    }
}

kolo_status kolo_topo_probe(struct kolo_graph *graph, struct kolo_topo_probe *out)
{
    struct probing probing = {graph, out, KOLO_OK};
    *out = (struct kolo_topo_probe){0};
    if (!kolo_probe_pairs(take_pair, &probing)) {
        kolo_graph_note(graph, "P2P could not be tried: the CUDA driver does not answer");
    }
    return probing.status;
}

static const struct kolo_probed *find_pair(const struct kolo_topo_probe *probe, int a, int b)
{
    for (int i = 0; i < probe->count; i++) {
        const int *place = probe->pair[i].place;
        if ((place[0] == a && place[1] == b) || (place[0] == b && place[1] == a)) {
            return &probe->pair[i].tried;
        }
    }
    return NULL;
}

static const char *verdict_of(const struct kolo_probed *pair)
{
    return pair->status == KOLO_OK                ? "verified"
           : pair->status == KOLO_ERR_UNSUPPORTED ? "none"
           : pair->status == KOLO_ERR_SYSTEM      ? "untried"
                                                  : "fails";
}

static void print_row(const struct kolo_topo_probe *probe, int row, int ngpus,
                      struct kolo_text *out)
{
    kolo_text_add(out, "  GPU%-3d", row);
    for (int i = 0; i < ngpus; i++) {
        const struct kolo_probed *pair = find_pair(probe, row, i);
        if (pair == NULL || pair->status != KOLO_OK) {
            kolo_text_add(out, " %8s", pair != NULL ? verdict_of(pair) : row == i ? "." : "?");
        } else {
            kolo_text_add(out, " %8.3g", pair->gbs);
        }
    }
    kolo_text_add(out, "\n");
}

static void print_matrix(const struct kolo_topo_probe *probe, int ngpus, struct kolo_text *out)
{
    kolo_text_add(out, "        ");
    for (int i = 0; i < ngpus; i++) {
        kolo_text_add(out, "  %sGPU%d", i < 10 ? "  " : i < 100 ? " " : "", i);
    }
    kolo_text_add(out, "\n");
    for (int i = 0; i < ngpus; i++) {
        print_row(probe, i, ngpus, out);
    }
}

void kolo_topo_probe_print(const struct kolo_graph *graph, const struct kolo_topo_probe *probe,
                           struct kolo_text *out)
{
    if (probe->count == 0) {
        kolo_text_add(out, "\nP2P: there is no pair of GPUs to try\n");
        return;
    }
    kolo_text_add(out, "\nP2P as tried with data, GB/s of the slowest way; none: not claimed\n");
    if (graph->ngpus > 0) {
        print_matrix(probe, graph->ngpus, out);
    }
    for (int i = 0; i < probe->count; i++) { /* GPUs that only the driver knows */
        const struct kolo_topo_pair *pair = &probe->pair[i];
        if (pair->place[0] < 0 || pair->place[1] < 0) {
            kolo_text_add(out, "  %s and %s: %s\n", pair->tried.bus[0], pair->tried.bus[1],
                          verdict_of(&pair->tried));
        }
    }
}

void kolo_topo_probe_json(const struct kolo_topo_probe *probe, struct kolo_text *out)
{
    kolo_text_add(out, "[");
    for (int i = 0; i < probe->count; i++) {
        const struct kolo_probed *pair = &probe->pair[i].tried;
        kolo_text_add(out, "%s\n  {\"a\": \"%s\", \"b\": \"%s\", \"p2p\": \"%s\", \"gbs\": %.6g}",
                      i > 0 ? "," : "", pair->bus[0], pair->bus[1], verdict_of(pair), pair->gbs);
    }
    kolo_text_add(out, "]");
}
