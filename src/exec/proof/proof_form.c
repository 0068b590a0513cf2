// SPDX-License-Identifier: Apache-2.0
/* The check that programs are well formed, so that running them, even on symbols, stays within
 * bounds. It also checks that every sleeping rank is woken: a signaller wakes its program's
 * readers, and the end of a tile wakes its sources. */
#include "exec/proof/proof.h"

static kolo_status refuse_program(const struct kolo_prog *p, int rank, const char *what, long value)
{
    return kolo_fail(KOLO_ERR_INVALID, "%s: program of rank %d: %s (%ld)", p->plan->algo->base.name,
                     rank, what, value);
}

static bool in_list(const int *list, int count, int rank)
{
    for (int i = 0; i < count; i++) {
        if (list[i] == rank) {
            return true;
        }
    }
    return false;
}

static bool list_makes_sense(const int *list, int count, int n)
{
    bool good = true;
    for (int i = 0; i < count; i++) {
        good = good && list[i] >= 0 && list[i] < n;
    }
    return good;
}

static kolo_status check_lane(const struct kolo_prog *p, int rank, int lane)
{
    const struct kolo_lane_ops *ops = &p->lane[lane];
    if (ops->begin > ops->end || ops->end > p->nops || ops->nstages < 1 ||
        ops->nstages > KOLO_STAGES) {
        return refuse_program(p, rank, "bounds of lane", lane);
    }
    if (ops->stage[0] != ops->begin || ops->stage[ops->nstages] != ops->end) {
        return refuse_program(p, rank, "stages leave out ops of lane", lane);
    }
    for (int i = 0; i < ops->nstages; i++) {
        if (ops->stage[i] > ops->stage[i + 1]) {
            return refuse_program(p, rank, "order of stages, stage", i);
        }
    }
    return KOLO_OK;
}

static bool is_copies(int count, uint32_t most)
{
    return count > 0 && (uint32_t)count <= most && (count & (count - 1)) == 0;
}

static kolo_status check_program(const struct kolo_program_set *set, const struct kolo_prog *p,
                                 int rank, int n)
{
    if (p->me != rank || p->nlanes < 1 || p->nlanes > KOLO_LANES) {
        return refuse_program(p, rank, "rank or lanes", p->nlanes);
    }
    if (!is_copies(p->depth, set->depth) || !is_copies(p->long_depth, set->long_depth)) {
        return refuse_program(p, rank, "depth",
                              is_copies(p->depth, set->depth) ? p->long_depth : p->depth);
    }
    if (!list_makes_sense(p->readers, p->nreaders, n) ||
        !list_makes_sense(p->sources, p->nsources, n) ||
        !list_makes_sense(p->entries, p->nentries, n)) {
        return refuse_program(p, rank, "a list names a rank that is not there, of", n);
    }
    for (int lane = 0; lane < p->nlanes; lane++) {
        KOLO_TRY(check_lane(p, rank, lane));
    }
    for (uint32_t i = 0; i < p->nops; i++) {
        const struct kolo_uop *op = &p->op[i];
        if ((uint64_t)op->first + op->nsrc + op->ndst > p->nats ||
            op->step >= p->plan->rank[rank].count ||
            (op->code == KOLO_DO_SIGNAL && op->nsrc != 1)) {
            return refuse_program(p, rank, "operands or step of op", (long)i);
        }
    }
    return KOLO_OK;
}

static kolo_status check_wakes(const struct kolo_program_set *set, int call, int rank, int n)
{
    const struct kolo_prog *const *of = &set->prog[call * n];
    const struct kolo_prog *p = of[rank];
    for (int i = 0; i < p->nreaders; i++) {
        const struct kolo_prog *q = of[p->readers[i]];
        if (!in_list(q->sources, q->nsources, rank)) {
            return refuse_program(p, rank, "may sleep for the end of a tile, unknown to rank",
                                  p->readers[i]);
        }
    }
    for (uint32_t i = 0; i < p->nops; i++) {
        const struct kolo_uop *op = &p->op[i];
        const bool wait = op->code == KOLO_DO_WAIT, left = op->code == KOLO_DO_LEFT;
        for (uint32_t k = 0; (wait || left) && k < op->nsrc; k++) {
            const int to = p->at[op->first + k].rank;
            if (to < 0 || to >= n) {
                return refuse_program(p, rank, "waits for rank", to);
            }
            const struct kolo_prog *q = of[to];
            if ((wait && !in_list(q->readers, q->nreaders, rank)) ||
                (left && !in_list(q->sources, q->nsources, rank))) {
                return refuse_program(p, rank, "may sleep for a signal, unknown to rank", to);
            }
        }
    }
    return KOLO_OK;
}

kolo_status kolo_programs_check(const struct kolo_program_set *set)
{
    if (set->depth < 1 || set->depth > KOLO_DEPTH || set->long_depth < 1 ||
        set->long_depth > KOLO_LONG_DEPTH) {
        return kolo_fail(KOLO_ERR_INVALID, "depths of %u and %u, allowed: 1 to %d and 1 to %d",
                         set->depth, set->long_depth, KOLO_DEPTH, KOLO_LONG_DEPTH);
    }
    for (int call = 0; call < set->ncalls; call++) {
        const int n = set->plan[call]->shape.nranks;
        for (int rank = 0; rank < n; rank++) {
            KOLO_TRY(check_program(set, set->prog[call * n + rank], rank, n));
        }
        for (int rank = 0; rank < n; rank++) {
            KOLO_TRY(check_wakes(set, call, rank, n));
        }
    }
    return KOLO_OK;
}
