// SPDX-License-Identifier: Apache-2.0
/* One simulation from its options to its result: programs, folding, memory, and the steady state of
 * calls with many tiles. */
#include "sim/engine.h"
#include "sim/program/fold.h"

#include <math.h>
#include <stdlib.h>

/* Lines and short slots come round every KOLO_DEPTH tiles, so the steady state has this period. */
enum { PERIOD = KOLO_DEPTH, MANY_TILES = 2 * PERIOD + 4, FEW_TILES = 4 + 3 * KOLO_LONG_DEPTH };
static const size_t MOST_OPS = 20 * 1000 * 1000; /* with more, only few tiles are simulated */

static size_t count_ops(const struct kolo_sim *s)
{
    size_t ops = 0;
    for (int r = 0; r < s->n; r++) {
        ops += (size_t)kolo_sim_prog_at(s, r)->nops;
    }
    return ops;
}

static uint32_t tiles_to_walk(const struct kolo_sim *s)
{
    const uint32_t most = count_ops(s) * MANY_TILES <= MOST_OPS ? MANY_TILES : FEW_TILES;
    return s->set.tiles < most ? s->set.tiles : most;
}

static bool open_facts(struct kolo_sim *s)
{
    size_t facts = 0, peers = 0;
    s->fact_first = malloc((size_t)s->n * sizeof *s->fact_first);
    for (int r = 0; s->fact_first != NULL && r < s->n; r++) {
        const struct kolo_sim_prog *p = kolo_sim_prog_at(s, r);
        s->fact_first[r] = facts;
        facts += (size_t)s->tiles * (size_t)(p->nphases + p->nreqs + 1);
        peers = (size_t)s->set.member[r].peer + (size_t)p->npeers;
    }
    s->fact = malloc((facts + 1) * sizeof *s->fact);
    s->connection = malloc((peers + 1) * sizeof *s->connection);
    s->by = s->options->moments ? malloc((facts + 1) * sizeof *s->by) : NULL;
    if (s->fact_first == NULL || s->fact == NULL || s->connection == NULL ||
        (s->options->moments && s->by == NULL)) {
        return false;
    }
    for (size_t i = 0; i < facts; i++) {
        s->fact[i] = INFINITY;
    }
    for (size_t i = 0; i < facts && s->by != NULL; i++) {
        s->by[i] = -1;
    }
    for (size_t i = 0; i < peers; i++) {
        s->connection[i] = -1;
    }
    return true;
}

static int count_cores(const struct kolo_sim *s)
{
    return s->place.cores > 0 ? s->place.nhosts * s->place.cores : s->n;
}

static kolo_status open_memory(struct kolo_sim *s)
{
    const size_t n = (size_t)s->n, cores = (size_t)count_cores(s);
    for (int i = 0; i < s->set.nprogs; i++) {
        s->lanes = s->set.prog[i]->nlanes > s->lanes ? s->set.prog[i]->nlanes : s->lanes;
    }
    s->tiles = tiles_to_walk(s);
    s->lane = calloc(n * (size_t)s->lanes, sizeof *s->lane);
    s->core = calloc(cores, sizeof *s->core);
    s->waiters = malloc(n * sizeof *s->waiters);
    if (!open_facts(s) || !kolo_sim_wire_open(s) || s->lane == NULL || s->core == NULL ||
        s->waiters == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory to simulate %d ranks", s->n);
    }
    for (size_t i = 0; i < n; i++) {
        s->waiters[i] = -1;
    }
    for (size_t i = 0; i < cores; i++) {
        s->core[i] = (struct kolo_sim_core){.owner = -1, .last_rank = -1, .first = -1, .last = -1};
    }
    return KOLO_OK;
}

static void close_memory(struct kolo_sim *s)
{
    kolo_sim_flows_close(&s->flows);
    free(s->lane);
    free(s->core);
    free(s->nic);
    free(s->fact_first);
    free(s->fact);
    free(s->by);
    free(s->waiters);
    free(s->connection);
    free(s->message);
    free(s->ready);
    free(s->events.heap);
    free(s->moment);
}

/* ---- the result ---- */

/* When the last rank has done this tile. */
static double tile_end_us(const struct kolo_sim *s, uint32_t tile)
{
    double last = 0;
    for (int r = 0; r < s->n; r++) {
        const double us = s->fact[kolo_sim_done_fact(s, r, tile)];
        last = us > last ? us : last;
    }
    return last;
}

static void find_total(const struct kolo_sim *s, struct kolo_sim_result *out)
{
    const uint32_t walked = s->tiles, tiles = s->set.tiles;
    for (int i = 0; i < s->n * s->lanes; i++) {
        const double us = s->lane[i].now_us;
        out->total_us = us > out->total_us ? us : out->total_us;
    }
    if (walked < tiles) {
        const uint32_t period = walked == MANY_TILES ? PERIOD : KOLO_LONG_DEPTH;
        const double before = tile_end_us(s, walked - 2 - period);
        out->tile_us = (tile_end_us(s, walked - 2) - before) / period;
        out->total_us += out->tile_us * (tiles - walked);
    }
}

static double link_us(const struct kolo_sim *s, int link)
{
    const struct kolo_sim_link *l = &s->flows.link[link];
    return l->rate > 0 ? l->bytes / l->rate : 0;
}

static void find_busiest(const struct kolo_sim *s, struct kolo_sim_result *out)
{
    for (int r = 0; r < s->n; r++) {
        const int cores = s->place.cores, per = s->place.per_host;
        const int core = cores > 0 ? r / per * cores + r % per % cores : r;
        const double us = s->core[core].work_us;
        out->busiest_us = us > out->busiest_us ? us : out->busiest_us;
    }
    for (int i = 0; i < 2 * s->nnics; i++) {
        const double us = link_us(s, i);
        out->wire_us = us > out->wire_us ? us : out->wire_us;
    }
}

/* Tiles that are not simulated use links and cores as the others do on average. */
static kolo_status find_use(const struct kolo_sim *s, struct kolo_sim_use *out)
{
    const int nlinks = s->flows.nlinks;
    const double part = (double)s->set.tiles / s->tiles;
    *out = (struct kolo_sim_use){
        .nnics = s->nnics, .nleaves = nlinks / 2 - s->nnics, .ncores = count_cores(s)};
    out->link_us = malloc((size_t)nlinks * sizeof *out->link_us);
    out->core_us = malloc((size_t)out->ncores * sizeof *out->core_us);
    if (out->link_us == NULL || out->core_us == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d links", nlinks);
    }
    for (int i = 0; i < nlinks; i++) {
        out->link_us[i] = part * link_us(s, i);
    }
    for (int i = 0; i < out->ncores; i++) {
        out->core_us[i] = part * s->core[i].work_us;
    }
    return KOLO_OK;
}

static void find_last(struct kolo_sim_result *out)
{
    for (int i = 0; i < out->nmoments; i++) {
        if (out->last < 0 || out->moment[i].end_us > out->moment[out->last].end_us) {
            out->last = i;
        }
    }
}

static void take_result(struct kolo_sim *s, struct kolo_sim_result *out)
{
    *out = (struct kolo_sim_result){.tiles = s->set.tiles,
                                    .walked = s->tiles,
                                    .simulated = s->n,
                                    .programs = s->set.nprogs,
                                    .steps = s->set.steps,
                                    .events = s->nevents,
                                    .moment = s->moment,
                                    .nmoments = s->nmoments,
                                    .last = -1};
    s->moment = NULL;
    find_total(s, out);
    find_busiest(s, out);
    find_last(out);
    if (s->options->moments) {
        out->set = s->set;
        s->set = (struct kolo_sim_set){0};
    }
}

kolo_status kolo_sim_run(const struct kolo_sim_options *options, struct kolo_sim_result *out)
{
    struct kolo_sim s = {.options = options, .machine = options->machine, .lanes = 1};
    KOLO_TRY(kolo_sim_place_open(options->machine, options->nranks, &s.place));
    s.costs = &s.place.model.costs;
    kolo_status st = kolo_sim_set_make(options->algo, &s.place, options->root, options->bytes,
                                       options->tile_bytes, &s.set);
    if (st == KOLO_OK) {
        s.n = options->fold ? kolo_sim_fold(&s.set, &s.place) : options->nranks;
        st = open_memory(&s);
    }
    st = st == KOLO_OK ? kolo_sim_engine(&s) : st;
    if (st == KOLO_OK) {
        take_result(&s, out);
        st = options->use ? find_use(&s, &out->use) : KOLO_OK;
    }
    close_memory(&s);
    kolo_sim_set_free(&s.set);
    kolo_sim_place_close(&s.place);
    return st;
}

void kolo_sim_result_free(struct kolo_sim_result *result)
{
    free(result->moment);
    free(result->use.link_us);
    free(result->use.core_us);
    kolo_sim_set_free(&result->set);
    result->use = (struct kolo_sim_use){0};
    result->moment = NULL;
    result->nmoments = 0;
    result->last = -1;
}
