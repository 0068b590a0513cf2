// SPDX-License-Identifier: Apache-2.0
/* Rings and trees on the GPUs that ranks are on. Each rank says which GPU that is by its bus
 * address, which is the same to all processes, whatever CUDA_VISIBLE_DEVICES numbers it. Rank 0
 * alone looks at its machine (hwloc, sysfs, NVML), keeps of it the GPUs that ranks are on, plans on
 * these for all hosts, and tells all: what ranks see of a machine may differ, as in containers, and
 * they must not plan differently. The other hosts must have ranks on the same addresses. What goes
 * wrong here costs the plan and no more. */
#include "boot/bootstrap.h"
#include "core/path.h"
#include "core/setup/join.h"
#include "core/setup/layout_file.h"
#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/machine/nvml.h"
#include "topology/source.h"

#include <stdlib.h>
#include <string.h>

/* ---- who is where ---- */

uint64_t kolo_layout_live_gpu(const struct kolo_comm *c)
{
    const struct kolo_path_ops *ops = NULL;
    uint64_t bus = KOLO_BUS_NONE;
    char text[32];
    if (c->options.cuda_ordinal == KOLO_HOST) {
        return KOLO_BUS_NONE;
    }
    kolo_status st = kolo_path_find(c->options.cuda_ordinal, &ops);
    st = st == KOLO_OK ? ops->bus(c->options.cuda_ordinal, text, sizeof text) : st;
    if (st < 0 || !kolo_bus_parse(text, &bus)) {
        KOLO_LOG(INFO, GRAPH, "GPU %d: no bus address, no rings are planned on GPUs: %s",
                 c->options.cuda_ordinal, st < 0 ? kolo_error_text() : text);
    }
    return bus;
}

bool kolo_layout_live_is_wanted(const struct kolo_comm *c)
{
    bool several = false;
    for (int q = 0; q < c->ranks.nranks; q++) {
        int first = 0;
        while (c->ranks.host_of[first] != c->ranks.host_of[q]) {
            first++;
        }
        several = several || c->member[q].gpu != c->member[first].gpu;
        if (c->member[q].gpu == KOLO_BUS_NONE) {
            return false;
        }
    }
    return several;
}

/* ---- rank 0's machine ---- */

/* Looking takes long, and a process may have many communicators: what was found is kept, as the
 * dump that `kolo topo` reads. */
static kolo_status discover(struct kolo_graph **out)
{
    static struct kolo_text found;
    static char *source;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    kolo_status st = KOLO_OK;
    pthread_mutex_lock(&lock);
    if (source != NULL) {
        st = kolo_graph_read(source, found.chars, found.len, out);
    } else {
        st = kolo_graph_discover(out);
        if (st == KOLO_OK) {
            kolo_graph_write(*out, &found);
            source = found.chars != NULL ? strdup((*out)->source) : NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return st;
}

/* Place of rank q's GPU among those of `graph`; -1: it is not there. */
static int index_of(const struct kolo_comm *c, const struct kolo_graph *graph, int q)
{
    for (int i = 0; i < graph->ngpus; i++) {
        if (graph->node[graph->gpu[i]].bus == c->member[q].gpu) {
            return i;
        }
    }
    return -1;
}

static kolo_status not_there(const struct kolo_comm *c, const struct kolo_graph *graph, int q)
{
    const char *why = NULL;
    char bus[24];
    kolo_bus_print(c->member[q].gpu, bus);
    const bool told = kolo_nvml_open(&why) != NULL;
    return kolo_fail(KOLO_ERR_UNSUPPORTED, "GPU %s of rank %d is not among the %d of %s%s%s", bus,
                     q, graph->ngpus, graph->source, told ? "" : ": ", told ? "" : why);
}

/* Only the GPUs that ranks are on are left. */
static kolo_status keep_gpus(const struct kolo_comm *c, struct kolo_graph *graph)
{
    bool *used = calloc((size_t)graph->nnodes + 1, sizeof *used);
    kolo_status st =
        used != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the GPUs");
    for (int q = 0; q < c->ranks.nranks && st == KOLO_OK; q++) {
        const int at = index_of(c, graph, q);
        if (at < 0) {
            st = not_there(c, graph, q);
        } else {
            used[graph->gpu[at]] = true;
        }
    }
    if (st == KOLO_OK) {
        kolo_graph_keep(graph, used);
    }
    free(used);
    return st;
}

/* Every host has a rank on each GPU. */
static kolo_status check_places(const struct kolo_comm *c, const int *place, int gpus)
{
    const int places = gpus * c->ranks.nhosts;
    bool *taken = calloc((size_t)places, sizeof *taken);
    int count = 0;
    for (int q = 0; q < c->ranks.nranks && taken != NULL; q++) {
        count += !taken[place[q]];
        taken[place[q]] = true;
    }
    free(taken);
    return count == places ? KOLO_OK
                           : kolo_fail(KOLO_ERR_UNSUPPORTED,
                                       "%d hosts differ in the GPUs that "
                                       "ranks are on",
                                       c->ranks.nhosts);
}

static kolo_status make_rings(const struct kolo_comm *c, const struct kolo_graph *graph,
                              const int *place, struct kolo_rings *out)
{
    struct kolo_wiring w;
    struct kolo_seats seats;
    KOLO_TRY(check_places(c, place, graph->ngpus));
    KOLO_TRY(kolo_wiring_make(graph, c->ranks.nhosts, &w));
    kolo_status st =
        kolo_seats_make(c->ranks.nranks, place, graph->ngpus * c->ranks.nhosts, &seats);
    st = st == KOLO_OK ? kolo_rings_make(&w, &seats, c->ranks.nranks, out) : st;
    if (st == KOLO_OK) {
        kolo_rings_log(c, &w);
    }
    kolo_seats_free(&seats);
    kolo_wiring_free(&w);
    return st;
}

static bool is_switched(const struct kolo_graph *graph, int gpu)
{
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i];
        const int other = link->a == gpu ? link->b : link->b == gpu ? link->a : gpu;
        if (link->kind == KOLO_LINK_NVLINK && graph->node[other].kind == KOLO_NODE_NVSWITCH) {
            return true;
        }
    }
    return false;
}

/* The slowest of what joins two GPUs. */
static enum kolo_gpu_link find_link(const struct kolo_graph *graph)
{
    const char *why = NULL;
    enum kolo_gpu_link least = KOLO_GPU_NVSWITCH;
    for (int i = 0; i < graph->ngpus; i++) {
        for (int j = 0; j < i; j++) {
            const int a = graph->gpu[i], b = graph->gpu[j];
            const enum kolo_gpu_link link =
                is_switched(graph, a) && is_switched(graph, b)           ? KOLO_GPU_NVSWITCH
                : kolo_graph_link(graph, a, b, KOLO_LINK_NVLINK) != NULL ? KOLO_GPU_NVLINK
                                                                         : KOLO_GPU_PCIE;
            least = link < least ? link : least;
        }
    }
    return kolo_nvml_open(&why) != NULL ? least : KOLO_GPU_LINK_UNKNOWN;
}

static kolo_status plan_on(const struct kolo_comm *c, struct kolo_graph *graph,
                           struct kolo_rings *out, enum kolo_gpu_link *link_out)
{
    KOLO_TRY(keep_gpus(c, graph));
    *link_out = find_link(graph);
    int *place = malloc((size_t)c->ranks.nranks * sizeof *place);
    if (place == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        place[q] = c->ranks.host_of[q] * graph->ngpus + index_of(c, graph, q);
    }
    const kolo_status st = make_rings(c, graph, place, out);
    free(place);
    return st;
}

/* ---- telling all ---- */

struct told {
    int32_t nrings, ntrees; /* 0: no plan */
    int32_t link;
};

static void plan(const struct kolo_comm *c, struct kolo_rings *out, struct told *told)
{
    enum kolo_gpu_link link = KOLO_GPU_LINK_UNKNOWN;
    struct kolo_graph *graph = NULL;
    kolo_status st = discover(&graph);
    if (st == KOLO_OK) {
        st = plan_on(c, graph, out, &link);
        kolo_graph_destroy(graph);
    }
    if (st < 0) {
        KOLO_LOG(INFO, GRAPH, "no rings are planned on GPUs: %s", kolo_error_text());
    }
    *told = (struct told){st == KOLO_OK ? out->nrings : 0, st == KOLO_OK ? out->ntrees : 0,
                          (int32_t)link};
}

static kolo_status spread(struct kolo_boot *boot, void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const size_t part = kolo_min(bytes - at, (size_t)KOLO_BOOT_SPREAD_BYTES);
        KOLO_TRY(kolo_boot_spread(boot, (char *)data + at, part));
        at += part;
    }
    return KOLO_OK;
}

static kolo_status share(struct kolo_comm *c, struct kolo_boot *boot, const struct told *told,
                         struct kolo_rings *rings)
{
    const size_t n = (size_t)c->ranks.nranks;
    if (c->ranks.rank != 0) {
        KOLO_TRY(kolo_rings_open(c->ranks.nranks, told->nrings, told->ntrees, rings));
    }
    KOLO_TRY(spread(boot, rings->order, (size_t)told->nrings * n * sizeof *rings->order));
    KOLO_TRY(spread(boot, rings->tree, (size_t)told->ntrees * n * sizeof *rings->tree));
    return kolo_rings_take(c, rings);
}

kolo_status kolo_layout_live_lay(struct kolo_comm *c, struct kolo_boot *boot)
{
    struct kolo_rings rings = {0};
    struct told told = {0};
    if (!kolo_layout_live_is_wanted(c)) {
        return KOLO_OK;
    }
    if (c->ranks.rank == 0) {
        plan(c, &rings, &told);
    }
    kolo_status st = kolo_boot_spread(boot, &told, sizeof told);
    if (st == KOLO_OK) {
        c->layout.gpu_link = (enum kolo_gpu_link)told.link;
        st = told.nrings > 0 ? share(c, boot, &told, &rings) : kolo_rings_lay(c);
    }
    kolo_rings_free(&rings);
    return st;
}
