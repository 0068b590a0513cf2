// SPDX-License-Identifier: Apache-2.0
/* The prover: a visitor of the walk that moves symbols (symbol.h), and checks the order of lanes
 * (race.h) and the claims of messages (claim.h).
 *
 * A rank's memory is a row of locations: its OUT chunks, its IN chunks, its SCRATCH chunks. In
 * place, an IN chunk has the location of the OUT chunk that it shares.
 *
 * The run out of place and the run in place use one set of symbols. Each message must carry the
 * same symbols in both runs. So a rank cannot tell whether its peers are in place, and the two runs
 * stand for every mixture.
 *
 * Local clocks order the accesses of most plans, and cost little. A run that they leave with two
 * unordered accesses begins again with whole clocks, which decide.
 */
#include "plan/verify/verify.h"

#include "plan/verify/claim.h"
#include "plan/verify/race.h"
#include "plan/verify/symbol.h"
#include "plan/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct home { /* where a rank's buffers begin among all locations, and their chunks */
    int first[KOLO_BUFS], chunks[KOLO_BUFS];
};

struct prover {
    const struct kolo_plan *plan;
    struct kolo_order order;
    struct kolo_symbols symbols;
    struct kolo_clocks clocks;
    struct kolo_plan_claims claims;
    bool timed;    /* clocks are kept */
    bool whole;    /* the clocks must be whole */
    bool in_place; /* this run */
    int locations;
    struct home *home; /* [nranks] */
    kolo_symbol *cell; /* [locations] */
    int *wire_first;   /* [messages]: index into wire */
    kolo_symbol *wire; /* the symbols that messages carry, chunk by chunk */
};

static const char *const buf_names[KOLO_BUFS] = {"in", "out", "scratch"};

/* ---- one step ---- */

static int location_of(const struct prover *p, int rank, unsigned buf, int chunk)
{
    const struct home *home = &p->home[rank];
    if (buf == KOLO_IN && p->in_place) {
        const int alias = kolo_alias_out_chunk(p->plan, rank, chunk);
        if (alias >= 0) {
            return home->first[KOLO_OUT] + alias;
        }
    }
    return home->first[buf] + chunk;
}

static kolo_status check_bounds(const struct prover *p, const struct kolo_event *e,
                                struct kolo_slice s)
{
    if (s.count == 0) {
        return KOLO_OK;
    }
    const int chunks = s.buf < KOLO_BUFS ? p->home[e->rank].chunks[s.buf] : 0;
    if ((uint64_t)s.first + s.count > (uint64_t)chunks) {
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "chunks %u to %u are out of bounds: rank %d has %d of that buffer",
                                s.first, s.first + s.count - 1, e->rank, chunks);
    }
    return KOLO_OK;
}

static kolo_status check_race(struct prover *p, const struct kolo_event *e, int at, bool write)
{
    if (!p->timed || p->plan->lanes == 1) {
        return KOLO_OK;
    }
    const int other = kolo_clocks_access(&p->clocks, e, at, write);
    if (other < 0) {
        return KOLO_OK;
    }
    if (!p->whole) {
        p->whole = true; /* end this run; prove_plan begins another */
        return KOLO_ERR_INVALID;
    }
    return kolo_step_refuse(
        p->plan, e->rank, e->index,
        "%s a chunk that step %d of lane %d uses too, and nothing orders them%s",
        write ? "writes" : "reads", other, p->plan->rank[e->rank].step[other].lane,
        p->in_place ? " in place" : "");
}

/* Read chunk i of slice s at this rank. The caller has checked the bounds. */
static kolo_status read_chunk(struct prover *p, const struct kolo_event *e, struct kolo_slice s,
                              int i, kolo_symbol *out)
{
    const int at = location_of(p, e->rank, s.buf, (int)s.first + i);
    if (p->cell[at] == KOLO_UNWRITTEN) {
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "reads %s[%d], which nothing has written", buf_names[s.buf],
                                (int)s.first + i);
    }
    KOLO_TRY(check_race(p, e, at, false));
    if (e->step->op == KOLO_SEND) {
        KOLO_TRY(kolo_claims_send(&p->claims, e, at, i, p->cell[at]));
    } else {
        kolo_claims_read(&p->claims, at);
    }
    *out = p->cell[at];
    return KOLO_OK;
}

static kolo_status write_chunk(struct prover *p, const struct kolo_event *e, int i,
                               kolo_symbol symbol)
{
    const struct kolo_slice d = e->step->dst;
    const int at = location_of(p, e->rank, d.buf, (int)d.first + i);
    KOLO_TRY(check_race(p, e, at, true));
    KOLO_TRY(kolo_claims_write(&p->claims, e, at));
    p->cell[at] = symbol;
    return KOLO_OK;
}

static kolo_status refuse_sum(const struct prover *p, const struct kolo_event *e,
                              enum kolo_sum_error error, kolo_symbol left, kolo_symbol right)
{
    char a[160];
    char b[160];
    kolo_symbol_print(&p->symbols, left, a, sizeof a);
    kolo_symbol_print(&p->symbols, right, b, sizeof b);
    switch (error) {
    case KOLO_SUM_CHUNKS:
        return kolo_step_refuse(p->plan, e->rank, e->index, "adds different chunks: %s and %s", a,
                                b);
    case KOLO_SUM_TWICE:
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "adds the contribution of rank %d twice: %s and %s",
                                kolo_symbol_common(&p->symbols, left, right), a, b);
    case KOLO_SUM_AFTER_LAST:
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "adds to what is complete already: %s and %s", a, b);
    case KOLO_SUM_NOT_LAST:
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "completes the reduction but is not LAST: %s and %s", a, b);
    case KOLO_SUM_EARLY_LAST:
        return kolo_step_refuse(p->plan, e->rank, e->index,
                                "is LAST, but not all ranks are in %s and %s", a, b);
    default:
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", p->plan->algo->base.name);
    }
}

/* Add the arriving `symbol` to chunk i of the destination. */
static kolo_status add_chunk(struct prover *p, const struct kolo_event *e, int i,
                             kolo_symbol symbol)
{
    const bool to_left = (e->step->flags & KOLO_STEP_LEFT) != 0;
    kolo_symbol old = KOLO_UNWRITTEN;
    kolo_symbol sum = KOLO_UNWRITTEN;
    KOLO_TRY(read_chunk(p, e, e->step->dst, i, &old));
    const kolo_symbol left = to_left ? symbol : old;
    const kolo_symbol right = to_left ? old : symbol;
    const enum kolo_sum_error error =
        kolo_symbol_add(&p->symbols, left, right, (e->step->flags & KOLO_STEP_LAST) != 0, &sum);
    if (error != KOLO_SUM_OK) {
        return refuse_sum(p, e, error, left, right);
    }
    return write_chunk(p, e, i, sum);
}

static kolo_status send_chunks(struct prover *p, const struct kolo_event *e)
{
    KOLO_TRY(check_bounds(p, e, e->step->src));
    for (int i = 0; i < e->step->src.count; i++) {
        kolo_symbol *wire = &p->wire[p->wire_first[e->message] + i];
        kolo_symbol symbol = KOLO_UNWRITTEN;
        KOLO_TRY(read_chunk(p, e, e->step->src, i, &symbol));
        if (p->in_place && *wire != symbol) {
            char a[160];
            char b[160];
            kolo_symbol_print(&p->symbols, symbol, a, sizeof a);
            kolo_symbol_print(&p->symbols, *wire, b, sizeof b);
            return kolo_step_refuse(p->plan, e->rank, e->index,
                                    "sends %s in place, but %s out of place", a, b);
        }
        *wire = symbol;
    }
    return KOLO_OK;
}

/* A local step may work on a slice and itself, but not on two that overlap otherwise. */
static kolo_status check_overlap(const struct prover *p, const struct kolo_event *e)
{
    const struct kolo_slice s = e->step->src;
    const struct kolo_slice d = e->step->dst;
    const int to = d.count > 0 ? location_of(p, e->rank, d.buf, (int)d.first) : 0;
    for (int i = 0; i < s.count; i++) {
        const int j = location_of(p, e->rank, s.buf, (int)s.first + i) - to;
        if (j >= 0 && j < d.count && j != i) {
            return kolo_step_refuse(p->plan, e->rank, e->index,
                                    "source and destination overlap by a part%s",
                                    p->in_place ? " in place" : "");
        }
    }
    return KOLO_OK;
}

static kolo_status write_chunks(struct prover *p, const struct kolo_event *e)
{
    const struct kolo_step *s = e->step;
    const bool local = s->op == KOLO_COPY || s->op == KOLO_REDUCE;
    const bool adds = s->op == KOLO_RECV_REDUCE || s->op == KOLO_REDUCE;
    KOLO_TRY(check_bounds(p, e, s->dst));
    if (s->dst.buf == KOLO_IN && s->dst.count > 0) {
        return kolo_step_refuse(p->plan, e->rank, e->index, "writes in[%u]; IN is never written",
                                s->dst.first);
    }
    if (local) {
        KOLO_TRY(check_bounds(p, e, s->src));
        KOLO_TRY(check_overlap(p, e));
    }
    if (s->op == KOLO_COPY && s->dst.count > 0 &&
        location_of(p, e->rank, s->src.buf, (int)s->src.first) ==
            location_of(p, e->rank, s->dst.buf, (int)s->dst.first)) {
        return KOLO_OK; /* in place, onto itself: executors skip it */
    }
    for (int i = 0; i < s->dst.count; i++) {
        kolo_symbol symbol = KOLO_UNWRITTEN;
        if (local) {
            KOLO_TRY(read_chunk(p, e, s->src, i, &symbol));
        } else {
            symbol = p->wire[p->wire_first[e->message] + i];
        }
        KOLO_TRY(adds ? add_chunk(p, e, i, symbol) : write_chunk(p, e, i, symbol));
    }
    return KOLO_OK;
}

static kolo_status prove_event(void *ctx, const struct kolo_event *e)
{
    struct prover *p = ctx;
    if (p->timed) {
        kolo_clocks_step(&p->clocks, e);
    }
    return e->step->op == KOLO_SEND ? send_chunks(p, e) : write_chunks(p, e);
}

static const struct kolo_visitor prover_visitor = {prove_event};

/* ---- the end ---- */

/* The leaf that the collective promises in chunk `chunk` of OUT at `rank`; 0 if it reduces. */
static kolo_symbol promised_leaf(const struct prover *p, int rank, int chunk)
{
    const int root = p->plan->shape.root;
    switch (p->plan->shape.coll) {
    case KOLO_COLL_BROADCAST:
        return kolo_symbol_leaf(&p->symbols, root, chunk);
    case KOLO_COLL_SCATTER:
        return kolo_symbol_leaf(&p->symbols, root, rank);
    case KOLO_COLL_GATHER:
    case KOLO_COLL_ALL_GATHER:
        return kolo_symbol_leaf(&p->symbols, chunk, 0);
    case KOLO_COLL_ALL_TO_ALL:
        return kolo_symbol_leaf(&p->symbols, chunk, rank);
    default:
        return KOLO_UNWRITTEN;
    }
}

static kolo_status refuse_output(const struct prover *p, int rank, int chunk, const char *wanted)
{
    char found[256];
    kolo_symbol_print(&p->symbols, p->cell[location_of(p, rank, KOLO_OUT, chunk)], found,
                      sizeof found);
    return kolo_fail(KOLO_ERR_INVALID,
                     "%s, %d ranks, root %d: at the end out[%d] of rank %d holds %s, expected %s%s",
                     p->plan->algo->base.name, p->plan->shape.nranks, p->plan->shape.root, chunk,
                     rank, found, wanted, p->in_place ? ", in place" : "");
}

static kolo_status check_moved(const struct prover *p, int rank, int chunk)
{
    const kolo_symbol want = promised_leaf(p, rank, chunk);
    char text[64];
    if (p->cell[location_of(p, rank, KOLO_OUT, chunk)] == want) {
        return KOLO_OK;
    }
    kolo_symbol_print(&p->symbols, want, text, sizeof text);
    return refuse_output(p, rank, chunk, text);
}

/* Check a reduced chunk. It must be complete, and have rank 0's expression if rank 0 has one. */
static kolo_status check_reduced(const struct prover *p, int rank, int chunk)
{
    const enum kolo_coll coll = p->plan->shape.coll;
    const int of = coll == KOLO_COLL_REDUCE_SCATTER ? rank : chunk;
    const kolo_symbol found = p->cell[location_of(p, rank, KOLO_OUT, chunk)];
    char text[320];
    if (!kolo_symbol_complete(&p->symbols, found, of)) {
        (void)snprintf(text, sizeof text, "the sum of chunk %d over all ranks", of);
        return refuse_output(p, rank, chunk, text);
    }
    if (coll != KOLO_COLL_ALL_REDUCE) {
        return KOLO_OK;
    }
    const kolo_symbol first = p->cell[location_of(p, 0, KOLO_OUT, chunk)];
    if (found != first) {
        char same[256];
        kolo_symbol_print(&p->symbols, first, same, sizeof same);
        (void)snprintf(text, sizeof text, "rank 0's expression %s", same);
        return refuse_output(p, rank, chunk, text);
    }
    return KOLO_OK;
}

static kolo_status check_barrier(const struct prover *p)
{
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        const int unknown = kolo_clocks_unknown(&p->clocks, r);
        if (unknown >= 0) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "%s, %d ranks: rank %d can leave the barrier before rank %d enters it",
                             p->plan->algo->base.name, p->plan->shape.nranks, r, unknown);
        }
    }
    return KOLO_OK;
}

static kolo_status check_outputs(const struct prover *p)
{
    const bool reduces = kolo_coll_reduces(p->plan->shape.coll);
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        for (int c = 0; c < p->home[r].chunks[KOLO_OUT]; c++) {
            KOLO_TRY(reduces ? check_reduced(p, r, c) : check_moved(p, r, c));
        }
    }
    return p->plan->shape.coll == KOLO_COLL_BARRIER ? check_barrier(p) : KOLO_OK;
}

/* ---- a run ---- */

static void place_buffers(struct prover *p)
{
    static const enum kolo_buf row[KOLO_BUFS] = {KOLO_OUT, KOLO_IN, KOLO_SCRATCH};
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        for (int b = 0; b < KOLO_BUFS; b++) {
            p->home[r].first[row[b]] = p->locations;
            p->home[r].chunks[row[b]] = kolo_plan_buf_chunks(p->plan, r, row[b]);
            p->locations += p->home[r].chunks[row[b]];
        }
    }
}

static bool lay_wires(struct prover *p)
{
    const struct kolo_order *o = &p->order;
    int chunks = 0;
    p->wire_first = malloc(((size_t)o->messages + 1) * sizeof *p->wire_first);
    if (p->wire_first == NULL) {
        return false;
    }
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        for (int i = 0; i < p->plan->rank[r].count; i++) {
            if (p->plan->rank[r].step[i].op == KOLO_SEND) {
                p->wire_first[o->message[o->base[r] + i]] = chunks;
                chunks += p->plan->rank[r].step[i].src.count;
            }
        }
    }
    p->wire = calloc((size_t)chunks + 1, sizeof *p->wire);
    return p->wire != NULL;
}

static bool prover_open(struct prover *p)
{
    p->home = malloc((size_t)p->plan->shape.nranks * sizeof *p->home);
    if (p->home == NULL) {
        return false;
    }
    place_buffers(p);
    p->cell = malloc(((size_t)p->locations + 1) * sizeof *p->cell);
    p->whole = p->plan->shape.coll == KOLO_COLL_BARRIER;
    p->timed = p->plan->lanes > 1 || p->whole;
    return p->cell != NULL && lay_wires(p) && kolo_symbols_init(&p->symbols, p->plan);
}

static void prover_close(struct prover *p)
{
    kolo_symbols_free(&p->symbols);
    kolo_order_destroy(&p->order);
    free(p->home);
    free(p->cell);
    free(p->wire_first);
    free(p->wire);
}

static void fill_inputs(struct prover *p)
{
    memset(p->cell, 0, (size_t)p->locations * sizeof *p->cell);
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        for (int c = 0; c < p->home[r].chunks[KOLO_IN]; c++) {
            p->cell[location_of(p, r, KOLO_IN, c)] = kolo_symbol_leaf(&p->symbols, r, c);
        }
    }
}

static kolo_status run_plan(struct prover *p)
{
    kolo_status status = KOLO_OK;
    fill_inputs(p);
    const bool claims = kolo_claims_init(&p->claims, &p->order, p->locations);
    const bool clocks =
        !p->timed || kolo_clocks_init(&p->clocks, &p->order, p->locations, p->whole);
    if (!claims || !clocks) {
        status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", p->plan->algo->base.name);
    } else {
        status = kolo_order_walk(&p->order, 1, 1, &prover_visitor, p);
    }
    if (status == KOLO_OK) {
        status = check_outputs(p);
    }
    kolo_claims_free(&p->claims);
    if (p->timed) {
        kolo_clocks_free(&p->clocks);
    }
    return status;
}

static kolo_status prove_plan(struct prover *p, bool in_place)
{
    const bool whole = p->whole;
    p->in_place = in_place;
    const kolo_status status = run_plan(p);
    return p->whole == whole ? status : run_plan(p);
}

static kolo_status prover_start(struct prover *p)
{
    KOLO_TRY(kolo_order_create(p->plan, &p->order));
    if (!prover_open(p)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", p->plan->algo->base.name);
    }
    return prove_plan(p, false);
}

kolo_status kolo_verify_plan(const struct kolo_plan *plan)
{
    struct prover p = {.plan = plan};
    kolo_status status = prover_start(&p);
    if (status == KOLO_OK && plan->shape.coll != KOLO_COLL_BARRIER) {
        status = prove_plan(&p, true);
    }
    prover_close(&p);
    return status;
}

static bool outputs_in_rank_order(const struct prover *p)
{
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        for (int c = 0; c < p->home[r].chunks[KOLO_OUT]; c++) {
            if (!kolo_symbol_in_rank_order(&p->symbols, p->cell[location_of(p, r, KOLO_OUT, c)])) {
                return false;
            }
        }
    }
    return true;
}

kolo_status kolo_verify_expression(const struct kolo_plan *plan, bool *rank_order)
{
    struct prover p = {.plan = plan};
    const kolo_status status = prover_start(&p);
    if (status == KOLO_OK) {
        *rank_order = !kolo_coll_reduces(plan->shape.coll) || outputs_in_rank_order(&p);
    }
    prover_close(&p);
    return status;
}
