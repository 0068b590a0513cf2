// SPDX-License-Identifier: Apache-2.0
/* Lanes go through their programs as in exec/cpu/exec.c: in iteration i, stage s works on tile i-s,
 * the last stage first. An op first waits for what it needs, then has the core, then tells. */
#include "sim/engine.h"

#include "sim/cost.h"

#include <math.h>
#include <stdlib.h>

/* Events so near are of one time, and differ by rounding alone. The rates of flows are found once for
 * all of them: where all ranks do the same, that saves most of the work. */
static const double SAME_US = 1e-9;

/* ---- waiting and telling ---- */

static void make_ready(struct kolo_sim *s, int lane)
{
    int *grown = kolo_grow(s->ready, s->nready, &s->ready_cap, sizeof *grown);
    if (grown == NULL) {
        s->failed = true;
        return;
    }
    s->ready = grown;
    s->ready[s->nready++] = lane;
}

static void wake(struct kolo_sim *s, int rank, size_t fact)
{
    int kept = -1;
    for (int at = s->waiters[rank]; at >= 0;) {
        struct kolo_sim_lane *l = &s->lane[at];
        const int next = l->next_waiter;
        if (l->wants == fact) {
            make_ready(s, at);
        } else {
            l->next_waiter = kept;
            kept = at;
        }
        at = next;
    }
    s->waiters[rank] = kept;
}

void kolo_sim_tell(struct kolo_sim *s, int rank, size_t fact, double us, int moment)
{
    s->fact[fact] = us;
    if (s->by != NULL) {
        s->by[fact] = moment;
    }
    wake(s, rank, fact);
}

static bool park(struct kolo_sim *s, struct kolo_sim_lane *l, int rank, size_t fact)
{
    l->parked = true;
    l->wants = fact;
    l->next_waiter = s->waiters[rank];
    s->waiters[rank] = (int)(l - s->lane);
    return false;
}

static bool schedule(struct kolo_sim *s, const struct kolo_sim_lane *l)
{
    s->failed = s->failed ||
                !kolo_sim_events_add(&s->events, l->now_us, KOLO_SIM_LANE, (int)(l - s->lane), 0);
    return false;
}

/* The op needs a fact of `rank`, which this lane knows latency_us later. False: it is not there. */
static bool need(struct kolo_sim *s, struct kolo_sim_lane *l, int rank, size_t fact,
                 double latency_us)
{
    const double us = s->fact[fact];
    if (isinf(us)) {
        return park(s, l, rank, fact);
    }
    if (us + latency_us > l->ready_us) {
        l->ready_us = us + latency_us;
        l->cause = s->by != NULL ? s->by[fact] : -1;
        l->latency_us = latency_us;
        l->wire_us = 0;
    }
    return true;
}

/* ---- what an op waits for ---- */

static bool need_line(struct kolo_sim *s, struct kolo_sim_lane *l, uint32_t tile,
                      const struct kolo_sim_ref *ref, bool done)
{
    const int partner = kolo_sim_partner(s, l->rank, ref->peer);
    const int rank = kolo_sim_stand_in(s, partner);
    struct kolo_link_price link;
    kolo_sim_near_link(&s->place, partner, l->rank, &link);
    return need(s, l, rank,
                done ? kolo_sim_done_fact(s, rank, tile)
                     : kolo_sim_line_fact(s, rank, tile, ref->what),
                link.latency_us);
}

static bool need_message(struct kolo_sim *s, struct kolo_sim_lane *l, uint32_t tile,
                         const struct kolo_sim_ref *ref)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    const int partner = kolo_sim_partner(s, l->rank, ref->peer);
    const int rank = kolo_sim_stand_in(s, partner);
    const int32_t request = s->set.source[s->set.member[l->rank].source + ref->what];
    const uint64_t bytes = kolo_sim_taken_bytes(s, p, ref->what, tile);
    const double before_us = l->ready_us;
    if (!need(s, l, rank, kolo_sim_sent_fact(s, rank, tile, (uint32_t)request),
              kolo_sim_wire_latency(s, partner, l->rank, bytes))) {
        return false;
    }
    const double posted_us = kolo_sim_posted_us(s, partner, l->rank, bytes);
    if (posted_us > 0 &&
        !need(s, l, l->rank, kolo_sim_posted_fact(s, l->rank, tile, ref->what), posted_us)) {
        return false;
    }
    if (l->ready_us > before_us) {
        l->wire_us = kolo_sim_wire_alone(s, partner, l->rank, bytes);
    }
    return true;
}

/* DONE: the sends of the lane have left. `sub` counts ops. */
static bool need_sends(struct kolo_sim *s, struct kolo_sim_lane *l, const struct kolo_sim_prog *p,
                       int lane, uint32_t tile)
{
    const uint32_t begin = p->lane[lane].begin, end = p->lane[lane].end;
    for (; p->nreqs > 0 && begin + l->sub < end; l->sub++) {
        const struct kolo_sim_op *op = &p->op[begin + l->sub];
        if (op->code == KOLO_DO_SEND &&
            !need(s, l, l->rank, kolo_sim_sent_fact(s, l->rank, tile, op->index), 0)) {
            return false;
        }
    }
    return true;
}

static bool is_after(const struct kolo_sim *s, const struct kolo_sim_lane *l,
                     const struct kolo_sim_op *op, uint32_t tile)
{
    const struct kolo_sim_lane *other = &s->lane[l->rank * s->lanes + op->peer];
    return other->tile > tile || (other->tile == tile && other->pc >= op->index);
}

/* False: the lane waits in a list. */
static bool meets(struct kolo_sim *s, struct kolo_sim_lane *l, const struct kolo_sim_op *op,
                  uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    if (op->code == KOLO_DO_DONE) {
        return need_sends(s, l, p, (int)(l - s->lane) % s->lanes, tile);
    }
    if (op->code == KOLO_DO_AFTER) {
        return is_after(s, l, op, tile) || park(s, l, l->rank, KOLO_SIM_PROGRESS);
    }
    if (op->code != KOLO_DO_WAIT && op->code != KOLO_DO_TAKEN && op->code != KOLO_DO_LEFT) {
        return true;
    }
    for (; l->sub < op->nrefs; l->sub++) {
        const struct kolo_sim_ref *ref = &p->ref[op->ref + l->sub];
        if (op->code == KOLO_DO_TAKEN ? !need_message(s, l, tile, ref)
                                      : !need_line(s, l, tile, ref, op->code == KOLO_DO_LEFT)) {
            return false;
        }
    }
    return true;
}

/* ---- what it tells ---- */

static int note_moment(struct kolo_sim *s, struct kolo_sim_lane *l, double begin_us, uint32_t tile)
{
    if (s->by == NULL) {
        return -1;
    }
    struct kolo_sim_moment *grown =
        kolo_grow(s->moment, s->nmoments, &s->moment_cap, sizeof *grown);
    if (grown == NULL) {
        s->failed = true;
        return -1;
    }
    s->moment = grown;
    s->moment[s->nmoments] = (struct kolo_sim_moment){.ready_us = l->ready_us,
                                                      .begin_us = begin_us,
                                                      .end_us = l->now_us,
                                                      .rank = l->rank,
                                                      .lane = (int)(l - s->lane) % s->lanes,
                                                      .op = (int)l->pc,
                                                      .cause = l->cause,
                                                      .tile = tile,
                                                      .latency_us = l->latency_us,
                                                      .wire_us = l->wire_us};
    return l->last = s->nmoments++;
}

static void tell_done(struct kolo_sim *s, struct kolo_sim_lane *l, uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    const struct kolo_sim_lane *all = &s->lane[l->rank * s->lanes];
    uint32_t least = tile + 1;
    l->tile = tile + 1;
    for (int i = 0; i < p->nlanes; i++) {
        least = all[i].tile < least ? all[i].tile : least;
    }
    if (least == tile + 1) {
        kolo_sim_tell(s, l->rank, kolo_sim_done_fact(s, l->rank, tile), l->now_us, l->last);
    }
}

static void finish_op(struct kolo_sim *s, struct kolo_sim_lane *l, const struct kolo_sim_op *op,
                      uint32_t tile)
{
    if (op->code == KOLO_DO_SIGNAL) {
        kolo_sim_tell(s, l->rank, kolo_sim_line_fact(s, l->rank, tile, op->index), l->now_us,
                      l->last);
    } else if (op->code == KOLO_DO_RECV) {
        kolo_sim_tell(s, l->rank, kolo_sim_posted_fact(s, l->rank, tile, op->index), l->now_us,
                      l->last);
    } else if (op->code == KOLO_DO_DONE) {
        tell_done(s, l, tile);
    }
}

/* ---- cores ---- */

/* Whether nobody else has to do with the core of this rank. */
static bool is_alone(const struct kolo_sim *s, int rank)
{
    return s->place.cores == 0 && kolo_sim_prog_at(s, rank)->nlanes == 1;
}

/* False: another rank has the core, and the lane waits in its queue. */
static bool take_core(struct kolo_sim *s, struct kolo_sim_lane *l)
{
    struct kolo_sim_core *core = kolo_sim_core_of(s, l->rank);
    const int lane = (int)(l - s->lane);
    if (core->owner < 0 || core->owner == l->rank) {
        core->owner = l->rank;
        return true;
    }
    l->next_waiter = -1;
    if (core->first < 0) {
        core->first = lane;
    } else {
        s->lane[core->last].next_waiter = lane;
    }
    core->last = lane;
    return false;
}

/* The lane waits for others, or has finished: the next rank may have its core. */
static void leave_core(struct kolo_sim *s, const struct kolo_sim_lane *l)
{
    struct kolo_sim_core *core = kolo_sim_core_of(s, l->rank);
    if (core->owner != l->rank || !(l->parked || l->finished)) {
        return;
    }
    core->owner = -1;
    if (core->first >= 0) {
        const int lane = core->first;
        core->first = s->lane[lane].next_waiter;
        core->owner = s->lane[lane].rank;
        make_ready(s, lane);
    }
}

/* ---- an op ---- */

/* The core gives the message its bytes from begin_us until now. */
static void send_message(struct kolo_sim *s, const struct kolo_sim_lane *l,
                         const struct kolo_sim_op *op, uint32_t tile, double begin_us)
{
    const double copy_us = (double)kolo_sim_op_bytes(s, op, tile) * s->costs->net_copy_us_per_byte;
    if (s->by != NULL) {
        s->by[kolo_sim_sent_fact(s, l->rank, tile, op->index)] = l->last;
    }
    kolo_sim_wire_send(s, l->rank, op, tile, fmax(begin_us, l->now_us - copy_us), l->now_us);
}

static void have_core(struct kolo_sim *s, struct kolo_sim_lane *l, const struct kolo_sim_op *op,
                      uint32_t tile)
{
    struct kolo_sim_core *core = kolo_sim_core_of(s, l->rank);
    double work_us = kolo_sim_work(s, l->rank, l->pc, op, tile);
    const bool early = work_us > 0 && op->code == KOLO_DO_TAKEN && is_alone(s, l->rank);
    const double early_us = early ? work_us * (1 - kolo_sim_part_left(s, l, op, tile)) : 0;
    double begin_us = l->now_us;
    if (work_us > 0) {
        begin_us = core->free_us > begin_us ? core->free_us : begin_us;
        work_us += core->last_rank != l->rank && core->last_rank >= 0 ? s->costs->switch_us : 0;
        core->last_rank = l->rank;
        core->work_us += work_us;
        core->free_us = l->now_us = begin_us + work_us - early_us;
    }
    if (work_us > 0 || l->cause != l->last) {
        note_moment(s, l, begin_us, tile);
    }
    if (op->code == KOLO_DO_SEND) {
        send_message(s, l, op, tile, begin_us);
    }
}

/* False: the lane waits, or goes on at another time. */
static bool do_op(struct kolo_sim *s, struct kolo_sim_lane *l, const struct kolo_sim_op *op,
                  uint32_t tile)
{
    const bool alone = is_alone(s, l->rank);
    if (!l->met) {
        if (l->sub == 0) {
            l->ready_us = l->before_us = l->now_us;
            l->cause = l->last;
            l->latency_us = l->wire_us = 0;
        }
        if (!meets(s, l, op, tile)) {
            return false;
        }
        l->now_us = alone || l->ready_us > s->now_us ? l->ready_us : s->now_us;
        l->ready_us = l->now_us;
        l->met = true;
    }
    if (!alone && l->now_us > s->now_us) {
        return schedule(s, l);
    }
    if (!l->worked) {
        if (s->place.cores > 0 && !take_core(s, l)) {
            return false;
        }
        l->now_us = !alone && s->now_us > l->now_us ? s->now_us : l->now_us;
        have_core(s, l, op, tile);
        l->worked = true;
        if (!alone && l->now_us > s->now_us) {
            return schedule(s, l);
        }
    }
    finish_op(s, l, op, tile);
    l->met = l->worked = false;
    l->sub = 0;
    s->nevents++;
    return true;
}

/* ---- lanes ---- */

/* A tile may begin when its slots are free, and no lane is two tiles behind. */
static bool begin_tile(struct kolo_sim *s, struct kolo_sim_lane *l, uint32_t tile)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    const struct kolo_sim_lane *all = &s->lane[l->rank * s->lanes];
    const bool fills_long = s->set.in_long && p->fills_outbox;
    const uint32_t depth = fills_long ? KOLO_LONG_DEPTH : KOLO_DEPTH;
    for (int i = 0; i < p->nlanes && p->nlanes > 1; i++) {
        if (all[i].tile + 1 < tile) {
            return park(s, l, l->rank, KOLO_SIM_PROGRESS);
        }
    }
    l->ready_us = l->sub == 0 ? l->now_us : l->ready_us;
    for (; tile >= depth && l->sub < (uint32_t)p->nreaders; l->sub++) {
        const struct kolo_sim_ref ref = {p->reader[l->sub], 0};
        if (!need_line(s, l, tile - depth, &ref, true)) {
            return false;
        }
    }
    l->now_us = l->ready_us;
    l->sub = 0;
    return true;
}

static bool run_stage(struct kolo_sim *s, struct kolo_sim_lane *l, uint32_t tile, uint32_t end)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    while (l->pc < end) {
        if (!do_op(s, l, &p->op[l->pc], tile)) {
            return false;
        }
        l->pc++;
        if (p->nlanes > 1) {
            wake(s, l->rank, KOLO_SIM_PROGRESS);
        }
    }
    return true;
}

static void run_lane(struct kolo_sim *s, struct kolo_sim_lane *l)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_at(s, l->rank);
    const struct kolo_lane_ops *ops = &p->lane[(l - s->lane) % s->lanes];
    const uint32_t stages = (uint32_t)ops->nstages;
    for (; l->iter < s->tiles + stages - 1; l->iter++, l->slot = 0) {
        for (; l->slot < stages; l->slot++, l->begun = false) {
            const uint32_t stage = stages - 1 - l->slot;
            const uint32_t tile = l->iter - stage; /* wraps while the pipeline fills */
            if (tile >= s->tiles) {
                continue;
            }
            if (!l->begun) {
                if (stage == 0 && !begin_tile(s, l, tile)) {
                    return;
                }
                l->begun = true;
                l->pc = ops->stage[stage];
            }
            if (!run_stage(s, l, tile, ops->stage[stage + 1])) {
                return;
            }
            l->pc = ops->begin; /* AFTER must not take this tile's pc for the next tile's */
        }
    }
    l->finished = true;
}

/* ---- all of it ---- */

static void take_event(struct kolo_sim *s)
{
    const struct kolo_sim_event event = kolo_sim_events_take(&s->events);
    s->now_us = event.us;
    s->nevents++;
    if (event.kind == KOLO_SIM_LANE) {
        make_ready(s, event.number);
    } else if (event.kind == KOLO_SIM_LEAVE) {
        kolo_sim_wire_leave(s, &event);
    } else {
        kolo_sim_wire_end(s, &event);
    }
}

static void start_lanes(struct kolo_sim *s)
{
    for (int r = s->n - 1; r >= 0; r--) {
        for (int i = s->lanes - 1; i >= 0; i--) {
            struct kolo_sim_lane *l = &s->lane[r * s->lanes + i];
            const bool there = i < kolo_sim_prog_at(s, r)->nlanes;
            *l = (struct kolo_sim_lane){
                .rank = r, .finished = !there, .now_us = s->machine->call_us, .last = -1};
            if (there) {
                make_ready(s, r * s->lanes + i);
            }
        }
    }
}

kolo_status kolo_sim_engine(struct kolo_sim *s)
{
    s->now_us = s->machine->call_us;
    start_lanes(s);
    while (!s->failed) {
        while (s->nready > 0) {
            struct kolo_sim_lane *l = &s->lane[s->ready[--s->nready]];
            l->parked = false;
            run_lane(s, l);
            if (s->place.cores > 0) {
                leave_core(s, l);
            }
        }
        if (s->events.count == 0 || s->events.heap[0].us > s->now_us + SAME_US) {
            kolo_sim_wire_settle(s);
        }
        if (s->events.count == 0) {
            break;
        }
        take_event(s);
    }
    for (int i = 0; i < s->n * s->lanes && !s->failed; i++) {
        if (!s->lane[i].finished) {
            return kolo_fail(KOLO_ERR_INVALID, "%s: rank %d waits for ever at op %u",
                             s->options->algo->base.name, s->lane[i].rank, s->lane[i].pc);
        }
    }
    return s->failed ? kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a simulation") : KOLO_OK;
}
