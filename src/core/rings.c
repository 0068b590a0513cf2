// SPDX-License-Identifier: Apache-2.0
/* The planner's rings and trees for a communicator. KOLO_TOPO_FILE may name a machine with GPUs; a
 * job that has a rank for each of them, numbered as they are, on every host, is laid on that
 * machine's rings and trees. Every rank plans by itself, from equal graphs, whose hashes are
 * compared when they meet; the planner is deterministic. KOLO_TOPO_DUMP_FILE gets the machine as
 * rank 0 knows it. */
#include "core/join.h"
#include "topology/wiring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kolo_status dump(const struct kolo_graph *graph, const char *path)
{
    struct kolo_text text = {0};
    kolo_graph_write(graph, &text);
    FILE *file = fopen(path, "we");
    const bool written =
        file != NULL && text.chars != NULL && fwrite(text.chars, 1, text.len, file) == text.len;
    const bool closed = file != NULL && fclose(file) == 0;
    kolo_text_free(&text);
    return written && closed ? KOLO_OK
                             : kolo_fail(KOLO_ERR_INVALID, "KOLO_TOPO_DUMP_FILE is \"%s\": %s",
                                         path, strerror(errno));
}

/* The machine of KOLO_TOPO_FILE; for a dump this one too. NULL: neither is asked for. */
static kolo_status find_machine(const struct kolo_comm *c, struct kolo_graph **out)
{
    const char *file = kolo_env("KOLO_TOPO_FILE");
    const char *to = c->rank == 0 ? kolo_env("KOLO_TOPO_DUMP_FILE") : NULL;
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
    c->machine = graph;
    *hash_out = graph != NULL ? kolo_graph_hash(graph) : 0;
    return KOLO_OK;
}

/* Ranks of host h in order into rank_of[h * gpus + i]; false: some host has more or fewer. */
static bool seat_ranks(const struct kolo_comm *c, const int *host_of, int gpus, int *rank_of)
{
    int *seats = calloc((size_t)c->nhosts, sizeof *seats);
    bool fits = seats != NULL && c->nhosts * gpus == c->nranks;
    for (int q = 0; q < c->nranks && fits; q++) {
        const int host = host_of[q];
        fits = seats[host] < gpus;
        if (fits) {
            rank_of[host * gpus + seats[host]++] = q;
        }
    }
    free(seats);
    return fits;
}

/* A ring begins at rank 0, as every order does. */
static void take_ring(const struct kolo_wiring *w, int ring, const int *rank_of, int nranks,
                      int *place, int *order)
{
    int first = 0;
    kolo_wiring_ring(w, ring, place);
    while (rank_of[place[first]] != 0) {
        first++;
    }
    for (int i = 0; i < nranks; i++) {
        order[i] = rank_of[place[(first + i) % nranks]];
    }
}

static kolo_status lay_rings(struct kolo_comm *c, const struct kolo_wiring *w, const int *rank_of,
                             int *place)
{
    const size_t n = (size_t)c->nranks;
    int *order = realloc(c->order, (size_t)w->nrings * n * sizeof *order);
    if (order == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d rings", w->nrings);
    }
    c->order = order;
    c->nrings = w->nrings;
    for (int ring = 0; ring < w->nrings; ring++) {
        take_ring(w, ring, rank_of, c->nranks, place, c->order + (size_t)ring * n);
    }
    return KOLO_OK;
}

static int rank_at(const int *rank_of, int place)
{
    return place >= 0 ? rank_of[place] : -1;
}

/* A pair of trees along each of the first rings, as many as there are lanes for: first all first
 * ones of a pair, as the planner numbers its channels. */
static kolo_status lay_trees(struct kolo_comm *c, const struct kolo_wiring *w, const int *rank_of)
{
    const int pairs = w->nrings < KOLO_LANES / 2 ? w->nrings : KOLO_LANES / 2;
    const size_t n = (size_t)c->nranks;
    struct kolo_tree *tree = malloc(n * sizeof *tree);
    c->tree = malloc(2 * (size_t)pairs * n * sizeof *c->tree);
    if (tree == NULL || c->tree == NULL) {
        free(tree);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d trees", 2 * pairs);
    }
    c->ntrees = 2 * pairs;
    for (int t = 0; t < c->ntrees; t++) {
        kolo_wiring_tree(w, t % pairs, t / pairs, tree);
        for (int i = 0; i < c->nranks; i++) {
            const int *down = tree[i].down;
            c->tree[(size_t)t * n + (size_t)rank_of[i]] = rank_at(rank_of, tree[i].up);
            if (rank_of[i] == c->rank) {
                c->branch[t] =
                    (struct kolo_tree){rank_at(rank_of, tree[i].up),
                                       {rank_at(rank_of, down[0]), rank_at(rank_of, down[1]),
                                        rank_at(rank_of, down[2])}};
            }
        }
    }
    free(tree);
    return KOLO_OK;
}

static void log_verdict(const struct kolo_wiring *w)
{
    struct kolo_text text = {0};
    kolo_wiring_print(w, &text);
    if (text.chars != NULL) {
        text.chars[strcspn(text.chars, "\n")] = '\0';
        KOLO_LOG(INFO, GRAPH, "%s: %s", w->graph->source, text.chars);
    }
    kolo_text_free(&text);
}

static kolo_status lay(struct kolo_comm *c, const struct kolo_wiring *w, const int *rank_of,
                       int *place)
{
    KOLO_TRY(lay_rings(c, w, rank_of, place));
    KOLO_TRY(c->nranks > 1 ? lay_trees(c, w, rank_of) : KOLO_OK);
    if (c->rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_GRAPH)) {
        log_verdict(w);
    }
    return KOLO_OK;
}

static kolo_status lay_machine(struct kolo_comm *c, const int *host_of)
{
    const int gpus = c->machine->ngpus;
    struct kolo_wiring w;
    int *rank_of = malloc(2 * (size_t)c->nranks * sizeof *rank_of);
    kolo_status st = rank_of != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->nranks);
    if (st == KOLO_OK && gpus <= KOLO_FABRIC_GPUS_MAX && seat_ranks(c, host_of, gpus, rank_of)) {
        st = kolo_wiring_make(c->machine, c->nhosts, &w);
        if (st == KOLO_OK) {
            st = lay(c, &w, rank_of, rank_of + c->nranks);
            kolo_wiring_free(&w);
        }
    } else if (st == KOLO_OK && c->rank == 0) {
        KOLO_LOG(INFO, GRAPH,
                 "%s has %d GPUs, and not each host has as many ranks: not planned for",
                 c->machine->source, gpus);
    }
    free(rank_of);
    return st;
}

kolo_status kolo_rings_lay(struct kolo_comm *c, const int *host_of)
{
    c->nrings = 1;
    if (c->machine == NULL) {
        return KOLO_OK;
    }
    const kolo_status st = lay_machine(c, host_of);
    kolo_graph_destroy(c->machine);
    c->machine = NULL;
    return st;
}
