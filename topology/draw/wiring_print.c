// SPDX-License-Identifier: Apache-2.0
/* A wiring for people, in the lines of NCCL's log, and as JSON. */
#include "topology/draw/lines.h"
#include "topology/layout/wiring.h"
#include "topology/machine/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *over_name(const struct kolo_wiring *w)
{
    static const char *const names[] = {"NVSwitch", "links between GPUs",
                                        "all links (PCI and NUMA too)"};
    return names[w->over];
}

static void print_verdict(const struct kolo_wiring *w, struct kolo_text *out)
{
    const double gbs = kolo_wiring_gbs(w);
    if (w->ngpus * w->nhosts == 1) {
        kolo_text_add(out, "plan: one GPU, nothing to send\n");
        return;
    }
    kolo_text_add(out, "plan over %s: %d ring%s of %.4g GB/s, together %.4g GB/s; bound %.4g GB/s",
                  over_name(w), w->nrings, w->nrings == 1 ? "" : "s", w->ring_gbs, gbs,
                  w->bound_gbs);
    if (w->bound_links > 0 && w->unit_gbs > 0) {
        kolo_text_add(out, " (%d link%s of %.4g)", w->bound_links, w->bound_links == 1 ? "" : "s",
                      w->unit_gbs);
    }
    if (kolo_graph_hides_links(w->graph)) {
        kolo_text_add(out, " (without NVLink or xgmi, of which the source tells nothing)");
    }
    if (w->nic_gbs > 0) {
        kolo_text_add(out, " (NICs %.4g, host %.4g)", w->nic_gbs, w->host_gbs);
    }
    if (gbs >= w->bound_gbs * (1 - 1e-6)) {
        kolo_text_add(out, ": optimal\n");
    } else {
        kolo_text_add(out, ": %.3g %% below\n", 100 * (1 - gbs / w->bound_gbs));
    }
}

static void add_nic(const struct kolo_wiring *w, int nic, struct kolo_text *out)
{
    kolo_node_label(w->graph, w->graph->nic[nic], out);
}

static void print_rings(const struct kolo_wiring *w, struct kolo_text *out)
{
    for (int r = 0; r < w->nrings; r++) {
        kolo_text_add(out, "  ring %d:", r);
        for (int i = 0; i < w->ngpus; i++) {
            kolo_text_add(out, " %d", w->path[r * w->ngpus + i]);
        }
        if (w->rail != NULL) {
            const struct kolo_rail *rail = &w->rail[r];
            kolo_text_add(out, "; in by ");
            add_nic(w, rail->in, out);
            kolo_text_add(out, " (%s), out by ", kolo_path_name(rail->in_path));
            add_nic(w, rail->out, out);
            kolo_text_add(out, " (%s)%s", kolo_path_name(rail->out_path),
                          rail->turns ? ", odd hosts backwards" : "");
        }
        kolo_text_add(out, "\n");
    }
}

static void print_nics(const struct kolo_wiring *w, struct kolo_text *out)
{
    for (int i = 0; i < w->ngpus; i++) {
        if (w->nic_of[i] >= 0) {
            kolo_text_add(out, "  GPU%d uses ", i);
            add_nic(w, w->nic_of[i], out);
            kolo_text_add(out, " (%s)%s\n", kolo_path_name(w->nic_path[i]),
                          kolo_wiring_gdr(w, w->graph->gpu[i], w->nic_of[i])
                              ? ""
                              : ", no GPUDirect: through host memory");
        }
    }
}

/* Print the order of rank 0; the orders of all ranks are alike. */
static void print_all_to_all(const struct kolo_wiring *w, struct kolo_text *out)
{
    enum { MOST = 64 };
    const int total = w->ngpus * w->nhosts;
    if (w->nhosts == 1 || total > MOST) {
        return; /* the usual order (the next GPU first), or too long to read */
    }
    kolo_text_add(out, "  all-to-all: 0 sends to");
    for (int step = 1; step < total; step++) {
        kolo_text_add(out, "%s %d", step % w->ngpus == 0 ? " |" : "", kolo_wiring_peer(w, 0, step));
    }
    kolo_text_add(out, "; the others alike\n");
}

void kolo_wiring_print(const struct kolo_wiring *wiring, struct kolo_text *out)
{
    print_verdict(wiring, out);
    print_rings(wiring, out);
    print_nics(wiring, out);
    print_all_to_all(wiring, out);
}

void kolo_wiring_print_log(const struct kolo_job *job, struct kolo_text *out)
{
    for (int i = 0; i < job->nrings; i++) {
        kolo_line_ring(out, job->ring[i].channel, job->nchannels, job->ring[i].count,
                       job->ring[i].rank);
        kolo_text_add(out, "\n");
    }
    for (int r = 0; r < job->nranks && job->nbranches > 0; r++) {
        kolo_text_add(out, "Trees");
        for (int c = 0; c < job->nchannels; c++) {
            const struct kolo_job_branch *b = kolo_job_find_branch(job, c, r);
            if (b != NULL) {
                kolo_text_add(out, " [%d] %d/%d/%d->%d->%d", c, b->down[0], b->down[1], b->down[2],
                              r, b->up);
            }
        }
        kolo_text_add(out, "\n");
    }
}

static void json_ints(const char *name, const int *values, int count, struct kolo_text *out)
{
    kolo_text_add(out, "\"%s\": [", name);
    for (int i = 0; i < count; i++) {
        kolo_text_add(out, "%s%d", i > 0 ? ", " : "", values[i]);
    }
    kolo_text_add(out, "]");
}

/* Each rank's parent. */
static void json_trees(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, ",\n  \"trees\": [");
    for (int i = 0; i < job->nbranches; i++) {
        const struct kolo_job_branch *b = &job->branch[i];
        const bool begins = i == 0 || job->branch[i - 1].channel != b->channel;
        const bool ends = i + 1 == job->nbranches || job->branch[i + 1].channel != b->channel;
        kolo_text_add(out, "%s%d%s", begins ? (i > 0 ? ",\n    [" : "\n    [") : ", ", b->up,
                      ends ? "]" : "");
    }
    kolo_text_add(out, "]");
}

/* `wiring` NULL: there is no machine, so the rings have no NICs. */
static void json_rings(const struct kolo_wiring *wiring, const struct kolo_job *job,
                       struct kolo_text *out)
{
    kolo_text_add(out, "\"rings\": [");
    for (int i = 0; i < job->nrings; i++) {
        kolo_text_add(out, "%s{\"channel\": %d, ", i > 0 ? ",\n    " : "\n    ",
                      job->ring[i].channel);
        json_ints("ranks", job->ring[i].rank, job->ring[i].count, out);
        if (wiring != NULL && wiring->rail != NULL) {
            const struct kolo_rail *rail = &wiring->rail[i % wiring->nrings];
            kolo_text_add(out, ", \"in_nic\": %d, \"out_nic\": %d", rail->in, rail->out);
        }
        kolo_text_add(out, "}");
    }
    kolo_text_add(out, "]");
}

void kolo_job_json(const struct kolo_job *job, struct kolo_text *out)
{
    kolo_text_add(out, "{\"ranks\": %d, \"channels\": %d,\n  ", job->nranks, job->nchannels);
    json_rings(NULL, job, out);
    json_trees(job, out);
    kolo_text_add(out, "}");
}

void kolo_wiring_json(const struct kolo_wiring *wiring, const struct kolo_job *job,
                      struct kolo_text *out)
{
    kolo_text_add(out,
                  "{\"gpus\": %d, \"hosts\": %d, \"channels\": %d, \"over\": \"%s\", \"ring_gbs\": "
                  "%.6g, \"achieved_gbs\": %.6g, \"bound_gbs\": %.6g, \"optimal\": %s, "
                  "\"links_untold\": %s,\n  ",
                  wiring->ngpus, wiring->nhosts, job->nchannels, over_name(wiring),
                  wiring->ring_gbs, kolo_wiring_gbs(wiring), wiring->bound_gbs,
                  kolo_wiring_gbs(wiring) >= wiring->bound_gbs * (1 - 1e-6) ? "true" : "false",
                  kolo_graph_hides_links(wiring->graph) ? "true" : "false");
    json_rings(wiring, job, out);
    json_trees(job, out);
    kolo_text_add(out, ",\n  ");
    json_ints("nic_of_gpu", wiring->nic_of, wiring->ngpus, out);
    kolo_text_add(out, "}");
}
