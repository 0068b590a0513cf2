// SPDX-License-Identifier: Apache-2.0
// covers: topology/formats topology/machine
/* Files of machines: XML of hwloc, topology XML of NCCL and RCCL, our dump, nvidia-smi's matrix.
 * What is read is planned, drawn and written in every form, and reads again. */
#include "target.h"
#include "topology/draw/draw.h"
#include "topology/draw/picture.h"
#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/layout/wiring.h"
#include "topology/machine/parts.h"

#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 24, NODES_MAX = 400 };

static void plan(const struct kolo_graph *graph, int hosts)
{
    struct kolo_wiring wiring;
    struct kolo_job job;
    struct kolo_text text = {0};
    if (graph->ngpus > GPUS_MAX || kolo_wiring_make(graph, hosts, &wiring) < 0) {
        return;
    }
    if (kolo_wiring_gbs(&wiring) > wiring.bound_gbs * 1.001 && wiring.ngpus > 1) {
        abort(); /* more than there can be */
    }
    kolo_wiring_print(&wiring, &text);
    if (kolo_wiring_job(&wiring, &job) == KOLO_OK) {
        kolo_wiring_json(&wiring, &job, &text);
        kolo_picture_job(&job, graph, &text);
        kolo_job_free(&job);
    }
    kolo_text_free(&text);
    kolo_wiring_free(&wiring);
}

static void read_again(const struct kolo_graph *graph)
{
    struct kolo_graph *again = NULL;
    struct kolo_text text = {0};
    kolo_graph_write(graph, &text);
    if (text.chars == NULL || kolo_graph_read("dump", text.chars, text.len, &again) < 0 ||
        kolo_graph_hash(again) != kolo_graph_hash(graph)) {
        abort();
    }
    kolo_graph_destroy(again);
    kolo_text_free(&text);
    (void)!kolo_graph_write_nccl(graph, &text);
    kolo_graph_write_json(graph, &text);
    kolo_graph_print(graph, &text);
    kolo_picture_machine(graph, &text);
    kolo_text_free(&text);
}

/* The processors of hwloc's XML. */
static void ask_host(const char *text, size_t size)
{
    struct kolo_host *host = NULL;
    struct kolo_text out = {0};
    if (kolo_host_read("machine", text, size, &host) < 0) {
        return;
    }
    if (host->bytes > host->limit) {
        abort();
    }
    kolo_host_print(host, &out);
    kolo_host_fingerprint(host, &out);
    kolo_text_free(&out);
    (void)kolo_host_here(host);
    for (int i = 0; i < kolo_host_pus(host); i++) {
        if (kolo_host_place(host, kolo_host_pu_os(host, i)).pu < 0) {
            abort();
        }
    }
    kolo_host_destroy(host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kolo_graph *graph = NULL;
    char *text = malloc(size + 1); /* as kolo_file_read() gives it */
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    if (kolo_graph_read("machine", text, size, &graph) == KOLO_OK) {
        if (graph->bytes > graph->limit) {
            abort();
        }
        if (graph->nnodes <= NODES_MAX) {
            read_again(graph);
            plan(graph, 1);
            plan(graph, 3);
        }
        kolo_graph_destroy(graph);
    }
    ask_host(text, size);
    free(text);
    return 0;
}
