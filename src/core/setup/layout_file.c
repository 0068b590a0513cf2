// SPDX-License-Identifier: Apache-2.0
/* The planner's rings and trees for a communicator: see layout_file.h. KOLO_TOPO_FILE may name a
 * machine with GPUs; a job that has a rank for each of them, numbered as they are, on every host,
 * is laid on that machine's rings and trees. Every rank plans by itself, from equal graphs, whose
 * hashes are compared when they meet; the planner is deterministic. For ranks that are on GPUs see
 * layout_live.c. KOLO_TOPO_DUMP_FILE gets the machine as rank 0 knows it. */
#include "core/setup/layout_file.h"

#include "core/setup/join.h"
#include "topology/formats/file.h"
#include "topology/formats/write.h"
#include "topology/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding the machine ---- */

static kolo_status dump(const struct kolo_graph *graph, const char *path)
{
    struct kolo_text text = {0};
    kolo_graph_write(graph, &text);
    const char *why = NULL;
    const int fd = kolo_open_output(path, false, &why);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    const bool written =
        file != NULL && text.chars != NULL && fwrite(text.chars, 1, text.len, file) == text.len;
    const bool closed = file != NULL && fclose(file) == 0;
    kolo_text_free(&text);
    return written && closed ? KOLO_OK
                             : kolo_fail(KOLO_ERR_INVALID, "KOLO_TOPO_DUMP_FILE is \"%s\": %s",
                                         path, fd < 0 ? why : strerror(errno));
}

/* The machine of KOLO_TOPO_FILE; for a dump this one too. NULL: neither is asked for. */
static kolo_status find_machine(const struct kolo_comm *c, struct kolo_graph **out)
{
    const char *file = kolo_env("KOLO_TOPO_FILE");
    const char *to = c->ranks.rank == 0 ? kolo_env("KOLO_TOPO_DUMP_FILE") : NULL;
    struct kolo_graph *graph = NULL;
    *out = NULL;
    if (file == NULL && to == NULL) {
        return KOLO_OK;
    }
    KOLO_TRY(to != NULL ? kolo_graph_discover(&graph) : kolo_graph_load(file, &graph));
    const kolo_status st = to != NULL ? dump(graph, to) : KOLO_OK;
    if (st == KOLO_OK && file != NULL && graph->ngpus > 0) {
        *out = graph;
        return KOLO_OK;
    }
    kolo_graph_destroy(graph);
    return st;
}

kolo_status kolo_rings_plan(struct kolo_comm *c, uint64_t *hash_out)
{
    struct kolo_graph *graph = NULL;
    *hash_out = 0;
    KOLO_TRY(find_machine(c, &graph));
    c->joining.machine = graph;
    *hash_out = graph != NULL ? kolo_graph_hash(graph) : 0;
    return KOLO_OK;
}

/* ---- places ---- */

kolo_status kolo_seats_make(int nranks, const int *place, int places, struct kolo_seats *out)
{
    *out = (struct kolo_seats){.places = places,
                               .first = calloc((size_t)places + 1, sizeof *out->first),
                               .rank = malloc((size_t)nranks * sizeof *out->rank)};
    if (out->first == NULL || out->rank == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", nranks);
    }
    for (int q = 0; q < nranks; q++) {
        out->first[place[q] + 1]++;
    }
    for (int p = 0; p < places; p++) {
        out->first[p + 1] += out->first[p];
    }
    for (int q = nranks - 1; q >= 0; q--) { /* each end moves down to its beginning */
        out->rank[--out->first[place[q] + 1]] = q;
    }
    memmove(out->first, out->first + 1, (size_t)places * sizeof *out->first);
    out->first[places] = nranks;
    return KOLO_OK;
}

void kolo_seats_free(struct kolo_seats *seats)
{
    free(seats->first);
    free(seats->rank);
    *seats = (struct kolo_seats){0};
}

static int first_at(const struct kolo_seats *seats, int place)
{
    return place >= 0 ? seats->rank[seats->first[place]] : -1;
}

static int last_at(const struct kolo_seats *seats, int place)
{
    return place >= 0 ? seats->rank[seats->first[place + 1] - 1] : -1;
}

/* ---- rings and trees of ranks ---- */

kolo_status kolo_rings_open(int nranks, int nrings, int ntrees, struct kolo_rings *out)
{
    const size_t n = (size_t)nranks;
    *out = (struct kolo_rings){.nrings = nrings,
                               .ntrees = ntrees,
                               .order = malloc((size_t)nrings * n * sizeof *out->order),
                               .tree = malloc(((size_t)ntrees * n + 1) * sizeof *out->tree)};
    return out->order != NULL && out->tree != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", nrings);
}

void kolo_rings_free(struct kolo_rings *rings)
{
    free(rings->order);
    free(rings->tree);
    *rings = (struct kolo_rings){0};
}

/* A ring begins at rank 0, as every order does. */
static void fill_ring(const struct kolo_seats *seats, const int *place, int nranks, int *order)
{
    int count = 0, before = 0; /* ranks, and those of them that stand before rank 0 */
    for (int i = 0; i < seats->places; i++) {
        const int p = place[i];
        before = seats->rank[seats->first[p]] == 0 ? count : before;
        count += seats->first[p + 1] - seats->first[p];
    }
    count = nranks - before;
    for (int i = 0; i < seats->places; i++) {
        for (int k = seats->first[place[i]]; k < seats->first[place[i] + 1]; k++) {
            order[count++ % nranks] = seats->rank[k];
        }
    }
}

/* Ranks of one place are a chain: the first hangs where the place does, from the last hang those
 * below. */
static void fill_tree(const struct kolo_seats *seats, const struct kolo_tree *place,
                      struct kolo_tree *out)
{
    for (int p = 0; p < seats->places; p++) {
        const int end = seats->first[p + 1];
        for (int k = seats->first[p]; k < end; k++) {
            struct kolo_tree *t = &out[seats->rank[k]];
            *t = (struct kolo_tree){k > seats->first[p] ? seats->rank[k - 1]
                                                        : last_at(seats, place[p].up),
                                    {k + 1 < end ? seats->rank[k + 1] : -1, -1, -1}};
            for (int i = 0; i < 3 && k + 1 == end; i++) {
                t->down[i] = first_at(seats, place[p].down[i]);
            }
        }
    }
}

kolo_status kolo_rings_make(const struct kolo_wiring *w, const struct kolo_seats *seats, int nranks,
                            struct kolo_rings *out)
{
    const int pairs = nranks < 2 ? 0 : w->nrings < KOLO_LANES / 2 ? w->nrings : KOLO_LANES / 2;
    const size_t places = (size_t)seats->places, n = (size_t)nranks;
    kolo_status st = kolo_rings_open(nranks, w->nrings, 2 * pairs, out);
    struct kolo_tree *tree = malloc(places * sizeof *tree);
    int *place = malloc(places * sizeof *place);
    if (st == KOLO_OK && (tree == NULL || place == NULL)) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d places", seats->places);
    }
    for (int ring = 0; ring < w->nrings && st == KOLO_OK; ring++) {
        kolo_wiring_ring(w, ring, place);
        fill_ring(seats, place, nranks, out->order + (size_t)ring * n);
    }
    for (int t = 0; t < out->ntrees && st == KOLO_OK; t++) { /* first the first ones of all pairs */
        kolo_wiring_tree(w, t % pairs, t / pairs, tree);
        fill_tree(seats, tree, out->tree + (size_t)t * n);
    }
    free(tree);
    free(place);
    return st;
}

kolo_status kolo_rings_take(struct kolo_comm *c, struct kolo_rings *rings)
{
    const size_t n = (size_t)c->ranks.nranks;
    c->layout.tree = malloc(((size_t)rings->ntrees * n + 1) * sizeof *c->layout.tree);
    if (c->layout.tree == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d trees", rings->ntrees);
    }
    free(c->layout.order);
    c->layout.order = rings->order;
    c->layout.nrings = rings->nrings;
    c->layout.ntrees = rings->ntrees;
    rings->order = NULL;
    for (size_t i = 0; i < (size_t)c->layout.ntrees * n; i++) {
        c->layout.tree[i] = rings->tree[i].up;
    }
    for (int t = 0; t < c->layout.ntrees; t++) {
        c->layout.branch[t] = rings->tree[(size_t)t * n + (size_t)c->ranks.rank];
    }
    return KOLO_OK;
}

void kolo_rings_log(const struct kolo_comm *c, const struct kolo_wiring *w)
{
    struct kolo_text text = {0};
    if (c->ranks.rank != 0 || !kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_GRAPH)) {
        return;
    }
    kolo_wiring_print(w, &text);
    if (text.chars != NULL) {
        text.chars[strcspn(text.chars, "\n")] = '\0';
        KOLO_LOG(INFO, GRAPH, "%s: %s", w->graph->source, text.chars);
    }
    kolo_text_free(&text);
}

/* ---- the machine of a file ---- */

/* Ranks of host h take its GPUs in order, as places; false: some host has more or fewer. */
static bool find_places(const struct kolo_comm *c, int gpus, int *taken, int *place)
{
    bool fits = c->ranks.nhosts * gpus == c->ranks.nranks;
    for (int q = 0; q < c->ranks.nranks && fits; q++) {
        const int host = c->ranks.host_of[q];
        fits = taken[host] < gpus;
        place[q] = host * gpus + taken[host]++;
    }
    return fits;
}

static kolo_status lay_seated(struct kolo_comm *c, const struct kolo_seats *seats)
{
    struct kolo_wiring w;
    struct kolo_rings rings;
    KOLO_TRY(kolo_wiring_make(c->joining.machine, c->ranks.nhosts, &w));
    kolo_status st = kolo_rings_make(&w, seats, c->ranks.nranks, &rings);
    st = st == KOLO_OK ? kolo_rings_take(c, &rings) : st;
    if (st == KOLO_OK) {
        kolo_rings_log(c, &w);
    }
    kolo_rings_free(&rings);
    kolo_wiring_free(&w);
    return st;
}

static kolo_status lay_machine(struct kolo_comm *c, int *taken, int *place)
{
    const int gpus = c->joining.machine->ngpus;
    struct kolo_seats seats;
    if (gpus > KOLO_FABRIC_GPUS_MAX || !find_places(c, gpus, taken, place)) {
        if (c->ranks.rank == 0) {
            KOLO_LOG(INFO, GRAPH,
                     "%s has %d GPUs, and not each host has as many ranks: not planned for",
                     c->joining.machine->source, gpus);
        }
        return KOLO_OK;
    }
    kolo_status st = kolo_seats_make(c->ranks.nranks, place, c->ranks.nranks, &seats);
    st = st == KOLO_OK ? lay_seated(c, &seats) : st;
    kolo_seats_free(&seats);
    return st;
}

kolo_status kolo_rings_lay(struct kolo_comm *c)
{
    if (c->joining.machine == NULL) {
        return KOLO_OK;
    }
    int *taken = calloc((size_t)c->ranks.nhosts, sizeof *taken);
    int *place = malloc((size_t)c->ranks.nranks * sizeof *place);
    const kolo_status st =
        taken != NULL && place != NULL
            ? lay_machine(c, taken, place)
            : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    free(taken);
    free(place);
    kolo_graph_destroy(c->joining.machine);
    c->joining.machine = NULL;
    return st;
}
