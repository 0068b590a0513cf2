// SPDX-License-Identifier: Apache-2.0
/* Lowering of all ranks, as the executor would lower each.
 *
 * - Up to KOLO_SIM_WHOLE_RANKS ranks, a rank lowers the whole plan.
 * - With more, it lowers its own steps alone. The ranks that these name are numbered anew, so that
 *   the cost does not grow with the number of all ranks.
 */
#include "sim/program/program.h"

#include "exec/cpu/bound.h"
#include "exec/lower/extents.h"
#include "sim/program/match.h"
#include "sim/program/size.h"
#include "sim/program/twins.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    const struct kolo_sim_place *place;
    struct kolo_plan *plan; /* of all ranks */
    struct kolo_extents extents;
    size_t piece;
    uint32_t tiles;
    int me;
    int *local;    /* [nranks]: partner number of a rank, or -1 */
    int *partner;  /* [npartners] ranks */
    int npartners; /* of this rank */
    bool small;    /* the program numbers partners, not ranks: partner i is 1 + i */
    uint8_t *link; /* [nranks + 1] */
    struct kolo_sim_set *set;
    int *table; /* hash table of programs: number + 1 */
    int slots;
    struct kolo_sim_twins twins;
    struct kolo_plan alone; /* of one rank; its lowered program points to it */
    size_t npeers, nsources, peers_cap, sources_cap;
};

/* ---- partners ---- */

static int partner_of(struct maker *m, int rank)
{
    if (m->local[rank] < 0) {
        m->local[rank] = m->npartners;
        m->partner[m->npartners++] = rank;
    }
    return m->local[rank];
}

/* The partner that a program means by rank `id`. */
static int partner_in(struct maker *m, int id)
{
    return m->small ? id - 1 : partner_of(m, id);
}

static void forget_partners(struct maker *m)
{
    for (int i = 0; i < m->npartners; i++) {
        m->local[m->partner[i]] = -1;
    }
    m->npartners = 0;
}

static uint8_t link_to(const struct maker *m, int rank)
{
    const bool near = kolo_sim_host_of(m->place, m->me) == kolo_sim_host_of(m->place, rank);
    return near ? KOLO_LINK_MAP : 0;
}

/* ---- lowering ---- */

static kolo_status lower_whole(struct maker *m, struct kolo_prog **out)
{
    m->small = false;
    for (int r = 0; r < m->plan->shape.nranks; r++) {
        m->link[r] = r != m->me ? link_to(m, r) : 0;
    }
    return kolo_lower(m->plan, m->me, m->link, out);
}

/* A sum's left operand changes what is lowered only where it may join the step before. Elsewhere the
 * order of operands costs no time, and ranks that differ in it alone are twins. */
static void forget_order(const struct kolo_rank_plan *mine)
{
    for (int i = 0; i < mine->count; i++) {
        const struct kolo_step *before = &mine->step[i > 0 ? i - 1 : 0];
        const bool apart = i == 0 || before->op == KOLO_SEND || before->op == KOLO_COPY ||
                           memcmp(&before->dst, &mine->step[i].dst, sizeof before->dst) != 0;
        mine->step[i].flags &= (uint8_t)(apart ? ~KOLO_STEP_LEFT : ~0);
    }
}

/* Number this rank as 0 and its partners from 1 on, in its own steps. */
static struct kolo_sim_steps number_partners(struct maker *m)
{
    const struct kolo_rank_plan *mine = &m->plan->rank[m->me];
    m->small = true;
    for (int i = 0; i < mine->count; i++) {
        struct kolo_step *step = &mine->step[i];
        step->peer = step->peer < 0 ? -1 : 1 + partner_of(m, step->peer);
    }
    for (int i = 0; i < m->npartners; i++) {
        m->link[1 + i] = link_to(m, m->partner[i]);
    }
    if (m->plan->lanes == 1) {
        forget_order(mine);
    }
    return (struct kolo_sim_steps){mine, m->link + 1, m->npartners};
}

/* Lower this rank's steps in a plan of this rank and its partners. */
static kolo_status lower_alone(struct maker *m, struct kolo_prog **out)
{
    m->alone = *m->plan;
    m->alone.only = m->me;
    m->alone.shape.nranks = 1 + m->npartners;
    m->alone.rank = calloc(1 + (size_t)m->npartners, sizeof *m->alone.rank);
    if (m->alone.rank == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", m->npartners);
    }
    m->alone.rank[0] = m->plan->rank[m->me];
    return kolo_lower(&m->alone, 0, m->link, out);
}

/* ---- from exec's program to ours ---- */

static void set_bytes(struct maker *m, const struct kolo_prog *from, const struct kolo_uop *op,
                      struct kolo_sim_op *to)
{
    const size_t before = m->piece * (m->tiles - 1);
    for (uint32_t j = 0; j < op->count; j++) {
        const size_t chunk = kolo_uop_bytes(from, &m->extents, op, j);
        to->bytes += kolo_min(chunk, m->piece);
        to->last_bytes += chunk > before ? kolo_min(chunk - before, m->piece) : 0;
    }
}

/* The operands of an op that are about other ranks. */
static void set_refs(struct maker *m, const struct kolo_prog *from, const struct kolo_uop *op,
                     struct kolo_sim_prog *p, struct kolo_sim_op *to)
{
    const uint32_t operands = (uint32_t)op->nsrc + op->ndst;
    to->ref = (uint32_t)p->nrefs;
    for (uint32_t i = 0; i < operands; i++) {
        const struct kolo_at *at = &from->at[op->first + i];
        struct kolo_sim_ref *ref = &p->ref[p->nrefs];
        if (op->code == KOLO_DO_TAKEN) {
            *ref = (struct kolo_sim_ref){.what = at->index};
        } else if (at->rank < 0 || at->rank == from->me) {
            const bool out = at->space == KOLO_AT_OUTBOX && op->code == KOLO_DO_MOVE;
            to->outs = (uint8_t)(to->outs + out);
            to->came += at->space == KOLO_AT_STAGE && i < op->nsrc && op->code == KOLO_DO_MOVE;
            continue;
        } else {
            *ref = (struct kolo_sim_ref){partner_in(m, at->rank), at->phase};
        }
        p->nrefs++;
    }
    to->nrefs = (uint16_t)((uint32_t)p->nrefs - to->ref);
}

static void take_op(struct maker *m, const struct kolo_prog *from, uint32_t i,
                    struct kolo_sim_prog *p)
{
    const struct kolo_uop *op = &from->op[i];
    struct kolo_sim_op *to = &p->op[i];
    to->code = op->code;
    to->nsrc = op->nsrc;
    to->ndst = op->ndst;
    to->index = op->code == KOLO_DO_SIGNAL ? from->at[op->first].phase : op->index;
    to->peer =
        op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV ? partner_in(m, op->peer) : op->peer;
    if (op->code == KOLO_DO_MOVE || op->code == KOLO_DO_SEND || op->code == KOLO_DO_RECV) {
        set_bytes(m, from, op, to);
        to->ref = op->channel;
    }
    if (op->code == KOLO_DO_RECV) {
        p->taken_bytes[op->index] = to->bytes;
        p->taken_bytes[from->nreqs + op->index] = to->last_bytes;
    }
    if (op->code != KOLO_DO_SEND && op->code != KOLO_DO_RECV && op->code != KOLO_DO_SIGNAL) {
        set_refs(m, from, op, p, to);
    }
}

/* The sender of each request that a TAKEN names stands in its RECV. */
static void name_senders(struct kolo_sim_prog *p)
{
    for (int i = 0; i < p->nops; i++) {
        const struct kolo_sim_op *taken = &p->op[i];
        for (int k = 0; taken->code == KOLO_DO_TAKEN && k < taken->nrefs; k++) {
            struct kolo_sim_ref *ref = &p->ref[taken->ref + (uint32_t)k];
            for (int j = i - 1; j >= 0; j--) {
                if (p->op[j].code == KOLO_DO_RECV && p->op[j].index == ref->what) {
                    ref->peer = p->op[j].peer;
                    break;
                }
            }
        }
    }
}

static struct kolo_sim_prog *convert(struct maker *m, const struct kolo_prog *from)
{
    /* One block, so that equal programs are equal bytes. */
    const size_t ops = from->nops * sizeof(struct kolo_sim_op);
    const size_t refs = from->nats * sizeof(struct kolo_sim_ref);
    const size_t taken = 2 * (size_t)from->nreqs * sizeof(uint64_t);
    const size_t readers = (size_t)from->nreaders * sizeof(int);
    struct kolo_sim_prog *p = calloc(1, sizeof *p + ops + taken + refs + readers);
    if (p == NULL) {
        return NULL;
    }
    p->nlanes = from->nlanes;
    p->nops = (int)from->nops;
    p->nreqs = (int)from->nreqs;
    p->nphases = m->plan->rank[m->me].phases;
    p->fills_outbox = from->fills_outbox;
    memcpy(p->lane, from->lane, sizeof p->lane);
    p->op = (struct kolo_sim_op *)(p + 1);
    p->taken_bytes = (uint64_t *)((char *)p->op + ops);
    p->ref = (struct kolo_sim_ref *)((char *)p->taken_bytes + taken);
    p->reader = (int *)((char *)p->ref + refs);
    for (uint32_t i = 0; i < from->nops; i++) {
        take_op(m, from, i, p);
    }
    name_senders(p);
    for (int i = 0; i < from->nreaders; i++) {
        p->reader[p->nreaders++] = partner_in(m, from->readers[i]);
    }
    p->npeers = m->npartners;
    return p;
}

/* ---- shared programs ---- */

static bool is_same(const struct kolo_sim_prog *a, const struct kolo_sim_prog *b)
{
    return a->nops == b->nops && a->nrefs == b->nrefs && a->npeers == b->npeers &&
           a->nreqs == b->nreqs && a->nphases == b->nphases && a->nreaders == b->nreaders &&
           a->nlanes == b->nlanes && a->fills_outbox == b->fills_outbox &&
           memcmp(a->lane, b->lane, sizeof a->lane) == 0 &&
           memcmp(a->op, b->op, (size_t)a->nops * sizeof *a->op) == 0 &&
           memcmp(a->taken_bytes, b->taken_bytes, 2 * (size_t)a->nreqs * sizeof(uint64_t)) == 0 &&
           memcmp(a->ref, b->ref, (size_t)a->nrefs * sizeof *a->ref) == 0 &&
           memcmp(a->reader, b->reader, (size_t)a->nreaders * sizeof(int)) == 0;
}

/* Of the ops, a word at a time: kolo_hash() goes byte by byte. */
static uint64_t hash_of(const struct kolo_sim_prog *p)
{
    static_assert(sizeof *p->op % sizeof(uint64_t) == 0, "an op is whole words");
    const char *at = (const char *)p->op, *end = (const char *)(p->op + p->nops);
    uint64_t hash = (uint64_t)p->nops;
    for (; at < end; at += sizeof hash) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* Find an equal program, or keep this one. Returns its number; -1: out of memory. */
static int share(struct maker *m, struct kolo_sim_prog *p)
{
    int at = (int)(hash_of(p) % (uint64_t)m->slots);
    struct kolo_sim_set *set = m->set;
    for (; m->table[at] > 0; at = (at + 1) % m->slots) {
        if (is_same(set->prog[m->table[at] - 1], p)) {
            free(p);
            return m->table[at] - 1;
        }
    }
    set->prog[set->nprogs] = p; /* there is room for a program a rank */
    m->table[at] = ++set->nprogs;
    return set->nprogs - 1;
}

static bool add_member(struct maker *m, int prog)
{
    struct kolo_sim_set *set = m->set;
    const struct kolo_sim_prog *p = set->prog[prog];
    const size_t peers = m->npeers + (size_t)m->npartners;
    const size_t sources = m->nsources + (size_t)p->nreqs;
    if (peers > m->peers_cap || sources > m->sources_cap) {
        m->peers_cap = 2 * peers;
        m->sources_cap = 2 * sources;
        int *peer = realloc(set->peer, (m->peers_cap + 1) * sizeof *peer);
        set->peer = peer != NULL ? peer : set->peer;
        int32_t *source = realloc(set->source, (m->sources_cap + 1) * sizeof *source);
        set->source = source != NULL ? source : set->source;
        if (peer == NULL || source == NULL) {
            return false;
        }
    }
    set->member[m->me] = (struct kolo_sim_member){prog, (uint32_t)m->npeers, (uint32_t)m->nsources};
    for (int i = 0; i < m->npartners; i++) {
        set->peer[m->npeers + (size_t)i] = m->partner[i];
    }
    for (int i = 0; i < p->nreqs; i++) {
        set->source[m->nsources + (size_t)i] = -1;
    }
    m->npeers = peers;
    m->nsources = sources;
    return true;
}

/* The number of this rank's program, which is made if no rank before has it. */
static kolo_status make_prog(struct maker *m, bool whole, int *out)
{
    struct kolo_prog *lowered = NULL;
    int number = -1;
    const kolo_status st = whole ? lower_whole(m, &lowered) : lower_alone(m, &lowered);
    if (st == KOLO_OK) {
        m->extents.me = m->me;
        struct kolo_sim_prog *prog = convert(m, lowered);
        number = prog != NULL ? share(m, prog) : -1;
        kolo_prog_destroy(lowered);
    }
    free(m->alone.rank);
    m->alone.rank = NULL;
    KOLO_TRY(st);
    if (number < 0) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d programs", m->set->nprogs);
    }
    *out = number;
    return KOLO_OK;
}

/* Chunks of one number are equally long on all ranks, so equal steps are equal programs. */
static kolo_status make_rank_alone(struct maker *m, int *out)
{
    struct kolo_rank_plan *mine = &m->plan->rank[m->me];
    const struct kolo_sim_steps steps = number_partners(m);
    *out = kolo_sim_twins_find(&m->twins, &steps);
    if (*out < 0) {
        KOLO_TRY(make_prog(m, false, out));
        kolo_sim_twins_keep(&m->twins, &steps, *out);
    }
    free(mine->step); /* not needed any more */
    mine->step = NULL;
    mine->count = 0;
    return KOLO_OK;
}

static kolo_status make_rank(struct maker *m)
{
    const bool whole = m->plan->shape.nranks <= KOLO_SIM_WHOLE_RANKS;
    int number = -1;
    KOLO_TRY(whole ? make_prog(m, true, &number) : make_rank_alone(m, &number));
    const bool ok = add_member(m, number);
    forget_partners(m);
    return ok ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for rank %d", m->me);
}

/* ---- all of it ---- */

static void count_steps(struct maker *m)
{
    for (int r = 0; r < m->plan->shape.nranks; r++) {
        m->set->steps += (size_t)m->plan->rank[r].count;
    }
}

static kolo_status open_maker(struct maker *m, size_t bytes, size_t tile_bytes, size_t **arrays)
{
    const size_t n = (size_t)m->plan->shape.nranks;
    const size_t elem = bytes % sizeof(float) == 0 ? sizeof(float) : 1;
    const struct kolo_coll_args args = {.coll = m->plan->shape.coll,
                                        .type = elem > 1 ? KOLO_FLOAT32 : KOLO_UINT8,
                                        .count = bytes / elem,
                                        .root = m->plan->shape.root};
    bool inlined = false;
    const size_t own = m->place->machine->tile_bytes, tile = own > 0 ? own : tile_bytes;
    KOLO_TRY(kolo_extents_make(m->plan, 0, &args, elem, &m->extents, arrays));
    m->extents.tile_bytes = tile;
    kolo_tile(m->plan, &m->extents, kolo_max(tile, KOLO_SIM_SLOT_BYTES), &m->piece, &m->tiles,
              &inlined);
    m->slots = (int)(2 * n + 1);
    m->local = malloc(2 * n * sizeof *m->local);
    m->link = calloc(n + 1, 1);
    m->table = calloc((size_t)m->slots, sizeof *m->table);
    m->set->prog = calloc(n, sizeof(struct kolo_sim_prog *));
    m->set->member = calloc(n, sizeof *m->set->member);
    if (m->local == NULL || m->link == NULL || m->table == NULL || m->set->prog == NULL ||
        m->set->member == NULL || !kolo_sim_twins_open(&m->twins, (int)n)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu ranks", n);
    }
    m->partner = m->local + n;
    for (size_t r = 0; r < n; r++) {
        m->local[r] = -1;
    }
    m->set->nranks = (int)n;
    m->set->tiles = m->tiles;
    m->set->in_long = !inlined && m->piece * (size_t)m->plan->max_places > KOLO_SIM_SHORT_BYTES;
    return KOLO_OK;
}

kolo_status kolo_sim_set_make(const struct kolo_algo *algo, const struct kolo_sim_place *place,
                              int root, size_t bytes, size_t tile_bytes, struct kolo_sim_set *out)
{
    struct kolo_sim_set set = {0};
    struct maker m = {.place = place, .set = &set};
    size_t *arrays = NULL;
    const struct kolo_shape shape = kolo_sim_shape(place, algo->coll, root);
    KOLO_TRY(kolo_sim_check_size(algo, place));
    const int ranks = shape.nranks <= KOLO_SIM_WHOLE_RANKS ? -1 : KOLO_PLAN_PLAIN;
    KOLO_TRY(kolo_plan_build(algo, &shape, ranks, &m.plan));
    count_steps(&m);
    kolo_status st = open_maker(&m, bytes, tile_bytes, &arrays);
    for (m.me = 0; m.me < shape.nranks && st == KOLO_OK; m.me++) {
        st = make_rank(&m);
    }
    kolo_plan_destroy(m.plan);
    free(arrays);
    free(m.local);
    free(m.link);
    free(m.table);
    kolo_sim_twins_close(&m.twins);
    st = st == KOLO_OK ? kolo_sim_match(&set) : st;
    if (st != KOLO_OK) {
        kolo_sim_set_free(&set);
        return st;
    }
    *out = set;
    return KOLO_OK;
}

void kolo_sim_set_free(struct kolo_sim_set *set)
{
    for (int i = 0; i < set->nprogs; i++) {
        free(set->prog[i]);
    }
    free(set->prog);
    free(set->member);
    free(set->peer);
    free(set->source);
    *set = (struct kolo_sim_set){0};
}
