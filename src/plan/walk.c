// SPDX-License-Identifier: Apache-2.0
/* The walk. A queue holds the lanes that may be able to move. Each lane does one step and queues up
 * again. It wakes the one lane that can go on because of its message or its freed slot. One
 * function, waits_for(), finds the wait of a lane, for the walk and for the text about a deadlock.
 */
#include "walk.h"

#include "print.h"

#include <stdlib.h>

static bool is_receive(const struct kolo_step *step)
{
    return step->op == KOLO_RECV || step->op == KOLO_RECV_REDUCE;
}

struct lane_state {
    int next, tile; /* the step of the lane, and the tile, that come next */
    bool queued;
};

struct walk {
    const struct kolo_order *order;
    const struct kolo_plan *plan;
    const struct kolo_visitor *visitor;
    void *ctx;
    int tiles, slots, lanes; /* lanes of all ranks together */
    struct lane_state *lane;
    int *sent, *received; /* [links], over all tiles */
    int *queue;           /* a ring of `lanes` entries; a lane is in it at most once */
    int head, queued;
    long left; /* steps to do */
};

static int lane_length(const struct walk *w, int lane)
{
    return w->order->lane_first[lane + 1] - w->order->lane_first[lane];
}

static bool lane_done(const struct walk *w, int lane)
{
    return w->lane[lane].tile == w->tiles || lane_length(w, lane) == 0;
}

static void enqueue(struct walk *w, int lane)
{
    if (w->lane[lane].queued || lane_done(w, lane)) {
        return;
    }
    int at = w->head + w->queued++;
    at = at >= w->lanes ? at - w->lanes : at;
    w->queue[at] = lane;
    w->lane[lane].queued = true;
}

static int dequeue(struct walk *w)
{
    const int lane = w->queue[w->head];
    w->head = w->head + 1 == w->lanes ? 0 : w->head + 1;
    w->queued--;
    w->lane[lane].queued = false;
    return lane;
}

/* A lane of this rank that is not yet done with tile - 2, or -1. */
static int lane_behind(const struct walk *w, int rank, int tile)
{
    const int first = rank * w->plan->lanes;
    for (int lane = first; lane < first + w->plan->lanes; lane++) {
        if (w->lane[lane].tile < tile - 1 && !lane_done(w, lane)) {
            return lane;
        }
    }
    return -1;
}

/* The lane that the next step of `lane` waits for; -1: the step can run. */
static int waits_for(const struct walk *w, int lane)
{
    const struct kolo_order *o = w->order;
    const struct lane_state *me = &w->lane[lane];
    const int lanes = w->plan->lanes;
    const int rank = lanes == 1 ? lane : lane / lanes;
    const int index = o->lane_step[o->lane_first[lane] + me->next];
    const struct kolo_step *s = &w->plan->rank[rank].step[index];
    if (s->op == KOLO_SEND) {
        const int link = o->link[o->message[o->base[rank] + index]];
        if (w->sent[link] - w->received[link] >= w->slots) {
            return s->peer * lanes + s->lane;
        }
    } else if (is_receive(s)) {
        const int link = o->link[o->message[o->base[rank] + index]];
        if (w->sent[link] == w->received[link]) {
            return s->peer * lanes + s->lane;
        }
    }
    if (lanes == 1) {
        return -1;
    }
    if (s->dep >= 0) {
        const int other = rank * lanes + w->plan->rank[rank].step[s->dep].lane;
        const struct lane_state *it = &w->lane[other];
        if (it->tile < me->tile ||
            (it->tile == me->tile && it->next <= o->turn[o->base[rank] + s->dep])) {
            return other;
        }
    }
    return me->next == 0 ? lane_behind(w, rank, me->tile) : -1;
}

/* Count the message, find its other end, and wake that end. */
static void pass_message(struct walk *w, struct kolo_event *e)
{
    const struct kolo_order *o = w->order;
    const int link = o->link[e->message];
    const int first = o->link_first[link];
    const int each = o->link_first[link + 1] - first;
    if (e->step->op == KOLO_SEND) {
        const int freed = w->sent[link]++ - w->slots;
        if (freed >= 0) {
            e->other = o->recv[first + freed % each];
            e->other_tile = freed / each;
        }
    } else {
        w->received[link]++;
        e->other = o->send[e->message];
        e->other_tile = e->tile;
    }
    enqueue(w, e->step->peer * w->plan->lanes + e->step->lane);
}

static kolo_status take_step(struct walk *w, int lane)
{
    const struct kolo_order *o = w->order;
    struct lane_state *me = &w->lane[lane];
    const int rank = lane / w->plan->lanes;
    const int index = o->lane_step[o->lane_first[lane] + me->next];
    struct kolo_event e = {.step = &w->plan->rank[rank].step[index],
                           .rank = rank,
                           .index = index,
                           .tile = me->tile,
                           .number = o->base[rank] + index,
                           .message = o->message[o->base[rank] + index],
                           .other = -1};
    me->next++;
    if (me->next == lane_length(w, lane)) {
        me->next = 0;
        me->tile++;
    }
    w->left--;
    if (e.message >= 0) {
        pass_message(w, &e);
    }
    if (w->plan->lanes > 1) { /* others of this rank may wait for this step or this tile */
        for (int other = 0; other < w->plan->lanes; other++) {
            enqueue(w, rank * w->plan->lanes + other);
        }
    }
    enqueue(w, lane);
    return w->visitor->step(w->ctx, &e);
}

static void describe_wait(const struct walk *w, int lane, struct kolo_text *out)
{
    const struct kolo_order *o = w->order;
    const int rank = lane / w->plan->lanes;
    const int index = o->lane_step[o->lane_first[lane] + w->lane[lane].next];
    const int other = waits_for(w, lane);
    char text[KOLO_STEP_TEXT];
    kolo_step_print(&w->plan->rank[rank].step[index], text);
    kolo_text_add(out, "rank %d lane %d step %d (%s) waits for rank %d lane %d; ", rank,
                  lane % w->plan->lanes, index, text, other / w->plan->lanes,
                  other % w->plan->lanes);
}

/* Fail because no lane can move. From any stuck lane the waits lead into a cycle. The text shows
 * the cycle, or its beginning. */
static kolo_status refuse_deadlock(const struct walk *w)
{
    enum { SHOWN = 4 };
    int lane = 0;
    while (lane_done(w, lane)) {
        lane++;
    }
    for (int i = 0; i < w->lanes; i++) {
        lane = waits_for(w, lane);
    }
    struct kolo_text text = {0};
    int length = 0;
    const int start = lane;
    do {
        if (length++ < SHOWN) {
            describe_wait(w, lane, &text);
        }
        lane = waits_for(w, lane);
    } while (lane != start);
    const kolo_status status =
        kolo_fail(KOLO_ERR_INVALID,
                  "%s, %d ranks, root %d: deadlock with %d slots a link, in a cycle of %d: %s%ld "
                  "steps were not done",
                  w->plan->algo->base.name, w->plan->shape.nranks, w->plan->shape.root, w->slots,
                  length, text.chars != NULL ? text.chars : "", w->left);
    kolo_text_free(&text);
    return status;
}

static kolo_status run_lanes(struct walk *w)
{
    for (int lane = 0; lane < w->lanes; lane++) {
        enqueue(w, lane);
    }
    while (w->queued > 0) {
        const int lane = dequeue(w);
        if (waits_for(w, lane) < 0) {
            KOLO_TRY(take_step(w, lane));
        }
    }
    return w->left == 0 ? KOLO_OK : refuse_deadlock(w);
}

kolo_status kolo_order_walk(const struct kolo_order *order, int tiles, int slots,
                            const struct kolo_visitor *visitor, void *ctx)
{
    const struct kolo_plan *plan = order->plan;
    struct walk w = {.order = order,
                     .plan = plan,
                     .visitor = visitor,
                     .ctx = ctx,
                     .tiles = tiles,
                     .slots = slots,
                     .lanes = plan->shape.nranks * plan->lanes,
                     .left = (long)order->steps * tiles};
    assert(tiles >= 1 && slots >= 1);
    w.lane = calloc((size_t)w.lanes, sizeof *w.lane);
    int *ints = calloc(2 * (size_t)order->links + (size_t)w.lanes, sizeof *ints);
    kolo_status status = KOLO_OK;
    if (w.lane == NULL || ints == NULL) {
        status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        w.sent = ints;
        w.received = w.sent + order->links;
        w.queue = w.received + order->links;
        status = run_lanes(&w);
    }
    free(w.lane);
    free(ints);
    return status;
}

kolo_status kolo_walk(const struct kolo_plan *plan, int tiles, int slots,
                      const struct kolo_visitor *visitor, void *ctx)
{
    struct kolo_order order;
    KOLO_TRY(kolo_order_create(plan, &order));
    const kolo_status status = kolo_order_walk(&order, tiles, slots, visitor, ctx);
    kolo_order_destroy(&order);
    return status;
}
