// SPDX-License-Identifier: Apache-2.0
/* The memory of a proof: sizes over all calls and ranks, then one array for each kind of state. */
#include "exec/proof/proof.h"

#include <stdlib.h>

static void *take_zeroed(struct kolo_proof *p, size_t count, size_t each)
{
    void *room = calloc(count + 1, each);
    p->failed = p->failed || room == NULL;
    p->room[p->nrooms++] = room;
    return room;
}

static void measure_programs(struct kolo_proof *p)
{
    const struct kolo_program_set *set = p->set;
    for (int call = 0; call < set->ncalls; call++) {
        const struct kolo_plan *plan = set->plan[call];
        p->epochs += set->tiles[call];
        for (int r = 0; r < p->n; r++) {
            const struct kolo_prog *prog = p->set->prog[call * p->n + r];
            const uint32_t room = (uint32_t)prog->plan->scratch_chunks + prog->stage_chunks;
            const uint32_t phases = (uint32_t)plan->rank[r].phases;
            const uint32_t places = (uint32_t)plan->rank[r].places;
            p->lanes = prog->nlanes > p->lanes ? prog->nlanes : p->lanes;
            p->max_private = room > p->max_private ? room : p->max_private;
            p->max_phases = phases > p->max_phases ? phases : p->max_phases;
            p->max_places = places > p->max_places ? places : p->max_places;
            p->max_reqs = prog->nreqs > p->max_reqs ? prog->nreqs : p->max_reqs;
            p->max_ops = prog->nops > p->max_ops ? prog->nops : p->max_ops;
            for (uint32_t i = 0; i < prog->nops; i++) {
                const uint32_t count = prog->op[i].count;
                p->max_count = count > p->max_count ? count : p->max_count;
            }
        }
    }
    p->components = (uint32_t)(p->n * p->lanes);
}

/* Number the cells. */
static void place_homes(struct kolo_proof *p, uint64_t *const *promise)
{
    for (int call = 0; call < p->set->ncalls; call++) {
        const struct kolo_plan *plan = p->set->plan[call];
        const size_t most = (size_t)(p->n > plan->chunks ? p->n : plan->chunks);
        for (int r = 0; r < p->n; r++) {
            struct kolo_home *home = kolo_proof_home(p, call, r);
            home->cell = p->ncells;
            home->nin = (uint32_t)kolo_plan_buf_chunks(plan, r, KOLO_IN);
            home->nout = (uint32_t)kolo_plan_buf_chunks(plan, r, KOLO_OUT);
            home->promise = promise[call] + (size_t)r * most;
            home->touched = p->touched + (size_t)(call * p->n + r) * p->components;
            p->ncells += p->set->tiles[call] * (home->nin + home->nout);
        }
    }
    p->private_cell = p->ncells;
    p->ncells += (uint32_t)p->n * KOLO_TILE_COPIES * p->max_private;
    p->outbox_cell = p->ncells;
    p->ncells += (uint32_t)p->n * (KOLO_DEPTH + KOLO_LONG_DEPTH) * p->max_places;
}

static void take_clocks(struct kolo_proof *p)
{
    const size_t n = (size_t)p->n, lanes = n * (size_t)p->lanes, all = p->components;
    p->clock = take_zeroed(p, lanes * all, sizeof *p->clock);
    p->signalled = take_zeroed(p, n * p->max_phases * p->epochs, sizeof *p->signalled);
    p->signal_slot = take_zeroed(p, n * p->max_phases * p->epochs, sizeof *p->signal_slot);
    p->done_at = take_zeroed(p, n * (p->epochs + 1), sizeof *p->done_at);
    p->lane_done = take_zeroed(p, lanes * p->epochs, sizeof *p->lane_done);
    p->slot_touched = take_zeroed(p, n * p->epochs * all, sizeof *p->slot_touched);
    p->slot_of = take_zeroed(p, n * p->epochs, sizeof *p->slot_of);
    p->joined = take_zeroed(p, all, sizeof *p->joined);
    p->touched = take_zeroed(p, (size_t)p->set->ncalls * n * all, sizeof *p->touched);
    if (p->lanes > 1) {
        p->passed = take_zeroed(p, lanes * KOLO_TILE_COPIES * (p->max_ops + 1), sizeof *p->passed);
    }
}

static void take_runners(struct kolo_proof *p)
{
    const size_t n = (size_t)p->n, reqs = (size_t)KOLO_TILE_COPIES * p->max_reqs;
    p->runner = take_zeroed(p, n, sizeof *p->runner);
    int32_t *requests = take_zeroed(p, n * reqs, sizeof *requests);
    bool *entered = take_zeroed(p, n * n, sizeof *entered);
    const size_t fifos = n * n * KOLO_PLAN_CHANNELS;
    p->sends = take_zeroed(p, fifos, sizeof *p->sends);
    p->recvs = take_zeroed(p, fifos, sizeof *p->recvs);
    for (size_t r = 0; !p->failed && r < n; r++) {
        p->runner[r].request = requests + r * reqs;
        p->runner[r].entered = entered + r * n;
    }
    for (size_t i = 0; !p->failed && i < fifos; i++) {
        p->sends[i].first = p->recvs[i].first = -1;
    }
}

bool kolo_proof_open(struct kolo_proof *p, uint64_t *const *promise)
{
    measure_programs(p);
    take_clocks(p);
    take_runners(p);
    p->home = take_zeroed(p, (size_t)(p->set->ncalls * p->n), sizeof *p->home);
    p->moving = take_zeroed(p, p->max_count, sizeof *p->moving);
    if (p->failed) {
        return false;
    }
    place_homes(p, promise);
    p->cell = take_zeroed(p, p->ncells, sizeof *p->cell);
    p->reader = take_zeroed(p, (size_t)p->ncells * p->components, sizeof *p->reader);
    for (uint32_t i = 0; !p->failed && i < p->ncells; i++) {
        p->cell[i].arriving = p->cell[i].leaving = -1;
    }
    return !p->failed && kolo_proof_append(&p->clocks, p->components * sizeof(uint32_t)) != NULL;
}

void kolo_proof_close(struct kolo_proof *p)
{
    for (int i = 0; i < p->nrooms; i++) {
        free(p->room[i]);
    }
    free(p->messages.at);
    free(p->values.at);
    free(p->nodes.at);
    free(p->clocks.at);
}
