// SPDX-License-Identifier: Apache-2.0
/* The proof runs all ranks' programs on symbols, as exec/cpu/exec.c runs one program on bytes, with
 * its pipeline of stages, credits, entry lines and lanes. Ranks take turns, each until it must
 * wait. If no rank can go on, they wait for each other.
 *
 * One order of turns is enough, because the programs have no choices. Either the clocks order an
 * access in every run, or the clocks of this run show that they do not.
 *
 * L. Lamport: Time, clocks, and the ordering of events in a distributed system, CACM 21(7), 1978;
 * vector clocks with the last access of each cell as in C. Flanagan, S. Freund: FastTrack, PLDI
 * 2009.
 */
#include "exec/proof/progverify.h"

#include "exec/proof/proof.h"
#include "exec/ref.h"

#include <stdlib.h>
#include <string.h>

static const struct kolo_prog *prog_of(const struct kolo_proof *p, int call, int rank)
{
    return p->set->prog[call * p->n + rank];
}

static struct kolo_turn turn_of(struct kolo_proof *p, int rank, int lane)
{
    const struct kolo_runner *r = &p->runner[rank];
    return (struct kolo_turn){.proof = p,
                              .prog = prog_of(p, r->call, rank),
                              .plan = p->set->plan[r->call],
                              .rank = rank,
                              .lane = lane,
                              .call = r->call,
                              .epoch = r->epoch,
                              .op = -1,
                              .component = (uint32_t)(rank * p->lanes + lane),
                              .clock = kolo_proof_clock(p, rank, lane)};
}

/* ---- credits ---- */

/* Join the clocks that the readers of the rank's tile `epoch` had when they finished it. */
static kolo_status join_readers(const struct kolo_turn *t, const struct kolo_prog *prog,
                                uint32_t epoch)
{
    struct kolo_proof *p = t->proof;
    for (int i = 0; prog != NULL && i < prog->nreaders; i++) {
        const int q = prog->readers[i];
        const uint32_t done = p->done_at[(size_t)q * (p->epochs + 1) + epoch + 1];
        if (done == 0) {
            return kolo_proof_must_wait(t, "the end of the tile at", q, epoch);
        }
        kolo_proof_join(p, t->clock, done);
    }
    return KOLO_OK;
}

/* The use of the slot before tile `epoch`. The rank's first lane to come takes the slot. The other
 * lanes find the same earlier use. */
static struct kolo_slot_use found_in(const struct kolo_slot_use *use, uint32_t epoch)
{
    const bool taken = use->prog != NULL && use->epoch == epoch;
    return (struct kolo_slot_use){.prog = taken ? use->prog_before : use->prog,
                                  .epoch = taken ? use->epoch_before : use->epoch};
}

static struct kolo_slot_use *use_of(const struct kolo_turn *t, uint32_t epoch)
{
    return &t->proof->runner[t->rank].use[epoch % t->proof->set->depth];
}

static struct kolo_slot_use *long_use_of(const struct kolo_turn *t, uint32_t epoch)
{
    return &t->proof->runner[t->rank].long_use[epoch % t->proof->set->long_depth];
}

/* Check that the lines and the short slot of tile `epoch` may be written. */
static kolo_status claim_lines(const struct kolo_turn *t, uint32_t epoch)
{
    const uint32_t depth = t->proof->set->depth;
    const struct kolo_prog *old = found_in(use_of(t, epoch), epoch).prog;
    return epoch >= depth ? join_readers(t, old, epoch - depth) : KOLO_OK;
}

/* Check that the long slot of tile `epoch` may be written. */
static kolo_status long_credit(const struct kolo_turn *t, uint32_t epoch)
{
    const struct kolo_slot_use old = found_in(long_use_of(t, epoch), epoch);
    return epoch - old.epoch < t->proof->set->depth ? join_readers(t, old.prog, old.epoch)
                                                    : KOLO_OK;
}

static void note_use(const struct kolo_turn *t, struct kolo_slot_use *use)
{
    if (use->prog == NULL || use->epoch != t->epoch) {
        *use = (struct kolo_slot_use){t->prog, use->prog, t->epoch, use->epoch};
    }
}

static kolo_status begin_tile(const struct kolo_turn *t)
{
    struct kolo_proof *p = t->proof;
    struct kolo_runner *r = &p->runner[t->rank];
    for (int i = 0; i < t->prog->nlanes && t->prog->nlanes > 1 && t->tile > 1; i++) {
        const size_t lane = (size_t)(t->rank * p->lanes + i);
        if (r->lane[i].tile + 1 < t->tile) {
            return kolo_proof_must_wait(t, "a tile of lane", i, t->tile - 2);
        }
        kolo_proof_join(p, t->clock, p->lane_done[lane * p->epochs + t->epoch - 2]);
    }
    const bool fills_long = p->set->in_long[t->call] && t->prog->fills_outbox;
    kolo_status st = claim_lines(t, t->epoch);
    st = st == KOLO_OK && fills_long ? long_credit(t, t->epoch) : st;
    if (st != KOLO_OK) {
        return st;
    }
    if (fills_long) {
        note_use(t, long_use_of(t, t->epoch));
    }
    note_use(t, use_of(t, t->epoch));
    const uint32_t slot = t->epoch & ((uint32_t)t->prog->depth - 1);
    p->slot_of[(size_t)t->rank * p->epochs + t->epoch] = (uint8_t)slot;
    return kolo_proof_claim_slot(t, t->epoch, slot);
}

/* ---- lanes ---- */

static kolo_status note_passed(const struct kolo_turn *t, uint32_t pc)
{
    struct kolo_proof *p = t->proof;
    if (t->prog->nlanes == 1) {
        return KOLO_OK;
    }
    const size_t lane = (size_t)(t->rank * p->lanes + t->lane);
    const uint32_t now = kolo_proof_snapshot(p, t->clock);
    p->passed[(lane * KOLO_TILE_COPIES + t->tile % KOLO_TILE_COPIES) * (p->max_ops + 1) + pc] = now;
    return now != 0 ? KOLO_OK : kolo_proof_no_memory();
}

static kolo_status run_stage(struct kolo_turn *t, uint32_t end)
{
    struct kolo_proof *p = t->proof;
    struct kolo_runner_lane *s = &p->runner[t->rank].lane[t->lane];
    while (s->pc < end) {
        t->op = (int)s->pc;
        t->clock[t->component]++;
        KOLO_AWAIT(kolo_proof_op(t));
        s->pc++;
        p->work++;
        KOLO_TRY(note_passed(t, s->pc));
    }
    t->op = -1;
    return KOLO_OK;
}

/* As in exec/cpu/exec.c: in iteration i, stage s works on tile i-s, the last stage first. */
static kolo_status advance_lane(struct kolo_proof *p, int rank, int lane)
{
    struct kolo_turn t = turn_of(p, rank, lane);
    struct kolo_runner *r = &p->runner[rank];
    struct kolo_runner_lane *s = &r->lane[lane];
    const struct kolo_lane_ops *ops = &t.prog->lane[lane];
    const uint32_t stages = (uint32_t)ops->nstages, tiles = p->set->tiles[r->call];
    for (; s->iter < tiles + stages - 1; s->iter++, s->slot = 0) {
        for (; s->slot < stages; s->slot++, s->begun = false) {
            const uint32_t stage = stages - 1 - s->slot;
            kolo_status st = KOLO_OK;
            t.tile = s->iter - stage;
            t.epoch = r->epoch + t.tile;
            if (t.tile >= tiles) {
                continue;
            }
            if (!s->begun) {
                t.clock[t.component]++;
                st = stage == 0 ? begin_tile(&t) : KOLO_OK;
                s->pc = ops->stage[stage];
                s->begun = st == KOLO_OK;
                p->work += s->begun;
            }
            st = st == KOLO_OK ? run_stage(&t, ops->stage[stage + 1]) : st;
            if (st != KOLO_OK) {
                return st;
            }
            s->pc = ops->begin;
        }
    }
    s->finished = true;
    return KOLO_OK;
}

/* ---- calls ---- */

static kolo_status publish_entry(struct kolo_proof *p, int rank)
{
    struct kolo_turn t = turn_of(p, rank, 0);
    struct kolo_runner *r = &p->runner[rank];
    struct kolo_home *home = kolo_proof_home(p, r->call, rank);
    t.clock[t.component]++;
    memset(r->lane, 0, sizeof r->lane);
    memset(r->entered, 0, (size_t)p->n * sizeof *r->entered);
    for (uint32_t i = 0; i < KOLO_TILE_COPIES * p->max_reqs; i++) {
        r->request[i] = -1;
    }
    kolo_proof_enter(&t);
    home->entered = kolo_proof_snapshot(p, t.clock);
    r->at = KOLO_RUN_ENTER;
    p->work++;
    return home->entered != 0 ? KOLO_OK : kolo_proof_no_memory();
}

static kolo_status enter_call(struct kolo_proof *p, int rank)
{
    struct kolo_turn t = turn_of(p, rank, 0);
    struct kolo_runner *r = &p->runner[rank];
    for (int i = 0; i < t.prog->nentries; i++) {
        const int q = t.prog->entries[i];
        const struct kolo_home *home = kolo_proof_home(p, r->call, q);
        if (home->entered == 0) {
            return kolo_proof_must_wait(&t, "the entry", q, r->epoch);
        }
        t.clock[t.component]++;
        kolo_proof_join(p, t.clock, home->entered);
        r->entered[q] = true;
    }
    for (int lane = 1; lane < t.prog->nlanes; lane++) {
        uint32_t *clock = kolo_proof_clock(p, rank, lane);
        const uint32_t own = clock[t.component + (uint32_t)lane];
        memcpy(clock, t.clock, p->components * sizeof *clock);
        clock[t.component + (uint32_t)lane] = own;
    }
    r->at = KOLO_RUN_LANES;
    p->work++;
    return KOLO_OK;
}

static kolo_status leave_call(struct kolo_proof *p, int rank)
{
    struct kolo_turn t = turn_of(p, rank, 0);
    struct kolo_runner *r = &p->runner[rank];
    for (int lane = 1; lane < t.prog->nlanes; lane++) {
        const uint32_t *clock = kolo_proof_clock(p, rank, lane);
        for (uint32_t i = 0; i < p->components; i++) {
            t.clock[i] = clock[i] > t.clock[i] ? clock[i] : t.clock[i];
        }
    }
    t.clock[t.component]++;
    KOLO_TRY(kolo_proof_leave(&t));
    r->epoch += p->set->tiles[r->call];
    if (r->done < r->epoch) {
        return kolo_proof_fail(&t, "returns without having said that its tiles are done");
    }
    r->call++;
    r->at = r->call < p->set->ncalls ? KOLO_RUN_PUBLISH : KOLO_RUN_OVER;
    return KOLO_OK;
}

static kolo_status run_lanes(struct kolo_proof *p, int rank)
{
    struct kolo_runner *r = &p->runner[rank];
    const int nlanes = prog_of(p, r->call, rank)->nlanes;
    int finished = 0;
    for (int lane = 0; lane < nlanes; lane++) {
        KOLO_TRY(r->lane[lane].finished ? KOLO_OK : advance_lane(p, rank, lane));
        finished += r->lane[lane].finished;
    }
    return finished == nlanes ? leave_call(p, rank) : KOLO_INPROGRESS;
}

static kolo_status run_rank(struct kolo_proof *p, int rank, bool *moved)
{
    struct kolo_runner *r = &p->runner[rank];
    const uint64_t before = p->work;
    kolo_status st = KOLO_OK;
    while (st == KOLO_OK && r->at != KOLO_RUN_OVER) {
        st = r->at == KOLO_RUN_PUBLISH ? publish_entry(p, rank)
             : r->at == KOLO_RUN_ENTER ? enter_call(p, rank)
                                       : run_lanes(p, rank);
    }
    *moved = *moved || p->work != before;
    return st;
}

/* ---- the end ---- */

static void say_who_waits(const struct kolo_proof *p, int rank, struct kolo_text *text)
{
    const struct kolo_runner *r = &p->runner[rank];
    const int nlanes = r->at == KOLO_RUN_LANES ? prog_of(p, r->call, rank)->nlanes : 1;
    for (int lane = 0; lane < nlanes && r->at != KOLO_RUN_OVER; lane++) {
        const struct kolo_runner_lane *s = &r->lane[lane];
        if (!s->finished) {
            kolo_text_add(text, "%s rank %d, op %u, call %d, for %s %d (%u)",
                          text->len > 0 ? ";" : "", rank, s->pc, r->call, s->wait.what,
                          s->wait.peer, s->wait.number);
        }
    }
}

static kolo_status refuse_deadlock(const struct kolo_proof *p)
{
    struct kolo_text text = {0};
    for (int rank = 0; rank < p->n && text.len < 300; rank++) {
        say_who_waits(p, rank, &text);
    }
    const kolo_status st =
        kolo_fail(KOLO_ERR_INVALID, "%s: all wait for ever:%s", p->set->plan[0]->algo->base.name,
                  text.chars != NULL ? text.chars : " out of memory");
    kolo_text_free(&text);
    return st;
}

/* The first long tile after the last tile is tile `epoch`. */
static kolo_status last_long_slot(const struct kolo_turn *turn, uint32_t epoch)
{
    struct kolo_proof *p = turn->proof;
    struct kolo_turn t = *turn;
    t.clock = p->joined;
    memcpy(t.clock, turn->clock, p->components * sizeof *t.clock);
    const kolo_status st = long_credit(&t, epoch);
    return st == KOLO_OK ? kolo_proof_claim_long_slot(&t, epoch % p->set->long_depth) : st;
}

/* Check that any later call may write the slots of the last tiles, once their readers say that they
 * are done. */
static kolo_status last_slots(struct kolo_proof *p)
{
    for (int rank = 0; rank < p->n; rank++) {
        p->runner[rank].call--;
        struct kolo_turn t = turn_of(p, rank, 0);
        for (uint32_t i = 0; i < p->set->depth; i++) {
            const uint32_t epoch = p->epochs + i;
            kolo_status st = claim_lines(&t, epoch);
            st = st == KOLO_OK ? kolo_proof_claim_slot(&t, epoch, epoch % p->set->depth) : st;
            st = st == KOLO_OK ? last_long_slot(&t, epoch) : st;
            if (st != KOLO_OK) {
                return st == KOLO_INPROGRESS ? refuse_deadlock(p) : st;
            }
        }
    }
    return KOLO_OK;
}

static kolo_status no_message_left(const struct kolo_proof *p)
{
    for (uint32_t i = 0; i < p->messages.count; i++) {
        const struct kolo_proof_message *m = (const struct kolo_proof_message *)p->messages.at + i;
        if (!m->sent || m->received == 0) {
            return kolo_fail(KOLO_ERR_INVALID, "%s: a message from rank %d to rank %d has one end",
                             p->set->plan[0]->algo->base.name, m->from, m->to);
        }
    }
    return KOLO_OK;
}

static kolo_status run_all(struct kolo_proof *p)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < p->n; rank++) {
            KOLO_TRY(run_rank(p, rank, &moved));
        }
    }
    for (int rank = 0; rank < p->n; rank++) {
        if (p->runner[rank].at != KOLO_RUN_OVER) {
            return refuse_deadlock(p);
        }
    }
    KOLO_TRY(no_message_left(p));
    return last_slots(p);
}

/* ---- all of it ---- */

/* Messages of the reference need not be aligned. */
static void add_symbols(void *arg, void *dst, const void *a, const void *b, size_t bytes, bool last)
{
    (void)arg;
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t left, right;
        memcpy(&left, (const char *)a + at, sizeof left);
        memcpy(&right, (const char *)b + at, sizeof right);
        const uint64_t sum = kolo_proof_add(left, right);
        const uint64_t result = last ? kolo_proof_last(sum) : sum;
        memcpy((char *)dst + at, &result, sizeof result);
    }
}

/* The symbols of all OUT chunks, by call and rank, as the reference makes them. */
static kolo_status make_promise(const struct kolo_plan *plan, uint64_t *symbols)
{
    const int n = plan->shape.nranks;
    const size_t most = (size_t)(n > plan->chunks ? n : plan->chunks);
    uint64_t *leaf = calloc((size_t)n * most + 1, sizeof *leaf);
    const void **in = calloc((size_t)n, sizeof *in);
    void **out = calloc((size_t)n, sizeof *out);
    kolo_status st = KOLO_ERR_SYSTEM;
    if (leaf == NULL || in == NULL || out == NULL) {
        st = kolo_proof_no_memory();
        goto done;
    }
    for (int r = 0; r < n; r++) {
        for (size_t c = 0; c < most; c++) {
            leaf[(size_t)r * most + c] = kolo_proof_leaf(r, (int)c);
        }
        in[r] = leaf + (size_t)r * most;
        out[r] = symbols + (size_t)r * most;
    }
    st = kolo_ref_run(plan, sizeof(uint64_t), in, out, add_symbols, NULL);

done:
    free(leaf);
    free(in);
    free(out);
    return st;
}

static kolo_status prove_set(const struct kolo_program_set *set, uint64_t *const *promise,
                             bool in_place)
{
    struct kolo_proof p = {
        .set = set, .in_place = in_place, .n = set->plan[0]->shape.nranks, .lanes = 1};
    const kolo_status st = kolo_proof_open(&p, promise) ? run_all(&p) : kolo_proof_no_memory();
    kolo_proof_close(&p);
    return st;
}

kolo_status kolo_verify_programs(const struct kolo_program_set *set)
{
    uint64_t **promise = calloc((size_t)set->ncalls, sizeof *promise);
    kolo_status st = promise != NULL ? kolo_programs_check(set) : kolo_proof_no_memory();
    for (int call = 0; call < set->ncalls && st == KOLO_OK; call++) {
        const struct kolo_plan *plan = set->plan[call];
        const size_t n = (size_t)plan->shape.nranks;
        const size_t most = kolo_max(n, (size_t)plan->chunks);
        promise[call] = calloc(n * most + 1, sizeof **promise);
        st = promise[call] != NULL ? make_promise(plan, promise[call]) : kolo_proof_no_memory();
    }
    for (int in_place = 0; in_place < 2 && st == KOLO_OK; in_place++) {
        st = prove_set(set, promise, in_place != 0);
    }
    for (int call = 0; promise != NULL && call < set->ncalls; call++) {
        free(promise[call]);
    }
    free(promise);
    return st;
}
