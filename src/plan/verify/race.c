// SPDX-License-Identifier: Apache-2.0
/* Vector clocks of lanes. A lane's own entry is the number of its steps so far. */
#include "plan/verify/race.h"

#include <stdlib.h>
#include <string.h>

static bool number_notes(struct kolo_clocks *c)
{
    const struct kolo_plan *plan = c->order->plan;
    size_t notes = 0;
    c->note = malloc(((size_t)c->order->steps + 1) * sizeof *c->note);
    if (c->note == NULL) {
        return false;
    }
    memset(c->note, 0xff, (size_t)c->order->steps * sizeof *c->note);
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const int dep = plan->rank[r].step[i].dep;
            if (dep >= 0 && c->note[c->order->base[r] + dep] < 0) {
                c->note[c->order->base[r] + dep] = (int)notes++;
            }
        }
    }
    c->noted = malloc((notes + 1) * c->width * sizeof *c->noted);
    return c->noted != NULL;
}

bool kolo_clocks_init(struct kolo_clocks *c, const struct kolo_order *order, int locations,
                      bool whole)
{
    const int lanes = order->plan->lanes;
    const size_t all = (size_t)order->plan->shape.nranks * (size_t)lanes;
    *c = (struct kolo_clocks){.order = order, .whole = whole, .lanes = lanes};
    c->width = whole ? all : (size_t)lanes;
    c->now = calloc(all * c->width, sizeof *c->now);
    if (whole) {
        c->sent = malloc(((size_t)order->links + 1) * c->width * sizeof *c->sent);
    }
    if (lanes > 1) {
        c->access = calloc((size_t)locations + 1, (2 + (size_t)lanes) * sizeof *c->access);
    }
    return c->now != NULL && (!whole || c->sent != NULL) && (lanes == 1 || c->access != NULL) &&
           number_notes(c);
}

void kolo_clocks_free(struct kolo_clocks *c)
{
    free(c->now);
    free(c->sent);
    free(c->noted);
    free(c->note);
    free(c->access);
}

static void join_clocks(uint32_t *restrict to, const uint32_t *restrict from, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        to[i] = to[i] > from[i] ? to[i] : from[i];
    }
}

static uint32_t *clock_of_lane(const struct kolo_clocks *c, int rank, int lane)
{
    return &c->now[((size_t)rank * (size_t)c->lanes + (size_t)lane) * c->width];
}

/* The entry of lane 0 of `rank` in the clocks of that rank. */
static size_t own_entry(const struct kolo_clocks *c, int rank)
{
    return c->whole ? (size_t)rank * (size_t)c->lanes : 0;
}

static uint32_t *clock_of_message(const struct kolo_clocks *c, const struct kolo_event *e)
{
    return &c->sent[(size_t)c->order->link[e->message] * c->width];
}

void kolo_clocks_step(struct kolo_clocks *c, const struct kolo_event *e)
{
    const struct kolo_step *s = e->step;
    uint32_t *now = clock_of_lane(c, e->rank, s->lane);
    if (s->dep >= 0) {
        const size_t note = (size_t)c->note[c->order->base[e->rank] + s->dep];
        join_clocks(now, &c->noted[note * c->width], c->width);
    }
    if (c->whole && (s->op == KOLO_RECV || s->op == KOLO_RECV_REDUCE)) {
        join_clocks(now, clock_of_message(c, e), c->width);
    }
    now[own_entry(c, e->rank) + s->lane] = (uint32_t)c->order->turn[e->number] + 1;
    if (c->whole && s->op == KOLO_SEND) {
        memcpy(clock_of_message(c, e), now, c->width * sizeof *now);
    }
    if (c->note[e->number] >= 0) {
        memcpy(&c->noted[(size_t)c->note[e->number] * c->width], now, c->width * sizeof *now);
    }
}

/* The step that lane `lane` of e's rank was at with this clock, if e's step does not know that it
 * is over; else -1. */
static int unordered_step(const struct kolo_clocks *c, const struct kolo_event *e, int lane,
                          uint32_t clock)
{
    const uint32_t *now = clock_of_lane(c, e->rank, e->step->lane);
    if (lane == e->step->lane || clock <= now[own_entry(c, e->rank) + (size_t)lane]) {
        return -1;
    }
    return c->order->lane_step[c->order->lane_first[e->rank * c->lanes + lane] + (int)clock - 1];
}

int kolo_clocks_access(struct kolo_clocks *c, const struct kolo_event *e, int location, bool write)
{
    enum { WRITE, WRITE_LANE, READ };
    uint32_t *at = &c->access[(size_t)location * (READ + (size_t)c->lanes)];
    const uint32_t turn = (uint32_t)c->order->turn[e->number] + 1;
    int other = unordered_step(c, e, (int)at[WRITE_LANE], at[WRITE]);
    for (int lane = 0; write && other < 0 && lane < c->lanes; lane++) {
        other = unordered_step(c, e, lane, at[READ + lane]);
    }
    if (write) {
        at[WRITE] = turn;
        at[WRITE_LANE] = e->step->lane;
    } else {
        at[READ + e->step->lane] = turn;
    }
    return other;
}

int kolo_clocks_unknown(const struct kolo_clocks *c, int rank)
{
    assert(c->whole);
    for (int q = 0; q < c->order->plan->shape.nranks; q++) {
        uint32_t known = q == rank;
        for (int mine = 0; mine < c->lanes; mine++) {
            const uint32_t *now = clock_of_lane(c, rank, mine);
            for (int lane = 0; lane < c->lanes; lane++) {
                known |= now[q * c->lanes + lane];
            }
        }
        if (known == 0) {
            return q;
        }
    }
    return -1;
}
