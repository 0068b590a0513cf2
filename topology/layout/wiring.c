// SPDX-License-Identifier: Apache-2.0
/* Makes the channels of all ranks from the paths within a host. There are two channels per ring, so
 * that each ring has both trees of a pair (Sanders, Speck, Traff 2009,
 * doi:10.1016/j.parco.2009.09.001). The shape of a tree depends on the machine:
 * - Many hosts: the tree joins one GPU of each host. The host's other GPUs form a chain along the
 *   ring behind that GPU.
 * - One host with a switch: the tree spans the GPUs themselves.
 * - One host without a switch: the tree is the ring, cut open. So it uses only links that exist. */
#include "topology/layout/wiring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS_MAX = 1 << 20 };

kolo_status kolo_wiring_make(const struct kolo_graph *graph, int nhosts, struct kolo_wiring *out)
{
    struct kolo_fabric fabric;
    struct kolo_wiring w = {.graph = graph, .ngpus = graph->ngpus, .nhosts = nhosts};
    if (nhosts < 1 || nhosts > HOSTS_MAX) {
        return kolo_fail(KOLO_ERR_INVALID, "%d hosts; 1 to %d can be planned", nhosts, HOSTS_MAX);
    }
    KOLO_TRY(kolo_fabric_make(graph, &fabric));
    w.nic_of = calloc((size_t)w.ngpus, sizeof *w.nic_of);
    w.nic_path = calloc((size_t)w.ngpus, sizeof *w.nic_path);
    kolo_status st = w.nic_of != NULL && w.nic_path != NULL
                         ? kolo_wiring_local(&w, &fabric)
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d GPUs", w.ngpus);
    if (st == KOLO_OK) {
        st = kolo_wiring_rails(&w, &fabric);
    }
    kolo_fabric_free(&fabric);
    if (st < 0) {
        kolo_wiring_free(&w);
        return st;
    }
    *out = w;
    return KOLO_OK;
}

void kolo_wiring_free(struct kolo_wiring *wiring)
{
    free(wiring->path);
    free(wiring->rail);
    free(wiring->nic_of);
    free(wiring->nic_path);
    *wiring = (struct kolo_wiring){0};
}

/* The GPU at place i of a ring on a host. */
static int gpu_at(const struct kolo_wiring *w, int ring, int host, int i)
{
    const bool back = w->rail != NULL && w->rail[ring].turns && host % 2 == 1;
    return w->path[ring * w->ngpus + (back ? w->ngpus - 1 - i : i)];
}

void kolo_wiring_ring(const struct kolo_wiring *wiring, int ring, int *order)
{
    for (int h = 0; h < wiring->nhosts; h++) {
        for (int i = 0; i < wiring->ngpus; i++) {
            order[h * wiring->ngpus + i] = h * wiring->ngpus + gpu_at(wiring, ring, h, i);
        }
    }
}

int kolo_wiring_peer(const struct kolo_wiring *wiring, int rank, int step)
{
    const int g = wiring->ngpus, h = wiring->nhosts;
    return (rank / g + step / g) % h * g + (rank % g + step % g) % g;
}

/* ---- trees ---- */

/* One host: the ring cut open, in two arms from the head. The other tree's head is half way round
 * the ring, so each head is a leaf in the other tree. */
static void lay_arms(const struct kolo_wiring *w, const int *path, int which, struct kolo_tree *out)
{
    const int n = w->ngpus, head = which == 0 ? 0 : n / 2;
    const int right = n / 2, left = n - 1 - right; /* lengths of the arms */
    for (int i = 0; i < n; i++) {
        const int after = path[(head + i + 1) % n], before = path[(head + i + n - 1) % n];
        const bool on_right = i <= right;
        struct kolo_tree *tree = &out[path[(head + i) % n]];
        *tree = (struct kolo_tree){i == 0 ? -1 : on_right ? before : after, {-1, -1, -1}};
        if (i == 0) {
            tree->down[0] = right > 0 ? after : -1;
            tree->down[1] = left > 0 ? before : -1;
        } else if (on_right) {
            tree->down[0] = i < right ? after : -1;
        } else {
            tree->down[0] = i > right + 1 ? before : -1;
        }
    }
}

static void lay_binary(const struct kolo_wiring *w, const int *path, int which,
                       struct kolo_tree *out)
{
    for (int i = 0; i < w->ngpus; i++) {
        const struct kolo_tree t = kolo_tree_at(w->ngpus, which, i);
        out[path[i]] = (struct kolo_tree){
            t.up >= 0 ? path[t.up] : -1,
            {t.down[0] >= 0 ? path[t.down[0]] : -1, t.down[1] >= 0 ? path[t.down[1]] : -1, -1}};
    }
}

/* Many hosts: a binary tree over the hosts' heads, and a chain in each host. The head is the GPU
 * where the ring enters the host, and in the other tree the GPU where it leaves. Both are near a
 * NIC, and the head of one tree is the end of the other tree's chain. */
static void lay_hosts(const struct kolo_wiring *w, const int *path, int which,
                      struct kolo_tree *out)
{
    const int n = w->ngpus, step = which == 0 ? 1 : -1;
    const int head = path[which == 0 ? 0 : n - 1];
    for (int h = 0; h < w->nhosts; h++) {
        const struct kolo_tree t = kolo_tree_at(w->nhosts, which, h);
        for (int i = 0; i < n; i++) {
            const int at = which == 0 ? i : n - 1 - i;
            const int next = i + 1 < n ? h * n + path[at + step] : -1;
            struct kolo_tree *tree = &out[h * n + path[at]];
            *tree = (struct kolo_tree){i > 0 ? h * n + path[at - step] : -1, {next, -1, -1}};
            if (i == 0) {
                tree->down[0] = t.down[0] >= 0 ? t.down[0] * n + head : -1;
                tree->down[1] = t.down[1] >= 0 ? t.down[1] * n + head : -1;
                tree->down[2] = next;
                tree->up = t.up >= 0 ? t.up * n + head : -1;
            }
        }
    }
}

void kolo_wiring_tree(const struct kolo_wiring *wiring, int ring, int which, struct kolo_tree *out)
{
    const int *path = wiring->path + ring * wiring->ngpus;
    if (wiring->nhosts > 1) {
        lay_hosts(wiring, path, which, out);
    } else if (wiring->over == KOLO_OVER_SWITCH) {
        lay_binary(wiring, path, which, out);
    } else {
        lay_arms(wiring, path, which, out);
    }
}

static bool add_tree(const struct kolo_wiring *w, struct kolo_job *job, int channel,
                     struct kolo_tree *tree)
{
    kolo_wiring_tree(w, channel % w->nrings, channel / w->nrings, tree);
    for (int r = 0; r < job->nranks; r++) {
        const int *down = tree[r].down;
        const struct kolo_job_branch branch = {channel, r, tree[r].up, {down[0], down[1], down[2]}};
        if (!kolo_job_add_branch(job, &branch)) {
            return false;
        }
    }
    return true;
}

/* ---- edges ---- */

/* The via of an edge within a host, such as "P2P/NVL" or "P2P/PIX". The fabric's route decides. */
static int via_within(const struct kolo_wiring *w, struct kolo_job *job, int from, int to)
{
    const struct kolo_graph *g = w->graph;
    const int a = g->gpu[from], b = g->gpu[to];
    const struct kolo_graph_edge *nvlink = kolo_graph_link(g, a, b, KOLO_LINK_NVLINK);
    const struct kolo_graph_edge *xgmi = kolo_graph_link(g, a, b, KOLO_LINK_XGMI);
    char text[32];
    (void)snprintf(text, sizeof text, "P2P/%s",
                   w->over == KOLO_OVER_SWITCH || nvlink != NULL ? "NVLink"
                   : xgmi != NULL                                ? "xgmi"
                                  : kolo_path_name(kolo_pci_path(g, a, b)));
    return kolo_job_via(job, text);
}

bool kolo_wiring_gdr(const struct kolo_wiring *wiring, int gpu, int nic)
{
    const struct kolo_graph *g = wiring->graph;
    return g->node[gpu].gdr != 0 && g->node[g->nic[nic]].gdr != 0 &&
           kolo_pci_path(g, gpu, g->nic[nic]) <= KOLO_PATH_PXB;
}

static int via_between(const struct kolo_wiring *w, struct kolo_job *job, int from, int net)
{
    const bool direct = net >= 0 && kolo_wiring_gdr(w, w->graph->gpu[from], net);
    return kolo_job_via(job, direct ? "NET/N/GDRDMA" : "NET/N");
}

struct edges { /* names are looked up once a pair, not once a rank */
    const struct kolo_wiring *w;
    struct kolo_job *job;
    int *within; /* [ngpus * ngpus] via; -1 not looked up yet */
};

static bool add_edge(struct edges *e, int channel, int from, int to, int net)
{
    const int n = e->w->ngpus;
    struct kolo_job_edge edge = {
        .channel = channel, .from = from, .to = to, .net = -1, .way = ' ', .collective = true};
    if (from / n == to / n) {
        int *via = &e->within[from % n * n + to % n];
        *via = *via >= 0 ? *via : via_within(e->w, e->job, from % n, to % n);
        edge.via = *via;
    } else {
        edge.via = via_between(e->w, e->job, from % n, net);
        edge.net = net;
    }
    return edge.via >= 0 && kolo_job_add_edge(e->job, &edge);
}

static bool add_ring(struct edges *e, int channel, int *order)
{
    const struct kolo_wiring *w = e->w;
    const int total = w->ngpus * w->nhosts, ring = channel % w->nrings;
    kolo_wiring_ring(w, ring, order);
    for (int i = 0; i < total && total > 1; i++) {
        const int host = i / w->ngpus;
        const bool back = w->rail != NULL && w->rail[ring].turns && host % 2 == 1;
        const int net = w->rail == NULL ? -1 : back ? w->rail[ring].in : w->rail[ring].out;
        if (!add_edge(e, channel, order[i], order[(i + 1) % total], net)) {
            return false;
        }
    }
    return kolo_job_add_ring(e->job, channel, order, total);
}

static bool add_members(const struct kolo_wiring *w, struct kolo_job *job)
{
    for (int h = 0; h < w->nhosts; h++) {
        char name[24];
        (void)snprintf(name, sizeof name, "host%d", h);
        const int host = w->nhosts <= 4096 ? kolo_job_host(job, name) : -1;
        for (int i = 0; i < w->ngpus; i++) {
            if (!kolo_job_add_member(job, h * w->ngpus + i, host)) {
                return false;
            }
        }
    }
    return true;
}

kolo_status kolo_wiring_job(const struct kolo_wiring *wiring, struct kolo_job *out)
{
    struct kolo_job job = {.nranks = wiring->ngpus * wiring->nhosts,
                           .nchannels = 2 * wiring->nrings};
    const size_t pairs = (size_t)wiring->ngpus * (size_t)wiring->ngpus;
    struct edges e = {.w = wiring, .job = &job};
    e.within = malloc(pairs * sizeof *e.within);
    int *order = malloc((size_t)job.nranks * sizeof *order);
    struct kolo_tree *tree = malloc((size_t)job.nranks * sizeof *tree);
    bool fits = e.within != NULL && order != NULL && tree != NULL && add_members(wiring, &job);
    if (e.within != NULL) {
        memset(e.within, 0xff, pairs * sizeof *e.within);
    }
    for (int c = 0; c < job.nchannels && fits; c++) {
        fits = add_ring(&e, c, order) && add_tree(wiring, &job, c, tree);
    }
    free(e.within);
    free(order);
    free(tree);
    if (!fits) {
        kolo_job_free(&job);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the channels of %d ranks",
                         wiring->ngpus * wiring->nhosts);
    }
    kolo_job_sort(&job);
    *out = job;
    return KOLO_OK;
}
