// SPDX-License-Identifier: Apache-2.0
/* NCCL's graph XML (NCCL_GRAPH_DUMP_FILE). For each pattern it has the channels of one host: the
 * GPUs in order, between the NICs where the ring enters and leaves:
 *
 *   <graphs version="1"><graph id="0" pattern="4" nchannels="2" speedintra="20" ...>
 *     <channel><net dev="0"/><gpu dev="0" rank="0"/>...<net dev="0"/></channel>
 *
 * Pattern 4 is rings. Patterns 1 to 3 are trees: their GPUs are a chain that begins at the NIC. Of
 * several graphs of trees the first counts, because the others are for CollNet.
 * Form: NCCL 2.30 src/graph/search.cc. */
#include "topology/formats/graphs.h"
#include "topology/formats/xml.h"

#include <stdlib.h>
#include <string.h>

enum { RING = 4, CHAIN_MAX = 4096 };

struct graphs_reading {
    struct kolo_job *job;
    int pattern, rings, trees;
    int graph, tree_graph; /* places in the file; tree_graph 0: no trees so far */
    int rank[CHAIN_MAX], count;
};

static kolo_status fail_full(const struct kolo_xml_element *e)
{
    return kolo_xml_fail(e, "describes more than a file of its size can");
}

static kolo_status add_gpu(struct graphs_reading *r, const struct kolo_xml_element *e)
{
    int rank = -1, dev = -1;
    KOLO_TRY(kolo_xml_int(e, "rank", -1, 1 << 24, -1, &rank));
    KOLO_TRY(kolo_xml_int(e, "dev", -1, 1 << 24, -1, &dev));
    if (r->count == CHAIN_MAX || (rank < 0 && dev < 0)) {
        return kolo_xml_fail(e, "a channel has 1 to %d GPUs, with rank or dev", CHAIN_MAX);
    }
    r->rank[r->count++] = rank >= 0 ? rank : dev;
    return KOLO_OK;
}

static kolo_status start_element(void *context, const struct kolo_xml_element *e)
{
    struct graphs_reading *r = context;
    if (e->depth == 0 && strcmp(e->name, "graphs") != 0) {
        return kolo_xml_fail(e, "the root of NCCL's graph XML is <graphs>");
    }
    if (strcmp(e->name, "graph") == 0) {
        r->graph++;
        return kolo_xml_int(e, "pattern", 0, 100, 0, &r->pattern);
    }
    if (strcmp(e->name, "channel") == 0) {
        r->count = 0;
    }
    return strcmp(e->name, "gpu") == 0 ? add_gpu(r, e) : KOLO_OK;
}

static bool add_chain(struct graphs_reading *r)
{
    for (int i = 0; i < r->count; i++) {
        const struct kolo_job_branch branch = {r->trees,
                                               r->rank[i],
                                               i > 0 ? r->rank[i - 1] : -1,
                                               {i + 1 < r->count ? r->rank[i + 1] : -1, -1, -1}};
        if (!kolo_job_add_branch(r->job, &branch)) {
            return false;
        }
    }
    r->trees++;
    return true;
}

static kolo_status end_element(void *context, const struct kolo_xml_element *e)
{
    struct graphs_reading *r = context;
    if (strcmp(e->name, "channel") != 0 || r->count == 0) {
        return KOLO_OK;
    }
    for (int i = 0; i < r->count; i++) {
        r->job->nranks = r->rank[i] >= r->job->nranks ? r->rank[i] + 1 : r->job->nranks;
    }
    if (r->pattern == RING) {
        return kolo_job_add_ring(r->job, r->rings++, r->rank, r->count) ? KOLO_OK : fail_full(e);
    }
    if (r->pattern > RING || (r->tree_graph != 0 && r->tree_graph != r->graph)) {
        return KOLO_OK;
    }
    r->tree_graph = r->graph;
    return add_chain(r) ? KOLO_OK : fail_full(e);
}

kolo_status kolo_graphs_read(const char *path, const char *bytes, size_t len, struct kolo_job *out)
{
    struct kolo_job job = {.limit = kolo_xml_limit(len)};
    struct graphs_reading *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", path);
    }
    r->job = &job;
    const struct kolo_xml_source source = {path, bytes, len};
    const kolo_status st = kolo_xml_read(
        &source,
        &(struct kolo_xml_reader){.start = start_element, .end = end_element, .context = r});
    job.nchannels = r->rings > r->trees ? r->rings : r->trees;
    free(r);
    if (st < 0) {
        kolo_job_free(&job);
        return st;
    }
    kolo_job_sort(&job);
    *out = job;
    return KOLO_OK;
}
