// SPDX-License-Identifier: Apache-2.0
/* The last steps of a graph, after all nodes and links are read:
 * - claims of NVLinks become links;
 * - parallel links are merged;
 * - NUMA nodes are joined;
 * - GPUs and NICs are numbered;
 * - PCI links that cannot be as slow as declared are corrected. A virtual machine's bridge may
 *   declare "2.5 GT/s x1" while the devices below it transfer 48 GB/s. */
#include "topology/machine/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- addresses ---- */

struct bus_entry {
    uint64_t bus;
    int node;
};

static int compare_entries(const void *left, const void *right)
{
    const struct bus_entry *a = left, *b = right;
    if (a->bus != b->bus) {
        return a->bus < b->bus ? -1 : 1;
    }
    return a->node < b->node ? -1 : a->node > b->node;
}

/* All bus addresses, sorted, for many searches; the caller calls free(). Errors: SYSTEM. */
static kolo_status sort_buses(struct kolo_graph *graph, struct bus_entry **out)
{
    const size_t n = (size_t)graph->nnodes;
    struct bus_entry *index = malloc((n + 1) * sizeof *index);
    if (index == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", graph->source);
    }
    for (size_t i = 0; i < n; i++) {
        index[i] = (struct bus_entry){graph->node[i].bus, (int)i};
    }
    qsort(index, n, sizeof *index, compare_entries);
    *out = index;
    return KOLO_OK;
}

static int find_bus(const struct kolo_graph *graph, const struct bus_entry *index, uint64_t bus)
{
    int low = 0, high = graph->nnodes;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (index[middle].bus < bus) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return bus != KOLO_BUS_NONE && low < graph->nnodes && index[low].bus == bus ? index[low].node
                                                                                : -1;
}

/* ---- claims ---- */

bool kolo_link_claims_add(struct kolo_graph *graph, struct kolo_link_claims *claims,
                          const struct kolo_link_claim *claim)
{
    void *grown = kolo_graph_grow(graph, claims->claim, claims->count, &claims->room,
                                  sizeof claims->claim[0]);
    if (grown == NULL) {
        return false;
    }
    claims->claim = grown;
    claims->claim[claims->count++] = *claim;
    return true;
}

/* A claim with both nodes resolved, the smaller one first. */
struct meant {
    int a, b, from, count;
    enum kolo_link_kind kind;
    double gbs;
};

static int compare_meant(const void *left, const void *right)
{
    const struct meant *x = left, *y = right;
    const int keys[][2] = {{x->a, y->a},
                           {x->b, y->b},
                           {(int)x->kind, (int)y->kind},
                           {x->from, y->from},
                           {x->count, y->count}};
    for (size_t i = 0; i < KOLO_LENGTH(keys); i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static double claimed_gbs(const struct kolo_graph *graph, const struct kolo_link_claim *claim)
{
    const int arch = graph->node[claim->from].arch;
    return claim->gbs > 0 ? claim->gbs
                          : claim->count * (claim->link == KOLO_LINK_XGMI ? kolo_xgmi_gbs(arch)
                                                                          : kolo_nvlink_gbs(arch));
}

/* The node at a claim's other end; -1: no node to link to. */
static int other_end(struct kolo_graph *graph, const struct bus_entry *index, int nvswitch,
                     const struct kolo_link_claim *claim)
{
    char from[24], to[24];
    if (claim->kind == KOLO_NODE_NVSWITCH) {
        return nvswitch;
    }
    if (claim->kind == KOLO_NODE_NUMA) {
        return kolo_graph_numa(graph, claim->from);
    }
    const int node = find_bus(graph, index, claim->to);
    kolo_bus_print(graph->node[claim->from].bus, from);
    kolo_bus_print(claim->to, to);
    if (node == claim->from) {
        kolo_graph_note(graph, "GPU %s has a link to itself: left out", from);
        return -1;
    }
    if (node < 0 || graph->node[node].kind != KOLO_NODE_GPU) {
        kolo_graph_note(graph, "GPU %s has a link to %s, which is not a GPU here: left out", from,
                        to);
        return -1;
    }
    return node;
}

/* The NVSwitch; -1: no claim needs it; -2: no memory, or beyond the limit. */
static int find_nvswitch(struct kolo_graph *graph, const struct kolo_link_claims *claims)
{
    for (int i = 0; i < claims->count; i++) {
        if (claims->claim[i].kind == KOLO_NODE_NVSWITCH) {
            const int node = kolo_graph_nvswitch(graph);
            return node >= 0 ? node : -2;
        }
    }
    return -1;
}

static kolo_status find_meanings(struct kolo_graph *graph, const struct kolo_link_claims *claims,
                                 struct meant *meant, int *count)
{
    struct bus_entry *index = NULL;
    const int nvswitch = find_nvswitch(graph, claims);
    if (nvswitch == -2) {
        return kolo_graph_full(graph);
    }
    KOLO_TRY(sort_buses(graph, &index));
    for (int i = 0; i < claims->count; i++) {
        const struct kolo_link_claim *c = &claims->claim[i];
        const int to = other_end(graph, index, nvswitch, c);
        if (to >= 0 && c->count > 0) {
            meant[(*count)++] = (struct meant){.a = c->from < to ? c->from : to,
                                               .b = c->from < to ? to : c->from,
                                               .from = c->from,
                                               .count = c->count,
                                               .kind = c->link,
                                               .gbs = claimed_gbs(graph, c)};
        }
    }
    free(index);
    return KOLO_OK;
}

/* Say that the two ends of a link count it differently. */
static void note_unequal(struct kolo_graph *graph, const struct meant *pair, const int counts[2])
{
    char a[24], b[24];
    kolo_bus_print(graph->node[pair->a].bus, a);
    kolo_bus_print(graph->node[pair->b].bus, b);
    kolo_graph_note(graph, "%s says %d link%s to %s, which says %d back: taken as %d", a, counts[0],
                    counts[0] == 1 ? "" : "s", b, counts[1],
                    counts[0] < counts[1] ? counts[0] : counts[1]);
}

/* Make one link of a pair's claims. The claims of each end are summed. If both ends have claims,
 * the smaller sum counts. */
static struct kolo_graph_edge link_of(struct kolo_graph *graph, const struct meant *meant,
                                      int count)
{
    int counts[2] = {0};
    double gbs[2] = {0};
    for (int i = 0; i < count; i++) {
        const int end = meant[i].from == meant[0].a ? 0 : 1;
        counts[end] += meant[i].count;
        gbs[end] += meant[i].gbs;
    }
    const bool both = counts[0] > 0 && counts[1] > 0;
    const int end = both ? counts[1] < counts[0] : counts[0] == 0;
    if (both && counts[0] != counts[1]) {
        note_unequal(graph, &meant[0], counts);
    }
    return (struct kolo_graph_edge){.a = meant[0].a,
                                    .b = meant[0].b,
                                    .kind = meant[0].kind,
                                    .count = counts[end],
                                    .gbs = gbs[end]};
}

static bool same_pair(const struct meant *x, const struct meant *y)
{
    return x->a == y->a && x->b == y->b && x->kind == y->kind;
}

kolo_status kolo_link_claims_join(struct kolo_graph *graph, struct kolo_link_claims *claims)
{
    int count = 0;
    struct meant *meant = malloc(((size_t)claims->count + 1) * sizeof *meant);
    kolo_status st = meant != NULL ? find_meanings(graph, claims, meant, &count)
                                   : kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", graph->source);
    if (st == KOLO_OK) {
        qsort(meant, (size_t)count, sizeof *meant, compare_meant);
    }
    for (int i = 0, n = 0; i < count && st == KOLO_OK; i += n) {
        for (n = 1; i + n < count && same_pair(&meant[i], &meant[i + n]);) {
            n++;
        }
        const struct kolo_graph_edge link = link_of(graph, &meant[i], n);
        st = kolo_graph_join(graph, &link) ? KOLO_OK : kolo_graph_full(graph);
    }
    free(meant);
    free(claims->claim);
    graph->bytes -= (size_t)claims->room * sizeof claims->claim[0];
    *claims = (struct kolo_link_claims){0};
    return st;
}

/* ---- links ---- */

static int compare_links(const void *left, const void *right)
{
    const struct kolo_graph_edge *x = left, *y = right;
    const int keys[][2] = {{(int)x->kind, (int)y->kind}, {x->a, y->a}, {x->b, y->b}};
    for (size_t i = 0; i < KOLO_LENGTH(keys); i++) {
        if (keys[i][0] != keys[i][1]) {
            return keys[i][0] < keys[i][1] ? -1 : 1;
        }
    }
    return 0;
}

static void merge_links(struct kolo_graph *graph)
{
    int kept = 0;
    for (int i = 0; i < graph->nlinks; i++) {
        struct kolo_graph_edge *link = &graph->link[i];
        if (link->a > link->b) {
            *link = (struct kolo_graph_edge){link->b,     link->a,   link->kind,
                                             link->count, link->gbs, link->assumed};
        }
    }
    if (graph->nlinks > 0) {
        qsort(graph->link, (size_t)graph->nlinks, sizeof *graph->link, compare_links);
    }
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *link = &graph->link[i];
        struct kolo_graph_edge *last = kept > 0 ? &graph->link[kept - 1] : NULL;
        if (last != NULL && compare_links(last, link) == 0) {
            last->count += link->count;
            last->gbs += link->gbs;
            last->assumed |= link->assumed;
        } else if (link->a != link->b) {
            graph->link[kept++] = *link;
        }
    }
    graph->nlinks = kept;
}

static kolo_status join_numas(struct kolo_graph *graph)
{
    for (int i = 0; i < graph->nlinks; i++) {
        if (graph->link[i].kind == KOLO_LINK_SMP) {
            return KOLO_OK; /* the source has these links */
        }
    }
    for (int b = 0; b < graph->nnodes; b++) {
        const struct kolo_node *node = &graph->node[b];
        if (node->kind != KOLO_NODE_NUMA) {
            continue;
        }
        const double gbs = kolo_smp_gbs(node->name, node->arch_text, node->arch);
        for (int a = 0; a < b; a++) {
            const struct kolo_graph_edge link = {a, b, KOLO_LINK_SMP, 1, gbs, true};
            if (graph->node[a].kind == KOLO_NODE_NUMA && !kolo_graph_join(graph, &link)) {
                return kolo_graph_full(graph);
            }
        }
    }
    return KOLO_OK;
}

/* Correct slow links in one pass over all links. True: a link changed. The next pass sees how that
 * change affects the links above. Nodes mostly follow their parents, so the pass runs from the last
 * link to the first, and two passes are usually enough. */
static bool mend_some(struct kolo_graph *graph, double *most, double *least)
{
    bool mended = false;
    for (int i = graph->nlinks - 1; i >= 0; i--) {
        struct kolo_graph_edge *link = &graph->link[i];
        const bool b_is_child = graph->node[link->b].parent == link->a;
        const int parent = b_is_child ? link->a : link->b;
        const int child = b_is_child ? link->b : link->a;
        if (link->kind != KOLO_LINK_PCI || graph->node[child].parent != parent) {
            continue;
        }
        if (graph->node[child].kind == KOLO_NODE_SWITCH && link->gbs < least[child]) {
            char bus[24];
            kolo_bus_print(graph->node[child].bus, bus);
            if (!link->assumed) {
                kolo_graph_note(graph,
                                "the link above switch %s says %.2g GB/s, less than any below it: "
                                "taken as %.3g",
                                bus, link->gbs, most[child]);
            }
            link->gbs = most[child];
            link->assumed = true;
            mended = true;
        }
        most[parent] = link->gbs > most[parent] ? link->gbs : most[parent];
        least[parent] = least[parent] == 0 || link->gbs < least[parent] ? link->gbs : least[parent];
    }
    return mended;
}

/* If a switch's uplink is declared slower than every link below the switch, the declaration is
 * wrong. */
static kolo_status mend_uplinks(struct kolo_graph *graph)
{
    double *most = calloc((size_t)graph->nnodes + 1, sizeof *most);
    double *least = calloc((size_t)graph->nnodes + 1, sizeof *least);
    if (most == NULL || least == NULL) {
        free(most);
        free(least);
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", graph->source);
    }
    while (mend_some(graph, most, least)) {
        memset(most, 0, (size_t)graph->nnodes * sizeof *most);
        memset(least, 0, (size_t)graph->nnodes * sizeof *least);
    }
    free(most);
    free(least);
    return KOLO_OK;
}

/* A GPU's link whose speed the source does not tell is the usual one of the GPU's generation. */
static void guess_speeds(struct kolo_graph *graph)
{
    for (int i = 0; i < graph->nlinks; i++) {
        struct kolo_graph_edge *link = &graph->link[i];
        const int child = graph->node[link->b].parent == link->a ? link->b : link->a;
        const struct kolo_node *n = &graph->node[child];
        if (link->kind == KOLO_LINK_PCI && link->assumed && n->kind == KOLO_NODE_GPU &&
            n->arch_text == NULL && link->gbs > kolo_pci_gbs_usual(0) * 0.999 &&
            link->gbs < kolo_pci_gbs_usual(0) * 1.001) {
            link->gbs = kolo_pci_gbs_usual(n->arch);
        }
    }
}

/* ---- numbers ---- */

static int compare_nodes(const void *left, const void *right, void *context)
{
    const struct kolo_graph *graph = context;
    const int i = *(const int *)left, j = *(const int *)right;
    const struct kolo_node *a = &graph->node[i], *b = &graph->node[j];
    if (a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    if (a->bus != b->bus) {
        return a->bus < b->bus ? -1 : 1;
    }
    return i < j ? -1 : i > j;
}

/* Sort nodes by number if all numbers are known and differ. Else forget the numbers and sort by bus
 * address. */
static void sort_kind(struct kolo_graph *graph, int *list, int count)
{
    bool numbered = true;
    if (count == 0) {
        return;
    }
    qsort_r(list, (size_t)count, sizeof list[0], compare_nodes, graph);
    for (int i = 0; i < count; i++) {
        const int number = graph->node[list[i]].number;
        numbered = numbered && number >= 0 && (i == 0 || number != graph->node[list[i - 1]].number);
    }
    for (int i = 0; i < count && !numbered; i++) {
        graph->node[list[i]].number = -1;
    }
    if (!numbered) {
        qsort_r(list, (size_t)count, sizeof list[0], compare_nodes, graph);
    }
}

static kolo_status list_kind(struct kolo_graph *graph, enum kolo_node_kind kind, int **list,
                             int *count)
{
    int n = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        n += graph->node[i].kind == kind;
    }
    int *made = malloc(((size_t)n + 1) * sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", graph->source);
    }
    n = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        if (graph->node[i].kind == kind) {
            made[n++] = i;
        }
    }
    sort_kind(graph, made, n);
    free(*list);
    *list = made;
    *count = n;
    return KOLO_OK;
}

kolo_status kolo_graph_finish(struct kolo_graph *graph)
{
    merge_links(graph);
    KOLO_TRY(join_numas(graph));
    merge_links(graph);
    guess_speeds(graph);
    KOLO_TRY(mend_uplinks(graph));
    KOLO_TRY(list_kind(graph, KOLO_NODE_GPU, &graph->gpu, &graph->ngpus));
    return list_kind(graph, KOLO_NODE_NIC, &graph->nic, &graph->nnics);
}

uint64_t kolo_graph_hash(const struct kolo_graph *graph)
{
    uint64_t hash = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        const struct kolo_node *n = &graph->node[i];
        const int64_t words[] = {(int64_t)n->kind, n->parent, (int64_t)n->bus, n->number};
        hash = kolo_hash(kolo_hash(hash, words, sizeof words), &n->gbs, sizeof n->gbs);
    }
    for (int i = 0; i < graph->nlinks; i++) {
        const struct kolo_graph_edge *l = &graph->link[i];
        const int64_t words[] = {l->a, l->b, (int64_t)l->kind, l->count};
        hash = kolo_hash(kolo_hash(hash, words, sizeof words), &l->gbs, sizeof l->gbs);
    }
    return hash;
}

kolo_status kolo_graph_end(struct kolo_graph *graph, kolo_status st, struct kolo_graph **out)
{
    if (st == KOLO_OK) {
        st = kolo_graph_finish(graph);
    }
    if (st < 0) {
        kolo_graph_destroy(graph);
        return st;
    }
    *out = graph;
    return KOLO_OK;
}
